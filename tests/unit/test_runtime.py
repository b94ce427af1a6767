"""The function that Lambda runs, on the in-memory table: responses, failures, bad records, deadlines."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from framework import (
    Aggregation,
    AllTime,
    App,
    ConfigurationError,
    Count,
    DeliveryError,
    EventError,
    ReadError,
    Sum,
    Table,
)
from framework import runtime as runtime_module
from framework.consumer import Consumer
from framework.lanes import hour_of
from framework.local.clock import Clock
from framework.local.memory import MemoryDynamoDB
from framework.local.provision import create_table_request
from framework.runtime import handler
from handlers.app import app
from handlers.music_library import MonthlyDownloads
from tests.unit.stream import download, event, record


class Weights(Aggregation):
    """A sum, spread over partitions."""

    name = "weights"
    source = Table("MusicLibrary", pk="songID", sk="SK")
    target = Table("Weights", pk="key")
    group_by = "songID"
    window = AllTime()
    partitions = 2
    Items = Count()
    Weight = Sum("weight")


weights_app = App("weights", [Weights])


@dataclass
class Failing:
    """A client that fails for some groups, or always, and counts."""

    engine: Any
    errors: dict[str, Exception]
    calls: int = 0

    def update_item(self, **arguments: Any) -> Any:
        self.calls += 1
        song = next(iter(arguments["Key"].values()))["S"]
        if song in self.errors:
            raise self.errors[song]
        return self.engine.update_item(**arguments)

    def get_item(self, **arguments: Any) -> Any:
        return self.engine.get_item(**arguments)


def error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "UpdateItem")


def engine_for(an_app: App) -> MemoryDynamoDB:
    engine = MemoryDynamoDB()
    for table in an_app.tables:
        engine.create_table(**create_table_request(an_app, table))
    return engine


@pytest.fixture
def engine() -> MemoryDynamoDB:
    return engine_for(app)


class Context:
    """Lambda's context, with some time left."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds * 1000)


def test_a_batch_is_counted_and_the_response_says_so(engine: MemoryDynamoDB) -> None:
    consumer = Consumer(app, "MusicLibrary", engine)
    response = consumer(event(*(record(n, new=download(f"s{n % 3}")) for n in range(1, 10))))
    assert response["batchItemFailures"] == []
    assert response["state"] == {}
    assert (response["streamfold"]["records"], response["streamfold"]["updates"]) == (9, 3)
    assert [found["DownloadCount"] for found in MonthlyDownloads.top("2018-01", client=engine)] == [3, 3, 3]


def test_the_item_has_the_schema_of_the_guide_beside_its_watermark(engine: MemoryDynamoDB) -> None:
    Consumer(app, "MusicLibrary", engine)(event(record(1, new=download("a"))))
    (item,) = engine.scan(TableName="MusicLibrary")["Items"]
    lanes = [name for name in item if name.startswith("sf~")]
    assert len(lanes) == 2
    assert item["sf~"] == {"S": "monthly-downloads"}
    assert {name: value for name, value in item.items() if name not in lanes} == {
        "songID": {"S": "a"},
        "SK": {"S": "2018-01"},
        "Month": {"S": "2018-01"},
        "DownloadCount": {"N": "1"},
    }
    (entry,) = engine.query(
        TableName="MusicLibrary",
        IndexName="MonthDownloadsIndex",
        KeyConditionExpression="#m = :m",
        ExpressionAttributeNames={"#m": "Month"},
        ExpressionAttributeValues={":m": {"S": "2018-01"}},
    )["Items"]
    assert set(entry) == {"songID", "SK", "Month", "DownloadCount"}


@pytest.mark.parametrize(
    ("events", "count"),
    [
        ([[1, 2, 3], [1, 2, 3]], 3),
        ([[1, 2, 3], [2]], 3),
        ([[1], [1, 2, 3], [1, 2]], 3),
        ([[1, 2], [2, 3], [1, 2, 3]], 3),
        ([[3, 2, 1], [1]], 3),
        ([[1, 2, 2, 3]], 3),
    ],
)
def test_a_redelivery_counts_nothing_twice(engine: MemoryDynamoDB, events: list[list[int]], count: int) -> None:
    consumer = Consumer(app, "MusicLibrary", engine)
    for numbers in events:
        response = consumer(event(*(record(10**20 + n, new=download("a")) for n in numbers)))
        assert response["batchItemFailures"] == []
    found = MonthlyDownloads.get("a", "2018-01", client=engine)
    assert found is not None
    assert found["DownloadCount"] == count


def test_the_lowest_record_that_is_not_done_is_reported_and_the_rest_is_written(
    engine: MemoryDynamoDB,
) -> None:
    client = Failing(engine, {"b": error("AccessDeniedException"), "c": error("AccessDeniedException")})
    songs = "acbabc"
    batch = event(*(record(10**20 + n, new=download(song)) for n, song in enumerate(songs)))
    response = Consumer(app, "MusicLibrary", client)(batch)
    assert response["batchItemFailures"] == [{"itemIdentifier": str(10**20 + 1)}]
    assert response["state"] == {}
    assert "AccessDenied" in response["streamfold"]["error"]
    assert MonthlyDownloads.get("a", "2018-01", client=engine)["DownloadCount"] == 2  # type: ignore[index]
    again = Consumer(app, "MusicLibrary", engine)({**batch, "Records": batch["Records"][1:]})
    assert again["batchItemFailures"] == []
    counts = {song: MonthlyDownloads.get(song, "2018-01", client=engine)["DownloadCount"] for song in "abc"}  # type: ignore[index]
    assert counts == {"a": 2, "b": 2, "c": 2}


def test_a_batch_that_fails_whole_is_reported_from_its_first_record(engine: MemoryDynamoDB) -> None:
    client = Failing(engine, {f"s{n}": error("ResourceNotFoundException") for n in range(50)})
    response = Consumer(app, "MusicLibrary", client)(event(*(record(n, new=download(f"s{n}")) for n in range(50))))
    assert response["batchItemFailures"] == [{"itemIdentifier": "0"}]
    assert response["streamfold"]["failed"] == 50


def test_a_bad_record_is_named_and_does_not_stop_the_batch(engine: MemoryDynamoDB) -> None:
    bad = {name: value for name, value in download("b").items() if name != "Timestamp"}
    response = Consumer(app, "MusicLibrary", engine)(event(record(1, new=bad), record(2, new=download("a"))))
    assert response["batchItemFailures"] == []
    assert response["streamfold"]["bad"] == [
        {
            "handler": "monthly-downloads",
            "key": "songID='b', SK='download-1'",
            "sequenceNumber": "1",
            "reason": "attribute 'Timestamp' is missing",
        }
    ]
    assert response["streamfold"]["badRecords"] == 1
    assert [found.group for found in MonthlyDownloads.all("2018-01", client=engine)] == ["a"]


def test_a_number_that_dynamodb_will_never_take_is_isolated_from_its_neighbours() -> None:
    engine = engine_for(weights_app)
    consumer = Consumer(weights_app, "MusicLibrary", engine)
    weights = ["1", "1E+125", "2", "3"]
    response = consumer(event(*(record(n, new=download(weight={"N": w})) for n, w in enumerate(weights))))
    assert response["batchItemFailures"] == []
    assert [bad["sequenceNumber"] for bad in response["streamfold"]["bad"]] == ["1"]
    found = Weights.get("a", "all", client=engine)
    assert found is not None
    assert dict(found.values) == {"Items": 3, "Weight": 6}


def test_a_batch_of_which_dynamodb_takes_nothing_fails_whole(engine: MemoryDynamoDB) -> None:
    client = Failing(engine, {"a": error("ValidationException")})
    with pytest.raises(
        DeliveryError, match="expected DynamoDB to take some of the writes, came a rejection of all: no"
    ):
        Consumer(app, "MusicLibrary", client)(event(record(1, new=download("a")), record(2, new=download("a"))))


@pytest.mark.parametrize(
    "passing",
    [
        error("ThrottlingException"),
        error("ProvisionedThroughputExceededException"),
        error("TransactionConflictException"),
        error("InternalServerError"),
        ReadTimeoutError(endpoint_url="https://dynamodb"),
    ],
)
def test_a_passing_failure_is_retried_within_the_time_that_is_left_then_reported(
    engine: MemoryDynamoDB, passing: Exception
) -> None:
    client = Failing(engine, {"a": passing})
    start = time.monotonic()
    response = Consumer(app, "MusicLibrary", client)(event(record(5, new=download("a"))), Context(0.5))
    assert response["batchItemFailures"] == [{"itemIdentifier": "5"}]
    assert client.calls > 1
    assert time.monotonic() - start < 0.5
    client.errors.clear()
    assert Consumer(app, "MusicLibrary", client)(event(record(5, new=download("a"))))["batchItemFailures"] == []


def test_time_and_chance_may_be_simulated(engine: MemoryDynamoDB) -> None:
    clock, pauses = Clock(1_000_000.0), list[float]()

    def longest(least: float, most: float) -> float:
        pauses.append(most)
        return most

    consumer = Consumer(
        app,
        "MusicLibrary",
        Failing(engine, {"a": error("ThrottlingException")}),
        connections=1,
        now=lambda: clock.now,
        clock=lambda: clock.now,
        sleep=clock.sleep,
        jitter=longest,
    )
    response = consumer(event(record(5, new=download("a"))), Context(10))
    assert response["batchItemFailures"] == [{"itemIdentifier": "5"}]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    assert clock.now == pytest.approx(1_000_000 + sum(pauses[:-1]))


@pytest.mark.parametrize(("code", "done"), [("ThrottlingException", True), ("AccessDeniedException", False)])
def test_a_read_that_fails_is_as_a_write_that_fails(code: str, done: bool) -> None:
    class Unreadable(Failing):
        def get_item(self, **arguments: Any) -> Any:
            if self.errors:
                raise self.errors.popitem()[1]
            return self.engine.get_item(**arguments)

    client = Unreadable(engine_for(weights_app), {"": error(code)})
    consumer = Consumer(weights_app, "MusicLibrary", client, connections=1)
    take_back, other = (
        record(1, old=download(weight={"N": "1"})),
        record(2, new=download("b", weight={"N": "1"})),
    )
    response = consumer(event(take_back, other))
    assert response["batchItemFailures"] == ([] if done else [{"itemIdentifier": "1"}])
    assert response["streamfold"]["refusedTakeBacks"] == int(done)
    assert Weights.get("b", "all", client=client) is not None, "the other update goes on"


def test_a_write_that_hangs_is_left_behind_at_the_deadline_and_does_no_harm(engine: MemoryDynamoDB) -> None:
    class Hanging(Failing):
        def update_item(self, **arguments: Any) -> Any:
            if arguments["Key"]["songID"]["S"] == "a":
                time.sleep(0.8)
            return self.engine.update_item(**arguments)

    batch = event(record(1, new=download("a")), record(2, new=download("b")))
    response = Consumer(app, "MusicLibrary", Hanging(engine, {}))(batch, Context(0.5))
    assert response["batchItemFailures"] == [{"itemIdentifier": "1"}]
    Consumer(app, "MusicLibrary", engine)(batch)
    time.sleep(0.5)
    counts = {a.group: a["DownloadCount"] for a in MonthlyDownloads.all("2018-01", client=engine)}
    assert counts == {"a": 1, "b": 1}


def test_nothing_is_sent_once_the_time_is_up(engine: MemoryDynamoDB) -> None:
    client = Failing(engine, {})
    response = Consumer(app, "MusicLibrary", client)(event(record(5, new=download("a"))), Context(0))
    assert response["batchItemFailures"] == [{"itemIdentifier": "5"}]
    assert client.calls == 0


def test_a_take_back_without_its_aggregate_makes_none_and_is_counted(engine: MemoryDynamoDB) -> None:
    consumer = Consumer(app, "MusicLibrary", engine)
    response = consumer(event(record(1, old=download("a")), record(2, old=download("b")), record(3, new=download("b"))))
    assert response["batchItemFailures"] == []
    assert response["streamfold"]["refusedTakeBacks"] == 2
    counts = {a.group: a["DownloadCount"] for a in MonthlyDownloads.all("2018-01", client=engine)}
    assert counts == {"b": 1}


def test_a_take_back_of_an_edit_never_makes_an_aggregate(engine: MemoryDynamoDB) -> None:
    engine = engine_for(weights_app)
    consumer = Consumer(weights_app, "MusicLibrary", engine)
    old, new = download(weight={"N": "1"}), download(weight={"N": "5"})
    assert consumer(event(record(1, old=old, new=new)))["streamfold"]["refusedTakeBacks"] == 1
    assert engine.scan(TableName="Weights")["Items"] == []


def test_an_aggregate_whose_records_were_all_taken_back_reads_as_nothing(engine: MemoryDynamoDB) -> None:
    consumer = Consumer(app, "MusicLibrary", engine)
    consumer(event(record(1, new=download("a")), record(2, old=download("a"))))
    assert MonthlyDownloads.get("a", "2018-01", client=engine) is None
    assert list(MonthlyDownloads.top("2018-01", client=engine)) == []
    consumer(event(record(1, new=download("a"))))
    assert MonthlyDownloads.get("a", "2018-01", client=engine) is None, "a part of the batch, again"


def test_an_aggregate_is_spread_over_partitions_by_lane_and_read_as_one() -> None:
    engine = engine_for(weights_app)
    consumer = Consumer(weights_app, "MusicLibrary", engine)
    image = download(weight={"N": "0.5"})
    for shard in range(8):
        consumer(event(record(1, new=image), record(2, new=image), shardId=f"shardId-{shard}"))
    items = engine.scan(TableName="Weights")["Items"]
    assert {item["key"]["S"] for item in items} == {"a#all#0", "a#all#1"}
    assert all(sum(name.startswith("sf~") for name in item) < 8 for item in items)
    found = Weights.get("a", "all", client=engine)
    assert found is not None
    assert dict(found.values) == {"Items": 16, "Weight": Decimal(8)}


def test_watermarks_that_no_redelivery_needs_are_removed_by_later_writes(engine: MemoryDynamoDB) -> None:
    now = [1_700_000_000.0]
    consumer = Consumer(app, "MusicLibrary", engine, now=lambda: now[0])
    for shard in range(6):
        consumer(event(record(1, new=download("a")), shardId=f"shardId-{shard}"))
        now[0] += 12 * 3600
    (item,) = engine.scan(TableName="MusicLibrary")["Items"]
    assert sum(name.startswith("sf~") for name in item) == 7
    now[0] += 48 * 3600
    consumer(event(record(2, new=download("a")), shardId="shardId-5"))
    (item,) = engine.scan(TableName="MusicLibrary")["Items"]
    lanes = [value["S"] for name, value in item.items() if name.startswith("sf~") and name != "sf~"]
    assert len(lanes) == 1
    assert item["DownloadCount"] == {"N": "7"}
    assert lanes[0].endswith(f"@{hour_of(now[0])}")


def test_what_counts_is_a_recount_of_the_items_when_a_bad_one_is_mended_and_deleted(engine: MemoryDynamoDB) -> None:
    consumer = Consumer(app, "MusicLibrary", engine)
    bad = {**download(), "Timestamp": {"S": "soon"}}
    for number, (old, new, count) in enumerate(
        [
            (None, download(SK={"S": "download-2"}), 1),
            (None, bad, 1),
            (bad, download(), 2),
            (download(), bad, 1),
            (bad, None, 1),
        ]
    ):
        response = consumer(event(record(number, old=old, new=new)))
        assert response["streamfold"]["badRecords"] == (bad in (old, new))
        found = MonthlyDownloads.get("a", "2018-01", client=engine)
        assert found is not None
        assert found["DownloadCount"] == count


class OtherDownloads(Aggregation):
    """The same items under another name, as after a renaming."""

    name = "other-downloads"
    source = MonthlyDownloads.source
    where = MonthlyDownloads.where
    group_by = "songID"
    window = MonthlyDownloads.window
    Downloads = Count()


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        ({"DownloadCount": {"N": "100"}}, "came one that Streamfold did not write"),
        ({"sf~": {"S": "other-downloads"}}, "came one of 'other-downloads'"),
    ],
)
@pytest.mark.parametrize("changes", [{"new": download()}, {"old": download()}])
def test_an_item_that_is_not_the_aggregations_own_is_left_alone(
    engine: MemoryDynamoDB, there: dict[str, Any], reason: str, changes: dict[str, Any]
) -> None:
    item = {"songID": {"S": "a"}, "SK": {"S": "2018-01"}, **there}
    engine.put_item(TableName="MusicLibrary", Item=item)
    good = record(2, new=download("b"))
    response = Consumer(app, "MusicLibrary", engine)(event(record(1, **changes), good))
    assert response["batchItemFailures"] == []
    (bad,) = response["streamfold"]["bad"]
    assert bad["sequenceNumber"] == "1"
    assert reason in bad["reason"]
    assert engine.get_item(TableName="MusicLibrary", Key={"songID": {"S": "a"}, "SK": {"S": "2018-01"}})["Item"] == item
    assert MonthlyDownloads.get("a", "2018-01", client=engine) is None


def test_a_renamed_aggregation_on_the_old_ones_items_fails_the_batch(engine: MemoryDynamoDB) -> None:
    Consumer(app, "MusicLibrary", engine)(event(record(1, new=download())))
    renamed = Consumer(App("music", [OtherDownloads]), "MusicLibrary", engine)
    with pytest.raises(DeliveryError, match="came one of 'monthly-downloads'"):
        renamed(event(record(2, new=download())))


class MoreDownloads(OtherDownloads):
    """As after a renaming with a prefix: another aggregation's entries are in the same index."""

    name = "more-downloads"
    sk_prefix = "v2#"
    Downloads = None
    DownloadCount = Count()
    index = MonthlyDownloads.index


def test_an_index_that_several_aggregations_share_is_read_by_each_for_itself(engine: MemoryDynamoDB) -> None:
    Consumer(app, "MusicLibrary", engine)(event(record(1, new=download("a")), record(2, new=download("b"))))
    more = Consumer(App("music", [MoreDownloads]), "MusicLibrary", engine)
    more(event(record(3, new=download("a")), record(4, new=download("d"))))
    stranger = {"songID": {"S": "u"}, "SK": {"S": "x"}, "Month": {"S": "2018-01"}, "DownloadCount": {"N": "9"}}
    engine.put_item(TableName="MusicLibrary", Item=stranger)
    for aggregation, groups in ((MonthlyDownloads, {"a", "b"}), (MoreDownloads, {"a", "d"})):
        assert {one.group for one in aggregation.all("2018-01", client=engine)} == groups
        assert {one.window for one in aggregation.top("2018-01", 10, client=engine)} == {"2018-01"}


def test_a_foreign_item_at_a_siblings_key_is_no_aggregate_to_take_back_from() -> None:
    engine = engine_for(weights_app)
    for partition in range(2):
        engine.put_item(TableName="Weights", Item={"key": {"S": f"a#all#{partition}"}, "mine": {"BOOL": True}})
    response = Consumer(weights_app, "MusicLibrary", engine)(event(record(1, old=download(weight={"N": "1"}))))
    assert response["streamfold"]["badRecords"] + response["streamfold"]["refusedTakeBacks"] == 1
    assert Weights.get("a", "all", client=engine) is None


def test_a_watermark_that_somebody_wrote_over_does_not_hold_the_batch_up(engine: MemoryDynamoDB) -> None:
    consumer = Consumer(app, "MusicLibrary", engine)
    consumer(event(record(1, new=download("a"))))
    (item,) = engine.scan(TableName="MusicLibrary")["Items"]
    (lane,) = (name for name in item if name.startswith("sf~") and name != "sf~")
    engine.put_item(TableName="MusicLibrary", Item={**item, lane: {"S": "zzz"}, "sf~note": {"N": "1"}})
    response = consumer(event(record(2, new=download("a")), record(3, new=download("b"))))
    (bad,) = response["streamfold"]["bad"]
    assert "expected a watermark such as '0212@420000', came {'S': 'zzz'}" in bad["reason"]
    assert MonthlyDownloads.get("b", "2018-01", client=engine) is not None


def test_a_measure_that_somebody_wrote_over_is_named_by_a_read() -> None:
    engine = engine_for(weights_app)
    Consumer(weights_app, "MusicLibrary", engine)(event(record(1, new=download(weight={"N": "1"}))))
    (item,) = engine.scan(TableName="Weights")["Items"]
    engine.put_item(TableName="Weights", Item={**item, "Weight": {"S": "x"}})
    with pytest.raises(ReadError, match=r"weights: item .*: Weight: expected a number, came"):
        Weights.get("a", "all", client=engine)


def test_items_of_an_app_that_is_not_this_one_never_count(engine: MemoryDynamoDB) -> None:
    own, users = download(**{"sf~": {"S": "long-gone"}}), download(**{"sf~": {"N": "1"}})
    response = Consumer(app, "MusicLibrary", engine)(event(record(1, new=own), record(2, old=own)))
    assert response["streamfold"]["updates"] == 0
    assert Consumer(app, "MusicLibrary", engine)(event(record(3, new=users)))["streamfold"]["updates"] == 1


@pytest.mark.parametrize("weights", [["9e125", "9e125"], ["1e38", "0.5"]])
def test_a_value_that_an_aggregate_cannot_take_is_set_aside_even_alone(weights: list[str]) -> None:
    engine = engine_for(weights_app)
    consumer = Consumer(weights_app, "MusicLibrary", engine)
    for number, weight in enumerate(weights):
        response = consumer(event(record(number, new=download(weight={"N": weight}))))
    assert response["batchItemFailures"] == []
    assert [bad["sequenceNumber"] for bad in response["streamfold"]["bad"]] == ["1"]
    found = Weights.get("a", "all", client=engine)
    assert found is not None
    assert found["Items"] == 1


@pytest.mark.parametrize("song", ["g" * 2030, "ü" * 1015])
def test_a_group_fits_its_key_or_is_named(song: str) -> None:
    engine = engine_for(weights_app)
    consumer = Consumer(weights_app, "MusicLibrary", engine)
    assert not consumer(event(record(1, new=download(song, weight={"N": "1"}))))["streamfold"]["bad"]
    response = consumer(event(record(2, new=download(song + "g", weight={"N": "1"}))))
    (bad,) = response["streamfold"]["bad"]
    assert bad["reason"] == "group: expected at most 2030 bytes, came 2031"


@pytest.mark.parametrize(
    ("an_event", "kind", "message"),
    [
        (None, EventError, "event: expected a DynamoDB stream event with Records, came None"),
        ({}, EventError, "event: expected a DynamoDB stream event with Records, came {}"),
        ({"Records": "x"}, EventError, "expected a DynamoDB stream event"),
        ({"Records": [5], "shardId": "s"}, EventError, r"event: Records\[0\]: expected a stream record, came 5"),
        (event({"eventSource": "aws:sqs", "body": "x"}), EventError, r"Records\[0\]: eventSourceARN: expected text"),
        (event({**record(1, new=download()), "eventSource": "aws:kinesis"}), EventError, "expected records of a DynamoDB stream, came 'aws:kinesis arn"),
        (event(record(1, new=download()), {**record(2, new=download()), "eventSourceARN": "other"}), EventError, "expected records of one DynamoDB stream"),
        (event({**record(1, new=download()), "eventSourceARN": 5}), EventError, "expected records of a DynamoDB stream, came 'aws:dynamodb 5'"),
        (event(record(1, new=download()), {**record(2, new=download()), "eventSourceARN": None}), EventError, r"Records\[1\]: eventSourceARN: expected text, came None"),
        (event({**record(1, new=download()), "eventSourceARN": "arn:aws:dynamodb:us-east-1:1:table/Other/stream/2018"}), ConfigurationError, "event: expected records of table 'MusicLibrary', came 'Other'"),
        (event(record(1, new=download()), record("", new=download())), EventError, r"Records\[1\]: SequenceNumber: expected 1 to 40 decimal digits as text, came ''"),  # type: ignore[arg-type]
        (event(record("٣", new=download())), EventError, "SequenceNumber: expected 1 to 40 decimal digits"),  # type: ignore[arg-type]
        (event(record(10**40, new=download())), EventError, "SequenceNumber: expected 1 to 40 decimal digits"),
        (event({**record(1, new=download()), "eventName": "UPSERT"}), EventError, "eventName: expected INSERT, MODIFY or REMOVE, came 'UPSERT'"),
        (event({**record(1, new=download()), "dynamodb": 5}), EventError, r"Records\[0\]: dynamodb: expected a change, came 5"),
        ({**event(record(1, new=download())), "shardId": None}, ConfigurationError, "expected a shardId, came none: the event source mapping needs a tumbling window"),
        ({"Records": [record(1, new=download())]}, ConfigurationError, "expected a shardId"),
    ],
)  # fmt: skip
def test_an_event_that_is_not_a_dynamodb_streams_is_refused_before_a_write(
    engine: MemoryDynamoDB, an_event: Any, kind: type[Exception], message: str
) -> None:
    good = record(9, new=download("good"))
    if isinstance(an_event, dict) and isinstance(an_event.get("Records"), list) and kind is EventError:
        an_event = {**an_event, "Records": [*an_event["Records"], good]}
    with pytest.raises(kind, match=message):
        Consumer(app, "MusicLibrary", engine)(an_event)
    assert engine.scan(TableName="MusicLibrary")["Items"] == []


class WorldDownloads(OtherDownloads):
    """Of a global table."""

    name = "world-downloads"
    source = replace(MonthlyDownloads.source, home="eu-west-1")


world_app = App("world", [WorldDownloads])


def in_region(region: str, *records: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(event(*records)).replace(":us-east-1:", f":{region}:"))
    return found


def test_a_replicas_records_are_acknowledged_and_left_which_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    engine = engine_for(world_app)
    client = Failing(engine, {})
    consumer = Consumer(world_app, "MusicLibrary", client)
    for number in range(3):
        bad = record(2, new=download(at="soon"))
        response = consumer(in_region("us-east-1", record(number, new=download()), bad))
        assert response["batchItemFailures"] == []
        assert response["state"] == {}
        account = response["streamfold"]
        assert (account["records"], account["away"], account["updates"], account["badRecords"]) == (2, 2, 0, 0)
        assert "error" in account
    assert client.calls == 0
    (line,) = caplog.messages
    assert "home Region eu-west-1" in line
    assert "those of us-east-1 are acknowledged" in line


def test_a_global_tables_records_count_in_its_home_region_alone() -> None:
    engine = engine_for(world_app)
    for region in ("us-east-1", "eu-west-1", "eu-west-2"):
        # A process for each Region; the numbers and the shards of the streams differ.
        consumer = Consumer(world_app, "MusicLibrary", engine)
        response = consumer(in_region(region, record(1, new=download())))
        assert response["streamfold"]["away"] == (region != "eu-west-1")
        consumer(in_region(region))
    found = WorldDownloads.get("a", "2018-01", client=engine)
    assert found is not None
    assert found["Downloads"] == 1


class KeptDownloads(MonthlyDownloads):
    """Kept for a day after the month's end."""

    name = "kept-downloads"
    source = replace(MonthlyDownloads.source, ttl="expires")
    retention = timedelta(days=1)


OVER = 1_517_529_600  # 2018-02-02, for January


def changed(at: int, *records: dict[str, Any]) -> dict[str, Any]:
    for one in records:
        one["dynamodb"]["ApproximateCreationDateTime"] = at
    return event(*records)


def test_an_aggregate_has_its_time_to_live_and_is_indexed_as_ever() -> None:
    kept = App("kept", [KeptDownloads])
    engine = engine_for(kept)
    Consumer(kept, "MusicLibrary", engine)(changed(OVER - 1, record(1, new=download()), record(2, new=download())))
    (item,) = engine.scan(TableName="MusicLibrary")["Items"]
    assert item["expires"] == {"N": str(OVER)}
    (found,) = KeptDownloads.top("2018-01", client=engine)
    assert dict(found.values) == {"DownloadCount": 2}


def test_late_records_are_counted() -> None:
    kept = App("kept", [KeptDownloads])
    engine = engine_for(kept)
    batch = changed(OVER, *(record(n, new=download()) for n in range(3)), record(3, new=download(at="2018-02-01")))
    for duplicates in (0, 1):
        response = Consumer(kept, "MusicLibrary", engine)(batch)
        assert response["batchItemFailures"] == []
        account = response["streamfold"]
        assert (account["lateRecords"], account["badRecords"], account["duplicates"]) == (3, 0, duplicates)
    assert [item["SK"]["S"] for item in engine.scan(TableName="MusicLibrary")["Items"]] == ["2018-02"]


def test_a_late_record_that_is_to_be_set_aside_is_a_bad_one() -> None:
    aside = App("aside", [type("Aside", (KeptDownloads,), {"name": "aside", "late": "set-aside"})])
    response = Consumer(aside, "MusicLibrary", engine_for(aside))(changed(OVER + 5, record(7, new=download())))
    (bad,) = response["streamfold"]["bad"]
    assert (bad["handler"], bad["sequenceNumber"]) == ("aside", "7")
    assert bad["reason"].startswith(
        "window '2018-01': expected a change before its retention of 1 day, 0:00:00 was over"
    )
    assert response["streamfold"]["lateRecords"] == 1


def test_a_take_back_in_time_from_an_aggregate_that_has_expired_makes_none() -> None:
    kept = App("kept", [KeptDownloads])
    engine = engine_for(kept)
    consumer = Consumer(kept, "MusicLibrary", engine)
    consumer(changed(OVER - 2, record(1, new=download())))
    engine.delete_item(TableName="MusicLibrary", Key={"songID": {"S": "a"}, "SK": {"S": "2018-01"}})
    response = consumer(changed(OVER - 1, record(2, old=download())))
    assert (response["streamfold"]["refusedTakeBacks"], response["streamfold"]["lateRecords"]) == (1, 0)
    assert engine.scan(TableName="MusicLibrary")["Items"] == []


def test_the_final_call_of_a_window_without_records_is_answered(engine: MemoryDynamoDB) -> None:
    response = Consumer(app, "MusicLibrary", engine)(event(isFinalInvokeForWindow=True))
    assert response["batchItemFailures"] == []
    assert response["state"] == {}


def test_lambdas_entry_takes_app_and_table_from_the_environment(
    engine: MemoryDynamoDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime_module._consumer.cache_clear()
    monkeypatch.setattr(runtime_module, "dynamodb", lambda: engine)
    monkeypatch.delenv("STREAMFOLD_APP", raising=False)
    with pytest.raises(ConfigurationError, match="environment: expected STREAMFOLD_APP, came None"):
        handler(event(), Context(10))
    monkeypatch.setenv("STREAMFOLD_APP", "handlers.app:app")
    monkeypatch.setenv("STREAMFOLD_TABLE", "Other")
    with pytest.raises(ConfigurationError, match="expected a source table"):
        handler(event(), Context(10))
    monkeypatch.setenv("STREAMFOLD_TABLE", "MusicLibrary")
    response = handler(event(record(1, new=download("a"))), Context(10))
    assert json.loads(json.dumps(response))["streamfold"]["updates"] == 1
    runtime_module._consumer.cache_clear()


def test_the_runtime_loads_nothing_that_a_lambda_bundle_lacks() -> None:
    code = "import framework.runtime, sys; print(sorted({m.split('.')[0] for m in sys.modules} & {'moto', 'rich', 'aws_cdk', 'hypothesis', 'pytest'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
