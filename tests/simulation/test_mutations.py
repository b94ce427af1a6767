"""A fault planted in a step of the protocol is found by the same simulations that the real one passes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from framework import consumer, deliver, deliver_ledger, fold, lanes, ledger, plan, share
from framework.consumer import Consumer
from framework.declaration import Declaration
from framework.decode import Batch
from framework.deliver import Delivery
from framework.deliver_ledger import LedgerDelivery
from framework.ledger import Guard
from framework.local import streams
from framework.local.settings import Settings
from framework.local.world import CONTROL
from framework.plan import Update, request
from framework.report import StreamProcessor
from framework.testing import Change, Simulation, assert_exactly_once, delete, put
from tests.simulation.apps import APPS, events, history_of

SEEDS = range(300)
SHARDS = 2  # at the start, as `Simulation` has it; those with higher numbers are children
HISTORIES = [(app, history_of(app, least=8, most=20)) for app in APPS]


def found(delivery: str = "lanes") -> int | None:
    """The first seed whose run is wrong, or does not end."""
    for seed in SEEDS:
        app, history = HISTORIES[seed % len(HISTORIES)]
        try:
            if Simulation(app, seed=seed, delivery=delivery).run(history(Random(seed))).wrong:
                return seed
        except AssertionError:
            return seed
    return None


def without_condition(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deliver, "request", lambda *arguments: unconditional(request(*arguments)))


def unconditional(made: dict[str, Any]) -> dict[str, Any]:
    made["ConditionExpression"] = f"attribute_not_exists(#never) OR ({made['ConditionExpression']})"
    made["ExpressionAttributeNames"]["#never"] = "never"
    return made


def with_the_watermark_beyond_what_was_added(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Update, "last", property(lambda update: update.contributions[-1][0] + 10_000_000))


def with_the_first_record_as_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Update, "last", Update.first)


def with_the_watermark_in_a_write_before(patch: pytest.MonkeyPatch) -> None:
    two_writes(patch, first="SET", second="ADD")


def with_the_watermark_in_a_write_after(patch: pytest.MonkeyPatch) -> None:
    two_writes(patch, first="ADD", second="SET")


def two_writes(patch: pytest.MonkeyPatch, *, first: str, second: str) -> None:
    call = Delivery._call

    def careless(self: Delivery, outcome: Any, deadline: float, operation: str, arguments: dict[str, Any]) -> Any:
        text = arguments.get("UpdateExpression", "")
        if " ADD " not in text:
            return call(self, outcome, deadline, operation, arguments)
        sets, adds = text.split(" ADD ")
        parts = {"SET": sets, "ADD": f"ADD {adds}"}
        call(self, outcome, deadline, operation, used({**arguments, "UpdateExpression": parts[first]}))
        rest = {name: value for name, value in arguments.items() if name != "ConditionExpression"}
        return call(self, outcome, deadline, operation, used({**rest, "UpdateExpression": parts[second]}))

    patch.setattr(Delivery, "_call", careless)


def used(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments without the placeholders that no expression has."""
    text = f"{arguments['UpdateExpression']} {arguments.get('ConditionExpression', '')}"
    placeholders = set(re.findall(r"[#:]\w+", text))
    for field in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
        arguments[field] = {name: value for name, value in arguments[field].items() if name in placeholders}
    return arguments


def with_a_refused_write_taken_as_done(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deliver, "drop_absorbed", lambda update, item: None)


def with_a_refused_write_made_again_in_whole(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deliver, "drop_absorbed", lambda update, item: update)
    patch.setattr(
        deliver,
        "request",
        lambda update, hour, known: (
            request(update, hour) if known is None else unconditional(request(update, hour, known))
        ),
    )


def with_a_failed_record_skipped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StreamProcessor, "_at", lambda self, sequence: {"dynamodb": {"SequenceNumber": ""}})
    response = StreamProcessor.response
    patch.setattr(StreamProcessor, "response", lambda self: response(self) and {"batchItemFailures": []})


def with_the_highest_failure_reported(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(consumer, "min", max, raising=False)


def with_own_writes_counted(patch: pytest.MonkeyPatch) -> None:
    let_everything_pass(patch)
    patch.setattr(share, "MARK", "never")


def with_records_counted_that_do_not_match(patch: pytest.MonkeyPatch) -> None:
    let_everything_pass(patch)
    compile_fold = fold.compile_fold
    patch.setitem(consumer._COMPILERS, Declaration, lambda declaration: compile_fold(replace(declaration, where=None)))


def let_everything_pass(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Settings, "passes", lambda settings, record: True)


def with_numbers_compared_as_text(patch: pytest.MonkeyPatch) -> None:
    def as_text(update: Update, item: Any) -> Update | None:
        absorbed = plan.position(item[update.lane]) if update.lane in item else -1
        left = tuple(c for c in update.contributions if str(c[0]) > str(absorbed))
        return replace(update, contributions=left) if left else None

    patch.setattr(plan, "bound", str)
    patch.setattr(plan, "watermark", lambda sequence, hour, **redriven: f"{sequence}@{hour}")
    patch.setattr(plan, "position", lambda value: int(value["S"].partition("@")[0]))
    patch.setattr(deliver, "drop_absorbed", as_text)


def with_one_lane_for_all_shards(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(consumer, "lane_attribute", lambda name, arn, shard: "sf~onelane")


def with_watermarks_forgotten_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lanes, "_FORGET_AFTER_HOURS", -1)
    patch.setattr(plan, "_FORGET_TOGETHER", 1)


def with_take_backs_that_make_aggregates(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Update, "opens", True)


def with_expiry_taken_for_a_delete(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fold, "is_expiry", lambda record, replicated_ttl: False)


def with_late_changes_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fold, "_compile_lateness", lambda declaration: None)


def with_a_threshold_that_no_condition_guards(patch: pytest.MonkeyPatch) -> None:
    qualifies = plan._qualifies

    def unguarded(build: Any, *arguments: Any) -> bool:
        before = list(build.conditions)
        found = qualifies(build, *arguments)
        build.conditions[:] = before
        return found

    patch.setattr(plan, "_qualifies", unguarded)


def with_a_threshold_that_only_what_is_added_reaches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan, "_qualifies", lambda build, when, added, known: added >= when.limit)


def with_entries_that_never_leave(patch: pytest.MonkeyPatch) -> None:
    arguments = plan._Expression.arguments

    def kept(self: Any) -> dict[str, Any]:
        self.removes.clear()
        return used(arguments(self))

    patch.setattr(plan._Expression, "arguments", kept)


def with_edits_and_deletes_in_child_shards_lost(patch: pytest.MonkeyPatch) -> None:
    jobs = Consumer._jobs

    def careless(self: Consumer, batch: Batch, folded: Any, keeper: Any) -> Any:
        # The ledger is not told the shard, but a simulated stream's numbers end in its place.
        if batch.records and int(batch.records[0]["dynamodb"]["SequenceNumber"]) % streams._PLACES >= SHARDS:
            for each in folded:
                kept = {place: [c for c in bucket if c[1]] for place, bucket in each.buckets.items()}
                each.buckets.clear()
                each.buckets.update({place: bucket for place, bucket in kept.items() if bucket})
        return jobs(self, batch, folded, keeper)

    patch.setattr(Consumer, "_jobs", careless)


def with_the_marker_in_a_transaction_before(patch: pytest.MonkeyPatch) -> None:
    two_transactions(patch, marker_first=True)


def with_the_marker_in_a_transaction_after(patch: pytest.MonkeyPatch) -> None:
    two_transactions(patch, marker_first=False)


def two_transactions(patch: pytest.MonkeyPatch, *, marker_first: bool) -> None:
    call = LedgerDelivery._call

    def careless(self: LedgerDelivery, outcome: Any, terms: Any, operation: str, arguments: dict[str, Any]) -> Any:
        if operation != "transact_write_items":
            return call(self, outcome, terms, operation, arguments)
        parts: dict[bool, list[Any]] = {True: [], False: []}
        for action in arguments["TransactItems"]:
            parts[next(iter(action.values()))["TableName"] == CONTROL].append(action)
        for part in (parts[marker_first], parts[not marker_first]):
            if part:
                call(self, outcome, terms, operation, {"TransactItems": part})

    patch.setattr(LedgerDelivery, "_call", careless)


def without_markers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guard, "settled", lambda guard, item: False)
    actions = ledger.actions

    def unguarded(*arguments: Any) -> list[dict[str, Any]]:
        made = actions(*arguments)
        for action in made:
            (request,) = action.values()
            if request["TableName"] == CONTROL:
                request.pop("ConditionExpression", None)
        return made

    patch.setattr(deliver_ledger, "actions", unguarded)


OF_THE_LEDGER = [with_the_marker_in_a_transaction_before, with_the_marker_in_a_transaction_after, without_markers]
MUTATIONS = [
    without_condition,
    with_the_watermark_beyond_what_was_added,
    with_the_first_record_as_watermark,
    with_the_watermark_in_a_write_before,
    with_the_watermark_in_a_write_after,
    with_a_refused_write_taken_as_done,
    with_a_refused_write_made_again_in_whole,
    with_a_failed_record_skipped,
    with_the_highest_failure_reported,
    with_own_writes_counted,
    with_records_counted_that_do_not_match,
    with_numbers_compared_as_text,
    with_one_lane_for_all_shards,
    with_watermarks_forgotten_at_once,
    with_take_backs_that_make_aggregates,
    with_expiry_taken_for_a_delete,
    with_late_changes_counted,
    with_a_threshold_that_no_condition_guards,
    with_a_threshold_that_only_what_is_added_reaches,
    with_entries_that_never_leave,
    with_edits_and_deletes_in_child_shards_lost,
]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_a_planted_fault_is_found(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert found() is not None


@pytest.mark.parametrize("mutate", OF_THE_LEDGER, ids=lambda mutate: mutate.__name__)
def test_a_fault_planted_in_the_ledger_is_found(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert found("ledger") is not None


def song(number: int, amount: int = 1) -> dict[str, Any]:
    at = "2018-01-31T12:00:00Z"
    return {"id": "blue", "SK": f"event-{number}", "kind": "download", "at": at, "amount": amount}


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
@pytest.mark.parametrize(
    "history",
    [
        [put(events, song(1, amount=n)) for n in range(10)],
        [put(events, song(n % 4, amount=n)) for n in range(12)],
        [change(events, song(n)) for change in (put, delete) for n in range(6)],
    ],
    ids=["one item edited", "four items edited", "puts, then deletes"],
)
def test_what_is_lost_in_child_shards_is_found_in_plain_histories(
    history: list[Change], delivery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = next(app for app in APPS if app.name == "partitions")
    assert_exactly_once(partitions, history, delivery=delivery)
    with_edits_and_deletes_in_child_shards_lost(monkeypatch)
    with pytest.raises(AssertionError, match="kinds key="):
        assert_exactly_once(partitions, history, delivery=delivery)


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_without_one_nothing_is_found(delivery: str) -> None:
    assert found(delivery) is None
