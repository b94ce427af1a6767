"""Lanes: how an aggregate remembers what it has absorbed.

A lane is one shard of one stream, as one aggregation sees it. An aggregate item has an attribute for each lane
that feeds it: its *watermark*, the sequence number of the last record it has absorbed, and the hour in which that
was written. One conditional update moves the count and the watermark together:

    ADD DownloadCount :n SET #lane = :last, #mark = :name
    if (attribute_not_exists(#lane) OR #lane < :first) AND (attribute_not_exists(#key) OR #mark = :name)

The *mark* is an attribute with the aggregation's name. It tells Streamfold's own items from a user's in one look, for
the fold and for the mapping's filter; and an aggregation never adds to an item that is not its own: one that a user
put at its key, or another aggregation's, such as its own under a former name.

*Invariant.* What an item has absorbed of a lane is always a prefix of the records of that lane that feed it. Every
delivery of a shard is a contiguous run that begins no later than the first record not yet done, so the records
above the watermark that a run holds are exactly the next ones. An update whose records all lie above the watermark
keeps the invariant; one whose first lies at or below it is refused by the condition, and the item that comes back
tells which records to drop. Nothing depends on who delivers, in which order, or how often.

For that, a watermark must outlive every redelivery of a record at or below it. Records live for 24 hours (and are
trimmed some time after), so a watermark that was not moved for 48 hours may go; see `stale`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from zlib import crc32

from framework.codec import AttributeValue, Image
from framework.errors import BadValueError, shortened

__all__ = [
    "LANE_PREFIX",
    "MARK",
    "bound",
    "hour_of",
    "is_redriven",
    "lane_attribute",
    "lane_partition",
    "owner",
    "position",
    "stale",
    "watermark",
]

MARK = "sf~"
LANE_PREFIX = MARK
_is_watermark = re.compile(r"[0-9]{2}(?P<number>[0-9]{1,40})@(?P<hour>[0-9]{1,9})(?P<redriven>r?)").fullmatch
# Twice the life of a stream record, for trimming is late and clocks differ.
_FORGET_AFTER_HOURS = 48


@lru_cache(maxsize=256)
def lane_attribute(aggregation: str, stream_arn: str, shard_id: str) -> str:
    """The attribute that holds a lane's watermark: 11 bytes, since every item carries a dozen of them.

    40 bits of a hash are enough: the lanes of one aggregation that are alive at once are tens to hundreds.
    """
    text = "\n".join((aggregation, stream_arn, shard_id)).encode()
    digest = hashlib.blake2b(text, digest_size=5).digest()
    return LANE_PREFIX + base64.b32encode(digest).decode().lower()


def lane_partition(lane: str, partitions: int) -> int:
    """Which of an aggregate's items a lane feeds, so that each of a busy one's collects few lanes."""
    return crc32(lane.encode()) % partitions


def bound(sequence: int) -> str:
    """A sequence number as text whose order is the numbers' order: two digits of length, then the number.

    Sequence numbers have 21 to 40 digits and no fixed length (AWS facts: the stream). The length in front does what
    zeros up to 40 digits would do, in 17 bytes less for each lane of each item.
    """
    digits = str(sequence)
    return f"{len(digits):02d}{digits}"


def hour_of(seconds: float) -> int:
    """The hour since 1970 that a time in epoch seconds lies in."""
    return int(seconds // 3600)


def watermark(sequence: int, hour: int, *, redriven: bool = False) -> str:
    """The value of a lane attribute. It sorts above the `bound` of its own number and below that of the next.

    Args:
        sequence: The sequence number.
        hour: The hour, as `hour_of` gives it.
        redriven: Whether the records below it are not all absorbed: redrive has moved it, and not the lane.
    """
    return f"{bound(sequence)}@{hour}{'r' * redriven}"


def is_redriven(value: AttributeValue) -> bool:
    """Whether a watermark was moved by redrive."""
    return str(value.get("S", "")).endswith("r")


def position(value: AttributeValue) -> int:
    """The sequence number of the last record absorbed, out of a lane attribute.

    Raises:
        BadValueError: It holds no watermark.
    """
    found = _is_watermark(value.get("S") or "")
    if found is None:
        raise BadValueError(f"expected a watermark such as '0212@420000', came {shortened(value)}")
    return int(found["number"])


def stale(item: Image, lane: str, hour: int) -> dict[str, str]:
    """The watermarks of an aggregate item that no redelivery can need any more, except that of `lane`.

    Args:
        item: The aggregate item.
        lane: The lane attribute that is being written.
        hour: The hour now, as `hour_of` gives it.
    """
    found = {}
    for attribute, value in item.items():
        if attribute.startswith(LANE_PREFIX) and attribute not in (lane, MARK):
            mark = _is_watermark(value.get("S") or "")
            # Whole hours are compared, so one more than 48 is never less than 48 hours.
            if mark is not None and hour - int(mark["hour"]) > _FORGET_AFTER_HOURS:
                found[attribute] = mark.string
    return found


def owner(item: Image) -> str | None:
    """The name of the aggregation that an item is of; None if Streamfold did not write it."""
    mark = item.get(MARK)
    return None if mark is None else mark.get("S")
