"""The lines of a text file, with their numbers, gzip or not."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from functools import partial

from framework.errors import SourceError

__all__ = ["Lines"]

_GZIP = b"\x1f\x8b"
# An item has 400 KB and an event 6 MB at most (DynamoDB quotas, Lambda quotas). A file that is one line of
# gigabytes, such as an array of all items, is told by this before it is in memory.
_LONGEST = 16 * 1024 * 1024


class Lines:
    """The lines of an open file as text, each with its line end, read once.

    The file is UTF-8 with or without a byte order mark. Whether it is compressed is told by its first bytes.
    Lines end at a line feed; a carriage return before it stays in the text.

    Args:
        name: The file's name for messages.
        file: The file, at its start. It is not closed here; `file.tell()` says how far the reading is.

    Attributes:
        number: The number of the line that was read last, from 1.
        text: That line.
    """

    def __init__(self, name: str, file: io.BufferedReader) -> None:
        self.number = 0
        self.text = ""
        self._name = name
        self._file = file

    def __iter__(self) -> Iterator[str]:
        """Read the lines.

        Raises:
            SourceError: Bytes that are not UTF-8, a broken gzip, or a line of more than 16 MB.
        """
        encoding = "utf-8-sig"  # a byte order mark is one at the start of the file only
        try:
            packed = self._file.peek(2)[:2] == _GZIP
            # Its own readline, not a BufferedReader around it: what came before a break is not lost with it.
            stream = gzip.GzipFile(fileobj=self._file) if packed else self._file
            for line in iter(partial(stream.readline, _LONGEST + 1), b""):
                self.number += 1
                if len(line) > _LONGEST:
                    raise self.error(f"expected lines of at most {_LONGEST:,} bytes, came a longer one")
                self.text = line.decode(encoding)
                encoding = "utf-8"
                yield self.text
        except UnicodeDecodeError as error:
            came = f"{error.object[error.start : error.end]!r} at byte {error.start + 1} of the line"
            raise self.error(f"expected UTF-8 text, came {came}") from None
        except EOFError:
            raise self.error("expected the rest of a gzip file, came its end", line=self.number + 1) from None
        except (OSError, zlib.error) as error:
            reason = f"expected data that can be read, came an error: {error}"
            raise self.error(reason, line=self.number + 1) from None

    def error(self, reason: str, *, line: int | None = None) -> SourceError:
        """What is wrong with a line, to be raised.

        Args:
            reason: What was expected and what came.
            line: The line's number; the last one by default.
        """
        return SourceError(f"{self._name}: line {self.number if line is None else line}: {reason}")
