"""A run of an app under faults, all of it out of one seed.

    Simulation(app, seed=17).run(history).wrong        -> the aggregates that are not what they have to be

The consumers, the mappings, their filters and the tables' engine are those that a deployment on this machine has; the
clock is simulated. Nothing runs beside anything else: a second poller takes its turn inside the first one's calls to
DynamoDB. So one seed gives one run, bit for bit.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from framework.app import App
from framework.consumer import Consumer
from framework.control import Control
from framework.deliver_archive import Bucket
from framework.filters import compile_filters
from framework.local.archived import Archived
from framework.local.clock import Clock
from framework.local.entries import Entries
from framework.local.faults import Chance, Faults
from framework.local.faulty import Broken, Poller
from framework.local.history import WINDOW_SECONDS, Change
from framework.local.objects import MemoryObjects, Together
from framework.local.recount import Recount, Wrong
from framework.local.settings import Settings
from framework.local.world import CONTROL, World, table_requests

__all__ = ["Run", "Simulation"]

_ARCHIVE = "streamfold-archive"
_START = 1_517_443_190.0  # 2018-01-31T23:59:50Z
_LARGEST_BATCHES = (1, 2, 3, 5, 8)  # fewer than the bad records that make a batch wait (`fold.py`)
_PAUSES = (0.0, 0.0, 0.1, 1.0, 10.0, 200.0)  # between changes
_DAY = 24 * 3600.0
_LONGEST_RANGE = 16  # of records that come again together
# A run takes some five steps a change; one that takes this many will not end.
_STEPS_A_CHANGE, _LEAST_STEPS = 60, 400


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a simulation.

    Attributes:
        wrong: Every item that is not what it has to be; empty if all is well.
        happened: How often each fault came.
        aggregates: How many aggregates there have to be.
        entries: How many items have to have an entry in a sparse index, for each of them.
        archived: How many items have to be in the archives.
    """

    wrong: tuple[Wrong, ...]
    happened: Counter[str]
    aggregates: int
    entries: int = 0
    archived: int = 0


@dataclass(frozen=True, slots=True)
class _Deployment:
    """What is made of an app once, for all its simulations."""

    tables: tuple[dict[str, Any], ...]  # requests to make them
    settings: Mapping[str, Mapping[int, Settings]]


@lru_cache(maxsize=16)
def _deployed(app: App) -> _Deployment:
    settings = {}
    for source in dict.fromkeys(declaration.source.name for declaration in app.declarations):
        filters = compile_filters(app.sourced_from(source)).patterns
        settings[source] = {
            size: Settings(
                batch_size=size,
                batching_window=size % 2,
                tumbling_window=WINDOW_SECONDS,
                bisect=True,
                report_failures=True,
                filters=filters,
            )
            for size in _LARGEST_BATCHES
        }
    return _Deployment(table_requests(app), settings)


class Simulation:
    """One run of an app's consumers over a history, from empty tables.

    Args:
        app: The app.
        seed: Where all chance comes from.
        faults: How often each fault comes; those of `Faults()` if not given.
        shards: Open shards of each source table's stream at the start, 1 or more.
        delivery: The protocol: `"lanes"` or `"ledger"`.

    Attributes:
        client: The tables, as a boto3 client shows them: for `Aggregation.get` and its like.
        objects: The bucket of the archives, as a boto3 S3 client shows it.
        clock: The time.
    """

    def __init__(
        self, app: App, *, seed: int, faults: Faults | None = None, shards: int = 2, delivery: str = "lanes"
    ) -> None:
        self._app = app
        self._delivery = delivery
        self._deployment = _deployed(app)
        self.clock = Clock(_START)
        self._world = World(
            app.tables, self._deployment.tables, tuple(self._deployment.settings), self.clock, shards=shards
        )
        self.client = self._world.client
        self.objects = MemoryObjects(lambda: self.clock.now)
        self._chance = Chance(faults or Faults(), Random(seed))
        self._random = self._chance.random
        self._names = list(self._world.streams)
        self._objects: dict[str, bytes] = {}
        self._steps = 0
        self._most_steps = 0
        self._first = {name: self._poller(name) for name in self._names}
        self._second: dict[str, Poller] = {}
        self._second_is_at_work = False
        self._checkpoints: dict[str, list[dict[str, int]]] = {name: [{}] for name in self._names}

    def run(self, history: Iterable[Change]) -> Run:
        """Let a history happen, under faults; then let the faults stop, and all that is left be done.

        Args:
            history: What happens to items of the source tables, in order. What is `existing` comes first.

        Returns:
            What came of it.

        Raises:
            ConfigurationError: A change of a table that no handler reads.
            AssertionError: It did not come to an end, or records were lost.
            Exception: Whatever a consumer raised: simulated faults never make it raise.
        """
        log = logging.getLogger("streamfold")
        was_off, log.disabled = log.disabled, True  # hundreds of runs would fill it
        try:
            self._run(deque(history))
        except Broken as broken:
            raise broken.error from None
        finally:
            log.disabled = was_off
        recount = Recount(self._app, self._world.seen, by_item=self._delivery == "ledger")
        entries = Entries(self._app, self._world.seen)
        archived = Archived(self._app, self._world.seen)
        wrong = [
            *recount.wrong(self._world.items(), entries.items(self._world.left)),
            *entries.wrong_writes(self._world.written),
            *archived.wrong(self.objects.objects),
        ]
        counted = entries.count(self._world.left)
        return Run(tuple(wrong), self._chance.happened, recount.aggregates, counted, archived.items)

    def set_aside(self) -> list[str]:
        """Why records were set aside, each reason once."""
        items = self.client.scan(TableName=CONTROL)["Items"]
        return sorted({item["reason"]["S"] for item in items if "reason" in item})

    def _run(self, changes: deque[Change]) -> None:
        self._most_steps = _LEAST_STEPS + _STEPS_A_CHANGE * len(changes)
        while changes:
            if self._random.random() < 0.5 or not self._step():
                self._apply(changes.popleft())
            self._disturb()
        self._drain(steps=_LEAST_STEPS)
        for _ in range(self._random.randrange(4)):
            self._disturb()
        self._quieten()
        if any(poller.source.lost or poller.source.discarded for poller in self._first.values()):
            raise AssertionError("simulation: expected every record to be done, came some lost")

    def _apply(self, change: Change) -> None:
        self.clock.advance(self._random.choice(_PAUSES))
        self._world.apply(change)
        if self._chance.strikes("split"):
            stream = self._world.streams[change.table.name]
            stream.split(self._random.choice([shard for shard in stream.shards if not shard.closed]))
        if self._chance.strikes("quiet"):
            self._quieten()
            self._chance.on = True
            self._second.clear()  # nobody holds records for so long: they live for a day
            self.clock.advance(self._random.uniform(_DAY, 3 * _DAY))

    def _step(self) -> bool:
        """Let one of the pollers do one thing; whether there was any to do at this time."""
        self._steps += 1
        if self._steps > self._most_steps:
            lanes = [lane for poller in self._first.values() for lane in poller.source.lanes if lane.reason]
            reasons = "; ".join(f"{lane.shard.shard_id}: {lane.reason}" for lane in lanes)
            raise AssertionError(f"simulation: expected an end, came none after {self._steps} steps: {reasons}")
        at = self._random.randrange(len(self._names))
        return any(self._first[name].source.step() for name in self._names[at:] + self._names[:at])

    def _drain(self, *, steps: int | None = None) -> None:
        """Until every record is done, or so many steps under faults have been taken."""
        while steps is None or steps > 0:
            if not self._step():
                if all(map(self._is_done, self._names)):
                    return
                due = [due for poller in self._first.values() if (due := poller.source.due()) is not None]
                self.clock.wait_until(min(due))
            if steps is not None:
                steps -= 1
                self._disturb()

    def _is_done(self, name: str) -> bool:
        """Whether every record is done; that a window has still to end matters to no aggregate."""
        done = self._first[name].source.checkpoints
        shards = self._world.streams[name].shards
        return all(shard.first(done.get(shard.shard_id, 0), now=self.clock.now) is None for shard in shards)

    def _quieten(self) -> None:
        """Let the faults stop, and all that is left be done."""
        self._chance.on = False
        while self._chance.late:
            self._chance.late.pop()()
        self._drain()

    def _disturb(self) -> None:
        """What may come after every step."""
        name = self._random.choice(self._names)
        first = self._first[name]
        if self._chance.on:
            self._checkpoints[name].append(first.source.checkpoints)
        if self._chance.strikes("deploy"):
            self._first[name] = self._poller(name, first.source.checkpoints)
            if self._random.random() < 0.5:
                self._second[name] = first
        if self._chance.strikes("duplicate"):
            self._deliver_again(name)

    def _poller(self, name: str, checkpoints: Mapping[str, int] | None = None) -> Poller:
        settings = self._deployment.settings[name][self._random.choice(_LARGEST_BATCHES)]
        return Poller(
            self._world.streams[name],
            settings,
            self.clock,
            self._chance,
            lambda client: self._consumer(name, client),
            client=Together(self.client, self.objects) if self._app.archives else self.client,
            meanwhile=self._second_poller,
            checkpoints=checkpoints,
        )

    def _consumer(self, name: str, client: Any) -> Consumer:
        options: dict[str, Any] = {
            "connections": 1,
            "now": lambda: self.clock.now,
            "clock": lambda: self.clock.now,
            "sleep": self.clock.sleep,
            "jitter": self._random.uniform,
        }
        control = Control(client, CONTROL, self._objects.__setitem__, **options)
        bucket = Bucket(lambda: client, _ARCHIVE)
        return Consumer(self._app, name, client, control=control, bucket=bucket, delivery=self._delivery, **options)

    def _second_poller(self) -> bool:
        """Let a second poller of some table take its turn; whether it did."""
        if self._second_is_at_work:
            return False
        name = self._random.choice(self._names)
        poller = self._second.get(name)
        if poller is None:
            poller = self._second[name] = self._poller(name, self._random.choice(self._checkpoints[name]))
        self._second_is_at_work = True
        try:
            took = poller.source.step()
        finally:
            self._second_is_at_work = False
        if not took:
            del self._second[name]
        return took

    def _deliver_again(self, name: str) -> None:
        """Any range of a shard's records that begins among those done, as a poller with an older checkpoint would."""
        shard = self._random.choice(self._world.streams[name].shards)
        places, _ = shard.batch(now=self.clock.now, most=10_000, most_bytes=2**62)
        entries = shard.entries(places)
        done = self._first[name].source.checkpoints.get(shard.shard_id, 0)
        before = bisect_right(entries, done, key=lambda entry: entry.sequence)
        if before:
            start = self._random.randrange(before)
            self._first[name].deliver(shard, entries[start : start + self._random.randint(1, _LONGEST_RANGE)])
