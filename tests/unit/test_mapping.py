"""The event source mapping: a table of cases for each rule of Lambda's, and a day of the real consumer behind it."""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from framework.consumer import Consumer
from framework.errors import ConfigurationError
from framework.local.clock import Clock
from framework.local.mapping import FunctionError, InvocationRecord, Mapping, Settings, Throttled, TimedOut
from framework.local.memory import MemoryDynamoDB
from framework.local.provision import create_table_request
from framework.local.streams import Entry, Shard, Stream
from framework.manifest import manifest
from handlers.app import app
from tests.unit.stream import ARN

START = 1_514_764_800.0  # 2018-01-01T00:00:00Z
DAY = 24 * 3600.0
MEGABYTE = 1024 * 1024

Answer = Any  # what the function answers, or an exception that it raises, or a function of the event


class World:
    """A stream and a mapping whose function gives these answers in turn, then a success.

    Records are called by their place in the order in which they were put, from 1.
    """

    def __init__(
        self, *answers: Answer, count: int = 0, shards: int = 1, checkpoints: dict[str, int] | None = None, **of: Any
    ) -> None:
        self.clock = Clock(START)
        self.stream = Stream(ARN, shards=shards)
        self.answers = list(answers)
        self.events: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.deadlines: list[float] = []
        self.entries: list[Entry] = []
        self.names: dict[str, int] = {}
        self.letters: list[InvocationRecord] = []
        settings = Settings(**of)
        destination = None if settings.destination is None else self.letters.append
        self.mapping = Mapping(
            settings, self.stream, self.function, self.clock, destination=destination, checkpoints=checkpoints
        )
        self.put(count)

    def put(self, count: int = 1, *, shard: Shard | None = None, kind: str = "a", weight: int = 0) -> None:
        for _ in range(count):
            image = {"id": {"S": str(len(self.entries))}, "kind": {"S": kind}, "filler": {"S": "x" * weight}}
            record = {"eventName": "INSERT", "dynamodb": {"Keys": {"id": image["id"]}, "NewImage": image}}
            self.entries.append((shard or self.stream.shards[0]).append(record, at=self.clock.now))
            self.names[str(self.entries[-1].sequence)] = len(self.entries)

    def function(self, event: dict[str, Any], deadline: float) -> object:
        self.events.append(event)
        self.times.append(self.clock.now - START)
        self.deadlines.append(deadline - self.clock.now)
        answer = self.answers.pop(0) if self.answers else {"state": event.get("state")}
        if isinstance(answer, Exception):
            raise answer
        return answer(event) if callable(answer) else answer

    def number(self, name: int) -> str:
        return str(self.entries[name - 1].sequence)

    @property
    def runs(self) -> list[list[int]]:
        """The records of each invocation."""
        return [[self.names[r["dynamodb"]["SequenceNumber"]] for r in event["Records"]] for event in self.events]

    @property
    def done(self) -> int:
        """The last record that is done of the first shard."""
        return self.names.get(str(self.mapping.lanes[0].checkpoint), 0)

    def flags(self) -> list[str]:
        """What each invocation is in its window: f for final, e for terminated early, - for neither."""
        names = {(False, False): "-", (True, False): "f", (False, True): "e", (True, True): "fe"}
        return [names[e["isFinalInvokeForWindow"], e["isWindowTerminatedEarly"]] for e in self.events]


def reporting(*names: int, **more: Any) -> Callable[[dict[str, Any]], Any]:
    """An answer that reports the records at these places of the batch."""

    def answer(event: dict[str, Any]) -> dict[str, Any]:
        numbers = [event["Records"][name]["dynamodb"]["SequenceNumber"] for name in names]
        return {"batchItemFailures": [{"itemIdentifier": number} for number in numbers], **more}

    return answer


def bad(world: World, *names: int) -> Callable[[dict[str, Any]], Any]:
    """An answer that fails wherever one of these records is in the batch."""

    def answer(event: dict[str, Any]) -> Any:
        if {world.number(name) for name in names} & {r["dynamodb"]["SequenceNumber"] for r in event["Records"]}:
            raise FunctionError("bad record")
        return {"state": {}}

    return answer


# -- settings --


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("batch_size", (1, 10_000), (0, 10_001, 1.0, True, None, "1")),
        ("batching_window", (0, 300), (-1, 301)),
        ("tumbling_window", (0, 900), (-1, 901)),
        ("parallelization", (1,), (0, 2, True)),
        ("retries", (-1, 0, 10_000), (-2, 10_001)),
        ("max_age", (-1, 60, 604_800), (-2, 0, 59, 604_801, True)),
        ("bisect", (False, True), (None, 1)),
        ("report_failures", (False, True), (None, 0)),
        (
            "filters",
            ((), ({"eventName": ["INSERT"]},), ({"eventName": ["INSERT"]},) * 10),
            ([], ({},), ({"eventName": "INSERT"},), ("{}",), ({"eventName": ["INSERT"]},) * 11),
        ),
        ("destination", (None, "s3", "sqs"), ("sns", "", 1)),
    ],
)
def test_settings_that_lambda_would_refuse_are_named(name: str, right: Any, wrong: Any) -> None:
    for value in right:
        assert getattr(Settings(**{name: value}), name) == value
    for value in wrong:
        with pytest.raises(ConfigurationError, match=f"^Settings: {name}: .*expected .*came "):
            Settings(**{name: value})


def test_a_destination_is_needed_where_the_settings_name_one_and_only_there() -> None:
    clock, stream = Clock(), Stream(ARN)
    for kind, given in [("s3", None), (None, print)]:
        with pytest.raises(ConfigurationError, match="Mapping: destination: expected"):
            Mapping(Settings(destination=kind), stream, print, clock, destination=given)  # type: ignore[arg-type]


# -- batches --


@pytest.mark.parametrize(
    ("size", "count", "expected"),
    [
        (100, 0, []),
        (100, 3, [[1, 2, 3]]),
        (3, 3, [[1, 2, 3]]),
        (2, 5, [[1, 2], [3, 4], [5]]),
        (1, 3, [[1], [2], [3]]),
    ],
)
def test_batches_have_up_to_a_number_of_records(size: int, count: int, expected: list[list[int]]) -> None:
    world = World(count=count, batch_size=size)
    world.mapping.run()
    assert world.runs == expected
    assert world.done == count
    assert not world.mapping.step()
    assert world.clock.now == START


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([2.5, 2.5, 2.5], [[1, 2], [3]]),
        ([0.5, 7, 0.5], [[1], [2], [3]]),  # more than the service's largest record, but never stuck
        ([1.0] * 7, [[1, 2, 3, 4, 5], [6, 7]]),  # what is around an image counts
    ],
)
def test_batches_have_up_to_six_megabytes_of_json(weights: list[float], expected: list[list[int]]) -> None:
    world = World()
    for weight in weights:
        world.put(weight=int(weight * MEGABYTE))
    world.mapping.run()
    assert world.runs == expected
    for event in world.events:
        assert len(event["Records"]) == 1 or len(json.dumps(event, separators=(",", ":"))) <= 6 * MEGABYTE


def test_an_event_without_a_window_has_records_only_and_a_deadline() -> None:
    world = World(count=1)
    world.mapping.run()
    assert world.events == [{"Records": [world.entries[0].record]}]
    assert world.deadlines == [60.0]


def test_a_step_does_one_thing_and_lets_no_time_pass() -> None:
    world = World(RuntimeError("no"), count=3, batch_size=2)
    assert [world.mapping.step() for _ in range(3)] == [True, False, False]
    assert (world.runs, world.mapping.due(), world.clock.now) == ([[1, 2]], START + 1, START)
    world.clock.advance(1)
    assert [world.mapping.step() for _ in range(3)] == [True, True, False]
    assert (world.runs, world.mapping.due()) == ([[1, 2], [1, 2], [3]], None)


def test_a_batch_waits_for_its_window_from_its_first_record_on() -> None:
    world = World(batching_window=10, batch_size=3)
    mapping, clock = world.mapping, world.clock
    world.put()
    clock.advance(9)
    world.put()
    assert (mapping.step(), mapping.due()) == (False, START + 10)
    clock.advance(1)
    assert (mapping.step(), world.runs) == (True, [[1, 2]])
    world.put(3)  # a full one does not wait
    assert (mapping.step(), world.runs[1:]) == (True, [[3, 4, 5]])
    world.put()
    mapping.run()
    assert (world.runs[2:], world.times) == ([[6]], [10, 10, 20])


def test_a_batching_window_begins_once_the_function_is_free() -> None:
    world = World(batching_window=10, batch_size=2)

    def slow(event: dict[str, Any]) -> None:
        world.clock.advance(5)
        world.put()
        world.clock.advance(20)

    world.answers = [slow]
    world.put(2)
    world.mapping.run()
    assert (world.runs, world.times) == ([[1, 2], [3]], [0, 35])


def test_a_shard_that_has_split_has_no_more_to_wait_for() -> None:
    world = World(count=1, batching_window=300)
    world.stream.split(world.stream.shards[0])
    assert world.mapping.step()
    assert world.runs == [[1]]


# -- filters --

ONLY_A = ({"dynamodb": {"NewImage": {"kind": {"S": ["a"]}}}}, {"eventName": ["REMOVE"]})


@pytest.mark.parametrize(
    ("kinds", "expected", "done"),
    [
        ("aaa", [[1, 2, 3]], 3),
        ("aba", [[1, 3]], 3),
        ("baab", [[2, 3]], 4),
        ("bbb", [], 3),
        ("bbbbbba", [[7]], 7),
        ("bbbbbbaab", [[7, 8]], 9),
        ("bbbbbb", [], 6),
    ],
)
def test_records_held_back_are_not_sent_and_are_done(kinds: str, expected: list[list[int]], done: int) -> None:
    world = World(filters=ONLY_A, batch_size=6)
    for kind in kinds:
        world.put(kind=kind)
    world.mapping.run()
    assert (world.runs, world.done) == (expected, done)


def test_a_record_held_back_before_one_that_fails_is_done_with_the_batch_only() -> None:
    world = World(RuntimeError("no"), filters=ONLY_A)
    for kind in "bab":
        world.put(kind=kind)
    world.mapping.step()
    assert world.done == 0
    world.mapping.run()
    assert (world.runs, world.done) == ([[2], [2]], 3)


# -- windows --


def test_windows_are_aligned_to_the_epoch_and_carry_their_state() -> None:
    world = World(*[{"state": {"n": n}} for n in range(1, 6)], tumbling_window=900)
    for moment in (100, 400, 899, 900):
        world.mapping.run(until=START + moment)
        world.put()
    world.mapping.run()
    first = {"start": "2018-01-01T00:00:00Z", "end": "2018-01-01T00:15:00Z"}
    second = {"start": "2018-01-01T00:15:00Z", "end": "2018-01-01T00:30:00Z"}
    assert world.runs == [[1], [2], [3], [], [4], []]
    assert world.times == [100, 400, 899, 900, 900, 1800]
    assert [event["window"] for event in world.events] == [first] * 4 + [second] * 2
    assert [event["state"] for event in world.events] == [{}, {"n": 1}, {"n": 2}, {"n": 3}, {}, {"n": 5}]
    assert world.flags() == ["-", "-", "-", "f", "-", "f"]
    assert {event["shardId"] for event in world.events} == {world.stream.shards[0].shard_id}
    assert {event["eventSourceARN"] for event in world.events} == {ARN}


def test_a_record_is_of_the_window_in_which_it_came_and_the_last_batch_of_one_is_final() -> None:
    world = World(tumbling_window=60, batch_size=2)
    for wait in (0, 10, 20, 40, 200):  # 0, 10, 30 | 70 | 270
        world.clock.advance(wait)
        world.put()
    world.mapping.run()
    assert world.runs == [[1, 2], [3], [4], [5], []]
    assert world.flags() == ["-", "f", "f", "-", "f"]
    assert [event["window"]["start"][11:19] for event in world.events] == [
        "00:00:00",
        "00:00:00",
        "00:01:00",
        "00:04:00",
        "00:04:00",
    ]
    assert world.times == [270, 270, 270, 270, 300]


def test_a_batching_window_ends_with_the_window() -> None:
    world = World(tumbling_window=60, batching_window=300)
    world.clock.advance(50)
    world.put()
    world.mapping.run()
    assert (world.runs, world.times, world.flags()) == ([[1]], [60], ["f"])


def test_a_window_with_nothing_but_records_held_back_is_none() -> None:
    world = World(tumbling_window=60, filters=ONLY_A)
    world.put(kind="b")
    world.mapping.run()
    assert (world.events, world.done, world.clock.now) == ([], 1, START)


def test_records_held_back_at_the_end_of_a_window_leave_its_end_without_records() -> None:
    world = World(tumbling_window=60, filters=ONLY_A, batch_size=1)
    for kind in "ab":
        world.put(kind=kind)
    world.clock.advance(100)
    world.mapping.run()
    assert (world.runs, world.flags()) == ([[1], []], ["-", "f"])


def test_a_window_whose_end_fails_holds_the_shard_up() -> None:
    world = World({"state": 1}, FunctionError("no"), {"oh": 1}, tumbling_window=60, count=1)
    world.mapping.run(until=START + 60)
    world.put()
    world.mapping.run(until=START + 70)
    assert world.runs == [[1], [], [], [], [2]]
    assert world.flags() == ["-", "f", "f", "f", "-"]
    assert [event["state"] for event in world.events] == [{}, 1, 1, 1, {}]
    assert world.times == [0, 60, 61, 63, 63]


def test_the_end_of_a_window_is_given_up_on_too() -> None:
    world = World({"state": 1}, FunctionError("no"), FunctionError("no"), tumbling_window=60, count=1, retries=1)
    world.mapping.run()
    world.put()
    world.mapping.run(until=world.clock.now)
    assert (world.runs, world.events[-1]["state"], world.mapping.discarded) == ([[1], [], [], [2]], {}, 0)


@pytest.mark.parametrize("age", [-1, 600])
def test_the_end_of_a_window_is_not_tried_for_ever(age: int) -> None:
    world = World({"state": 1}, *[Throttled()] * 5000, tumbling_window=60, count=1, max_age=age)
    world.mapping.run()
    assert (DAY if age == -1 else age) < world.clock.now - START - 60 < (DAY if age == -1 else age) + 120


def test_a_window_whose_last_batch_is_given_up_on_still_ends() -> None:
    world = World({"state": 1}, FunctionError("no"), tumbling_window=60, count=1, retries=0)
    world.mapping.run(until=START + 10)
    world.put()
    world.mapping.run()
    assert (world.runs, world.flags()) == ([[1], [2], []], ["-", "-", "f"])


def test_a_state_of_more_than_a_megabyte_ends_the_window_early_and_it_goes_on_afresh() -> None:
    large, full = "x" * (MEGABYTE - 1), "x" * (MEGABYTE - 2)  # with two quotation marks
    world = World({"state": full}, {"state": large}, {"state": "dropped"}, {"state": 4}, tumbling_window=60, count=1)
    for wait in (10, 20):
        world.mapping.run(until=START + wait)
        world.put()
    world.mapping.run()
    assert (world.runs, world.flags()) == ([[1], [2], [], [3], []], ["-", "-", "e", "-", "f"])
    assert [event["state"] for event in world.events] == [{}, full, large, {}, 4]
    assert {event["window"]["start"] for event in world.events} == {"2018-01-01T00:00:00Z"}


def test_a_window_that_was_terminated_early_still_ends() -> None:
    world = World({"state": "x" * MEGABYTE}, FunctionError("no"), tumbling_window=60)
    world.clock.advance(59.5)
    world.put()
    world.mapping.run()
    assert (world.runs, world.flags(), world.times) == (
        [[1], [], [], []],
        ["-", "e", "e", "f"],
        [59.5, 59.5, 60.5, 60.5],
    )
    assert world.events[3]["state"] == {}


def test_a_state_that_ends_the_window_early_does_so_before_what_was_reported_comes_again() -> None:
    world = World(
        reporting(1, state="x" * MEGABYTE), FunctionError("no"), tumbling_window=60, count=2, report_failures=True
    )
    world.mapping.run()
    assert (world.runs, world.flags()) == ([[1, 2], [], [], [2], []], ["-", "e", "e", "-", "f"])
    assert world.events[3]["state"] == {}


@pytest.mark.parametrize("answer", [None, {}, {"batchItemFailures": []}, "state", [], {"state": {1, 2}}])
def test_an_answer_without_a_state_is_a_failure_under_a_window_only(answer: Any) -> None:
    for window, expected in [(0, [[1]]), (60, [[1], [1], []])]:
        world = World(answer, count=1, tumbling_window=window, report_failures=True)
        world.mapping.run()
        assert world.runs == expected, window


def test_a_function_cannot_change_the_state_that_is_kept() -> None:
    state: dict[str, Any] = {"n": [1]}
    world = World({"state": state}, FunctionError("no"), tumbling_window=60, count=1)
    world.mapping.run(until=START)
    state["n"].append(2)
    world.put()
    world.mapping.step()
    world.events[-1]["state"]["n"].append(3)
    world.mapping.run(until=START + 1)
    assert world.events[-1]["state"] == {"n": [1]}


def test_the_children_of_a_shard_come_after_its_end_and_with_fresh_state() -> None:
    world = World({"state": 1}, FunctionError("no"), {"state": 2}, tumbling_window=900, count=2, batch_size=1)
    parent = world.stream.shards[0]
    left, right = world.stream.split(parent)
    world.clock.advance(5)
    for shard in (right, left):
        world.put(shard=shard)
    world.mapping.run(until=START + 899)
    assert world.runs[:3] == [[1], [2], [2]]
    assert sorted(world.runs[3:]) == [[3], [4]]
    assert {e["shardId"] for e in world.events[:3]} == {parent.shard_id}
    # The parent's window ends with the parent.
    assert world.flags() == ["-", "f", "f", "-", "-"]
    assert [event["state"] for event in world.events] == [{}, 1, 1, {}, {}]


def test_a_shard_that_splits_while_its_window_is_open_ends_it_without_records() -> None:
    world = World({"state": 1}, tumbling_window=900, count=1)
    world.mapping.run(until=START + 5)
    left, _ = world.stream.split(world.stream.shards[0])
    world.put(shard=left)
    world.mapping.run(until=START + 5)
    assert (world.runs, world.flags(), world.times) == ([[1], [], [2]], ["-", "f", "-"], [0, 5, 5])


# -- reported failures --


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"batchItemFailures": []}, [[1, 2, 3, 4]]),
        ({"batchItemFailures": None}, [[1, 2, 3, 4]]),
        ({}, [[1, 2, 3, 4]]),
        (None, [[1, 2, 3, 4]]),
        ("", [[1, 2, 3, 4]]),
        ([], [[1, 2, 3, 4]]),
        (reporting(3), [[1, 2, 3, 4], [4]]),
        (reporting(3, 1), [[1, 2, 3, 4], [2, 3, 4]]),
        (reporting(1, 1), [[1, 2, 3, 4], [2, 3, 4]]),
        (reporting(0), [[1, 2, 3, 4], [1, 2, 3, 4]]),
        ({"batchItemFailures": [{"itemIdentifier": ""}]}, [[1, 2, 3, 4], [1, 2, 3, 4]]),
        ({"batchItemFailures": [{"itemIdentifier": None}]}, [[1, 2, 3, 4], [1, 2, 3, 4]]),
        ({"batchItemFailures": [{"itemIdentifier": 7}]}, [[1, 2, 3, 4], [1, 2, 3, 4]]),
        ({"batchItemFailures": [{"itemIdentifier": "7"}]}, [[1, 2, 3, 4], [1, 2, 3, 4]]),
        ({"batchItemFailures": [{"foo": "7"}]}, [[1, 2, 3, 4], [1, 2, 3, 4]]),
        ({"batchItemFailures": ["7"]}, [[1, 2, 3, 4], [1, 2, 3, 4]]),
        ({"batchItemFailures": "7"}, [[1, 2, 3, 4], [1, 2, 3, 4]]),
        ({"batchItemFailures": 7}, [[1, 2, 3, 4], [1, 2, 3, 4]]),
        (
            lambda e: {"batchItemFailures": [e["Records"][2]["dynamodb"]["SequenceNumber"]]},
            [[1, 2, 3, 4], [1, 2, 3, 4]],
        ),
        (
            lambda e: {"batchItemFailures": [*reporting(2)(e)["batchItemFailures"], {"itemIdentifier": "7"}]},
            [[1, 2, 3, 4], [1, 2, 3, 4]],
        ),
    ],
)
def test_what_is_reported_comes_again(answer: Answer, expected: list[list[int]]) -> None:
    world = World(answer, count=4, report_failures=True)
    world.mapping.run()
    assert (world.runs, world.done) == (expected, 4)


def test_what_is_reported_means_nothing_where_it_was_not_asked_for() -> None:
    world = World(reporting(0), count=2)
    world.mapping.run()
    assert world.runs == [[1, 2]]


def test_the_lowest_number_is_not_the_first_text() -> None:
    world = World(count=30, report_failures=True)
    texts = [world.number(name) for name in range(1, 31)]
    assert min(texts) != texts[0]
    world.answers = [reporting(*range(30))]
    world.mapping.run()
    assert world.runs == [list(range(1, 31))] * 2


def test_the_checkpoint_moves_with_a_reported_failure() -> None:
    world = World(reporting(2), reporting(1), count=4, report_failures=True)
    seen = []
    while (due := world.mapping.due()) is not None:
        world.clock.wait_until(due)
        world.mapping.step()
        seen.append(world.done)
    assert (world.runs, seen) == ([[1, 2, 3, 4], [3, 4], [4]], [2, 3, 4])


# -- failures, retries, bisecting --


@pytest.mark.parametrize("error", [FunctionError("no"), TimedOut("slow"), RuntimeError("no"), KeyError("k")])
def test_any_error_of_the_function_fails_the_batch(error: Exception) -> None:
    world = World(error, count=3)
    world.mapping.step()
    assert (world.done, world.mapping.lanes[0].failures) == (0, 1)
    assert str(error) in world.mapping.lanes[0].reason
    world.mapping.run()
    assert (world.runs, world.done, world.mapping.lanes[0].failures) == ([[1, 2, 3]] * 2, 3, 0)


def test_what_is_no_exception_passes_through_and_the_batch_comes_again() -> None:
    world = World(count=2)

    def stop(event: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    world.answers = [stop]
    with pytest.raises(KeyboardInterrupt):
        world.mapping.run()
    assert world.done == 0
    world.mapping.run()
    assert (world.runs, world.done, world.mapping.invocations) == ([[1, 2]] * 2, 2, 1)


def test_the_time_between_tries_doubles_up_to_a_minute_and_starts_again() -> None:
    world = World(*[FunctionError("no")] * 9, None, FunctionError("no"), count=2, batch_size=1)
    world.mapping.run()
    waits = [later - earlier for earlier, later in pairwise(world.times)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60, 0, 1]


@pytest.mark.parametrize(
    ("retries", "invocations", "done"), [(0, 1, 3), (1, 2, 3), (3, 4, 3), (10_000, 51, 3), (-1, 51, 3)]
)
def test_a_batch_comes_again_as_often_as_there_are_retries(retries: int, invocations: int, done: int) -> None:
    world = World(*[FunctionError("no")] * 50, count=3, retries=retries)
    world.mapping.run()
    assert (len(world.runs), world.done) == (invocations, done)
    assert world.mapping.discarded == (3 if invocations < 51 else 0)


def test_without_a_limit_a_batch_comes_again_until_it_expires() -> None:
    world = World(*[FunctionError("no")] * 5000, count=2)
    world.mapping.run()
    assert DAY <= world.clock.now - START < DAY + 60
    assert (world.done, world.mapping.lost, world.mapping.discarded) == (2, 2, 0)
    assert 1400 < len(world.runs) < 1500


@pytest.mark.parametrize(
    ("answers", "retries", "expected", "discarded"),
    [
        ([0], 1, [[1, 2, 3, 4], [1, 2, 3, 4]], 0),
        ([0, 0], 1, [[1, 2, 3, 4]] * 2, 4),
        # As AWS did for LocalStack: 3 retries are 4 invocations, though the first made progress.
        ([2, 0, 0, 0], 3, [[1, 2, 3, 4], [3, 4], [3, 4], [3, 4]], 2),
        ([1, 1, 1], 2, [[1, 2, 3, 4], [2, 3, 4], [3, 4]], 1),
    ],
)
def test_reported_failures_use_up_retries(
    answers: list[int], retries: int, expected: list[list[int]], discarded: int
) -> None:
    for bisect in (False, True):
        world = World(*map(reporting, answers), count=4, retries=retries, report_failures=True, bisect=bisect)
        world.mapping.run()
        assert (world.runs, world.mapping.discarded, world.done) == (expected, discarded, 4)


@pytest.mark.parametrize(
    ("retries", "expected"),
    [
        (0, [[1, 2, 3, 4, 5], [1, 2], [3, 4, 5], [3], [4, 5], [4], [5]]),
        (1, [[1, 2, 3, 4, 5], [1, 2], [3, 4, 5], [3], [4, 5], [4], [4], [5]]),
    ],
)
def test_bisecting_finds_the_bad_record_without_using_up_retries(retries: int, expected: list[list[int]]) -> None:
    world = World(count=5, bisect=True, retries=retries, destination="sqs")
    world.answers = [bad(world, 4)] * 20
    world.mapping.run()
    assert (world.runs, world.done, world.mapping.discarded) == (expected, 5, 1)
    info = world.letters[0].body["DDBStreamBatchInfo"]
    assert (info["startSequenceNumber"], info["endSequenceNumber"]) == (world.number(4), world.number(4))


def test_a_timeout_and_a_wrong_report_are_bisected_too() -> None:
    for answer in (TimedOut("slow"), {"batchItemFailures": [{"itemIdentifier": "7"}]}):
        world = World(answer, count=4, bisect=True, report_failures=True)
        world.mapping.run()
        assert world.runs == [[1, 2, 3, 4], [1, 2], [3, 4]]


def test_the_half_that_was_cut_off_waits_for_the_other() -> None:
    world = World(FunctionError("no"), FunctionError("no"), FunctionError("no"), count=4, bisect=True)
    world.mapping.run()
    assert world.runs == [[1, 2, 3, 4], [1, 2], [1], [1], [2], [3, 4]]


def test_records_held_back_after_a_half_are_done_with_the_other() -> None:
    world = World(FunctionError("no"), filters=ONLY_A, bisect=True)
    for kind in "abab":
        world.put(kind=kind)
    seen = []
    while (due := world.mapping.due()) is not None:
        world.clock.wait_until(due)
        world.mapping.step()
        seen.append(world.done)
    assert (world.runs, seen) == ([[1, 3], [1], [3]], [0, 1, 4])


@pytest.mark.parametrize("retries", [0, 2])
def test_a_throttled_invocation_is_no_try(retries: int) -> None:
    world = World(*[Throttled("many")] * 9, *[FunctionError("no")] * 3, count=1, retries=retries, destination="sqs")
    world.mapping.step()
    assert (world.mapping.lanes[0].reason, world.mapping.invocations) == ("many", 0)
    world.mapping.run()
    assert len(world.runs) == 9 + retries + 1
    assert world.letters[0].body["requestContext"]["approximateInvokeCount"] == retries + 1
    assert world.mapping.invocations == retries + 1


def test_a_throttled_batch_is_not_cut_in_two() -> None:
    world = World(Throttled(), count=4, bisect=True)
    world.mapping.run()
    assert world.runs == [[1, 2, 3, 4]] * 2


# -- age --


def test_records_that_are_too_old_are_given_up_on_before_they_are_sent() -> None:
    world = World(max_age=60, destination="sqs", batch_size=3)
    for wait in (0, 30, 31, 9, 30):  # 0, 30, 61, 70, 100
        world.clock.advance(wait)
        world.put()
    world.mapping.run()
    assert (world.runs, world.done, world.mapping.discarded) == ([[3], [4, 5]], 5, 2)
    (letter,) = world.letters
    assert letter.body["requestContext"]["condition"] == "RecordAgeExceeded"
    assert letter.body["requestContext"]["approximateInvokeCount"] == 0
    assert "responseContext" not in letter.body
    assert letter.body["DDBStreamBatchInfo"]["endSequenceNumber"] == world.number(2)


def test_records_grow_too_old_while_they_are_tried() -> None:
    world = World(*[FunctionError("no")] * 99, max_age=60, destination="sqs", count=1)
    world.clock.advance(30)
    world.put()
    world.mapping.run()
    assert [letter.body["requestContext"]["condition"] for letter in world.letters] == ["RecordAgeExceeded"] * 2
    assert world.runs == [[1, 2]] * 5 + [[2]]
    assert world.letters[0].body["requestContext"]["approximateInvokeCount"] == 5
    assert world.letters[1].body["requestContext"]["approximateInvokeCount"] == 6
    assert world.letters[0].body["responseContext"]["functionError"] == "Unhandled"


def test_a_record_of_just_the_age_is_sent() -> None:
    world = World(max_age=60, count=1)
    world.clock.advance(60)
    world.mapping.run()
    assert (world.runs, world.mapping.discarded) == ([[1]], 0)


def test_throttled_records_grow_too_old() -> None:
    world = World(*[Throttled()] * 99, max_age=60, count=1, retries=0)
    world.mapping.run()
    assert (world.mapping.discarded, world.mapping.invocations) == (1, 0)


# -- expiry --


def test_records_that_nobody_read_in_a_day_are_lost_and_counted() -> None:
    world = World(count=2, destination="sqs")
    world.clock.advance(3600)
    world.put(2)
    world.clock.advance(DAY - 3600)
    world.mapping.run()
    assert (world.runs, world.done, world.mapping.lost, world.letters) == ([[3, 4]], 4, 2, [])


def test_a_shard_whose_records_are_all_lost_makes_way_for_its_children() -> None:
    world = World(count=2)
    left, _ = world.stream.split(world.stream.shards[0])
    world.clock.advance(2 * DAY)
    world.put(shard=left)
    world.mapping.run()
    assert (world.runs, world.mapping.lost) == ([[3]], 2)


def test_records_expire_out_of_a_batch_that_is_tried() -> None:
    world = World(count=1)
    world.answers = [bad(world, 1)] * 5000
    world.clock.advance(600)
    world.put()
    world.mapping.run()
    assert world.runs[0] == [1, 2]
    assert world.runs[-1] == [2]
    assert (world.mapping.lost, world.done) == (1, 2)


def test_records_expire_out_of_both_halves_of_a_batch() -> None:
    world = World(FunctionError("no"), count=4, bisect=True)
    assert world.mapping.step()
    world.clock.advance(DAY)
    world.put()
    world.mapping.run()
    assert (world.runs, world.mapping.lost, world.done) == ([[1, 2, 3, 4], [5]], 4, 5)


def test_both_halves_of_a_batch_grow_too_old() -> None:
    world = World(FunctionError("no"), count=4, bisect=True, max_age=60, destination="sqs")
    assert world.mapping.step()
    world.clock.advance(61)
    world.put()
    world.mapping.run()
    assert (world.runs, world.mapping.discarded, len(world.letters)) == ([[1, 2, 3, 4], [5]], 4, 2)


# -- destinations --


def given_up(kind: str, *answers: Answer, **more: Any) -> World:
    world = World(*answers, count=3, destination=kind, **more)
    world.clock.advance(60.25)
    world.mapping.run()
    return world


UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"


def test_a_queue_gets_where_the_records_lie() -> None:
    world = given_up("sqs", FunctionError("no"), FunctionError("no"), retries=1)
    (letter,) = world.letters
    assert letter.key is None
    assert re.fullmatch(UUID, letter.body["requestContext"]["requestId"])
    assert letter.body == {
        "requestContext": {
            "requestId": letter.body["requestContext"]["requestId"],
            "functionArn": "arn:aws:lambda:us-east-1:123456789012:function:function",
            "condition": "RetryAttemptsExhausted",
            "approximateInvokeCount": 2,
        },
        "responseContext": {"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"},
        "version": "1.0",
        "timestamp": "2018-01-01T00:01:01.250Z",
        "DDBStreamBatchInfo": {
            "shardId": world.stream.shards[0].shard_id,
            "startSequenceNumber": world.number(1),
            "endSequenceNumber": world.number(3),
            "approximateArrivalOfFirstRecord": "2018-01-01T00:00:00Z",
            "approximateArrivalOfLastRecord": "2018-01-01T00:00:00Z",
            "batchSize": 3,
            "streamArn": ARN,
        },
    }
    assert json.loads(json.dumps(letter.body)) == letter.body


def test_a_bucket_gets_the_whole_event_as_text_too() -> None:
    answers = [FunctionError("no"), FunctionError("no")]
    (message,) = given_up("sqs", *answers, retries=1, tumbling_window=900).letters
    world = given_up("s3", *answers, retries=1, tumbling_window=900)
    (letter,) = world.letters
    payload = letter.body["payload"]
    assert {**letter.body, "payload": None} == {**message.body, "payload": None}
    assert isinstance(payload, str)
    assert json.loads(payload) == world.events[0]
    shard = world.stream.shards[0].shard_id
    expected = rf"aws/lambda/{UUID}/{shard}/2018/01/01/2018-01-01T00\.01\.01-{UUID}"
    assert letter.key is not None
    assert re.fullmatch(expected, letter.key), letter.key


def test_a_report_is_no_error_of_the_function() -> None:
    world = given_up("sqs", reporting(1), reporting(0), retries=1, report_failures=True)
    (letter,) = world.letters
    assert letter.body["responseContext"] == {"statusCode": 200, "executedVersion": "$LATEST", "functionError": None}
    assert letter.body["requestContext"]["approximateInvokeCount"] == 2
    assert letter.body["DDBStreamBatchInfo"]["startSequenceNumber"] == world.number(2)
    assert letter.body["DDBStreamBatchInfo"]["batchSize"] == 2


def test_no_two_objects_share_a_name_and_a_second_run_has_the_same() -> None:
    def names() -> list[str | None]:
        world = World(*[FunctionError("no")] * 9, count=9, batch_size=1, retries=0, destination="s3")
        world.mapping.run()
        return [letter.key for letter in world.letters]

    assert len(set(names())) == 9
    assert names() == names()


# -- several shards --


def test_shards_take_turns_and_one_that_fails_does_not_hold_up_the_others() -> None:
    world = World(batch_size=1, shards=3)
    for shard in world.stream.shards * 2:
        world.put(shard=shard)  # 1 4 | 2 5 | 3 6
    world.answers = [bad(world, 1)] * 6
    world.mapping.run(until=START)
    assert world.runs == [[1], [2], [3], [5], [6]]
    assert [world.names.get(str(sequence), 0) for sequence in world.mapping.checkpoints.values()] == [0, 5, 6]
    world.answers = []
    world.mapping.run()
    assert world.runs[5:] == [[1], [4]]


def test_grandchildren_come_after_all_that_is_before_them() -> None:
    world = World(batch_size=10)
    root = world.stream.shards[0]
    left, right = world.stream.split(root)  # nothing in the root
    world.put(shard=left)
    inner, _ = world.stream.split(left)
    world.put(shard=inner)
    world.put(shard=right)
    world.answers = [bad(world, 1)] * 3
    world.mapping.run(until=START + 2)
    assert world.runs == [[1], [3], [1]]
    world.answers = []
    world.mapping.run()
    assert world.runs[3:] == [[1], [2]]


def test_another_mapping_goes_on_from_checkpoints() -> None:
    world = World(count=4, batch_size=2)
    world.mapping.step()
    kept = world.mapping.checkpoints
    world.mapping.run()
    second = Mapping(Settings(), world.stream, world.function, world.clock, checkpoints=kept)
    second.run()
    assert world.runs == [[1, 2], [3, 4], [3, 4]]
    assert second.checkpoints == world.mapping.checkpoints


def test_a_run_stops_in_time_and_goes_on() -> None:
    world = World(FunctionError("no"), count=1)
    world.mapping.run(until=START + 0.5)
    assert (world.runs, world.clock.now) == ([[1]], START + 0.5)
    world.mapping.run(until=START + 1)
    assert (world.runs, world.clock.now) == ([[1], [1]], START + 1)
    world.mapping.run(until=START + 500)
    assert world.clock.now == START + 500


# -- the real consumer --


class Day:
    """A music library that is written to while the app's consumer reads its stream, with everything going wrong."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = Clock(START)
        self.stream = Stream(ARN)
        self.database = MemoryDynamoDB()
        (table,) = app.tables
        self.database.create_table(**create_table_request(app, table))
        self.consumer = Consumer(app, table.name, self, connections=1, now=lambda: self.clock.now)
        self.items: dict[tuple[str, str], dict[str, Any]] = {}
        self.writes_left: int | None = None
        self.events: list[dict[str, Any]] = []
        filters = tuple(json.loads(text) for text in manifest(app)["consumers"][table.name]["filters"])
        settings = Settings(
            batch_size=50,
            batching_window=60,
            tumbling_window=900,
            bisect=True,
            report_failures=True,
            filters=filters,
        )
        self.mapping = Mapping(settings, self.stream, self.function, self.clock)

    def change(self, key: dict[str, Any], new: dict[str, Any] | None) -> None:
        """Write an item, and its record to the stream."""
        old = self.database.get_item(TableName="MusicLibrary", Key=key).get("Item")
        if new is None:
            self.database.delete_item(TableName="MusicLibrary", Key=key)
        else:
            self.database.put_item(TableName="MusicLibrary", Item=new)
        self.record(key, old, new)

    def record(self, key: dict[str, Any], old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        if old == new:
            return
        name = "REMOVE" if new is None else "INSERT" if old is None else "MODIFY"
        images = {name: image for name, image in (("OldImage", old), ("NewImage", new)) if image is not None}
        text = f"{key['songID']['S']} {key['SK']['S']}"
        record = {"eventName": name, "dynamodb": {"Keys": key, **images}}
        self.stream.shard_of(text).append(record, at=self.clock.now)

    def update_item(self, **request: Any) -> Any:
        """An aggregate's update: it too is a change of the table, so it comes back in the stream."""
        if self.writes_left == 0:
            raise MemoryError("killed between two writes")
        if self.writes_left is not None:
            self.writes_left -= 1
        key = request["Key"]
        old = self.database.get_item(TableName="MusicLibrary", Key=key).get("Item")
        answer = self.database.update_item(**request)
        self.record(key, old, self.database.get_item(TableName="MusicLibrary", Key=key)["Item"])
        return answer

    def function(self, event: dict[str, Any], deadline: float) -> object:
        self.events.append(event)
        chance = self.random.random()
        if chance < 0.05:
            raise Throttled("many")
        self.clock.advance(self.random.choice((0.01, 0.5, 3)))
        self.writes_left = self.random.randrange(3) if chance < 0.15 else None
        response = self.consumer(event)
        if chance > 0.95:
            raise TimedOut("after all writes")
        return response

    def write(self) -> None:
        """Add a download, or another item; edit or delete one of those that are there."""
        pick = self.random.random()
        if pick < 0.6 or not self.items:
            kind = "download" if pick < 0.5 else "lyrics"
            key = (f"song-{self.random.randrange(5)}", f"{kind}-{len(self.events)}-{self.random.randrange(10**9)}")
        else:
            key = self.random.choice(list(self.items))
        keys = {"songID": {"S": key[0]}, "SK": {"S": key[1]}}
        if pick > 0.85 and key in self.items:
            del self.items[key]
            self.change(keys, None)
        else:
            month = self.random.randrange(1, 4)
            self.items[key] = {**keys, "Timestamp": {"S": f"2018-{month:02d}-15T10:00:00Z"}, "note": {"S": str(pick)}}
            self.change(keys, self.items[key])

    def run(self, hours: int, *, splits: tuple[int, ...] = ()) -> None:
        for hour in range(hours):
            if hour in splits:
                self.stream.split(self.random.choice([shard for shard in self.stream.shards if not shard.closed]))
            for minute in range(60):
                for _ in range(self.random.randrange(4)):
                    self.write()
                self.mapping.run(until=START + 3600 * hour + 60 * (minute + 1))
        self.mapping.run()

    def aggregates(self) -> Counter[tuple[str, str]]:
        found = self.database.scan(TableName="MusicLibrary")["Items"]
        return Counter(
            {(i["songID"]["S"], i["SK"]["S"]): int(i["DownloadCount"]["N"]) for i in found if "DownloadCount" in i}
        )

    def recount(self) -> Counter[tuple[str, str]]:
        return Counter((song, i["Timestamp"]["S"][:7]) for (song, sk), i in self.items.items() if sk[:9] == "download-")


def test_a_day_of_the_real_consumer_equals_a_recount() -> None:
    began = time.process_time()
    day = Day(seed=1)
    day.run(24, splits=(3, 9, 10, 17))
    assert time.process_time() - began < 12  # half a second for a simulated hour
    assert +day.aggregates() == day.recount()
    assert sum(day.recount().values()) > 500
    assert (day.mapping.lost, day.mapping.discarded) == (0, 0)
    # The app's own filter holds its own writes back, of which there were many.
    sent = [record["dynamodb"]["Keys"]["SK"]["S"] for event in day.events for record in event["Records"]]
    assert {sk[:9] for sk in sent} == {"download-"}
    everything = [record for shard in day.stream.shards for record in shard.records()]
    assert sum(record["dynamodb"]["Keys"]["SK"]["S"].startswith("2018-") for record in everything) > 500
    # Much came more than once, and every shard only after the one that it came from.
    assert len(sent) > 1.1 * len({record["eventID"] for event in day.events for record in event["Records"]})
    shards = [event["shardId"] for event in day.events]
    assert len(set(shards)) == 9
    for shard in day.stream.shards:
        if shard.parent is not None:
            last = len(shards) - 1 - shards[::-1].index(shard.parent.shard_id)
            assert shards.index(shard.shard_id) > last


def test_the_same_day_goes_the_same_way() -> None:
    one, other = Day(seed=2), Day(seed=2)
    for day in (one, other):
        day.run(2, splits=(1,))
    assert one.events == other.events
    assert one.database.requests == other.database.requests
