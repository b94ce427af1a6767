"""After all faults an index, read as a user reads it, holds exactly what a scan of its table says that it should."""

from __future__ import annotations

from decimal import Decimal
from random import Random

import pytest

from framework.declaration import Declaration
from framework.lanes import owner
from framework.testing import Simulation
from tests.simulation.apps import APPS, history_of

CHARTS = next(app for app in APPS if app.name == "charts")
HISTORY = history_of(CHARTS, least=8, most=25)


def scanned(simulation: Simulation, declaration: Declaration) -> dict[str, list[tuple[str, Decimal]]]:
    """What an index should hold of each window, in order, out of the items of the table: groups and scores."""
    index = declaration.index
    assert index is not None
    assert index.when is not None
    counts = [slot.attribute for slot in declaration.slots if slot.of is None]
    found: dict[str, list[tuple[str, Decimal]]] = {}
    for item in simulation.client.scan(TableName=declaration.target.name)["Items"]:
        if owner(item) == declaration.name:
            group, label = declaration.text_of(item)
            there = found.setdefault(label, [])
            qualifies = Decimal(item[index.when.measure]["N"]) >= index.when.limit
            if qualifies and all(item[count] != {"N": "0"} for count in counts):
                there.append((group, Decimal(item["Score"]["N"])))
    for each in found.values():
        each.sort(key=lambda one: (one[1].copy_negate(), one[0]))  # a minus would round
    return found


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_what_is_read_of_a_chart_is_what_a_scan_says(delivery: str) -> None:
    held = left_out = 0
    for seed in range(60):
        simulation = Simulation(CHARTS, seed=seed, delivery=delivery)
        assert simulation.run(HISTORY(Random(seed))).wrong == ()
        for cls in CHARTS.aggregations:
            for label, expected in scanned(simulation, cls._declaration).items():
                read = cls.all(label, client=simulation.client)
                texts = [(cls._declaration.group_key(*_values(one.group)), one["Score"]) for one in read]
                assert texts == expected
                held += len(expected)
                left_out += not expected
    assert held > 100
    assert left_out > 20


def _values(group: object) -> tuple[object, ...]:
    return group if isinstance(group, tuple) else (group,)
