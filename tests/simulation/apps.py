"""Apps with every measure and every policy, and random histories for them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from random import Random
from typing import Any

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
    at_least,
    attr,
)
from framework.testing import Change, delete, existing, expire, put

events = Table("Events", pk="id", sk="SK", ttl="expires")
orders = Table("Orders", pk="number", pk_type="N", home="eu-west-1")
totals = Table("Totals", pk="key")
kept = Table("Kept", pk="kind", sk="day", ttl="until")
ranks = Table("Ranks", pk="group", sk="window")
charts = Table("Charts", pk="group", sk="window")


class Downloads(Aggregation):
    """Into the source table itself, with an index."""

    name = "downloads"
    source = events
    where = attr("kind").equals("download")
    group_by = "id"
    window = Monthly("at")
    Downloads = Count()
    index = Index("ByMonth", pk="Month", sk="Downloads")


class Songs(Aggregation):
    """Of whatever has an id, as the aggregates in the same table have: none of them may count."""

    name = "songs"
    source = events
    group_by = "id"
    window = AllTime()
    on_expiry = "retract"
    Items = Count()


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


class Customers(Aggregation):
    """Of a table with a numeric key, by a function, into a table that another source feeds too."""

    name = "customers"
    source = orders
    target = ranks
    window = Monthly("at")
    on_expiry = "retract"
    Orders = Count()
    Spent = Sum("amount")
    index = Index("BySpent", pk="Month", sk="Spent")

    @staticmethod
    def group_by(item: dict[str, Any]) -> object:
        return None if item["kind"] == "upload" else (item["kind"], item["number"] % 2)


class Plays(Aggregation):
    """Of the events, beside the customers, with an index and partitions."""

    name = "plays"
    source = events
    target = ranks
    where = attr("amount").exists() & ~attr("kind").equals("upload")
    group_by = "kind"
    window = Daily("at")
    partitions = 2
    sk_prefix = "plays#"
    Items = Count()
    Mean = Average("amount")
    index = Index("ByItems", pk="Day", sk="Items")


class Recent(Aggregation):
    """Kept for a day after its window's end; of a global table, in its home Region."""

    name = "recent"
    source = orders
    target = kept
    group_by = "kind"
    window = Daily("at")
    retention = timedelta(days=1)
    Orders = Count()


class Chart(Aggregation):
    """In an index that it shares, by shards, as long as the sum reaches a threshold; it falls as well as it rises."""

    name = "chart"
    source = events
    target = charts
    group_by = ("kind", "id")
    window = Monthly("at")
    on_expiry = "retract"
    Score = Sum("amount")
    index = Index("Chart", pk="Entry", sk="Score", prefix="chart#", when=at_least("Score", Decimal("0.1")), shards=3)


class Busy(Aggregation):
    """In the same index under another prefix, by a count."""

    name = "busy"
    source = events
    target = charts
    group_by = "kind"
    window = Daily("at")
    Score = Sum("amount")
    Items = Count()
    index = Index("Chart", pk="Entry", sk="Score", prefix="busy#", when=at_least("Items", 2))


class Steep(Aggregation):
    """A threshold that the greatest numbers reach, beside an extreme, of inserts."""

    name = "steep"
    source = events
    target = charts
    group_by = "kind"
    window = AllTime()
    changes = "inserts"
    Score = Sum("amount")
    Least = Min("amount")
    index = Index("Chart", pk="Entry", sk="Score", prefix="steep#", when=at_least("Score", 10**20 - 1), shards=2)


APPS = (
    App("own-table", [Downloads, Songs]),
    App("two-handlers", [Downloads, Amounts]),
    App("partitions", [Kinds, Extremes]),
    App("two-sources", [Customers, Recent, Plays]),
    App("charts", [Chart, Busy, Steep]),
    App("all", [Downloads, Songs, Amounts, Kinds, Extremes, Customers, Recent, Plays, Chart, Busy, Steep]),
)
KINDS = ("download", "upload", "a#b")
TIMES = ("2018-01-31T23:59:59Z", "2018-02-01T00:00:00Z", "2018-02-01T00:30:00+01:00", "2018-02-28T12:00:00Z")
AMOUNTS = tuple(map(Decimal, ("0", "1", "-2.5", "0.1", "12345678901234567890.123456789", "1E+20")))


def history_of(app: App, *, least: int = 3, most: int = 6) -> Callable[[Random], list[Change]]:
    """Random histories of an app: few items, so that changes run into each other."""
    sources = [events, orders] if any(d.source == orders for d in app.declarations) else [events]
    if not any(d.source == events for d in app.declarations):
        sources = [orders]

    def history(random: Random) -> list[Change]:
        keys = random.choice((1, 3, 6))
        found = []
        if random.random() < 0.2:
            found = [existing(*item_of(random, sources, keys)) for _ in range(random.randrange(1, 3))]
        length = random.randint(least, most) if random.random() < 0.98 else random.randint(most, 40)
        for _ in range(length):
            table, item = item_of(random, sources, keys)
            drawn = random.random()
            if drawn < 0.75:
                found.append(put(table, item))
            else:
                found.append((delete if drawn < 0.9 else expire)(table, item))
        return found

    return history


def item_of(random: Random, sources: list[Table], keys: int) -> tuple[Table, dict[str, Any]]:
    """A table and an item for it."""
    number = random.randrange(keys)
    item: dict[str, Any] = {"kind": random.choice(KINDS), "at": random.choice(TIMES), "amount": random.choice(AMOUNTS)}
    if random.random() < 0.05:
        item["at"] = "soon"  # no time: a bad record, but for all time
    if random.random() < 0.05:
        del item["amount"]
    if random.choice(sources) is orders:
        return orders, {"number": number, **item}
    return events, {"id": f"song{number % 2}", "SK": f"event-{number}", **item}


def app_of(seed: int) -> App:
    """The app that a seed is for: the one of all handlers is every 50th, for it takes the longest."""
    *small, large = APPS
    return small[seed % len(small)] if seed % 50 else large


def delivery_of(seed: int) -> str:
    """The protocol that a seed is for."""
    return "ledger" if seed % 7 == 0 else "lanes"
