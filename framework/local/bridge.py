"""A real boto3 client whose requests are answered in this process.

Nothing goes over a network, but the client does all that it always does (checks, signing, JSON, retries,
parsing), so that its own CPU time, the larger part of a request's, is real in a benchmark.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import BytesIO
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any

import boto3
from botocore import xform_name
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ClientError

from framework.errors import ConfigurationError
from framework.local.capacity import Meter
from framework.local.environment import REGION, fake_environment
from framework.local.memory import MemoryDynamoDB

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["Memory", "boto3_client"]

_ERRORS = "com.amazonaws.dynamodb.v20120810#"
_HEADERS = {"Content-Type": "application/x-amz-json-1.0"}


# What an operation with a body in JSON comes to: the status and the body of the answer.
_Answer = Callable[[str, Any], tuple[int, bytes]]


def boto3_client(engine: MemoryDynamoDB, *, latency: float = 0.0) -> DynamoDBClient:
    """A boto3 client that talks to an engine in memory.

    Args:
        engine: What answers; several clients may share one.
        latency: Seconds that every request waits before it is answered, outside the engine's lock.
    """

    def answer(operation: str, body: Any) -> tuple[int, bytes]:
        if latency:
            time.sleep(latency)
        return _answered(engine, operation, body)

    return _client(answer)


class Memory:
    """The engine in memory in the place of `moto_quirks.Moto`: without streams, and several times as quick.

    Attributes:
        meter: What the requests of metered clients cost.
    """

    def __init__(self) -> None:
        self.meter = Meter()
        self._engine = MemoryDynamoDB()
        self._lock = Lock()
        self._open = False
        self._stack = ExitStack()

    def __enter__(self) -> Memory:
        self._stack.enter_context(fake_environment())
        self._open = True
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open = False
        self._stack.close()

    def client(self, service: str = "dynamodb", *, metered: bool = False) -> Any:
        """A boto3 client, usable from threads.

        Args:
            service: Only `"dynamodb"`: there are no streams.
            metered: Whether its requests count.
        """
        assert service == "dynamodb"
        meter = self.meter if metered else None

        def answer(operation: str, body: Any) -> tuple[int, bytes]:
            if not self._open:
                raise ConfigurationError("local engine: expected to be open, came a request after its end")
            # One request at a time, so that what the engine counts meanwhile is this one's.
            with self._lock:
                before = self._engine.wcu
                answered = _answered(self._engine, operation, body)
                if meter is not None:
                    meter.requests += 1
                    meter.wcu += self._engine.wcu - before
                return answered

        return _client(answer)


def _client(answered: _Answer) -> DynamoDBClient:
    def answer(request: AWSPreparedRequest, event_name: str, **_: Any) -> Any:
        status, body = answered(event_name.rpartition(".")[2], request.body)
        return AWSResponse(request.url, status, _HEADERS, _Body(body))  # type: ignore[arg-type]  # a stand-in

    # A session of its own, as the default one is the whole process's. The credentials sign, and lead nowhere.
    session = boto3.session.Session("memory", "memory", region_name=REGION)
    client = session.client("dynamodb")
    client.meta.events.register("before-send.dynamodb", answer)
    return client


class _Body(BytesIO):
    """What botocore reads an answer from."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()


def _answered(engine: MemoryDynamoDB, operation: str, body: Any) -> tuple[int, bytes]:
    request = json.loads(body)
    method = getattr(engine, xform_name(operation), None)
    if method is None:
        raise NotImplementedError(f"{operation}: the engine in memory does not know it")
    if b'"B"' in body or b'"BS"' in body:
        request = _with_bytes(request)
    try:
        response = method(**request)
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
