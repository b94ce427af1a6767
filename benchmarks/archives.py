"""What it costs to archive items that expire: puts into the bucket and write units, by the size of the batches."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import Any

from framework import App, Table, TtlArchive
from framework.consumer import Consumer
from framework.control import Control
from framework.deliver_archive import Bucket
from framework.local.memory import MemoryDynamoDB
from framework.local.objects import MemoryObjects
from framework.local.streams import Shard
from framework.local.world import CONTROL, CONTROL_REQUEST
from framework.testing import event, expired

__all__ = ["Archived", "archived"]

_AT = 1_517_443_190.0
_SECONDS_APART = 60  # between batches, so that each takes the turn anew, as those of a quiet table do
sessions = Table("Sessions", pk="id", ttl="expires")


class Sessions(TtlArchive):
    """By the day on which an item expired."""

    name = "sessions"
    source = sessions


@dataclass(frozen=True, slots=True)
class Archived:
    """What an archive of some items cost.

    Attributes:
        batch: Items in a batch.
        items: Items in all.
        puts: Objects that were put.
        wcu: Write units, all of the control table.
        rcu: Read units, likewise.
        size: Bytes of the objects.
    """

    batch: int
    items: int
    puts: int
    wcu: float
    rcu: float
    size: int


def archived(*, items: int = 20_000, batches: tuple[int, ...] = (100, 1000, 10_000)) -> list[Archived]:
    """Archive the same items in batches of one size after the other.

    Raises:
        AssertionError: An archive does not hold each once.
    """
    return [_archived(batch, items) for batch in batches]


def _archived(batch: int, items: int) -> Archived:
    engine, objects, now = MemoryDynamoDB(), MemoryObjects(), [_AT]
    engine.create_table(**CONTROL_REQUEST)
    options: dict[str, Any] = {"connections": 1, "now": lambda: now[0]}
    control = Control(engine, CONTROL, _nothing, version="1", **options)
    bucket = Bucket(lambda: objects, "archive")
    consumer = Consumer(App("archive", [Sessions]), sessions.name, engine, control=control, bucket=bucket, **options)
    shard = Shard("arn:aws:dynamodb:us-east-1:123456789012:table/Sessions/stream/2018-01-01T00:00:00.000", 1)
    for first in range(0, items, batch):
        records = [expired(sessions, _session(number)) for number in range(first, min(first + batch, items))]
        now[0] += _SECONDS_APART
        if consumer(event(*records, at=now[0], shard=shard))["batchItemFailures"]:
            raise AssertionError(f"batches of {batch}: expected all to be archived")
    lines = b"".join(gzip.decompress(content) for content in objects.objects.values()).splitlines()
    if len(lines) != items or len({*lines}) != items:
        raise AssertionError(f"batches of {batch}: expected {items} items once, came {len({*lines})} in {len(lines)}")
    size = sum(map(len, objects.objects.values()))
    reads = engine.requests["GetItem"] + engine.requests["Query"]
    return Archived(batch, items, objects.requests["PutObject"], engine.wcu, reads, size)


def _session(number: int) -> dict[str, Any]:
    return {
        "id": f"session-{number:07}",
        "user": f"user-{number % 997}",
        "began": f"2018-01-{number % 28 + 1:02}T10:00:00Z",
        "pages": number % 13,
        "expires": 1_517_440_000,
    }


def _nothing(name: str, content: bytes) -> None:
    raise AssertionError(f"expected nothing to be set aside, came {name}")
