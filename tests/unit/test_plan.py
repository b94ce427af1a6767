"""Plans are values: one update for each aggregate, one conditional write for each update."""

from __future__ import annotations

from decimal import Decimal as D
from typing import Any

import pytest

from framework import Aggregation, AllTime, BadValueError, Count, EventError, Max, Min, Sum, Table
from framework.fold import Folded
from framework.lanes import watermark
from framework.plan import Update, drop_absorbed, drop_take_backs, forget, plan, request
from handlers.music_library import MonthlyDownloads

HOUR = 420_000
LANE = "sf~abcdefgh"
library = MonthlyDownloads._declaration


class Extremes(Aggregation):
    """A sum and both extremes."""

    name = "extremes"
    source = Table("Things", pk="id")
    group_by = "kind"
    window = AllTime()
    changes = "inserts"
    Total = Sum("n")
    Least = Min("n")
    Most = Max("n")


class Spread(Aggregation):
    """Over partitions."""

    name = "spread"
    source = Table("Things", pk="id")
    group_by = "kind"
    window = AllTime()
    partitions = 3
    Things = Count()


def update(*contributions: tuple[int, bool, tuple[Any, ...]], declaration: Any = library, **more: Any) -> Update:
    return Update(declaration, "song", "2018-01", 0, LANE, contributions, **more)


ADD, TAKE = (1,), (-1,)


def test_a_batch_becomes_one_update_an_aggregate_in_order_and_each_record_once() -> None:
    folded = Folded(library)
    for number, song in (("9", "a"), ("100", "a"), ("10", "b"), ("99", "a"), ("100", "a")):
        folded.buckets[song, "2018-01"].append((number, True, ADD))
    assert plan(folded, LANE, 0) == [
        Update(library, "a", "2018-01", 0, LANE, ((9, True, ADD), (99, True, ADD), (100, True, ADD))),
        Update(library, "b", "2018-01", 0, LANE, ((10, True, ADD),)),
    ]


@pytest.mark.parametrize("number", ["", "x", "-1", "1_0", "٣", 5])
def test_a_sequence_number_that_is_not_digits_is_an_error_of_the_event(number: Any) -> None:
    folded = Folded(library)
    folded.buckets["a", "2018-01"].append((number, True, ADD))
    with pytest.raises(EventError, match="SequenceNumber: expected decimal digits, came"):
        plan(folded, LANE, 0)


def test_an_update_is_one_conditional_write_of_count_watermark_and_index_key() -> None:
    found = request(update((10, True, ADD), (12, True, ADD)), HOUR)
    assert found == {
        "TableName": "MusicLibrary",
        "Key": {"songID": {"S": "song"}, "SK": {"S": "2018-01"}},
        "UpdateExpression": "SET #lane = :v0, #n1 = :v2 ADD #n2 :v3",
        "ConditionExpression": "(attribute_not_exists(#lane) OR #lane < :v1)",
        "ExpressionAttributeNames": {"#lane": LANE, "#n1": "Month", "#n2": "DownloadCount"},
        "ExpressionAttributeValues": {
            ":v0": {"S": "0212@420000"},
            ":v1": {"S": "0210"},
            ":v2": {"S": "2018-01"},
            ":v3": {"N": "2"},
        },
        "ReturnValues": "ALL_NEW",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


@pytest.mark.parametrize(
    ("contributions", "exists", "guarded"),
    [
        ([(1, True, ADD)], False, False),
        ([(1, True, ADD), (2, False, TAKE)], False, False),
        ([(1, False, TAKE)], False, True),
        ([(1, False, TAKE), (2, True, ADD)], False, True),
        ([(1, False, TAKE)], True, False),
    ],
)
def test_an_update_that_begins_with_a_take_back_needs_the_item(
    contributions: list[Any], exists: bool, guarded: bool
) -> None:
    condition = request(update(*contributions, exists=exists), HOUR)["ConditionExpression"]
    assert ("attribute_exists(#n1)" in condition) is guarded


def test_a_batch_that_nets_to_nothing_is_still_written_for_its_watermark() -> None:
    found = request(update((1, True, ADD), (2, False, TAKE)), HOUR)
    assert found["ExpressionAttributeValues"][":v3"] == {"N": "0"}


@pytest.mark.parametrize(
    ("known", "sets", "condition"),
    [
        (None, "#n3 = if_not_exists(#n3, :v3)", "(attribute_not_exists(#n3) OR #n3 <= :v3)"),
        ({"Least": {"N": "5"}, "Most": {"N": "5"}}, "#n3 = :v3", "#n3 > :v3"),
        ({"Least": {"N": "3"}, "Most": {"N": "5"}}, "#n3 = if_not_exists(#n3, :v3)", "(attribute_not_exists(#n3) OR #n3 <= :v3)"),
        ({"Least": {"N": "1"}, "Most": {"N": "5"}}, "#n3 = if_not_exists(#n3, :v3)", "(attribute_not_exists(#n3) OR #n3 <= :v3)"),
    ],
)  # fmt: skip
def test_an_extreme_is_kept_in_the_same_write_under_the_guess_that_holds(known: Any, sets: str, condition: str) -> None:
    thing = update((1, True, (D(4), D(4), D(4))), (2, True, (D(3), D(3), D(3))), declaration=Extremes._declaration)
    found = request(thing, HOUR, known)
    names = {name: placeholder for placeholder, name in found["ExpressionAttributeNames"].items()}
    place = names["Least"]
    value = next(v for v, raw in found["ExpressionAttributeValues"].items() if raw == {"N": "3"})
    assert sets.replace("#n3", place).replace(":v3", value) in found["UpdateExpression"]
    assert condition.replace("#n3", place).replace(":v3", value) in found["ConditionExpression"]


@pytest.mark.parametrize(
    ("absorbed", "left"),
    [
        (None, [10, 12, 30]),
        (9, [10, 12, 30]),
        (10, [12, 30]),
        (11, [12, 30]),
        (12, [30]),
        (30, None),
        (10**30, None),
    ],
)
def test_what_the_watermark_covers_is_dropped(absorbed: int | None, left: list[int] | None) -> None:
    item = {} if absorbed is None else {LANE: {"S": watermark(absorbed, HOUR)}}
    found = drop_absorbed(update((10, True, ADD), (12, False, TAKE), (30, True, ADD)), item)
    assert (found and [number for number, _, _ in found.contributions]) == left


@pytest.mark.parametrize(
    ("adds", "left"),
    [([False], None), ([False, False], None), ([False, True, False], [1, 2]), ([True, False], [0, 1])],
)
def test_take_backs_fall_away_up_to_the_first_that_adds(adds: list[bool], left: list[int] | None) -> None:
    found = drop_take_backs(update(*((n, add, ADD if add else TAKE) for n, add in enumerate(adds))))
    assert (found and [number for number, _, _ in found.contributions]) == left


def test_a_total_beyond_38_digits_is_refused_and_halves_tell_which_record_it_is() -> None:
    thing = update(
        (1, True, (D("1E+100"), D(1), D(1))),
        (2, True, (D("1"), D(1), D(1))),
        declaration=Extremes._declaration,
    )
    with pytest.raises(BadValueError, match="38"):
        request(thing, HOUR)
    assert [half.first for half in thing.halves()] == [1, 2]
    for half in thing.halves():
        request(half, HOUR)


def test_old_watermarks_are_forgotten_together_on_condition_that_they_have_not_moved() -> None:
    old = {f"sf~{n}": {"S": watermark(n, HOUR - 49)} for n in range(3)}
    young = {"sf~young": {"S": watermark(9, HOUR - 48)}, LANE: {"S": watermark(9, HOUR - 100)}}
    found = forget(update((1, True, ADD)), {**old, **young}, HOUR)
    assert found is not None
    assert sorted(found["ExpressionAttributeNames"].values()) == ["sf~0", "sf~1", "sf~2"]
    assert found["ConditionExpression"] == "#l0 = :l0 AND #l1 = :l1 AND #l2 = :l2"
    assert forget(update((1, True, ADD)), {**dict(list(old.items())[:2]), **young}, HOUR) is None


def test_the_items_of_the_other_partitions_are_known() -> None:
    spread = Update(Spread._declaration, "k", "all", 1, LANE, ((1, True, ADD),))
    assert spread.key == {"id": {"S": "k#all#1"}}
    assert spread.siblings == [{"id": {"S": "k#all#0"}}, {"id": {"S": "k#all#2"}}]
