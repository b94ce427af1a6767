"""Any conditions, any histories of items: what counts passes the filter, and what Streamfold wrote does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from framework import Aggregation, AllTime, Count, Daily, DeclarationError, Sum, Table, attr
from framework.codec import encode_item, to_event
from framework.conditions import Condition
from framework.declaration import Declaration
from framework.filters import MOST_CHARACTERS, Filters, compile_filters
from framework.fold import compile_fold
from framework.lanes import MARK
from framework.local.filtering import matches, passes
from tests.unit.stream import EXPIRY, record

kept = {"target": Table("Kept", pk="key", ttl="expires"), "window": Daily("c"), "retention": timedelta(days=1)}
retentions: list[dict[str, Any]] = [{}, {}, kept, {**kept, "late": "set-aside"}]
sources = [Table("Events", pk="a", sk="b"), Table("Events", pk="a", sk="b", ttl="c", home="us-east-1")]

# Few names and values, so that they meet; names that the filter language cannot have, and the mark as an attribute.
NAMES = ["a", "b", "c", r"x\.y", "$or", MARK]
PATHS = [*NAMES, "m.a", "m.m.b", "l[0]", "l[0].a", "m.l[1]"]
text = st.sampled_from(["", "a", "ab", "abc", "b", "é", "10.0.0.1", '"', "1"])
numbers = st.sampled_from([0, 1, -1, 5, 10**14, 10**15, 10**20, Decimal("0.5"), Decimal("1E-130"), Decimal("-7.0")])
binary = st.sampled_from([b"", b"a", b"ab", b"abc", b"abcd", b"\xff\xfe\xfd"])
scalars: st.SearchStrategy[Any] = text | numbers | binary | st.booleans() | st.none()
ordered = st.one_of(*(st.lists(each, min_size=2, max_size=2).map(sorted) for each in (text, numbers, binary)))
values: st.SearchStrategy[Any] = st.one_of(
    scalars,
    st.frozensets(st.sampled_from(["a", "b"]), min_size=1),
    st.lists(scalars | st.dictionaries(st.just("a"), scalars), max_size=2),
)
maps = st.fixed_dictionaries(
    {}, optional={"a": values, "l": values, "m": st.fixed_dictionaries({}, optional={"b": scalars})}
)
unmarked = st.fixed_dictionaries(
    {}, optional={**dict.fromkeys(["a", "b", "c", "x.y", "$or", "l"], values), "m": maps | scalars, "x": maps}
)
marked = st.builds(lambda item, name: {**item, MARK: name}, unmarked, st.sampled_from(["one", "a", ""]))
items = st.integers(0, 4).flatmap(lambda n: unmarked if n else marked)
histories = st.lists(st.none() | items, min_size=2, max_size=8)

paths = st.sampled_from(PATHS)
leaves: st.SearchStrategy[Condition] = st.one_of(
    st.builds(
        lambda path, method, value: getattr(attr(path), method)(value),
        paths,
        st.sampled_from(["equals", "not_equals"]),
        scalars,
    ),
    st.builds(
        lambda path, method, pair: getattr(attr(path), method)(pair[0]),
        paths,
        st.sampled_from(["lt", "le", "gt", "ge"]),
        ordered,
    ),
    st.builds(lambda path, pair: attr(path).between(*pair), paths, ordered),
    st.builds(lambda path, some: attr(path).any_of(some), paths, st.lists(scalars, min_size=1, max_size=4)),
    st.builds(lambda path, prefix: attr(path).begins_with(prefix), paths, text | binary),
    st.builds(lambda path: attr(path).exists(), paths),
    st.builds(lambda path: attr(path).not_exists(), paths),
)


def junctions(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    return st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
    )


conditions = st.recursive(leaves, junctions, max_leaves=8)
# Conditions on text alone are mostly expressed exactly.
textual = st.recursive(
    st.one_of(
        st.builds(
            lambda path, method, value: getattr(attr(path), method)(value),
            st.sampled_from(["a", "b", "m.a"]),
            st.sampled_from(["equals", "not_equals", "begins_with"]),
            text,
        ),
        st.builds(lambda some: ~attr("a").any_of(some), st.lists(text, min_size=1, max_size=3)),
    ),
    junctions,
    max_leaves=6,
)


def declare(
    number: int,
    where: Condition | None,
    group: Any,
    changes: str,
    on_expiry: str,
    source: Table,
    retained: dict[str, Any],
) -> Declaration:
    fields = {
        "name": f"a{number}",
        "source": source,
        "where": where,
        "group_by": group,
        "window": AllTime(),
        **retained,
        "changes": changes,
        "on_expiry": on_expiry,
        "Items": Count(),
        "Total": Sum("c"),
    }
    return type("Any", (Aggregation,), fields)._declaration  # type: ignore[attr-defined, no-any-return]


def declared(where: st.SearchStrategy[Condition | None]) -> st.SearchStrategy[list[Declaration]]:
    some = st.tuples(
        where,
        st.sampled_from(["a", "m.a", ("a", "b"), staticmethod(lambda item: item.get("c"))]),
        st.sampled_from(["all", "all", "inserts"]),
        st.sampled_from(["keep", "retract"]),
        st.sampled_from(sources),
        st.sampled_from(retentions),
    )
    return st.lists(some, min_size=1, max_size=4).map(
        lambda fields: [declare(number, *each) for number, each in enumerate(fields)]
    )


def records(history: list[dict[str, Any] | None]) -> Iterator[dict[str, Any]]:
    """What the stream says about an item with this history; every second delete names the item's time to live."""
    images = [None if item is None else to_event(encode_item(item)) for item in history]
    for number, (old, new) in enumerate(pairwise(images)):
        if old != new:
            expired = new is None and number % 2 == 0
            found = record(number, old=old, new=new, **({"userIdentity": EXPIRY} if expired else {}))
            found["dynamodb"]["ApproximateCreationDateTime"] = 10**9 + number
            yield found


def concerns(declaration: Declaration, change: dict[str, Any]) -> bool:
    """Whether the fold makes anything of a record."""
    folded, fold = compile_fold(declaration)()
    fold(change)
    return bool(folded.buckets or folded.bad)


def compiled(declarations: list[Declaration], limit: int) -> Filters | None:
    """The filters; None where no record can ever pass."""
    try:
        return compile_filters(declarations, limit=limit)
    except DeclarationError:
        return None


limits = st.integers(1, 10)


@given(declared(st.none() | conditions), limits, histories)
def test_what_changes_an_aggregate_or_is_a_bad_record_of_it_passes(
    declarations: list[Declaration], limit: int, history: list[Any]
) -> None:
    filters = compiled(declarations, limit)
    for change in records(history):
        concerned = any(concerns(declaration, change) for declaration in declarations)
        event(f"concerns an aggregation: {concerned}")
        if concerned:
            assert filters is not None
            assert passes(filters.patterns, change)


@given(declared(st.none() | conditions), st.integers(2, 10), st.lists(st.none() | marked, min_size=2, max_size=8))
def test_what_streamfold_wrote_does_not_pass_where_the_limit_is_two_or_more(
    declarations: list[Declaration], limit: int, history: list[Any]
) -> None:
    filters = compiled(declarations, limit)
    for change in records(history):
        assert filters is None or not passes(filters.patterns, change)


@given(declared(textual | conditions), st.integers(2, 10), histories)
def test_without_a_warning_exactly_the_records_with_an_image_that_counts_pass(
    declarations: list[Declaration], limit: int, history: list[Any]
) -> None:
    filters = compiled(declarations, limit)
    event(f"exact: {filters is not None and not filters.warnings}")
    if filters is None or filters.warnings:
        return

    def counts(declaration: Declaration, change: dict[str, Any], side: str) -> bool:
        image = change["dynamodb"].get(side)
        where = declaration.where
        return image is not None and MARK not in image and (where is None or where.compile()(image))

    for change in records(history):
        expected = any(
            counts(each, change, "NewImage") or (each.changes == "all" and counts(each, change, "OldImage"))
            for each in declarations
            if each.changes == "all" or change["eventName"] == "INSERT"
        )
        assert passes(filters.patterns, change) is expected


long = st.sampled_from(["a", "b", "word" * 60, "é" * 300, "a" * 1500])
lengthy = st.recursive(
    st.one_of(
        st.builds(lambda name, some: attr(name).any_of(some), long, st.lists(long | numbers, min_size=1, max_size=6)),
        st.builds(lambda name, some: ~attr(name).any_of(some), long, st.lists(long, min_size=1, max_size=6)),
        st.builds(lambda name, prefix: attr(name).begins_with(prefix), long, long),
    ),
    junctions,
    max_leaves=6,
)
lengthy_items = st.dictionaries(long, long | numbers, max_size=4)


@given(declared(lengthy | conditions), limits, st.lists(st.none() | lengthy_items, min_size=2, max_size=4))
def test_patterns_keep_to_the_limits_and_to_the_operators_that_the_service_has(
    declarations: list[Declaration], limit: int, history: list[Any]
) -> None:
    filters = compiled(declarations, limit)
    if filters is None:
        return
    assert 1 <= len(filters.patterns) <= limit
    for pattern, written in zip(filters.patterns, filters.texts, strict=True):
        assert len(written) <= MOST_CHARACTERS
        assert written.isascii()
        assert json.loads(written) == pattern
        assert set(operators(pattern)) <= {"prefix", "anything-but", "exists"}
        matches(pattern, {})  # raises where Lambda would refuse the pattern
    assert compile_filters(declarations, limit=limit) == filters
    for change in records(history):
        if any(concerns(declaration, change) for declaration in declarations):
            assert passes(filters.patterns, change)


def operators(rule: Any) -> Iterator[str]:
    if isinstance(rule, dict):
        for inner in rule.values():
            yield from operators(inner)
    else:
        for matcher in rule:
            yield from matcher if isinstance(matcher, dict) else ()
