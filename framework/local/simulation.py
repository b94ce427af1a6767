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
from framework.codec import Image
from framework.decode import Record
from framework.errors import ConfigurationError
from framework.filters import compile_filters
from framework.local.attempts import FunctionError, Throttled, Window, event_of
from framework.local.clock import Clock
from framework.local.faults import Chance, Faults, FaultyClient, Stopped
from framework.local.history import EXPIRY, WINDOW_SECONDS, Change, key_text, record_of, stream_arn
from framework.local.mapping import Mapping as EventSource
from framework.local.memory import MemoryDynamoDB
from framework.local.provision import create_table_request
from framework.local.recount import Recount, Seen, Wrong
from framework.local.settings import Settings
from framework.local.streams import Stream
from framework.runtime import Consumer

__all__ = ["Poller", "Run", "Simulation"]

_START = 1_517_443_190.0  # 2018-01-31T23:59:50Z
_TIMEOUT = 30.0
_LARGEST_BATCHES = (1, 2, 3, 5, 8, 13)
_PAUSES = (0.0, 0.0, 0.1, 1.0, 30.0, 500.0)  # between changes
_DAY = 24 * 3600.0
# A run takes some five steps a change; one that takes this many will not end.
_STEPS_A_CHANGE, _LEAST_STEPS = 60, 400


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a simulation.

    Attributes:
        wrong: Every item that is not what it has to be; empty if all is well.
        happened: How often each fault came.
        aggregates: How many aggregates there have to be.
        events: Invocations of the functions, those cut short too.
    """

    wrong: tuple[Wrong, ...]
    happened: Counter[str]
    aggregates: int
    events: int


@dataclass(frozen=True, slots=True)
class _Deployment:
    """What is made of an app once, for all its simulations."""

    tables: tuple[dict[str, Any], ...]
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
    return _Deployment(tuple(create_table_request(app, table) for table in app.tables), settings)


class Simulation:
    """One run of an app's consumers over a history, from empty tables.

    Args:
        app: The app.
        seed: Where all chance comes from.
        faults: How often each fault comes.
        shards: Open shards of each source table's stream at the start.

    Attributes:
        client: The tables, as a boto3 client shows them: for `Aggregation.get` and its like.
        clock: The time.
    """

    def __init__(self, app: App, *, seed: int, faults: Faults | None = None, shards: int = 2) -> None:
        self.app = app
        self.clock = Clock(_START)
        self.client = MemoryDynamoDB(clock=lambda: self.clock.now, metered=False, on_change=self._stream)
        self.chance = Chance(faults or Faults(), Random(seed))
        self.random = self.chance.random
        self.deployment = _deployed(app)
        for request in self.deployment.tables:
            self.client.create_table(**request)
        self._tables = {table.name: table for table in app.tables}
        self._streams = {
            name: Stream(stream_arn(self._tables[name]), shards=shards) for name in self.deployment.settings
        }
        self._change: Change | None = None
        self._seen: list[Seen] = []
        self._left: dict[str, dict[str, Image]] = {name: {} for name in self._tables}
        self._steps = 0
        self._first = {name: Poller(self, name) for name in self._streams}
        self._second: dict[str, Poller] = {}
        self._second_is_at_work = False
        self._checkpoints: dict[str, list[dict[str, int]]] = {name: [{}] for name in self._streams}
        self.events = 0

    def run(self, history: Iterable[Change]) -> Run:
        """Let a history happen, under faults; then let the faults stop, and all that is left be done.

        Args:
            history: What happens to items of the source tables, in order. What is `existing` comes first.

        Returns:
            What came of it.

        Raises:
            ConfigurationError: A change of a table that no aggregation reads.
            AssertionError: It did not come to an end, or records were lost.
            Exception: Whatever a consumer raised: simulated faults never make it raise.
        """
        log = logging.getLogger("streamfold")
        was_off, log.disabled = log.disabled, True  # hundreds of runs would fill it
        try:
            self._run(deque(history))
        except _BrokenError as broken:
            raise broken.error from None
        finally:
            log.disabled = was_off
        recount = Recount(self.app, self._seen)
        wrong = tuple(recount.wrong(self._items(), self._left))
        return Run(wrong, self.chance.happened, recount.aggregates, self.events)

    def _run(self, changes: deque[Change]) -> None:
        self._most_steps = _LEAST_STEPS + _STEPS_A_CHANGE * len(changes)
        while changes:
            if self.random.random() < 0.5 or not self._step():
                self._apply(changes.popleft())
            self._disturb()
        self._drain(faults=len(self._seen) * 4)
        for _ in range(self.random.randrange(4)):
            self._disturb()
        self.chance.on = False
        self._drain()
        if any(poller.source.lost or poller.source.discarded for poller in self._first.values()):
            raise AssertionError("simulation: expected every record to be done, came some lost")

    def stream(self, table: str) -> Stream:
        """The stream of a source table."""
        return self._streams[table]

    # -- what happens to the tables --

    def _apply(self, change: Change) -> None:
        table = change.table
        if table.name not in self._streams or self._tables[table.name] != table:
            names = ", ".join(map(repr, self._streams))
            raise ConfigurationError(f"history: expected a change of a source table ({names}), came {change}")
        self.clock.advance(self.random.choice(_PAUSES))
        self._change = change
        if change.kind in ("put", "existing"):
            self.client.put_item(TableName=table.name, Item=change.item)
        else:
            self.client.delete_item(TableName=table.name, Key=change.item)
        self._change = None
        if self.chance.strikes("split"):
            shards = [shard for shard in self._streams[table.name].shards if not shard.closed]
            self._streams[table.name].split(self.random.choice(shards))
        if self.chance.strikes("quiet"):
            self.chance.on = False
            self._drain()
            self.chance.on = True
            self.clock.advance(self.random.uniform(_DAY, 3 * _DAY))

    def _stream(self, name: str, old: Image | None, new: Image | None) -> None:
        """Put a write into its table's stream, whoever made it."""
        change, table = self._change, self._tables[name]
        if change is not None:
            key = key_text(table, new or old or {})
            if new is None:
                del self._left[name][key]
            else:
                self._left[name][key] = new
            if change.kind == "existing":
                return
        stream = self._streams.get(name)
        if stream is None:
            return
        record: Record = record_of(table, old, new)
        shard = stream.shard_of(key_text(table, new or old or {}))
        if change is not None:
            expiry = change.kind == "expire"
            self._seen.append(Seen(name, shard.shard_id, old, new, expiry))
            if expiry:
                record["userIdentity"] = EXPIRY
        shard.append(record, at=self.clock.now)

    # -- what the pollers do --

    def _step(self) -> bool:
        """Let one of the pollers do one thing; whether there was any to do at this time."""
        self._steps += 1
        if self._steps > self._most_steps:
            raise AssertionError(f"simulation: expected an end, came none after {self._steps} steps")
        names = list(self._first)
        at = self.random.randrange(len(names))
        return any(self._first[name].source.step() for name in names[at:] + names[:at])

    def _drain(self, faults: int | None = None) -> None:
        """Until every record is done, or as many steps under faults have been taken."""
        while faults is None or faults > 0:
            if not self._step():
                due = [due for poller in self._first.values() if (due := poller.source.due()) is not None]
                if not due:
                    return
                self.clock.wait_until(min(due))
            if faults is not None:
                faults -= 1
                self._disturb()

    def _disturb(self) -> None:
        """What may come after every step."""
        name = self.random.choice(list(self._first))
        first = self._first[name]
        if self.chance.on:
            self._checkpoints[name].append(first.source.checkpoints)
        if self.chance.strikes("deploy"):
            self._first[name] = Poller(self, name, first.source.checkpoints)
            if self.random.random() < 0.5:
                self._second[name] = first
        if self.chance.strikes("duplicate"):
            self._deliver_again(name)

    def second_poller(self) -> bool:
        """Let a second poller of some table take its turn; whether it did."""
        if self._second_is_at_work:
            return False
        name = self.random.choice(list(self._first))
        poller = self._second.get(name)
        if poller is None:
            poller = self._second[name] = Poller(self, name, self.random.choice(self._checkpoints[name]))
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
        shard = self.random.choice(self._streams[name].shards)
        places, _ = shard.batch(now=self.clock.now, most=10_000, most_bytes=2**62)
        entries = shard.entries(places)
        done = self._first[name].source.checkpoints.get(shard.shard_id, 0)
        before = bisect_right(entries, done, key=lambda entry: entry.sequence)
        if not before:
            return
        start = self.random.randrange(before)
        poller = self._first[name]
        run = entries[start : start + 1 + self.random.randrange(min(len(entries) - start, 16))]
        run = [entry for entry in run if poller.settings.passes(entry.record)]
        if run:
            window = Window.at(run[0].at, WINDOW_SECONDS)
            event = event_of(run, shard.stream_arn, shard.shard_id, window=window)
            try:
                poller.invoke(event, self.clock.now + _TIMEOUT)
            except (FunctionError, Throttled):
                pass

    def _items(self) -> dict[str, list[Image]]:
        found: dict[str, list[Image]] = {}
        for name in self._tables:
            start: dict[str, Any] = {}
            found[name] = []
            while True:
                page = self.client.scan(TableName=name, **start)
                found[name] += page["Items"]
                if "LastEvaluatedKey" not in page:
                    break
                start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
        return found


class Poller:
    """A mapping of one source table and the function that it invokes.

    Args:
        simulation: What it is part of.
        table: The source table's name.
        checkpoints: Where it begins.
    """

    def __init__(self, simulation: Simulation, table: str, checkpoints: Mapping[str, int] | None = None) -> None:
        self._simulation = simulation
        self._table = table
        self._consumer: Consumer | None = None
        self.settings = simulation.deployment.settings[table][simulation.random.choice(_LARGEST_BATCHES)]
        self.source = EventSource(
            self.settings,
            simulation.stream(table),
            self.invoke,
            simulation.clock,
            timeout=_TIMEOUT,
            checkpoints=checkpoints,
        )

    def invoke(self, event: dict[str, Any], deadline: float) -> object:
        """Lambda's invocation of the function: in the process that there is, or in a new one."""
        simulation = self._simulation
        if simulation.chance.strikes("not_invoked"):
            raise Throttled("Rate exceeded")
        if self._consumer is None or simulation.chance.strikes("restart"):
            self._start()
        assert self._consumer is not None
        simulation.events += 1
        self._client.deadline = deadline
        try:
            return self._consumer(event, _Context(simulation.clock, deadline))
        except Stopped as stopped:
            self._consumer = None
            raise stopped.error from None
        except Exception as error:
            raise _BrokenError(error) from error

    def _start(self) -> None:
        simulation, clock = self._simulation, self._simulation.clock
        self._client = FaultyClient(simulation.client, simulation.chance, clock, simulation.second_poller)
        self._consumer = Consumer(
            simulation.app,
            self._table,
            self._client,
            connections=1,
            now=lambda: clock.now,
            clock=lambda: clock.now,
            sleep=clock.sleep,
            jitter=simulation.random.uniform,
        )


class _BrokenError(BaseException):
    """A consumer raised an error. Unlike the error itself, this is no failed try to a mapping."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@dataclass(frozen=True, slots=True)
class _Context:
    """Lambda's context, as far as a consumer asks it."""

    clock: Clock
    deadline: float

    def get_remaining_time_in_millis(self) -> int:
        """The time left."""
        return int((self.deadline - self.clock.now) * 1000)
