"""Fold: a batch of changes to what each of them adds to which aggregate. Pure.

A change's contribution is `f(new image) - f(old image)`, where `f` of an image that does not match is nothing. So an
insert adds, an edit moves, a delete takes back and an unrelated edit does nothing. `f` of an image that cannot be
counted is nothing too, and the record is named as bad: whatever is edited, mended or deleted in whichever order, what
counts is what a recount of the items would find. A declaration is compiled once into one closure; a batch's
contributions are kept per aggregate in the order of the shard.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache

from framework.codec import Image
from framework.declaration import Declaration
from framework.decode import Record, created, explain, is_expiry, key_text
from framework.errors import BadRecordError, BadValueError
from framework.measures import EXACT
from framework.part import BadRecord, Fold, Part
from framework.share import Share, Values, compile_share

__all__ = [
    "IMAGES",
    "BadRecord",
    "Bucket",
    "Contribution",
    "Fold",
    "Folded",
    "Half",
    "HalfOf",
    "Values",
    "compile_fold",
    "compile_half",
    "difference",
    "fold_around",
    "negative",
]

# What a record's contribution is made of: what its images count for, the new one added and the old one taken back.
IMAGES = ("NewImage", "OldImage")

# A record's sequence number; whether it only adds, so that it may make the aggregate; what it adds to each slot.
Contribution = tuple[str, bool, Values]
Bucket = list[Contribution]
# What one image of a record adds: to which aggregate, by group and label, and its contribution.
Half = tuple[tuple[str, str], Contribution]


@dataclass(slots=True)
class Folded(Part):
    """One aggregation's share of a batch, filled record by record.

    Attributes:
        declaration: The aggregation.
        buckets: The contributions to each aggregate, by group and label, in the order of the records.
        bad: The records that cannot be counted.
        late: How many records came to an aggregate whose time was over.
    """

    declaration: Declaration
    buckets: defaultdict[tuple[str, str], Bucket] = field(default_factory=lambda: defaultdict(list))
    bad: list[BadRecord] = field(default_factory=list)
    late: int = 0

    def set_aside(self, record: Record, reason: str, images: tuple[str, ...]) -> None:
        """Name a record as bad."""
        number = record["dynamodb"]["SequenceNumber"]
        self.bad.append(BadRecord(self.declaration.name, key_text(record), number, reason, images, record))

    def drop_expired(self, now: float) -> None:
        """Leave out aggregates whose time is over now: they are gone, and would come back with a part only."""
        for bucket in [*self.buckets]:
            expiry = self.declaration.expiry(bucket[1])
            if expiry is not None and expiry <= now:
                self.late += len(self.buckets.pop(bucket))

    @property
    def contributions(self) -> int:
        """How many contributions there are."""
        return sum(map(len, self.buckets.values()))

    @property
    def _bad_and_all(self) -> tuple[int, int]:
        """As `Part` says; a record that is late says nothing about the deployment."""
        bad = len(self.bad) - (self.late if self.declaration.late == "set-aside" else 0)
        return bad, bad + self.contributions


HalfOf = Callable[[Record, str], Half | None]
# Why a record is late for the aggregates of a window, by its label; None if it is not.
_LateFor = Callable[[Record, str], str | None]
_MOST_WINDOWS = 4096  # whose expiry is remembered
_COUNTED = {"INSERT": ("NewImage",), "MODIFY": IMAGES, "REMOVE": ("OldImage",)}


def compile_fold(declaration: Declaration) -> Callable[[], tuple[Folded, Fold]]:
    """Compile a declaration.

    Args:
        declaration: The aggregation.

    Returns:
        A function that starts a batch: it returns the batch's `Folded` and the closure that folds one record into it.
    """
    share = compile_share(declaration)
    edits_count = declaration.changes == "all"
    keep_expired = declaration.on_expiry == "keep"
    replicated_ttl = _replicated_ttl(declaration)
    late_for = _compile_lateness(declaration)

    def start() -> tuple[Folded, Fold]:
        folded = Folded(declaration)
        buckets = folded.buckets if late_for is None else defaultdict(list)

        def change_or_remove(record: Record, name: str) -> None:
            change = record["dynamodb"]
            sequence = change["SequenceNumber"]
            reasons: dict[str, str] = {}

            def readable(image: str) -> Share | None:
                try:
                    return share(change[image])
                except (BadRecordError, BadValueError) as error:
                    reasons[image] = str(error) if image == "NewImage" else f"old image: {error}"
                    return None

            old = readable("OldImage")
            new = readable("NewImage") if name == "MODIFY" else None
            if old is not None and new is not None and old[0] == new[0]:
                if old[1] != new[1]:
                    buckets[new[0]].append((sequence, False, difference(new[1], old[1])))
            else:
                if old is not None:
                    buckets[old[0]].append((sequence, False, negative(old[1])))
                if new is not None:
                    buckets[new[0]].append((sequence, True, new[1]))
            if reasons:
                folded.set_aside(record, "; ".join(reasons.values()), (*reasons,))

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
                folded.set_aside(record, str(error), ("NewImage",))
            except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError):
                # Only a malformed record gets here: everything that reads an image's values is careful.
                explain([record])

        return folded, fold if late_for is None else _in_time(folded, buckets, fold, share, late_for)

    return start


def _replicated_ttl(declaration: Declaration) -> str | None:
    return declaration.source.ttl if declaration.source.home is not None else None


def _compile_lateness(declaration: Declaration) -> _LateFor | None:
    """A function that tells whether a change was made when its aggregate's time was over; None without a retention.

    That is judged by the record's time and not by the clock, so that a redelivery is judged alike. A record without a
    time is not late.
    """
    if declaration.retention is None:
        return None
    expiry = lru_cache(_MOST_WINDOWS)(declaration.expiry)

    def late_for(record: Record, label: str) -> str | None:
        at, over = created(record), expiry(label)
        if at is None or over is None or at < over:
            return None
        return (
            f"window {label!r}: expected a change before its retention of {declaration.retention} was over, "
            f"came one {at - over:.0f} s after that"
        )

    return late_for


def _in_time(
    folded: Folded,
    found: dict[tuple[str, str], Bucket],
    fold: Fold,
    share: Callable[[Image], Share | None],
    late_for: _LateFor,
) -> Fold:
    """A fold that lets those contributions count that are not late, and ignores the others or sets them aside.

    Args:
        folded: What counts, and what is late.
        found: Where `fold` puts a record's contributions.
        fold: The fold of a declaration with a retention.
        share: What an image counts for.
        late_for: Why a record is late.
    """

    def of(image: Image) -> tuple[str, str] | None:
        try:
            counted = share(image)
        except (BadRecordError, BadValueError):
            return None
        return None if counted is None else counted[0]

    def fold_in_time(record: Record) -> None:
        before = len(folded.bad)
        fold(record)
        late: dict[tuple[str, str], str] = {}
        for bucket, contributions in found.items():
            reason = late_for(record, bucket[1])
            if reason is None:
                folded.buckets[bucket] += contributions
            else:
                late[bucket] = reason
        found.clear()
        if late and folded.declaration.late == "ignore":
            folded.late += 1
        elif late:
            folded.late += 1
            # What else is wrong with the record is named with it.
            others, folded.bad[before:] = folded.bad[before:], []
            reasons = [bad.reason for bad in others] + list(late.values())
            images = [image for image in _COUNTED[record["eventName"]] if of(record["dynamodb"][image]) in late]
            folded.set_aside(record, "; ".join(reasons), (*(i for bad in others for i in bad.images), *images))

    return fold_in_time


def compile_half(declaration: Declaration) -> HalfOf:
    """Compile a declaration for records that are counted an image at a time: those that were set aside.

    Returns:
        A function of a record and the name of one of its images, to what that image adds, or None if it adds nothing.
        It raises `BadRecordError` or `BadValueError` if the image cannot be counted, and `EventError` or
        `ConfigurationError` if the record is none.
    """
    share = compile_share(declaration)
    edits_count = declaration.changes == "all"
    keep_expired = declaration.on_expiry == "keep"
    replicated_ttl = _replicated_ttl(declaration)
    late_for = _compile_lateness(declaration)

    def half(record: Record, image: str) -> Half | None:
        try:
            name, change = record["eventName"], record["dynamodb"]
            if image not in _COUNTED[name] or not (edits_count or name == "INSERT"):
                return None
            if name == "REMOVE" and keep_expired and is_expiry(record, replicated_ttl):
                return None
            found = share(change[image])
            if found is None:
                return None
            bucket, values = found
            reason = late_for(record, bucket[1]) if late_for is not None else None
            if reason is not None and declaration.late == "ignore":
                return None
            if reason is not None:
                raise BadRecordError(reason)
            adds = image == "NewImage"
            return bucket, (change["SequenceNumber"], adds, values if adds else negative(values))
        except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError):
            explain([record])

    return half


def fold_around(folded: Folded, fold: Fold, half: HalfOf, owned: Mapping[int, AbstractSet[str]]) -> Fold:
    """A fold that leaves out images of some records.

    Args:
        folded: What the fold fills.
        fold: The fold.
        half: The declaration, compiled by `compile_half`.
        owned: The images to leave out, by the record's sequence number.
    """

    def around(record: Record) -> None:
        try:
            taken = owned.get(int(record["dynamodb"]["SequenceNumber"]))
        except (KeyError, TypeError, ValueError):
            explain([record])
        if taken is None:
            return fold(record)
        for image in IMAGES:
            try:
                found = None if image in taken else half(record, image)
            except (BadRecordError, BadValueError) as error:
                folded.set_aside(record, str(error), (image,))
            else:
                if found is not None:
                    folded.buckets[found[0]].append(found[1])

    return around


def difference(new: Values, old: Values) -> Values:
    """What makes new values out of old ones; exact."""
    return tuple(
        n - o if isinstance(n, int) and isinstance(o, int) else EXACT.subtract(Decimal(n), Decimal(o))
        for n, o in zip(new, old, strict=True)
    )


def negative(values: Values) -> Values:
    """The values that take values back; exact."""
    return tuple(-v if isinstance(v, int) else EXACT.minus(v) for v in values)
