"""Histories: what happens to the items of source tables, and the stream records that come of it.

A *change* is what an application does to one item; a *record* is what the stream says of it. Both are made of plain
Python values, as `group_by` gets them: text, whole numbers and `Decimal`, `bytes`, booleans, None, lists, maps, sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

from framework.codec import Image, decode_item, encode_item, to_event
from framework.decode import Record
from framework.errors import EventError, shortened
from framework.local.attempts import Window, event_of
from framework.local.streams import Shard
from framework.tables import Table

__all__ = [
    "EXPIRY",
    "Change",
    "delete",
    "event",
    "existing",
    "expire",
    "expired",
    "inserted",
    "key_of",
    "key_text",
    "modified",
    "put",
    "record_of",
    "removed",
    "stream_arn",
    "update",
]

# AWS facts: DynamoDB developer guide, "DynamoDB Streams and Time to Live".
EXPIRY = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
WINDOW_SECONDS = 900
_AS_IT_IS = frozenset({"S", "N", "BOOL", "NULL", "SS", "NS"})
_places = count(1)  # of shards that events are of which name none
_NEW_YEAR = 1_514_764_800.0  # 2018-01-01T00:00:00Z


@dataclass(frozen=True, slots=True, repr=False)
class Change:
    """One thing that happens to one item; made by `put`, `update`, `delete`, `expire` and `existing`.

    Attributes:
        kind: What happens.
        table: The table.
        item: The item after it, its key and what is set, or its key, as a boto3 client takes it.
    """

    kind: Literal["existing", "put", "update", "delete", "expire"]
    table: Table
    item: Image

    def __repr__(self) -> str:
        return f"{self.kind}({self.table.name}, {decode_item(self.item)})"


def put(table: Table, item: Mapping[str, object]) -> Change:
    """An item is put into a table, or in place of the one with its key.

    Args:
        table: A source table.
        item: The whole item, as Python values.

    Raises:
        BadValueError: A value that DynamoDB does not have, such as a float.
        EventError: A key attribute is missing.
    """
    return Change("put", table, _whole(table, item))


def update(table: Table, item: Mapping[str, object]) -> Change:
    """Some attributes of an item are set, and the others stay as they are; it is made if it is not there.

    Args:
        table: A source table.
        item: Its key, and the attributes that are set, as Python values.

    Raises:
        BadValueError: A value that DynamoDB does not have, such as a float.
        EventError: A key attribute is missing.
    """
    return Change("update", table, _whole(table, item))


def existing(table: Table, item: Mapping[str, object]) -> Change:
    """An item is put into a table whose stream is not on yet: no record tells of it. Arguments and errors as `put`."""
    return Change("existing", table, _whole(table, item))


def delete(table: Table, key: Mapping[str, object]) -> Change:
    """An item is deleted, if it is there.

    Args:
        table: A source table.
        key: Its key attributes as Python values; further attributes, as of a whole item, mean nothing.

    Raises:
        BadValueError: A value that DynamoDB does not have.
        EventError: A key attribute is missing.
    """
    return Change("delete", table, key_of(table, encode_item(key)))


def expire(table: Table, key: Mapping[str, object]) -> Change:
    """An item's time to live deletes it, if it is there. Arguments and errors as `delete`."""
    return Change("expire", table, key_of(table, encode_item(key)))


def inserted(table: Table, item: Mapping[str, object], **more: Any) -> Record:
    """The stream record of a new item, as Lambda sends it, but for the sequence number that `event` gives it.

    Args:
        table: The table.
        item: The item, as Python values.
        more: What else the record says, or says otherwise.

    Raises:
        BadValueError: A value that DynamoDB does not have.
        EventError: A key attribute is missing.
    """
    return {**record_of(table, None, _whole(table, item)), **more}


def modified(table: Table, old: Mapping[str, object], new: Mapping[str, object], **more: Any) -> Record:
    """The stream record of an edit, from an old item to a new one. Otherwise as `inserted`."""
    return {**record_of(table, _whole(table, old), _whole(table, new)), **more}


def removed(table: Table, item: Mapping[str, object], **more: Any) -> Record:
    """The stream record of a delete. Otherwise as `inserted`."""
    return {**record_of(table, _whole(table, item), None), **more}


def expired(table: Table, item: Mapping[str, object], **more: Any) -> Record:
    """The stream record of a delete by the item's time to live. Otherwise as `inserted`."""
    return {**record_of(table, _whole(table, item), None), "userIdentity": EXPIRY, **more}


def event(*records: Record, at: float = _NEW_YEAR, shard: Shard | None = None, **more: Any) -> dict[str, Any]:
    """The event of one invocation, as a mapping with a tumbling window sends it.

    Args:
        records: Records of one table, in order. Those without a sequence number get one.
        at: When they came, in epoch seconds; the event's window is the one of 900 seconds around it.
        shard: The shard that they join, for several events of one; a new one for each event if not given.
        more: What else the event says, or says otherwise.

    Raises:
        EventError: There is no record, or a sequence number that is none or not above the one before.
        ConfigurationError: The shard has a record from after `at`.
    """
    if not records:
        raise EventError("event: expected a record or more, came none")
    into = Shard(records[0]["eventSourceARN"], next(_places)) if shard is None else shard
    entries = [into.append(record, at=at) for record in records]
    window = Window.at(at, WINDOW_SECONDS)
    return {**event_of(entries, into.stream_arn, into.shard_id, window=window), **more}


def record_of(table: Table, old: Image | None, new: Image | None) -> Record:
    """A stream record out of raw items; which kind of change it is follows from them."""
    name = "REMOVE" if new is None else "INSERT" if old is None else "MODIFY"
    change: dict[str, Any] = {"Keys": _sent(key_of(table, new or old or {}))}
    if new is not None:
        change["NewImage"] = _sent(new)
    if old is not None:
        change["OldImage"] = _sent(old)
    return {"eventName": name, "eventSource": "aws:dynamodb", "eventSourceARN": stream_arn(table), "dynamodb": change}


def _sent(image: Image) -> Image:
    """An image as an event has it; only binary is anything else there, and few items have any."""
    return image if all(_AS_IT_IS.issuperset(value) for value in image.values()) else to_event(image)


def stream_arn(table: Table) -> str:
    """The ARN of a simulated table's stream, in its home Region."""
    return (
        f"arn:aws:dynamodb:{table.home or 'us-east-1'}:123456789012:table/{table.name}/stream/2018-01-01T00:00:00.000"
    )


def key_of(table: Table, item: Image) -> Image:
    """The key of a raw item.

    Raises:
        EventError: A key attribute is missing.
    """
    try:
        return {name: item[name] for name in table.keys}
    except KeyError as missing:
        raise EventError(f"{table.name}: expected the key attribute {missing}, came {shortened(item)}") from None


def key_text(table: Table, item: Image) -> str:
    """The key of a raw item in the engine's normal form, as text to look it up by: `songID='a', SK='2018-01'`."""
    return ", ".join([f"{name}={value!r}" for name in table.keys for value in item[name].values()])


def _whole(table: Table, item: Mapping[str, object]) -> Image:
    image = encode_item(item)
    key_of(table, image)
    return image
