"""Exactly once over HTTP: two emulators, each behind a proxy that throttles, breaks, and cuts replies off.

Consumers have the client that they have in Lambda, and its retries meet the protocols' conditions: a write whose reply
was cut off is made again by the SDK, without a word to us.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

import framework.deliver
import framework.deliver_ledger
from framework import StreamfoldError
from framework.quarantine import place_of
from framework.redrive import Quarantine
from tests.e2e.emulator import Ministack, Roto
from tests.e2e.faults import missing
from tests.e2e.history import CHARTED, MONTHS, History, Record, app, number_of
from tests.e2e.trial import CONTROL, Consume, Emulator, Trial, no_object

CONSUMERS = 8  # of a ledger
TRIES = 200  # of one poller's or one consumer's invocations


def attempt(consume: Consume, records: list[Record], shard: str | None = None) -> list[Record]:
    """Invoke a consumer once; the records that are done."""
    event = {"Records": records} if shard is None else {"Records": records, "shardId": shard}
    try:
        failures = consume(event)["batchItemFailures"]
    except StreamfoldError:
        return []
    return [each for each in records if not failures or number_of(each) < int(failures[0]["itemIdentifier"])]


class Shard:
    """A shard's records, and how many of them are known to be done."""

    def __init__(self, name: str, records: list[Record]) -> None:
        self.name, self.records, self.done = name, records, 0

    def deliver(self, consume: Consume, start: int, end: int) -> None:
        self.done = max(self.done, start + len(attempt(consume, self.records[start:end], self.name)))

    def follow(self, consume: Consume, random: Random) -> None:
        """Deliver to the end, now and then from an older place on."""
        for _ in range(TRIES):
            if self.done == len(self.records):
                return
            start = self.done if random.random() < 0.7 else random.randint(0, self.done)
            self.deliver(consume, start, self.done + random.randint(1, 60))
        raise AssertionError(f"{self.name}: expected to be done in {TRIES} invocations, came {self.done} records")

    def go_back(self, consume: Consume, random: Random) -> None:
        """Deliver old ranges, as a second poller with an older checkpoint."""
        for _ in range(4):
            start = random.randint(0, self.done)
            self.deliver(consume, start, start + random.randint(1, 60))


def deliver_by_lanes(trial: Trial, history: History, seed: int) -> None:
    """Three pollers a shard."""
    shards = [Shard(f"shard-{place}", records) for place, records in enumerate(history.shards)]
    pollers = [
        (f, Random(f"{seed} {n}")) for n, f in enumerate(f for s in shards for f in (s.follow, *[s.go_back] * 2))
    ]
    together([(f, trial.consumer("lanes", random), random) for f, random in pollers])


def deliver_by_ledger(trial: Trial, history: History, seed: int) -> None:
    """Consumers that take what they like of what is left, and some of what is not, after the beginning."""
    beginning = [r for begun, records in zip(history.begun, history.shards, strict=True) for r in records[:begun]]
    numbers = {number_of(record): record for record in history.records}
    left, lock = set(numbers), Lock()

    def begin(consume: Consume) -> None:
        for _ in range(TRIES):
            if attempt(consume, beginning) == beginning:
                return
        raise AssertionError("expected the beginning to be done, came no end")

    def take(consume: Consume, random: Random) -> None:
        for _ in range(TRIES):
            with lock:
                some = random.sample(sorted(left), min(len(left), 24))
            if not some:
                return
            chosen = [numbers[number] for number in {*some, *random.sample(sorted(numbers), 8)}]
            random.shuffle(chosen)
            done = attempt(consume, chosen)
            with lock:
                left.difference_update(map(number_of, done))
        raise AssertionError(f"expected all records to be done in {TRIES} invocations, came {len(left)} left")

    begin(trial.consumer("ledger", Random(seed)))
    takers = [Random(f"{seed} {n}") for n in range(CONSUMERS)]
    together([(take, trial.consumer("ledger", random), random) for random in takers])


WRITE = {"lanes": "UpdateItem", "ledger": "TransactWriteItems"}
DELIVER = {"lanes": deliver_by_lanes, "ledger": deliver_by_ledger}


def redrive(trial: Trial) -> None:
    """Redrive what is in quarantine until nothing is."""
    there = Quarantine(app, trial.client(), CONTROL, load=lambda name: b"", store=no_object)
    for _ in range(TRIES):
        try:
            items = [*there.open()]
            if not items:
                return
            for item in items:
                there.redrive(item)
        except (ClientError, BotoCoreError, ResponseParserError):
            continue  # whoever calls the command calls it again
    raise AssertionError(f"expected an empty quarantine, came {len(items)} entries")


def together(calls: list[tuple[Any, ...]]) -> None:
    """Make calls at once; raises what one of them raises."""
    with ThreadPoolExecutor(len(calls)) as pool:
        for future in [pool.submit(*call) for call in calls]:
            future.result()


@pytest.fixture
def seed() -> int:
    """The history's seed, the pollers' and the proxy's. Which thread comes first is not in it."""
    found = int(os.environ.get("STREAMFOLD_FAULT_SEED") or 20180115)
    print(f"STREAMFOLD_FAULT_SEED={found}")
    return found


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
@pytest.mark.parametrize("emulator", [Ministack, Roto])
def test_every_record_counts_once_whatever_breaks(
    emulator: Emulator, delivery: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(Random(seed), 200)
    with Trial(emulator, seed, tmp_path, monkeypatch) as trial:
        trial.take()
        DELIVER[delivery](trial, history, seed)
        assert trial.counts() == history.recount()
        assert {place_of(entry["sk"]["S"]) for entry in trial.entries()} == history.bad()
        trial.mend()
        together([(redrive, trial), (redrive, trial)])
        assert trial.counts() == history.recount(mended=True)
        for month in MONTHS:
            plays = {a: v["Plays"] for (n, a, m), v in trial.counts().items() if (n, m) == ("artists", month)}
            ranking = trial.ranking(month)
            charted = {artist: count for artist, count in plays.items() if count >= CHARTED}
            assert dict(ranking) == charted
            assert [count for _, count in ranking] == sorted(charted.values(), reverse=True)
        assert {"done" in entry for entry in trial.entries()} == {True}
        assert missing(trial.proxy.fired, WRITE[delivery]) == set()
        assert any(operation == "TransactWriteItems" for operation, _ in trial.proxy.fired)


def without_condition(request: Callable[..., Any]) -> Callable[..., Any]:
    """An update that does not ask where the lane stands."""

    def bare(*arguments: Any) -> Any:
        found = request(*arguments)
        # Always true, for what stands there is longer.
        return {**found, "ConditionExpression": found["ConditionExpression"].replace("#lane <", "NOT #lane =")}

    return bare


def without_markers(actions: Callable[..., Any]) -> Callable[..., Any]:
    """A transaction without what makes that a record is settled once."""
    return lambda posting, *arguments: actions(posting, *arguments)[len(posting.guards) :]


@pytest.mark.parametrize(
    ("delivery", "module", "name", "plant"),
    [
        ("lanes", framework.deliver, "request", without_condition),
        ("ledger", framework.deliver_ledger, "actions", without_markers),
    ],
)
def test_a_protocol_without_its_guard_is_caught(
    delivery: str, module: Any, name: str, plant: Any, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, plant(getattr(module, name)))
    history = History(Random(seed), 60)
    with Trial(Roto, seed, tmp_path, monkeypatch) as trial:
        DELIVER[delivery](trial, history, seed)
        found, expected = trial.counts(), history.recount()
    assert {place for place in found if found[place] != expected.get(place)}
