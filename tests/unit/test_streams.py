"""The simulated clock and the stream in memory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from framework.decode import decode
from framework.errors import ConfigurationError, EventError, StreamfoldError
from framework.local.clock import Clock
from framework.local.streams import RETENTION_SECONDS, Shard, Stream
from tests.unit.stream import ARN

DAY = 24 * 3600


def change(**more: Any) -> dict[str, Any]:
    return {"eventName": "INSERT", "dynamodb": {"Keys": {"id": {"S": "a"}}, "NewImage": {"id": {"S": "a"}}, **more}}


def filled(count: int, *, every: float = 1.0) -> Shard:
    (shard,) = Stream(ARN).shards
    for number in range(count):
        shard.append(change(), at=number * every)
    return shard


def numbers(shard: Shard) -> list[int]:
    return [int(record["dynamodb"]["SequenceNumber"]) for record in shard.records()]


def test_the_clock_goes_forward_only() -> None:
    clock = Clock(100)
    clock.advance(0.5)
    clock.sleep(2)
    clock.wait_until(200)
    clock.wait_until(150)
    assert clock.now == 200
    for seconds in (-1, float("nan"), float("inf")):
        with pytest.raises(ConfigurationError, match="clock: expected 0 seconds or more"):
            clock.advance(seconds)
    assert clock.now == 200


def test_sequence_numbers_rise_with_gaps_in_21_to_40_digits_of_changing_length() -> None:
    found = numbers(filled(5000))
    assert all(later - earlier > 1 for earlier, later in pairwise(found))
    lengths = [len(str(number)) for number in found]
    assert (lengths[0], lengths[10]) == (21, 22)
    assert 24 in lengths
    assert max(lengths) <= 40
    assert [str(number) for number in found[:20]] != sorted(str(number) for number in found[:20])


def test_the_same_stream_has_the_same_numbers_and_no_two_shards_share_one() -> None:
    assert numbers(filled(100)) == numbers(filled(100))
    stream = Stream(ARN, shards=4)
    children = stream.split(stream.shards[0])
    for shard in stream.shards[1:]:
        for at in range(300):
            shard.append(change(), at=at)
    everywhere = [number for shard in stream.shards for number in numbers(shard)]
    assert len(set(everywhere)) == len(everywhere) == 5 * 300
    assert len({shard.shard_id for shard in stream.shards}) == 6
    assert all(child.parent is stream.shards[0] for child in children)


def test_a_childs_numbers_begin_below_those_of_its_parent() -> None:
    stream = Stream(ARN)
    (parent,) = stream.shards
    for at in range(200):
        parent.append(change(), at=at)
    left, right = stream.split(parent)
    for child in (left, right):
        child.append(change(), at=200)
        assert numbers(child)[0] < numbers(parent)[-1]


def test_a_record_is_as_lambda_sends_it() -> None:
    (shard,) = Stream(ARN).shards
    given = change(SizeBytes=26)
    entry = shard.append(given, at=1_514_764_800.75)
    assert entry.record == {
        "eventID": entry.record["eventID"],
        "eventName": "INSERT",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "eventSourceARN": ARN,
        "dynamodb": {
            "ApproximateCreationDateTime": 1_514_764_800,
            "Keys": {"id": {"S": "a"}},
            "NewImage": {"id": {"S": "a"}},
            "SizeBytes": 26,
            "SequenceNumber": str(entry.sequence),
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
    }
    assert len(entry.record["eventID"]) == 32
    assert given == change(SizeBytes=26)
    assert decode({"Records": [entry.record], "shardId": shard.shard_id}).table == "MusicLibrary"


def test_a_record_that_has_a_number_keeps_it() -> None:
    (shard,) = Stream(ARN).shards
    shard.append(change(SequenceNumber="7"), at=0)
    shard.append(change(SequenceNumber="111"), at=0)
    assert numbers(shard) == [7, 111]


def test_records_are_read_after_any_number() -> None:
    shard = filled(5)
    found = numbers(shard)
    for after, expected in [(0, found), (found[1], found[2:]), (found[1] + 1, found[2:]), (found[4], [])]:
        first = shard.first(after, now=10)
        assert [int(record["dynamodb"]["SequenceNumber"]) for record in shard.records(after)] == expected
        assert (None if first is None else first.sequence) == (expected[0] if expected else None)


@pytest.mark.parametrize(
    ("options", "expected", "full"),
    [
        ({}, 5, False),
        ({"most": 3}, 3, True),
        ({"most": 5}, 5, True),
        ({"most_bytes": 1}, 1, True),
        ({"most_bytes": 1000}, 2, True),
        ({"before": 3.0}, 3, True),
        ({"before": 5.0}, 5, False),
    ],
)
def test_a_batch_ends_at_its_number_its_size_or_its_time(options: dict[str, Any], expected: int, full: bool) -> None:
    shard = filled(5)
    places, found = shard.batch(now=10, **{"most": 100, "most_bytes": 10**6, **options})
    assert (places, found) == (range(expected), full)
    assert [entry.sequence for entry in shard.entries(places)] == numbers(shard)[:expected]


def test_records_expire_after_a_day_and_the_lost_ones_are_counted() -> None:
    shard = filled(5, every=3600.0)
    found = numbers(shard)
    for now, after, lost in [
        (RETENTION_SECONDS - 1, 0, 0),
        (RETENTION_SECONDS, 0, 1),
        (RETENTION_SECONDS + 7200, 0, 3),
        (RETENTION_SECONDS + 7200, found[1], 1),
        (RETENTION_SECONDS + 7200, found[3], 0),
        (3 * DAY, 0, 5),
    ]:
        assert shard.lost(after, now=now) == lost, (now, after)
    now = RETENTION_SECONDS + 7200
    first = shard.first(now=now)
    assert first is not None
    assert first.sequence == found[3]
    assert shard.batch(now=now, most=9, most_bytes=10**6) == (range(3, 5), False)
    assert shard.trimmed(now=now) == found[2]
    assert (shard.first(now=3 * DAY), shard.trimmed(now=0)) == (None, 0)


def test_an_item_keeps_its_shard_until_that_splits_and_then_goes_to_a_child_of_it() -> None:
    stream = Stream(ARN, shards=3)
    items = [f"item-{number}" for number in range(200)]
    before = {item: stream.shard_of(item) for item in items}
    assert set(before.values()) == set(stream.shards)
    split = stream.shards[1]
    children = stream.split(split)
    for item in items:
        after = stream.shard_of(item)
        assert after in children if before[item] is split else after is before[item]
    assert {stream.shard_of(item) for item in items} == {stream.shards[0], stream.shards[2], *children}


def _closed() -> Shard:
    stream = Stream(ARN)
    stream.split(stream.shards[0])
    return stream.shards[0]


@pytest.mark.parametrize(
    ("wrong", "error", "expected"),
    [
        (lambda: Stream("arn:aws:dynamodb:us-east-1:1:table/T"), ConfigurationError, "expected the ARN of a table"),
        (lambda: Stream(ARN, shards=0), ConfigurationError, "expected a shard or more, came 0"),
        (lambda: _closed().append(change(), at=0), ConfigurationError, "expected no record after its split"),
        (lambda: Stream(ARN).split(_closed()), ConfigurationError, "expected an open shard"),
        (lambda: filled(2).append(change(), at=0.5), ConfigurationError, "expected a time from 1.0 on, came 0.5"),
        (lambda: filled(1).append(change(SequenceNumber="7"), at=9), EventError, "SequenceNumber: expected digits"),
        (lambda: filled(0).append(change(SequenceNumber="x"), at=9), EventError, "came 'x'"),
    ],
)
def test_what_is_wrong_is_said(wrong: Any, error: type[StreamfoldError], expected: str) -> None:
    with pytest.raises(error) as raised:
        wrong()
    assert expected in str(raised.value)
