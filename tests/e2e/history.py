"""A history of a small table, seeded: its stream's records, what they should count for, and which of them are bad."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from random import Random
from typing import Any

from framework import Aggregation, AllTime, App, Count, Index, Max, Min, Monthly, Sum, Table, at_least

__all__ = [
    "CHARTED",
    "MENDED",
    "MONTHS",
    "SHARDS",
    "TAKEN",
    "Counts",
    "History",
    "Record",
    "app",
    "number_of",
    "ranked",
]

SHARDS = 2
# An artist whose aggregate cannot be written as long as somebody else's item is at its key.
TAKEN = "taken"
# The plays from which on an artist is in the chart of a month: some get there, and some get there and fall again.
CHARTED = 9
# The weight that a mended handler finds where there is none.
MENDED = "7"
MONTHS = ("2018-01", "2018-02")

_ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/Plays/stream/2018-01-01T00:00:00.000"
_ARTISTS, _KINDS = ("blue", "green", "a#b"), ("single", "album")
_WEIGHTS = ("0", "1", "-2.5", "0.1", "12345678901.125")
# So that the numbers become a digit longer on the way.
_FIRST = 10**21 - 700

Item = dict[str, dict[str, Any]]
Record = dict[str, Any]
# Each measure by the aggregation's name, the group and the window.
Counts = dict[tuple[str, str, str], dict[str, Any]]

plays = Table("Plays", pk="id")
ranked = Table("Ranked", pk="artist", sk="month")
totals = Table("Totals", pk="key")


class Artists(Aggregation):
    """Ranked by month, from some plays on."""

    name = "artists"
    source = plays
    target = ranked
    group_by = "artist"
    window = Monthly("at")
    Plays = Count()
    Weight = Sum("weight")
    index = Index("Ranking", pk="Month", sk="Plays", prefix="plays#", when=at_least("Plays", CHARTED), shards=3)


class Kinds(Aggregation):
    """Few groups, spread over partitions."""

    name = "kinds"
    source = plays
    target = totals
    group_by = "kind"
    window = AllTime()
    partitions = 3
    Plays = Count()
    Weight = Sum("weight")


class Extremes(Aggregation):
    """Inserts only, with extremes."""

    name = "extremes"
    source = plays
    target = totals
    group_by = "kind"
    window = Monthly("at")
    sk_prefix = "extremes#"
    changes = "inserts"
    Least = Min("weight")
    Greatest = Max("weight")
    Inserts = Count()


app = App("faults", [Artists, Kinds, Extremes])


class History:
    """Inserts, edits that move items between groups, and deletes, in two shards.

    It begins with an item of every group, which stays, so that every aggregate is there from then on: without lanes
    records come in no order, and a take-back from an aggregate that is not there counts for nothing.

    Args:
        random: Draws it.
        length: How many records come after the first ones.

    Attributes:
        shards: The records of each shard.
        begun: How many of each shard's records are of the beginning.
        items: The table's items at the end, by key.
        inserted: Every item as it was inserted.
    """

    def __init__(self, random: Random, length: int) -> None:
        self._random = random
        self.shards: list[list[Record]] = [[] for _ in range(SHARDS)]
        self.items: dict[int, Item] = {}
        self.inserted: list[Item] = []
        for artist in _ARTISTS:
            for kind, month in zip(_KINDS, MONTHS, strict=True):
                self._write(self._item(artist=artist, kind=kind, month=month, weight="1"))
        self.begun = [len(shard) for shard in self.shards]
        fixed = len(self.items)
        for place in range(length):
            keys = sorted(key for key, item in self.items.items() if key >= fixed and item["artist"]["S"] != TAKEN)
            if place % 60 == 59:
                self._write(self._item(artist=TAKEN, month=MONTHS[0], weight="3"))
            elif len(keys) < 10 or random.random() < 0.4:
                self._write(self._item())
            elif random.random() < 0.6:
                self._write(self._item(random.choice(keys)))
            else:
                self._delete(random.choice(keys))

    @property
    def records(self) -> list[Record]:
        """All records, in the order of their numbers."""
        return sorted((r for shard in self.shards for r in shard), key=number_of)

    def recount(self, *, mended: bool = False) -> Counts:
        """What the items come to, without those that are bad, or with all of them, mended."""
        found: Counts = {}
        for item in self.items.values():
            if (weight := _weight(item, mended)) is not None:
                if mended or item["artist"]["S"] != TAKEN:
                    _add(found, ("artists", item["artist"]["S"], item["at"]["S"][:7]), weight)
                _add(found, ("kinds", item["kind"]["S"], "all"), weight)
        extremes: dict[tuple[str, str], list[Decimal]] = {}
        for item in self.inserted:
            if (weight := _weight(item, mended)) is not None:
                extremes.setdefault((item["kind"]["S"], item["at"]["S"][:7]), []).append(weight)
        for (kind, month), weights in extremes.items():
            values = {"Least": min(weights), "Greatest": max(weights), "Inserts": len(weights)}
            found["extremes", kind, month] = values
        return found

    def bad(self) -> set[tuple[str, int, str]]:
        """The entries that have to be in quarantine: handler, sequence number and image."""
        return {
            (handler, number_of(record), image)
            for record in self.records
            for change in [record["dynamodb"]]
            for image in ("NewImage", "OldImage")
            if image in change
            for handler in _refusing(change[image], inserted=record["eventName"] == "INSERT")
        }

    def _item(self, key: int | None = None, **chosen: str) -> Item:
        draw = self._random.choice
        item = {
            "id": {"N": str(len(self.inserted) if key is None else key)},
            "artist": {"S": chosen.get("artist", draw(_ARTISTS))},
            "kind": {"S": chosen.get("kind", draw(_KINDS))},
            "at": {"S": f"{chosen.get('month', draw(MONTHS))}-15T10:00:00Z"},
            "note": {"N": str(self._random.random())},
        }
        weight = chosen.get("weight") or (draw(_WEIGHTS) if self._random.random() > 0.05 else None)
        return item if weight is None else {**item, "weight": {"N": weight}}

    def _write(self, item: Item) -> None:
        key = int(item["id"]["N"])
        old = self.items.get(key)
        self.items[key] = item
        if old is None:
            self.inserted.append(item)
            self._record("INSERT", key, NewImage=item)
        else:
            self._record("MODIFY", key, OldImage=old, NewImage=item)

    def _delete(self, key: int) -> None:
        self._record("REMOVE", key, OldImage=self.items.pop(key))

    def _record(self, name: str, key: int, **images: Item) -> None:
        number = _FIRST + 7 * sum(map(len, self.shards))
        change = {"Keys": {"id": {"N": str(key)}}, "SequenceNumber": str(number), **images}
        self.shards[key % SHARDS].append(
            {
                "eventID": f"event-{number}",
                "eventName": name,
                "eventSource": "aws:dynamodb",
                "eventSourceARN": _ARN,
                "dynamodb": change,
            }
        )


def number_of(record: Record) -> int:
    """A record's sequence number."""
    return int(record["dynamodb"]["SequenceNumber"])


def _weight(item: Item, mended: bool) -> Decimal | None:
    if "weight" in item:
        return Decimal(item["weight"]["N"])
    return Decimal(MENDED) if mended else None


def _add(found: Counts, place: tuple[str, str, str], weight: Decimal) -> None:
    values = found.setdefault(place, {"Plays": 0, "Weight": Decimal(0)})
    values["Plays"] += 1
    values["Weight"] += weight


def _refusing(item: Item, *, inserted: bool) -> Iterator[str]:
    """The handlers that cannot count an item."""
    if "weight" not in item:
        yield from ("artists", "kinds", *(["extremes"] if inserted else []))
    elif item["artist"]["S"] == TAKEN:
        yield "artists"
