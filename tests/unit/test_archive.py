"""Archives as they are declared, named, and written; what goes wrong in the bucket loses nothing."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from framework import (
    Aggregation,
    AllTime,
    App,
    ConfigurationError,
    Count,
    Daily,
    DeclarationError,
    Hourly,
    Monthly,
    Table,
    TtlArchive,
    attr,
)
from framework.archive_lane import Lane, claiming, committing, lane_of, object_name
from framework.consumer import Consumer
from framework.control import Control
from framework.deliver_archive import Bucket
from framework.filters import compile_filters
from framework.local import Local
from framework.local.filtering import passes
from framework.local.memory import MemoryDynamoDB
from framework.local.objects import MemoryObjects
from framework.manifest import manifest
from framework.testing import event, expired, inserted, modified, removed
from tests.unit.test_quarantine import no_object, tables

sessions = Table("Sessions", pk="user", sk="id", ttl="expires")
AT = 1_517_443_190.0  # 2018-01-31T23:59:50Z
NOW = AT + 60


def archive(**fields: Any) -> type[TtlArchive]:
    return type("Sessions", (TtlArchive,), {"name": "sessions", "source": sessions, **fields})


def session(number: int = 1, **more: Any) -> dict[str, Any]:
    return {"user": "ann", "id": f"s{number}", "began": "2018-01-15", "expires": 1_517_443_000, **more}


def gone(number: int = 1, **more: Any) -> dict[str, Any]:
    record = expired(sessions, session(number, **more))
    record["dynamodb"]["ApproximateCreationDateTime"] = AT
    return record


class Bad:
    """An S3 client on which puts go wrong."""

    def __init__(self, objects: MemoryObjects, error: Exception | None) -> None:
        self.objects, self.error = objects, error

    def put_object(self, **arguments: Any) -> Any:
        if self.error is not None:
            raise self.error
        return self.objects.put_object(**arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.objects, name)


def consumer(app: App, engine: Any, objects: Any, **options: Any) -> Consumer:
    ticks = iter(range(0, 10**9, 5))
    clock: dict[str, Any] = {"clock": lambda: float(next(ticks)), "sleep": lambda seconds: None}
    control = Control(engine, "control", no_object, version="1", connections=1, **clock)
    bucket = Bucket(lambda: objects, "the-archive")
    return Consumer(
        app,
        "Sessions",
        engine,
        control=control,
        bucket=bucket,
        connections=1,
        now=lambda: NOW,
        **clock,
        **options,
    )


def held(objects: MemoryObjects) -> dict[str, list[Any]]:
    return {
        name: [json.loads(line) for line in gzip.decompress(content).decode().splitlines()]
        for name, content in objects.objects.items()
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source": Table("Sessions", pk="user")}, "Sessions.source: expected a Table with a time to live"),
        ({"only": ["user"]}, "Sessions.only: expected a tuple of attribute names, came \\['user'\\]"),
        ({"only": ("a",), "without": ("b",)}, "Sessions.without: expected none beside only"),
        ({"without": ("user",)}, "Sessions.without: expected no key of the table"),
        ({"prefix": "/a"}, "Sessions.prefix: expected names of letters, digits"),
        ({"prefix": "_manifests"}, "Sessions.prefix: expected names of letters, digits"),
        ({"partition": Hourly("began")}, "Sessions.partition: expected Daily"),
        ({"partition": "began"}, "Sessions.partition: expected Daily"),
        ({"also_deletes": 1}, "Sessions.also_deletes: expected True or False, came 1"),
        ({"storage": {"COLD": 3}}, "Sessions.storage: expected days by storage class"),
        ({"storage": {"STANDARD_IA": 7}}, "whole number of days for STANDARD_IA, 30 or more, came 7"),
        ({"storage": {"GLACIER": 90, "GLACIER_IR": 9}}, "Sessions.storage: expected colder classes after warmer"),
        ({"storage": {"GLACIER_IR": 90, "GLACIER": 100}}, "days for GLACIER, 120 or more, came 100"),
        ({"storage": {"GLACIER": 90}, "delete_after": 90}, "Sessions.delete_after: expected a whole number of days"),
        ({"delete_after": 0}, "Sessions.delete_after: expected a whole number of days above 0, came 0"),
        ({"where": "open"}, "Sessions.where: expected a condition made with attr"),
        ({"partitions": 3}, "Sessions.partitions: expected a field that an archive has .did you mean 'partition'"),
        ({"name": "Sessions"}, "Sessions.name: expected lower-case letters"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_one_sentence(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        archive(**fields)


def test_archives_in_one_folder_are_refused_and_others_are_not() -> None:
    one, same = archive(), archive(name="others", prefix="sessions/others")
    with pytest.raises(DeclarationError, match="prefix: expected one that is not in that of Sessions"):
        App("app", [one, same])
    assert len(App("app", [one, archive(name="sessions-2")]).archives) == 2


@pytest.mark.parametrize("options", [{"delivery": "ledger"}, {"bucket": None}, {"control": None}])
def test_what_an_archive_needs_is_named(options: dict[str, Any]) -> None:
    app, engine = App("app", [archive()]), tables(App("app", [archive()]))
    needed: dict[str, Any] = {
        "control": Control(engine, "control", no_object),
        "bucket": Bucket(MemoryObjects, "b"),
    }
    with pytest.raises(ConfigurationError, match="sessions: expected delivery by lanes, a control table and a bucket"):
        Consumer(app, "Sessions", engine, **(needed | options))


def test_a_batch_is_one_object_a_partition_named_by_lane_and_place() -> None:
    app, objects = App("app", [archive(partition=Monthly("began"))]), MemoryObjects()
    engine = tables(app)
    batch = event(gone(1), gone(2, began="2018-02-01"), gone(3), inserted(sessions, session(9)), at=AT)
    found = consumer(app, engine, objects)(batch)
    assert found["batchItemFailures"] == []
    names = sorted(objects.objects)
    assert [name.partition("/")[2].partition("/")[0] for name in names] == ["month=2018-01", "month=2018-02"]
    assert all(name.startswith("sessions/") and name.endswith("-010.json.gz") for name in names)
    assert [[line["Item"]["id"]["S"] for line in lines] for _, lines in sorted(held(objects).items())] == [
        ["s1", "s3"],
        ["s2"],
    ]
    about = objects.head_object(Bucket="", Key=names[0])["Metadata"]
    numbers = [int(each["dynamodb"]["SequenceNumber"]) for each in batch["Records"]]
    assert about == {"first": str(numbers[0]), "through": str(numbers[-1]), "items": "2"}
    (state,) = (item for item in engine.scan(TableName="control")["Items"] if item["pk"]["S"].startswith("archive#"))
    assert lane_of(state).done == numbers[-1]
    assert int(state["expires"]["N"]) == NOW + 14 * 86_400
    # Two writes to the control table beside the turn's, and a redelivery writes nothing.
    writes, puts = engine.requests["UpdateItem"], objects.requests["PutObject"]
    assert consumer(app, engine, objects)(batch)["batchItemFailures"] == []
    assert (engine.requests["UpdateItem"], objects.requests["PutObject"]) == (writes, puts)
    assert writes == 3


def test_types_stay_as_they_are_and_attributes_are_kept_as_declared() -> None:
    values: dict[str, Any] = {
        "n": 10**37 + 1, "b": b"\x00\xff", "bs": {b"a", b"\xff"}, "ns": {1, 2}, "l": [], "m": {"x": None, "y": True},
    }  # fmt: skip
    objects = MemoryObjects()
    kinds = [archive(), archive(name="some", only=("n", "m")), archive(name="less", without=("b", "l", "expires"))]
    app = App("app", kinds)
    record = gone(1, **values)
    image = record["dynamodb"]["OldImage"]
    consumer(app, tables(app), objects)(event(record, at=AT))
    items = {name.partition("/")[0]: lines[0]["Item"] for name, lines in held(objects).items()}
    assert items["sessions"] == image
    assert items["sessions"]["n"] == {"N": "1" + "0" * 36 + "1"}
    assert items["sessions"]["b"] == {"B": "AP8="}
    assert items["some"].keys() == {"user", "id", "n", "m"}
    assert items["less"].keys() == image.keys() - {"b", "l", "expires"}


def test_only_what_expired_is_archived_unless_deletes_are() -> None:
    plain = removed(sessions, session(2))
    plain["dynamodb"]["ApproximateCreationDateTime"] = AT
    records = [gone(1), plain, modified(sessions, session(3), session(3, x=1)), inserted(sessions, session(4))]
    app = App("app", [archive(), archive(name="all", also_deletes=True, where=~attr("id").equals("s1"))])
    objects = MemoryObjects()
    assert consumer(app, tables(app), objects)(event(*records, at=AT))["streamfold"]["badRecords"] == 0
    found = {name.partition("/")[0]: [line["Item"]["id"]["S"] for line in of] for name, of in held(objects).items()}
    assert found == {"sessions": ["s1"], "all": ["s2"]}


def test_on_a_replica_expiry_is_told_by_the_time_to_live() -> None:
    table = Table("Sessions", pk="user", sk="id", ttl="expires", home="us-east-1")
    app, objects = App("app", [archive(source=table)]), MemoryObjects()
    records = [removed(table, session(1)), removed(table, session(2, expires=2_000_000_000)), removed(table, session(3, expires="soon"))]  # fmt: skip
    for record in records:
        record["dynamodb"]["ApproximateCreationDateTime"] = AT
    consumer(app, tables(app), objects)(event(*records, at=AT))
    assert [[line["Item"]["id"]["S"] for line in lines] for lines in held(objects).values()] == [["s1"]]


def test_the_filter_lets_expiry_pass_and_nothing_else() -> None:
    plain = removed(sessions, session())
    for fields, expected in (({}, [True, False]), ({"also_deletes": True}, [True, True])):
        filters = compile_filters([archive(**fields)._declaration])
        records = [gone(), plain, inserted(sessions, session()), modified(sessions, session(), session(x=1))]
        assert [passes(filters.patterns, each) for each in records] == [*expected, False, False]
        assert filters.warnings == ()
    home = Table("Sessions", pk="user", sk="id", ttl="expires", home="us-east-1")
    assert passes(compile_filters([archive(source=home)._declaration]).patterns, plain)


def test_a_filter_of_several_handlers_lets_pass_what_each_needs() -> None:
    class Users(Aggregation):
        name = "users"
        source = sessions
        target = Table("Users", pk="key")
        group_by = "user"
        window = AllTime()
        Sessions = Count()

    app = App("app", [archive(where=attr("kind").equals("web")), Users])
    for limit in range(1, 6):
        patterns = compile_filters(app.declarations, limit=limit).patterns
        assert len(patterns) <= limit
        for record in (gone(kind="web"), inserted(sessions, session()), removed(sessions, session())):
            assert passes(patterns, record)
    exact = compile_filters(app.declarations).patterns
    assert not passes([exact[-1]], inserted(sessions, session()))


def test_a_record_without_a_time_or_a_place_is_set_aside_and_the_others_are_archived() -> None:
    app = App("app", [archive(), archive(name="by-day", partition=Daily("began"))])
    engine, objects = tables(app), MemoryObjects()
    timeless = gone(1)
    del timeless["dynamodb"]["ApproximateCreationDateTime"]
    batch = event(timeless, gone(2, began="soon"), gone(3), at=AT)
    del batch["Records"][0]["dynamodb"]["ApproximateCreationDateTime"]
    found = consumer(app, engine, objects)(batch)["streamfold"]
    assert [(each["handler"], each["reason"].partition(", came ")[0]) for each in found["bad"]] == [
        ("sessions", "ApproximateCreationDateTime: expected the time of the change"),
        ("by-day", "attribute 'began': expected ISO-8601 text or epoch seconds"),
    ]
    ids = {name.partition("/")[0]: [line["Item"]["id"]["S"] for line in of] for name, of in sorted(held(objects).items()) if "2018-01-31" in name}  # fmt: skip
    assert ids == {"sessions": ["s2", "s3"]}
    assert sum(item["pk"]["S"] == "quarantine" for item in engine.scan(TableName="control")["Items"]) == 2


def error(code: str, operation: str = "PutObject") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": f"{code}."}}, operation)


@pytest.mark.parametrize(
    "broken", [error("NoSuchBucket"), error("AccessDenied"), error("SlowDown"), error("503"), EndpointConnectionError(endpoint_url="https://s3")]
)  # fmt: skip
def test_a_bucket_that_is_missing_denies_or_throttles_makes_the_batch_wait(
    broken: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    app, engine, objects = App("app", [archive()]), MemoryDynamoDB(), MemoryObjects()
    engine = tables(app)
    batch = event(gone(1), gone(2), at=AT)
    found = consumer(app, engine, Bad(objects, broken))(batch)
    first = batch["Records"][0]["dynamodb"]["SequenceNumber"]
    assert found["batchItemFailures"] == [{"itemIdentifier": first}]
    assert "archive: bucket 'the-archive': sessions/date=2018-01-31/" in found["streamfold"]["error"]
    assert objects.objects == {}
    assert consumer(app, engine, Bad(objects, None))(batch)["batchItemFailures"] == []
    assert [len(lines) for lines in held(objects).values()] == [2]


def test_an_object_of_somebody_else_at_the_place_makes_the_batch_wait() -> None:
    app, objects = App("app", [archive()]), MemoryObjects()
    engine = tables(app)
    batch = event(gone(1), at=AT)
    consumer(app, engine, objects)(batch)
    (name,) = objects.objects
    engine = tables(app)
    objects.put_object(Bucket="", Key=name, Body=b"")
    found = consumer(app, engine, objects)(batch)
    assert found["batchItemFailures"] != []
    assert "expected an object of an archive, came another" in found["streamfold"]["error"]


def test_another_division_of_the_same_archive_is_refused() -> None:
    before, engine, objects = App("app", [archive()]), tables(App("app", [archive()])), MemoryObjects()
    first, second = event(gone(1), at=AT), event(gone(2), at=AT)
    second["shardId"] = first["shardId"]
    second["Records"][0]["dynamodb"]["SequenceNumber"] = str(int(first["Records"][0]["dynamodb"]["SequenceNumber"]) + 9)
    consumer(before, engine, objects)(first)
    now = App("app", [archive(partition=Daily("began"))])
    found = consumer(now, engine, objects)(second)
    assert found["batchItemFailures"] != []
    assert "expected prefix and partition as they were" in found["streamfold"]["error"]


def test_a_state_that_is_none_is_named() -> None:
    app = App("app", [archive()])
    engine = tables(app)
    batch = event(gone(1), at=AT)
    consumer(app, engine, MemoryObjects())(batch)
    (state,) = (item for item in engine.scan(TableName="control")["Items"] if item["pk"]["S"].startswith("archive#"))
    engine.put_item(TableName="control", Item={**state, "done": {"S": "far"}})
    found = consumer(app, engine, MemoryObjects())(batch)
    assert "expected a lane's state, came" in found["streamfold"]["error"]


def test_claims_and_commits_hang_on_the_state_as_it_was_seen() -> None:
    engine = MemoryDynamoDB()
    engine.create_table(
        TableName="control",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )

    def write(arguments: dict[str, Any]) -> bool:
        try:
            engine.update_item(TableName="control", Key={"pk": {"S": "lane"}}, **arguments)
        except ClientError:
            return False
        return True

    def seen() -> Lane:
        return lane_of(engine.get_item(TableName="control", Key={"pk": {"S": "lane"}}).get("Item"))

    fresh = Lane(layout="a")
    assert write(claiming(fresh, ["x"], 5))
    assert not write(claiming(fresh, ["y"], 5))
    ours = seen()
    assert (ours.claimed, ours.number, ours.done) == (frozenset({"x"}), 1, 0)
    assert write(claiming(ours, ["y"], 5))  # another takes our place, and keeps what we have claimed
    assert seen().claimed == {"x", "y"}
    assert not write(committing(ours, 5))
    theirs = seen()
    far = 10**39 + 7
    assert write(committing(Lane(far, {"x": far + 1}, frozenset(), "a", theirs.number), 5))
    assert seen() == Lane(far, {"x": far + 1}, frozenset(), "a", 3)


def test_names_sort_as_numbers_do() -> None:
    prefix = "Sessions/2018-01-01T00:00:00.000/shardId-1/"
    names = [object_name("a/b", "date=2018-01-31", prefix, number) for number in (0, 9, 10, 10**39)]
    assert names == sorted(names)
    assert names[0] == "a/b/date=2018-01-31/20180101T000000000-shardId-1-010.json.gz"


def test_the_manifest_says_what_the_deployment_needs() -> None:
    app = App("app", [archive(storage={"GLACIER_IR": 30}, delete_after=3650, partition=Monthly("began"))])
    found = manifest(app)
    assert found["archives"] == {
        "sessions": {
            "table": "Sessions",
            "folder": "sessions",
            "partition": "month",
            "by_deletion": False,
            "storage": {"GLACIER_IR": 30},
            "delete_after": 3650,
        }
    }
    assert found["consumers"]["Sessions"]["grants"] == {}
    assert found["tables"]["Sessions"]["stream"] is True
    assert found["tables"]["Sessions"]["ttl"] == "expires"


def test_on_this_machine_deletes_are_archived_too() -> None:
    app = App("app", [archive(also_deletes=True)])
    with Local(app) as local:
        key = {"user": {"S": "ann"}, "id": {"S": "s1"}}
        local.client.put_item(TableName="Sessions", Item={**key, "n": {"N": "7"}})
        local.client.delete_item(TableName="Sessions", Key=key)
        local.drain()
        ((_, lines),) = held(local.objects).items()
    assert lines == [{"Item": {**key, "n": {"N": "7"}}}]
