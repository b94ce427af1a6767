"""Compacting: each item is read exactly once at every step, whatever breaks off, and whoever else is at it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from framework import ConfigurationError
from framework.archive_lane import AGAIN, ALONE
from framework.archive_manifest import Merges, manifest_name
from framework.compact import Compacted, Compaction, Limits, plan
from framework.local.objects import MemoryObjects
from tests.unit.shelf import DAY, NOW, PREFIX, Shelf, session

LIMITS = Limits()
MANIFEST = "_manifests/sessions/date=2018-01-31.json"


class StoppedError(Exception):
    """The process is killed."""


class Watched:
    """An S3 client that dies before or after one of its writing requests, and lets somebody look before each request."""

    def __init__(
        self, objects: MemoryObjects, look: Callable[[str], None], die: int = -1, *, after: bool = False
    ) -> None:
        self.objects, self.look, self.die, self.after = objects, look, die, after
        self.writes: list[str] = []
        self.dead = False

    def __getattr__(self, operation: str) -> Any:
        def request(**arguments: Any) -> Any:
            self.look(operation)
            if self.dead:
                raise StoppedError
            if operation.startswith(("put", "delete")):
                number = len(self.writes)
                self.writes.append(operation)
                if number == self.die and not self.after:
                    self.dead = True
                    raise StoppedError
                reply = getattr(self.objects, operation)(**arguments)
                if number == self.die:
                    self.dead = True
                    raise StoppedError
                self.look(operation)
                return reply
            return getattr(self.objects, operation)(**arguments)

        return request


def filled(objects: int = 6, each: int = 2) -> Shelf:
    shelf = Shelf()
    for place in range(objects):
        items = [session(place * each + n) for n in range(each)]
        shelf.file(place * 10, items if place != 2 else [], through=place * 10 + 10)
    return shelf


def compact(shelf: Shelf, limits: Limits = LIMITS) -> list[Compacted]:
    return [*Compaction(shelf.archive, limits, now=lambda: shelf.now).run()]


def folder(shelf: Shelf) -> list[str]:
    return sorted(name for name in shelf.objects.objects if name.startswith("sessions/"))


def test_small_objects_become_one_and_the_manifest_says_of_what() -> None:
    shelf = filled()
    before, names = shelf.texts(), folder(shelf)
    (done,) = compact(shelf)
    assert (done.before, done.after, done.deleted, done.problems) == (6, 1, 6, [])
    assert folder(shelf) == ["sessions/date=2018-01-31/merged-000001.json.gz"]
    assert shelf.texts() == before
    merges, _ = shelf.archive.manifest("date=2018-01-31")
    assert merges.begun is None
    (merged,) = merges.merged
    assert [f"sessions/date=2018-01-31/{source.name}" for source in merged.sources] == names
    assert [(source.first, source.through, source.items) for source in merged.sources] == [
        (place * 10 + 1, place * 10 + 10, 2 * (place != 2)) for place in range(6)
    ]
    assert {source.lane for source in merged.sources} == {"20180101T000000000-shardId-1"}
    assert merged.items == 10
    assert Merges.parse(merges.text()) == merges
    (done,) = compact(shelf)  # and nothing is left to do
    assert (done.before, done.deleted) == (0, 0)


def test_what_was_merged_is_merged_again_with_what_came_since() -> None:
    shelf = filled(3)
    compact(shelf)
    shelf.file(100, [session(50)])
    compact(shelf)
    shelf.file(200, [session(51)])
    before = shelf.texts()
    compact(shelf)
    assert [name.rpartition("/")[2] for name in folder(shelf)] == ["merged-000005.json.gz"]
    assert shelf.texts() == before
    (merged,) = shelf.archive.manifest("date=2018-01-31")[0].merged
    assert [(each.name, each.start, each.items) for each in merged.former] == [
        ("merged-000003.json.gz", 1, 5),
        ("merged-000001.json.gz", 2, 4),
    ]
    assert [(each.first, each.items) for each in merged.sources] == [(201, 1), (101, 1), (1, 2), (11, 2), (21, 0)]
    assert merged.lines_of("merged-000001.json.gz") == range(2, 6)
    assert merged.lines_of(merged.sources[3].name) == range(4, 6)
    assert merged.lines_of("another") is None


def test_which_objects_are_merged() -> None:
    shelf = Shelf()
    young, large = 3600, {"filler": "".join(str(n * n) for n in range(20_000))}
    shelf.file(10, [session(1)], age=young)  # the lane has gone on since
    shelf.file(20, [session(2)], age=young)
    shelf.file(30, [session(3)], age=young)  # it is its lane's last
    shelf.file(15, [session(4)], age=young, suffix=AGAIN)
    shelf.file(16, [session(5)], age=young, suffix=ALONE)
    shelf.file(40, [session(6, **large)], prefix=PREFIX.replace("-1/", "-2/"))
    shelf.file(50, [session(7)], age=young - 1, prefix=PREFIX.replace("-1/", "-2/"))
    shelf.file(60, [session(8)], age=young, prefix=PREFIX.replace("-1/", "-3/"))
    shelf.file(70, [session(9)], age=60, prefix=PREFIX.replace("-1/", "-3/"))  # who saw the former may live yet

    def planned(**limits: Any) -> list[list[str]]:
        (partition,) = shelf.archive.partitions()
        groups = plan(partition, Limits(**limits), NOW)
        return [
            [str(each.name).rpartition("-shardId-")[2].removesuffix(".json.gz") for each in group] for group in groups
        ]

    assert planned(below=2000, older_than=3600) == [["1-0210", "1-0215-again", "1-0216-alone", "1-0220"]]
    assert planned(below=2000) == []  # none is two days old
    assert planned(older_than=3600) == [["1-0210", "1-0215-again", "1-0216-alone", "1-0220", "2-0240"]]
    shelf.now += 3 * DAY
    (partition,) = shelf.archive.partitions()
    assert [len(group) for group in plan(partition, LIMITS, shelf.now)] == [9]
    size = max(each.size for each in partition.objects)
    groups = plan(partition, Limits(most=size + 1), shelf.now)
    assert all(sum(each.size for each in group) <= size + 1 for group in groups)
    assert plan(partition, Limits(below=1), shelf.now) == []
    with pytest.raises(ConfigurationError, match="older than: expected an hour or more"):
        Limits(older_than=3599)


def test_an_object_that_is_damaged_stays_and_the_others_are_merged() -> None:
    shelf = filled(4)
    names = folder(shelf)
    shelf.objects.objects[names[1]] = b"no gzip"
    nothing = shelf.file(90, [session(9)])
    shelf.objects._about[nothing]["Metadata"] = {}
    short = shelf.file(95, [session(9)])
    shelf.objects._about[short]["Metadata"]["items"] = "2"
    (done,) = compact(shelf)
    assert done.before == 3
    assert [(each.object, each.reason.partition(",")[0]) for each in done.problems] == [
        (names[1], "expected lines compressed with gzip"),
        (nothing, f"{nothing.rpartition('/')[2]}: expected metadata first"),
        (short, "expected 2 lines"),
    ]
    assert folder(shelf) == [names[1], nothing, short, "sessions/date=2018-01-31/merged-000001.json.gz"]


def test_without_its_manifest_a_partition_is_left_as_it_is() -> None:
    shelf = filled(4)
    compact(shelf)
    kept = shelf.objects.objects[MANIFEST]
    shelf.objects.delete_object(Bucket="", Key=MANIFEST)
    shelf.file(100, [session(50)])
    shelf.file(110, [session(51)])
    before = dict(shelf.objects.objects)
    (done,) = compact(shelf)
    assert "expected a manifest of merged objects that knows it, came revision 0" in str(done.problems[0])
    assert shelf.objects.objects == before
    shelf.objects.put_object(Bucket="", Key=MANIFEST, Body=b"{}")
    (done,) = compact(shelf)
    assert "expected a manifest of merged objects, came" in str(done.problems[0])
    shelf.objects.put_object(Bucket="", Key=MANIFEST, Body=kept)
    assert compact(shelf)[0].problems == []
    assert len(folder(shelf)) == 1


def test_sources_are_kept_where_what_was_made_of_them_is_gone() -> None:
    shelf = filled(4)
    before = dict(shelf.objects.objects)
    compact(shelf)
    for name, content in before.items():  # as somebody would who brings old versions back
        shelf.objects.put_object(Bucket="", Key=name, Body=content)
    shelf.objects.delete_object(Bucket="", Key="sessions/date=2018-01-31/merged-000001.json.gz")
    (done,) = compact(shelf)
    assert "expected the merged objects that it lists" in str(done.problems[0])
    assert shelf.objects.objects.keys() >= before.keys()


def test_another_object_under_a_name_that_was_merged_is_another_object() -> None:
    shelf = filled(4)
    name = folder(shelf)[1]
    compact(shelf)
    shelf.objects.put_object(
        Bucket="", Key=name, Body=gzip.compress(b'{"Item": {"n": {"N": "99"}}}\n'),
        Metadata={"first": "1", "through": "2", "items": "1"},
    )  # fmt: skip
    assert shelf.numbers() == [0, 1, 2, 3, 6, 7, 99]
    (done,) = compact(shelf)
    assert done.deleted == 0
    assert name in shelf.objects.objects


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_it_may_die_at_any_request_and_the_next_run_ends_it(after: bool, again: bool) -> None:
    """Readers look before and after each request, those of the next run too."""
    number = 0
    while True:
        shelf = filled()
        if again:  # of merged and others
            compact(shelf)
            shelf.file(100, [session(100)])
            shelf.file(110, [session(110)])
        expected = shelf.texts()

        def look(operation: str, shelf: Shelf = shelf, expected: list[str] = expected) -> None:
            client, shelf.client = shelf.client, shelf.objects
            try:
                assert shelf.texts() == expected, operation
            finally:
                shelf.client = client

        watched = Watched(shelf.objects, look, number, after=after)
        shelf.client = watched
        try:
            compact(shelf)
        except StoppedError:
            pass
        shelf.client = Watched(shelf.objects, look)
        assert all(not done.problems for done in compact(shelf))
        shelf.client = shelf.objects
        if not watched.dead:
            break
        assert shelf.texts() == expected
        assert len(folder(shelf)) == 1, number
        number += 1
    assert watched.writes == ["put_object", "put_object", "put_object", "delete_objects"]
    assert number == 4


@pytest.mark.parametrize("limits", [LIMITS, Limits(most=300), Limits(most=170, below=85)])
@pytest.mark.parametrize("at", range(24))
def test_two_at_once_do_each_thing_once(at: int, limits: Limits) -> None:
    """A second one runs whole, between two requests of the first."""
    shelf = filled()
    expected = shelf.texts()
    count = 0

    def look(operation: str) -> None:
        nonlocal count
        client, shelf.client = shelf.client, shelf.objects
        try:
            count += 1
            if count == at:
                compact(shelf, limits)
            assert shelf.texts() == expected
        finally:
            shelf.client = client

    shelf.client = Watched(shelf.objects, look)
    compact(shelf, limits)
    shelf.client = shelf.objects
    assert shelf.texts() == expected
    (partition,) = shelf.archive.partitions()
    assert partition.left == ()  # nor does Athena read any twice
    compact(shelf)
    assert shelf.texts() == expected
    assert len(folder(shelf)) == 1


def test_a_reader_that_listed_before_reads_each_item_once_after_all_was_moved() -> None:
    shelf = filled()
    expected = shelf.texts()
    (before,) = shelf.archive.partitions()
    compact(shelf)
    shelf.file(100, [session(100)])
    (between,) = shelf.archive.partitions()
    compact(shelf)
    for partition, texts in ((before, expected), (between, shelf.texts())):
        found = []
        for content in shelf.archive.read(partition.objects):
            found += [text.decode().strip() for _, _, text in content.lines()]  # type: ignore[union-attr]
        assert sorted(found) == texts


def test_a_reply_that_got_lost_is_no_other_compactor() -> None:
    """The SDK makes the request again, and finds what it wrote itself."""
    shelf = filled()

    class Lossy:
        def __getattr__(self, operation: str) -> Any:
            def request(**arguments: Any) -> Any:
                if operation == "put_object":
                    shelf.objects.put_object(**arguments)
                return getattr(shelf.objects, operation)(**arguments)

            return request

    shelf.client = Lossy()
    (done,) = compact(shelf)
    assert (done.before, done.left) == (6, False)
    assert len(folder(shelf)) == 1


def test_what_cannot_be_deleted_is_named_and_is_not_read() -> None:
    shelf = filled(3)
    expected = shelf.texts()

    class Keeping:
        def __getattr__(self, operation: str) -> Any:
            if operation == "delete_objects":
                return lambda Delete, **_: {
                    "Errors": [{"Key": each["Key"], "Code": "AccessDenied"} for each in Delete["Objects"]]
                }
            return getattr(shelf.objects, operation)

    shelf.client = Keeping()
    (done,) = compact(shelf)
    assert (done.deleted, len(done.problems)) == (0, 3)
    assert "expected to delete it, came AccessDenied" in str(done.problems[0])
    assert shelf.texts() == expected


def test_a_bucket_that_denies_ends_it_and_one_that_throttles_does_not() -> None:
    shelf = filled(3)
    left = 3

    class Throttled:
        def __getattr__(self, operation: str) -> Any:
            def request(**arguments: Any) -> Any:
                nonlocal left
                if left:
                    left -= 1
                    raise ClientError({"Error": {"Code": "SlowDown", "Message": "."}}, operation)
                return getattr(shelf.objects, operation)(**arguments)

            return request

    shelf.client = Throttled()
    assert compact(shelf)[0].before == 3

    class Denied:
        def list_objects_v2(self, **arguments: Any) -> Any:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "."}}, "ListObjectsV2")

    shelf.client = Denied()
    with pytest.raises(ClientError):
        compact(shelf)


def test_the_manifest_is_outside_of_every_archives_folder() -> None:
    assert manifest_name("a/b", "date=2018-01-31") == "_manifests/a/b/date=2018-01-31.json"
    shelf = filled(3)
    compact(shelf)
    assert json.loads(shelf.objects.objects[MANIFEST])["merged"][0]["sources"][0] == {
        "name": "20180101T000000000-shardId-1-010.json.gz",
        "lane": "20180101T000000000-shardId-1",
        "first": "1",
        "through": "10",
        "items": 2,
        "at": NOW - 3 * DAY,
        "etag": shelf.archive.manifest("date=2018-01-31")[0].merged[0].sources[0].etag,
    }
