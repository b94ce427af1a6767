"""Redrive counts what was set aside or given up on, once; what it cannot count stays, with the reason."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError

from framework import Aggregation, App, Monthly, SourceError
from framework.failures import failure_of
from framework.local.memory import MemoryDynamoDB
from framework.redrive import Quarantine, Redriven
from tests.unit.stream import ARN, download, event, record
from tests.unit.test_quarantine import Broken, Weights, app, consumer, entries, heavy, no_object, tables, total

NOW = 1_600_000_000
SHARD = "shardId-00000001514764800000-abcdef12"


def quarantine(client: Any, an_app: App = app, now: float = NOW) -> Quarantine:
    return Quarantine(an_app, client, "control", load=lambda name: b"", store=no_object, now=lambda: now)


def redriven(client: Any, an_app: App = app, **options: Any) -> list[Redriven]:
    there = quarantine(client, an_app)
    return [there.redrive(item, **options) for item in [*there.open()]]


def mend(engine: MemoryDynamoDB, weight: str | None) -> None:
    """Give the records in quarantine another weight: what a mended handler would find in them."""
    for item in entries(engine).values():
        if "record" in item:
            broken = json.loads(item["record"]["S"])
            for image in ("NewImage", "OldImage"):
                if image in broken["dynamodb"]:
                    broken["dynamodb"][image] |= {} if weight is None else {"weight": {"N": weight}}
            engine.put_item(TableName="control", Item={**item, "record": {"S": json.dumps(broken)}})


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_a_mended_record_is_counted_once_and_its_key_is_remembered(delivery: str) -> None:
    engine = tables()
    run = event(record(1, new=heavy("a", "5")), record(2, new=download("a")))
    consumer(engine, delivery=delivery)(run)
    mend(engine, "3")
    (place,) = entries(engine)
    assert redriven(engine, dry_run=True) == [Redriven(place, True)]
    assert total(engine, "a") == (1, 5)
    assert redriven(engine) == [Redriven(place, True)]
    assert total(engine, "a") == (2, 8)
    assert redriven(engine) == []
    (left,) = entries(engine).values()
    assert "record" not in left
    assert left["expires"] == {"N": str(NOW + 14 * 86_400)}
    assert consumer(engine, delivery=delivery)(run)["batchItemFailures"] == []
    assert total(engine, "a") == (2, 8)
    assert redriven(engine) == []


def test_both_images_of_an_edit_are_redriven_each_once() -> None:
    engine = tables()
    consumer(engine)(event(record(1, new=heavy("a", "4"))))
    consumer(engine)(event(record(2, old=download("a"), new=download("b"))))
    assert len(entries(engine)) == 2
    mend(engine, "4")
    assert [one.done for one in redriven(engine)] == [True, True]
    assert total(engine, "a") is None
    assert total(engine, "b") == (1, 4)


def test_what_still_fails_stays_with_the_new_reason() -> None:
    engine = tables()
    consumer(engine)(event(record(1, new=heavy("a", "1")), record(2, new=download("a"))))
    mend(engine, "1E+125")
    (one,) = redriven(engine)
    assert not one.done
    (left,) = entries(engine).values()
    assert left["reason"] == {"S": one.reason}
    assert "38" in one.reason or "digits" in one.reason or "overflow" in one.reason
    assert total(engine, "a") == (1, 1)


def test_a_take_back_from_an_aggregate_that_is_not_there_is_settled_and_makes_none() -> None:
    engine = tables()
    consumer(engine)(event(record(2, old=download("a"))))
    mend(engine, "4")
    (one,) = redriven(engine)
    assert (one.done, one.reason) == (True, "the aggregate to take it back from is not there")
    assert engine.scan(TableName="Weights")["Items"] == []


def test_nothing_is_taken_back_before_what_was_to_be_added_first() -> None:
    engine = tables()
    consumer(engine)(event(record(1, new=download("a")), record(2, old=download("a"))))
    mend(engine, "4")

    class Denied(Failing):
        """A client on which every transaction fails."""

        calls = 5

    first, second = redriven(Denied(engine))
    assert (first.done, second.done) == (False, False)
    there = quarantine(engine)
    added, taken = there.open()
    assert there.redrive(taken, dry_run=True).done
    assert there.redrive(taken) == Redriven(taken["sk"]["S"], True)
    assert there.redrive(added) == Redriven(added["sk"]["S"], True)
    assert total(engine, "a") is None
    assert [*there.open()] == []


def test_a_version_that_finds_bad_what_redrive_has_counted_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tables()
    consumer(engine)(event(at(1, age=7200, new=heavy("b", "1"))))
    assert quarantine(engine).redrive_batch(failure_of("f", failed(at(2, new=heavy("a", "7")))), None).done
    consumer(engine)(event(at(2, new=download("a"))))
    (entry,) = entries(engine).values()
    assert "uncertain" in entry
    assert total(engine, "a") == (1, 7)


@pytest.mark.parametrize("counted", [True, False])
def test_whoever_discards_what_is_uncertain_says_that_it_has_counted(counted: bool) -> None:
    engine = tables()
    consumer(engine)(event(at(9, new=heavy("b", "1"))))
    edit = at(2, old=heavy("a", "7"))
    assert consumer(engine)(event(edit))["streamfold"]["refusedTakeBacks"] == 2
    consumer(engine, version="2")(event(at(1, new=download("a"))))
    mend(engine, "7")
    (place,) = entries(engine)
    there = quarantine(engine)
    if counted:
        consumer(engine)(
            event(at(3, new=heavy("a", "7")), at(4, new=heavy("a", "1")))
        )  # stands for record 1 and another
        assert there.discard(place)
    else:
        assert [one.done for one in redriven(engine, uncertain=True)] == [True]
    assert total(engine, "a") == ((1, 1) if counted else None)


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_what_was_taken_back_from_nothing_is_taken_back_with_a_batch_that_comes_after_all(delivery: str) -> None:
    engine = tables()
    gone = failed(at(1, new=heavy("a", "7")), at(2, new={**heavy("a", "1"), "SK": {"S": "download-2"}}))
    edits = [at(3, old=heavy("a", "7"), new=heavy("a", "5")), at(4, old=heavy("a", "5"))]
    assert consumer(engine, delivery=delivery)(event(*edits))["streamfold"]["refusedTakeBacks"] == 3
    there = quarantine(engine)
    there.switch("MusicLibrary", delivery)
    for _ in range(2):
        assert there.redrive_batch(failure_of("f", gone), None).done
        assert total(engine, "a") == (1, 1)
    counted = engine.scan(TableName="Downloads")["Items"]
    assert [item["Items"]["N"] for item in counted] == ["1"]
    assert all("retracted" in item for item in entries(engine, refused=True).values())


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_what_is_taken_back_while_it_is_redriven_is_taken_back_once(delivery: str) -> None:
    engine = tables()
    consumer(engine, delivery=delivery)(event(at(1, new=download("a"))))
    mend(engine, "7")

    class Late:
        """The item is deleted while its batch is redriven, after what was refused was read."""

        def __getattr__(self, name: str) -> Any:
            return getattr(engine, name)

        def query(self, **arguments: Any) -> Any:
            answer = engine.query(**arguments)
            if "refused" in arguments.get("FilterExpression", ""):
                consumer(engine, delivery=delivery)(event(at(2, old=heavy("a", "7"))))
            return answer

    assert [one.done for one in redriven(Late())] == [True]
    assert total(engine, "a") is None
    assert [item["Items"]["N"] for item in engine.scan(TableName="Weights")["Items"]] == ["0"]


def test_an_item_of_somebody_else_is_left_alone() -> None:
    engine = tables()
    consumer(engine)(event(record(2, new=download("a"))))
    mend(engine, "4")
    foreign = {**app.aggregations[0]._declaration.key("a", "all", 0), "theirs": {"S": "x"}}
    engine.put_item(TableName="Weights", Item=foreign)
    (one,) = redriven(engine)
    assert not one.done
    assert "expected no item or the aggregation's own, came one that Streamfold did not write" in one.reason
    assert engine.scan(TableName="Weights")["Items"] == [foreign]


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_what_was_set_aside_and_redriven_is_not_counted_when_it_comes_again(delivery: str) -> None:
    engine = tables()
    run = event(record(1, new=heavy("b", "1")), record(2, new=heavy("a", "5")))
    foreign = app.aggregations[0]._declaration.key("a", "all", 0)
    engine.put_item(TableName="Weights", Item={**foreign, "theirs": {"S": "x"}})
    same_process = consumer(engine, delivery=delivery)
    same_process(run)
    engine.delete_item(TableName="Weights", Key=foreign)
    assert [one.done for one in redriven(engine)] == [True]
    same_process(run)
    assert total(engine, "a") == (1, 5)


def test_a_handler_that_is_gone_or_reads_another_table_is_named_and_the_entry_kept() -> None:
    engine = tables()
    consumer(engine)(event(record(2, new=download("a"))))

    class Others(Aggregation):
        """Of the same name, but of another table."""

        name = "others"
        source = Weights.target  # type: ignore[assignment]
        target = Weights.source
        group_by = "key"
        window = Monthly("at")
        Weight = Weights.__dict__["Weight"]

    there = quarantine(engine, App("other", [Others]))
    (one,) = [there.redrive(item) for item in [*there.open()]]
    assert one.reason == "app 'other': expected a handler ('others'), came 'weights'"
    assert len([*there.open()]) == 1


@pytest.mark.parametrize("broken", ["{", "[]", '{"eventName": "INSERT"}', '{"eventName": 5, "dynamodb": {}}'])
def test_a_payload_that_is_not_ours_is_named_and_kept(broken: str) -> None:
    engine = tables()
    consumer(engine)(event(record(2, new=download("a"))))
    ((place, item),) = entries(engine).items()
    engine.put_item(TableName="control", Item={**item, "record": {"S": broken}})
    (one,) = redriven(engine)
    assert (one.place, one.done) == (place, False)
    assert "expected" in one.reason
    assert "done" not in entries(engine)[place]


def test_two_who_redrive_at_once_count_once() -> None:
    engine = tables()
    consumer(engine)(event(record(2, new=download("a"))))
    mend(engine, "4")
    there = quarantine(engine)
    (item,) = there.open()
    assert there.redrive(item) == Redriven(item["sk"]["S"], True)
    assert there.redrive(item) == Redriven(item["sk"]["S"], True, "was settled by somebody else")
    assert total(engine, "a") == (1, 4)


def test_a_discarded_entry_is_counted_by_nobody() -> None:
    engine = tables()
    run = event(record(2, new=download("a")))
    consumer(engine)(run)
    mend(engine, "4")
    there = quarantine(engine)
    (item,) = there.open()
    assert there.discard(item["sk"]["S"])
    assert not there.discard(item["sk"]["S"])
    assert not there.discard("no/such/entry")
    assert there.redrive(item).reason == "was settled by somebody else"
    consumer(engine)(run)
    assert total(engine, "a") is None
    assert [*there.open()] == []


def test_a_transaction_that_is_cut_short_or_conflicts_is_tried_again() -> None:
    engine = tables()
    consumer(engine)(event(record(2, new=download("a"))))
    mend(engine, "4")

    class Flaky:
        """The first three transactions fail in different ways, the second after it was made."""

        calls = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(engine, name)

        def transact_write_items(self, **arguments: Any) -> Any:
            self.calls += 1
            if self.calls == 1:
                reasons = [{"Code": "None"}, {"Code": "TransactionConflict"}]
                response: Any = {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": reasons}
                raise ClientError(response, "TransactWriteItems")
            answer = engine.transact_write_items(**arguments)
            if self.calls == 2:
                raise ClientError({"Error": {"Code": "InternalServerError"}}, "TransactWriteItems")
            return answer

    client = Flaky()
    (one,) = redriven(client)
    assert one.done
    assert client.calls == 3
    assert total(engine, "a") == (1, 4)


def failed(*records: dict[str, Any], as_text: bool = False, payload: bool = True, **more: Any) -> str:
    whole = {"Records": list(records), "shardId": SHARD}
    numbers = [each["dynamodb"]["SequenceNumber"] for each in records]
    body = {
        "requestContext": {"condition": "RetryAttemptsExhausted"},
        "DDBStreamBatchInfo": {
            "shardId": SHARD,
            "startSequenceNumber": numbers[0],
            "endSequenceNumber": numbers[-1],
            "batchSize": len(records),
            "streamArn": ARN,
        },
        **({"payload": json.dumps(whole) if as_text else whole} if payload else {}),
        **more,
    }
    return json.dumps(body)


def at(number: int, age: float = 3600, **images: Any) -> dict[str, Any]:
    found = record(number, **images)
    found["dynamodb"]["ApproximateCreationDateTime"] = NOW - age
    return found


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("absorbed", [0, 1, 2, 3])
def test_a_batch_that_was_given_up_on_is_counted_once_whatever_was_absorbed(
    delivery: str, as_text: bool, absorbed: int
) -> None:
    engine = tables()
    records = [at(n, new=heavy("a", str(10**n))) for n in range(1, 4)]
    if absorbed:
        consumer(engine, delivery=delivery)(event(*records[:absorbed]))
    there = quarantine(engine)
    there.switch("MusicLibrary", delivery)
    failure = failure_of("s3://x/y", failed(*records, as_text=as_text))
    for _ in range(2):
        assert there.redrive_batch(failure, None) == Redriven("s3://x/y", True)
        assert total(engine, "a") == (3, 1110)
    consumer(engine, delivery=delivery)(event(*records))
    assert total(engine, "a") == (3, 1110)
    assert entries(engine) == {}


def test_what_a_watermark_no_longer_tells_is_left_to_a_person() -> None:
    engine = tables()
    gone = [at(n, new=heavy("a", str(10**n))) for n in range(1, 4)]
    consumer(engine)(event(gone[0]))
    consumer(engine)(event(at(9, new=heavy("a", "7"))))  # after Lambda gave up on the rest
    there = quarantine(engine)
    lone = at(2, new=heavy("b", "5"))
    one = there.redrive_batch(failure_of("f", failed(gone[0], lone, gone[2])), None)
    assert one.done
    assert total(engine, "b") == (1, 5)  # where nothing came after, it is certain
    assert total(engine, "a") == (2, 17)
    uncertain = [item for item in there.open(handler="weights") if "uncertain" in item]
    assert [item["sequence"]["S"] for item in uncertain] == ["1", "3"]
    assert not any(there.redrive(item).done for item in uncertain)
    first, third = uncertain
    assert there.discard(first["sk"]["S"])
    assert there.redrive(third, uncertain=True).done
    assert total(engine, "a") == (3, 1017)


def test_a_redrive_that_was_cut_short_is_finished_though_the_lane_has_moved_on() -> None:
    engine = tables()
    gone = [at(n, new=heavy(song, "5")) for n, song in enumerate("ab", 1)]
    failure = failure_of("f", failed(*gone))
    # The first handler is done when the second fails.
    first = quarantine(Failing(engine)).redrive_batch(failure, None)
    assert not first.done
    assert total(engine, "a") == (1, 5)
    consumer(engine)(event(*(at(9, new=heavy(song, "1")) for song in "a")))
    assert quarantine(engine).redrive_batch(failure, None) == Redriven("f", True, "1 set aside")
    assert (total(engine, "a"), total(engine, "b")) == ((2, 6), (1, 5))
    # Of the other handler nobody knows whether it had counted.
    assert [item["handler"]["S"] for item in entries(engine).values()] == ["downloads"]


class Failing(Broken):
    """A client on which all transactions after the first, or the first few, fail."""

    calls = 0

    def __init__(self, engine: MemoryDynamoDB, *, after: int = 1) -> None:
        super().__init__(engine, "", "")
        self.after = after

    def transact_write_items(self, **arguments: Any) -> Any:
        self.calls += 1
        if self.calls > self.after:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "TransactWriteItems")
        return self.engine.transact_write_items(**arguments)


def test_a_watermark_that_may_have_been_dropped_tells_nothing() -> None:
    engine = tables()
    old = [at(n, age=50 * 3600, new=heavy("a", "5")) for n in (1, 2)]
    consumer(engine)(event({**at(1, new=heavy("a", "1")), "eventID": "x"}, shardId="another"))
    assert quarantine(engine).redrive_batch(failure_of("f", failed(*old)), None).done
    assert total(engine, "a") == (1, 1)
    assert len([item for item in entries(engine).values() if item["handler"]["S"] == "weights"]) == 2


@pytest.mark.parametrize("age", [12 * 86_400, 90 * 86_400, NOW])
def test_records_beyond_what_is_remembered_are_named_and_kept(age: float) -> None:
    engine = tables()
    failure = failure_of("f", failed(at(1, new=heavy("a", "5")), at(2, age=age, new=heavy("a", "5"))))
    one = quarantine(engine).redrive_batch(failure, None)
    assert not one.done
    assert one.reason.startswith("expected records of the last 12 days, came 1 of 2 that are older or do not say")
    assert total(engine, "a") is None


def test_a_batch_that_overlaps_one_that_was_redriven_is_not_taken_for_absorbed() -> None:
    engine = tables()
    records = [at(n, new=heavy("a", str(10**n))) for n in range(1, 7)]
    there = quarantine(engine)
    assert there.redrive_batch(failure_of("f", failed(*records[2:4])), None).done
    assert there.redrive_batch(failure_of("g", failed(*records)), None).done
    open_entries = [*there.open(handler="weights")]
    assert all(there.redrive(item, uncertain=True).done for item in open_entries)
    assert total(engine, "a") == (6, 1111110)


def test_an_entry_whose_object_is_gone_is_kept_and_named() -> None:
    engine = tables()
    consumer(engine)(event(record(1, new=download("a"))))
    (item,) = entries(engine).values()
    del item["record"]
    engine.put_item(TableName="control", Item={**item, "object": {"S": "quarantine/x"}})

    def gone(name: str) -> bytes:
        raise ClientError({"Error": {"Code": "NoSuchKey", "Message": "gone"}}, "GetObject")

    there = Quarantine(app, engine, "control", load=gone, store=no_object)
    (one,) = [there.redrive(each) for each in [*there.open()]]
    assert not one.done
    assert "NoSuchKey" in one.reason


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([1, 1], "f: expected 2 records from 1 to 2 in arn"),
        ([1, 3], "f: expected 2 records from 1 to 2 in arn"),
        ([2], "f: expected 2 records from 1 to 2 in arn"),
        ([1, -2], "f: expected records of arn"),
    ],
)
def test_a_batch_that_is_not_the_one_it_says_is_kept(records: list[int], message: str) -> None:
    given = [at(abs(n), new=heavy("a", "5")) for n in records]
    for number, each in zip(records, given, strict=True):
        if number < 0:
            each["eventSourceARN"] = ARN.replace("MusicLibrary", "Others")
    body = json.loads(failed(at(1, new=heavy("a", "5")), at(2, new=heavy("a", "5"))))
    body["payload"]["Records"] = given
    one = quarantine(tables()).redrive_batch(failure_of("f", json.dumps(body)), None)
    assert not one.done
    assert one.reason.startswith(message)


class Stream:
    """A DynamoDB Streams client with some records."""

    def __init__(self, *records: dict[str, Any]) -> None:
        self.records = records

    def get_shard_iterator(self, **arguments: Any) -> dict[str, Any]:
        assert arguments["ShardIteratorType"] == "AT_SEQUENCE_NUMBER"
        return {"ShardIterator": arguments["SequenceNumber"]}

    def get_records(self, **arguments: Any) -> dict[str, Any]:
        start = int(arguments["ShardIterator"])
        found = [each for each in self.records if int(each["dynamodb"]["SequenceNumber"]) >= start]
        if not arguments["ShardIterator"].startswith("0"):
            return {"Records": [], "NextShardIterator": f"0{start}"}  # a page may be empty though more follow
        return {"Records": [{**each, "eventVersion": "1.1", "awsRegion": "us-east-1"} for each in found]}


def test_a_batch_of_which_only_the_place_is_known_is_read_from_the_stream_while_that_has_it() -> None:
    from datetime import UTC, datetime

    records = [at(n, new=heavy("a", "5")) for n in (1, 2, 3)]
    failure = failure_of("m", failed(*records[:2], payload=False))
    for each in records:
        each["dynamodb"]["ApproximateCreationDateTime"] = datetime.fromtimestamp(NOW, UTC)
    engine = tables()
    assert quarantine(engine).redrive_batch(failure, Stream(*records)).done
    assert total(engine, "a") == (2, 10)
    late = quarantine(tables()).redrive_batch(failure, Stream(*records[2:]))
    assert not late.done
    assert "expected 2 records from 1 to 2" in late.reason


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "f: expected JSON, came '{'"),
        ("[]", "f: expected a JSON object, came []"),
        ("{}", "f: expected Lambda's record of a failed batch with DDBStreamBatchInfo, came {}"),
        ('{"DDBStreamBatchInfo": {}}', "f: DDBStreamBatchInfo: expected stream, shard and size, came {}"),
        (failed(at(1, new=heavy("a", "1")), payload=False, payload_="").replace('"1"', '"x"'), "f: DDBStreamBatchInfo: expected two sequence numbers, came"),
        (json.dumps({**json.loads(failed(at(1, new=heavy("a", "1")))), "payload": 5}), "f: payload: expected an event with Records, came 5"),
        (json.dumps({**json.loads(failed(at(1, new=heavy("a", "1")))), "payload": "{"}), "f: payload: expected JSON, came '{'"),
    ],
)  # fmt: skip
def test_what_is_not_a_record_of_lambda_is_told_in_a_sentence(body: str, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        failure_of("f", body)
    assert str(caught.value).startswith(message)


def test_a_failed_batch_of_a_table_that_the_app_does_not_read_is_kept() -> None:
    other = failed(at(1, new=heavy("a", "1"))).replace("table/MusicLibrary", "table/Others")
    one = quarantine(tables()).redrive_batch(failure_of("f", other), None)
    assert not one.done
    assert "expected a source table ('MusicLibrary'), came 'Others'" in one.reason


def test_the_sums_are_decimals() -> None:
    engine = tables()
    consumer(engine)(event(record(1, new=heavy("a", "0.1"))))
    found = Weights.get("a", "all", client=engine)
    assert found is not None
    assert found["Weight"] == Decimal("0.1")
