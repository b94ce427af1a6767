"""Reading aggregates back, over any DynamoDB client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import Any

from framework.client import dynamodb
from framework.codec import Image, number
from framework.declaration import Declaration, Group
from framework.errors import BadRecordError, BadValueError, ReadError, shortened
from framework.lanes import owner
from framework.measures import Number, combine

__all__ = ["Aggregate", "aggregates_of", "all_of", "get", "top"]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One group's values in one window; `aggregate["DownloadCount"]` is one of them.

    Attributes:
        group: The group's value: text or a number; a tuple of texts where several attributes make a group; the text
            of the key where a function does.
        window: The window's label, `"2018-01"`.
        values: Each measure's value by its declared name: an `int` where it is whole, else an exact `Decimal`;
            None for an average of nothing.
    """

    group: Group
    window: str
    values: Mapping[str, Number | None]

    def __getitem__(self, measure: str) -> Number | None:
        return self.values[measure]


def get(declaration: Declaration, group: object, window: str | date, client: Any) -> Aggregate | None:
    """The aggregate of one group in one window, read consistently; see `Aggregation.get`."""
    label = declaration.window.label(window)
    values = group if isinstance(group, tuple) else (group,)
    expected = declaration.group_by
    if isinstance(expected, tuple) and len(values) != len(expected):
        raise ReadError(f"{declaration.name}: group: expected a value for each of {expected}, came {shortened(group)}")
    try:
        text = declaration.group_key(*values)
    except (BadRecordError, BadValueError) as error:
        raise ReadError(f"{declaration.name}: {error}") from None
    client, table = client or dynamodb(), declaration.target.name
    keys = (declaration.key(text, label, partition) for partition in range(declaration.partitions))
    found = (client.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item", {}) for key in keys)
    items = [item for item in found if owner(item) == declaration.name]
    return next(_together(declaration, items), None)


def top(declaration: Declaration, window: str | date, n: int, client: Any) -> list[Aggregate]:
    """The `n` greatest aggregates of a window; see `Aggregation.top`."""
    if type(n) is not int or n < 1:
        raise ReadError(f"{declaration.name}: n: expected a whole number from 1 on, came {shortened(n)}")
    # Without partitions the index has them in order, so that no more than n (and emptied ones) are read.
    limit = n if declaration.partitions == 1 else None
    return list(islice(_ranked(declaration, window, client, limit), n))


def all_of(declaration: Declaration, window: str | date, client: Any) -> Iterator[Aggregate]:
    """Every aggregate of a window, greatest first; see `Aggregation.all`."""
    return _ranked(declaration, window, client, None)


def aggregates_of(declaration: Declaration, items: Iterable[Image]) -> Iterator[Aggregate]:
    """The aggregates in an aggregation's items, without those of which every record was taken back."""
    return (found for part in _parts(declaration, items) for found in _together(declaration, part))


def _ranked(declaration: Declaration, window: str | date, client: Any, limit: int | None) -> Iterator[Aggregate]:
    if declaration.index is None:
        raise ReadError(f"{declaration.name}: expected an index to read a window from, came a declaration without one")
    label = declaration.window.label(window)
    # An index may hold other items too: of an aggregation with another prefix, or with a former number of partitions.
    keys = declaration.sort_keys(label)
    items = (i for i in _query(declaration, label, client or dynamodb(), limit) if declaration.is_at(i, keys))
    if declaration.partitions == 1:
        return (found for item in items for found in _together(declaration, [item]))
    return iter(_merged(declaration, items))


def _merged(declaration: Declaration, items: Iterable[Image]) -> list[Aggregate]:
    """Aggregates whose parts are scattered over an index: all of it has to be read before the first is known."""
    assert declaration.index is not None
    order = declaration.index.sk
    whole = [(_stored(declaration, part)[order], part) for part in _parts(declaration, items)]
    whole.sort(key=lambda pair: pair[0], reverse=True)
    return [found for _, part in whole for found in _together(declaration, part)]


def _parts(declaration: Declaration, items: Iterable[Image]) -> Iterable[list[Image]]:
    """The items of each aggregate."""
    parts: dict[tuple[Group, str], list[Image]] = {}
    for item in items:
        parts.setdefault(declaration.group_of(item), []).append(item)
    return parts.values()


def _query(declaration: Declaration, label: str, client: Any, limit: int | None) -> Iterator[Image]:
    index = declaration.index
    assert index is not None
    arguments: dict[str, Any] = {
        "TableName": declaration.target.name,
        "IndexName": index.name,
        "KeyConditionExpression": "#window = :label",
        "ExpressionAttributeNames": {"#window": index.pk},
        "ExpressionAttributeValues": {":label": {"S": label}},
        "ScanIndexForward": False,
        **({} if limit is None else {"Limit": limit}),
    }
    while True:
        page = client.query(**arguments)
        yield from page["Items"]
        if "LastEvaluatedKey" not in page:
            return
        arguments["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def _stored(declaration: Declaration, items: list[Image]) -> dict[str, Number]:
    """The kept attributes of an aggregate, put together from its items."""
    stored: dict[str, Number] = {}
    for slot in declaration.slots:
        values = [_value(declaration, item, slot.attribute) for item in items if slot.attribute in item]
        if values:
            stored[slot.attribute] = combine(slot.kind, values)
    return stored


def _together(declaration: Declaration, items: list[Image]) -> Iterator[Aggregate]:
    """The aggregate of its items; nothing if there are none or what they counted was all taken back."""
    if not items:
        return
    stored = _stored(declaration, items)
    if any(stored.get(slot.attribute) == 0 for slot in declaration.slots if slot.of is None):
        return
    group, label = declaration.group_of(items[0])
    yield Aggregate(group, label, {name: m.read(name, stored) for name, m in declaration.measures.items()})


def _value(declaration: Declaration, item: Image, attribute: str) -> Number:
    raw = item[attribute].get("N")
    if raw is None:
        key = {name: item[name] for name in declaration.target.keys}
        raise ReadError(
            f"{declaration.name}: item {key}: {attribute}: expected a number, came {shortened(item[attribute])}"
        )
    value = number(raw)
    return int(value) if value == value.to_integral_value() else value
