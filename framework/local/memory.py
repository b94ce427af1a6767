"""A DynamoDB in memory that is quick and says no where the service says no.

Property tests use it by direct calls, by the thousand; benchmarks through a real boto3 client (`bridge`). Its
methods are named and shaped as the boto3 client's, its errors are botocore's `ClientError` with the service's
codes.

What it leaves out raises NotImplementedError: the parameters from before expressions. There
are no throttles and no conflicts: one lock lets one request through at a time.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, TypeAlias

from botocore.exceptions import ClientError

from framework.codec import Image
from framework.local.capacity import item_size, read_units, write_units
from framework.local.expressions import filled, projection
from framework.local.paths import picked
from framework.local.reads import query_of, scan_of
from framework.local.schema import table_of
from framework.local.storage import Table, copied_item
from framework.local.transactions import Tokens, TransactionCanceledError, outcomes_of, write_of
from framework.local.values import RefusedError, ServiceError
from framework.local.writes import ConditionFailedError, Write, delete_of, put_of, update_of

__all__ = ["MemoryDynamoDB"]

Response: TypeAlias = dict[str, Any]
Method: TypeAlias = Callable[..., Response]
OnChange: TypeAlias = Callable[[str, Image | None, Image | None], object]

_MOST_BATCHED_WRITES = 25
_MOST_BATCHED_READS = 100

_PLACEHOLDERS = frozenset({"ExpressionAttributeNames", "ExpressionAttributeValues"})
_CONDITION = _PLACEHOLDERS | {"ConditionExpression", "ReturnValuesOnConditionCheckFailure"}
_TABLE = frozenset({"TableName"})
_MANY = frozenset({"ReturnConsumedCapacity", "ReturnItemCollectionMetrics"})
_WRITE = _TABLE | _MANY
_READ = frozenset({"TableName", "ConsistentRead", "ProjectionExpression", "ReturnConsumedCapacity"})
_PAGE = _READ | _PLACEHOLDERS | {"IndexName", "FilterExpression", "Select", "Limit", "ExclusiveStartKey"}


def _operation(name: str, known: frozenset[str] | None = None) -> Callable[[Method], Method]:
    """Makes a method an operation of the service: counted, one at a time, with the service's errors."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def call(self: MemoryDynamoDB, **request: Any) -> Response:
            if known is not None and not known.issuperset(request):
                unknown = ", ".join(sorted(request.keys() - known))
                raise NotImplementedError(f"{name}: the engine in memory does not know {unknown}")
            with self._lock:
                self.requests[name] += 1
                try:
                    return method(self, **request)
                except ServiceError as error:
                    raise _client_error(name, error) from None

        return call

    return decorate


def _client_error(operation: str, error: ServiceError) -> ClientError:
    response: Any = {
        "Error": {"Code": error.code, "Message": str(error)},
        "ResponseMetadata": {"HTTPStatusCode": 400},
        **error.extra,
    }
    return ClientError(response, operation)


class MemoryDynamoDB:
    """Tables in memory behind the methods of a boto3 DynamoDB client.

    Args:
        clock: Seconds, only ever forward; for how long a ClientRequestToken is remembered.
        metered: Whether the write units of single writes are counted; if not, they are 0.
        on_change: Gets the table's name and the item before and after each write that changed it (None for no item),
            as a stream does. It may keep the images, and must not change them.

    Attributes:
        requests: How often each operation was called, by the service's name ("UpdateItem"), failures
            included.
        wcu: Write units consumed so far, by AWS's rules.
        rcu: Read units consumed so far.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        metered: bool = True,
        on_change: OnChange = lambda name, before, after: None,
    ) -> None:
        self.requests: Counter[str] = Counter()
        self.wcu = 0
        self.rcu = 0.0
        self._clock = clock
        self._metered = metered
        self._on_change = on_change
        self._lock = Lock()
        self._tables: dict[str, Table] = {}
        self._ttl: dict[str, str | None] = {}
        self._tokens = Tokens()

    # -- tables --

    @_operation("CreateTable")
    def create_table(self, **request: Any) -> Response:
        """Makes a table, ready at once."""
        if request["TableName"] in self._tables:
            raise ServiceError("ResourceInUseException", f"Table already exists: {request['TableName']}")
        table = table_of(request)
        self._tables[table.name] = table
        return {"TableDescription": self._described(table)}

    @_operation("DescribeTable", _TABLE)
    def describe_table(self, **request: Any) -> Response:
        """What the table is; its counts are exact, where the service's are hours old."""
        return {"Table": self._described(self._table(request["TableName"]))}

    @_operation("DeleteTable", _TABLE)
    def delete_table(self, **request: Any) -> Response:
        """Takes a table away with all that is in it."""
        table = self._table(request["TableName"])
        del self._tables[table.name]
        return {"TableDescription": self._described(table) | {"TableStatus": "DELETING"}}

    @_operation("ListTables", frozenset())
    def list_tables(self, **request: Any) -> Response:
        """The names of all tables."""
        return {"TableNames": sorted(self._tables)}

    @_operation("UpdateTimeToLive", _TABLE | {"TimeToLiveSpecification"})
    def update_time_to_live(self, **request: Any) -> Response:
        """Notes by which attribute items would expire; nothing here does by itself."""
        table, said = self._table(request["TableName"]), request["TimeToLiveSpecification"]
        self._ttl[table.name] = said["AttributeName"] if said["Enabled"] else None
        return {"TimeToLiveSpecification": said}

    @_operation("DescribeTimeToLive", _TABLE)
    def describe_time_to_live(self, **request: Any) -> Response:
        """By which attribute items would expire."""
        attribute = self._ttl.get(self._table(request["TableName"]).name)
        found = {"TimeToLiveStatus": "DISABLED" if attribute is None else "ENABLED"}
        return {"TimeToLiveDescription": found | ({} if attribute is None else {"AttributeName": attribute})}

    def _described(self, table: Table) -> Response:
        sizes = [item_size(item) for _, item in table.everything(None)]
        return {**table.description, "ItemCount": len(sizes), "TableSizeBytes": sum(sizes)}

    def _table(self, name: str) -> Table:
        # Not `or`: whether a table is true asks for its length, which counts every item.
        table = self._tables.get(name)
        if table is None:
            table = self._tables.get(name.rpartition(":table/")[2])
        if table is None:
            raise ServiceError("ResourceNotFoundException", f"Requested resource not found: Table: {name} not found")
        return table

    # -- single writes --

    @_operation("PutItem", _WRITE | _CONDITION | {"Item", "ReturnValues"})
    def put_item(self, **request: Any) -> Response:
        """Puts an item in place of what is there; ReturnValues may be NONE or ALL_OLD."""
        return self._replace(put_of(self._table(request["TableName"]), request), request)

    @_operation("DeleteItem", _WRITE | _CONDITION | {"Key", "ReturnValues"})
    def delete_item(self, **request: Any) -> Response:
        """Takes an item away, if it is there; ReturnValues may be NONE or ALL_OLD."""
        return self._replace(delete_of(self._table(request["TableName"]), request), request)

    def _replace(self, write: Write, request: Mapping[str, Any]) -> Response:
        wanted = request.get("ReturnValues", "NONE")
        if wanted not in ("NONE", "ALL_OLD"):
            raise RefusedError("ReturnValues can only be ALL_OLD or NONE")
        before, _, units = self._perform(write)
        response = _consumed(request, write.table, units)
        if wanted == "ALL_OLD" and before is not None:
            response["Attributes"] = copied_item(before)
        return response

    @_operation("UpdateItem", _WRITE | _CONDITION | {"Key", "UpdateExpression", "ReturnValues"})
    def update_item(self, **request: Any) -> Response:
        """Changes attributes of an item, or makes the item."""
        wanted = request.get("ReturnValues", "NONE")
        if wanted not in ("NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"):
            raise RefusedError(f"Unknown ReturnValues: {wanted}")
        write = update_of(self._table(request["TableName"]), request)
        before, after, units = self._perform(write)
        response = _consumed(request, write.table, units)
        if wanted != "NONE":
            image = before if wanted.endswith("OLD") else after
            shown = picked(image or {}, write.targets) if wanted.startswith("UPDATED") else copied_item(image or {})
            if shown:
                response["Attributes"] = shown
        return response

    def _perform(self, write: Write) -> tuple[Image | None, Image | None, int]:
        try:
            before, after = write.outcome()
        except ConditionFailedError:
            self.wcu += write.attempted_units() if self._metered else 0
            raise
        self._store(write, before, after)
        units = write_units(before, after, write.table.shapes) if self._metered else 0
        self.wcu += units
        return before, after, units

    def _store(self, write: Write, before: Image | None, after: Image | None) -> None:
        write.table.store(write.place, after)
        if before != after:
            self._on_change(write.table.name, before, after)

    # -- reads --

    @_operation("GetItem", _READ | {"Key", "ExpressionAttributeNames"})
    def get_item(self, **request: Any) -> Response:
        """One item; the answer has no Item where there is none."""
        table = self._table(request["TableName"])
        item, units = self._got(table, request["Key"], request)
        return _consumed(request, table, units) | ({} if item is None else {"Item": item})

    def _got(self, table: Table, key: Image, request: Mapping[str, Any]) -> tuple[Image | None, float]:
        place, _ = table.key(key)
        names, text = request.get("ExpressionAttributeNames"), request.get("ProjectionExpression")
        pick = projection(text) if text else None
        filled([pick] if pick else [], names, None)
        item = table.get(place)
        units = read_units(item_size(item or {}), consistent=bool(request.get("ConsistentRead")))
        self.rcu += units
        if item is None:
            return None, units
        return pick.apply(item, names or {}) if pick else copied_item(item), units

    @_operation("Query", _PAGE | {"KeyConditionExpression", "ScanIndexForward"})
    def query(self, **request: Any) -> Response:
        """The items of one partition of a table or an index, in order, up to 1 MB."""
        return self._page(query_of, request)

    @_operation("Scan", _PAGE | {"Segment", "TotalSegments"})
    def scan(self, **request: Any) -> Response:
        """All items of a table or entries of an index, up to 1 MB, in the order of the keys."""
        return self._page(scan_of, request)

    def _page(
        self, read: Callable[[Table, Mapping[str, Any]], tuple[Response, float]], request: Mapping[str, Any]
    ) -> Response:
        table = self._table(request["TableName"])
        response, units = read(table, request)
        self.rcu += units
        return response | _consumed(request, table, units)

    # -- batches --

    @_operation("BatchWriteItem", _MANY | {"RequestItems"})
    def batch_write_item(self, **request: Any) -> Response:
        """Up to 25 puts and deletes, each by itself; nothing is left unprocessed."""
        writes = []
        for name, entries in request["RequestItems"].items():
            table = self._table(name)
            for entry in entries:
                ((kind, body),) = entry.items()
                writes.append(put_of(table, body) if kind == "PutRequest" else delete_of(table, body))
        if not 0 < len(writes) <= _MOST_BATCHED_WRITES:
            raise RefusedError("Too many items requested for the BatchWriteItem call, or none")
        if len({(write.table.name, write.place) for write in writes}) < len(writes):
            raise RefusedError("Provided list of item keys contains duplicates")
        units: Counter[str] = Counter()
        for write in writes:
            units[write.table.name] += self._perform(write)[2]
        return {"UnprocessedItems": {}} | _consumed_by_table(request, units)

    @_operation("BatchGetItem", _MANY | {"RequestItems"})
    def batch_get_item(self, **request: Any) -> Response:
        """Up to 100 items by key; those that are not there are left out."""
        asked = [(name, key) for name, each in request["RequestItems"].items() for key in each["Keys"]]
        if not 0 < len(asked) <= _MOST_BATCHED_READS:
            raise RefusedError("Too many items requested for the BatchGetItem call, or none")
        if len({(name, self._table(name).key(key)[0]) for name, key in asked}) < len(asked):
            raise RefusedError("Provided list of item keys contains duplicates")
        found: dict[str, list[Image]] = {name: [] for name in request["RequestItems"]}
        units: Counter[str] = Counter()
        for name, key in asked:
            item, cost = self._got(self._table(name), key, request["RequestItems"][name])
            units[name] += cost  # type: ignore[assignment]  # read units come in halves
            if item is not None:
                found[name].append(item)
        return {"Responses": found, "UnprocessedKeys": {}} | _consumed_by_table(request, units)

    # -- transactions --

    @_operation("TransactWriteItems", _MANY | {"TransactItems", "ClientRequestToken"})
    def transact_write_items(self, **request: Any) -> Response:
        """Up to 100 writes of different items, all or none."""
        entries, token = request["TransactItems"], request.get("ClientRequestToken")
        if self._tokens.answered(token, entries, self._clock()):
            return {}
        writes = [write_of(self._table, entry) for entry in entries]
        units: Counter[str] = Counter()
        try:
            changes = outcomes_of(writes)
        except TransactionCanceledError:
            self.wcu += sum(write.attempted_units(transaction=True) for write in writes)
            raise
        for write, (before, after) in zip(writes, changes, strict=True):
            self._store(write, before, after)
            units[write.table.name] += write_units(before, after, write.table.shapes, transaction=True)
        self.wcu += units.total()
        self._tokens.remember(token, entries, self._clock())
        return _consumed_by_table(request, units)


def _consumed(request: Mapping[str, Any], table: Table, units: float) -> Response:
    return {"ConsumedCapacity": _capacity(table.name, units)} if _wants_capacity(request) else {}


def _consumed_by_table(request: Mapping[str, Any], units: Mapping[str, float]) -> Response:
    if not _wants_capacity(request):
        return {}
    return {"ConsumedCapacity": [_capacity(name, each) for name, each in units.items()]}


def _capacity(name: str, units: float) -> Response:
    return {"TableName": name, "CapacityUnits": float(units)}


def _wants_capacity(request: Mapping[str, Any]) -> bool:
    wanted = request.get("ReturnConsumedCapacity", "NONE")
    if wanted not in ("NONE", "TOTAL"):
        raise NotImplementedError(f"ReturnConsumedCapacity: the engine in memory knows NONE and TOTAL, came {wanted}")
    return bool(wanted == "TOTAL")
