"""Fold of an archive: a batch of changes to the lines of those items that are gone. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime

from framework.archive import ArchiveDeclaration
from framework.codec import Image
from framework.decode import Record, created, explain, is_expiry, key_text
from framework.errors import BadRecordError, BadValueError
from framework.lanes import MARK
from framework.part import BadRecord, Fold, Part

__all__ = ["FoldedArchive", "Line", "compile_archive", "leave_out", "line_of"]


@dataclass(frozen=True, slots=True)
class Line:
    """One item of an archive.

    Attributes:
        number: The sequence number of the record that tells that it is gone.
        partition: The folder it lies in, such as `date=2018-01-31`.
        text: The item as DynamoDB imports it: `{"Item": ...}`, DynamoDB JSON.
    """

    number: int
    partition: str
    text: str = field(repr=False)


@dataclass(slots=True)
class FoldedArchive(Part):
    """One archive's share of a batch, filled record by record.

    Attributes:
        declaration: The archive.
        lines: The items that are gone.
        late: None.
    """

    declaration: ArchiveDeclaration
    lines: list[Line] = field(default_factory=list)
    bad_records: list[BadRecord] = field(default_factory=list)
    late: int = 0

    @property
    def bad(self) -> list[BadRecord]:
        """The records of items of which cannot be told where they belong."""
        return self.bad_records

    @property
    def contributions(self) -> int:
        """How many items there are."""
        return len(self.lines)

    @property
    def _bad_and_all(self) -> tuple[int, int]:
        return len(self.bad_records), len(self.bad_records) + len(self.lines)


def line_of(declaration: ArchiveDeclaration) -> Callable[[Record], Line | None]:
    """Compile a declaration.

    Returns:
        A function of a record to the line of the item that it says is gone; None if it says no such thing of an item
        that belongs into the archive. It raises `BadRecordError` or `BadValueError` where it cannot be told where the
        item belongs, and `EventError` or `ConfigurationError` where the record is none.
    """
    where = None if declaration.where is None else declaration.where.compile()
    window = None if declaration.partition is None else declaration.partition.compile()
    all_deletes, replicated_ttl = declaration.also_deletes, declaration.replicated_ttl
    key, only, without = declaration.partition_key, declaration.only, declaration.without

    def kept(image: Image) -> Image:
        if only is None:
            return {name: value for name, value in image.items() if name not in without} if without else image
        return {name: value for name, value in image.items() if name in only}

    def line(record: Record) -> Line | None:
        try:
            if record["eventName"] != "REMOVE":
                if record["eventName"] not in ("INSERT", "MODIFY"):
                    explain([record])
                return None
            change = record["dynamodb"]
            image, number = change["OldImage"], int(change["SequenceNumber"])
            if MARK in image or not (all_deletes or is_expiry(record, replicated_ttl)):
                return None
            if where is not None and not where(image):
                return None
            label = _day(record) if window is None else window(image)
            text = json.dumps({"Item": kept(image)}, separators=(",", ":"))
            return Line(number, f"{key}={label}", text)
        except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError):
            explain([record])

    return line


def compile_archive(declaration: ArchiveDeclaration) -> Callable[[], tuple[FoldedArchive, Fold]]:
    """Compile a declaration.

    Returns:
        A function that starts a batch: it returns the batch's `FoldedArchive` and the closure that folds one record.
    """
    line = line_of(declaration)

    def start() -> tuple[FoldedArchive, Fold]:
        folded = FoldedArchive(declaration)

        def fold(record: Record) -> None:
            try:
                found = line(record)
                if found is not None:
                    folded.lines.append(found)
            except (BadRecordError, BadValueError) as error:
                number = record["dynamodb"]["SequenceNumber"]
                bad = BadRecord(declaration.name, key_text(record), number, str(error), ("OldImage",), record)
                folded.bad_records.append(bad)

        return folded, fold

    return start


def leave_out(fold: Fold, owned: Collection[int]) -> Fold:
    """A fold that leaves out some records, by their sequence numbers: those that are set aside already."""

    def around(record: Record) -> None:
        try:
            number = int(record["dynamodb"]["SequenceNumber"])
        except (KeyError, TypeError, ValueError):
            explain([record])
        if number not in owned:
            fold(record)

    return around


def _day(record: Record) -> str:
    """The day, in UTC, on which an item was deleted, as its record says it: the same whenever the record comes."""
    at = created(record)
    if at is None:
        raise BadRecordError("ApproximateCreationDateTime: expected the time of the change, came none")
    return datetime.fromtimestamp(at, UTC).date().isoformat()
