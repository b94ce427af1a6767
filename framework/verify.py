"""Verify: whether an archive is as it should be, read from its first object to its last.

- Every object can be read, is one of the archive, and has as many lines as it says.
- Every line is an item with the keys of the table.
- No two objects of a lane hold the same range of records of a partition. The range of what redrive put may reach over
  others' (`archive_lane.py`); of that, no line is the same as one in an object that it reaches over.
- What is merged is there, has the lines that were noted, and has taken the place of its sources.
- Of a table: no archived item is still there as it was archived. One that differs was put since, and is right.

Memory holds the names of one partition's objects at a time, and hashes of those lines that redrive put.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from framework.archive_lines import Content, Problem, Stored, ended, item_of
from framework.archive_manifest import Source, is_merged, manifest_name
from framework.archive_newest import item_digest
from framework.archive_objects import ArchiveObjects, Partition
from framework.archive_table import MOST_KEYS, items_there
from framework.codec import AttributeValue, decode_item
from framework.errors import BadValueError, ReadError

__all__ = ["Verification", "Verified"]

OnProgress = Callable[[int, float | None], object]
"""Called for each object with the items that were read, and the share of the archive's bytes."""


@dataclass(slots=True)
class Verified:
    """What a partition is found to be.

    Attributes:
        partition: The partition.
        objects: How many objects it has.
        items: How many items.
        problems: What is not as it should be.
    """

    partition: str
    objects: int = 0
    items: int = 0
    problems: list[Problem] = field(default_factory=list)


class Verification:
    """Verifies an archive.

    Args:
        objects: The archive.
        client: A boto3 DynamoDB client, to look into a table.
        table: The table's name; None to look into none.
    """

    def __init__(self, objects: ArchiveObjects, client: Any = None, table: str | None = None) -> None:
        self._objects = objects
        self._client = client
        self._table = table
        self._source = objects.declaration.source

    def run(self, on_progress: OnProgress = lambda items, share: None) -> Iterator[Verified]:
        """Verify, partition by partition.

        Raises:
            ClientError: S3 or DynamoDB refuses to be read.
        """
        total = sum(stored.size for partition in self._objects.partitions() for stored in partition.objects)
        read = items = 0
        seen: set[str] = set()
        for partition in self._objects.partitions():
            seen.add(partition.name)
            found = Verified(partition.name, len(partition.objects), problems=[*partition.problems])
            found.problems += self._left(partition)
            sources: list[Source] = []
            again = self._redriven(partition)
            for content in self._contents(partition):
                if isinstance(content, Problem):
                    found.problems.append(content)
                    continue
                sources += content.sources
                count = self._content(content, again, found)
                found.items += count
                items += count
                read += content.stored.size
                on_progress(items, min(1.0, read / total) if total else None)
            found.problems += self._ranges(partition, sources)
            yield found
        yield from self._vanished(seen)

    def _contents(self, partition: Partition) -> Iterator[Content | Problem]:
        return self._objects.read(partition.objects)

    def _content(self, content: Content, again: dict[bytes, list[Source]], found: Verified) -> int:
        where = self._objects.where(content.stored.partition, content.stored.name)
        digest, count = hashlib.sha256(), 0
        some: dict[bytes, tuple[int, dict[str, AttributeValue]]] = {}
        for source, line, text in content.lines():
            count += 1
            digest.update(ended(text))
            try:
                item = item_of(text, self._source)
            except ReadError as error:
                found.problems.append(Problem(where, str(error), line))
                continue
            for other in again.get(_hashed(text), ()) if again else ():
                if other.name != source.name and _overlap(source, other):
                    found.problems.append(Problem(where, f"expected an item once, came it also in {other.name}", line))
            if self._table is not None:
                key = item_digest(item, self._source)
                if key in some or len(some) == MOST_KEYS:
                    self._compare(some, where, found)
                    some = {}
                some[key] = line, item
        self._compare(some, where, found)
        said = sum(source.items for source in content.sources)
        if content.remark:
            found.problems.append(Problem(where, content.remark))
        elif count != said:
            found.problems.append(Problem(where, f"expected {said} lines, as it says, came {count}"))
        elif content.stored.merged is not None and digest.hexdigest() != content.stored.merged.digest:
            found.problems.append(Problem(where, "expected the lines that were merged, came others"))
        return count

    def _compare(self, some: dict[bytes, tuple[int, dict[str, AttributeValue]]], where: str, found: Verified) -> None:
        """Whether some archived items are still in the table as they were archived."""
        if not some or self._table is None:
            return
        keys = [{name: item[name] for name in self._source.keys} for _, item in some.values()]
        for there in items_there(self._client, self._table, keys):
            line, item = some[item_digest(there, self._source)]
            try:
                same = decode_item(self._kept(there)) == decode_item(item)
            except BadValueError:
                same = self._kept(there) == item
            if same:
                found.problems.append(Problem(where, f"expected an item that is gone, came it in {self._table}", line))

    def _kept(self, item: dict[str, AttributeValue] | Any) -> dict[str, AttributeValue]:
        """As much of an item as the archive keeps."""
        only, without = self._objects.declaration.only, self._objects.declaration.without
        return {name: each for name, each in item.items() if (only is None or name in only) and name not in without}

    def _redriven(self, partition: Partition) -> dict[bytes, list[Source]]:
        """In which of the objects that redrive put a line is, by its hash."""
        found: dict[bytes, list[Source]] = {}

        def has_some(stored: Stored) -> bool:
            sources = stored.merged.sources if stored.merged is not None else (Source(stored.name, 0, 0, 0, 0),)
            return any(source.redriven for source in sources)

        for content in self._objects.read(stored for stored in partition.objects if has_some(stored)):
            if isinstance(content, Content):
                for source, _, text in content.lines():
                    if source.redriven:
                        found.setdefault(_hashed(text), []).append(source)
        return found

    def _ranges(self, partition: Partition, sources: list[Source]) -> Iterator[Problem]:
        in_order = (source for source in sources if not source.redriven)
        for one, other in pairwise(sorted(in_order, key=lambda source: (source.lane, source.first))):
            if one.lane == other.lane and other.first <= one.through:
                where = self._objects.where(partition.name, other.name)
                expected = f"expected records after {one.through}, through which {one.name} goes"
                yield Problem(where, f"{expected}, came from {other.first} on")

    def _left(self, partition: Partition) -> Iterator[Problem]:
        for stored in partition.left if not partition.unsure else ():
            what = "a merged object that is not listed" if is_merged(stored.name) else "a source that is merged"
            reason = f"expected none beside what takes its place, came {what}: compact deletes it"
            yield Problem(self._objects.where(partition.name, stored.name), reason)

    def _vanished(self, seen: set[str]) -> Iterator[Verified]:
        """Partitions of which there is nothing but the manifest."""
        for name in self._objects.manifests():
            if name not in seen:
                where = manifest_name(self._objects.folder, name)
                try:
                    count = len(self._objects.manifest(name)[0].merged)
                    reason = f"expected the merged objects that it lists, came none of {count}" if count else ""
                except ReadError as error:
                    reason = str(error)
                if reason:
                    yield Verified(name, problems=[Problem(where, reason)])


def _hashed(text: bytes) -> bytes:
    return hashlib.blake2b(ended(text), digest_size=16).digest()


def _overlap(one: Source, other: Source) -> bool:
    return one.lane == other.lane and one.first <= other.through and other.first <= one.through
