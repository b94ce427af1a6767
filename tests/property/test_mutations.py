"""A fault planted in a step of the protocol is found by the same scenarios that the real one passes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from framework import consumer, deliver
from framework.local.memory import MemoryDynamoDB
from framework.plan import Update, request
from tests.property.test_exactly_once import run, tables
from tests.property.world import AMOUNTS, DAYS, FAULTS, KINDS

SEEDS = range(600)


def survives(seed: int) -> bool:
    """Whether the aggregates are right after one seeded scenario."""
    rng = random.Random(seed)
    operations: list[tuple[Any, ...]] = []
    for _ in range(rng.randrange(5, 30)):
        match rng.randrange(8):
            case 0:
                operations.append(("delete", rng.randrange(6)))
            case 1:
                operations.append(("expire", rng.randrange(6)))
            case 2:
                operations.append(("split", rng.randrange(2)))
            case _:
                sizes = (6, len(KINDS), len(DAYS), len(AMOUNTS), 2)
                operations.append(("put", *(rng.randrange(size) for size in sizes)))
    engine = MemoryDynamoDB()
    for arguments in tables():
        engine.create_table(**arguments)
    faults = [rng.choice(FAULTS) for _ in range(rng.randrange(30))]
    try:
        run(engine, operations, faults, [rng.randrange(1000) for _ in range(40)])
    except AssertionError:
        return False
    return True


def without_condition(patch: pytest.MonkeyPatch) -> None:
    def careless(*arguments: Any) -> dict[str, Any]:
        made = request(*arguments)
        made["ConditionExpression"] = f"attribute_not_exists(#never) OR ({made['ConditionExpression']})"
        made["ExpressionAttributeNames"]["#never"] = "never"
        return made

    patch.setattr(deliver, "request", careless)


def without_the_returned_item(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deliver, "drop_absorbed", lambda update, item: None)


def with_the_first_record_as_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Update, "last", Update.first)


def with_the_highest_failure_reported(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(consumer, "min", max, raising=False)


def with_one_lane_for_all_shards(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(consumer, "lane_attribute", lambda name, arn, shard: "sf~onelane")


def test_the_protocol_survives() -> None:
    assert all(survives(seed) for seed in SEEDS[:150])


@pytest.mark.parametrize(
    "mutate",
    [
        without_condition,
        without_the_returned_item,
        with_the_first_record_as_watermark,
        with_the_highest_failure_reported,
        with_one_lane_for_all_shards,
    ],
)
def test_a_planted_fault_is_found(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert not all(survives(seed) for seed in SEEDS)
