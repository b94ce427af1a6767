"""The tables of an app in memory, each source with its stream: whoever writes an item, its stream tells of it."""

from __future__ import annotations

from typing import Any

from framework.app import App
from framework.codec import Image
from framework.errors import ConfigurationError
from framework.lanes import MARK
from framework.local.clock import Clock
from framework.local.history import EXPIRY, Change, key_text, record_of, stream_arn
from framework.local.memory import MemoryDynamoDB
from framework.local.provision import create_table_request
from framework.local.recount import Seen
from framework.local.streams import Stream
from framework.tables import Table

__all__ = ["CONTROL", "CONTROL_REQUEST", "World", "table_requests"]

CONTROL = "streamfold-control"
CONTROL_REQUEST: dict[str, Any] = {
    "TableName": CONTROL,
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
    "BillingMode": "PAY_PER_REQUEST",
}


def table_requests(app: App) -> tuple[dict[str, Any], ...]:
    """The requests that make an app's tables."""
    return tuple(create_table_request(app, table) for table in app.tables)


class World:
    """The tables of an app and what happened to them.

    Args:
        tables: The tables.
        requests: The requests that make them.
        sources: The names of those that have a stream.
        clock: The time.
        shards: Open shards of each stream at the start.

    Attributes:
        client: The tables, as a boto3 client shows them.
        streams: The streams, by their tables' names.
        seen: The changes of the users' items that a stream tells of, those by Streamfold itself among them.
        left: The users' items, by table and text of the key.
        written: What Streamfold wrote to items that it did not make: the table, the item before and after.
    """

    def __init__(
        self,
        tables: tuple[Table, ...],
        requests: tuple[dict[str, Any], ...],
        sources: tuple[str, ...],
        clock: Clock,
        shards: int,
    ) -> None:
        self.client = MemoryDynamoDB(clock=lambda: clock.now, metered=False, on_change=self._record)
        for request in (*requests, CONTROL_REQUEST):
            self.client.create_table(**request)
        self._tables = {table.name: table for table in tables}
        self._clock = clock
        self._change: Change | None = None
        self.streams = {name: Stream(stream_arn(self._tables[name]), shards=shards) for name in sources}
        self.seen: list[Seen] = []
        self.left: dict[str, dict[str, Image]] = {name: {} for name in self._tables}
        self.written: list[tuple[str, Image | None, Image]] = []

    def apply(self, change: Change) -> None:
        """Let a change happen.

        Raises:
            ConfigurationError: It is of a table that has no stream, or comes too late for an item that was there
                before the stream.
        """
        table = change.table
        if table.name not in self.streams or self._tables[table.name] != table:
            names = ", ".join(map(repr, self.streams))
            raise ConfigurationError(f"history: expected a change of a source table ({names}), came {change}")
        if change.kind == "existing" and any(seen.table == table.name for seen in self.seen):
            raise ConfigurationError(
                f"history: expected what is existing before all changes of its table, came {change}"
            )
        self._change = change
        try:
            if change.kind in ("put", "existing"):
                self.client.put_item(TableName=table.name, Item=change.item)
            elif change.kind == "update":
                self.client.update_item(**_update_request(table, change.item))
            else:
                self.client.delete_item(TableName=table.name, Key=change.item)
        finally:
            self._change = None

    def items(self) -> dict[str, list[Image]]:
        """All items of every table."""
        found: dict[str, list[Image]] = {}
        for name in self._tables:
            start: dict[str, Any] = {}
            found[name] = []
            while True:
                page = self.client.scan(TableName=name, **start)
                found[name] += page["Items"]
                if "LastEvaluatedKey" not in page:
                    break
                start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
        return found

    def _record(self, name: str, old: Image | None, new: Image | None) -> None:
        """Put a write into its table's stream: one of a history's, or one of Streamfold's own."""
        if name == CONTROL:
            return
        change, table = self._change, self._tables[name]
        key = key_text(table, new or old or {})
        if change is not None:
            if new is None:
                del self.left[name][key]
            else:
                self.left[name][key] = new
        elif new is not None and MARK not in new:
            self.written.append((name, old, new))
        stream = self.streams.get(name)
        if stream is None or (change is not None and change.kind == "existing"):
            return
        record, shard = record_of(table, old, new), stream.shard_of(key)
        expiry = change is not None and change.kind == "expire"
        if expiry:
            record["userIdentity"] = EXPIRY
        if change is not None or (old is not None and new is not None and MARK not in new):
            # An entry that Streamfold writes to a user's item changes the item, for whoever counts by it.
            self.seen.append(Seen(name, shard.shard_id, old, new, expiry, int(self._clock.now)))
        shard.append(record, at=self._clock.now)


def _update_request(table: Table, item: Image) -> dict[str, Any]:
    """The arguments of the `UpdateItem` that sets all of an item but its key."""
    set_ = [name for name in item if name not in table.keys]
    request: dict[str, Any] = {"TableName": table.name, "Key": {name: item[name] for name in table.keys}}
    if set_:
        request["UpdateExpression"] = "SET " + ", ".join(f"#n{n} = :n{n}" for n in range(len(set_)))
        request["ExpressionAttributeNames"] = {f"#n{n}": name for n, name in enumerate(set_)}
        request["ExpressionAttributeValues"] = {f":n{n}": item[name] for n, name in enumerate(set_)}
    return request
