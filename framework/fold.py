"""Fold: a batch of changes to what each of them adds to which aggregate. Pure.

A change's contribution is `f(new image) - f(old image)`, where `f` of an image that does not match is nothing. So an
insert adds, an edit moves, a delete takes back and an unrelated edit does nothing. `f` of an image that cannot be
counted is nothing too, and the record is named as bad: whatever is edited, mended or deleted in whichever order, what
counts is what a recount of the items would find. A declaration is compiled once into one closure; a batch's
contributions are kept per aggregate in the order of the shard.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache

from framework.codec import AttributeValue, Image, decode_item, number
from framework.declaration import Declaration, group_text, join
from framework.decode import Record, created, explain, is_expiry, key_text
from framework.errors import BadRecordError, BadValueError, shortened
from framework.lanes import MARK, owner
from framework.measures import EXACT, Number
from framework.paths import getter, top_level

__all__ = ["BadRecord", "Bucket", "Contribution", "Fold", "Folded", "Values", "compile_fold"]

Values = tuple[Number, ...]
# A record's sequence number; whether it only adds, so that it may make the aggregate; what it adds to each slot.
Contribution = tuple[str, bool, Values]
Bucket = list[Contribution]
# What an image counts for: the group and the window's label, and a value for each slot.
Share = tuple[tuple[str, str], Values]


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that an aggregation cannot count as it is.

    Attributes:
        handler: The aggregation's name.
        key: The item's key, as text.
        sequence_number: The record's sequence number.
        reason: What was expected and what came.
    """

    handler: str
    key: str
    sequence_number: str
    reason: str


@dataclass(slots=True)
class Folded:
    """One aggregation's share of a batch, filled record by record.

    Attributes:
        declaration: The aggregation.
        buckets: The contributions to each aggregate, by group and label, in the order of the records.
        bad: The records that cannot be counted.
        late: How many records came to an aggregate whose time was over, and were ignored there.
    """

    declaration: Declaration
    buckets: defaultdict[tuple[str, str], Bucket] = field(default_factory=lambda: defaultdict(list))
    bad: list[BadRecord] = field(default_factory=list)
    late: int = 0


Fold = Callable[[Record], None]
# From a window's label to when the time of its aggregates is over.
_Expiry = Callable[[str], int | None]
_MOST_WINDOWS = 4096  # whose expiry is remembered


def compile_fold(declaration: Declaration) -> Callable[[], tuple[Folded, Fold]]:
    """Compile a declaration.

    Args:
        declaration: The aggregation.

    Returns:
        A function that starts a batch: it returns the batch's `Folded` and the closure that folds one record into it.
    """
    share = _compile_share(declaration)
    edits_count = declaration.changes == "all"
    keep_expired = declaration.on_expiry == "keep"
    replicated_ttl = declaration.source.ttl if declaration.source.home is not None else None

    expiry = None if declaration.retention is None else lru_cache(_MOST_WINDOWS)(declaration.expiry)

    def start() -> tuple[Folded, Fold]:
        folded = Folded(declaration)
        buckets = folded.buckets if expiry is None else defaultdict(list)

        def change_or_remove(record: Record, name: str) -> None:
            change = record["dynamodb"]
            sequence, reasons = change["SequenceNumber"], []

            def readable(image: str) -> Share | None:
                try:
                    return share(change[image])
                except (BadRecordError, BadValueError) as error:
                    reasons.append(str(error) if image == "NewImage" else f"old image: {error}")
                    return None

            old = readable("OldImage")
            new = readable("NewImage") if name == "MODIFY" else None
            if old is not None and new is not None and old[0] == new[0]:
                if old[1] != new[1]:
                    buckets[new[0]].append((sequence, False, _difference(new[1], old[1])))
            else:
                if old is not None:
                    buckets[old[0]].append((sequence, False, _negative(old[1])))
                if new is not None:
                    buckets[new[0]].append((sequence, True, new[1]))
            if reasons:
                raise BadRecordError("; ".join(reasons))

        def fold(record: Record) -> None:
            try:
                name = record["eventName"]
                if name == "INSERT":
                    change = record["dynamodb"]
                    new = share(change["NewImage"])
                    if new is not None:
                        buckets[new[0]].append((change["SequenceNumber"], True, new[1]))
                elif name in ("MODIFY", "REMOVE"):
                    if edits_count and not (keep_expired and name == "REMOVE" and is_expiry(record, replicated_ttl)):
                        change_or_remove(record, name)
                else:
                    explain([record])
            except (BadRecordError, BadValueError) as error:
                change = record["dynamodb"]
                folded.bad.append(BadRecord(declaration.name, key_text(record), change["SequenceNumber"], str(error)))
            except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError):
                # Only a malformed record gets here: everything that reads an image's values is careful.
                explain([record])

        return folded, fold if expiry is None else _in_time(folded, buckets, fold, expiry)

    return start


def _in_time(folded: Folded, found: dict[tuple[str, str], Bucket], fold: Fold, expiry: _Expiry) -> Fold:
    """A fold that lets those contributions count whose aggregate's time was not over when the change was made.

    That is judged by the record's time and not by the clock, so that a redelivery is judged alike. A record without a
    time is not late.

    Args:
        folded: What counts, and what is late.
        found: Where `fold` puts a record's contributions.
        fold: The fold of a declaration with a retention.
        expiry: When a window's aggregates are over.
    """
    declaration = folded.declaration

    def fold_in_time(record: Record) -> None:
        before = len(folded.bad)
        fold(record)
        if not found:
            return
        at, late = created(record), []
        for (group, label), bucket in found.items():
            over = expiry(label)
            if at is None or over is None or at < over:
                folded.buckets[group, label] += bucket
            else:
                late.append(
                    f"window {label!r}: expected a change before its retention of {declaration.retention} was over, "
                    f"came one {at - over:.0f} s after that"
                )
        found.clear()
        if late and declaration.late == "ignore":
            folded.late += 1
        elif late:
            # What else is wrong with the record is named with it.
            reasons = [bad.reason for bad in folded.bad[before:]] + late
            sequence = record["dynamodb"]["SequenceNumber"]
            folded.bad[before:] = [BadRecord(declaration.name, key_text(record), sequence, "; ".join(reasons))]

    return fold_in_time


def _difference(new: Values, old: Values) -> Values:
    return tuple(
        n - o if isinstance(n, int) and isinstance(o, int) else EXACT.subtract(Decimal(n), Decimal(o))
        for n, o in zip(new, old, strict=True)
    )


def _negative(values: Values) -> Values:
    return tuple(-v if isinstance(v, int) else EXACT.minus(v) for v in values)


def _compile_share(declaration: Declaration) -> Callable[[Image], Share | None]:
    """`f` of the design: an image to what it counts for, or None."""
    matches = declaration.where.compile() if declaration.where is not None else None
    group = _compile_group(declaration)
    label = declaration.window.compile()
    values = _compile_values(declaration)
    constant = tuple(1 for _ in declaration.slots) if values is None else None
    mark = MARK

    def share(image: Image) -> Share | None:
        # What Streamfold wrote never counts.
        if (mark in image and owner(image) is not None) or (matches is not None and not matches(image)):
            return None
        found = group(image)
        if found is None:
            return None
        if constant is not None:
            return (found, label(image)), constant
        assert values is not None
        return (found, label(image)), values(image)

    return share


def _compile_group(declaration: Declaration) -> Callable[[Image], str | None]:
    if not isinstance(declaration.group_by, tuple):
        return _group_by_function(declaration)
    readers = [_group_reader(path, declaration) for path in declaration.group_by]
    if len(readers) == 1:
        return readers[0]

    def several(image: Image) -> str:
        return declaration.checked(join(tuple([read(image) for read in readers])))

    return several


def _group_reader(path: str, declaration: Declaration) -> Callable[[Image], str]:
    key_type, checked, short = declaration.target.pk_type, declaration.checked, declaration.most_group_bytes // 4
    get, name = getter(path), top_level(path)

    def read(image: Image) -> str:
        return checked(_scalar_text(path, get(image), key_type))

    if name is None or key_type != "S":
        return read

    def read_text(image: Image) -> str:
        # Nearly every group is text at the top of the item, and each record asks: no call is made for it.
        try:
            text: str = image[name]["S"]
        except KeyError:
            return read(image)
        # A character has at most 4 bytes.
        return text if text and len(text) <= short else read(image)

    return read_text


def _scalar_text(path: str, value: AttributeValue | None, key_type: str) -> str:
    match value:
        case None:
            raise BadRecordError(f"attribute {path!r} is missing")
        case {"S": str(text)} if key_type == "S":
            return text
        case {"N": str(text)}:
            return group_text(number(text), "N" if key_type == "N" else "S")
        case {"BOOL": bool(truth)} if key_type == "S":
            return group_text(truth)
    expected = "a number" if key_type == "N" else "text, a number or a boolean"
    raise BadRecordError(f"attribute {path!r}: expected {expected}, came {shortened(value)}")


def _group_by_function(declaration: Declaration) -> Callable[[Image], str | None]:
    function = declaration.group_by
    assert callable(function)

    def call(image: Image) -> str | None:
        item = decode_item(image)
        try:
            found = function(item)
        except Exception as error:  # whatever a user's code raises belongs to the record that it was given
            raise BadRecordError(f"group_by: {type(error).__name__}: {error}") from error
        if found is None:
            return None
        if isinstance(found, tuple):
            if not found:
                raise BadRecordError("group_by: expected a value or a tuple of values, came ()")
            texts = tuple(map(group_text, found))
            return declaration.checked(texts[0] if len(texts) == 1 else join(texts))
        return declaration.checked(group_text(found, declaration.target.pk_type))

    return call


def _compile_values(declaration: Declaration) -> Callable[[Image], Values] | None:
    """A reader of a value for each slot; None if each is 1."""
    if all(slot.of is None for slot in declaration.slots):
        return None
    readers = [None if slot.of is None else _number_reader(slot.of) for slot in declaration.slots]

    def values(image: Image) -> Values:
        return tuple([1 if read is None else read(image) for read in readers])

    return values


def _number_reader(path: str) -> Callable[[Image], Decimal]:
    get = getter(path)

    def read(image: Image) -> Decimal:
        value = get(image)
        if value is None:
            raise BadRecordError(f"attribute {path!r} is missing")
        text = value.get("N")
        if text is None:
            raise BadRecordError(f"attribute {path!r}: expected a number, came {shortened(value)}")
        return number(text)

    return read
