from __future__ import annotations

import copy
import json
import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from framework import (
    Aggregation,
    AllTime,
    App,
    Average,
    ConfigurationError,
    Count,
    Daily,
    DeliveryError,
    EventError,
    Index,
    Max,
    Min,
    SourceError,
    Sum,
    Table,
)
from framework.codec import encode_item
from framework.consumer import Consumer
from framework.decode import is_expiry
from framework.live import live_shards
from framework.local import Drained, Local, engine
from framework.local.poller import Poller
from framework.local.provision import create_table_request
from handlers.app import app as music_app
from handlers.music_library import MonthlyDownloads

MUSIC = "MusicLibrary"

plays = Table("Plays", pk="id", pk_type="S")
totals = Table("Totals", pk="key", sk="label")


class DailyPlays(Aggregation):
    name = "daily-plays"
    source = plays
    target = totals
    group_by = "genre"
    window = Daily("at")
    Plays = Count()
    Seconds = Sum("seconds")
    Mean = Average("seconds")
    index = Index("ByDay", pk="Day", sk="Plays")


class Extremes(Aggregation):
    name = "extremes"
    source = plays
    target = totals
    group_by = "genre"
    window = AllTime()
    changes = "inserts"
    sk_prefix = "extremes#"
    Shortest = Min("seconds")
    Longest = Max("seconds")


class Keys(Aggregation):
    """Items of the table that holds the aggregates of the others."""

    name = "keys"
    source = totals
    group_by = "key"
    window = AllTime()
    sk_prefix = "keys#"
    Items = Count()


class Everything(Aggregation):
    """All items of the music table, its own aggregates left out."""

    name = "everything"
    source = MonthlyDownloads.source
    group_by = "songID"
    window = AllTime()
    sk_prefix = "everything#"
    Items = Count()


plays_app = App("plays", [DailyPlays, Extremes])


@pytest.fixture
def music() -> Iterator[Local]:
    with Local(music_app) as local:
        yield local


@pytest.fixture(scope="class")
def shared() -> Iterator[Local]:
    """One engine for all tests of a class."""
    with Local(music_app) as local:
        yield local


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Every event that a function of a later Local gets."""
    seen: list[dict[str, Any]] = []

    class Recording(Consumer):
        def __call__(self, event: Any, context: Any = None) -> dict[str, Any]:
            seen.append(copy.deepcopy(event))
            return super().__call__(event, context)

    monkeypatch.setattr(engine, "Consumer", Recording)
    return seen


def download(song: str, number: int, at: str = "2018-01-15T00:00:00Z", **more: Any) -> dict[str, Any]:
    return {"songID": {"S": song}, "SK": {"S": f"download-{number}"}, "Timestamp": {"S": at}, **more}


def put(local: Local, *items: dict[str, Any], table: str = MUSIC) -> None:
    for item in items:
        local.client.put_item(TableName=table, Item=item)


def play(number: int, genre: str, seconds: str, at: str = "2018-01-15") -> dict[str, Any]:
    item = {"id": {"S": str(number)}, "genre": {"S": genre}, "at": {"S": at}, "seconds": {"N": seconds}}
    return item


def counts(local: Local) -> dict[tuple[str, str], int]:
    items = local.client.scan(TableName=MUSIC)["Items"]
    return {
        (item["songID"]["S"], item["Month"]["S"]): int(item["DownloadCount"]["N"])
        for item in items
        if "Month" in item and item["DownloadCount"]["N"] != "0"
    }


def values(of: type[Aggregation], group: str, window: str, client: Any) -> dict[str, Any]:
    found = of.get(group, window, client=client)
    assert found is not None
    return dict(found.values)


def plays_of_the_day(local: Local) -> Any:
    return values(DailyPlays, "jazz", "2018-01-15", local.client)["Plays"]


def stream(local: Local, table: str = MUSIC) -> list[dict[str, Any]]:
    """What a table's stream holds, as Lambda would send it."""
    (poller,) = (p for p in local._opened.live if p._table == table)
    return list(poller._shard.records())


def items_of(local: Local, song: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = local.client.query(
        TableName=MUSIC, KeyConditionExpression="songID = :s", ExpressionAttributeValues={":s": {"S": song}}
    )["Items"]
    return found


def update(local: Local, key: str, expression: str, **values: Any) -> dict[str, Any]:
    found: dict[str, Any] = local.client.update_item(
        TableName=MUSIC,
        Key={"songID": {"S": key}, "SK": {"S": "x"}},
        UpdateExpression=expression,
        ExpressionAttributeValues={f":{name}": value for name, value in values.items()},
        ReturnValues="ALL_NEW",
    )["Attributes"]
    return found


# -- an app end to end --


def test_puts_edits_and_deletes_end_in_the_counts_of_what_is_left(music: Local) -> None:
    put(
        music,
        *(download("a", n) for n in range(3)),
        download("b", 1),
        {"songID": {"S": "a"}, "SK": {"S": "info"}},
    )
    assert music.drain().bad == ()
    assert counts(music) == {("a", "2018-01"): 3, ("b", "2018-01"): 1}
    put(music, download("a", 0, "2018-02-01T00:00:00Z"))  # moves
    put(music, download("a", 1, title={"S": "unrelated"}))
    music.client.delete_item(TableName=MUSIC, Key={"songID": {"S": "b"}, "SK": {"S": "download-1"}})
    music.drain()
    assert counts(music) == {("a", "2018-01"): 2, ("a", "2018-02"): 1}
    assert [(a.group, a["DownloadCount"]) for a in MonthlyDownloads.top("2018-01", client=music.client)] == [("a", 2)]


def test_a_drain_says_what_happened_and_an_idle_one_that_nothing_did(music: Local) -> None:
    put(music, *(download("a", n) for n in range(5)), download("b", 0), download("b", 1, at="no date"))
    found = music.drain()
    # 7 puts, and the streams' echo of the two aggregates in a second batch; then the window's end.
    assert (found.records, found.invocations, found.updates, found.requests) == (9, 3, 2, 2)
    assert found.wcu == 4  # an item and its entry in the index, twice
    ((handler, key, reason),) = [(bad["handler"], bad["key"], bad["reason"]) for bad in found.bad]
    assert (handler, key) == ("monthly-downloads", "songID='b', SK='download-1'")
    assert "no date" in reason
    assert counts(music) == {("a", "2018-01"): 5, ("b", "2018-01"): 1}
    assert music.drain() == Drained()


def test_events_delivered_again_in_any_order_change_nothing(events: list[dict[str, Any]]) -> None:
    with Local(music_app, batch_size=4) as local:
        put(local, *(download(song, n) for n in range(5) for song in "abc"))
        local.drain()
        expected = counts(local)
        assert sum(expected.values()) == 15
        # A list of its own: what is delivered here is recorded too.
        responses = [local.deliver(event) for event in [*reversed(events), *events]]
        assert counts(local) == expected
        assert all(r["batchItemFailures"] == [] and r["state"] == {} for r in responses)
        assert sum(r["streamfold"]["duplicates"] for r in responses) == 2 * 15


def test_several_aggregations_of_one_table_and_of_the_table_behind_it() -> None:
    with Local(App("several", [Keys, DailyPlays, Extremes])) as local:
        put(local, {"key": {"S": "jazz"}, "label": {"S": "note"}}, table="Totals")
        put(local, play(1, "jazz", "100"), play(2, "jazz", "50.5"), play(3, "rock", "7"), table="Plays")
        assert local.drain().bad == ()
        put(local, play(4, "jazz", "300", "2018-01-16"), play(5, "jazz", "20", "2018-01-16"), table="Plays")
        assert local.drain().bad == ()
        assert local.drain() == Drained()
        client = local.client
        assert values(DailyPlays, "jazz", "2018-01-15", client) == {
            "Plays": 2,
            "Seconds": Decimal("150.5"),
            "Mean": Decimal("75.25"),
        }
        assert values(Extremes, "jazz", "all", client) == {"Shortest": 20, "Longest": 300}
        assert values(Keys, "jazz", "all", client) == {"Items": 1}
        best = DailyPlays.top("2018-01-16", client=client)
        assert [(found.group, found["Plays"]) for found in best] == [("jazz", 2)]


def test_a_global_tables_home_is_on_this_machine(tmp_path: Path) -> None:
    home = Table("Plays", pk="id", home="eu-west-1")
    here = type("Here", (DailyPlays,), {"name": "here", "source": home})
    image = {"id": {"S": "1"}, "genre": {"S": "jazz"}, "at": {"S": "2018-01-31"}, "seconds": {"N": "3"}}
    (tmp_path / "plays.jsonl").write_text(json.dumps(image))
    for files in ({}, {"Plays": tmp_path / "plays.jsonl"}):
        with Local(App("global", [here]), files=files) as local:
            if not files:
                local.client.put_item(TableName="Plays", Item=image)
            assert local.drain().updates == 1


def test_a_drain_says_how_many_records_were_late() -> None:
    fields = {
        "name": "kept",
        "target": Table("Kept", pk="key", ttl="expires"),
        "retention": timedelta(days=1),
        "index": None,
    }
    with Local(App("kept", [type("Kept", (DailyPlays,), fields)])) as local:
        for number, at in enumerate(["2018-01-31", "2018-02-01", "9999-01-01"]):
            image = {"id": {"S": str(number)}, "genre": {"S": "jazz"}, "at": {"S": at}, "seconds": {"N": "3"}}
            local.client.put_item(TableName="Plays", Item=image)
        done = local.drain()
        assert (done.late, done.updates, done.bad) == (2, 1, ())
        (item,) = local.client.scan(TableName="Kept")["Items"]
        assert item["expires"] == {"N": "253370937600"}


def test_a_take_back_does_not_bring_an_aggregate_back(music: Local) -> None:
    put(music, download("a", 1))
    music.drain()
    music.client.delete_item(TableName=MUSIC, Key={"songID": {"S": "a"}, "SK": {"S": "2018-01"}})
    music.client.delete_item(TableName=MUSIC, Key={"songID": {"S": "a"}, "SK": {"S": "download-1"}})
    assert music.drain().refused_take_backs == 1
    assert music.client.scan(TableName=MUSIC)["Items"] == []


def test_its_own_writes_do_not_count() -> None:
    with Local(App("own", [MonthlyDownloads, Everything])) as local:
        put(local, download("a", 1), download("a", 2))
        assert local.drain().records == 4
        assert values(Everything, "a", "all", local.client) == {"Items": 2}


# -- events --


def test_an_event_has_the_shape_of_lambdas(events: list[dict[str, Any]]) -> None:
    with Local(music_app, batch_size=2) as local:
        local.now = lambda: 1_700_000_000.0
        put(local, *(download("a", n) for n in range(2)), download("b", 1, raw={"B": b"\x00\xff"}))
        local.client.delete_item(TableName=MUSIC, Key={"songID": {"S": "b"}, "SK": {"S": "download-1"}})
        local.drain()
    first, second, *_, last = events
    assert [len(event["Records"]) for event in events[:2]] == [2, 2]
    assert first["window"] == {"start": "2023-11-14T22:00:00Z", "end": "2023-11-14T22:15:00Z"}
    assert {event["shardId"] for event in events} == {first["shardId"]}
    assert first.keys() == {
        "Records",
        "window",
        "state",
        "shardId",
        "eventSourceARN",
        "isFinalInvokeForWindow",
        "isWindowTerminatedEarly",
    }
    assert [event["isFinalInvokeForWindow"] for event in events] == [False] * (len(events) - 1) + [True]
    assert last["Records"] == []
    put_record, delete_record = second["Records"]
    change = put_record["dynamodb"]
    assert put_record.keys() == {
        "eventID",
        "eventName",
        "eventVersion",
        "eventSource",
        "awsRegion",
        "dynamodb",
        "eventSourceARN",
    }
    assert change["NewImage"]["raw"] == {"B": "AP8="}
    assert change["Keys"] == {"songID": {"S": "b"}, "SK": {"S": "download-1"}}
    assert type(change["ApproximateCreationDateTime"]) is int
    assert len(change["SequenceNumber"]) >= 21
    # The keys, twice, the image's other attributes, and no more: names and values.
    assert change["SizeBytes"] == 2 * len("songIDbSKdownload-1") + len("Timestamp2018-01-15T00:00:00Zraw..")
    assert put_record["eventVersion"] == "1.1"
    assert delete_record["eventName"] == "REMOVE"
    assert "NewImage" not in delete_record["dynamodb"]
    assert json.loads(json.dumps(events)) == events


def test_deliver_finds_the_table_in_the_records_or_says_that_it_cannot() -> None:
    empty = {"Records": [], "shardId": "shardId-0"}
    with Local(plays_app) as local:
        assert local.deliver(empty)["batchItemFailures"] == []
        with pytest.raises(EventError, match="Records"):
            local.deliver({"hello": "world"})
        stranger = {"Records": [{"eventSourceARN": "arn:aws:dynamodb:eu-west-1:1:table/Other/stream/x"}]}
        with pytest.raises(ConfigurationError, match="'Other'"):
            local.deliver(stranger)
    with Local(App("two", [DailyPlays, Keys])) as local, pytest.raises(EventError, match="Plays, Totals"):
        local.deliver(empty)


class Tape:
    """A boto3 Streams client that plays records, one a page; the description of its shards has two pages."""

    def __init__(self, *records: dict[str, Any]) -> None:
        self.pages = [[record] for record in records] + [[]]
        self.places: list[dict[str, Any]] = []

    def describe_stream(self, **place: Any) -> dict[str, Any]:
        shards = {"Shards": [{"ShardId": "shardId-2" if "ExclusiveStartShardId" in place else "shardId-1"}]}
        more = {} if "ExclusiveStartShardId" in place else {"LastEvaluatedShardId": "shardId-1"}
        return {"StreamDescription": shards | more}

    def get_shard_iterator(self, **place: Any) -> dict[str, Any]:
        self.places.append(place)
        return {"ShardIterator": "0"}

    def get_records(self, *, ShardIterator: str, Limit: int) -> dict[str, Any]:
        return {"Records": self.pages[int(ShardIterator)], "NextShardIterator": str(int(ShardIterator) + 1)}


def test_an_expiry_says_so_in_lambdas_spelling() -> None:
    def removed(number: int, **more: Any) -> dict[str, Any]:
        change = {"Keys": {"id": {"B": b"\xff"}}, "SequenceNumber": str(number)}
        origin = {"eventSource": "aws:dynamodb", "awsRegion": "us-east-1", "eventVersion": "1.1"}
        return {"eventID": "e", "eventName": "REMOVE", "dynamodb": change, **origin, **more}

    by = {"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"}
    tape = Tape(removed(7), removed(8, userIdentity=by))
    first, second = live_shards(tape, "arn:stream")
    assert (first.shard_id, second.shard_id) == ("shardId-1", "shardId-2")
    plain, expired = second.records(6)
    assert "userIdentity" not in plain
    assert expired["userIdentity"] == {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    assert expired["dynamodb"]["Keys"] == {"id": {"B": "/w=="}}
    assert is_expiry(expired)
    assert tape.places == [
        {
            "StreamArn": "arn:stream",
            "ShardId": "shardId-2",
            "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
            "SequenceNumber": "6",
        }
    ]


# -- failures --


def failing(local: Local, song: str, times: int) -> None:
    left = [times]

    def fail(params: dict[str, Any], **_: Any) -> None:
        if f'"{song}"'.encode() in params["body"] and left[0]:
            left[0] -= 1
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not you"}}, "UpdateItem")

    local.function_client.meta.events.register("before-call.dynamodb.UpdateItem", fail)


def test_a_reported_failure_comes_again_from_there(events: list[dict[str, Any]]) -> None:
    with Local(music_app) as local:
        put(local, *(download(song, n) for n in range(2) for song in "abc"))
        failing(local, "b", 2)
        local.drain()
        assert [len(event["Records"]) for event in events[:3]] == [6, 5, 5]
        assert counts(local) == {(song, "2018-01"): 2 for song in "abc"}


def test_a_batch_without_progress_ends_the_drain_and_the_next_one_goes_on(
    events: list[dict[str, Any]],
) -> None:
    with Local(music_app) as local:
        put(local, *(download(song, n) for n in range(2) for song in "abc"))
        failing(local, "b", 7)
        with pytest.raises(DeliveryError) as raised:
            local.drain()
        first = events[0]["Records"][1]["dynamodb"]["SequenceNumber"]
        for part in (f"'{MUSIC}'", events[0]["shardId"], first, "6 invocations"):
            assert part in str(raised.value)
        assert len(events) == 7
        local.drain()
        assert counts(local) == {(song, "2018-01"): 2 for song in "abc"}


class Shelf:
    """A shard that holds records of a given size."""

    stream_arn = "arn:aws:dynamodb:us-east-1:1:table/T/stream/s"
    shard_id = "shardId-0"

    def __init__(self, count: int, weight: int = 0) -> None:
        self.count, self.weight = count, weight

    def records(self, after: int = 0) -> Iterator[dict[str, Any]]:
        for number in range(after + 1, self.count + 1):
            yield {"dynamodb": {"SequenceNumber": str(number)}, "filler": "x" * self.weight}


def polled(shard: Shelf, responses: list[Any], *, batch_size: int = 4) -> tuple[Poller, list[dict[str, Any]]]:
    """A poller of a function that gives these responses in turn, then success; and the events it gets."""
    events: list[dict[str, Any]] = []

    def function(event: dict[str, Any]) -> object:
        events.append(event)
        response = responses.pop(0) if responses else {"state": {}}
        if isinstance(response, Exception):
            raise response
        return response

    return Poller("T", shard, function, batch_size=batch_size, now=lambda: 0.0), events


def runs(events: list[dict[str, Any]]) -> list[list[int]]:
    return [[int(record["dynamodb"]["SequenceNumber"]) for record in event["Records"]] for event in events]


def reported(*identifiers: object) -> dict[str, Any]:
    return {"state": {}, "batchItemFailures": [{"itemIdentifier": each} for each in identifiers]}


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ({"state": {}}, [[1, 2, 3]]),
        ({"state": {}, "batchItemFailures": None}, [[1, 2, 3]]),
        (reported("3", "2"), [[1, 2, 3], [2, 3]]),
        (reported("1"), [[1, 2, 3], [1, 2, 3]]),
        (reported("3", "9"), [[1, 2, 3], [1, 2, 3]]),
        (reported(""), [[1, 2, 3], [1, 2, 3]]),
        (reported(None), [[1, 2, 3], [1, 2, 3]]),
        ({"state": {}, "batchItemFailures": [{"id": "2"}]}, [[1, 2, 3], [1, 2, 3]]),
        ({"batchItemFailures": []}, [[1, 2, 3], [1, 2, 3]]),
        (None, [[1, 2, 3], [1, 2, 3]]),
    ],
)
def test_what_comes_again_is_what_lambda_would_send_again(response: Any, expected: list[list[int]]) -> None:
    poller, events = polled(Shelf(3), [response])
    list(poller.poll())
    assert runs(events) == expected
    assert poller.checkpoint == 3


def test_progress_starts_the_count_of_tries_again() -> None:
    poller, events = polled(Shelf(2), [*[reported("1")] * 5, reported("2"), *[reported("2")] * 5])
    list(poller.poll())
    assert runs(events) == [[1, 2]] * 6 + [[2]] * 6


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (None, "came None"),
        ({}, "expected a state"),
        (reported("7"), "came '7'"),
        (reported("1"), "not done"),
        (reported("1") | {"streamfold": {"error": "no such table"}}, "no such table"),
    ],
)
def test_a_poller_that_is_stuck_says_where_and_why(response: Any, reason: str) -> None:
    poller, events = polled(Shelf(3), [response] * 6)
    with pytest.raises(DeliveryError, match="table 'T': shard shardId-0: from sequence number 1 on: ") as raised:
        list(poller.poll())
    assert reason in str(raised.value)
    assert len(events) == 6
    assert poller.checkpoint == 0


def test_an_error_in_the_function_leaves_the_checkpoint() -> None:
    poller, events = polled(Shelf(6), [{"state": {}}, RuntimeError("oh")])
    with pytest.raises(RuntimeError, match="oh"):
        list(poller.poll())
    list(poller.poll())
    assert runs(events) == [[1, 2, 3, 4], [5, 6], [5, 6]]


def test_state_is_handed_on_within_a_window_and_not_into_the_next() -> None:
    poller, events = polled(Shelf(8), [{"state": {"n": 1}}, {"state": {"n": 2}}, {"state": {"n": 3}}])
    list(poller.poll())
    list(poller.close_window())
    poller._shard.count = 9  # type: ignore[attr-defined]
    list(poller.poll())
    assert [event["state"] for event in events] == [{}, {"n": 1}, {"n": 2}, {}]
    assert [event["isFinalInvokeForWindow"] for event in events] == [False, False, True, False]


def test_batches_end_at_their_number_and_at_six_megabytes() -> None:
    poller, events = polled(Shelf(9), [])
    list(poller.poll())
    assert runs(events) == [[1, 2, 3, 4], [5, 6, 7, 8], [9]]
    poller, events = polled(Shelf(8, weight=800_000), [], batch_size=1000)
    list(poller.poll())
    assert runs(events) == [[1, 2, 3, 4, 5, 6, 7], [8]]


# -- files --


def lines(path: Path, *items: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(item) + "\n" for item in items))


def test_a_file_stands_in_for_a_table(tmp_path: Path) -> None:
    path = tmp_path / "plays.jsonl"
    lines(path, *({"id": str(n), "genre": "jazz", "at": "2018-01-15", "seconds": n} for n in range(10)))
    seen: list[tuple[int, float | None]] = []
    with Local(plays_app, files={"Plays": path}, batch_size=4) as local:
        found = local.drain(lambda *progress: seen.append(progress))
        assert (found.records, found.invocations) == (10, 4)
        assert plays_of_the_day(local) == 10
        assert local.drain() == Drained()
        assert "LatestStreamArn" not in local.client.describe_table(TableName="Plays")["Table"]
    assert [records for records, _ in seen] == [4, 8, 10, 10]
    assert seen[-1][1] == 1.0


def test_a_file_costs_and_comes_to_what_the_live_table_does(tmp_path: Path) -> None:
    path = tmp_path / "plays.jsonl"
    items = [{"id": str(n), "genre": "jazz" if n % 3 else "folk", "at": "2018-01-15", "seconds": n} for n in range(30)]
    lines(path, *items)
    with Local(plays_app, files={"Plays": path}, batch_size=7) as local:
        from_file = local.drain()
        assert from_file.wcu > from_file.requests > 0
        found = sorted(DailyPlays.all("2018-01-15", client=local.client), key=lambda one: str(one.group))
        with pytest.raises(NotImplementedError, match="DescribeContinuousBackups"):
            local.client.describe_continuous_backups(TableName="Plays")
    with Local(plays_app, batch_size=7) as local:
        for item in items:
            local.client.put_item(TableName="Plays", Item=encode_item(item))
        assert local.drain() == from_file
        assert sorted(DailyPlays.all("2018-01-15", client=local.client), key=lambda one: str(one.group)) == found


def test_after_a_broken_line_is_mended_nothing_counts_twice(tmp_path: Path) -> None:
    path = tmp_path / "plays.jsonl"
    items = [{"id": str(n), "genre": "jazz", "at": "2018-01-15", "seconds": n} for n in range(10)]
    lines(path, *items)
    path.write_text(path.read_text().replace('{"id": "6"', '{"id": 6"', 1))
    with Local(plays_app, files={"Plays": path}, batch_size=4) as local:
        with pytest.raises(SourceError, match=r"plays\.jsonl"):
            local.drain()
        assert plays_of_the_day(local) == 4
        lines(path, *items)
        local.drain()
        assert plays_of_the_day(local) == 10


# -- tables --


def test_tables_are_made_of_the_declarations() -> None:
    assert create_table_request(music_app, MonthlyDownloads.source) == {
        "TableName": MUSIC,
        "KeySchema": [
            {"AttributeName": "songID", "KeyType": "HASH"},
            {"AttributeName": "SK", "KeyType": "RANGE"},
        ],
        "AttributeDefinitions": [
            {"AttributeName": "songID", "AttributeType": "S"},
            {"AttributeName": "SK", "AttributeType": "S"},
            {"AttributeName": "Month", "AttributeType": "S"},
            {"AttributeName": "DownloadCount", "AttributeType": "N"},
        ],
        "BillingMode": "PAY_PER_REQUEST",
        "GlobalSecondaryIndexes": [
            {
                "IndexName": "MonthDownloadsIndex",
                "KeySchema": [
                    {"AttributeName": "Month", "KeyType": "HASH"},
                    {"AttributeName": "DownloadCount", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
        "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    }
    target = create_table_request(plays_app, totals)
    (index,) = target["GlobalSecondaryIndexes"]
    kept = ["MeanCount", "MeanSum", "Seconds"]  # in order, so that the order of the list changes nothing
    assert index["Projection"] == {"ProjectionType": "INCLUDE", "NonKeyAttributes": kept}
    assert "StreamSpecification" not in target
    assert create_table_request(plays_app, plays)["KeySchema"] == [{"AttributeName": "id", "KeyType": "HASH"}]


# -- cost --


def test_requests_of_the_functions_cost_what_aws_would_charge(music: Local) -> None:
    put(music, download("a", 1))
    assert (music.drain().requests, music.drain().wcu) == (1, 0)
    put(music, download("a", 2))
    found = music.drain()
    assert (found.requests, found.wcu) == (1, 3)  # the item, and its entry moved in the index
    meter = music._opened.meter
    before = meter.wcu
    big = {"songID": {"S": "big"}, "SK": {"S": "x"}, "text": {"S": "x" * 2000}}
    music.function_client.put_item(TableName=MUSIC, Item=big)
    assert meter.wcu - before == 2
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        music.function_client.delete_item(
            TableName=MUSIC,
            Key={"songID": {"S": "big"}, "SK": {"S": "x"}},
            ConditionExpression="attribute_exists(nothing)",
        )
    assert meter.wcu - before == 4
    music.function_client.transact_write_items(TransactItems=[{"Put": {"TableName": MUSIC, "Item": big}}])
    assert meter.wcu - before == 8
    put(music, big)
    requests = meter.requests
    with pytest.raises(ClientError, match="ValidationException"):
        music.function_client.put_item(TableName=MUSIC, Item={"songID": {"N": "1"}, "SK": {"S": "x"}})
    assert (meter.wcu - before, meter.requests - requests) == (8, 1)


# -- moto's quirks --


def test_an_update_that_creates_writes_one_record(music: Local) -> None:
    update(music, "a", "SET title = :t", t={"S": "x"})
    update(music, "b", "SET title = :t", t={"S": "y"})
    records = stream(music)
    assert [(r["eventName"], r["dynamodb"]["NewImage"].get("title")) for r in records] == [
        ("INSERT", {"S": "x"}),
        ("INSERT", {"S": "y"}),
    ]
    numbers = [int(r["dynamodb"]["SequenceNumber"]) for r in records]
    assert numbers == sorted(set(numbers))


def test_writes_that_change_nothing_write_no_record(music: Local) -> None:
    item = {**download("a", 1), "n": {"N": "1.50"}, "s": {"SS": ["x", "y"]}}
    put(music, item, item, {**item, "n": {"N": "1.5"}, "s": {"SS": ["y", "x"]}})
    update(music, "b", "SET n = :n", n={"N": "5"})
    update(music, "b", "ADD n :n", n={"N": "0"})
    update(music, "b", "ADD n :n", n={"N": "1"})
    assert [record["eventName"] for record in stream(music)] == ["INSERT", "INSERT", "MODIFY"]


def test_transactions_write_their_records_the_same_way(music: Local) -> None:
    def action(song: str) -> dict[str, Any]:
        key = {"songID": {"S": song}, "SK": {"S": "x"}}
        return {
            "TableName": MUSIC,
            "Key": key,
            "UpdateExpression": "SET n = :n",
            "ExpressionAttributeValues": {":n": {"N": "1"}},
        }

    music.client.transact_write_items(TransactItems=[{"Update": action("a")}, {"Update": action("b")}])
    refused = {**action("a"), "ConditionExpression": "attribute_not_exists(n)"}
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        music.client.transact_write_items(TransactItems=[{"Update": action("c")}, {"Update": refused}])
    assert [r["dynamodb"]["Keys"]["songID"]["S"] for r in stream(music)] == ["a", "b"]
    assert music.client.scan(TableName=MUSIC)["Count"] == 2


def test_a_refused_update_leaves_no_item_and_no_record(music: Local) -> None:
    with pytest.raises(ClientError, match="ValidationException"):
        update(music, "a", "SET q = :s ADD z :s", s={"S": "x"})
    update(music, "b", "SET n = :n", n={"N": "5"})
    with pytest.raises(ClientError, match="ValidationException"):
        update(music, "b", "SET n = :n ADD n.x :n", n={"N": "6"})
    assert [item["n"]["N"] for item in music.client.scan(TableName=MUSIC)["Items"]] == ["5"]
    assert len(stream(music)) == 1


class TestOfOneEngine:
    """Cases that need no table of their own: each uses keys of its own."""

    @pytest.mark.parametrize(
        ("kept", "expression", "value", "expected"),
        [
            ("12345678901234567890123456789.5", "ADD n :n", "1", "12345678901234567890123456790.5"),
            ("1E+37", "ADD n :n", "1", "1" + "0" * 36 + "1"),
            ("1E+3", "ADD n :n", "1E+3", "2000"),
            ("0.00000015", "ADD n :n", "0.00000015", "0.0000003"),
            ("5", "SET n = n - :n", "0.5", "4.5"),
            ("-1E-130", "ADD n :n", "2E-130", "0." + "0" * 129 + "1"),
            ("1E+38", "ADD n :n", "1", None),
            ("9E+125", "ADD n :n", "9E+125", None),
            ("1E-130", "SET n = n - :n", "1.5E-130", None),
        ],
    )
    def test_arithmetic_is_exact_in_38_digits_or_refused(
        self, shared: Local, kept: str, expression: str, value: str, expected: str | None
    ) -> None:
        key = f"{kept} {expression}"
        update(shared, key, "SET n = :n", n={"N": kept})
        if expected is not None:
            assert update(shared, key, expression, n={"N": value})["n"] == {"N": expected}
            return
        with pytest.raises(ClientError, match="ValidationException"):
            update(shared, key, expression, n={"N": value})
        (item,) = items_of(shared, key)
        assert Decimal(item["n"]["N"]) == Decimal(kept)

    @pytest.mark.parametrize(
        "more",
        [
            {"n": {"N": "1" * 39}},
            {"deep": {"M": {"n": {"L": [{"N": "0." + "1" * 39}]}}}},
            {"n": {"NS": ["1", "1.0"]}},
            {"Month": {"N": "1"}},
            {"DownloadCount": {"S": "1"}},
            {"Month": {"S": ""}},
        ],
        ids=str,
    )
    def test_items_that_the_service_refuses_are_refused(self, shared: Local, more: dict[str, Any]) -> None:
        ((name, value),) = more.items()
        there, absent = f"there {more}", f"absent {more}"
        put(shared, download(there, 1))
        records = len(stream(shared))
        for song in (there, absent):
            with pytest.raises(ClientError, match="ValidationException"):
                put(shared, download(song, 1, **more))
        with pytest.raises(ClientError, match="ValidationException"):
            update(shared, absent, f"SET {name} = :v", v=value)
        assert items_of(shared, there) == [download(there, 1)]
        assert items_of(shared, absent) == []
        assert len(stream(shared)) == records


def test_threads_do_not_lose_updates(music: Local) -> None:
    def add() -> None:
        for _ in range(10):
            update(music, "a", "ADD n :n", n={"N": "1"})

    threads = [threading.Thread(target=add) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (item,) = music.client.scan(TableName=MUSIC)["Items"]
    assert item["n"] == {"N": "60"}
    assert len(stream(music)) == 60


# -- the surroundings --


def test_the_environment_is_put_back_and_leads_nowhere_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAREALREALREALREAL")
    monkeypatch.setenv("AWS_PROFILE", "")
    monkeypatch.delenv("AWS_ACCOUNT_ID_ENDPOINT_MODE", raising=False)
    before = dict(os.environ)
    local = Local(music_app)
    with local:
        assert os.environ["AWS_ACCESS_KEY_ID"] != "AKIAREALREALREALREAL"
        assert "AWS_ENDPOINT_URL_DYNAMODB" not in os.environ
        put(local, download("a", 1))
        local.drain()
    assert dict(os.environ) == before


@pytest.mark.parametrize("files", [True, False])
def test_a_closed_engine_takes_no_request(music: Local, files: bool, tmp_path: Path) -> None:
    lines(tmp_path / "plays.jsonl")
    with pytest.raises(ConfigurationError, match="inside"):
        Local(plays_app).client  # noqa: B018
    local = Local(plays_app, files={"Plays": tmp_path / "plays.jsonl"} if files else None)
    # Nested, the outer one keeps moto on.
    with local:
        client = local.client
    with pytest.raises(ConfigurationError, match="after its end"):
        client.list_tables()


def test_a_second_run_starts_empty() -> None:
    for _ in range(2):
        with Local(music_app) as local:
            put(local, download("a", 1))
            assert local.drain().updates == 1
            assert counts(local) == {("a", "2018-01"): 1}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({"batch_size": 0}, "1 to 10,000"), ({"files": {"Nowhere": "x.csv"}}, "'Nowhere'")],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        Local(music_app, **arguments)
