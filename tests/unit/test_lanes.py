"""Watermarks: text whose order is the sequence numbers' order, forgotten only when no redelivery can need them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework.errors import BadValueError
from framework.lanes import LANE_PREFIX, MARK, bound, hour_of, lane_attribute, owner, position, stale, watermark

numbers = st.integers(0, 10**40 - 1)


@given(numbers, numbers, st.integers(400_000, 900_000))
def test_a_watermark_is_below_a_bound_exactly_if_its_number_is(a: int, b: int, hour: int) -> None:
    assert (watermark(a, hour) < bound(b)) == (a < b)


@given(numbers, st.integers(0, 10**7))
def test_a_watermark_tells_its_number(number: int, hour: int) -> None:
    assert position({"S": watermark(number, hour)}) == number


@pytest.mark.parametrize("value", [{"N": "1"}, {"S": "zzz"}, {"S": ""}, {"S": "0212@"}])
def test_what_is_no_watermark_is_refused_and_never_stale(value: dict[str, str]) -> None:
    with pytest.raises(BadValueError, match="expected a watermark such as '0212@420000', came"):
        position(value)
    assert stale({"sf~abcdefgh": value, MARK: {"S": "name"}}, "sf~other", 10**6) == {}


def test_lanes_of_other_shards_streams_and_aggregations_have_other_names() -> None:
    names = {
        lane_attribute(name, arn, shard)
        for name in ("a", "b")
        for arn in ("arn:1", "arn:2")
        for shard in ("shardId-1", "shardId-2")
    }
    assert len(names) == 8
    assert all(len(name) == 11 and name.startswith(LANE_PREFIX) for name in names)


def test_the_mark_tells_whose_an_item_is() -> None:
    assert owner({"songID": {"S": "a"}, MARK: {"S": "monthly"}}) == "monthly"
    assert owner({"songID": {"S": "a"}, "sf~abcdefgh": {"S": "0212@420000"}}) is None


@pytest.mark.parametrize(
    ("hours", "gone"),
    [(0, False), (47, False), (48, False), (49, True), (1000, True)],
)
def test_a_watermark_is_stale_when_it_has_not_moved_for_48_hours(hours: int, gone: bool) -> None:
    now = hour_of(1_700_000_000)
    item = {"sf~old": {"S": watermark(5, now - hours)}, "songID": {"S": "a"}}
    assert bool(stale(item, "sf~mine", now)) is gone
    assert not stale(item, "sf~old", now), "the lane that is being written is never stale"
