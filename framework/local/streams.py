"""A table's stream in memory: shards that take records, split, and forget them after a day.

The numbers are as awkward as those of the service may be: digits of changing length, not consecutive, rising within a
shard and starting low again in each child of a split, for nobody promises otherwise (AWS facts: the stream).
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from zlib import crc32

from framework.decode import SOURCE, Record, is_sequence_number, table_of
from framework.errors import ConfigurationError, EventError, shortened

__all__ = ["RETENTION_SECONDS", "Entry", "Shard", "Stream"]

# DynamoDB developer guide, "Change data capture for DynamoDB Streams": records are kept for 24 hours.
RETENTION_SECONDS = 24 * 3600.0

# A number is a count that rises by uneven steps, and the shard's place in the stream as its last four digits, so that
# no two shards share one. The first has 21 digits, the least that is seen, and a few records later they have 22.
_FIRST_COUNT = 10**17 - 1_500
_MOST_COUNT = 10**35
_LONGER_EVERY = 100
_PLACES = 10_000

_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Entry:
    """A record in a shard.

    Attributes:
        sequence: Its sequence number.
        at: When it came, in epoch seconds; the record itself has this rounded down to the second.
        record: The record as Lambda sends it.
    """

    sequence: int
    at: float
    record: Record


class Shard:
    """A part of a stream: records in order. Made by `Stream`.

    Attributes:
        stream_arn: The stream that it is of.
        shard_id: Its name in the stream.
        parent: The shard that it came from by a split, which has to be read to its end before it.
        closed: Whether it has split, so that it takes no more records.
    """

    def __init__(self, stream_arn: str, place: int, parent: Shard | None = None) -> None:
        self.stream_arn = stream_arn
        self.shard_id = f"shardId-{place:020d}-{crc32(f'{stream_arn} {place}'.encode()):08x}"
        self.parent = parent
        self.closed = False
        self._place = place
        self._count = _FIRST_COUNT
        self._entries: list[Entry] = []
        self._sequences: list[int] = []
        self._times: list[float] = []
        self._bytes: list[int] = []  # of all records up to each one

    def append(self, record: Record, *, at: float) -> Entry:
        """Take a record, and give it what the service gives one: number, time, stream.

        Args:
            record: A record as Lambda sends it. What it says of itself is kept, its sequence number too; the record
                that was given is not changed.
            at: When it comes, in epoch seconds.

        Raises:
            ConfigurationError: The shard has split, or the record is from before the last one.
            EventError: Its sequence number is none, or not above the last one.
        """
        if self.closed:
            raise ConfigurationError(f"{self.shard_id}: expected no record after its split, came one at {at!r}")
        if self._times and at < self._times[-1]:
            raise ConfigurationError(f"{self.shard_id}: expected a time from {self._times[-1]!r} on, came {at!r}")
        change = {
            "ApproximateCreationDateTime": int(at),
            "StreamViewType": "NEW_AND_OLD_IMAGES",
            **record["dynamodb"],
        }
        sequence = self._numbered(change.get("SequenceNumber"))
        change["SequenceNumber"] = str(sequence)
        sent = {
            "eventID": f"{crc32(f'{self.shard_id} {sequence}'.encode()):032x}",
            "eventVersion": "1.1",
            "eventSource": SOURCE,
            "awsRegion": self.stream_arn.split(":")[3],
            "eventSourceARN": self.stream_arn,
            **record,
            "dynamodb": change,
        }
        entry = Entry(sequence, at, sent)
        # Weighed once, for a batch is weighed again with every record that it waits for.
        weight = len(_as_json(sent).encode()) + 1
        self._entries.append(entry)
        self._sequences.append(sequence)
        self._times.append(at)
        self._bytes.append(weight + (self._bytes[-1] if self._bytes else 0))
        return entry

    def first(self, after: int = 0, *, now: float) -> Entry | None:
        """The first record above a sequence number that has not expired."""
        start = self._start(after, now)
        return self._entries[start] if start < len(self._entries) else None

    def lost(self, after: int = 0, *, now: float) -> int:
        """How many records above a sequence number have expired, so that nobody can read them any more."""
        return max(0, self._expired(now) - bisect_right(self._sequences, after))

    def trimmed(self, *, now: float) -> int:
        """The sequence number of the last record that has expired; 0 if none has."""
        expired = self._expired(now)
        return self._sequences[expired - 1] if expired else 0

    def batch(
        self, after: int = 0, *, now: float, most: int, most_bytes: int, before: float = float("inf")
    ) -> tuple[range, bool]:
        """The places of the records of a batch, and whether it is full: no later record could join it.

        Args:
            after: A sequence number; the batch begins with the first record above it that has not expired.
            now: The time, for expiry.
            most: The most records.
            most_bytes: The most bytes of JSON; one record is a batch whatever it weighs.
            before: The time from which on records are not of this batch.
        """
        start = self._start(after, now)
        end = min(start + most, bisect_left(self._times, before, lo=start))
        weighed = self._bytes[start - 1] if start else 0
        end = min(end, max(start + 1, bisect_right(self._bytes, weighed + most_bytes, lo=start)))
        return range(start, end), end < len(self._entries) or end - start == most

    def entries(self, places: range) -> list[Entry]:
        """The records at some places."""
        return self._entries[places.start : places.stop]

    def records(self, after: int = 0) -> Iterator[Record]:
        """The records above a sequence number, as Lambda sends them, expired ones too."""
        for entry in self._entries[bisect_right(self._sequences, after) :]:
            yield entry.record

    def _start(self, after: int, now: float) -> int:
        return max(bisect_right(self._sequences, after), self._expired(now))

    def _expired(self, now: float) -> int:
        return bisect_right(self._times, now - RETENTION_SECONDS)

    def _numbered(self, given: object) -> int:
        last = self._sequences[-1] if self._sequences else 0
        if given is not None:
            if not is_sequence_number(given) or int(str(given)) <= last:
                raise EventError(
                    f"{self.shard_id}: SequenceNumber: expected digits, above {last}, came {shortened(given)}"
                )
            return int(str(given))
        if len(self._entries) % _LONGER_EVERY == _LONGER_EVERY - 1 and self._count < _MOST_COUNT:
            self._count *= 10
        self._count += 2 + crc32(str(self._count).encode()) % 997
        return max(self._count, last // _PLACES + 1) * _PLACES + self._place % _PLACES


class Stream:
    """A table's stream.

    Args:
        arn: The stream's ARN.
        shards: How many shards it begins with.

    Attributes:
        arn: The stream's ARN.
        shards: All shards, a parent before its children.

    Raises:
        ConfigurationError: It is not the ARN of a stream, or there is no shard.
    """

    def __init__(self, arn: str, *, shards: int = 1) -> None:
        if table_of(arn) is None:
            raise ConfigurationError(f"stream: expected the ARN of a table's stream, came {shortened(arn)}")
        if shards < 1:
            raise ConfigurationError(f"stream {arn}: expected a shard or more, came {shards!r}")
        self.arn = arn
        self.shards = [Shard(arn, place) for place in range(shards)]
        self._roots = tuple(self.shards)
        self._children: dict[str, tuple[Shard, Shard]] = {}

    def split(self, shard: Shard) -> tuple[Shard, Shard]:
        """Close a shard and open its two children.

        Raises:
            ConfigurationError: It has split already.
        """
        if shard.closed:
            raise ConfigurationError(f"{shard.shard_id}: expected an open shard, came one that has split")
        shard.closed = True
        first = len(self.shards)
        children = Shard(self.arn, first, shard), Shard(self.arn, first + 1, shard)
        self.shards.extend(children)
        self._children[shard.shard_id] = children
        return children

    def shard_of(self, key: str) -> Shard:
        """The open shard that takes the records of an item, by the text of its key.

        An item's records are in order, since it keeps its shard until that splits and then goes to one of the two.
        """
        digest = crc32(key.encode())
        number, turn = divmod(digest, len(self._roots))
        shard = self._roots[turn]
        while shard.closed:
            number, turn = divmod(number, 2)
            shard = self._children[shard.shard_id][turn]
        return shard
