"""A table's stream, read by the API of DynamoDB Streams, with its records as Lambda sends them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from framework.codec import to_event
from framework.decode import Record

__all__ = ["LiveShard", "live_shards"]

_MOST_EMPTY = 200
_PAGE = 1000  # the most that GetRecords gives (DynamoDB Streams API reference)


class LiveShard:
    """A shard of a table's stream.

    Args:
        client: A boto3 DynamoDB Streams client.
        stream_arn: The stream.
        shard_id: The shard.
        region: The Region that its records shall say they are of; the stream's if not given.
    """

    def __init__(self, client: Any, stream_arn: str, shard_id: str, region: str | None = None) -> None:
        self._client = client
        self._read_from = stream_arn
        self._region = region
        parts = stream_arn.split(":")
        self.stream_arn = stream_arn if region is None else ":".join([*parts[:3], region, *parts[4:]])
        self.shard_id = shard_id

    def records(self, after: int = 0, *, at: int = 0) -> Iterator[Record]:
        """The records above a sequence number, or from one on, a page at a time, until a page is empty.

        A page may be empty though more follow (DynamoDB Streams API reference, GetRecords), so from `at` on many are
        asked for.
        """
        place: dict[str, str] = {"ShardIteratorType": "TRIM_HORIZON"}
        if after:
            place = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": str(after)}
        if at:
            place = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "SequenceNumber": str(at)}
        first = self._client.get_shard_iterator(StreamArn=self._read_from, ShardId=self.shard_id, **place)
        iterator, empty = first["ShardIterator"], 0
        while iterator:
            page = self._client.get_records(ShardIterator=iterator, Limit=_PAGE)
            empty = 0 if page["Records"] else empty + 1
            if empty > (_MOST_EMPTY if at else 0):
                return
            for record in page["Records"]:
                yield _as_lambda_sends(record, self.stream_arn, self._region)
            iterator = page.get("NextShardIterator")


def live_shards(client: Any, stream_arn: str, region: str | None = None) -> list[LiveShard]:
    """The shards of a stream.

    Args:
        client: A boto3 DynamoDB Streams client.
        stream_arn: The stream.
        region: The Region that the records shall say they are of; the stream's if not given.
    """
    found: list[LiveShard] = []
    place: dict[str, str] = {}
    while True:
        page = client.describe_stream(StreamArn=stream_arn, **place)["StreamDescription"]
        found.extend(LiveShard(client, stream_arn, shard["ShardId"], region) for shard in page["Shards"])
        if "LastEvaluatedShardId" not in page:
            return found
        place = {"ExclusiveStartShardId": page["LastEvaluatedShardId"]}


def _as_lambda_sends(record: Mapping[str, Any], stream_arn: str, region: str | None) -> Record:
    """A record of GetRecords as an event has it: epoch seconds, binary as text, names in Lambda's case."""
    change = dict(record["dynamodb"])
    if "ApproximateCreationDateTime" in change:
        change["ApproximateCreationDateTime"] = int(change["ApproximateCreationDateTime"].timestamp())
    for image in ("Keys", "NewImage", "OldImage"):
        if image in change:
            change[image] = to_event(change[image])
    sent: Record = {
        "eventID": record["eventID"],
        "eventName": record["eventName"],
        "eventVersion": record["eventVersion"],
        "eventSource": record["eventSource"],
        "awsRegion": region or record["awsRegion"],
        "dynamodb": change,
        "eventSourceARN": stream_arn,
    }
    if (identity := record.get("userIdentity")) is not None:
        sent["userIdentity"] = {"type": identity["Type"], "principalId": identity["PrincipalId"]}
    return sent
