"""Which objects of an archive's partition were merged into which: its manifest, and the names of objects. Pure.

A partition's manifest is a JSON object outside the archive's folder, since whoever reads the folder (Athena, DynamoDB's
import) takes all that is in it for items: `_manifests/FOLDER/PARTITION.json`. No archive has that folder, for a prefix
begins with a letter or a digit.

*What is read.* Of the objects in a partition's folder, those count that are no merged ones and that the manifest does
not name as a source; of the merged ones, those that the manifest lists. A source is named by its name and its ETag:
another object that takes its name one day is another object.

`compact.py` tells how it is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from framework.archive_lane import AGAIN, ALONE
from framework.errors import ReadError, shortened

__all__ = [
    "ENDING",
    "Former",
    "Merged",
    "Merges",
    "Source",
    "is_merged",
    "is_object",
    "lane_and_place",
    "manifest_name",
    "merged_name",
    "revision_of",
]

ENDING = ".json.gz"
_MERGED = re.compile(r"merged-(?P<revision>[0-9]{6,})\.json\.gz")
_NAME = re.compile(rf"(?P<lane>[^/]+-[^/]+)-[0-9]{{2}}(?P<place>[0-9]+)(?P<redriven>{AGAIN}|{ALONE})?\.json\.gz")


def lane_and_place(name: str) -> tuple[str, int, bool]:
    """What an object's name says: its lane, the place after which it begins, and whether redrive put it.

    Args:
        name: The name without folders.

    Raises:
        ReadError: It is not the name of an object that the consumer or redrive put.
    """
    found = _NAME.fullmatch(name)
    if found is None or is_merged(name):
        raise ReadError(f"{name}: expected an object of an archive, came another name")
    return found["lane"], int(found["place"]), found["redriven"] is not None


def is_object(name: str) -> bool:
    """Whether a name without folders is one that the consumer, redrive or compaction gives."""
    return _MERGED.fullmatch(name) is not None or _NAME.fullmatch(name) is not None


def merged_name(revision: int) -> str:
    """The name, without folders, of the object that a revision of a manifest begins."""
    return f"merged-{revision:06d}{ENDING}"


def is_merged(name: str) -> bool:
    """Whether a name without folders is one that compaction gives."""
    return _MERGED.fullmatch(name) is not None


def revision_of(name: str) -> int:
    """In which revision of the manifest a merged object was begun, by its name without folders."""
    found = _MERGED.fullmatch(name)
    return int(found["revision"]) if found is not None else 0


def manifest_name(folder: str, partition: str) -> str:
    """The name of a partition's manifest.

    Args:
        folder: What the names of all of the archive's objects begin with, without the slash.
        partition: The partition, such as `date=2018-01-31`.
    """
    return f"_manifests/{folder}/{partition}.json"


@dataclass(frozen=True, slots=True)
class Source:
    """One object as the consumer or redrive put it, be it still there or merged.

    Attributes:
        name: Its name, without folders.
        first: From which record of its lane on it holds what belongs into it.
        through: Through which.
        items: How many items it has.
        at: When it was put, in epoch seconds.
        etag: What S3 calls its content.
    """

    name: str
    first: int
    through: int
    items: int
    at: int
    etag: str = ""

    @property
    def lane(self) -> str:
        """Stream and shard, as they are in the name."""
        return lane_and_place(self.name)[0]

    @property
    def redriven(self) -> bool:
        """Whether redrive put it: then its range may reach over what others hold."""
        return lane_and_place(self.name)[2]

    @property
    def numbers(self) -> range:
        """The sequence numbers of its range."""
        return range(self.first, self.through + 1)


@dataclass(frozen=True, slots=True)
class Former:
    """A merged object that was merged again: which lines of the new one were its own.

    Attributes:
        name: Its name, without folders.
        start: How many lines come before.
        items: How many lines it had.
    """

    name: str
    start: int
    items: int


@dataclass(frozen=True, slots=True)
class Merged:
    """One object made of others.

    Attributes:
        name: Its name, without folders.
        sources: What it is made of, in the order of its lines.
        former: The merged objects among what it was made of.
        digest: The SHA-256 of its lines.
        size: Its bytes.
        at: When it was made, in epoch seconds.
    """

    name: str
    sources: tuple[Source, ...]
    former: tuple[Former, ...]
    digest: str
    size: int
    at: int

    @property
    def items(self) -> int:
        """How many items it has."""
        return sum(source.items for source in self.sources)

    def lines_of(self, name: str) -> range | None:
        """Which of its lines, counted from 0, are those of an object that was merged into it; None for no such one."""
        start = 0
        for source in self.sources:
            if source.name == name:
                return range(start, start + source.items)
            start += source.items
        return next((range(f.start, f.start + f.items) for f in self.former if f.name == name), None)


@dataclass(frozen=True, slots=True)
class Merges:
    """A partition's manifest.

    Attributes:
        revision: How often it was written; 0 for never.
        merged: The merged objects that are read, instead of their sources.
        begun: One that may be there, and is not read yet.
    """

    revision: int = 0
    merged: tuple[Merged, ...] = ()
    begun: Merged | None = None
    _sources: dict[str, Source] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = {source.name: source for merged in self.merged for source in merged.sources}
        object.__setattr__(self, "_sources", names)

    @property
    def sources(self) -> Iterable[Source]:
        """All that was merged."""
        return self._sources.values()

    def source(self, name: str) -> Source | None:
        """The object of a name, with or without folders, if it was merged."""
        return self._sources.get(name.rpartition("/")[2])

    def has(self, name: str, etag: str) -> bool:
        """Whether an object of a name and a content was merged."""
        found = self.source(name)
        return found is not None and found.etag == etag

    def listed(self, name: str) -> Merged | None:
        """The merged object of a name without folders, if it is read."""
        return next((merged for merged in self.merged if merged.name == name), None)

    def text(self) -> str:
        """The manifest as it is kept."""
        begun = None if self.begun is None else _written(self.begun)
        found = {"revision": self.revision, "merged": [_written(each) for each in self.merged], "begun": begun}
        return json.dumps(found, separators=(",", ":"))

    @staticmethod
    def parse(text: str | bytes) -> Merges:
        """Read one.

        Raises:
            ReadError: It is none.
        """
        try:
            found = json.loads(text)
            begun = None if found["begun"] is None else _read(found["begun"])
            return Merges(int(found["revision"]), tuple(map(_read, found["merged"])), begun)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ReadError(f"expected a manifest of merged objects, came {shortened(text)}: {error!r}") from None


def _written(merged: Merged) -> dict[str, Any]:
    return {
        "name": merged.name,
        "items": merged.items,
        "digest": merged.digest,
        "size": merged.size,
        "at": merged.at,
        "sources": [
            {
                "name": source.name,
                "lane": source.lane,
                # As text, for sequence numbers have more digits than most readers of JSON keep.
                "first": str(source.first),
                "through": str(source.through),
                "items": source.items,
                "at": source.at,
                "etag": source.etag,
            }
            for source in merged.sources
        ],
        "former": [{"name": each.name, "start": each.start, "items": each.items} for each in merged.former],
    }


def _read(found: Any) -> Merged:
    return Merged(
        str(found["name"]),
        tuple(
            Source(
                str(each["name"]),
                int(each["first"]),
                int(each["through"]),
                int(each["items"]),
                int(each["at"]),
                str(each["etag"]),
            )
            for each in found["sources"]
        ),
        tuple(Former(str(each["name"]), int(each["start"]), int(each["items"])) for each in found["former"]),
        str(found["digest"]),
        int(found["size"]),
        int(found["at"]),
    )
