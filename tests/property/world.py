"""A small world for property tests: tables with histories, shards that split, pollers that repeat themselves.

Nothing in the model uses Streamfold: `recount` is written out by hand over the items that are left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from botocore.exceptions import ClientError, ConnectionClosedError

from framework import (
    Aggregation,
    AllTime,
    App,
    Average,
    Count,
    Daily,
    Index,
    Max,
    Min,
    Monthly,
    Sum,
    Table,
    attr,
)
from framework.consumer import Consumer

events = Table("Events", pk="id", sk="SK", ttl="expires")
totals = Table("Totals", pk="key")


class Monthlies(Aggregation):
    """Into the source table itself, with an index."""

    name = "monthlies"
    source = events
    where = attr("kind").equals("download")
    group_by = "id"
    window = Monthly("at")
    Downloads = Count()
    index = Index("ByMonth", pk="Month", sk="Downloads")


class Amounts(Aggregation):
    """Several attributes, several measures, expiry taken back, the same table."""

    name = "amounts"
    source = events
    group_by = ("kind", "id")
    window = Daily("at")
    sk_prefix = "amounts#"
    on_expiry = "retract"
    Total = Sum("amount")
    Mean = Average("amount")


class Kinds(Aggregation):
    """A table of its own without a sort key, spread over partitions."""

    name = "kinds"
    source = events
    target = totals
    group_by = "kind"
    window = AllTime()
    partitions = 3
    Items = Count()
    Total = Sum("amount")


class Extremes(Aggregation):
    """Inserts only, with extremes."""

    name = "extremes"
    source = events
    target = totals
    group_by = "kind"
    window = Monthly("at")
    changes = "inserts"
    Least = Min("amount")
    Greatest = Max("amount")
    Inserts = Count()


app = App("world", [Monthlies, Amounts, Kinds, Extremes])

KINDS = ("download", "upload", "a#b")
DAYS = (
    "2018-01-31T23:59:59Z",
    "2018-02-01T00:00:00Z",
    "2018-02-28T12:00:00+00:00",
    "2018-02-01T00:30:00+01:00",
    "soon",
)
# An item without a day that can be told counts for nothing but all time.
DAY_OF = ("2018-01-31", "2018-02-01", "2018-02-28", "2018-01-31", "")
AMOUNTS = ("0", "1", "-2.5", "0.1", "12345678901234567890.123456789", "1E+20")

Item = dict[str, dict[str, str]]
Record = dict[str, Any]


def make_item(key: int, kind: int, day: int, amount: int, note: int) -> Item:
    """One of a small space of items, so that histories run into each other."""
    return {
        "id": {"S": f"song{key % 3}"},
        "SK": {"S": f"event-{key}"},
        "kind": {"S": KINDS[kind]},
        "at": {"S": DAYS[day]},
        "amount": {"N": AMOUNTS[amount]},
        "note": {"S": str(note)},
    }


@dataclass
class World:
    """The source table, its shards, and what each aggregation should come to."""

    shards: list[list[Record]] = field(default_factory=lambda: [[], []])
    parents: dict[int, int] = field(default_factory=dict)
    heirs: dict[int, tuple[int, int]] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)
    expired: list[Item] = field(default_factory=list)
    inserted: list[Item] = field(default_factory=list)
    sequence: int = 10**20

    def put(self, item: Item) -> None:
        old = self.items.get(item["SK"]["S"])
        if old == item:
            return
        self.items[item["SK"]["S"]] = item
        if old is None:
            self.inserted.append(item)
        self._record("INSERT" if old is None else "MODIFY", old, item)

    def delete(self, key: int, *, expiry: bool) -> None:
        old = self.items.pop(f"event-{key}", None)
        if old is not None:
            if expiry:
                self.expired.append(old)
            self._record("REMOVE", old, None, expiry=expiry)

    def split(self, shard: int) -> None:
        """Close a shard; its keys go to two children."""
        while shard in self.heirs:
            shard = self.heirs[shard][0]
        first = len(self.shards)
        self.heirs[shard] = (first, first + 1)
        self.parents[first] = self.parents[first + 1] = shard
        self.shards += [[], []]

    def _record(self, name: str, old: Item | None, new: Item | None, *, expiry: bool = False) -> None:
        item = new or old
        assert item is not None
        number = int(item["SK"]["S"].removeprefix("event-"))
        shard = number % 2
        while shard in self.heirs:
            shard = self.heirs[shard][number // 2 % 2]
        # Neither consecutive nor of one length: 999...: the next is longer.
        self.sequence = self.sequence + 7 if self.sequence % 5 else self.sequence * 3
        change: dict[str, Any] = {
            "Keys": {"id": item["id"], "SK": item["SK"]},
            "SequenceNumber": str(self.sequence),
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        }
        if new is not None:
            change["NewImage"] = new
        if old is not None:
            change["OldImage"] = old
        record = {
            "eventID": str(self.sequence),
            "eventName": name,
            "eventSource": "aws:dynamodb",
            "eventSourceARN": "arn:aws:dynamodb:us-east-1:123456789012:table/Events/stream/2018",
            "dynamodb": change,
        }
        if expiry:
            record["userIdentity"] = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
        self.shards[shard].append(record)

    def recount(self) -> dict[str, dict[tuple[str, ...], dict[str, Decimal]]]:
        """Every aggregate by the name of its aggregation and its key, from the items."""
        found: dict[str, dict[tuple[str, ...], dict[str, Decimal]]] = {
            name: defaultdict(lambda: defaultdict(Decimal)) for name in ("monthlies", "amounts", "kinds", "extremes")
        }
        # Expired items still count, but for the aggregation that takes them back.
        for item in [*self.items.values(), *self.expired]:
            song, kind, amount, month = _facts(item)
            if kind == "download" and month:
                found["monthlies"][song, month]["Downloads"] += 1
            aggregate = found["kinds"][(kind,)]
            aggregate["Items"] += 1
            aggregate["Total"] += amount
        for item in self.items.values():
            song, kind, amount, month = _facts(item)
            if not month:
                continue
            day = DAY_OF[DAYS.index(item["at"]["S"])]
            aggregate = found["amounts"][f"{kind.replace('#', '%23')}#{song}", f"amounts#{day}"]
            aggregate["Total"] += amount
            aggregate["MeanSum"] += amount
            aggregate["MeanCount"] += 1
        for item in self.inserted:
            _, kind, amount, month = _facts(item)
            if not month:
                continue
            aggregate = found["extremes"][f"{kind}#{month}",]
            aggregate["Least"] = min(aggregate.get("Least", amount), amount)
            aggregate["Greatest"] = max(aggregate.get("Greatest", amount), amount)
            aggregate["Inserts"] += 1
        return found


def _facts(item: Item) -> tuple[str, str, Decimal, str]:
    day = DAY_OF[DAYS.index(item["at"]["S"])]
    return item["id"]["S"], item["kind"]["S"], Decimal(item["amount"]["N"]), day[:7]


class Crash(BaseException):
    """The function's environment is gone, between two instructions."""


@dataclass
class FaultyClient:
    """A client that fails on schedule. `meanwhile` is another poller that gets its turn inside a write."""

    client: Any
    faults: Iterator[str]
    meanwhile: Callable[[], None]
    inside: bool = False

    def get_item(self, **arguments: Any) -> Any:
        return self.client.get_item(**arguments)

    def update_item(self, **arguments: Any) -> Any:
        fault = next(self.faults, "none") if not self.inside else "none"
        if fault == "crash before":
            raise Crash
        if fault == "throttle":
            raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow down"}}, "UpdateItem")
        if fault == "conflict":
            raise ClientError({"Error": {"Code": "TransactionConflictException", "Message": "busy"}}, "UpdateItem")
        if fault == "denied":
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "UpdateItem")
        if fault == "other poller":
            self.inside = True
            try:
                self.meanwhile()
            finally:
                self.inside = False
        reply = self.client.update_item(**arguments)
        if fault == "crash after":
            raise Crash
        if fault == "reply lost":
            raise ConnectionClosedError(endpoint_url="https://dynamodb")
        return reply


FAULTS = (
    "crash before",
    "crash after",
    "reply lost",
    "throttle",
    "conflict",
    "denied",
    "other poller",
    "none",
    "none",
)


@dataclass
class Pollers:
    """Deliver a world's shards as Lambda may: contiguous runs from no later than the first record not done."""

    world: World
    client: Any
    faults: Iterator[str]
    choices: Iterator[int]
    done: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    refused: int = 0

    def __post_init__(self) -> None:
        faulty = FaultyClient(self.client, self.faults, self.stale_poller)
        self.consumer = Consumer(app, "Events", faulty, connections=1)
        self.consumer._writer._sleep = lambda seconds: None

    def choose(self, count: int) -> int:
        return next(self.choices, 0) % count

    def deliver(self, shard: int, start: int, stop: int) -> int:
        """Deliver records [start, stop) of a shard; returns the index of the first one that is not done."""
        records = self.world.shards[shard][start:stop]
        event = {
            "Records": records,
            "shardId": f"shardId-{shard:020d}-aaaaaaaa",
            "state": {},
            "window": {"start": "2018-01-01T00:00:00Z", "end": "2018-01-01T00:15:00Z"},
        }
        response = self.consumer(event)
        assert response["state"] == {}
        self.refused += response["streamfold"]["refusedTakeBacks"]
        failures = response["batchItemFailures"]
        if not failures:
            return stop
        assert len(failures) == 1
        numbers = [record["dynamodb"]["SequenceNumber"] for record in records]
        return start + numbers.index(failures[0]["itemIdentifier"])

    def next_run(self, shard: int) -> None:
        """The shard's next batch, from its checkpoint; a crash leaves the checkpoint where it was."""
        start = self.done[shard]
        size = 1 + self.choose(len(self.world.shards[shard]) - start)
        try:
            self.done[shard] = self.deliver(shard, start, start + size)
        except Crash:
            pass

    def redelivery(self) -> None:
        """Any part of what was acknowledged, again; it may run on past the checkpoint, as a stale poller's would."""
        shard = self.choose(len(self.world.shards))
        if not self.done[shard]:
            return
        start = self.choose(self.done[shard])
        stop = start + 1 + self.choose(len(self.world.shards[shard]) - start)
        try:
            self.deliver(shard, start, stop)
        except Crash:
            pass

    def stale_poller(self) -> None:
        """A second poller of some open shard, from a checkpoint that is no newer than the first one's."""
        ready = self.ready()
        if not ready:
            return
        shard = ready[self.choose(len(ready))]
        start = self.choose(self.done[shard] + 1)
        stop = start + 1 + self.choose(len(self.world.shards[shard]) - start)
        self.deliver(shard, start, stop)

    def ready(self) -> list[int]:
        """Shards with records left whose parent was read to its end."""
        return [
            shard
            for shard, records in enumerate(self.world.shards)
            if self.done[shard] < len(records) and self._parent_done(shard)
        ]

    def _parent_done(self, shard: int) -> bool:
        parent = self.world.parents.get(shard)
        return parent is None or (self.done[parent] == len(self.world.shards[parent]) and self._parent_done(parent))

    def drain(self) -> None:
        """Until everything is done. Faults are finite, so this ends."""
        while ready := self.ready():
            self.next_run(ready[self.choose(len(ready))])
            if self.choose(3) == 1:
                self.redelivery()
        for _ in range(3):
            self.redelivery()


def aggregates(client: Any) -> dict[str, dict[tuple[str, ...], dict[str, Decimal]]]:
    """Every aggregate that the tables hold, by aggregation; items of zeros left out, partitions added up."""
    found: dict[str, dict[tuple[str, ...], dict[str, Decimal]]] = {
        name: {} for name in ("monthlies", "amounts", "kinds", "extremes")
    }
    for table in ("Events", "Totals"):
        for item in client.scan(TableName=table)["Items"]:
            name, key = _which(item)
            total = found[name].setdefault(key, defaultdict(Decimal))
            for attribute, value in item.items():
                if "N" in value:
                    total[attribute] += Decimal(value["N"])
    return {
        name: {key: dict(values) for key, values in keyed.items() if any(values.values()) or _counted(values)}
        for name, keyed in found.items()
    }


def _counted(values: dict[str, Decimal]) -> bool:
    return any(values.get(count) for count in ("Downloads", "MeanCount", "Items", "Inserts"))


def _which(item: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    if "Downloads" in item:
        assert item["Month"]["S"] == item["SK"]["S"]
        return "monthlies", (item["id"]["S"], item["SK"]["S"])
    if "MeanSum" in item:
        return "amounts", (item["id"]["S"], item["SK"]["S"])
    if "Items" in item:
        group, label, partition = item["key"]["S"].rsplit("#", 2)
        assert label == "all"
        assert partition in ("0", "1", "2")
        return "kinds", (group,)
    return "extremes", (item["key"]["S"],)
