"""Which archived version of each item is the newest; and which items somebody wants.

An item that was put again and expired again is in an archive several times. Where a line stands among all others tells
which was last: by its lane, by where in the lane its object begins, by its place in the object. Of two lanes, the one
whose first object was put earlier is earlier: a shard is archived to its end before those that follow it (AWS facts:
the stream). Where an archive is divided by the day of the deletion, that goes first. None of this changes when objects
are merged, nor by the order in which they are read.

Of what redrive put, only the first record's place is known, so that an item that expired twice within the records of
one batch, once into each, may be taken for the wrong one of the two.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from typing import Any

from framework.archive import ArchiveDeclaration
from framework.archive_lines import Content
from framework.archive_manifest import Source
from framework.archive_objects import Partition
from framework.codec import AttributeValue, Image, decode, number
from framework.conditions import Condition, attr
from framework.errors import BadValueError, ConfigurationError, shortened
from framework.lanes import bound
from framework.operands import Predicate
from framework.tables import Table

__all__ = ["Newest", "Order", "Selection", "item_digest", "key_from_text", "where_from_text"]

_DATE = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?")
_CACHE_KB = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which of an archive's items are wanted: those that fulfil all of it.

    Attributes:
        since: A day, month or year: the first partition is the one that it is in; None for all.
        until: The same for the last one.
        keys: Keys, or partition keys alone, one of which an item has; empty for all.
        where: A condition.

    Raises:
        ConfigurationError: A date that is none.
    """

    since: str | None = None
    until: str | None = None
    keys: Collection[Image] = ()
    where: Condition | None = None

    def __post_init__(self) -> None:
        for name, date in (("from", self.since), ("to", self.until)):
            if date is not None and not _DATE.fullmatch(date):
                raise ConfigurationError(f"{name}: expected a day, a month or a year (2018-01-31), came {date!r}")

    def compile(self) -> Predicate:
        """A function that tells of an item whether it is wanted; the partition is another matter."""
        where = None if self.where is None else self.where.compile()
        wanted: dict[tuple[str, ...], set[tuple[Any, ...]]] = {}
        for key in self.keys:
            wanted.setdefault(tuple(key), set()).add(tuple(decode(value) for value in key.values()))

        def is_wanted(item: Image) -> bool:
            if wanted and not any(
                tuple(decode(item[name]) for name in names) in values for names, values in wanted.items()
            ):
                return False
            return where is None or where(item)

        return is_wanted


def key_from_text(text: str, table: Table) -> dict[str, AttributeValue]:
    """The key that a text such as `user=ann,id=7` names, in the types of a table's keys; the sort key may be left out.

    Raises:
        ConfigurationError: It names none.
    """
    form = re.escape(table.pk) + "=(?P<pk>.*?)"
    if table.sk is not None:
        form += f"(?:,{re.escape(table.sk)}=(?P<sk>.*))?"
    found = re.fullmatch(form, text, re.DOTALL)
    try:
        if found is None:
            raise ValueError
        key = {table.pk: _typed(found["pk"], table.pk_type)}
        if table.sk is not None and found["sk"] is not None:
            key[table.sk] = _typed(found["sk"], table.sk_type)
    except (ValueError, BadValueError):
        expected = ",".join(f"{name}=... ({kind})" for name, kind in table.key_types.items())
        raise ConfigurationError(f"key: expected {expected}, came {text!r}") from None
    return key


def where_from_text(text: str) -> Condition:
    """The condition that a text such as `status=open` says: an attribute, or the path to it, equals a value.

    The value is text; if it reads as a number, or as `true` or `false`, it may be that as well.

    Raises:
        ConfigurationError: It says none.
    """
    path, equals, value = text.partition("=")
    if not path or not equals:
        raise ConfigurationError(f"where: expected ATTRIBUTE=VALUE, came {text!r}")
    values: list[Any] = [value]
    try:
        values.append(number(value))
    except BadValueError:
        pass
    values += [flag for name, flag in (("true", True), ("false", False)) if name == value]
    return attr(path).any_of(*values)


class Order:
    """Where lines stand among each other.

    Args:
        declaration: The archive.
    """

    def __init__(self, declaration: ArchiveDeclaration) -> None:
        self._by_day = declaration.partition is None
        self._first: dict[str, int] = {}
        self._lanes: dict[str, int] = {}

    def see(self, objects: Iterator[Partition]) -> Iterator[Partition]:
        """Note the lanes of some partitions, and give them on; to their end, before anything is put in order."""
        for partition in objects:
            for source in _sources(partition):
                self._first[source.lane] = min(source.at, self._first.get(source.lane, source.at))
            yield partition
        ordered = sorted(self._first, key=lambda lane: (self._first[lane], lane))
        self._lanes = {lane: place for place, lane in enumerate(ordered)}

    def rank(self, partition: str, source: Source, line: int) -> bytes:
        """What sorts as lines do.

        Args:
            partition: The partition.
            source: The object that a line was put in.
            line: Its place there.
        """
        lane = self._lanes.setdefault(source.lane, len(self._lanes))  # one that came since is the last
        day = partition if self._by_day else ""
        return f"{day} {lane:09d} {bound(source.first)} {not source.redriven:d} {line:09d}".encode()

    def ranked(self, content: Content) -> Iterator[tuple[bytes, int, bytes]]:
        """The lines of an object: the rank of each, its number in the object, and its text."""
        before: Source | None = None
        place = 0
        for source, line, text in content.lines():
            place = place + 1 if source is before else 1
            before = source
            yield self.rank(content.stored.partition, source, place), line, text


class Newest:
    """The highest rank of each item, in a temporary file: there may be more items than memory holds.

    To be used in one thread.
    """

    def __init__(self) -> None:
        self._file = sqlite3.connect("")  # a database of its own on disk, gone once it is closed
        self._file.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute("PRAGMA synchronous = OFF")
        self._file.execute("CREATE TABLE newest (item BLOB PRIMARY KEY, place BLOB) WITHOUT ROWID")

    def add(self, item: bytes, rank: bytes) -> bool:
        """Note a version of an item; whether it is the first that came."""
        count = self._file.execute(
            "INSERT INTO newest VALUES (?, ?) ON CONFLICT (item) DO NOTHING", (item, rank)
        ).rowcount
        if not count:
            self._file.execute("UPDATE newest SET place = ? WHERE item = ? AND place < ?", (rank, item, rank))
        return count == 1

    def is_newest(self, item: bytes, rank: bytes) -> bool:
        """Whether a version of an item is the last of those that were noted."""
        found = self._file.execute("SELECT place FROM newest WHERE item = ?", (item,)).fetchone()
        return found is not None and found[0] == rank

    def forget(self) -> None:
        """Note none any more."""
        self._file.execute("DELETE FROM newest")

    def close(self) -> None:
        """Free what it takes."""
        self._file.close()


def item_digest(item: Mapping[str, AttributeValue], table: Table) -> bytes:
    """What tells items of a table apart: 16 bytes of a hash of the key, numbers by value."""
    values = [decode(item[name]) for name in table.keys]
    texts = [_canonical(value) for value in values]
    return blake2b(b"".join(len(text).to_bytes(4, "big") + text for text in texts), digest_size=16).digest()


def _canonical(value: Any) -> bytes:
    if isinstance(value, Decimal):
        return format(value.normalize() if value else Decimal(0), "f").encode()
    return value if isinstance(value, bytes) else str(value).encode()


def _typed(text: str, kind: str) -> AttributeValue:
    if kind == "N":
        number(text)
        return {"N": text}
    value: AttributeValue = {kind: text}
    decode(value)  # base64, if it is binary
    if not text:
        raise ValueError(shortened(text))
    return value


def _sources(partition: Partition) -> Iterator[Source]:
    for stored in partition.objects:
        if stored.merged is not None:
            yield from stored.merged.sources
        else:
            yield Source(stored.name, 0, 0, 0, stored.at)
