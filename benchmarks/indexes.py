"""What a threshold and shards cost to write, and what a chart costs to read, beside a plain index and a scan.

*Written*: downloads of many songs, a few of them most of the time (the r-th as often as 1/r), in batches one after
the other. *Read*: the top ten of 100,000 aggregates, through a real boto3 client.
"""

from __future__ import annotations

import heapq
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

from benchmarks.events import MONTH, event_of
from framework import Aggregation, App, Count, Index, Monthly, at_least
from framework.consumer import Consumer
from framework.local.bridge import boto3_client
from framework.local.memory import MemoryDynamoDB
from framework.local.provision import create_table_request
from handlers.music_library import music

__all__ = ["Read", "Written", "reads", "writes"]


class Chart(Aggregation):
    """Downloads of every song in every month."""

    name = "chart"
    source = music
    group_by = "songID"
    window = Monthly("Timestamp")
    Downloads = Count()
    index = Index("Chart", pk="Month", sk="Downloads")


@dataclass(frozen=True, slots=True)
class Written:
    """What all batches together cost.

    Attributes:
        index: The index, in words.
        records: How many records there were.
        requests: Requests.
        wcu: Write units, the index's included.
        entries: Entries in the index at the end.
    """

    index: str
    records: int
    requests: int
    wcu: int
    entries: int


@dataclass(frozen=True, slots=True)
class Read:
    """What the top ten cost.

    Attributes:
        way: How, in words.
        requests: Requests.
        read_units: Read units.
        seconds: Wall clock.
    """

    way: str
    requests: int
    read_units: float
    seconds: float


def writes(*, batches: int = 20, records: int = 1000, songs: int = 10_000, limit: int = 10) -> list[Written]:
    """Feed the same downloads to aggregations that differ in their index.

    Raises:
        AssertionError: An index does not hold what a recount says it should.
    """
    plain = Index("Chart", pk="Month", sk="Downloads")
    charted = replace(plain, when=at_least("Downloads", limit))
    return [
        _written("plain", plain, 0, batches, records, songs),
        _written("8 shards", replace(plain, shards=8), 0, batches, records, songs),
        _written(f"from {limit} on", charted, limit, batches, records, songs),
        _written(f"from {limit} on, fresh processes", charted, limit, batches, records, songs, fresh=True),
        _written(f"from {limit} on, 8 shards", replace(charted, shards=8), limit, batches, records, songs),
    ]


def _written(
    name: str, index: Index, limit: int, batches: int, records: int, songs: int, *, fresh: bool = False
) -> Written:
    cls, engine = _declared(index), MemoryDynamoDB()
    app = App("indexes", [cls])
    engine.create_table(**create_table_request(app, music))
    consumer = Consumer(app, music.name, engine, connections=1)
    source, counts = random.Random(20180101), Counter[str]()
    weights = list(accumulate(1 / rank for rank in range(1, songs + 1)))
    for batch in range(batches):
        event = event_of(records, songs, start=batch * records)
        for record, song in zip(
            event["Records"], source.choices(range(songs), cum_weights=weights, k=records), strict=True
        ):
            counts[f"song-{song:05}"] += 1
            for image in ("Keys", "NewImage"):
                record["dynamodb"][image]["songID"] = {"S": f"song-{song:05}"}
        (Consumer(app, music.name, engine, connections=1) if fresh else consumer)(event)
    cost = Written(name, batches * records, engine.requests.total(), engine.wcu, 0)
    found = {one.group: one["Downloads"] for one in cls.all(MONTH, client=engine)}
    if found != {song: count for song, count in counts.items() if count >= limit}:
        raise AssertionError(f"{name}: expected the index to hold what the recount says")
    return replace(cost, requests=cost.requests - 1, entries=len(found))  # but for the request that made the table


def reads(*, aggregates: int = 100_000, latency_ms: float = 4) -> list[Read]:
    """Read the top ten over one key, over eight shards, and by a scan.

    Raises:
        AssertionError: They are not the same ten.
    """
    one, eight = (_declared(Index("Chart", pk="Month", sk="Downloads", shards=shards)) for shards in (1, 8))
    found: list[tuple[Read, list[tuple[str, int]]]] = []
    for name, cls in (("one key", one), ("8 shards", eight)):
        engine = _filled(cls, aggregates)
        client = boto3_client(engine, latency=latency_ms / 1000)
        _ranked(cls, client)  # makes connections and caches
        found.append(_read(name, engine, partial(_ranked, cls, client)))
        if cls is eight:
            found.append(_read("a scan of the table", engine, partial(_scanned, client)))
    if any(best != found[0][1] for _, best in found):
        raise AssertionError("expected the same ten whichever way they are read")
    return [read for read, _ in found]


def _declared(index: Index) -> type[Aggregation]:
    chosen = index

    class Declared(Chart):
        name = "chart"
        index = chosen

    return Declared


def _filled(cls: type[Aggregation], aggregates: int) -> MemoryDynamoDB:
    """A table that holds aggregates as the consumer would have written them, each with the marks of two lanes."""
    engine, declaration = MemoryDynamoDB(metered=False), cls._declaration
    engine.create_table(**create_table_request(App("indexes", [cls]), music))
    source = random.Random(20180101)
    lanes = {f"sf~lane000{n}": {"S": "22" + "1" * 22 + "@420000"} for n in range(2)}
    assert declaration.index is not None
    for number in range(aggregates):
        song = f"song-{number:05}"
        item = {
            **declaration.key(song, MONTH, 0),
            "Month": {"S": declaration.index.key(song, MONTH)},
            "Downloads": {"N": str(int(source.paretovariate(1)))},
            "sf~": {"S": "chart"},
            **lanes,
        }
        engine.put_item(TableName=music.name, Item=item)
    return engine


def _read(
    way: str, engine: MemoryDynamoDB, read: Callable[[], list[tuple[str, Any]]]
) -> tuple[Read, list[tuple[str, Any]]]:
    requests, rcu, start = engine.requests.total(), engine.rcu, time.perf_counter()
    best = read()
    seconds = time.perf_counter() - start
    return Read(way, engine.requests.total() - requests, engine.rcu - rcu, seconds), best


def _ranked(cls: type[Aggregation], client: Any) -> list[tuple[str, Any]]:
    return [(str(each.group), each["Downloads"]) for each in cls.top(MONTH, 10, client=client)]


def _scanned(client: Any) -> list[tuple[str, int]]:
    pages = client.get_paginator("scan").paginate(TableName=music.name)
    items = (item for page in pages for item in page["Items"] if item["SK"]["S"] == MONTH)
    counts = ((item["songID"]["S"], int(item["Downloads"]["N"])) for item in items)
    return heapq.nsmallest(10, counts, key=lambda one: (-one[1], one[0]))
