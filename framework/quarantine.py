"""Quarantine: what a record's image should have added and could not, as items of the control table. Pure.

An *entry* is about one image of one record for one handler: whatever else the record adds, the entry is what is
missing. It holds the whole record and the reason. Its key is made of what it is about, so that a record that comes
again makes the same entry and not a second one. Redrive takes the record out of the entry in the same transaction
that counts it, and leaves the key for as long as the record may be brought again (`MEMORY_SECONDS`): what has an
entry, open or settled, is counted by redrive and by nobody else.

The record is JSON text; compressed where that is large; and in an S3 object beside the failures where even that is
beyond an item's 400 KB.

A *refused* entry is about an image that was to be taken back from an aggregate that is not there. It is settled from
the start, and nobody has to look at it. But where what it takes back was in a batch that Lambda gave up on, or is in
quarantine itself, and is counted after all, that is taken back with it (`refused.py`).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from framework.codec import AttributeValue, Image
from framework.decode import Record, key_text
from framework.errors import BadValueError, shortened
from framework.lanes import bound

__all__ = [
    "MEMORY_SECONDS",
    "PARTITION",
    "Entry",
    "entry_item",
    "entry_of",
    "item_text",
    "key_of",
    "lane_prefix",
    "place_of",
    "refusal",
    "remembers",
    "retraction",
    "settlement",
]

PARTITION = "quarantine"
# How long it is remembered that a record was settled. A stream delivers one again within a day; whoever brings records
# from elsewhere has to refuse those of which it may be forgotten (`remembers`).
MEMORY_SECONDS = 14 * 86_400
_MARGIN_SECONDS = 2 * 86_400
# Where an entry holds its record.
_RECORD = {"#record": "record", "#packed": "packed", "#object": "object"}

_COMPRESS_FROM = 4 * 1024  # bytes of JSON
_MOST_BYTES = 350 * 1024  # of an item's 400 KB, for the rest of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One image of one record that a handler could not count.

    Attributes:
        handler: The aggregation's name.
        image: `"NewImage"`, to be added, or `"OldImage"`, to be taken back.
        stream_arn: The record's stream.
        shard_id: Its shard; empty where Lambda did not say.
        sequence_number: Its sequence number.
        record: The record as Lambda sent it.
        reason: What was expected and what came.
        at: When it was set aside, in epoch seconds.
        uncertain: Whether the record may have been counted already, so that a person has to decide.
        refused: Whether the aggregate to take it back from is not there.
    """

    handler: str
    image: str
    stream_arn: str
    shard_id: str
    sequence_number: int
    record: Record
    reason: str
    at: int
    uncertain: bool = False
    refused: bool = False

    @property
    def place(self) -> str:
        """The entry's sort key, by which it is named: stream, shard, sequence number, handler, image."""
        prefix = lane_prefix(self.stream_arn, self.shard_id)
        return f"{prefix}{bound(self.sequence_number)}/{self.handler}/{self.image}"

    @property
    def key(self) -> dict[str, AttributeValue]:
        """The entry's key in the control table."""
        return key_of(self.place)


def lane_prefix(stream_arn: str, shard_id: str) -> str:
    """What the sort keys of a shard's entries begin with: `TABLE/STREAM-LABEL/SHARD/`."""
    _, _, table_and_label = stream_arn.partition(":table/")
    table, _, label = table_and_label.partition("/stream/")
    return f"{table}/{label}/{shard_id or '-'}/"


def key_of(place: str) -> dict[str, AttributeValue]:
    """The key in the control table of the entry with a sort key."""
    return {"pk": {"S": PARTITION}, "sk": {"S": place}}


def place_of(sk: str) -> tuple[str, int, str]:
    """The handler, the sequence number and the image out of an entry's sort key."""
    *_, sequence, handler, image = sk.split("/")
    return handler, int(sequence[2:]), image


def entry_item(entry: Entry, store: Callable[[str, bytes], None]) -> dict[str, AttributeValue]:
    """An entry as an item of the control table.

    Args:
        entry: The entry.
        store: Puts an object under a name, for a record that is too large for an item.
    """
    text = json.dumps(entry.record, separators=(",", ":"))  # ASCII, for text of Lambda's may be no Unicode
    item: dict[str, AttributeValue] = {
        **entry.key,
        "handler": {"S": entry.handler},
        "image": {"S": entry.image},
        "stream": {"S": entry.stream_arn},
        "shard": {"S": entry.shard_id or "-"},
        "sequence": {"S": str(entry.sequence_number)},
        "key": {"S": item_text(entry.record)},
        "reason": {"S": _sound(entry.reason)[:2000]},
        "at": {"N": str(entry.at)},
    }
    if entry.uncertain:
        item["uncertain"] = {"BOOL": True}
    if entry.refused:
        item |= {"refused": {"BOOL": True}, "done": item["at"], "expires": {"N": str(entry.at + MEMORY_SECONDS)}}
    if len(text.encode()) < _COMPRESS_FROM:
        return {**item, "record": {"S": text}}
    packed = gzip.compress(text.encode(), mtime=0)
    if len(packed) <= _MOST_BYTES:
        return {**item, "packed": {"B": packed}}
    name = f"{PARTITION}/{entry.place}.json.gz"
    store(name, packed)
    return {**item, "object": {"S": name}}


def entry_of(item: Image, load: Callable[[str], bytes]) -> Entry:
    """The entry that an item holds.

    Args:
        item: The item.
        load: Gets an object by its name.

    Raises:
        BadValueError: It holds none, or its record is no JSON.
    """
    try:
        record = json.loads(_text(item, load))
        if not isinstance(record, Mapping):
            raise TypeError(f"expected a record, came {shortened(record)}")
        shard = item["shard"]["S"]
        return Entry(
            handler=item["handler"]["S"],
            image=item["image"]["S"],
            stream_arn=item["stream"]["S"],
            shard_id="" if shard == "-" else shard,
            sequence_number=int(item["sequence"]["S"]),
            record=dict[str, Any](record),
            reason=item["reason"]["S"],
            at=int(item["at"]["N"]),
            uncertain="uncertain" in item,
            refused="refused" in item,
        )
    except (KeyError, TypeError, ValueError, OSError, EOFError) as error:
        raise BadValueError(
            f"control table: {item.get('sk', {}).get('S')}: expected a quarantined record, "
            f"came an item that cannot be read: {error!r}"
        ) from error


def item_text(record: Record) -> str:
    """The key of a record's item as entries have it: text that tells items apart."""
    return _sound(key_text(record))[:1000]


def _sound(text: str) -> str:
    """A text with a mark in place of what is no Unicode."""
    return text.encode(errors="replace").decode()


def _text(item: Image, load: Callable[[str], bytes]) -> str | bytes:
    if "record" in item:
        text: str = item["record"]["S"]
        return text
    packed = load(item["object"]["S"]) if "object" in item else bytes(item["packed"]["B"])
    return gzip.decompress(packed)


def settlement(table: str, place: str, now: float) -> dict[str, Any]:
    """The arguments of the update that takes the record out of an open entry and leaves its key.

    Args:
        table: The control table's name.
        place: The entry's sort key.
        now: The time in epoch seconds.
    """
    return {
        "TableName": table,
        "Key": key_of(place),
        "UpdateExpression": f"SET #done = :now, #expires = :expires REMOVE {', '.join(_RECORD)}",
        "ConditionExpression": "attribute_exists(#pk) AND attribute_not_exists(#done)",
        "ExpressionAttributeNames": {**_RECORD, "#pk": "pk", "#done": "done", "#expires": "expires"},
        "ExpressionAttributeValues": {":now": {"N": str(int(now))}, ":expires": {"N": str(int(now) + MEMORY_SECONDS)}},
    }


def refusal(table: str, place: str, now: float) -> dict[str, Any]:
    """The arguments of the update that makes an open entry a refused one; as for `settlement`."""
    return {
        "TableName": table,
        "Key": key_of(place),
        "UpdateExpression": "SET #refused = :true, #done = :now, #expires = :expires",
        "ConditionExpression": "attribute_exists(#pk) AND attribute_not_exists(#done)",
        "ExpressionAttributeNames": {"#pk": "pk", "#refused": "refused", "#done": "done", "#expires": "expires"},
        "ExpressionAttributeValues": {
            ":true": {"BOOL": True},
            ":now": {"N": str(int(now))},
            ":expires": {"N": str(int(now) + MEMORY_SECONDS)},
        },
    }


def retraction(table: str, place: str) -> dict[str, Any]:
    """The arguments of the update that takes the record out of a refused entry; as for `settlement`."""
    return {
        "TableName": table,
        "Key": key_of(place),
        "UpdateExpression": f"SET #retracted = :true REMOVE {', '.join(_RECORD)}",
        "ConditionExpression": "attribute_exists(#refused) AND attribute_not_exists(#retracted)",
        "ExpressionAttributeNames": {**_RECORD, "#refused": "refused", "#retracted": "retracted"},
        "ExpressionAttributeValues": {":true": {"BOOL": True}},
    }


def remembers(created: float, now: float) -> bool:
    """Whether it would still be known that a record of some age was settled, had it been."""
    return now - created < MEMORY_SECONDS - _MARGIN_SECONDS
