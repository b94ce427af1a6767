"""A real boto3 client whose requests are answered in this process.

Nothing goes over a network, but the client does all that it always does (checks, signing, JSON, retries,
parsing), so that its own CPU time, the larger part of a request's, is real in a benchmark.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any

import boto3
from botocore import xform_name
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ClientError

from framework.local.memory import MemoryDynamoDB

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["boto3_client"]

_ERRORS = "com.amazonaws.dynamodb.v20120810#"
_HEADERS = {"Content-Type": "application/x-amz-json-1.0"}


def boto3_client(engine: MemoryDynamoDB, *, latency: float = 0.0, region: str = "us-east-1") -> DynamoDBClient:
    """A boto3 client that talks to an engine in memory.

    Args:
        engine: What answers; several clients may share one.
        latency: Seconds that every request waits before it is answered, outside the engine's lock.
        region: The client's Region; nothing hangs on it.
    """

    def answer(request: AWSPreparedRequest, event_name: str, **_: Any) -> Any:
        if latency:
            time.sleep(latency)
        status, body = _answered(engine, event_name.rpartition(".")[2], request.body)
        return AWSResponse(request.url, status, _HEADERS, _Body(body))  # type: ignore[arg-type]  # a stand-in

    # A session of its own, as the default one is the whole process's. The credentials sign, and lead nowhere.
    session = boto3.session.Session("memory", "memory", region_name=region)
    client = session.client("dynamodb")
    client.meta.events.register("before-send.dynamodb", answer)
    return client


class _Body(BytesIO):
    """What botocore reads an answer from."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()


def _answered(engine: MemoryDynamoDB, operation: str, body: Any) -> tuple[int, bytes]:
    request = json.loads(body)
    if b'"B"' in body or b'"BS"' in body:
        request = _with_bytes(request)
    try:
        response = getattr(engine, xform_name(operation))(**request)
    except ClientError as error:
        details: Any = error.response
        extra = {name: value for name, value in details.items() if name not in ("Error", "ResponseMetadata")}
        code, message = details["Error"]["Code"], details["Error"]["Message"]
        return 400, _encoded({"__type": _ERRORS + code, "message": message, **extra})
    return 200, _encoded(response)


def _with_bytes(value: Any) -> Any:
    """The request with binary values as bytes, where JSON has base64 text."""
    if isinstance(value, list):
        return [_with_bytes(member) for member in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"B": str(text)} if len(value) == 1:
            return {"B": b64decode(text)}
        case {"BS": [*members]} if len(value) == 1 and all(isinstance(member, str) for member in members):
            return {"BS": [b64decode(member) for member in members]}
    return {name: _with_bytes(member) for name, member in value.items()}


def _encoded(response: Any) -> bytes:
    return json.dumps(response, default=_base64).encode()


def _base64(value: bytes) -> str:
    return b64encode(value).decode()
