"""Batches that Lambda gave up on, with the lane gone on: redrive brings each item into the archive once."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from random import Random
from typing import Any

import pytest

from framework import App, Monthly, Table, TtlArchive
from framework.archive_lines import Content
from framework.archive_objects import ArchiveObjects
from framework.compact import Compaction, Limits
from framework.consumer import Consumer
from framework.control import Control
from framework.deliver_archive import Bucket
from framework.failures import failure_of
from framework.local.memory import MemoryDynamoDB
from framework.local.objects import MemoryObjects, Together
from framework.redrive import Quarantine
from tests.property.test_given_up import Faulty, Stopped
from tests.unit.stream import EXPIRY, download, event
from tests.unit.test_quarantine import no_object, tables
from tests.unit.test_redrive import at, failed

NOW = 1_600_000_000
MONTHS = ("2018-01", "2018-02", "2018-03")
RECORDS = 14


class Expired(TtlArchive):
    """By month of an attribute, so that a batch has several partitions."""

    name = "expired"
    source = Table("MusicLibrary", pk="songID", sk="SK", ttl="expires")
    partition = Monthly("Timestamp")


app = App("archive", [Expired])


def consumer(client: Any) -> Consumer:
    control = Control(client, "control", no_object, version="1", connections=1)
    bucket = Bucket(lambda: client, "archive")
    return Consumer(app, "MusicLibrary", client, control=control, bucket=bucket, connections=1, now=lambda: NOW)


def quarantine(client: Any) -> Quarantine:
    archive = Bucket(lambda: client, "archive")
    options: dict[str, Any] = {"load": lambda name: b"", "store": no_object, "archive": archive, "now": lambda: NOW}
    return Quarantine(app, client, "control", **options)


def expired(number: int, month: str) -> dict[str, Any]:
    return at(number, old=download(str(number), f"{month}-15T10:00:00Z"), userIdentity=EXPIRY)


def deliver(client: Any, records: list[dict[str, Any]]) -> None:
    try:
        consumer(client)(event(*records))
    except (Stopped, Exception):
        pass  # the batch would come again


def archived(objects: MemoryObjects) -> Counter[str]:
    """How often each item is in the archive."""
    texts = (gzip.decompress(content).decode().splitlines() for content in objects.objects.values())
    return Counter(json.loads(line)["Item"]["songID"]["S"] for lines in texts for line in lines)


def tried(random: Random, engine: MemoryDynamoDB, objects: MemoryObjects) -> Any:
    return Faulty(Together(engine, objects), random, 0.25)


def kept(objects: MemoryObjects) -> Counter[str]:
    """The same as the commands read it, which know what was merged."""
    archive = ArchiveObjects(Bucket(lambda: objects, "archive"), Expired._declaration)
    found: Counter[str] = Counter()
    for partition in archive.partitions():
        for content in archive.read(partition.objects):
            assert isinstance(content, Content)
            found.update(json.loads(text)["Item"]["songID"]["S"] for _, _, text in content.lines())
    return found


def about(number: int) -> dict[str, str]:
    return {"first": str(number), "through": str(number), "items": "0"}


def compact(objects: MemoryObjects) -> None:
    archive = ArchiveObjects(Bucket(lambda: objects, "archive"), Expired._declaration)
    assert all(not done.problems for done in Compaction(archive, Limits(), now=lambda: NOW).run())


@pytest.mark.parametrize("compacts", [False, True])
@pytest.mark.parametrize("seed", range(300))
def test_each_item_is_archived_once(seed: int, compacts: bool) -> None:
    random = Random(seed)
    engine, objects = tables(), MemoryObjects()
    sound = Together(engine, objects)
    records = [expired(n + 1, random.choice(MONTHS)) for n in range(RECORDS)]
    first, middle, last = sorted(random.sample(range(1, RECORDS), 3))
    consumer(sound)(event(*records[:first]))
    given_up = [records[first:middle], records[middle:last]]
    for batch in given_up:
        for _ in range(random.randrange(4)):
            # Lambda bisects, so that the tries may be of parts, and from any record on that is not done.
            deliver(tried(random, engine, objects), batch[: random.randint(1, len(batch))])
    goes_on = random.random() < 0.7
    if goes_on:
        consumer(sound)(event(*records[last:]))
    random.shuffle(given_up)
    for batch in given_up:
        if compacts:  # the objects are old, and the lane is at its end
            compact(objects)
        failure = failure_of("f", failed(*batch))
        for _ in range(40):
            try:
                if quarantine(tried(random, engine, objects)).redrive_batch(failure, None).done:
                    break
            except Stopped:
                continue
        assert quarantine(sound).redrive_batch(failure, None).done
        assert quarantine(sound).redrive_batch(failure, None).done
    if compacts:
        compact(objects)
        records = records if goes_on else records[:last]
    else:
        consumer(sound)(event(*records))  # a late duplicate of everything
        assert archived(objects) == {str(n + 1): 1 for n in range(RECORDS)}
    assert kept(objects) == {str(n + 1): 1 for n in range(len(records))}


def test_an_item_that_was_set_aside_is_archived_once_it_can_be() -> None:
    engine, objects = tables(), MemoryObjects()
    sound = Together(engine, objects)
    broken = expired(2, "soon")
    run = event(expired(1, "2018-01"), broken, expired(3, "2018-01"))
    assert consumer(sound)(run)["batchItemFailures"] == []
    assert consumer(sound)(run)["batchItemFailures"] == []
    assert archived(objects) == {"1": 1, "3": 1}
    (entry,) = quarantine(sound).open()
    stays = quarantine(sound).redrive(entry)
    assert not stays.done
    assert "ISO-8601" in stays.reason
    record = json.loads(entry["record"]["S"])
    record["dynamodb"]["OldImage"]["Timestamp"] = {"S": "2018-02-01"}
    engine.put_item(TableName="control", Item={**entry, "record": {"S": json.dumps(record)}})
    (mended,) = quarantine(sound).open()
    assert quarantine(sound).redrive(mended, dry_run=True).done
    assert archived(objects) == {"1": 1, "3": 1}
    assert quarantine(sound).redrive(mended).done
    assert quarantine(sound).redrive(mended).done
    assert consumer(sound)(run)["batchItemFailures"] == []
    assert archived(objects) == {"1": 1, "2": 1, "3": 1}
    assert list(quarantine(sound).open()) == []
    objects.put_object(
        Bucket="", Key="expired/month=2018-02/1-1-0250.json.gz", Body=gzip.compress(b""), Metadata=about(60)
    )
    compact(objects)
    names = {*objects.objects}
    assert quarantine(sound).redrive(mended).done  # also where it is merged by now
    assert {*objects.objects} == names


def test_an_item_filed_alone_hides_no_object_before_it() -> None:
    """What is filed alone lies amid what came in order, and ends before that does."""
    engine, objects = tables(), MemoryObjects()
    sound = Together(engine, objects)
    records = [expired(n + 1, "2018-01") for n in range(10)]
    broken = records[2]["dynamodb"]["OldImage"]
    broken["Timestamp"] = {"S": "soon"}
    assert consumer(sound)(event(*records))["batchItemFailures"] == []
    (entry,) = quarantine(sound).open()
    record = json.loads(entry["record"]["S"])
    record["dynamodb"]["OldImage"]["Timestamp"] = {"S": "2018-01-02"}
    engine.put_item(TableName="control", Item={**entry, "record": {"S": json.dumps(record)}})
    (mended,) = quarantine(sound).open()
    assert quarantine(sound).redrive(mended).done
    # Lambda gave up on a part of it all the same, for another handler's sake.
    assert quarantine(sound).redrive_batch(failure_of("f", failed(*records[4:])), None).done
    assert archived(objects) == {str(n + 1): 1 for n in range(10)}
