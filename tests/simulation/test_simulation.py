"""The simulator itself: one seed is one run, every fault comes, and nothing wrong goes unseen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from framework import (
    Aggregation,
    AllTime,
    App,
    BadValueError,
    ConfigurationError,
    Count,
    EventError,
    Monthly,
    Table,
    attr,
)
from framework.consumer import Consumer
from framework.local import Local, recount
from framework.local.streams import RETENTION_SECONDS
from framework.testing import (
    Change,
    Faults,
    Simulation,
    assert_exactly_once,
    delete,
    event,
    existing,
    expire,
    expired,
    inserted,
    modified,
    put,
    removed,
)
from tests.simulation.apps import APPS, Downloads, events, history_of, orders
from tests.simulation.sparse import OpenOrders
from tests.simulation.sparse import history_of as orders_history
from tests.simulation.sparse import orders as customer_orders

ROOT = Path(__file__).resolve().parents[2]
OWN, *_ = APPS


def song(number: int = 0, **more: Any) -> dict[str, Any]:
    return {"id": "blue", "SK": f"event-{number}", "kind": "download", "at": "2018-01-15T10:00:00Z", **more}


# -- a seed is a run --

TRACE = """
import json
from random import Random
from framework.testing import Simulation
from tests.simulation.apps import APPS, history_of
for seed in range(15):
    app = APPS[seed % len(APPS)]
    simulation = Simulation(app, seed=seed)
    run = simulation.run(history_of(app)(Random(seed)))
    tables = [simulation.client.scan(TableName=table.name)["Items"] for table in app.tables]
    requests = sorted(simulation.client.requests.items())
    print(json.dumps([tables, requests, sorted(run.happened.items()), simulation.clock.now], sort_keys=True))
"""


def test_one_seed_is_one_run_bit_for_bit_in_whichever_process() -> None:
    traces = [
        subprocess.run(
            [sys.executable, "-c", TRACE],
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in (1, 2)
    ]
    assert traces[0] == traces[1]
    assert len(set(traces[0].splitlines())) == 15


# -- every fault comes --


def test_every_kind_of_fault_comes() -> None:
    happened: Counter[str] = Counter()
    for seed in range(200):
        app = APPS[seed % len(APPS)]
        happened += Simulation(app, seed=seed).run(history_of(app)(Random(seed))).happened
    both = {"crash", "timeout", "lost_reply", "slow"}
    kinds = {each.name for each in fields(Faults)}
    expected = kinds - both | {f"{name} {when}" for name in both for when in ("before", "after")}
    assert happened.keys() == expected
    assert min(happened.values()) >= 10, happened


def test_without_faults_none_comes() -> None:
    run = Simulation(OWN, seed=1, faults=Faults.none()).run(history_of(OWN)(Random(1)))
    assert (run.wrong, run.happened) == ((), Counter())


@pytest.mark.parametrize("name", [each.name for each in fields(Faults)])
def test_a_fault_that_always_comes_stops_at_the_end(name: str) -> None:
    faults = Faults(**{**dict.fromkeys((each.name for each in fields(Faults)), 0.0), name: 1.0})
    assert_exactly_once(OWN, [put(events, song(n)) for n in range(3)], seeds=range(3), faults=faults)


@pytest.mark.parametrize("rate", [-0.1, 1.1, True, "often", None])
def test_a_rate_that_is_none_is_named(rate: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^Faults: crash: expected 0 to 1, came "):
        Faults(crash=rate)


def test_a_call_has_one_fault_at_most() -> None:
    with pytest.raises(ConfigurationError, match="at most 1 fault a call"):
        Faults(crash=0.6, throttle=0.6)


@pytest.mark.parametrize("faults", [Faults(), Faults.none(), Faults(crash=0.5, split=0)])
def test_faults_are_shown_as_they_are_written(faults: Faults) -> None:
    assert eval(repr(faults)) == faults


# -- nothing wrong goes unseen --


class Tampered(Simulation):
    """A simulation in which somebody writes to an aggregate at the end."""

    def __init__(self, tamper: Callable[[Any], object]) -> None:
        super().__init__(OWN, seed=0, faults=Faults.none())
        self.tamper = tamper

    def _run(self, changes: Any) -> None:
        super()._run(changes)
        self.tamper(self.client)


def update(expression: str, key: str = "2018-01", **values: Any) -> Callable[[Any], object]:
    def tamper(client: Any) -> None:
        client.update_item(
            TableName="Events",
            Key={"id": {"S": "blue"}, "SK": {"S": key}},
            UpdateExpression=expression,
            **({"ExpressionAttributeNames": {"#month": "Month"}} if "#month" in expression else {}),
            **({"ExpressionAttributeValues": {f":{n}": v for n, v in values.items()}} if values else {}),
        )

    return tamper


@pytest.mark.parametrize(
    ("tamper", "text"),
    [
        (lambda client: None, None),
        (update("ADD Downloads :n", n={"N": "1"}), "expected Downloads 2, came Downloads 3"),
        (update("SET Downloads = :n", n={"N": "2.0"}), None),
        (update("REMOVE Downloads"), "expected Downloads 2, came {"),
        (update("SET #month = :m", m={"S": "2018-02"}), "'2018-01'"),
        (update("REMOVE #month"), "'2018-01'"),
        (update("SET surplus = :m", m={"S": "x"}), "no more than the measures"),
        (update("SET note = :m", key="event-0", m={"S": "x"}), "Events id='blue', SK='event-0': expected {"),
        (update("SET note = :m", key="event-9", m={"S": "x"}), "SK='event-9': expected nothing, came {"),
        (
            lambda client: client.delete_item(TableName="Events", Key={"id": {"S": "blue"}, "SK": {"S": "2018-01"}}),
            "downloads id='blue', SK='2018-01': expected Downloads 2, came nothing",
        ),
        (
            lambda client: client.delete_item(TableName="Events", Key={"id": {"S": "blue"}, "SK": {"S": "event-1"}}),
            "SK='event-1': expected {",
        ),
        (
            lambda client: client.put_item(
                TableName="Events", Item={"id": {"S": "red"}, "SK": {"S": "2018-01"}, "sf~": {"S": "downloads"}}
            ),
            "downloads id='red', SK='2018-01': expected no such aggregate, came {",
        ),
    ],
)
def test_an_item_that_is_not_what_it_has_to_be_is_shown(tamper: Callable[[Any], object], text: str | None) -> None:
    wrong = Tampered(tamper).run([put(events, song(0)), put(events, song(1))]).wrong
    assert (len(wrong) == 1 and text in str(wrong[0])) if text else wrong == ()


class Flip(Aggregation):
    """Expiry taken back, deletes and edits as they are."""

    name = "flip"
    source = Table("Flips", pk="id")
    target = Table("FlipCounts", pk="group", sk="month")
    group_by = "group"
    window = Monthly("at")
    on_expiry = "retract"
    Items = Count()


class Kept(Flip):
    """The same, but what has expired stays."""

    name = "kept"
    target = Table("KeptCounts", pk="group", sk="month")
    on_expiry = "keep"


flips = App("flips", [Flip, Kept])


def flip(number: int, group: str = "a", at: str = "2018-01-15") -> dict[str, Any]:
    return {"id": str(number), "group": group, "at": at}


@pytest.mark.parametrize(
    ("changes", "flip_counts", "kept_counts"),
    [
        ([put], {"a 2018-01": 1}, {"a 2018-01": 1}),
        ([put, put], {"a 2018-01": 1}, {"a 2018-01": 1}),
        ([put, delete], {"a 2018-01": 0}, {"a 2018-01": 0}),
        ([put, expire], {"a 2018-01": 0}, {"a 2018-01": 1}),
        ([put, expire, put], {"a 2018-01": 1}, {"a 2018-01": 2}),
        ([existing], {}, {}),
        ([existing, delete], {}, {}),
        ([delete], {}, {}),
    ],
)
def test_histories_come_to_what_they_come_to_by_hand(
    changes: list[Callable[..., Change]], flip_counts: dict[str, int], kept_counts: dict[str, int]
) -> None:
    for seed in range(20):
        simulation = Simulation(flips, seed=seed)
        assert simulation.run([change(Flip.source, flip(1)) for change in changes]).wrong == ()
        for table, expected in (("FlipCounts", flip_counts), ("KeptCounts", kept_counts)):
            items = simulation.client.scan(TableName=table)["Items"]
            assert {f"{i['group']['S']} {i['month']['S']}": int(i["Items"]["N"]) for i in items} == expected


def test_a_delete_in_the_home_region_of_an_item_whose_time_was_over_is_an_expiry() -> None:
    world = Table("Worldwide", pk="id", ttl="until", home="eu-west-1")

    class Worldwide(Kept):
        name = "worldwide"
        source = world

    items = [{**flip(0), "until": 1}, {**flip(1), "until": 4_000_000_000}, flip(2)]
    simulation = Simulation(App("worldwide", [Worldwide]), seed=2)
    assert simulation.run([change(world, item) for item in items for change in (put, delete)]).wrong == ()
    found = Worldwide.get("a", "2018-01", client=simulation.client)
    assert found is not None
    assert found["Items"] == 1


def test_edits_move_items_between_groups_and_windows() -> None:
    history = [put(Flip.source, flip(1)), put(Flip.source, flip(1, "b")), put(Flip.source, flip(1, "b", "2018-02-01"))]
    simulation = Simulation(flips, seed=5)
    assert simulation.run(history).wrong == ()
    counts = {i: Flip.get(*i, client=simulation.client) for i in (("a", "2018-01"), ("b", "2018-01"), ("b", "2018-02"))}
    assert {i: found and found["Items"] for i, found in counts.items()} == {
        ("a", "2018-01"): None,
        ("b", "2018-01"): None,
        ("b", "2018-02"): 1,
    }


def test_a_take_back_without_an_addition_may_count_or_be_refused() -> None:
    came = set()
    for seed in range(60):
        simulation = Simulation(flips, seed=seed, shards=4)
        early = [existing(Flip.source, flip(n)) for n in range(3)]
        run = simulation.run([*early, *(delete(Flip.source, flip(n)) for n in range(3)), put(Flip.source, flip(9))])
        assert run.wrong == ()
        (item,) = simulation.client.scan(TableName="FlipCounts")["Items"]
        came.add(int(item["Items"]["N"]))
    assert 1 in came
    assert len(came) > 1


def test_without_existing_items_one_outcome_is_right() -> None:
    for seed in range(200):
        app = APPS[seed % len(APPS)]
        history = [change for change in history_of(app, least=8, most=20)(Random(seed)) if change.kind != "existing"]
        simulation = Simulation(app, seed=seed)
        assert simulation.run(history).wrong == ()
        expected = recount.Recount(app, simulation._world.seen)._expected
        assert all(len(totals.possible) == 1 for totals in expected.values())


def test_an_existing_item_that_was_added_since_is_taken_back_for_certain() -> None:
    moves = [existing(Flip.source, flip(1)), *(put(Flip.source, flip(1, group)) for group in ("b", "a", "b"))]
    for seed in range(60):
        simulation = Simulation(flips, seed=seed, faults=Faults(split=0.5))
        assert simulation.run(moves).wrong == ()
        expected = recount.Recount(flips, simulation._world.seen)._expected
        assert expected["flip", "b", "2018-01"].possible == {(Decimal(1),)}


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_nothing_is_delivered_that_is_older_than_a_day(delivery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ages: list[float] = []
    call = Consumer.__call__

    def noted(self: Consumer, batch: dict[str, Any], context: Any) -> Any:
        ages.extend(self._now() - record["dynamodb"]["ApproximateCreationDateTime"] for record in batch["Records"])
        return call(self, batch, context)

    monkeypatch.setattr(Consumer, "__call__", noted)
    history = [put(events, song(n % 7)) if n % 3 else delete(events, song(n % 7)) for n in range(60)]
    faults = Faults(quiet=0.1, deploy=0.1, second_poller=0.2)
    assert_exactly_once(OWN, history, seeds=range(20), faults=faults, delivery=delivery)
    assert max(ages) < RETENTION_SECONDS + 1  # their times are rounded down to the second


# -- what a user sees --


class Remembers(Aggregation):
    """A handler that wants to be clever about what Lambda delivers twice."""

    name = "remembers"
    source = events
    window = Monthly("at")
    Items = Count()
    last = ""

    @staticmethod
    def group_by(item: dict[str, Any]) -> object:
        if item["SK"] == Remembers.last:
            return None
        Remembers.last = item["SK"]
        return item["id"]


def test_a_wrong_aggregate_is_shown_with_seed_and_replay() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_exactly_once(App("clever", [Remembers]), [put(events, song(n)) for n in (0, 1, 0)], shards=1)
    head, first, *_, last = str(caught.value).splitlines()
    assert head.startswith("app 'clever' with seed ")
    assert first.startswith("  remembers id='blue', SK='2018-01': expected Items ")
    seed = head.split("seed ")[1].split(":")[0]
    assert last == f"replay: assert_exactly_once(app, history, seeds=[{seed}], shards=1)"


def test_a_history_of_which_nothing_counts_is_no_proof() -> None:
    with pytest.raises(AssertionError, match="expected changes that count, came none under any seed"):
        assert_exactly_once(App("downloads", [Downloads]), [put(events, song(kind="upload"))], seeds=range(3))


def test_nothing_counts_because_all_is_bad_is_told_with_the_reason() -> None:
    class Misspelled(Downloads):
        """Of an attribute that no item has."""

        name = "misspelled"
        group_by = "genra"

    expected = "came none under any seed: attribute 'genra' is missing"
    with pytest.raises(AssertionError, match=expected):
        assert_exactly_once(App("misspelled", [Misspelled]), [put(events, song())], seeds=range(3))


def test_events_that_name_no_shard_are_of_different_ones() -> None:
    first, second = (event(inserted(events, song(n))) for n in range(2))
    assert first["shardId"] != second["shardId"]


def test_an_error_names_the_seed() -> None:
    with pytest.raises(ConfigurationError, match=r"expected a change of a source table \('Events'\)") as caught:
        assert_exactly_once(OWN, lambda random: [put(orders, {"number": 1})], seeds=[3], faults=Faults.none())
    assert caught.value.__notes__ == [
        "with seed 3; replay: assert_exactly_once(app, history, seeds=[3], faults=Faults.none())"
    ]


def test_what_a_consumer_raises_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(Consumer, "__call__", broken)
    with pytest.raises(RuntimeError, match="broken"):
        Simulation(OWN, seed=0).run([put(events, song())])


def test_what_is_existing_comes_first() -> None:
    with pytest.raises(ConfigurationError, match="existing before all changes"):
        Simulation(OWN, seed=0).run([put(events, song(0)), existing(events, song(1))])


def test_too_many_outcomes_to_tell_right_from_wrong_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recount, "_MOST_OUTCOMES", 3)
    early = [existing(Flip.source, flip(n)) for n in range(9)]
    history = [*early, *(delete(Flip.source, flip(n)) for n in range(9)), put(Flip.source, flip(9))]
    with pytest.raises(ConfigurationError, match="expected fewer changes of existing items"):
        Simulation(flips, seed=0, shards=4).run(history)


def test_a_change_is_shown_as_it_is_written() -> None:
    assert repr(delete(events, song(3))) == "delete(Events, {'id': 'blue', 'SK': 'event-3'})"


@pytest.mark.parametrize("change", [put, existing, delete, expire, inserted, removed, expired])
def test_items_are_of_values_that_dynamodb_has_and_have_a_key(change: Callable[..., object]) -> None:
    with pytest.raises(BadValueError):
        change(events, song(SK=0.5))
    with pytest.raises(EventError, match="Events: expected the key attribute 'SK'"):
        change(events, {"id": "blue"})


# -- records and events --


def test_records_are_as_lambda_sends_them() -> None:
    item = {"id": "blue", "SK": "event-0", "cover": b"\x00", "plays": Decimal("1.50")}
    image = {"id": {"S": "blue"}, "SK": {"S": "event-0"}, "cover": {"B": "AA=="}, "plays": {"N": "1.5"}}
    edit = modified(events, item, {**item, "plays": 2}, userIdentity=None)
    assert edit == {
        "eventName": "MODIFY",
        "eventSource": "aws:dynamodb",
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:123456789012:table/Events/stream/2018-01-01T00:00:00.000",
        "dynamodb": {
            "Keys": {"id": {"S": "blue"}, "SK": {"S": "event-0"}},
            "OldImage": image,
            "NewImage": {**image, "plays": {"N": "2"}},
        },
        "userIdentity": None,
    }
    made = event(inserted(events, item), edit, expired(events, item), isFinalInvokeForWindow=True)
    assert json.loads(json.dumps(made)) == made
    assert [record["eventName"] for record in made["Records"]] == ["INSERT", "MODIFY", "REMOVE"]
    numbers = [int(record["dynamodb"]["SequenceNumber"]) for record in made["Records"]]
    assert numbers == sorted(set(numbers))
    assert made["shardId"].startswith("shardId-")
    assert made["window"] == {"start": "2018-01-01T00:00:00Z", "end": "2018-01-01T00:15:00Z"}
    assert made["isFinalInvokeForWindow"]


def test_an_event_is_counted_by_the_consumer() -> None:
    with Local(OWN) as local:
        consumer = Consumer(OWN, "Events", local.client)
        batch = event(inserted(events, song(0)), inserted(events, song(1)), removed(events, song(0)))
        for _ in range(2):
            assert consumer(batch)["batchItemFailures"] == []
        found = Downloads.get("blue", "2018-01", client=local.client)
        assert found is not None
        assert found["Downloads"] == 1


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_what_counts_by_the_entry_of_a_sparse_index_counts_streamfolds_own_writes(delivery: str) -> None:
    class OpenDays(Aggregation):
        name = "open-days"
        source = customer_orders
        target = Table("OpenDays", pk="key")
        where = attr("OrderOpenDate").exists()
        group_by = "OrderOpenDate"
        window = AllTime()
        on_expiry = "retract"
        Orders = Count()

    app = App("counts-entries", [OpenOrders, OpenDays])
    assert_exactly_once(app, orders_history(app), seeds=range(100), delivery=delivery)


def test_an_event_without_records_is_refused() -> None:
    with pytest.raises(EventError, match="expected a record or more"):
        event()
