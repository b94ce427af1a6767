"""Verifying: an archive that is right has no problems, and whatever is wrong with one is named."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from framework import TtlArchive
from framework.archive_lane import AGAIN, ALONE
from framework.archive_lines import Problem
from framework.codec import encode_item
from framework.compact import Compaction, Limits
from framework.verify import Verification
from tests.unit.shelf import PREFIX, SESSIONS, Shelf, session
from tests.unit.test_compact import MANIFEST, StoppedError, Watched
from tests.unit.test_restore import table


def problems(shelf: Shelf, *table: Any) -> list[Problem]:
    return [problem for found in Verification(shelf.archive, *table).run() for problem in found.problems]


def reasons(shelf: Shelf, *table: Any) -> list[str]:
    return [each.reason for each in problems(shelf, *table)]


def compact(shelf: Shelf) -> None:
    [*Compaction(shelf.archive, Limits(), now=lambda: shelf.now).run()]


def filled() -> Shelf:
    shelf = Shelf()
    shelf.file(0, [session(1), session(2)], through=10)
    shelf.file(10, [], through=12)
    shelf.file(12, [session(4)], through=20)
    shelf.file(3, [session(5)], through=20, suffix=AGAIN)  # its range reaches over others'
    shelf.file(14, [session(6)], through=15, suffix=ALONE)
    shelf.file(0, [session(7)], prefix=PREFIX.replace("-1/", "-2/"), through=30)
    shelf.file(0, [session(8)], partition="date=2018-02-01", through=30)
    return shelf


@pytest.mark.parametrize("times", range(3))
def test_what_is_right_has_no_problems(times: int) -> None:
    shelf = filled()
    for number in range(times):
        compact(shelf)
        shelf.file(100 + number, [session(100 + number)])
    found = [*Verification(shelf.archive).run()]
    assert [(each.partition, each.items, each.problems) for each in found] == [
        ("date=2018-01-31", 6 + times, []),
        ("date=2018-02-01", 1, []),
    ]


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda shelf: shelf.file(15, [session(9)], first=18, through=25), "expected records after 20, through which"),
        (lambda shelf: shelf.file(10, [session(9)], suffix=ALONE, through=20, first=11), None),
        (lambda shelf: shelf.file(12, [session(4)], suffix=ALONE), "expected an item once, came it also in "),
        (lambda shelf: shelf.file(30, [session(4)], suffix=ALONE), None),  # of another record
        (lambda shelf: shelf.file(30, [{"user": "ann"}]), "expected an item with the key 'id' (S), came None"),
    ],
)
def test_what_is_there_twice_or_has_no_key_is_named(change: Any, reason: str | None, compacted: bool) -> None:
    shelf = filled()
    change(shelf)
    if compacted:
        compact(shelf)
    found = reasons(shelf)
    assert [each.startswith(reason or "nothing") for each in found] == [True] * (reason is not None) * len(found)
    assert len(found) == (0 if reason is None else 1)


def test_objects_that_are_damaged_or_say_otherwise_are_named() -> None:
    shelf = filled()
    names = [name for name in sorted(shelf.objects.objects) if "01-31" in name]
    shelf.objects.objects[names[0]] = b"?"
    shelf.objects._about[names[1]]["Metadata"]["items"] = "7"
    shelf.objects._about[names[2]]["Metadata"] = {"first": "1"}
    shelf.objects.put_object(Bucket="", Key="sessions/x/y/z", Body=b"")
    found = {each.object: each.reason.partition(", came")[0] for each in problems(shelf)}
    assert found == {
        names[0]: "expected lines compressed with gzip",
        names[1]: "expected 7 lines, as it says",
        names[2]: f"{names[2].rpartition('/')[2]}: expected metadata first, through and items",
        "sessions/x/y/z": "expected an object of an archive",
    }


def test_what_was_merged_has_to_be_there_as_it_was() -> None:
    shelf = filled()
    compact(shelf)
    kept = dict(shelf.objects.objects)
    merged = "sessions/date=2018-01-31/merged-000001.json.gz"
    other = "sessions/date=2018-02-01/"
    lines = gzip.decompress(kept[merged]).splitlines(keepends=True)
    shelf.objects.objects[merged] = gzip.compress(b"".join(reversed(lines)))
    assert reasons(shelf) == ["expected the lines that were merged, came others"]
    shelf.objects.objects[merged] = gzip.compress(b"".join(lines[1:]))
    assert reasons(shelf) == ["expected 6 lines, as it says, came 5"]
    del shelf.objects.objects[merged]
    assert reasons(shelf) == ["expected the merged objects that it lists, came none of 1"]
    shelf.objects.put_object(Bucket="", Key=MANIFEST, Body=b"[]")
    assert "expected a manifest of merged objects" in reasons(shelf)[0]
    shelf.file(40, [session(40)])
    assert "expected a manifest of merged objects" in reasons(shelf)[0]
    shelf.objects.put_object(Bucket="", Key=MANIFEST, Body=kept[MANIFEST])
    assert reasons(shelf) == ["expected an object, came none of that name"]
    assert other not in str(problems(shelf))


def test_what_a_compaction_left_behind_is_named_until_another_ends_it() -> None:
    for die, left in ((2, 1), (3, 6)):
        shelf = filled()
        shelf.client = Watched(shelf.objects, lambda operation: None, die)
        with pytest.raises(StoppedError):
            compact(shelf)
        shelf.client = shelf.objects
        found = reasons(shelf)
        assert len(found) == left
        assert all(each.startswith("expected none beside what takes its place") for each in found)
        compact(shelf)
        assert reasons(shelf) == []


class Some(TtlArchive):
    name = "some"
    source = SESSIONS
    without = ("secret",)


def test_what_is_archived_and_still_in_the_table_is_named() -> None:
    shelf, engine = Shelf(Some), table()
    items = [session(n, tags={"a", "b"}, b=b"\xff", amount=n) for n in range(250)]
    name = shelf.file(0, items)
    for number in (7, 120):  # as they were archived, with what is not kept
        engine.put_item(
            TableName="Sessions", Item={**encode_item(items[number]), "tags": {"SS": ["b", "a"]}, "secret": {"S": "x"}}
        )
    engine.put_item(TableName="Sessions", Item=encode_item({**items[8], "amount": 9}))
    found = problems(shelf, engine, "Sessions")
    assert sorted((each.object, each.line) for each in found) == [(name, 8), (name, 121)]
    assert {each.reason for each in found} == {"expected an item that is gone, came it in Sessions"}
    assert problems(shelf) == []
    assert engine.requests["BatchGetItem"] == 3


def test_two_versions_of_an_item_in_one_object_are_both_looked_for() -> None:
    shelf, engine = Shelf(), table()
    shelf.file(0, [session(1, v=1), session(1, v=2)])
    engine.put_item(TableName="Sessions", Item=encode_item(session(1, v=1)))
    assert [each.line for each in problems(shelf, engine, "Sessions")] == [1]
