"""Whatever Lambda and DynamoDB do, the aggregates equal a recount of the table."""

from __future__ import annotations

from decimal import localcontext
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from framework.local import Local
from framework.local.memory import MemoryDynamoDB
from tests.property.world import (
    AMOUNTS,
    DAYS,
    FAULTS,
    KINDS,
    Monthlies,
    Pollers,
    World,
    aggregates,
    app,
    events,
    make_item,
    totals,
)

KEYS = 6

# put (key, kind, day, amount, note), delete (key), expire (key), split (shard): small numbers, so that they collide.
operation = st.one_of(
    st.tuples(
        st.just("put"),
        st.integers(0, KEYS - 1),
        st.integers(0, len(KINDS) - 1),
        st.integers(0, len(DAYS) - 1),
        st.integers(0, len(AMOUNTS) - 1),
        st.integers(0, 1),
    ),
    st.tuples(st.sampled_from(["delete", "expire"]), st.integers(0, KEYS - 1)),
    st.tuples(st.just("split"), st.integers(0, 1)),
)
history = st.lists(operation, min_size=1, max_size=30)
faults = st.lists(st.sampled_from(FAULTS), max_size=20)
choices = st.lists(st.integers(0, 1000), max_size=30)


def make_world(operations: list[tuple[Any, ...]]) -> World:
    world = World()
    for name, *arguments in operations:
        match name:
            case "put":
                world.put(make_item(*arguments))
            case "split":
                world.split(*arguments)
            case _:
                world.delete(*arguments, expiry=name == "expire")
    return world


def run(client: Any, operations: list[tuple[Any, ...]], fault_list: list[str], choice_list: list[int]) -> None:
    world = make_world(operations)
    pollers = Pollers(world, client, iter(fault_list), iter(choice_list))
    pollers.drain()
    with localcontext(prec=80):
        expected = {
            name: {key: dict(values) for key, values in keyed.items()} for name, keyed in world.recount().items()
        }
        assert aggregates(client) == expected
        assert pollers.refused == 0, "a take-back never comes before what it takes back"
        for month in ("2018-01", "2018-02"):
            ranked = sorted(
                (values["Downloads"] for (_, label), values in expected["monthlies"].items() if label == month),
                reverse=True,
            )
            assert [found["Downloads"] for found in Monthlies.all(month, client=client)] == ranked
            assert [found["Downloads"] for found in Monthlies.top(month, 2, client=client)] == ranked[:2]


def tables() -> list[dict[str, Any]]:
    """`create_table` arguments for the world's tables."""
    from framework.local.provision import create_table_request

    return [create_table_request(app, table) for table in (events, totals)]


@settings(max_examples=1500)
@given(history, faults, choices)
def test_aggregates_equal_a_recount_whatever_is_delivered_again_or_cut_short(
    operations: list[tuple[Any, ...]], fault_list: list[str], choice_list: list[int]
) -> None:
    engine = MemoryDynamoDB()
    for arguments in tables():
        engine.create_table(**arguments)
    run(engine, operations, fault_list, choice_list)


@settings(max_examples=6)
@given(st.lists(operation, min_size=5, max_size=10), faults, choices)
def test_the_embedded_engine_agrees_on_the_same_scenarios(
    operations: list[tuple[Any, ...]], fault_list: list[str], choice_list: list[int]
) -> None:
    with Local(app) as local:
        run(local.client, operations, fault_list, choice_list)
