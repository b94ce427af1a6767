"""What cannot be counted is kept in the control table, once, before anything that follows it passes it by."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError

from framework import (
    Aggregation,
    AllTime,
    App,
    BadValueError,
    ConfigurationError,
    Count,
    DeliveryError,
    Monthly,
    Sum,
    Table,
)
from framework.consumer import Consumer
from framework.control import Control
from framework.local.memory import MemoryDynamoDB
from framework.local.provision import create_table_request
from framework.quarantine import Entry, entry_item, entry_of, lane_prefix, place_of
from framework.turns import turn_of
from tests.unit.stream import ARN, download, event, record

music = Table("MusicLibrary", pk="songID", sk="SK")
CONTROL: dict[str, Any] = {
    "TableName": "control",
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "S"},
    ],
    "BillingMode": "PAY_PER_REQUEST",
}


class Weights(Aggregation):
    """A sum that a record without a weight has no part in."""

    name = "weights"
    source = music
    target = Table("Weights", pk="key")
    group_by = "songID"
    window = AllTime()
    Items = Count()
    Weight = Sum("weight")


class Downloads(Aggregation):
    """A count of everything, for which no record is bad."""

    name = "downloads"
    source = music
    target = Table("Downloads", pk="key")
    group_by = "songID"
    window = AllTime()
    Items = Count()


app = App("weights", [Weights, Downloads])


def heavy(song: str, weight: str) -> dict[str, Any]:
    return download(song, weight={"N": weight})


def tables() -> MemoryDynamoDB:
    engine = MemoryDynamoDB()
    for table in app.tables:
        engine.create_table(**create_table_request(app, table))
    engine.create_table(**CONTROL)
    return engine


@pytest.fixture
def engine() -> Iterator[MemoryDynamoDB]:
    return tables()


def no_object(name: str, content: bytes) -> None:
    raise AssertionError(f"no object was expected, came {name}")


def consumer(client: Any, engine: Any = None, delivery: str = "lanes", version: str = "1") -> Consumer:
    control = Control(client, "control", no_object, version=version, connections=1)
    return Consumer(
        app,
        "MusicLibrary",
        engine or client,
        control=control,
        delivery=delivery,
        connections=1,
        now=lambda: 1_600_000_000,
    )


def entries(engine: MemoryDynamoDB, *, refused: bool = False) -> dict[str, dict[str, Any]]:
    found = engine.scan(TableName="control")["Items"]
    ours = (item for item in found if item["pk"]["S"] == "quarantine")
    return {item["sk"]["S"]: item for item in ours if ("refused" in item) is refused}


def total(engine: MemoryDynamoDB, song: str) -> tuple[int, Decimal] | None:
    found = Weights.get(song, "all", client=engine)
    return None if found is None else (found["Items"], found["Weight"])


PLACE = f"MusicLibrary/{ARN.rpartition('/')[2]}/shardId-00000001514764800000-abcdef12/"


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_a_bad_record_is_kept_for_its_handler_and_counts_for_the_others(engine: MemoryDynamoDB, delivery: str) -> None:
    bad = record(2, new=download("a"))
    run = event(record(1, new=heavy("a", "5")), bad, record(3, new=heavy("a", "7")))
    response = consumer(engine, delivery=delivery)(run)
    assert response["batchItemFailures"] == []
    assert total(engine, "a") == (2, 12)
    found = Downloads.get("a", "all", client=engine)
    assert found is not None
    assert found["Items"] == 3
    ((place, entry),) = entries(engine).items()
    shard = PLACE if delivery == "lanes" else PLACE.replace("shardId-00000001514764800000-abcdef12", "-")
    assert place == f"{shard}012/weights/NewImage"
    assert json.loads(entry["record"]["S"]) == bad
    assert entry["reason"] == {"S": "attribute 'weight' is missing"}
    assert entry["at"] == {"N": "1600000000"}
    again = consumer(engine, delivery=delivery)(run)
    assert again["batchItemFailures"] == []
    assert total(engine, "a") == (2, 12)
    assert entries(engine) == {place: entry}


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_an_edit_that_is_bad_on_both_sides_has_an_entry_for_each_image(engine: MemoryDynamoDB, delivery: str) -> None:
    consumer(engine, delivery=delivery)(event(record(2, old=download("a"), new=download("b"))))
    assert [place_of(place) for place in entries(engine)] == [("weights", 2, "NewImage"), ("weights", 2, "OldImage")]


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_a_record_in_quarantine_is_not_counted_when_a_mended_handler_gets_it_again(
    engine: MemoryDynamoDB, delivery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = event(record(1, new=heavy("a", "5")), record(2, old=heavy("a", "5"), new=download("a")))
    consumer(engine, delivery=delivery)(run)
    assert total(engine, "a") is None
    mended = event(record(1, new=heavy("a", "5")), record(2, old=heavy("a", "5"), new=heavy("a", "6")))
    for _ in range(2):
        response = consumer(engine, delivery=delivery)(mended)  # a new process, as after a deployment
        assert response["batchItemFailures"] == []
        assert total(engine, "a") is None
    assert len(entries(engine)) == 1


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_a_value_that_dynamodb_rejects_is_kept_and_its_neighbours_count(engine: MemoryDynamoDB, delivery: str) -> None:
    weights = ["1", "1E+125", "2", "3"]
    run = event(*(record(n, new=heavy("a", weight)) for n, weight in enumerate(weights, 1)))
    response = consumer(engine, delivery=delivery)(run)
    assert response["batchItemFailures"] == []
    assert total(engine, "a") == (3, 6)
    assert [place_of(place) for place in entries(engine)] == [("weights", 2, "NewImage")]
    assert consumer(engine, delivery=delivery)(run)["batchItemFailures"] == []
    assert total(engine, "a") == (3, 6)
    assert len(entries(engine)) == 1


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_what_a_process_has_set_aside_it_does_not_count_once_nothing_is_in_the_way_any_more(
    engine: MemoryDynamoDB, delivery: str
) -> None:
    theirs = {**Weights._declaration.key("a", "all", 0), "theirs": {"S": "x"}}
    engine.put_item(TableName="Weights", Item=theirs)
    run = event(record(1, new=heavy("a", "1")), record(2, new=heavy("b", "2")))
    process = consumer(engine, delivery=delivery)
    process(run)
    engine.delete_item(TableName="Weights", Key=Weights._declaration.key("a", "all", 0))
    process(run)
    assert (total(engine, "a"), total(engine, "b")) == (None, (1, 2))
    assert len(entries(engine)) == 1


@pytest.mark.parametrize("shard", [None, "shardId-00000001514764800000-abcdef12"])
def test_the_ledger_finds_an_entry_whether_an_event_names_its_shard_or_not(
    engine: MemoryDynamoDB, shard: str | None
) -> None:
    for named in (None, shard):
        whole = event(record(2, new=download("a")), shardId=named)
        assert consumer(engine, delivery="ledger")(whole)["batchItemFailures"] == []
    assert len(entries(engine)) == 1


def test_what_the_ledger_has_counted_no_later_version_sets_aside(engine: MemoryDynamoDB) -> None:
    consumer(engine, delivery="ledger")(event(record(1, new=heavy("a", "5"))))
    response = consumer(engine, delivery="ledger")(event(record(1, new=download("a"))))
    assert response["batchItemFailures"] == []
    assert entries(engine) == {}


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_what_is_taken_back_from_nothing_is_kept_and_not_taken_back_when_it_comes_again(
    engine: MemoryDynamoDB, delivery: str
) -> None:
    edits = [
        record(2, old=heavy("a", "7"), new=heavy("a", "5")),
        record(3, old=heavy("a", "5")),
        record(4, new=heavy("a", "1")),
    ]
    for place in (2, 3):
        response = consumer(engine, delivery=delivery)(event(*edits[:place]))
        assert response["batchItemFailures"] == []
    assert sorted(map(place_of, entries(engine, refused=True))) == [
        ("downloads", 3, "OldImage"),
        ("weights", 2, "NewImage"),
        ("weights", 2, "OldImage"),
        ("weights", 3, "OldImage"),
    ]
    for entry in entries(engine, refused=True).values():
        assert entry["expires"] == {"N": str(1_600_000_000 + 14 * 86_400)}
    consumer(engine, delivery=delivery)(event(*edits))
    assert total(engine, "a") == (1, 1)
    assert entries(engine) == {}


def test_an_aggregate_that_was_made_while_a_take_back_is_refused_is_taken_back_from(engine: MemoryDynamoDB) -> None:
    class Meanwhile:
        """Another shard makes the aggregate before what is refused is kept."""

        def __getattr__(self, name: str) -> Any:
            return getattr(engine, name)

        def transact_write_items(self, **arguments: Any) -> Any:
            if total(engine, "a") is None:
                other = event(record(9, new=heavy("a", "3")), record(10, new=heavy("a", "4")), shardId="another")
                consumer(engine)(other)
            return engine.transact_write_items(**arguments)

    response = consumer(Meanwhile())(event(record(2, old=heavy("a", "3"))))
    assert response["streamfold"]["refusedTakeBacks"] == 0
    assert total(engine, "a") == (1, 4)
    assert entries(engine, refused=True) == {}


def test_the_turn_is_read_before_a_batch_and_written_where_it_passes_or_after_ten_seconds_of_records(
    engine: MemoryDynamoDB,
) -> None:
    def run(process: Consumer, number: int, at: float) -> tuple[int, int, int]:
        whole = record(number, new=heavy("a", "1"))
        whole["dynamodb"]["ApproximateCreationDateTime"] = at
        before = dict(engine.requests)
        assert process(event(whole))["batchItemFailures"] == []
        reads, queries, writes = (
            engine.requests[name] - before.get(name, 0) for name in ("GetItem", "Query", "UpdateItem")
        )
        return reads, queries, writes - 2  # one for each aggregation

    warm, other = consumer(engine, version="1"), consumer(engine, version="2")
    run(warm, 1, 1000)
    assert [run(warm, 2, 1009.5), run(warm, 3, 1010)] == [(1, 0, 0), (1, 0, 0)]
    assert run(warm, 4, 1010.5) == (1, 0, 1)
    run(other, 5, 1011)
    assert run(other, 6, 1012) == (1, 0, 0)
    assert run(warm, 7, 1013) == (1, 0, 1)


def test_a_process_looks_for_entries_once_there_are_new_ones(engine: MemoryDynamoDB) -> None:
    warm = consumer(engine)
    warm(event(record(1, new=heavy("a", "1"))))
    consumer(engine)(event(record(3, new=download("a"))))
    asked = []
    for number in (3, 4, 2):
        queries = engine.requests["Query"]
        warm(event(record(number, new=heavy("a", "1"))))
        asked.append(engine.requests["Query"] - queries)
    assert asked == [1, 0, 1]
    assert total(engine, "a") == (2, 2)


def timed(number: int, at: float, **images: Any) -> dict[str, Any]:
    found = record(number, **images)
    found["dynamodb"]["ApproximateCreationDateTime"] = at
    return found


@pytest.mark.parametrize(("at", "uncertain"), [(1000, True), (1010, True), (1011, False), (None, True)])
def test_what_another_version_may_have_counted_is_set_aside_as_uncertain(
    engine: MemoryDynamoDB, at: float | None, uncertain: bool
) -> None:
    consumer(engine, version="1")(event(timed(1, 1000, new=heavy("a", "1"))))
    bad = record(2, new=download("a")) if at is None else timed(2, at, new=download("a"))
    consumer(engine, version="2")(event(bad))
    (entry,) = entries(engine).values()
    assert ("uncertain" in entry) is uncertain
    assert entry["reason"]["S"].endswith("it may have counted while another version was deployed") is uncertain


def test_what_another_version_begins_at_the_same_time_is_set_aside_as_uncertain(engine: MemoryDynamoDB) -> None:
    class Meanwhile:
        """Another version has the batch between its beginning and its entry."""

        def __getattr__(self, name: str) -> Any:
            return getattr(engine, name)

        def transact_write_items(self, **arguments: Any) -> Any:
            if total(engine, "a") is None:
                consumer(engine, version="2")(event(timed(1, 1000, new=heavy("a", "1"))))
            return engine.transact_write_items(**arguments)

    consumer(Meanwhile(), version="1")(event(timed(1, 1000, new=download("a"))))
    (entry,) = entries(engine).values()
    assert "uncertain" in entry
    assert total(engine, "a") == (1, 1)


def test_two_who_find_a_sum_otherwise_at_the_same_time_count_it_once(engine: MemoryDynamoDB) -> None:
    huge, one = heavy("a", "1E+40"), record(2, new=heavy("a", "1"))
    consumer(engine)(event(record(1, new=huge)))
    other = consumer(engine)

    class Meanwhile:
        """The sum gets room by another shard, and a second poller has the record, after the first found it too large."""

        done = False

        def __getattr__(self, name: str) -> Any:
            return getattr(engine, name)

        def transact_write_items(self, **arguments: Any) -> Any:
            answer = engine.transact_write_items(**arguments)
            consumer(engine)(event(record(3, old=huge), shardId="another"))
            other(event(one))  # it began before
            return answer

    turn = engine.get_item(TableName="control", Key={"pk": {"S": f"turn#{PLACE}"}, "sk": {"S": "-"}})
    other._control.begin = lambda batch, first: (turn_of(turn["Item"], PLACE, None), {})  # type: ignore
    consumer(Meanwhile())(event(one))
    assert [place_of(place) for place in entries(engine)] == [("weights", 2, "NewImage")]
    assert total(engine, "a") is None


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_the_ledger_takes_nothing_back_before_what_was_added_earlier(engine: MemoryDynamoDB, failing: int) -> None:
    class Denied:
        """A client whose transactions fail once, from one on."""

        calls = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(engine, name)

        def transact_write_items(self, **arguments: Any) -> Any:
            self.calls += 1
            if self.calls == failing:
                raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "TransactWriteItems")
            return engine.transact_write_items(**arguments)

    bad = record(2, new=download("b"))  # so that the others are in transactions of their own
    run = event(record(1, new=heavy("a", "1")), bad, record(3, old=heavy("a", "1")))
    assert consumer(Denied(), delivery="ledger")(run)["batchItemFailures"]
    assert consumer(engine, delivery="ledger")(run)["batchItemFailures"] == []
    assert total(engine, "a") is None
    assert [item["Items"]["N"] for item in engine.scan(TableName="Weights")["Items"]] == ["0"]


def test_a_warm_process_sees_that_its_stream_was_given_to_the_other_protocol(engine: MemoryDynamoDB) -> None:
    clock = [0.0]
    control = Control(engine, "control", no_object, connections=1, clock=lambda: clock[0])
    warm = Consumer(app, "MusicLibrary", engine, control=control, connections=1)
    warm(event(record(1, new=heavy("a", "1"))))
    item = {"pk": {"S": "delivery"}, "sk": {"S": "MusicLibrary"}, "delivery": {"S": "ledger"}}
    engine.put_item(TableName="control", Item=item)
    clock[0] += 31
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="expected delivery by 'ledger', as until now, came 'lanes'"):
            warm(event(record(2, new=heavy("a", "1"))))
        clock[0] += 1
    assert total(engine, "a") == (1, 1)


def test_text_that_is_no_unicode_is_kept_all_the_same(engine: MemoryDynamoDB) -> None:
    whole = record(1, new=download("a", note={"S": "\ud800"}))
    assert consumer(engine)(event(whole))["batchItemFailures"] == []
    (item,) = entries(engine).values()
    assert entry_of(item, {}.__getitem__).record == whole


@pytest.mark.parametrize("place", ["zzz", "02x/weights/NewImage"])
def test_an_item_in_the_quarantine_that_is_no_entry_stops_nothing(engine: MemoryDynamoDB, place: str) -> None:
    engine.put_item(TableName="control", Item={"pk": {"S": "quarantine"}, "sk": {"S": f"{PLACE}{place}"}})
    assert consumer(engine)(event(record(1, new=heavy("a", "1"))))["batchItemFailures"] == []
    assert total(engine, "a") == (1, 1)


class Broken:
    """A client whose requests of one kind for one table fail; of transactions, those that put something there."""

    def __init__(self, engine: MemoryDynamoDB, operation: str, table: str, code: str = "AccessDeniedException") -> None:
        self.engine, self.operation, self.table, self.code = engine, operation, table, code

    def __getattr__(self, operation: str) -> Any:
        def call(**arguments: Any) -> Any:
            puts = [action["Put"]["TableName"] for action in arguments.get("TransactItems", ()) if "Put" in action]
            if operation == self.operation and self.table in (arguments.get("TableName"), *puts):
                raise ClientError({"Error": {"Code": self.code, "Message": "no"}}, operation)
            return getattr(self.engine, operation)(**arguments)

        return call


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
@pytest.mark.parametrize("weight", ["1E+125", None])
def test_nothing_passes_a_record_by_that_cannot_be_kept(
    engine: MemoryDynamoDB, delivery: str, weight: str | None
) -> None:
    bad = download("a") if weight is None else heavy("a", weight)
    run = event(record(1, new=heavy("a", "1")), record(2, new=bad), record(3, new=heavy("a", "2")))
    consumer(engine, delivery=delivery)(event())  # the delivery is remembered while the table still answers
    broken = Broken(engine, "transact_write_items", "control")
    failing = consumer(broken, broken, delivery)
    response = failing(run)
    (failure,) = response["batchItemFailures"]
    assert failure["itemIdentifier"] in ("1", "2")
    assert "AccessDenied" in response["streamfold"]["error"]
    assert total(engine, "a") in (None, (1, 1))
    assert consumer(engine, delivery=delivery)(run)["batchItemFailures"] == []
    assert total(engine, "a") == (2, 3)
    assert len(entries(engine)) == 1


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_a_batch_out_of_order_is_reported_from_its_lowest_record(engine: MemoryDynamoDB, delivery: str) -> None:
    run = event(record(5, new=heavy("a", "1")), record(3, new=heavy("a", "2")), record(4, new=download("a")))
    consumer(engine, delivery=delivery)(event())
    broken = Broken(engine, "transact_write_items", "control")
    failing = consumer(broken, broken, delivery)
    assert failing(run)["batchItemFailures"] == [{"itemIdentifier": "3"}]


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_what_is_in_quarantine_is_left_out_of_a_batch_out_of_order(engine: MemoryDynamoDB, delivery: str) -> None:
    consumer(engine, delivery=delivery)(event(record(3, new=download("a"))))
    mended = event(record(5, new=heavy("a", "1")), record(3, new=heavy("a", "2")))
    consumer(engine, delivery=delivery)(mended)
    assert total(engine, "a") == (1, 1)


@pytest.mark.parametrize(("bad", "good", "fails"), [(10, 9, True), (10, 10, False), (9, 0, False), (30, 0, True)])
def test_a_batch_that_is_mostly_bad_fails_whole_and_other_handlers_go_on(
    engine: MemoryDynamoDB, bad: int, good: int, fails: bool
) -> None:
    records = [record(n, new=download("a") if n <= bad else heavy("a", "1")) for n in range(1, bad + good + 1)]
    response = consumer(engine)(event(*records))
    found = Downloads.get("a", "all", client=engine)
    assert found is not None
    assert found["Items"] == bad + good
    assert len(entries(engine)) == (0 if fails else bad)
    assert response["batchItemFailures"] == ([{"itemIdentifier": "1"}] if fails else [])
    assert response["streamfold"]["mostlyBad"] == fails
    if fails:
        assert total(engine, "a") is None
        expected = f"weights: expected at most 50% of a batch to be bad records, came {bad} of {bad + good}: "
        assert response["streamfold"]["error"].startswith(expected)


def test_records_that_are_late_say_nothing_about_a_deployment() -> None:
    class Kept(Aggregation):
        """Counts that are kept for a day, and what comes later is set aside."""

        name = "kept"
        source = music
        target = Table("Kept", pk="song", sk="month", ttl="expires")
        group_by = "songID"
        window = Monthly("Timestamp")
        retention = timedelta(days=1)
        late = "set-aside"
        Items = Count()

    kept = App("kept", [Kept])
    engine = tables()
    engine.create_table(**create_table_request(kept, Kept.target))
    late = [record(n, new=download("a")) for n in range(1, 31)]
    for each in late:
        each["dynamodb"]["ApproximateCreationDateTime"] = 1_600_000_000
    control = Control(engine, "control", no_object, connections=1)
    response = Consumer(kept, "MusicLibrary", engine, control=control, connections=1)(event(*late))
    assert response["batchItemFailures"] == []
    assert len(entries(engine)) == 30


def test_a_stream_keeps_the_protocol_that_it_began_with(engine: MemoryDynamoDB) -> None:
    consumer(engine)(event(record(1, new=heavy("a", "1"))))
    expected = "consumer of 'MusicLibrary': expected delivery by 'lanes', as until now, came 'ledger': let the stream"
    with pytest.raises(ConfigurationError, match=expected):
        consumer(engine, delivery="ledger")(event(record(1, new=heavy("a", "1"))))
    assert total(engine, "a") == (1, 1)


@pytest.mark.parametrize("keys", [("pk",), ("id", "sk"), ("pk", "range")])
def test_a_control_table_with_other_keys_is_told_in_a_sentence(keys: tuple[str, ...]) -> None:
    engine = tables()
    engine.delete_table(TableName="control")
    schema = [{"AttributeName": name, "KeyType": kind} for name, kind in zip(keys, ("HASH", "RANGE"), strict=False)]
    types = [{"AttributeName": name, "AttributeType": "S"} for name in keys]
    engine.create_table(**{**CONTROL, "KeySchema": schema, "AttributeDefinitions": types})
    with pytest.raises(ConfigurationError, match="control table 'control': expected a table with the keys pk and sk"):
        consumer(engine)(event(record(1, new=heavy("a", "1"))))


def test_a_control_table_that_does_not_answer_stops_the_batch(engine: MemoryDynamoDB) -> None:
    broken = consumer(Broken(engine, "get_item", "control"), engine)
    response = broken(event(record(1, new=heavy("a", "1"))))
    assert response["batchItemFailures"] == [{"itemIdentifier": "1"}]
    assert response["streamfold"]["error"].startswith("control table 'control': expected an answer, came ")
    with pytest.raises(DeliveryError, match=r"control table 'control': expected an answer, came .*AccessDenied"):
        broken(event())
    assert total(engine, "a") is None


@pytest.mark.parametrize("size", [10, 5_000, 600_000])
def test_a_record_of_any_size_comes_out_of_its_entry_as_it_was(size: int) -> None:
    random_text = "".join(chr(33 + (n * n * 31 + n // 7) % 90) for n in range(size))
    objects: dict[str, bytes] = {}
    whole = record(7, new=heavy("ü", "1") | {"text": {"S": random_text}, "bytes": {"B": "AAEC"}})
    entry = Entry(
        handler="weights",
        image="NewImage",
        stream_arn=ARN,
        shard_id="shard-1",
        sequence_number=7,
        record=whole,
        reason="because",
        at=5,
        uncertain=size == 10,
    )
    item = entry_item(entry, objects.__setitem__)
    assert len(objects) == (size == 600_000 and "object" in item)
    assert sum(len(str(value)) for value in item.values()) < 1_600_000
    assert entry_of(item, objects.__getitem__) == entry


@pytest.mark.parametrize("broken", [{}, {"record": {"S": "{"}}, {"record": {"S": "[]"}}, {"packed": {"B": b"x"}}])
def test_an_entry_that_cannot_be_read_is_named(broken: dict[str, Any]) -> None:
    whole = record(7, new=heavy("a", "1"))
    entry = Entry(
        handler="weights",
        image="NewImage",
        stream_arn=ARN,
        shard_id="",
        sequence_number=7,
        record=whole,
        reason="",
        at=5,
    )
    item = {name: value for name, value in entry_item(entry, no_object).items() if name != "record"}
    with pytest.raises(
        BadValueError, match=r"NewImage.*expected a quarantined record, came an item that cannot be read"
    ):
        entry_of({**item, **broken}, {}.__getitem__)
    assert lane_prefix(ARN, "") + "017/weights/NewImage" == entry.place
