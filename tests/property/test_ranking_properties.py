"""What is read of an index is one sorted list, whatever its shards, its pages and its ties."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework import Aggregation, App, Count, Index, Monthly, ReadError, Sum, Table, ranking
from framework.codec import number_text
from framework.declaration import Declaration
from framework.local.memory import MemoryDynamoDB
from framework.local.world import table_requests
from framework.reading import Ranking, page

scores = Table("Scores", pk="who", sk="when")
Scores = dict[str, tuple[int, Decimal]]  # how many and how much, by group


class Score(Aggregation):
    """A sum that ranks, beside a count that may be nothing."""

    name = "score"
    source = scores
    group_by = "who"
    window = Monthly("at")
    Times = Count()
    Score = Sum("amount")
    index = Index("Ranked", pk="Month", sk="Score", prefix="s#")


MONTH, OTHER = "2018-01", "2018-02"
REQUESTS = table_requests(App("app", [Score]))
# Ties, all signs, and numbers that a binary fraction or 28 digits would take for equal.
VALUES = [Decimal(each) for each in ("0", "1", "2", "-1", "2.5", "1E+20", "0.1")] + [
    Decimal("1.0000000000000000000000000000000000001"),
    Decimal("1.0000000000000000000000000000000000002"),
]
groups = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=3)
bounds = st.sampled_from([*VALUES, *map(Decimal, ("-2", "1.5", "1E+21"))])
charts = st.dictionaries(groups, st.tuples(st.integers(0, 2), st.sampled_from(VALUES)), max_size=40)


def declared(shards: int, partitions: int = 1) -> Declaration:
    found = Score._declaration
    assert found.index is not None
    return replace(found, index=replace(found.index, shards=shards), partitions=partitions)


def stored(chart: Scores, former: Declaration, later: Declaration | None = None) -> MemoryDynamoDB:
    """A chart as it was written under one declaration, and every third of it again under a later one."""
    engine = MemoryDynamoDB()
    for request in REQUESTS:
        engine.create_table(**request)
    for place, (group, (times, score)) in enumerate(chart.items()):
        declaration = later if later is not None and place % 3 == 0 else former
        for part in range(declaration.partitions):
            share = score if part == 0 else Decimal(0)
            put(engine, declaration, group, MONTH, times if part == 0 else 0, share, part)
        put(engine, declaration, group, OTHER, 1, Decimal(5), 0)
    return engine


def put(
    engine: MemoryDynamoDB, declaration: Declaration, group: str, label: str, times: int, score: Decimal, part: int
) -> None:
    assert declaration.index is not None
    item = {
        **declaration.key(group, label, part),
        "Month": {"S": declaration.index.key(group, label)},
        "Times": {"N": str(times)},
        "Score": {"N": number_text(score)},
    }
    engine.put_item(TableName="Scores", Item=item)


class Small:
    """A client whose pages are small."""

    def __init__(self, engine: MemoryDynamoDB, most: int) -> None:
        self.engine = engine
        self.most = most

    def query(self, **arguments: Any) -> Any:
        return self.engine.query(**arguments | {"Limit": min(self.most, arguments.get("Limit", self.most))})


@contextmanager
def small_limits() -> Iterator[None]:
    with mock.patch.object(ranking, "_LEAST_PAGE", 1):
        yield


def expected(chart: Scores, *, least_first: bool = False) -> list[tuple[str, Decimal]]:
    sign = 1 if least_first else -1
    there = [(group, score) for group, (times, score) in chart.items() if times]
    # By numbers as fractions, which Python compares exactly.
    return sorted(there, key=lambda one: (sign * ratio(one[1]), one[0]))


def ratio(value: Decimal) -> Any:
    from fractions import Fraction

    return Fraction(value)


def shown(found: Any) -> list[tuple[str, Any]]:
    return [(one.group, one["Score"]) for one in found]


@given(chart=charts, shards=st.integers(1, 9), former=st.integers(1, 9), most=st.integers(1, 50), least=st.booleans())
def test_all_of_a_window_is_one_sorted_list(chart: Scores, shards: int, former: int, most: int, least: bool) -> None:
    now = declared(shards)
    engine = stored(chart, declared(min(former, shards)), now)
    found = Ranking(now, MONTH, Small(engine, most), least_first=least)
    assert shown(found) == expected(chart, least_first=least)
    assert found.token is None


@given(
    chart=charts, shards=st.integers(1, 9), n=st.integers(1, 12), start=st.integers(1, 12), most=st.integers(1, 50),
    least=st.booleans(),
)  # fmt: skip
def test_a_page_from_any_rank_is_its_part_of_the_list(
    chart: Scores, shards: int, n: int, start: int, most: int, least: bool
) -> None:
    now = declared(shards)
    with small_limits():
        found = page(now, MONTH, n, Small(stored(chart, now), most), start=start, least_first=least)
    whole = expected(chart, least_first=least)
    assert shown(found) == whole[start - 1 : start - 1 + n]
    if found.token is None:
        assert len(whole) <= start - 1 + n


@given(
    chart=charts, sizes=st.lists(st.integers(1, 7), min_size=1), former=st.integers(1, 4), raised=st.integers(0, 5),
    least=st.booleans(), partitions=st.sampled_from([1, 1, 3]),
)  # fmt: skip
def test_pages_that_go_on_by_tokens_are_the_list_also_where_shards_are_raised_in_between(
    chart: Scores, sizes: list[int], former: int, raised: int, least: bool, partitions: int
) -> None:
    before, after = declared(former, partitions), declared(former + raised, partitions)
    engine = stored(chart, before, after)
    found: list[tuple[str, Any]] = []
    token: str | None = None
    with small_limits():
        for turn in range(len(chart) + 2):
            read = page(
                after if turn or raised else before,
                MONTH,
                sizes[turn % len(sizes)],
                engine,
                token=token,
                least_first=least,
            )
            found += shown(read)
            token = read.token
            if token is None:
                break
    assert token is None
    assert found == expected(chart, least_first=least)


@given(
    chart=charts, bounds=st.tuples(st.none() | bounds, st.none() | bounds), former=st.integers(1, 4),
    raised=st.integers(0, 5), sizes=st.lists(st.integers(1, 7), min_size=1), most=st.integers(1, 50),
    least=st.booleans(), partitions=st.sampled_from([1, 1, 3]),
)  # fmt: skip
def test_what_lies_between_bounds_is_that_part_of_the_list_also_by_tokens(
    chart: Scores,
    bounds: tuple[Decimal | None, Decimal | None],
    former: int,
    raised: int,
    sizes: list[int],
    most: int,
    least: bool,
    partitions: int,
) -> None:
    low, high = bounds if None in bounds else sorted(bounds, key=ratio)  # type: ignore[arg-type, type-var]
    now = declared(former + raised, partitions)
    engine = stored(chart, declared(former, partitions), now)
    wanted = [
        (group, score)
        for group, score in expected(chart, least_first=least)
        if (low is None or ratio(low) <= ratio(score)) and (high is None or ratio(score) <= ratio(high))
    ]
    read: dict[str, Any] = {"least_first": least, "at_least": low, "at_most": high}
    assert shown(Ranking(now, MONTH, Small(engine, most), **read)) == wanted
    found: list[tuple[str, Any]] = []
    token: str | None = None
    with small_limits():
        for turn in range(len(chart) + 2):
            some = page(now, MONTH, sizes[turn % len(sizes)], Small(engine, most), token=token, **read)
            found += shown(some)
            token = some.token
            if token is None:
                break
        n, start = sizes[0], sizes[-1]
        part = page(now, MONTH, n, Small(engine, most), start=start, **read)
    assert token is None
    assert found == wanted
    assert shown(part) == wanted[start - 1 : start - 1 + n]


@given(chart=charts, shards=st.integers(1, 5), partitions=st.integers(2, 4), least=st.booleans())
def test_aggregates_of_several_items_are_ranked_by_their_totals(
    chart: Scores, shards: int, partitions: int, least: bool
) -> None:
    now = declared(shards, partitions)
    assert shown(Ranking(now, MONTH, stored(chart, now), least_first=least)) == expected(chart, least_first=least)


@given(token=st.text(max_size=60))
def test_no_text_that_is_no_token_is_taken_for_one(token: str) -> None:
    with pytest.raises(
        ReadError, match="score: token: expected a token of a read of '2018-01', the greatest first, came"
    ):
        page(declared(3), MONTH, 1, None, token=token)
