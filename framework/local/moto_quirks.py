"""moto's DynamoDB with its differences from the service evened out, here and nowhere else.

Every request of the clients made here goes through `Moto`, one at a time, and is settled as a whole: done as
moto does it, checked, written to the stream as the service would write it, metered; or undone. What is evened
out (each was seen with moto 5.2.5, and has a test):

- An UpdateItem that creates an item writes two INSERT records, the first with the key only: one is left.
- A write that changes nothing writes a MODIFY record with equal images: none is left (AWS facts: the stream).
- A refused UpdateItem leaves what it did before it failed: an item with the key only, its record. Undone.
- Sums round at 28 digits, or keep more than 38, and fail on numbers with an exponent: exact, or refused.
- Numbers of more than 38 digits, sets that repeat a member and index keys of another type are taken: refused
  (DynamoDB developer guide, "Supported data types and naming rules").
- Concurrent requests lose updates: one lock.
- Capacity figures are constants: `Meter` counts by AWS's rules.
- Records have the size of their JSON and an old version: they get the items' size and today's version.
- With a current SDK every Streams call fails, for it goes to an account's own host: see `environment`.
- A client used after its engine has ended would call AWS: refused.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from threading import Lock
from types import TracebackType
from typing import Any
from unittest.mock import patch

import boto3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from moto import mock_aws
from moto.core.botocore_stubber import MockRawResponse
from moto.core.models import DEFAULT_ACCOUNT_ID, botocore_stubber
from moto.dynamodb.models import DynamoDBBackend, dynamodb_backends
from moto.dynamodb.models.dynamo_type import DynamoType, Item
from moto.dynamodb.models.table import StreamRecord, Table
from moto.dynamodb.models.utilities import dynamo_to_dict

from framework.codec import Image, decode_item, number_text
from framework.errors import BadValueError, ConfigurationError
from framework.local.capacity import IndexShape, Meter, item_size, write_units
from framework.local.environment import REGION, fake_environment
from framework.measures import EXACT

__all__ = ["Moto"]

_HEADERS = {"Content-Type": "application/x-amz-json-1.0"}
# Errors for which the service charges the write all the same (AWS facts: writes).
_CHARGED = frozenset({"ConditionalCheckFailedException", "TransactionCanceledException"})


@dataclass(frozen=True, slots=True)
class _Write:
    """One item that a request may write, as it stood before."""

    table: str
    hash_key: DynamoType
    range_key: DynamoType | None
    before: Item | None


class Moto:
    """An in-process DynamoDB, as a context manager; one at a time, for moto's state is the process's.

    Attributes:
        meter: What the requests of metered clients cost.
    """

    def __init__(self) -> None:
        self.meter = Meter()
        self._lock = Lock()
        self._open = False
        self._session: Any = None
        self._stack = ExitStack()

    def __enter__(self) -> Moto:
        with ExitStack() as stack:
            stack.enter_context(fake_environment())
            stack.enter_context(mock_aws())
            stack.enter_context(patch.object(DynamoType, "__add__", _adding(EXACT.add, DynamoType.__add__)))
            stack.enter_context(patch.object(DynamoType, "__sub__", _adding(EXACT.subtract, DynamoType.__sub__)))
            # One for all clients, to load the models once; of its own, for the default one is everybody's.
            self._session = boto3.session.Session()
            self._stack = stack.pop_all()
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
            service: `"dynamodb"` or `"dynamodbstreams"`.
            metered: Whether its requests count.
        """
        meter = self.meter if metered else None
        # A failure in this process would not pass with another try.
        config = Config(retries={"mode": "standard", "total_max_attempts": 1})
        client = self._session.client(service, region_name=REGION, config=config)

        def send(request: AWSPreparedRequest, event_name: str, **_: Any) -> AWSResponse:
            return self._send(request, event_name, meter)

        # All handlers of an event are called, so moto's own has to go: it would carry out the request again.
        client.meta.events.unregister("before-send", botocore_stubber)
        client.meta.events.register("before-send", send)
        return client

    def _send(self, request: AWSPreparedRequest, event_name: str, meter: Meter | None) -> AWSResponse:
        if not self._open:
            raise ConfigurationError("local engine: expected to be open, came a request after its end")
        _, service, operation = event_name.split(".")
        with self._lock:
            if service != "dynamodb":
                return _answer(request, event_name)
            return _Request(_backend(), request, event_name, operation).settle(meter)


class _Request:
    """One request to DynamoDB, settled as a whole while the lock is held."""

    def __init__(self, backend: DynamoDBBackend, request: AWSPreparedRequest, event_name: str, operation: str) -> None:
        self._backend = backend
        self._request = request
        self._event_name = event_name
        self._transaction = operation == "TransactWriteItems"
        body: Any = request.body
        written = _written(operation, json.loads(body))
        self._writes = [write for table, key in written if (write := self._write(table, key)) is not None]
        self._marks = {w.table: len(shard.items) for w in self._writes if (shard := self._table(w).stream_shard)}

    def settle(self, meter: Meter | None) -> AWSResponse:
        """Carry it out; the response."""
        try:
            response = _answer(self._request, self._event_name)
            if response.status_code == 200:
                self._check()
        except BadValueError as error:
            response = _refusal(self._request, str(error))
        except BaseException:
            self._undo()
            raise
        if meter is not None:
            meter.requests += 1
            meter.wcu += self._units(response)
        if response.status_code == 200:
            for table, mark in self._marks.items():
                _tidy(self._backend.tables[table], mark)
        else:
            self._undo()
        return response

    def _write(self, name: str, key: Mapping[str, Any]) -> _Write | None:
        table = self._backend.tables.get(name)
        if table is None or not key.keys() >= set(table.table_key_attrs):
            return None  # moto refuses it.
        range_key = None if table.range_key_attr is None else DynamoType(key[table.range_key_attr])
        hash_key = DynamoType(key[table.hash_key_attr])
        # An update changes moto's item in place.
        return _Write(name, hash_key, range_key, copy.deepcopy(table.get_item(hash_key, range_key)))

    def _table(self, write: _Write) -> Table:
        # Looked up each time: a transaction that fails puts another one in its place.
        return self._backend.tables[write.table]

    def _after(self, write: _Write) -> Item | None:
        return self._table(write).get_item(write.hash_key, write.range_key)

    def _check(self) -> None:
        """Raise BadValueError for an item that the service would have refused."""
        for write in self._writes:
            item = self._after(write)
            if item is not None:
                decode_item(_image(item))
                _check_keys(self._table(write), item)

    def _undo(self) -> None:
        for write in self._writes:
            table = self._table(write)
            items: dict[DynamoType, Any] = table.items
            key = write.hash_key
            if write.range_key is not None:
                items, key = table.items[write.hash_key], write.range_key
            if write.before is None:
                items.pop(key, None)
            else:
                items[key] = write.before
        for name, mark in self._marks.items():
            shard = self._backend.tables[name].stream_shard
            assert shard is not None
            del shard.items[mark:]

    def _units(self, response: AWSResponse) -> int:
        if response.status_code != 200:
            code = json.loads(response.content).get("__type", "").rpartition("#")[2]
            if code not in _CHARGED:
                return 0
        units = 0
        for write in self._writes:
            before = None if write.before is None else _image(write.before)
            after = before
            indexes: list[IndexShape] = []
            if response.status_code == 200:
                item = self._after(write)
                after = None if item is None else _image(item)
                indexes = _indexes(self._table(write))
            units += write_units(before, after, indexes, transaction=self._transaction)
        return units


def _adding(
    exact: Callable[[Decimal, Decimal], Decimal], original: Callable[[DynamoType, DynamoType], DynamoType]
) -> Callable[[DynamoType, DynamoType], DynamoType]:
    """Addition or subtraction of moto's values, exact for numbers, refused beyond 38 digits."""

    def add(left: DynamoType, right: DynamoType) -> DynamoType:
        if not (left.is_number() and right.is_number()):
            return original(left, right)
        return DynamoType({"N": number_text(exact(Decimal(left.value), Decimal(right.value)))})

    return add


def _backend() -> DynamoDBBackend:
    found: DynamoDBBackend = dynamodb_backends[DEFAULT_ACCOUNT_ID][REGION]
    return found


def _answer(request: AWSPreparedRequest, event_name: str) -> AWSResponse:
    response = botocore_stubber(event_name, request)
    assert response is not None, "moto answers every request to AWS while it is on"
    return response


def _refusal(request: AWSPreparedRequest, reason: str) -> AWSResponse:
    message = f"One or more parameter values were invalid: {reason}"
    body = json.dumps({"__type": "com.amazon.coral.validate#ValidationException", "message": message})
    return AWSResponse(request.url, 400, _HEADERS, MockRawResponse(body))  # type: ignore[arg-type]  # a stand-in


def _written(operation: str, body: dict[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The table and the key, or an item with it, of each write in a request."""
    match operation:
        case "PutItem":
            yield body["TableName"], body["Item"]
        case "UpdateItem" | "DeleteItem":
            yield body["TableName"], body["Key"]
        case "BatchWriteItem":
            for table, requests in body["RequestItems"].items():
                for kind, request in (entry for each in requests for entry in each.items()):
                    yield table, request["Item" if kind == "PutRequest" else "Key"]
        case "TransactWriteItems":
            for kind, action in (entry for each in body["TransactItems"] for entry in each.items()):
                yield action["TableName"], action["Item" if kind == "Put" else "Key"]


def _image(item: Item) -> Image:
    image: Image = dynamo_to_dict(item.attrs)
    return image


def _check_keys(table: Table, item: Item) -> None:
    for definition in table.attr:
        name, expected = definition["AttributeName"], definition["AttributeType"]
        value = item.attrs.get(name)
        if value is not None and value.type != expected:
            raise BadValueError(f"Type mismatch for key {name} expected: {expected} actual: {value.type}")


def _indexes(table: Table) -> list[IndexShape]:
    found = []
    for index in table.all_indexes():
        keys = tuple(index.schema_key_attrs)
        projected = None
        if index.projection["ProjectionType"] != "ALL":
            kept = index.projection.get("NonKeyAttributes") or ()
            projected = frozenset({*keys, *index.table_key_attrs, *kept})
        found.append(IndexShape(keys, projected))
    return found


def _tidy(table: Table, mark: int) -> None:
    """Leave of the records that a request wrote those that the service writes, numbered without gaps.

    Args:
        table: The table.
        mark: How many records its stream had before.
    """
    shard = table.stream_shard
    assert shard is not None
    kept: list[StreamRecord] = []
    for entry in shard.items[mark:]:
        name, change = entry.record["eventName"], entry.record["dynamodb"]
        if name == "MODIFY" and decode_item(change["OldImage"]) == decode_item(change["NewImage"]):
            continue
        # Two inserts of one item within a request: an update that creates it.
        if name == "INSERT" and kept and _about(kept[-1]) == (name, change["Keys"]):
            kept.pop()
        kept.append(entry)
    # moto finds a record by its number, as its place in the list.
    for number, entry in enumerate(kept, shard.starting_sequence_number + mark):
        change = entry.record["dynamodb"]
        change["SequenceNumber"] = str(number)
        images = (change[image] for image in ("Keys", "NewImage", "OldImage") if image in change)
        change["SizeBytes"] = sum(map(item_size, images))
        entry.record["eventVersion"] = "1.1"
    shard.items[mark:] = kept


def _about(entry: StreamRecord) -> tuple[str, Image]:
    return entry.record["eventName"], entry.record["dynamodb"]["Keys"]
