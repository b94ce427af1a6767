"""Whatever Lambda and DynamoDB do, every item has the entry that it should have; and a planted fault is found."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from framework import App, Index, SparseIndex, attr, consumer, deliver_sparse, entry, sparse_fold
from framework.consumer import Consumer
from framework.deliver_sparse import SparseDelivery
from framework.local.settings import Settings
from framework.sparse import SparseDeclaration
from framework.sparse_fold import EntryUpdate, FoldedItems, entry_request
from framework.testing import Faults, Simulation, assert_exactly_once, delete, put, update
from handlers.award_winners import AwardWinners
from handlers.open_orders import OpenOrders as OpenOrdersExample
from tests.simulation.sparse import SPARSE, OpenOrders, history_of, orders

CHUNK = 500
HISTORIES = 5_000 if os.environ.get("CI") else 1_000
SEEDS = range(300)
DELIVERIES = ("lanes", "ledger")


def order(number: int = 0, status: str = "open", on: str = "2024-01-01", **more: Any) -> dict[str, Any]:
    return {"customer": "ann", "order": f"order-{number}", "status": status, "placed": {"on": on}, **more}


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_every_item_has_the_entry_that_it_should_have(first: int) -> None:
    for place, app in enumerate(SPARSE):
        for delivery in DELIVERIES:
            kinds, ours = len(SPARSE) * len(DELIVERIES), place + len(SPARSE) * (delivery == "ledger")
            seeds = [seed for seed in range(first, first + CHUNK) if seed % kinds == ours]
            assert_exactly_once(app, history_of(app), seeds=seeds, delivery=delivery)


@pytest.mark.parametrize("seed", range(40))
def test_an_index_when_asked_holds_exactly_the_items_that_a_scan_says_it_should(seed: int) -> None:
    app = SPARSE[seed % len(SPARSE)]
    simulation = Simulation(app, seed=seed)
    run = simulation.run(history_of(app, least=20, most=40)(Random(seed)))
    assert run.wrong == ()
    found = 0
    for cls in app.sparse_indexes:
        d = app.declaration_of(cls)
        items = simulation.client.scan(TableName=d.source.name)["Items"]
        entries = simulation.client.scan(TableName=d.source.name, IndexName=d.index.name)["Items"]
        place_of = entry.compile_entry(d)
        changed = {
            tuple(each["dynamodb"]["Keys"][name][kind] for name, kind in d.source.key_types.items())
            for shard in simulation._world.streams[d.source.name].shards
            for each in (one.record for one in shard._entries)
        }
        expected = [
            {**{name: item[name] for name in d.source.keys}, **place.entry}
            for item in items
            if (place := place_of(item)) is not None and place.entry is not None
            if tuple(item[name][kind] for name, kind in d.source.key_types.items()) in changed
        ]
        names = {*d.source.keys, *d.managed}
        came = [
            {name: value for name, value in each.items() if name in names}
            for each in entries
            if not d.siblings or each[d.index.pk]["S"].startswith(d.index.prefix)
        ]
        assert sorted(came, key=str) == sorted(expected, key=str)
        found += len(came)
    assert found == run.entries


def found(delivery: str = "lanes") -> int | None:
    """The first seed whose run is wrong, or does not end."""
    for seed in SEEDS:
        app = SPARSE[seed % len(SPARSE)]
        history = history_of(app, least=8, most=20)(Random(seed))
        try:
            if Simulation(app, seed=seed, delivery=delivery).run(history).wrong:
                return seed
        except AssertionError:
            return seed
    return None


def with_another_request(patch: pytest.MonkeyPatch, change: Callable[[EntryUpdate, dict[str, Any]], Any]) -> None:
    patch.setattr(deliver_sparse, "entry_request", lambda update: change(update, entry_request(update)))


def used(made: dict[str, Any]) -> dict[str, Any]:
    """A request without the placeholders that no expression has."""
    text = f"{made['UpdateExpression']} {made.get('ConditionExpression', '')} "
    for field in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
        kept = {n: v for n, v in made.get(field, {}).items() if f"{n} " in text.replace(",", " ").replace(")", " ")}
        made[field] = kept
        if not kept:
            del made[field]
    return made


def without_condition(patch: pytest.MonkeyPatch) -> None:
    def bare(update: EntryUpdate, made: dict[str, Any]) -> dict[str, Any]:
        del made["ConditionExpression"]
        return used(made)

    with_another_request(patch, bare)


def without_the_item_as_seen(patch: pytest.MonkeyPatch) -> None:
    with_another_request(patch, lambda update, made: entry_request(replace(update, seen={})))


def with_one_of_the_attributes_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    def careless(update: EntryUpdate, made: dict[str, Any]) -> dict[str, Any]:
        return entry_request(replace(update, seen=dict(list(update.seen.items())[1:])))

    with_another_request(patch, careless)


def with_deleted_items_brought_back(patch: pytest.MonkeyPatch) -> None:
    def careless(update: EntryUpdate, made: dict[str, Any]) -> dict[str, Any]:
        made["ConditionExpression"] = f"attribute_not_exists(#pk) OR ({made['ConditionExpression']})"
        return made

    with_another_request(patch, careless)


def with_aggregates_taken_for_items(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(entry, "MARK", "never")
    patch.setattr(sparse_fold, "MARK", "never")
    patch.setattr(Settings, "passes", lambda settings, record: True)


def with_half_a_key_written(patch: pytest.MonkeyPatch) -> None:
    def half(update: EntryUpdate, made: dict[str, Any]) -> dict[str, Any]:
        made["UpdateExpression"] = made["UpdateExpression"].partition(",")[0]
        return used(made)

    with_another_request(patch, half)


def with_entries_left_in(patch: pytest.MonkeyPatch) -> None:
    updates = FoldedItems.updates.fget
    assert updates is not None
    kept = property(lambda self: [each for each in updates(self) if each.entry is not None])
    patch.setattr(FoldedItems, "updates", kept)


def with_entries_never_changed(patch: pytest.MonkeyPatch) -> None:
    compile_there = entry.compile_there

    def careless(declaration: Any) -> Any:
        is_there = compile_there(declaration)
        return lambda image, wanted: (
            is_there(image, wanted) or (wanted is not None and all(name in image for name in declaration.managed))
        )

    patch.setattr(sparse_fold, "compile_there", careless)


def with_the_first_image_of_a_batch(patch: pytest.MonkeyPatch) -> None:
    class First(dict[str, Any]):
        def __setitem__(self, key: str, value: Any) -> None:
            self.setdefault(key, value)

    compile_items = sparse_fold.compile_items

    def careless(declaration: Any) -> Any:
        start = compile_items(declaration)

        def first() -> Any:
            folded, fold = start()
            items = First()
            folded._items = items
            fold.__closure__[[*fold.__code__.co_freevars].index("items")].cell_contents = items  # type: ignore[attr-defined]
            return folded, fold

        return first

    patch.setitem(consumer._COMPILERS, SparseDeclaration, careless)


def with_failed_writes_passed_over(patch: pytest.MonkeyPatch) -> None:
    settle = SparseDelivery._apply

    def careless(self: SparseDelivery, job: Any, outcome: Any, terms: Any) -> None:
        try:
            settle(self, job, outcome, terms)
        finally:
            outcome.failed_from = None

    patch.setattr(SparseDelivery, "_apply", careless)


def with_refused_writes_made_without_condition(patch: pytest.MonkeyPatch) -> None:
    settle = SparseDelivery._apply

    def careless(self: SparseDelivery, job: Any, outcome: Any, terms: Any) -> None:
        settle(self, job, outcome, terms)
        if outcome.duplicates:
            settle(self, replace(job, seen={}), outcome, terms)

    patch.setattr(SparseDelivery, "_apply", careless)


def with_a_filter_for_inserts_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Settings, "passes", lambda settings, record: record["eventName"] == "INSERT")


def with_anothers_entry_taken_out(patch: pytest.MonkeyPatch) -> None:
    def careless(update: EntryUpdate, made: dict[str, Any]) -> dict[str, Any]:
        return entry_request(replace(update, declaration=replace(update.declaration, siblings=())))

    with_another_request(patch, careless)


def with_anothers_entry_taken_for_none(patch: pytest.MonkeyPatch) -> None:
    compile_entry = entry.compile_entry
    patch.setattr(sparse_fold, "compile_entry", lambda declaration: compile_entry(replace(declaration, siblings=())))


def with_what_anothers_entry_hangs_on_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    compile_entry = entry.compile_entry

    def careless(declaration: Any) -> Any:
        place_of, alone = compile_entry(declaration), compile_entry(replace(declaration, siblings=()))

        def place(image: Any) -> Any:
            found = place_of(image)
            return found if found is None else replace(found, looked_at=alone(image).looked_at)

        return place

    patch.setattr(sparse_fold, "compile_entry", careless)


def with_anothers_entry_found_to_be_ones_own(patch: pytest.MonkeyPatch) -> None:
    compile_there = entry.compile_there
    patch.setattr(sparse_fold, "compile_there", lambda declaration: compile_there(replace(declaration, siblings=())))
    with_anothers_entry_taken_out(patch)


def with_the_others_attributes_in_sight(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(entry, "_unseen", lambda declaration: frozenset(declaration.managed))


def with_bad_records_left_in(patch: pytest.MonkeyPatch) -> None:
    compile_entry = entry.compile_entry

    def careless(declaration: Any) -> Any:
        place_of = compile_entry(declaration)

        def place(image: Any) -> Any:
            found = place_of(image)
            return None if found is not None and found.reason else found

        return place

    patch.setattr(sparse_fold, "compile_entry", careless)


def with_updates_left_out(patch: pytest.MonkeyPatch) -> None:
    jobs = Consumer._jobs
    patch.setattr(Consumer, "_jobs", lambda self, batch, folded, keeper: jobs(self, batch, folded, keeper)[:1])


MUTATIONS = [
    without_condition,
    without_the_item_as_seen,
    with_one_of_the_attributes_not_asked_for,
    with_deleted_items_brought_back,
    with_aggregates_taken_for_items,
    with_half_a_key_written,
    with_entries_left_in,
    with_entries_never_changed,
    with_the_first_image_of_a_batch,
    with_failed_writes_passed_over,
    with_refused_writes_made_without_condition,
    with_a_filter_for_inserts_alone,
    with_bad_records_left_in,
    with_updates_left_out,
    with_anothers_entry_taken_out,
    with_anothers_entry_taken_for_none,
    with_what_anothers_entry_hangs_on_not_asked_for,
    with_anothers_entry_found_to_be_ones_own,
    with_the_others_attributes_in_sight,
]


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_a_planted_fault_is_found(
    mutate: Callable[[pytest.MonkeyPatch], None], delivery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert found(delivery) is not None


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_without_one_nothing_is_found(delivery: str) -> None:
    assert found(delivery) is None


def test_a_batch_of_edits_of_one_item_is_one_write_and_a_settled_index_is_not_written() -> None:
    app = App("one", [OpenOrders])
    simulation = Simulation(app, seed=1, faults=Faults.none(), shards=1)
    run = simulation.run([put(orders, order(on=f"2024-01-0{n}")) for n in range(1, 6)])
    assert (run.wrong, run.entries) == ((), 1)
    assert simulation.client.requests["UpdateItem"] <= 5


def test_what_an_application_sets_itself_is_put_right() -> None:
    history = [
        put(orders, order()),
        update(orders, {"customer": "ann", "order": "order-0", "OrderOpenDate": "1999-01-01"}),
        put(orders, order(1, "shipped", OrderOpenDate="1999-01-01")),
        put(orders, order(2)),
        delete(orders, order(2)),
    ]
    assert_exactly_once(App("one", [OpenOrders]), history)


def test_two_sparse_indexes_of_one_table_settle_each_for_itself() -> None:
    class ByDay(SparseIndex):
        name = "by-day"
        source = orders
        index = Index("ByDay", pk="OpenDay", sk="order")
        when = attr("status").equals("open")
        sort = None
        key = attr("placed.on")

    history = [put(orders, order(n, on=f"2024-01-0{n + 1}")) for n in range(4)]
    history += [update(orders, {"customer": "ann", "order": "order-1", "status": "shipped"})]
    assert_exactly_once(App("two", [OpenOrders, ByDay]), history)


def test_the_examples_hold_what_is_open_and_who_won() -> None:
    app = App("examples", [OpenOrdersExample, AwardWinners])

    def order(number: int, status: str) -> dict[str, Any]:
        return {"CustomerId": "ann", "OrderId": str(number), "Status": status, "OrderDate": f"2024-01-0{number}"}

    def score(wins: int, losses: int) -> dict[str, Any]:
        return {"UserId": "bob", "GameTitle": "chess", "TopScore": 9, "Wins": wins, "Losses": losses}

    orders, scores = OpenOrdersExample.source, AwardWinners.source
    history = [put(orders, order(n, "open")) for n in range(1, 5)] + [put(orders, order(2, "shipped"))]
    history += [put(scores, score(wins, losses)) for wins, losses in ((9, 0), (10, 1), (10, 4), (12, 4))]
    assert_exactly_once(app, history)
    simulation = Simulation(app, seed=0)
    assert simulation.run(history).entries == 4
    found = [
        simulation.client.scan(TableName=table, IndexName=index)["Items"]
        for table, index in (("CustomerOrders", "OpenOrdersIndex"), ("GameScores", "AwardIndex"))
    ]
    assert [item["OrderOpenDate"]["S"] for item in found[0]] == ["2024-01-01", "2024-01-03", "2024-01-04"]
    assert [(item["Award"], item["TopScore"]) for item in found[1]] == [({"S": "Champ"}, {"N": "9"})]
