"""Any declaration, any images: what is to be written or is bad passes the filter, and a write settles."""

from __future__ import annotations

import re
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import event, given
from hypothesis import strategies as st

from framework import App, Index, SparseIndex, Table, attr
from framework.codec import encode_item, to_event
from framework.conditions import Condition
from framework.entry import compile_entry, compile_there
from framework.filters import compile_filters
from framework.local.entries import Entries
from framework.local.filtering import passes
from framework.local.history import key_text
from framework.local.memory import MemoryDynamoDB
from framework.local.provision import create_table_request
from framework.local.recount import Seen
from framework.sparse import SparseDeclaration
from framework.sparse_fold import compile_items, entry_request
from tests.property.test_filters_properties import conditions, items, limits, records, scalars, textual

source = Table("Events", pk="songID", sk="SK")
INDEXES = [
    Index("One", pk="Open", sk="songID"),
    Index("Two", pk="Open", sk="On"),
    Index("Mix", pk="Open", sk="On", pk_type="N", sk_type="B"),
    Index("Own", pk="songID", sk="On"),
    Index("Pre", pk="Open", sk="On", prefix="y"),
]
HELD: dict[str, list[Any]] = {
    "S": [attr("a"), attr("m.a"), "yes"],
    "N": [attr("b"), attr("l[0]"), 7],
    "B": [attr("a"), attr("c"), b"yes"],
}
FUNCTIONS = [
    lambda item: None if item.get("a") == "a" else dict.fromkeys(("Open", "On"), item["b"]),
    lambda item: {"Open": item["a"], "On": item["a"]} if "c" in item else None,
    lambda item: {"Open": 5, "On": b"x"} if len(item) % 2 else {"Open": ""},
    lambda item: item["m"]["a"],
]
# What is in the entry's attributes: nothing, what may be right, or what DynamoDB would not even take there.
entries = st.fixed_dictionaries({}, optional={"Open": scalars, "On": scalars})


def declare(index: Index, when: Condition | None, held: tuple[Any, Any], function: int | None) -> SparseDeclaration:
    fields: dict[str, Any] = {"name": "any", "source": source, "index": index, "when": when}
    if function is not None:
        fields["entry"] = staticmethod(FUNCTIONS[function])
    else:
        for field, name, kind, value in (
            ("key", index.pk, index.pk_type, held[0]),
            ("sort", index.sk, index.sk_type, held[1]),
        ):
            if name not in source.keys:
                fields[field] = HELD[kind or "S"][value]
    return type("Any", (SparseIndex,), fields)._declaration  # type: ignore[attr-defined, no-any-return]


def declared(when: st.SearchStrategy[Condition | None]) -> st.SearchStrategy[SparseDeclaration]:
    places = st.integers(0, 2)
    functions = st.none() | st.none() | st.integers(0, len(FUNCTIONS) - 1)
    return st.builds(declare, st.sampled_from(INDEXES), when, st.tuples(places, places), functions)


# Few values, so that a version of an item has the entry of another one.
few = st.fixed_dictionaries(
    {}, optional={"a": st.sampled_from(["a", "b"]), "b": st.sampled_from([1, "x", "y"]), "c": st.just(b"c")}
)
simple = st.sampled_from([attr("a").equals("a"), attr("a").not_equals("a"), attr("a").exists(), attr("c").not_exists()])
whole = st.builds(lambda item, entry: item and {**item, **entry}, st.none() | items | few, entries)
yes = st.fixed_dictionaries({}, optional={"Open": st.sampled_from(["yes", "yyes"]), "On": st.just("yes")})
narrow = st.builds(lambda item, entry: {**item, **entry}, few, yes)
histories = st.lists(whole, min_size=2, max_size=6) | st.lists(narrow, min_size=2, max_size=6)


fixed = st.builds(declare, st.sampled_from([*INDEXES[:2], INDEXES[4]]), simple, st.just((2, 2)), st.none())


@given(fixed | declared(st.none() | simple | conditions | textual), limits, histories)
def test_what_is_to_be_written_or_is_bad_passes(declaration: SparseDeclaration, limit: int, history: list[Any]) -> None:
    start = compile_items(declaration)
    filters = compile_filters([declaration], limit=limit)
    for change in records([None if item is None else {"songID": "a", "SK": "b", **item} for item in history]):
        folded, fold = start()
        fold(change)
        event(f"concerned: {bool(folded.updates or folded.bad)}")
        if folded.updates or folded.bad:
            assert passes(filters.patterns, change)


@given(fixed | declared(st.none() | simple | textual), histories)
def test_what_left_the_index_does_not_pass_and_without_a_warning_no_own_write_does(
    declaration: SparseDeclaration, history: list[Any]
) -> None:
    place_of, filters = compile_entry(declaration), compile_filters([declaration])
    for item in history:
        image = item and to_event(encode_item({"songID": "a", "SK": "b", **item}))
        if not image:
            continue
        place = place_of(image)
        if place is None or place.reason or compile_there(declaration)(image, place.entry):
            continue
        rest = {name: value for name, value in image.items() if name not in declaration.managed}
        (own,) = records_of(image, {**rest, **to_event(place.entry or {})})
        when = declaration.when
        out = place.entry is None and when is not None and not when.compile()(rest)
        event(f"left: {out}, exact: {not filters.warnings}")
        if out and not any(re.search("lets every item pass|asks|makes none", text) for text in filters.warnings):
            assert not passes(filters.patterns, own)
        if not filters.warnings:
            assert not passes(filters.patterns, own)


def records_of(old: Any, new: Any) -> list[dict[str, Any]]:
    from tests.unit.stream import record

    return [record(1, old=old, new=new)]


called = st.builds(declare, st.just(INDEXES[1]), st.none(), st.just((0, 0)), st.integers(0, 1))


@given(called | declared(st.none() | simple | conditions), histories.filter(any))
def test_a_write_leaves_its_item_with_its_entry_and_one_for_another_version_leaves_it_alone(
    declaration: SparseDeclaration, history: list[Any]
) -> None:
    engine = MemoryDynamoDB()
    engine.create_table(
        TableName="Events",
        KeySchema=[{"AttributeName": "songID", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("songID", "SK")],
        BillingMode="PAY_PER_REQUEST",
    )
    place_of = compile_entry(declaration)
    versions = [encode_item({"songID": "a", "SK": "b", **item}) for item in history if item is not None]
    for seen, now in [*pairwise(versions), (versions[-1], versions[-1])]:
        folded, fold = compile_items(declaration)()
        (change,) = records_of(None, to_event(seen))
        fold(change)
        for update in folded.updates:
            engine.put_item(TableName="Events", Item=now)
            try:
                engine.update_item(**entry_request(update))
            except Exception as error:
                assert "ConditionalCheckFailed" in str(error)  # noqa: PT017
                (left,) = engine.scan(TableName="Events")["Items"]
                assert left.keys() == now.keys()
                assert seen != now
                continue
            (after,) = engine.scan(TableName="Events")["Items"]
            place = place_of(after)
            if place is not None and declaration.entry is not FUNCTIONS[2]:  # that one asks how many there are
                assert compile_there(declaration)(after, place.entry)
            engine.delete_item(TableName="Events", Key={name: now[name] for name in ("songID", "SK")})
            with pytest.raises(Exception, match="ConditionalCheckFailed"):
                engine.update_item(**entry_request(update))
            assert engine.scan(TableName="Events")["Items"] == []


def share(members: list[tuple[Condition | None, tuple[Any, Any], int | None]]) -> App:
    """An app of sparse indexes that share one."""
    made = []
    for place, (when, held, function) in enumerate(members):
        index = Index("Pre", pk="Open", sk="On", prefix=f"{'xyz'[place]}#")
        fields: dict[str, Any] = {"name": f"any-{place}", "source": source, "index": index, "when": when}
        if function is None:
            fields |= {"key": HELD["S"][held[0]], "sort": HELD["S"][held[1]]}
        else:
            fields["entry"] = staticmethod(FUNCTIONS[function])
        made.append(type("Any", (SparseIndex,), fields))
    return App("any", made)


# That function is not among them of which each write may be wrong for a moment.
member = st.tuples(
    st.none() | simple, st.sampled_from([(0, 0), (0, 2), (2, 2)]), st.sampled_from([None, None, 0, 1, 3])
)
sharing = st.lists(member, min_size=2, max_size=3).map(share)
taken = st.fixed_dictionaries(
    {},
    optional={
        "Open": st.sampled_from(["x#yes", "y#a", "x#a", "z#b", "y#yes", "yes"]),
        "On": st.sampled_from(["a", "yes", "yes"]),
    },
)
kept = st.builds(lambda item, entry: {**item, **entry}, few, taken)


@given(sharing, limits, histories | st.lists(kept, min_size=2, max_size=6))
def test_what_is_to_be_written_or_is_bad_of_a_shared_index_passes(app: App, limit: int, history: list[Any]) -> None:
    changes = records([None if item is None else {"songID": "a", "SK": "b", **item} for item in history])
    for declaration in app.declarations:
        assert isinstance(declaration, SparseDeclaration)
        filters = compile_filters([declaration], limit=limit)
        for change in changes:
            folded, fold = compile_items(declaration)()
            fold(change)
            event(f"concerned: {bool(folded.updates or folded.bad)}")
            if folded.updates or folded.bad:
                assert passes(filters.patterns, change)


@given(sharing, st.lists(kept | st.none(), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_those_that_share_an_index_settle_whatever_comes_late_or_again(
    app: App, history: list[Any], random: Random
) -> None:
    changes: list[tuple[Any, Any]] = []
    engine = MemoryDynamoDB(on_change=lambda name, old, new: changes.append((old, new)))
    engine.create_table(**create_table_request(app, source))
    filters = compile_filters(app.declarations).patterns
    starts = [compile_items(each) for each in app.declarations if isinstance(each, SparseDeclaration)]
    late: list[Any] = []
    model = Entries(app, [])

    def fold(place: int) -> None:
        (change,) = records_of(*(item and to_event(item) for item in changes[place]))
        for start in starts if passes(filters, change) else []:
            folded, fold_one = start()
            fold_one(change)
            late.extend(folded.updates)

    def write(update: Any) -> None:
        before = len(changes)
        try:
            engine.update_item(**entry_request(update))
        except ClientError as error:
            assert "ConditionalCheckFailed" in str(error)  # noqa: PT017
        for old, new in changes[before:]:
            assert [*model.wrong_writes([("Events", old, new)])] == []

    done, key = 0, {"songID": "a", "SK": "b"}
    for item in history:
        if item is None:
            engine.delete_item(TableName="Events", Key=encode_item(key))
        else:
            engine.put_item(TableName="Events", Item=encode_item({**key, **item}))
        for _ in range(random.randrange(3)):
            fold(random.randrange(len(changes))) if changes else None
            write(random.choice(late)) if late else None
    last = [encode_item({**key, **item}) for item in history[-1:] if item is not None]
    for _ in range(200):
        if done == len(changes) and not late:
            break
        if late and (done == len(changes) or random.random() < 0.7):
            write(late.pop(random.randrange(len(late))))
        else:
            fold(done)
            done += 1
    event(f"records: {done}")
    assert (done, late) == (len(changes), [])
    model = Entries(app, [Seen("Events", "shard", None, item, False, 0) for item in last])
    expected = [*model.items({"Events": {key_text(source, item): item for item in last}})["Events"].values()]
    assert engine.scan(TableName="Events")["Items"] == expected
    event(f"as put: {expected == last}")
