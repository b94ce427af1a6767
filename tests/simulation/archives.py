"""Apps with archives of every form, beside an aggregation and a sparse index, and random histories for them."""

from __future__ import annotations

from random import Random
from typing import Any

from framework import Aggregation, AllTime, App, Count, Daily, Index, Monthly, SparseIndex, Table, TtlArchive, attr
from framework.testing import Change, delete, existing, expire, put

sessions = Table("Sessions", pk="user", sk="id", ttl="expires")
devices = Table("Devices", pk="number", pk_type="N", ttl="until", home="eu-west-1")


class Sessions(TtlArchive):
    """By the day on which an item expired."""

    name = "sessions"
    source = sessions


class ByMonth(TtlArchive):
    """By a month that may be missing, of those that a condition takes, and deleted ones too."""

    name = "by-month"
    source = sessions
    prefix = "months/of-sessions"
    partition = Monthly("began")
    where = attr("kind").equals("web")
    also_deletes = True
    without = ("secret",)


class Devices(TtlArchive):
    """Of a global table's home Region, where others' expiry is a delete of an item whose time was over."""

    name = "devices"
    source = devices
    partition = Daily("began")
    only = ("kind", "began")


class Kinds(Aggregation):
    """Expiry taken back, in a table of its own."""

    name = "kinds"
    source = sessions
    target = Table("Kinds", pk="key")
    group_by = "kind"
    window = AllTime()
    on_expiry = "retract"
    Sessions = Count()


class OwnKinds(Aggregation):
    """In the same table, so that its items are beside those that are archived."""

    name = "own-kinds"
    source = sessions
    group_by = "user"
    window = AllTime()
    Sessions = Count()


class Web(SparseIndex):
    """Writes to the items that expire."""

    name = "web"
    source = sessions
    index = Index("Web", pk="user", sk="WebSince")
    when = attr("kind").equals("web")
    sort = attr("began")


ARCHIVES = (
    App("one-archive", [Sessions]),
    App("two-archives", [Sessions, ByMonth]),
    App("home", [Devices, ByMonth]),
    App("all-kinds", [ByMonth, Kinds, OwnKinds, Web]),
)


def history_of(app: App, *, least: int = 3, most: int = 10) -> Any:
    """Random histories of an app: few items, so that one expires more than once."""
    tables = list({d.source.name: d.source for d in app.declarations}.values())

    def history(random: Random) -> list[Change]:
        keys = random.choice((1, 2, 4))
        found = []
        if random.random() < 0.2:
            found = [existing(*item_of(random, tables, keys)) for _ in range(random.randrange(1, 3))]
        for _ in range(random.randint(least, most) if random.random() < 0.95 else random.randint(most, 40)):
            table, item = item_of(random, tables, keys)
            drawn = random.random()
            found.append((put if drawn < 0.55 else expire if drawn < 0.9 else delete)(table, item))
        return found

    return history


def item_of(random: Random, tables: list[Table], keys: int) -> tuple[Table, dict[str, Any]]:
    """A table and an item for it."""
    item: dict[str, Any] = {"kind": random.choice(("web", "web", "app")), "secret": random.choice(("a", "b"))}
    item["began"] = random.choice(("2018-01-31T23:59:59Z", "2018-02-01T00:00:00Z", "2018-02-02", "2018-03-01"))
    if random.random() < 0.08:
        item["began"] = "soon"  # no time: a bad record
    item["raw"] = random.choice((b"\x00\xff", {b"a", b"b"}, [1, {"deep": b"c"}], {1, 2}))
    item["expires"] = item["until"] = random.choice((1_500_000_000, 1_600_000_000, "never"))
    number = random.randrange(keys)
    table = random.choice(tables)
    if table is devices:
        return table, {"number": number, **item}
    return table, {"user": f"user{number % 2}", "id": f"session-{number}", **item}
