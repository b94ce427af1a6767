"""The lines of an archive's objects, and the items in them.

An object's compression is checked to its end before the first of its lines is given out. It is kept in a temporary file
meanwhile, so that memory does not hang on how large it is.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any, cast

from framework.archive_manifest import Merged, Source
from framework.codec import Image, from_event
from framework.errors import BadValueError, ReadError, shortened
from framework.tables import Table

__all__ = ["Content", "Problem", "Stored", "ended", "item_of", "unpacked"]

_IN_MEMORY = 4 * 2**20  # bytes of an object's lines; more of them are in a file
_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class Problem:
    """What cannot be read of an archive, or is not as it should be.

    Attributes:
        object: The object's name in the bucket.
        reason: What was expected and what came.
        line: The line, counted from 1; None for the whole object.
    """

    object: str
    reason: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.object}: {'' if self.line is None else f'line {self.line}: '}{self.reason}"


@dataclass(frozen=True, slots=True)
class Stored:
    """One object of an archive.

    Attributes:
        partition: The partition, such as `date=2018-01-31`.
        name: The name without folders.
        size: Its bytes.
        at: When it was put, in epoch seconds.
        etag: What S3 calls its content; empty for a merged one.
        storage: Its storage class.
        merged: What it was made of; None for one that the consumer or redrive put.
    """

    partition: str
    name: str
    size: int
    at: int
    etag: str
    storage: str = "STANDARD"
    merged: Merged | None = None


class Content:
    """What one object holds.

    Args:
        stored: The object.
        sources: What it is made of, in the order of its lines.
        file: The lines.
        lines: Which of them, counted from 0; None for all.
        remark: What is wrong with it, though it can be read.

    Attributes:
        stored: The object.
        sources: What it is made of.
        remark: What is wrong with it.
    """

    def __init__(
        self, stored: Stored, sources: tuple[Source, ...], file: IO[bytes], lines: range | None, remark: str = ""
    ) -> None:
        self.stored = stored
        self.sources = sources
        self.remark = remark
        self._file = file
        self._lines = lines

    def lines(self) -> Iterator[tuple[Source, int, bytes]]:
        """Each line with the source that it is of, and its number in the object, counted from 1."""
        self._file.seek(0)
        wanted = self._lines
        texts = islice(self._file, wanted.start, wanted.stop) if wanted is not None else iter(self._file)
        places = (source for source in self.sources for _ in range(source.items))
        for number, text in enumerate(texts, 1):
            # A single source has all, be it as many as it says or not.
            yield (self.sources[0] if len(self.sources) == 1 else next(places, self.sources[-1])), number, text

    def count(self) -> int:
        """How many lines there are."""
        return sum(1 for _ in self.lines())

    def digest(self) -> str:
        """The SHA-256 of all lines, each with its end."""
        found = hashlib.sha256()
        for _, _, text in self.lines():
            found.update(ended(text))
        return found.hexdigest()

    def close(self) -> None:
        """Free what it takes."""
        self._file.close()


def ended(text: bytes) -> bytes:
    """A line with its end, which the last one of an object may lack."""
    return text if text.endswith(b"\n") else text + b"\n"


def item_of(text: bytes, table: Table) -> dict[str, Any]:
    """The item that a line holds, as a boto3 client takes it: all but binary to the letter.

    Raises:
        ReadError: It holds none, or one without the table's keys.
    """
    try:
        found = json.loads(text)
        image: Image = found["Item"]
        item = from_event(image)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ReadError(f"expected a line {{'Item': ...}} of DynamoDB JSON, came {shortened(text)}") from None
    except BadValueError as error:
        raise ReadError(f"expected an item as DynamoDB JSON: {error}") from None
    for name, kind in table.key_types.items():
        if kind not in item.get(name, {}):
            raise ReadError(f"expected an item with the key {name!r} ({kind}), came {shortened(item.get(name))}")
    return item


def unpacked(body: Any) -> IO[bytes]:
    """The lines of a compressed object, in a file that is gone when it is closed."""
    file = cast(IO[bytes], tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY))  # noqa: SIM115  # it is given out
    try:
        with gzip.GzipFile(fileobj=body) as packed:
            while chunk := packed.read(_CHUNK):
                file.write(chunk)
            # Nothing at all is read as no lines, without a header.
            if packed.mtime is None:
                raise EOFError("nothing")
    except BaseException:
        file.close()
        raise
    return file
