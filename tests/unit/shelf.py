"""An archive in memory, filled object by object."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from framework import Table, TtlArchive
from framework.archive_lane import object_name
from framework.archive_objects import ArchiveObjects
from framework.codec import encode_item, to_event
from framework.deliver_archive import Bucket, packed
from framework.local.objects import MemoryObjects

SESSIONS = Table("Sessions", pk="user", sk="id", ttl="expires")
DAY = 86_400
NOW = 1_600_000_000
PREFIX = "Sessions/2018-01-01T00:00:00.000/shardId-1/"


class Sessions(TtlArchive):
    """By day of the deletion."""

    name = "sessions"
    source = SESSIONS


def session(number: int, **more: Any) -> dict[str, Any]:
    return {"user": "ann", "id": f"s{number}", "n": number, **more}


class Shelf:
    """A bucket with an archive in it, and the clock that its objects are put by."""

    def __init__(self, declared: type[TtlArchive] = Sessions, client: Any = None) -> None:
        self.now = float(NOW)
        self.objects = MemoryObjects(lambda: self.now)
        self.client: Any = client or self.objects
        self.archive = ArchiveObjects(
            Bucket(lambda: self.client, "archive"), declared._declaration, sleep=lambda seconds: None
        )

    def file(
        self,
        after: int,
        items: Iterable[dict[str, Any]],
        *,
        partition: str = "date=2018-01-31",
        through: int | None = None,
        first: int | None = None,
        prefix: str = PREFIX,
        suffix: str = "",
        age: float = 3 * DAY,
    ) -> str:
        """Put an object as the consumer does; its name in the bucket."""
        lines = [json.dumps({"Item": to_event(encode_item(item))}) for item in items]
        first = after + 1 if first is None else first
        through = after + max(1, len(lines)) if through is None else through
        name = object_name(self.archive.folder, partition, prefix, after, suffix)
        now, self.now = self.now, self.now - age
        self.objects.put_object(
            Bucket="archive",
            Key=name,
            Body=packed(lines),
            Metadata={"first": str(first), "through": str(through), "items": str(len(lines))},
            IfNoneMatch="*",
        )
        self.now = now
        return name

    def texts(self) -> list[str]:
        """All lines that a reader finds, sorted."""
        found = []
        for partition in self.archive.partitions():
            for content in self.archive.read(partition.objects):
                found += [text.decode().rstrip("\n") for _, _, text in content.lines()]  # type: ignore[union-attr]
        return sorted(found)

    def numbers(self) -> list[int]:
        """The `n` of each item that a reader finds, sorted."""
        return sorted(int(json.loads(text)["Item"]["n"]["N"]) for text in self.texts())
