"""CSV with a header as items."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from framework.codec import AttributeValue, number, number_text
from framework.errors import BadRecordError, BadValueError, SourceError, StreamfoldError, shortened
from framework.local.formats import (
    KEY_TYPES,
    TYPES,
    Format,
    Found,
    is_normal_number,
    key_reader,
    normal,
    parsed,
)
from framework.local.lines import Lines
from framework.tables import Table

__all__ = ["read_csv"]

_MOST_ITEM_BYTES = 400 * 1024  # DynamoDB developer guide, quotas
_NUMBER_BEGINS = frozenset("-0123456789")
_is_json_number = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?").fullmatch

_Read: TypeAlias = Callable[[str], AttributeValue]


def read_csv(lines: Lines, table: Table) -> Iterator[Found]:
    """Read items from CSV as RFC 4180 has it; a row counts for the line that it begins in.

    An empty cell is an absent attribute. A key attribute has its declared type, any other cell that is a
    number as JSON writes them is one, and all else is text. `zip:S`, `price:N` or `image:B` (base64) in the
    header is the type of a column.

    Raises:
        SourceError: A header without the keys, or with a name twice or none; a row that is not an item of the
            table, or that DynamoDB would refuse.
    """
    # The limit is one for the whole process, and only ever raised: its 128 KB are less than an item may have.
    csv.field_size_limit(max(csv.field_size_limit(), _MOST_ITEM_BYTES))
    columns: list[tuple[str, _Read]] = []
    keys_of = key_reader(table)
    for line, row in _rows(lines):
        try:
            if not columns:
                columns = _columns(row, table)
                continue
            if len(row) != len(columns):
                if len(row) == 1 and row[0].isspace():
                    continue
                raise BadRecordError(f"expected {len(columns)} cells as in the header, came {len(row)}")
            if row[0].startswith("{"):
                _refuse_json(lines)
            item = {name: read(cell) for (name, read), cell in zip(columns, row, strict=True) if cell}
            keys = keys_of(item)
        except BadValueError as error:
            raise lines.error(_reason(columns, row, error), line=line) from None
        except BadRecordError as error:
            raise lines.error(str(error), line=line) from None
        yield line, keys, item


def _rows(lines: Lines) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with the number of the line that it begins in."""
    line = 1
    try:
        for row in csv.reader(lines, strict=True):
            if row:
                yield line, row
            line = lines.number + 1
    except csv.Error as error:
        raise lines.error(f"expected a row of CSV (RFC 4180), came an error: {error}", line=line) from None


def _columns(header: list[str], table: Table) -> list[tuple[str, _Read]]:
    """The name and the reader of each column."""
    columns: dict[str, _Read] = {}
    for title in header:
        name, _, forced = title.rpartition(":")
        if forced not in TYPES:
            name, forced = title, ""
        if not name:
            raise BadRecordError(f"expected a name in each cell of the header, came {shortened(header)}")
        if name in columns:
            raise BadRecordError(f"expected each name once in the header, came {shortened(name)} twice")
        kind = table.key_types.get(name) or forced
        if forced and (forced != kind or forced not in KEY_TYPES):
            expected = "one of the types S, N and B" if forced == kind else f"the key's declared type {kind}"
            raise BadRecordError(f"column {shortened(name)}: expected {expected}, came {forced}")
        columns[name] = _READERS[kind]
    for name in table.keys:
        if name not in columns:
            expected = f"JSON, or a CSV header with the key attribute {name!r}"
            raise BadRecordError(f"expected {expected}, came {shortened(','.join(header))}")
    return list(columns.items())


def _cell(cell: str) -> AttributeValue:
    if cell[0] in _NUMBER_BEGINS:
        if is_normal_number(cell):
            return {"N": cell}
        if _is_json_number(cell):
            return _number_cell(cell)
    return {"S": cell}


def _text_cell(cell: str) -> AttributeValue:
    return {"S": cell}


def _number_cell(cell: str) -> AttributeValue:
    return {"N": cell if is_normal_number(cell) else number_text(number(cell))}


def _binary_cell(cell: str) -> AttributeValue:
    return normal("cell", {"B": cell})


_READERS: dict[str, _Read] = {"": _cell, "S": _text_cell, "N": _number_cell, "B": _binary_cell}


def _reason(columns: Iterable[tuple[str, _Read]], row: list[str], error: StreamfoldError) -> str:
    """Say which cell was refused."""
    for (name, read), cell in zip(columns, row, strict=True):
        try:
            if cell:
                read(cell)
        except BadValueError as found:
            remedy = f"; {name + ':S'!r} in the header keeps it as text" if read is _cell else ""
            return f"column {shortened(name)}: {str(found).removeprefix('at ' + repr('cell') + ': ')}{remedy}"
    return str(error)


def _refuse_json(lines: Lines) -> None:
    """Refuse a line of JSON among the rows; a cell of JSON is quoted, so its line is no JSON object."""
    try:
        parsed(lines.text, lines)
    except SourceError:
        return
    raise BadRecordError(f"expected {Format.CSV} as in the first line, came a JSON object")
