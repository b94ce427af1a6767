"""Tests of one's own handlers: stream records, events, and a simulation of everything that may go wrong.

    def test_daily_orders_are_exact():
        history = [put(orders, {"customer": "ann", "orderID": 1, ...}), delete(orders, {"customer": "ann", ...})]
        assert_exactly_once(app, history)

A simulation runs the app's own consumers, each behind an event source mapping with the settings of a deployment, on
tables in memory and on a simulated clock. Batches are cut short after any write, come again in whole or in part, at
once or hours later, from two pollers at a time; writes are throttled, meet conflicts, lose their replies; shards split.
At the end every aggregate has to be what a naive count of the history comes to, and every item has to have the entry in
a sparse index that it should. All chance is out of one seed: a seed is a run, bit for bit, in whichever process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import TypeAlias

from framework.app import App
from framework.local.faults import Faults
from framework.local.history import (
    Change,
    delete,
    event,
    existing,
    expire,
    expired,
    inserted,
    modified,
    put,
    removed,
    update,
)
from framework.local.recount import Wrong
from framework.local.simulation import Run, Simulation

__all__ = [
    "Change",
    "Faults",
    "Run",
    "Simulation",
    "Wrong",
    "assert_exactly_once",
    "delete",
    "event",
    "existing",
    "expire",
    "expired",
    "inserted",
    "modified",
    "put",
    "removed",
    "update",
]

History: TypeAlias = Iterable[Change] | Callable[[Random], Iterable[Change]]

_MOST_SHOWN = 5


def assert_exactly_once(
    app: App,
    history: History,
    *,
    seeds: Iterable[int] = range(100),
    faults: Faults | None = None,
    shards: int = 2,
    delivery: str = "lanes",
) -> None:
    """Assert that every aggregate counts every change exactly once, and every entry is right, whatever goes wrong.

    What is compared, and what an aggregate of zeros means, is told in `framework.local.recount.Recount`.

    Args:
        app: The app.
        history: What happens to items of the source tables, in order; or a function that makes it out of a source of
            chance, which is seeded with each seed.
        seeds: A simulation is run for each. One takes some milliseconds for a history of a dozen changes.
        faults: How often each fault comes; those of `Faults()` if not given.
        shards: Open shards of each source table's stream at the start, 1 or more.
        delivery: The protocol of the consumers: `"lanes"` or `"ledger"`.

    Raises:
        AssertionError: An aggregate or an entry is missing, surplus or wrong, or there are none under any seed. It
            shows the seed, the first wrong ones and the line that replays the run.
        ConfigurationError: The history changes a table that no handler reads.
    """
    __tracebackhide__ = True  # by pytest, above what was found
    if not callable(history):
        history = tuple(history)
    counted = 0
    bad: set[str] = set()
    for seed in seeds:
        changes = history(Random(seed)) if callable(history) else history
        replay = f"assert_exactly_once({_arguments(seed, faults, shards, delivery)})"
        try:
            simulation = Simulation(app, seed=seed, faults=faults, shards=shards, delivery=delivery)
            run = simulation.run(changes)
        except Exception as error:
            error.add_note(f"with seed {seed}; replay: {replay}")
            raise
        counted += run.aggregates + run.entries + run.archived
        if run.wrong:
            shown = [f"  {wrong}" for wrong in run.wrong[:_MOST_SHOWN]]
            more = [f"  and {len(run.wrong) - _MOST_SHOWN} more"] * (len(run.wrong) > _MOST_SHOWN)
            head = f"app {app.name!r} with seed {seed}: {len(run.wrong)} wrong"
            raise AssertionError("\n".join([head, *shown, *more, f"replay: {replay}"]))
        bad.update(simulation.set_aside() if not counted else ())
    if not counted:
        reasons = f": {'; '.join(sorted(bad)[:_MOST_SHOWN])}" if bad else ""
        raise AssertionError(f"app {app.name!r}: expected changes that count, came none under any seed{reasons}")


def _arguments(seed: int, faults: Faults | None, shards: int, delivery: str) -> str:
    options = {"faults": (faults, None), "shards": (shards, 2), "delivery": (delivery, "lanes")}
    more = [f", {name}={value!r}" for name, (value, default) in options.items() if value != default]
    return f"app, history, seeds=[{seed}]{''.join(more)}"
