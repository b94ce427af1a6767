"""Failures: the invocation records of batches that Lambda gave up on, read back into events.

An S3 object holds the event in `payload`, as an object or as a text that holds one; an SQS message says only where
the records lie, and the stream has them for a day (AWS facts: event source mapping).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from framework.decode import Record, is_sequence_number, table_of
from framework.errors import SourceError, shortened

__all__ = ["Failure", "failure_of"]


@dataclass(frozen=True, slots=True)
class Failure:
    """A batch that Lambda gave up on.

    Attributes:
        source: What it was read from, for messages.
        stream_arn: The stream.
        shard_id: The shard.
        first: The first record's sequence number.
        last: The last record's.
        size: How many records there are.
        records: The records; None where only their place is known.
    """

    source: str
    stream_arn: str
    shard_id: str
    first: int
    last: int
    size: int
    records: list[Record] | None

    @property
    def table(self) -> str:
        """The table that the stream is of."""
        return table_of(self.stream_arn) or ""

    def event(self, read: Callable[[Failure], list[Record]]) -> dict[str, Any]:
        """The event, as Lambda would send it.

        Args:
            read: Reads the records from the stream, where only their place is known.

        Raises:
            SourceError: They are not all there any more.
        """
        records = read(self) if self.records is None else self.records
        numbers = {int(str(number)) for record in records if is_sequence_number(number := _number(record))}
        ends = {self.first, self.last}
        if len(numbers) < self.size or not numbers >= ends or (min(numbers), max(numbers)) != (self.first, self.last):
            hint = ": a stream keeps its records for 24 hours" if self.records is None else ""
            raise SourceError(
                f"{self.source}: expected {self.size} records from {self.first} to {self.last} in {self.stream_arn}, "
                f"came {len(numbers)}{hint}"
            )
        if any(record.get("eventSourceARN") != self.stream_arn for record in records):
            raise SourceError(f"{self.source}: expected records of {self.stream_arn}, came some of another stream")
        return {"Records": records, "shardId": self.shard_id}


def failure_of(source: str, body: str | bytes) -> Failure:
    """Read an invocation record.

    Args:
        source: What it was read from, for messages.
        body: Its text.

    Raises:
        SourceError: It is not Lambda's record of a batch of a DynamoDB stream.
    """
    found = _json(source, body)
    info = found.get("DDBStreamBatchInfo")
    if not isinstance(info, Mapping):
        raise SourceError(
            f"{source}: expected Lambda's record of a failed batch with DDBStreamBatchInfo, came {shortened(found)}"
        )
    stream, shard, size = info.get("streamArn"), info.get("shardId"), info.get("batchSize")
    ends = [info.get("startSequenceNumber"), info.get("endSequenceNumber")]
    if table_of(stream) is None or not isinstance(shard, str) or type(size) is not int or size < 1:
        raise SourceError(f"{source}: DDBStreamBatchInfo: expected stream, shard and size, came {shortened(info, 200)}")
    if not all(map(is_sequence_number, ends)):
        raise SourceError(f"{source}: DDBStreamBatchInfo: expected two sequence numbers, came {shortened(ends)}")
    records = None
    if "payload" in found:
        payload = found["payload"]
        payload = _json(f"{source}: payload", payload) if isinstance(payload, str) else payload
        records = payload.get("Records") if isinstance(payload, Mapping) else None
        if not isinstance(records, list):
            raise SourceError(f"{source}: payload: expected an event with Records, came {shortened(payload)}")
    return Failure(source, str(stream), shard, int(str(ends[0])), int(str(ends[1])), size, records)


def _number(record: object) -> object:
    change = record.get("dynamodb") if isinstance(record, Mapping) else None
    return change.get("SequenceNumber") if isinstance(change, Mapping) else None


def _json(source: str, text: str | bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{source}: expected JSON, came {shortened(text)}") from error
    if not isinstance(found, dict):
        raise SourceError(f"{source}: expected a JSON object, came {shortened(found)}")
    return found
