"""What Min and Max cost beside a count: requests an aggregate as batches follow each other.

`UpdateItem` cannot choose the greater of two numbers, so a process that does not know an extreme assumes that it
stands, and where a batch improves on it takes a refused write and another one. Of values in random order, the n-th
batch improves on all before with a chance of one in n for each extreme. A process that wrote the aggregate last knows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from benchmarks.events import event_of
from framework import Aggregation, App, Count, Max, Min, Monthly
from framework.consumer import Consumer
from framework.local.memory import MemoryDynamoDB
from framework.local.provision import create_table_request
from handlers.music_library import music

__all__ = ["Step", "extremes"]


class Plays(Aggregation):
    """How long downloads took, at least and at most."""

    name = "plays"
    source = music
    group_by = "songID"
    window = Monthly("Timestamp")
    changes = "inserts"
    Plays = Count()
    Shortest = Min("Milliseconds")
    Longest = Max("Milliseconds")


@dataclass(frozen=True, slots=True)
class Step:
    """What one batch cost."""

    batch: int
    requests: int
    wcu: int


def extremes(*, batches: int = 20, records: int = 1000, songs: int = 100, fresh: bool = False) -> list[Step]:
    """Feed batches of random values, one after the other, to one process or each to a fresh one.

    Raises:
        AssertionError: An extreme differs from a recount.
    """
    engine = MemoryDynamoDB()
    app = App("extremes", [Plays])
    engine.create_table(**create_table_request(app, music))
    consumer = Consumer(app, music.name, engine, connections=1)
    source = random.Random(20180101)
    seen: dict[str, list[int]] = {}
    steps = []
    for batch in range(batches):
        values = [source.randrange(1, 10**9) for _ in range(records)]
        event = event_of(records, songs, start=batch * records, Milliseconds=values)
        for record, value in zip(event["Records"], values, strict=True):
            seen.setdefault(record["dynamodb"]["Keys"]["songID"]["S"], []).append(value)
        requests, wcu = engine.requests.total(), engine.wcu
        (Consumer(app, music.name, engine, connections=1) if fresh else consumer)(event)
        steps.append(Step(batch + 1, engine.requests.total() - requests, engine.wcu - wcu))
    if _kept(engine) != {song: (len(each), min(each), max(each)) for song, each in seen.items()}:
        raise AssertionError("expected the counts and extremes of the recount")
    return steps


def _kept(engine: MemoryDynamoDB) -> dict[str, tuple[int, int, int]]:
    items: list[dict[str, Any]] = engine.scan(TableName=music.name)["Items"]
    return {
        item["songID"]["S"]: (int(item["Plays"]["N"]), int(item["Shortest"]["N"]), int(item["Longest"]["N"]))
        for item in items
    }
