"""Plans are values: one update for each aggregate, one conditional write for each update."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal as D
from typing import Any

import pytest

from framework import Aggregation, AllTime, BadValueError, Count, Index, Max, Min, Monthly, Sum, Table, at_least
from framework.fold import Folded
from framework.lanes import MARK, watermark
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


class Retained(Aggregation):
    """Kept for a day."""

    name = "retained"
    source = Table("Things", pk="id")
    target = Table("Totals", pk="key", ttl="expires")
    group_by = "kind"
    window = Monthly("at")
    retention = timedelta(days=1)
    Things = Count()


class Spread(Aggregation):
    """Over partitions."""

    name = "spread"
    source = Table("Things", pk="id")
    group_by = "kind"
    window = AllTime()
    partitions = 3
    Things = Count()


class Chart(Aggregation):
    """Sums of 100 or more, in shards."""

    name = "chart"
    source = Table("Things", pk="id")
    group_by = "kind"
    window = Monthly("at")
    Total = Sum("n")
    index = Index("Chart", pk="Month", sk="Total", prefix="chart#", when=at_least("Total", 100), shards=8)


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


def test_an_update_is_one_conditional_write_of_count_watermark_and_index_key() -> None:
    found = request(update((10, True, ADD), (12, True, ADD)), HOUR)
    assert found == {
        "TableName": "MusicLibrary",
        "Key": {"songID": {"S": "song"}, "SK": {"S": "2018-01"}},
        "UpdateExpression": "SET #lane = :v1, #n0 = :v0, #n3 = :v3 ADD #n4 :v4",
        "ConditionExpression": "(attribute_not_exists(#lane) OR #lane < :v2) AND (attribute_not_exists(#n2) OR #n0 = :v0)",
        "ExpressionAttributeNames": {
            "#n0": MARK,
            "#lane": LANE,
            "#n2": "songID",
            "#n3": "Month",
            "#n4": "DownloadCount",
        },
        "ExpressionAttributeValues": {
            ":v0": {"S": "monthly-downloads"},
            ":v1": {"S": "0212@420000"},
            ":v2": {"S": "0210"},
            ":v3": {"S": "2018-01"},
            ":v4": {"N": "2"},
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
    assert ("attribute_not_exists(#n2) OR #n0 = :v0" in condition) is not guarded
    assert "#n0 = :v0)" in condition


def test_every_write_sets_the_time_to_live_where_a_retention_is_declared() -> None:
    for values in (ADD, TAKE):
        found = request(update((1, values is ADD, values), declaration=Retained._declaration), HOUR)
        (place,) = (name for name, attribute in found["ExpressionAttributeNames"].items() if attribute == "expires")
        value = found["UpdateExpression"].partition(f"{place} = ")[2].split()[0].rstrip(",")
        # the end of January and a day
        assert found["ExpressionAttributeValues"][value] == {"N": "1517529600"}
        assert place not in found["ConditionExpression"]


def test_a_batch_that_nets_to_nothing_is_still_written_for_its_watermark() -> None:
    found = request(update((1, True, ADD), (2, False, TAKE)), HOUR)
    assert found["ExpressionAttributeValues"][":v4"] == {"N": "0"}


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


ENTERS, LEAVES = "Month = 'chart#2018-01#4'", " REMOVE Month ADD "


@pytest.mark.parametrize(
    ("added", "known", "clause", "condition"),
    [
        # Unknown: as where there is none.
        (1, None, LEAVES, "(attribute_not_exists({sk}) OR {sk} < 99)"),
        (100, None, ENTERS, "(attribute_not_exists({sk}) OR {sk} >= 0)"),
        (150, None, ENTERS, "(attribute_not_exists({sk}) OR {sk} >= -50)"),
        (-1, None, LEAVES, "(attribute_not_exists({sk}) OR {sk} < 101)"),
        # Known: what there is decides, and has to be as it was at least.
        (1, "99", ENTERS, "{sk} >= 99"),
        (1, "98", LEAVES, "(attribute_not_exists({sk}) OR {sk} < 99)"),
        (1, "98.5", LEAVES, "(attribute_not_exists({sk}) OR {sk} < 99)"),
        (-1, "101", ENTERS, "{sk} >= 101"),
        (-1, "100", LEAVES, "(attribute_not_exists({sk}) OR {sk} < 101)"),
        (150, "-50", ENTERS, "(attribute_not_exists({sk}) OR {sk} >= -50)"),
        (150, "-51", LEAVES, "{sk} < -50"),
        # More digits than a number has: the next one above decides alike.
        (D("1E-120"), "100", ENTERS, "{sk} >= 100"),
        (D("1E+125"), "100", ENTERS, f"(attribute_not_exists({{sk}}) OR {{sk}} >= -{'9' * 38}{'0' * 87})"),
        (-D("9.9E+125"), "100", LEAVES, f"(attribute_not_exists({{sk}}) OR {{sk}} < 99{'0' * 35}1{'0' * 88})"),
    ],
)  # fmt: skip
def test_an_entry_enters_and_leaves_with_the_write_that_takes_it_past_the_threshold(
    added: Any, known: str | None, clause: str, condition: str
) -> None:
    thing = Update(Chart._declaration, "blue", "2018-01", 0, LANE, ((1, True, (added,)),))
    found = request(thing, HOUR, None if known is None else {"Total": {"N": known}})
    assert clause in shown(found, "UpdateExpression")
    assert shown(found, "UpdateExpression").count("Month") == 1
    assert shown(found, "ConditionExpression").endswith(f" AND {condition.format(sk='Total')}")


def shown(found: dict[str, Any], expression: str) -> str:
    """An expression with names and values in the place of their placeholders."""
    text: str = found[expression]
    for place, name in found["ExpressionAttributeNames"].items():
        text = re.sub(rf"{place}\b", name, text)
    for place, value in found["ExpressionAttributeValues"].items():
        text = re.sub(rf"{place}\b", value["N"] if "N" in value else f"'{value['S']}'", text)
    return text


def test_a_threshold_that_no_total_before_can_reach_needs_no_condition() -> None:
    class Steep(Chart):
        name = "steep"
        index = Index("Chart", pk="Month", sk="Total", when=at_least("Total", D("9E+125")))

    thing = Update(Steep._declaration, "blue", "2018-01", 0, LANE, ((1, False, (-D("9E+125"),)),))
    found = request(thing, HOUR, {"Total": {"N": "9E+125"}})
    assert "REMOVE Month" in shown(found, "UpdateExpression")
    assert "Total" not in shown(found, "ConditionExpression")


def test_a_total_that_somebody_made_text_is_refused() -> None:
    thing = Update(Chart._declaration, "blue", "2018-01", 0, LANE, ((1, True, (1,)),))
    with pytest.raises(BadValueError, match="the total kept so far: expected a number, came"):
        request(thing, HOUR, {"Total": {"S": "x"}})


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


def test_an_extreme_that_somebody_made_text_is_refused() -> None:
    thing = update((1, True, (D(4), D(4), D(4))), declaration=Extremes._declaration)
    with pytest.raises(BadValueError, match="the extreme kept so far: expected a number, came"):
        request(thing, HOUR, {"Least": {"S": "x"}})


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
