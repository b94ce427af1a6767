"""Decode: Lambda's event to a batch of one lane's changes.

Images stay raw DynamoDB JSON. What is wrong inside a record is found by `explain`, which runs only after something
failed, so that the good path does not pay for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

from framework.codec import AttributeValue, decode_item, number
from framework.errors import BadValueError, ConfigurationError, EventError, StreamfoldError, shortened

__all__ = [
    "EXPIRED_BY",
    "SOURCE",
    "Batch",
    "Record",
    "by_number",
    "created",
    "decode",
    "event_ids",
    "explain",
    "is_expiry",
    "is_sequence_number",
    "key_text",
    "table_of",
]

# One stream record as Lambda sends it.
Record = dict[str, Any]

_is_stream_arn = re.compile(
    r"arn:[^:]+:dynamodb:(?P<region>[^:]*):[^:]*:table/(?P<table>[^/:]+)/stream/[^/]+"
).fullmatch
SOURCE = "aws:dynamodb"
# Who deletes an expired item, as a service (AWS facts: the stream).
EXPIRED_BY = "dynamodb.amazonaws.com"
_MOST_DIGITS = 40  # of a sequence number (AWS facts: the stream)
_LATEST = 1e11  # the year 5138; what is above it counts milliseconds
_IMAGES = {"INSERT": ("NewImage",), "MODIFY": ("OldImage", "NewImage"), "REMOVE": ("OldImage",)}


@dataclass(frozen=True, slots=True)
class Batch:
    """The records of one invocation: a contiguous run of one shard.

    Attributes:
        stream_arn: The stream; empty where there are no records.
        shard_id: The shard; empty where Lambda does not say.
        records: The stream records, as they came.
    """

    stream_arn: str
    shard_id: str
    records: list[Record]

    @property
    def table(self) -> str:
        """The table that the stream is of, by the stream's name; empty where there are no records."""
        return table_of(self.stream_arn) or ""

    @property
    def region(self) -> str:
        """The Region that the stream is in; empty where there are no records."""
        found = _is_stream_arn(self.stream_arn)
        return found["region"] if found else ""


def table_of(stream_arn: object) -> str | None:
    """The table's name in an ARN such as `arn:aws:dynamodb:REGION:ACCOUNT:table/NAME/stream/TIME`, or None."""
    found = _is_stream_arn(stream_arn) if isinstance(stream_arn, str) else None
    return found["table"] if found else None


def decode(event: object, *, lanes: bool = True) -> Batch:
    """The batch in an event that Lambda's event source mapping sends for a DynamoDB stream.

    The records are looked at when they are folded, each once: a pass over all of them would cost a fifth of the fold.
    A final invocation of a window may have no records (AWS facts: the stream).

    Args:
        event: The event.
        lanes: Whether the batch is of a lane, so that it has to say of which shard.

    Raises:
        EventError: The event is not one of a DynamoDB stream.
        ConfigurationError: It lacks `shardId`, which comes only with a tumbling window.
    """
    if not isinstance(event, dict) or not isinstance(event.get("Records"), list):
        raise EventError(f"event: expected a DynamoDB stream event with Records, came {shortened(event)}")
    records: list[Record] = event["Records"]
    stream = ""
    if records:
        try:
            source, stream = records[0]["eventSource"], records[0]["eventSourceARN"]
        except (KeyError, TypeError):
            explain(records)
        if source != SOURCE or table_of(stream) is None:
            raise EventError(f"event: expected records of a DynamoDB stream, came {shortened(f'{source} {stream}')}")
    # Without a window there is none, and what was set aside has to be found again whether the event says it or not.
    shard_id = event.get("shardId") if lanes else ""
    if not isinstance(shard_id, str) or (lanes and not shard_id):
        raise ConfigurationError(
            "event: expected a shardId, came none: the event source mapping needs a tumbling window "
            "(TumblingWindowInSeconds=900), for only then does Lambda send it"
        )
    return Batch(stream, shard_id, records)


def by_number(records: list[Record]) -> dict[int, Record]:
    """The records by their sequence numbers, without those whose number cannot be read."""
    numbers = [(record["dynamodb"]["SequenceNumber"], record) for record in records]
    return {int(number): record for number, record in numbers if is_sequence_number(number)}


def event_ids(records: list[Record]) -> dict[int, str]:
    """The `eventID` of each record, which is unique, by its sequence number.

    Raises:
        EventError: A record has none.
    """
    found = {}
    for place, record in enumerate(records):
        event = record.get("eventID")
        if not isinstance(event, str) or not event:
            raise EventError(f"event: Records[{place}]: eventID: expected text, came {shortened(event)}")
        found[int(record["dynamodb"]["SequenceNumber"])] = event
    return found


def is_sequence_number(value: object) -> bool:
    """Whether a value is text of 1 to 40 decimal digits (AWS facts: the stream)."""
    return isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS


def created(record: Record) -> float | None:
    """When a change was made, in epoch seconds, as the stream says it: to the second below; None where it does not.

    What no stream says, such as a date in text or the year 5000, is no time either.
    """
    time = record["dynamodb"].get("ApproximateCreationDateTime")
    return time if type(time) in (int, float) and 0 <= time < _LATEST else None


def is_expiry(record: Record, replicated_ttl: str | None = None) -> bool:
    """Whether the record is a delete by the item's time to live (AWS facts: the stream).

    Args:
        record: A stream record.
        replicated_ttl: For a global table, the attribute with an item's time to live: only the Region that expired an
            item names who did it, the others see a plain delete of an item whose time was over. None for a table of
            one Region, where a delete that nobody is named for is a user's.
    """
    identity = record.get("userIdentity")
    if identity is None and replicated_ttl is not None and record["eventName"] == "REMOVE":
        return _was_over(record["dynamodb"]["OldImage"].get(replicated_ttl), created(record))
    return (
        isinstance(identity, dict) and identity.get("type") == "Service" and identity.get("principalId") == EXPIRED_BY
    )


def _was_over(time_to_live: AttributeValue | None, at: float | None) -> bool:
    if at is None or time_to_live is None:
        return False
    try:
        return number(time_to_live["N"]) <= Decimal(at)
    except (KeyError, BadValueError):
        return False


def key_text(record: Record) -> str:
    """The key of the item that a record is about, for a message: `songID='a', SK='2018-01'`.

    Raises:
        EventError: The record has none.
    """
    try:
        keys = record["dynamodb"]["Keys"].items()
        return ", ".join(f"{name}={[*value.values()][0]!r}" for name, value in keys)  # noqa: RUF015
    except (KeyError, TypeError, AttributeError, IndexError):
        explain([record])


def explain(records: list[Record], otherwise: StreamfoldError | None = None) -> NoReturn:
    """Raise what is wrong with the first malformed record.

    Args:
        records: Some of which cannot be read.
        otherwise: What to raise if each of them by itself is sound.

    Raises:
        EventError: Names the record's place in the batch, what was expected and what came.
        ConfigurationError: The stream does not carry the images that the record needs.
    """
    for place, record in enumerate(records):
        _explain(f"event: Records[{place}]", record)
    raise otherwise or EventError("event: expected the records of a DynamoDB stream, came some that cannot be read")


def _explain(where: str, record: object) -> None:
    if not isinstance(record, dict):
        raise EventError(f"{where}: expected a stream record, came {shortened(record)}")
    for field in ("eventSource", "eventSourceARN", "eventName"):
        if not isinstance(record.get(field), str):
            raise EventError(f"{where}: {field}: expected text, came {shortened(record.get(field))}")
    if record["eventSource"] != SOURCE:
        raise EventError(f"{where}: eventSource: expected {SOURCE!r}, came {shortened(record['eventSource'])}")
    if record["eventName"] not in _IMAGES:
        raise EventError(f"{where}: eventName: expected INSERT, MODIFY or REMOVE, came {record['eventName']!r}")
    change = record.get("dynamodb")
    if not isinstance(change, dict):
        raise EventError(f"{where}: dynamodb: expected a change, came {shortened(change)}")
    number = change.get("SequenceNumber")
    if not is_sequence_number(number):
        raise EventError(
            f"{where}: SequenceNumber: expected 1 to {_MOST_DIGITS} decimal digits as text, came {shortened(number)}"
        )
    _explain_images(where, record["eventName"], change)


def _explain_images(where: str, name: str, change: dict[str, Any]) -> None:
    for field in ("Keys", *_IMAGES[name]):
        image = change.get(field)
        if image is None:
            raise ConfigurationError(
                f"{where}: {field}: expected in a {name} record, came none: the stream needs the view type "
                "NEW_AND_OLD_IMAGES"
            )
        if not isinstance(image, dict):
            raise EventError(f"{where}: {field}: expected an item, came {shortened(image)}")
        try:
            decode_item(image)
        except BadValueError as error:
            raise EventError(f"{where}: {field}: {error}") from None
