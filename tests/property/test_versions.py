"""Deployments, overlapping invocations and batches given up on: every record is counted once, or left to a person."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from botocore.exceptions import ClientError

from framework import Aggregation, AllTime, App, Count, Sum, control
from framework.consumer import Consumer
from framework.control import Control
from framework.deliver_ledger import LedgerDelivery
from framework.failures import failure_of
from framework.ledger import Posting
from framework.redrive import Quarantine
from framework.refused import Refused
from framework.turns import Turn, counted
from tests.unit.stream import event, record
from tests.unit.test_quarantine import Weights, music, no_object, tables
from tests.unit.test_redrive import failed

NOW = 1_600_000_000
SONGS = "ab"
ITEMS = 8
RUNS = 40
MOST_RUNS = 1000


def version(number: int) -> App:
    """The app as deployed: the second version finds half of the items bad, and the others do not."""

    class Versioned(Aggregation):
        """What `Weights` counts, in a table of the same name."""

        name = "weights"
        source = music
        target = Weights.target
        window = AllTime()
        Items = Count()
        Weight = Sum("weight")

        @staticmethod
        def group_by(item: dict[str, Any]) -> str:
            if number == 2 and item["item"] % 2:
                raise KeyError("a slip of the pen")
            return str(item["songID"])

    return App("weights", [Versioned])


APPS = {number: version(number) for number in (1, 2, 3)}


class Stopped(BaseException):
    """The process is gone."""


class World:
    """A stream of inserts and deletes, its checkpoint, and what Lambda gave up on."""

    def __init__(self, seed: int, delivery: str) -> None:
        self.random = Random(seed)
        self.delivery = delivery
        self.engine = tables()
        self.depth = 0
        self.done = 0  # records that Lambda will not bring again as new
        self.checkpoints = [0]  # where a delivery may begin
        self.failures: list[str] = []
        self.deployed = 1
        self.processes: dict[int, Consumer] = {}
        self.records: list[dict[str, Any]] = []
        self.expected = [0] * ITEMS
        created, alive = NOW - 10_000.0, list[int]()
        for number in range(1, 2 * ITEMS + 1):
            new = [n for n in range(ITEMS) if n not in alive and self.expected[n] == 0]
            if alive and (not new or self.random.random() < 0.4):
                item = alive.pop(self.random.randrange(len(alive)))
                self.expected[item] = -1
                change = record(number, old=self.image(item))
            elif new:
                item = self.random.choice(new)
                alive.append(item)
                self.expected[item] = 1
                change = record(number, new=self.image(item))
            else:
                break
            created += self.random.choice((0, 1, 5, 30))
            change["dynamodb"]["ApproximateCreationDateTime"] = created
            self.records.append(change)
        self.expected = [max(0, count) for count in self.expected]

    def image(self, item: int) -> dict[str, dict[str, Any]]:
        return {
            "songID": {"S": SONGS[item // 4]},
            "SK": {"S": f"download-{item}"},
            "item": {"N": str(item)},
            "weight": {"N": str(10**item)},
        }

    def __getattr__(self, operation: str) -> Any:
        """The client of every process: it may fail, be the last that a process does, or wait for another process."""

        def call(**arguments: Any) -> Any:
            strike = self.random.random()
            if strike < 0.04:
                raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, operation)
            if strike < 0.12 and self.depth < 2:
                self.deliver_again()
            answer = getattr(self.engine, operation)(**arguments)
            if strike > 0.96:
                raise Stopped
            if strike > 0.88 and self.depth < 2:
                self.deliver_again()
            return answer

        return call

    def deliver(self, first: int, last: int) -> bool:
        """Bring a range to a process of some version that may be at work still; whether it is done."""
        number = max(1, self.deployed - self.random.randrange(2))
        if number not in self.processes or self.random.random() < 0.3:
            control = Control(self, "control", no_object, connections=1, version=str(number), now=lambda: NOW)
            self.processes[number] = Consumer(
                APPS[number],
                "MusicLibrary",
                self,
                control=control,
                delivery=self.delivery,
                connections=1,
                now=lambda: NOW,
                sleep=lambda seconds: None,
            )
        self.depth += 1
        try:
            response = self.processes[number](event(*self.records[first:last]))
        except (Stopped, ClientError):
            return False
        finally:
            self.depth -= 1
        return response["batchItemFailures"] == []

    def deliver_again(self) -> None:
        """As a poller with an older checkpoint would, or with the same one at the same time."""
        first = self.random.choice(self.checkpoints)
        if first < len(self.records):
            self.deliver(first, min(len(self.records), first + self.random.randint(1, 5)))

    def run(self) -> None:
        while self.done < len(self.records):
            if self.random.random() < 0.2 and self.deployed < 3:
                self.deployed += 1
            last = min(len(self.records), self.done + self.random.randint(1, 5))
            if self.deliver(self.done, last):
                self.done = last
            elif self.random.random() < 0.3:
                self.failures.append(failed(*self.records[self.done : last]))
                self.done = last
                self.checkpoints.clear()  # from now on only redrive brings these
            self.checkpoints.append(self.done)
            if self.random.random() < 0.4:
                self.deliver_again()
        self.deployed = 3

    def redrive(self) -> None:
        """Batches first, oldest first, then entries, until nothing more can be done without a person."""
        there = Quarantine(APPS[3], self, "control", load=lambda name: b"", store=no_object, now=lambda: NOW)
        for failure in self.failures:
            for _ in range(60):
                try:
                    if there.redrive_batch(failure_of("f", failure), None).done:
                        break
                except Stopped:
                    pass
            else:
                raise AssertionError("expected an end, came none")
        for _ in range(60):
            try:
                left = [one for one in there.redrive_all([*there.open()]) if not one.done]
                if all(one.reason.startswith("uncertain") for one in left):
                    return
            except (Stopped, ClientError):
                pass
        raise AssertionError("expected an end, came none")

    def counted(self) -> list[int]:
        """How often each item is in the sums: weights are powers of ten, and no item is 5 times too much or too few."""
        found = [Weights.get(song, "all", client=self.engine) for song in SONGS]
        total = sum(int(one["Weight"] or 0) for one in found if one is not None)
        return [int(digit) - 5 for digit in reversed(f"{total + int('5' * ITEMS):0{ITEMS}d}")]


def wrong(seed: int, delivery: str) -> tuple[list[str], int]:
    """What is counted wrong after a run, and how many items are left to a person."""
    world = World(seed, delivery)
    world.run()
    world.redrive()
    for world.deployed in (1, 2, 3):  # a late duplicate of everything
        world.deliver(0, len(world.records))
    world.redrive()
    uncertain: dict[int, set[str]] = {}
    for entry in world.engine.scan(TableName="control")["Items"]:
        if entry["pk"] == {"S": "quarantine"} and "done" not in entry:
            item = int(entry["key"]["S"].rpartition("-")[2].rstrip("'"))
            uncertain.setdefault(item, set()).add(entry["image"]["S"])
    found = []
    for item, (count, expected) in enumerate(zip(world.counted(), world.expected, strict=True)):
        least = expected - ("NewImage" in uncertain.get(item, ()))
        most = expected + ("OldImage" in uncertain.get(item, ()))
        if not least <= count <= most:
            found.append(f"seed {seed}, {delivery}: item {item}: expected {least} to {most}, came {count}")
    return found, len(uncertain)


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
@pytest.mark.parametrize("chunk", range(4))
def test_each_record_is_counted_once_by_whichever_version_or_left_to_a_person(delivery: str, chunk: int) -> None:
    asked = 0
    for seed in range(chunk * RUNS, (chunk + 1) * RUNS):
        found, uncertain = wrong(seed, delivery)
        assert found == []
        asked += uncertain
    assert asked < RUNS * ITEMS / 2
    assert (asked > 0) is (delivery == "lanes")


def with_the_turn_taken_by_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Turn, "alone", lambda self, at: True)


def with_entries_whoevers_turn_it_is(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(control, "counted", lambda table, prefix, entries, turn=None: counted(table, prefix, entries))


def with_entries_that_nobody_looks_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(control.Control, "owned", lambda self, prefix, first: {})


def with_entries_beside_the_transaction(patch: pytest.MonkeyPatch) -> None:
    apply = LedgerDelivery._apply

    def careless(self: LedgerDelivery, job: Posting, outcome: Any, terms: Any) -> None:
        for action in job.others.values():
            if "Put" in action:
                with suppress(ClientError):
                    self._client.put_item(**action["Put"])
        apply(self, replace(job, others={}), outcome, terms)

    patch.setattr(LedgerDelivery, "_apply", careless)


def with_what_is_refused_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Refused, "_read", lambda self: {})


FAULTS = [
    (with_the_turn_taken_by_nobody, "lanes"),
    (with_entries_whoevers_turn_it_is, "lanes"),
    (with_entries_that_nobody_looks_for, "lanes"),
    (with_entries_beside_the_transaction, "ledger"),
    (with_what_is_refused_forgotten, "lanes"),
    (with_what_is_refused_forgotten, "ledger"),
]


@pytest.mark.parametrize(("fault", "delivery"), FAULTS)
def test_a_planted_fault_is_found(
    fault: Callable[[pytest.MonkeyPatch], None], delivery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with suppress(AssertionError):  # a run that comes to no end is found, too
        assert any(wrong(seed, delivery)[0] for seed in range(MOST_RUNS)) or pytest.fail("the fault was not found")
