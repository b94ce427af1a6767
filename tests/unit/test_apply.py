"""Apply brings every item to its entry: existing ones, while others change them, and in several runs."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from botocore.exceptions import ClientError

from framework import App, ConfigurationError, DeliveryError
from framework.apply import Applied, Apply
from framework.codec import encode_item
from framework.local.clock import Clock
from framework.local.entries import Entries
from framework.local.history import key_text
from framework.local.recount import Seen
from tests.simulation.sparse import SPARSE, item_of
from tests.unit.test_sparse import Refusing, declare, indexed, order, put, refused, tables, urgent

open_orders = declare()._declaration


def counts(applied: Applied) -> tuple[int, ...]:
    return (applied.items, applied.right, applied.entered, applied.left, applied.moved_on, applied.failed)


@pytest.mark.parametrize("segments", [1, 4])
def test_existing_items_enter_and_leave_and_what_is_right_is_not_written(segments: int) -> None:
    engine = tables()
    put(engine, *(order(n) for n in range(5)), *(order(n, "shipped", OrderOpenDate="x") for n in range(5, 8)))
    put(engine, order(8, OrderOpenDate="2024-01-01"), order(9, "shipped"), order(10, OrderOpenDate="1999-01-01"))
    before = engine.requests["UpdateItem"]
    dry = Apply(open_orders, engine, dry_run=True, segments=segments).run()
    assert engine.requests["UpdateItem"] == before
    applied = Apply(open_orders, engine, segments=segments).run()
    assert counts(applied) == counts(dry) == (11, 2, 6, 3, 0, 0)
    assert engine.requests["UpdateItem"] - before == 9
    assert indexed(engine) == {f"order-{n}": "2024-01-01" for n in (*range(5), 8, 10)}
    assert counts(Apply(open_orders, engine).run()) == (11, 11, 0, 0, 0, 0)


def test_an_item_whose_entry_cannot_be_told_is_named_and_leaves() -> None:
    engine = tables()
    put(engine, order(0, placed=5, OrderOpenDate="2024-01-01"), order(1, placed=""), order(2))
    applied = Apply(open_orders, engine, segments=1).run()
    assert counts(applied) == (3, 0, 1, 0, 0, 2)
    assert [one.key["order"]["S"] for one in applied.named] == ["order-0", "order-1"]
    assert applied.named[0].reason.startswith("attribute 'placed': expected text")
    assert indexed(engine) == {"order-2": "2024-01-01"}


def test_aggregates_are_no_items() -> None:
    engine = tables()
    put(engine, {**order(), "sf~": "daily"})
    assert counts(Apply(open_orders, engine).run()) == (1, 1, 0, 0, 0, 0)
    assert indexed(engine) == {}


class Busy:
    """A client behind which an application changes an item between the walk's read and its write."""

    def __init__(self, engine: Any, change: Any) -> None:
        self._engine, self._change = engine, change

    def update_item(self, **arguments: Any) -> Any:
        self._change()
        return self._engine.update_item(**arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


@pytest.mark.parametrize("gone", [True, False])
def test_an_item_that_changed_meanwhile_is_left_alone(gone: bool) -> None:
    engine = tables()
    put(engine, order())
    key = encode_item({"customer": "ann", "order": "order-0"})

    def change() -> None:
        if gone:
            engine.delete_item(TableName="Orders", Key=key)
        else:
            put(engine, order(0, "shipped"))

    assert counts(Apply(open_orders, Busy(engine, change)).run()) == (1, 0, 0, 0, 1, 0)
    assert engine.scan(TableName="Orders")["Items"] == ([] if gone else [encode_item(order(0, "shipped"))])


def test_what_dynamodb_will_not_take_is_named_and_the_walk_goes_on() -> None:
    engine = tables()
    put(engine, order(0), order(1))
    error = refused("ValidationException", "Item size to update has exceeded the maximum allowed size")
    applied = Apply(open_orders, Refusing(engine, error, "order-0"), segments=1).run()
    assert counts(applied) == (2, 0, 1, 0, 0, 1)
    assert "maximum allowed size" in applied.named[0].reason


@pytest.mark.parametrize(
    "error",
    [refused("AccessDeniedException"), refused("ValidationException", "Type mismatch for Index Key OrderOpenDate")],
)
def test_what_no_item_is_to_blame_for_stops_it_and_it_goes_on_from_there(error: ClientError, tmp_path: Path) -> None:
    engine, path = tables(), tmp_path / "places.json"
    put(engine, *(order(n) for n in range(40)))
    with pytest.raises(DeliveryError, match="open-orders: expected to write, came"):
        Apply(open_orders, Refusing(engine, error, "order-9"), segments=1, places=path, rcu=1000).run()
    with pytest.raises(ConfigurationError, match="expected a walk to 'apply urgent "):
        Apply(urgent(lambda item: None)._declaration, engine, places=path)
    Apply(open_orders, engine, places=path).run()
    assert len(indexed(engine)) == 40
    assert not path.exists()


class Throttling(Busy):
    """A client that is throttled at random, in reads and writes."""

    def __init__(self, engine: Any, random: Random) -> None:
        super().__init__(engine, self._maybe)
        self._random = random

    def _maybe(self) -> None:
        if self._random.random() < 0.5:
            raise refused("ProvisionedThroughputExceededException")

    def scan(self, **arguments: Any) -> Any:
        self._maybe()
        return self._engine.scan(**{**arguments, "Limit": 3})


def test_throttled_in_half_of_all_requests_it_comes_to_its_end() -> None:
    clock, engine = Clock(0.0), tables()
    put(engine, *(order(n) for n in range(40)))
    client = Throttling(engine, Random(1))
    applied = Apply(open_orders, client, segments=1, clock=lambda: clock.now, sleep=clock.sleep).run()
    assert counts(applied) == (40, 0, 40, 0, 0, 0)
    assert clock.now > 1


def test_writes_keep_to_their_rate_the_index_s_units_included() -> None:
    clock, engine = Clock(0.0), tables()
    put(engine, *(order(n) for n in range(60)))
    before = engine.wcu
    Apply(open_orders, engine, segments=1, wcu=10, clock=lambda: clock.now, sleep=clock.sleep).run()
    assert engine.wcu - before == 120
    assert clock.now >= (120 - 10) / 10 - 1


@pytest.mark.parametrize("seed", range(60))
def test_after_it_every_item_has_the_entry_that_a_naive_look_says(seed: int) -> None:
    random = Random(seed)
    app: App = SPARSE[seed % len(SPARSE)]
    engine = tables(app)
    sources = list({d.source.name: d.source for d in app.declarations}.values())
    left: dict[str, dict[str, Any]] = {table.name: {} for table in app.tables}
    seen = []
    for _ in range(30):
        table, item = item_of(random, sources, 12)
        image = encode_item(item)
        engine.put_item(TableName=table.name, Item=image)
        left[table.name][key_text(table, image)] = image
        seen.append(Seen(table.name, "shard", None, image, False, 0))
    failed = 0
    for cls in app.sparse_indexes:
        failed += Apply(app.declaration_of(cls), engine, segments=random.randint(1, 4)).run().failed
    expected = Entries(app, seen).items(left)
    for table in sources:
        items = engine.scan(TableName=table.name)["Items"]
        assert {key_text(table, item): item for item in items} == expected[table.name]
