"""The formats of a file of items, and those of them that are JSON; `rows.py` has CSV.

The format is told from the first line, and the rest is held to it. A reader gives *event images*: raw
DynamoDB JSON as a stream record carries it, binary as base64 text, every value in the form that the service
would give it back in (`1.50` is `1.5`), so that equal items are equal here.

A good line of JSON fits one format only: a key is a bare value in plain JSON and never in DynamoDB JSON, and
stream records have no key at their top level. So a line is looked at for another format only after it failed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from enum import StrEnum
from typing import Any, NoReturn, TypeAlias

from framework.codec import AttributeValue, decode_item, encode_item, number, to_event
from framework.decode import Record
from framework.errors import BadRecordError, BadValueError, StreamfoldError, shortened
from framework.local.lines import Lines
from framework.tables import Table

__all__ = [
    "KEY_TYPES",
    "MOST_RECORDS",
    "TYPES",
    "Format",
    "Found",
    "Item",
    "is_normal_number",
    "key_reader",
    "normal",
    "parsed",
    "read_json",
    "read_records",
    "recognise",
]

Item: TypeAlias = dict[str, AttributeValue]
Found: TypeAlias = tuple[int, Item, Item]
"""What an item's line holds: the line's number, the key, and the whole item."""

KEY_TYPES = frozenset({"S", "N", "B"})
TYPES = KEY_TYPES | {"BOOL", "NULL", "SS", "NS", "BS", "L", "M"}

MOST_RECORDS = 10_000  # of an event (Lambda developer guide, batch size)
# DynamoDB developer guide, quotas: the bytes of a partition key's and of a sort key's value.
_MOST_KEY_BYTES = (2048, 1024)
_IMAGES = {"INSERT": ("NewImage",), "MODIFY": ("OldImage", "NewImage"), "REMOVE": ("OldImage",)}

# Numbers in the form that the service gives them back in, and that none of its limits can touch.
is_normal_number = re.compile(
    r"0|-?[1-9][0-9]{0,18}|-?(?:0|[1-9][0-9]{0,18})\.[0-9]{0,17}[1-9]",
).fullmatch


class Format(StrEnum):
    """What the lines of a file are; the value is the name for people."""

    JSON = "plain JSON"
    DYNAMODB_JSON = "DynamoDB JSON"
    CSV = "CSV"
    RECORDS = "stream records"


def recognise(lines: Lines, table: Table) -> Format | None:
    """Tell the format from the first line that is not blank.

    Returns:
        The format; None where all lines are blank.

    Raises:
        SourceError: The line begins as JSON does, but is not a JSON object.
    """
    for text in lines:
        begin = text.lstrip()[:1]
        if begin:
            return _format_of(parsed(text, lines), table) if begin in "{[" else Format.CSV
    return None


def read_json(lines: Lines, form: Format, table: Table) -> Iterator[Found]:
    """Read items, one a line.

    Args:
        lines: The file, from its start.
        form: `Format.JSON` or `Format.DYNAMODB_JSON`.
        table: The table that the items belong to.

    Raises:
        SourceError: A line that is not an item of the table in this format, or that DynamoDB would refuse.
    """
    keys_of = key_reader(table)
    item_of = _plain_reader(table) if form is Format.JSON else _typed_reader(table)
    for text in lines:
        if not text.strip():
            continue
        document = parsed(text, lines)
        try:
            item = item_of(document)
            keys = keys_of(item)
        except StreamfoldError as error:
            _refuse(lines, error, document, form, table)
        yield lines.number, keys, item


def read_records(lines: Lines, table: Table) -> Iterator[tuple[int, int, Record]]:
    """Read stream records: one a line, or a whole event of Lambda (`{"Records": [...]}`) a line.

    Returns:
        The line's number, the record's place in the line from 0, and the record as it stands there.

    Raises:
        SourceError: A line with anything but stream records of the table.
    """
    keys_of = key_reader(table)
    for text in lines:
        if not text.strip():
            continue
        document = parsed(text, lines)
        try:
            records = document["Records"] if _is_event(document, table) else [document]
            if len(records) > MOST_RECORDS:
                raise BadRecordError(f"expected at most {MOST_RECORDS:,} records, came {len(records):,}")
            for record in records:
                _check_record(record, keys_of)
        except StreamfoldError as error:
            _refuse(lines, error, document, Format.RECORDS, table)
        for place, record in enumerate(records):
            yield lines.number, place, record


def _refuse(lines: Lines, error: StreamfoldError, document: Item, form: Format, table: Table) -> NoReturn:
    came = _format_of(document, table)
    reason = str(error) if came is form else f"expected {form} as in the first line, came {came}"
    raise lines.error(reason) from None


def _format_of(document: dict[str, Any], table: Table) -> Format:
    """The format that a line's JSON object has by its looks."""
    if _is_event(document, table) or (isinstance(document.get("dynamodb"), dict) and "eventName" in document):
        return Format.RECORDS
    if _is_exported(document, table):
        return Format.DYNAMODB_JSON
    asked = [document[table.pk]] if table.pk in document else list(document.values())
    return Format.DYNAMODB_JSON if asked and all(map(_is_typed, asked)) else Format.JSON


def _is_event(document: dict[str, Any], table: Table) -> bool:
    return isinstance(document.get("Records"), list) and table.pk not in document


def _is_exported(document: dict[str, Any], table: Table) -> bool:
    """Whether the item is under `Item`, as in exports and imports; that may also be the name of a key."""
    item = document.get("Item")
    return len(document) == 1 and isinstance(item, dict) and (table.pk != "Item" or "Item" in item)


def _is_typed(value: object) -> bool:
    return isinstance(value, dict) and len(value) == 1 and not TYPES.isdisjoint(value)


def parsed(text: str, lines: Lines) -> dict[str, Any]:
    """The JSON object of the line that was read last, its numbers exact.

    Raises:
        SourceError: It is broken, no object, or has what JSON readers disagree on (a name twice, NaN).
    """
    try:
        document = _decoder.decode(text)
    except json.JSONDecodeError as error:
        column = min(error.pos, len(text.rstrip())) + 1  # the decoder counts from the last line feed
        came = f"{shortened(text.strip())} ({error.msg} at column {column})"
        raise lines.error(f"expected one JSON object, came {came}") from None
    except RecursionError:
        raise lines.error("expected at most 32 levels of nesting, came hundreds") from None
    except BadValueError as error:
        raise lines.error(str(error)) from None
    if not isinstance(document, dict):
        raise lines.error(f"expected one JSON object, came {shortened(text.strip())}")
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise BadValueError(f"expected each name once in a JSON object, came {shortened(twice)} twice")
    return found


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) < 20 else number(text)


def _constant(text: str) -> NoReturn:
    raise BadValueError(f"expected a finite number, came {text}")


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_float=number, parse_int=_integer, parse_constant=_constant)


def key_reader(table: Table) -> Callable[[Item], Item]:
    """Make a function that takes the key out of an item.

    It raises BadRecordError where a key attribute is missing, of another type, empty or too long.
    """
    schema = list(zip(table.keys, table.key_types.values(), _MOST_KEY_BYTES, strict=False))

    def keys_of(item: Item) -> Item:
        keys: Item = {}
        for name, tag, most in schema:
            value = item.get(name)
            text = value.get(tag) if value else None
            # No character takes more than 4 bytes, so 256 of them are always within the limits.
            if not text or len(text) > 256:
                _check_key(name, tag, value, most)
            keys[name] = {tag: text}
        return keys

    return keys_of


def _check_key(name: str, tag: str, value: AttributeValue | None, most: int) -> None:
    where = f"key attribute {name!r}"
    if value is None:
        raise BadRecordError(f"{where}: expected a value of type {tag}, came none")
    if tag not in value:
        raise BadRecordError(f"{where}: expected a value of type {tag}, came {shortened(value)}")
    text = value[tag]
    size = len(text) * 3 // 4 - text.count("=") if tag == "B" else len(text.encode())
    if not 0 < size <= most:
        raise BadRecordError(f"{where}: expected 1 to {most:,} bytes, came {size:,}")


def _plain_reader(table: Table) -> Callable[[dict[str, Any]], Item]:
    """Make a function of plain JSON; JSON has no binary, so a binary key is written as base64 text."""
    binary = {name for name, tag in table.key_types.items() if tag == "B"}

    def item_of(document: dict[str, Any]) -> Item:
        item: Item = {}
        for name, value in document.items():
            kind = type(value)
            if name in binary and kind is str:
                item[name] = normal(name, {"B": value})
            elif kind is int and name:
                item[name] = {"N": str(value)}
            elif kind is str and value.isascii() and name:
                item[name] = {"S": value}
            else:
                item[name] = encode_item({name: value})[name]
        return item

    return item_of


def _typed_reader(table: Table) -> Callable[[dict[str, Any]], Item]:
    def item_of(document: dict[str, Any]) -> Item:
        typed = document["Item"] if _is_exported(document, table) else document
        return {name: normal(name, value) for name, value in typed.items()}

    return item_of


def normal(name: str, value: AttributeValue) -> AttributeValue:
    """An attribute's raw value in the form that the service would give it back in.

    Raises:
        BadValueError: The service would refuse it.
    """
    if _is_typed(value) and name:
        ((tag, raw),) = value.items()
        if type(raw) is str and ((tag == "S" and raw.isascii()) or (tag == "N" and is_normal_number(raw))):
            return value
    return to_event(encode_item(decode_item({name: value})))[name]


def _check_record(record: object, keys_of: Callable[[Item], Item]) -> None:
    if not isinstance(record, dict) or not isinstance(record.get("dynamodb"), dict):
        raise BadRecordError(f"expected a stream record, came {shortened(record)}")
    name, change = record.get("eventName"), record["dynamodb"]
    if not isinstance(name, str) or name not in _IMAGES:
        raise BadRecordError(f"eventName: expected INSERT, MODIFY or REMOVE, came {shortened(name)}")
    for field in ("Keys", *_IMAGES[name]):
        if not isinstance(change.get(field), dict):
            came = shortened(change.get(field))
            raise BadRecordError(f"{field}: expected an item in a {name} record, came {came}")
        try:
            decode_item(change[field])
            keys_of(change[field])
        except StreamfoldError as error:
            raise BadRecordError(f"{field}: {error}") from None
