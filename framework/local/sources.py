"""A file of items in place of a live table's stream."""

from __future__ import annotations

import hashlib
import io
import marshal
import os
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from framework.decode import Record, table_of
from framework.errors import SourceError, shortened
from framework.local.formats import MOST_RECORDS, Format, Item, read_json, read_records, recognise
from framework.local.lines import Lines
from framework.local.rows import read_csv
from framework.tables import Table

__all__ = ["FileSource"]

_FIRST_SEQUENCE = 10**20  # sequence numbers have 21 digits at least (AWS facts: the stream)
# A file does not say when its items were put, and a rerun must give equal records.
_CREATION_TIME = 1_577_836_800  # 2020-01-01T00:00:00Z
_VIEW = "NEW_AND_OLD_IMAGES"


class FileSource:
    """A file of items, read as the stream of a table that they were put into one after the other.

    The format is told from the first line, compression from the first bytes: JSON lines of plain items,
    DynamoDB JSON lines (`{"Item": {...}}` as exports have it, or a bare item of typed values), CSV with a
    header (see `read_csv`), or lines of stream records or of whole Lambda events, which can also delete and
    expire.

    A file is one shard, and its name says which, without the folders: another run of the same file, or of one
    of that name that was mended or has grown, goes on where the last one stopped and counts nothing again.

    Args:
        path: The file.
        table: The table that the items belong to.

    Attributes:
        shard_id: The shard, the same for each file of this name.
        stream_arn: The stream, likewise.

    Raises:
        SourceError: There is no such file.
    """

    def __init__(self, path: str | os.PathLike[str], table: Table) -> None:
        self._path = Path(path)
        self._table = table
        name = self._path.name
        self._digest = hashlib.blake2b(os.fsencode(name), digest_size=8).hexdigest()
        label = f"{re.sub(r'[^A-Za-z0-9_.-]', '-', name)[:64]}-{self._digest[:8]}"
        self.shard_id = f"shardId-{0:020d}-{self._digest[:8]}"
        region = table.home or "us-east-1"
        self.stream_arn = f"arn:aws:dynamodb:{region}:000000000000:table/{table.name}/stream/{label}"
        self._file: io.BufferedReader | None = None
        self._size = 0
        self._progress = 0.0
        self._opened().close()

    @property
    def format(self) -> Format | None:
        """What the lines are, told from the first one; None for a file without any.

        Raises:
            SourceError: The first line is of no format.
        """
        with self._opened() as file:
            return recognise(Lines(str(self._path), file), self._table)

    def progress(self) -> float:
        """Tell how much of the file the latest `records` has consumed, by its bytes: 0 to 1."""
        if self._file is None:
            return self._progress
        return min(self._file.tell() / self._size, 1.0) if self._size else 1.0

    def records(self, after: int = 0) -> Iterator[Record]:
        """Read the file's stream records, one by one as they are asked for.

        A put of a key that came before is a MODIFY with the item that it replaces, or nothing if both are
        equal, as with the service. For that the last item of each key is kept: its bytes and about 200 more.

        Args:
            after: The highest sequence number that is done: records up to it are left out.

        Returns:
            Records as Lambda's events have them. The line's number makes the sequence number, unless the file
            holds stream records with their own; `ApproximateCreationDateTime` is 2020-01-01 unless they have
            it.

        Raises:
            SourceError: A line is not as it has to be. The records of all lines before it have been given.
        """
        form = self.format
        with self._opened() as file:
            self._file, self._size = file, os.fstat(file.fileno()).st_size
            lines = Lines(str(self._path), file)
            try:
                if form is Format.RECORDS:
                    yield from self._replayed(lines, after)
                else:
                    yield from self._put(lines, form, after)
            finally:
                self._progress, self._file = self.progress(), None

    def _opened(self) -> io.BufferedReader:
        path = self._path
        try:
            if path.exists() and not path.is_file():
                came = "a directory" if path.is_dir() else "a pipe or a device, which cannot be read again"
                raise SourceError(f"{path}: expected a file, came {came}")
            return path.open("rb")
        except FileNotFoundError:
            raise SourceError(f"{path}: expected a file, came none of this name") from None
        except (OSError, ValueError) as error:
            raise SourceError(f"{path}: expected a file that can be opened, came an error: {error}") from None

    def _put(self, lines: Lines, form: Format | None, after: int) -> Iterator[Record]:
        """The records of items that are put in the order of the file."""
        found = read_json(lines, form, self._table) if form in _JSON else read_csv(lines, self._table)
        identity = _identity(self._table)
        last: dict[str, bytes] = {}
        for line, keys, item in found:
            key = identity(keys)
            replaced = last.get(key)
            # The quickest way to bytes and back for dicts of text. They never leave this loop.
            last[key] = kept = marshal.dumps(item)
            change: dict[str, Any] = {
                "ApproximateCreationDateTime": _CREATION_TIME,
                "Keys": keys,
                "NewImage": item,
                "SizeBytes": len(kept),
                "StreamViewType": _VIEW,
            }
            if replaced is not None:
                change["OldImage"] = marshal.loads(replaced)
                change["SizeBytes"] += len(replaced)
                if change["OldImage"] == item:
                    continue
            place = line * MOST_RECORDS
            if _FIRST_SEQUENCE + place > after:
                change["SequenceNumber"] = str(_FIRST_SEQUENCE + place)
                yield self._record("INSERT" if replaced is None else "MODIFY", change, place)

    def _replayed(self, lines: Lines, after: int) -> Iterator[Record]:
        """The records of a file of stream records, as they are, with what they lack."""
        previous = 0
        for line, number, record in read_records(lines, self._table):
            change = record["dynamodb"]
            place = line * MOST_RECORDS + number
            own = change.get("SequenceNumber")
            sequence = _FIRST_SEQUENCE + place if own is None else _own_sequence(lines, own)
            if sequence <= previous:
                reason = f"SequenceNumber: expected one above {previous}, the last before it, came {sequence}"
                raise lines.error(reason)
            previous = sequence
            arn = record.get("eventSourceARN", self.stream_arn)
            if table_of(arn) != self._table.name or record.get("eventSource", _SOURCE) != _SOURCE:
                came = f"{shortened(record.get('eventSource'))} {shortened(arn)}"
                raise lines.error(f"expected a record of a stream of table {self._table.name!r}, came one of {came}")
            if sequence > after:
                yield self._record(record["eventName"], _filled(change, sequence), place, record)

    def _record(self, name: str, change: dict[str, Any], place: int, found: Record | None = None) -> Record:
        record = {
            "eventID": f"{self._digest}{place:016x}",
            "eventName": name,
            "eventVersion": "1.1",
            "eventSource": _SOURCE,
            "awsRegion": self.stream_arn.split(":")[3],
            "dynamodb": change,
            "eventSourceARN": self.stream_arn,
        }
        if found is not None:
            # The file stands for one shard, wherever its records were read.
            record = {**record, **found, "dynamodb": change, "eventSourceARN": self.stream_arn}
        return record


_SOURCE = "aws:dynamodb"
_JSON = (Format.JSON, Format.DYNAMODB_JSON)


def _filled(change: dict[str, Any], sequence: int) -> dict[str, Any]:
    created = change.get("ApproximateCreationDateTime", _CREATION_TIME)
    images = [change[name] for name in ("NewImage", "OldImage") if name in change]
    return {
        "SizeBytes": sum(len(marshal.dumps(image)) for image in images),
        "StreamViewType": _VIEW,
        **change,
        # A fraction was read as a Decimal, as items need it; an event of Lambda's has a float there.
        "ApproximateCreationDateTime": float(created) if isinstance(created, Decimal) else created,
        "SequenceNumber": str(sequence),
    }


def _own_sequence(lines: Lines, own: object) -> int:
    if isinstance(own, str) and own.isascii() and own.isdigit() and len(own) <= 40:
        return int(own)
    raise lines.error(f"SequenceNumber: expected up to 40 decimal digits as text, came {shortened(own)}")


def _identity(table: Table) -> Callable[[Item], str]:
    """Make a function that gives a key as one text. The first part's length keeps any two keys apart."""
    pk, pk_type, sk_type = table.pk, table.pk_type, table.sk_type
    if table.sk is None:
        return lambda keys: str(keys[pk][pk_type])
    sk = table.sk

    def of_both(keys: Item) -> str:
        first = keys[pk][pk_type]
        return f"{len(first)} {first}{keys[sk][sk_type]}"

    return of_both
