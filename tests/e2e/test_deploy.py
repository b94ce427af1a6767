"""From declarations to counts, by the CDK's own command: deploy, add handlers, deploy again, destroy.

ministack stands for the account, and enforces the policies of the roles that are deployed; AWS's runtime client runs
the code that is deployed; our poller delivers, with the settings of the mapping that is deployed. What ministack drops
from templates (time to live, recovery, lifecycles) is asserted on the templates, in `tests/infra`.
"""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from framework.lanes import MARK
from framework.local.poller import WINDOW_SECONDS
from framework.quarantine import place_of
from framework.redrive import Quarantine
from handlers.app import app as music
from tests.e2e.cloud import ACCOUNT, REGION, Checkout, Cloud, Consumer, Deployed, running
from tests.e2e.emulator import Ministack

STACK, TABLE, INDEX = "music-dev", "MusicLibrary", "MonthDownloadsIndex"
BATCH_SIZE = 10  # so that there are several batches
CONTEXT = {
    "stage": "dev",
    "account": ACCOUNT,
    "region": REGION,
    "consumers": json.dumps({TABLE: {"batchSize": BATCH_SIZE}}),
}
SECONDS = 240.0  # for all the commands

# Its condition alone would let through what Streamfold writes, so that this is the filter's doing.
DAILY = '''"""Daily downloads of every song."""

from framework import Aggregation, Count, Daily, attr
from handlers.music_library import music


class DailyDownloads(Aggregation):
    """Downloads of every song on every day."""

    name = "daily-downloads"
    source = music
    where = attr("title").not_exists()
    group_by = "songID"
    window = Daily("Timestamp")
    sk_prefix = "day#"
    Downloads = Count()
'''
# Of deleted items too, since ministack lets items expire without a record.
ARCHIVE = '''"""Downloads that are gone."""

from framework import Monthly, TtlArchive, attr
from handlers.music_library import music


class GoneDownloads(TtlArchive):
    """Downloads that somebody deleted, by their month."""

    name = "gone-downloads"
    source = music
    where = attr("Timestamp").exists()
    also_deletes = True
    partition = Monthly("Timestamp")
    prefix = "gone/downloads"
'''
LISTED = """
from handlers.daily import DailyDownloads
from handlers.gone import GoneDownloads

app = App(app.name, [*app.aggregations, DailyDownloads, GoneDownloads])
"""

Counts = dict[tuple[str, str], int]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with Ministack(tmp_path) as ministack:
        yield Cloud(ministack.endpoint)


@pytest.fixture
def checkout(tmp_path: Path, cloud: Cloud) -> Checkout:
    return Checkout(tmp_path / "checkout", cloud, time.monotonic() + SECONDS)


class Library:
    """The source items and the aggregates, which share the table."""

    def __init__(self, cloud: Cloud) -> None:
        self._client = cloud.client("dynamodb")

    def put(self, song: str, sk: str, at: str | None = None, **more: dict[str, str]) -> None:
        item = {"songID": {"S": song}, "SK": {"S": sk}, **({"Timestamp": {"S": at}} if at else {}), **more}
        self._client.put_item(TableName=TABLE, Item=item)

    def delete(self, song: str, sk: str) -> None:
        self._client.delete_item(TableName=TABLE, Key={"songID": {"S": song}, "SK": {"S": sk}})

    def counts(self, attribute: str = "DownloadCount") -> Counts:
        """What the aggregates say."""
        return {
            (item["songID"]["S"], item["SK"]["S"]): int(item[attribute]["N"])
            for item in self._items()
            if attribute in item
        }

    def recount(self, *, characters: int, prefix: str = "") -> Counts:
        """What the source items say."""
        found = Counter(
            (item["songID"]["S"], prefix + item["Timestamp"]["S"][:characters])
            for item in self._items()
            if item["SK"]["S"].startswith("download-")
        )
        return dict(found)

    def ranking(self, month: str) -> list[tuple[str, int]]:
        """A month's songs in the index, most downloads first."""
        found = self._client.query(
            TableName=TABLE,
            IndexName=INDEX,
            KeyConditionExpression="#m = :m",
            ExpressionAttributeNames={"#m": "Month"},
            ExpressionAttributeValues={":m": {"S": month}},
            ScanIndexForward=False,
        )
        return [(item["songID"]["S"], int(item["DownloadCount"]["N"])) for item in found["Items"]]

    def _items(self) -> list[dict[str, Any]]:
        pages = self._client.get_paginator("scan").paginate(TableName=TABLE, ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]


def test_what_is_deployed_counts_exactly_once_until_it_is_destroyed(
    tmp_path: Path, cloud: Cloud, checkout: Checkout
) -> None:
    library = Library(cloud)
    checkout.bootstrap()
    deploy(checkout)
    first = Deployed(cloud, STACK, tmp_path / "first")
    check_mapping(first)
    checkpoints = count_by_month(first, library)
    check_role(cloud, first)

    (checkout.folder / "handlers" / "daily.py").write_text(DAILY)
    (checkout.folder / "handlers" / "gone.py").write_text(ARCHIVE)
    with (checkout.folder / "handlers" / "app.py").open("a") as app:
        app.write(LISTED)
    deploy(checkout)
    second = Deployed(cloud, STACK, tmp_path / "second")
    check_mapping(second)
    # Table, stream, function and mapping are the same ones, and only the code is another.
    for key in ("UUID", "EventSourceArn", "FunctionArn"):
        assert second.mapping[key] == first.mapping[key]
    assert second.function["CodeSha256"] != first.function["CodeSha256"]
    count_by_day_too(second, library, checkpoints)
    keep_what_is_gone(cloud, second, library)
    set_aside(cloud, second, library)

    checkout.cdk("destroy", "--all", "--force", context=CONTEXT)
    check_nothing_is_left(cloud)


def deploy(checkout: Checkout) -> None:
    checkout.cdk("deploy", "--all", "--require-approval", "never", context=CONTEXT)


def check_mapping(deployed: Deployed) -> None:
    mapping = deployed.mapping
    expected = {
        "StartingPosition": "TRIM_HORIZON",
        "BatchSize": BATCH_SIZE,
        "ParallelizationFactor": 1,
        "BisectBatchOnFunctionError": True,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
    }
    assert {key: mapping.get(key) for key in expected} == expected
    assert deployed.tumbling_window == WINDOW_SECONDS
    assert f":table/{TABLE}/stream/" in mapping["EventSourceArn"]


def count_by_month(deployed: Deployed, library: Library) -> dict[str, int]:
    """What the first deployment counts; gives how far the stream is read."""
    with running(deployed) as function:
        consumer = Consumer(deployed, function)
        library.put("a", "info", title={"S": "no download"})
        for day in range(1, 13):
            library.put("a", f"download-{day}", f"2018-01-{day:02}T10:00:00Z")
        for day in range(1, 9):
            library.put("b", f"download-{day}", f"2018-01-{day:02}T10:00:00Z")
        for day in range(1, 6):
            library.put("a", f"download-{20 + day}", f"2018-02-{day:02}T10:00:00Z")
        responses = consumer.deliver()
        assert [response["streamfold"]["records"] for response in responses] == [10, 10, 5, 0]
        check_all_is_well(responses)
        assert library.counts() == {("a", "2018-01"): 12, ("b", "2018-01"): 8, ("a", "2018-02"): 5}
        assert library.ranking("2018-01") == [("a", 12), ("b", 8)]

        library.put("a", "download-1", "2018-02-20T10:00:00Z")  # moves a month
        library.put("a", "download-2", "2018-01-02T10:00:00Z", note={"S": "moves nothing"})
        for day in range(1, 7):
            library.put("a", f"download-{day + 2}", "2018-02-21T10:00:00Z")  # changes the ranks
        library.delete("b", "download-8")
        check_all_is_well(consumer.deliver())
        counts = {("a", "2018-01"): 5, ("b", "2018-01"): 7, ("a", "2018-02"): 12}
        check_months(library, counts)
        assert library.counts() == library.recount(characters=7)

        again = Consumer(deployed, function)
        responses = again.deliver()
        check_all_is_well(responses)
        check_months(library, counts)
        assert sum(response["streamfold"]["records"] for response in responses) == 25 + 9
        assert sum(response["streamfold"]["duplicates"] for response in responses) > 0
        check_filter(again)
    return consumer.checkpoints


def count_by_day_too(deployed: Deployed, library: Library, checkpoints: dict[str, int]) -> None:
    """What the second deployment counts, going on where the first one was."""
    months = library.counts()
    with running(deployed) as function:
        consumer = Consumer(deployed, function, checkpoints)
        for number in range(1, 4):
            library.put("a", f"download-3{number}", f"2018-03-0{number}T10:00:00Z")
        library.put("b", "download-31", "2018-03-01T10:00:00Z")
        library.put("b", "download-32", "2018-03-01T11:00:00Z")
        library.put("a", "download-33", "2018-03-02T10:00:00Z")  # moves a day, and stays in its month
        check_all_is_well(consumer.deliver())
        march = {("a", "2018-03"): 3, ("b", "2018-03"): 2}
        check_months(library, months | march)
        days = {("a", "day#2018-03-01"): 1, ("a", "day#2018-03-02"): 2, ("b", "day#2018-03-01"): 2}
        assert above_zero(library.counts("Downloads")) == days

        # Everything again: the months stay, and the days before their handler was there are counted too.
        again = Consumer(deployed, function)
        check_all_is_well(again.deliver())
        check_months(library, months | march)
        assert above_zero(library.counts("Downloads")) == library.recount(characters=10, prefix="day#")
        assert library.counts() == library.recount(characters=7)
        check_filter(again)


def keep_what_is_gone(cloud: Cloud, deployed: Deployed, library: Library) -> None:
    """Deleted items go into the deployed bucket, with the function's own grants, each once; Glue knows where."""
    with running(deployed) as function:
        library.put("c", "download-1", "2018-04-01T10:00:00Z", note={"S": "käse"})
        library.delete("c", "download-1")
        for _ in range(2):
            check_all_is_well(Consumer(deployed, function).deliver())
    bucket = deployed.function["Environment"]["Variables"]["STREAMFOLD_ARCHIVE"]
    s3 = cloud.client("s3")
    names = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    lines = {
        name: gzip.decompress(s3.get_object(Bucket=bucket, Key=name)["Body"].read()).decode().splitlines()
        for name in names
    }
    table = cloud.client("glue").get_table(DatabaseName="streamfold_music_dev", Name="gone_downloads")["Table"]
    place = table["Parameters"]["storage.location.template"].removeprefix(f"s3://{bucket}/")
    found = [
        (name.startswith(place.replace("${month}", item["Timestamp"]["S"][:7])), item)
        for name in names
        for item in (json.loads(line)["Item"] for line in lines[name])
    ]
    # The first was deleted before the archive was there, and is still in the stream.
    assert sorted(found, key=str) == [
        (True, {"songID": {"S": song}, "SK": {"S": sk}, "Timestamp": {"S": at}, **more})
        for song, sk, at, more in (
            ("b", "download-8", "2018-01-08T10:00:00Z", {}),
            ("c", "download-1", "2018-04-01T10:00:00Z", {"note": {"S": "käse"}}),
        )
    ]
    theirs = cloud.client("s3", deployed.credentials)
    for denied in (
        lambda: theirs.delete_object(Bucket=bucket, Key=names[0]),
        lambda: theirs.put_object(Bucket=bucket, Key="gone/else", Body=b""),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            denied()
    for each in s3.list_object_versions(Bucket=bucket)["Versions"]:  # only an empty bucket goes with its stack
        s3.delete_object(Bucket=bucket, Key=each["Key"], VersionId=each["VersionId"])


def set_aside(cloud: Cloud, deployed: Deployed, library: Library) -> None:
    """A record that cannot be counted goes to the deployed control table, with the function's own grants, once."""
    counts = library.counts()
    control = deployed.function["Environment"]["Variables"]["STREAMFOLD_CONTROL"]
    client = cloud.client("dynamodb")
    quarantine = Quarantine(music, client, control, load=str.encode, store=lambda name, content: None)
    for _ in range(2):
        with running(deployed) as function:
            consumer = Consumer(deployed, function)
            library.put("a", "download-99", "whenever")  # the second one changes nothing
            consumer.deliver()
        places = [place_of(item["sk"]["S"]) for item in quarantine.open()]
        assert sorted((handler, image) for handler, _, image in places) == [
            ("daily-downloads", "NewImage"),
            ("monthly-downloads", "NewImage"),
        ]
        assert library.counts() == counts
    assert quarantine.delivery(TABLE) == "lanes"


def check_months(library: Library, counts: Counts) -> None:
    """The aggregates, and the index that ranks them."""
    assert library.counts() == counts
    for month in {month for _, month in counts}:
        ranks = sorted(((song, n) for (song, of), n in counts.items() if of == month), key=lambda rank: -rank[1])
        assert library.ranking(month) == ranks


def above_zero(counts: Counts) -> Counts:
    return {key: count for key, count in counts.items() if count}


def check_all_is_well(responses: list[Any]) -> None:
    for response in responses:
        assert response["batchItemFailures"] == []
        assert response["streamfold"]["bad"] == []
        assert response["streamfold"]["error"] == ""
        assert response["streamfold"]["refusedTakeBacks"] == 0


def check_filter(consumer: Consumer) -> None:
    """Downloads passed; what Streamfold wrote, which is in the same stream, did not, and neither did other items."""
    passed = [record["dynamodb"] for shard in consumer.shards for record in shard.passed.values()]
    dropped = [record["dynamodb"] for shard in consumer.shards for record in shard.dropped.values()]
    assert {change["Keys"]["SK"]["S"].partition("-")[0] for change in passed} == {"download"}
    ours = [change for change in dropped if MARK in change["NewImage"]]
    assert ours
    assert [change["Keys"]["SK"]["S"] for change in dropped if change not in ours] == ["info"]


def check_role(cloud: Cloud, deployed: Deployed) -> None:
    """The function wrote with its role's credentials; that these may no more shows that they are looked at."""
    client = cloud.client("dynamodb", deployed.credentials)
    key = {"songID": {"S": "a"}, "SK": {"S": "download-1"}}
    for denied in (
        lambda: client.delete_item(TableName=TABLE, Key=key),
        lambda: client.put_item(TableName=TABLE, Item=key),
        lambda: client.scan(TableName=TABLE),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            denied()


def check_nothing_is_left(cloud: Cloud) -> None:
    assert cloud.client("dynamodb").list_tables()["TableNames"] == []
    assert cloud.client("lambda").list_functions()["Functions"] == []
    assert cloud.client("lambda").list_event_source_mappings()["EventSourceMappings"] == []
    buckets = [bucket["Name"] for bucket in cloud.client("s3").list_buckets()["Buckets"]]
    assert [name for name in buckets if name.startswith(STACK)] == []
    assert cloud.client("glue").get_databases()["DatabaseList"] == []
    with pytest.raises(ClientError, match="does not exist"):
        cloud.client("cloudformation").describe_stacks(StackName=STACK)
