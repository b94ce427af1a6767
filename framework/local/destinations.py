"""What a failure destination gets for the records that Lambda gives up on.

The form is that of the Lambda developer guide, "Retain discarded records for a DynamoDB event source in Lambda": an
SQS queue gets where the records lie, an S3 bucket gets also `payload` ("<Whole Event>", "only available in S3"), in an
object named `aws/lambda/<ESM-UUID>/<shardID>/YYYY/MM/DD/YYYY-MM-DDTHH.MM.SS-<Random UUID>`.

`payload` is text that holds the event as JSON: the guide shows it between quotation marks, and those who read such
objects decode it twice (awslabs/aws-lambda-rust-runtime types it as text, and floci-io/floci#3622 was closed with it).
LocalStack writes an object there; whoever reads one should take both.

`condition` is `RetryAttemptsExhausted` or `RecordAgeExceeded`, and `functionError` is null where the function ended
well and reported failures: LocalStack's recordings of AWS have the first and the last; the second is what LocalStack
and a public log of objects out of a real bucket call it, for the guide names only the first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from framework.local.attempts import Piece, utc
from framework.local.streams import Shard

__all__ = ["AGE_EXCEEDED", "RETRIES_EXHAUSTED", "Destination", "InvocationRecord", "Recorder"]

RETRIES_EXHAUSTED = "RetryAttemptsExhausted"
AGE_EXCEEDED = "RecordAgeExceeded"


@dataclass(frozen=True, slots=True)
class InvocationRecord:
    """What a destination gets.

    Attributes:
        key: The name of the object in S3; None for SQS.
        body: The object or the message, as data of JSON.
    """

    key: str | None
    body: Mapping[str, Any]


Destination = Callable[[InvocationRecord], object]


class Recorder:
    """Writes invocation records. Its identifiers are made from what they are about, not at random.

    Args:
        kind: `"s3"` or `"sqs"`.
        stream_arn: The mapping's stream.
        function: The function's name; it is taken to be in the stream's account and Region.
    """

    def __init__(self, kind: str, stream_arn: str, function: str) -> None:
        partition, _, region, account = stream_arn.split(":")[1:5]
        self._kind = kind
        self._function_arn = f"arn:{partition}:lambda:{region}:{account}:function:{function}"
        self._uuid = uuid5(NAMESPACE_URL, f"{self._function_arn} {stream_arn}")

    def record(
        self, piece: Piece, shard: Shard, *, condition: str, now: float, raised: bool, event: Mapping[str, Any]
    ) -> InvocationRecord:
        """The invocation record for records that are given up on.

        Args:
            piece: The records.
            shard: Their shard.
            condition: Why they are given up on.
            now: The time.
            raised: Whether the function's last try ended with an error; otherwise it answered.
            event: What the function got, or would have got.
        """
        first, last = piece.entries[0], piece.entries[-1]
        about = f"{shard.shard_id} {first.sequence} {piece.invocations}"
        moment = utc(now, "%Y-%m-%dT%H:%M:%S")
        body: dict[str, Any] = {
            "requestContext": {
                "requestId": str(uuid5(self._uuid, f"request {about}")),
                "functionArn": self._function_arn,
                "condition": condition,
                "approximateInvokeCount": piece.invocations,
            },
            "responseContext": {
                "statusCode": 200,
                "executedVersion": "$LATEST",
                "functionError": "Unhandled" if raised else None,
            },
            "version": "1.0",
            "timestamp": f"{moment}.{int(now % 1 * 1000):03d}Z",
            "DDBStreamBatchInfo": {
                "shardId": shard.shard_id,
                "startSequenceNumber": str(first.sequence),
                "endSequenceNumber": str(last.sequence),
                "approximateArrivalOfFirstRecord": utc(first.at),
                "approximateArrivalOfLastRecord": utc(last.at),
                "batchSize": len(piece.entries),
                "streamArn": shard.stream_arn,
            },
        }
        if not piece.invocations:
            del body["responseContext"]  # nobody has answered
        if self._kind == "sqs":
            return InvocationRecord(None, body)
        name = f"{utc(now, '%Y-%m-%dT%H.%M.%S')}-{uuid5(self._uuid, f'object {about}')}"
        key = f"aws/lambda/{self._uuid}/{shard.shard_id}/{utc(now, '%Y/%m/%d')}/{name}"
        return InvocationRecord(key, {**body, "payload": json.dumps(event, ensure_ascii=False)})
