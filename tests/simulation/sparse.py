"""Apps with sparse indexes of every form, beside an aggregation in the same table, and random histories for them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from framework import Aggregation, AllTime, App, Count, Index, SparseIndex, Table, attr
from framework.testing import Change, delete, existing, expire, put, update

orders = Table("CustomerOrders", pk="customer", sk="order", ttl="expires")
scores = Table("GameScores", pk="user", sk="game", pk_type="N")


class OpenOrders(SparseIndex):
    """By the table's own key and a copy: the schema of AWS's guide."""

    name = "open-orders"
    source = orders
    index = Index("OpenOrders", pk="customer", sk="OrderOpenDate")
    when = attr("status").equals("open") & ~attr("hidden").exists()
    sort = attr("placed.on")


class Urgent(SparseIndex):
    """A composite entry of two types, by a function that is hard to please."""

    name = "urgent"
    source = orders
    index = Index("Urgent", pk="Priority", sk="Due", pk_type="N")
    include = ("total",)

    @staticmethod
    def entry(item: Mapping[str, Any]) -> Any:
        if item["status"] == "open" and "rush" in item:
            if item["rush"] == 3:
                return {"Priority": 3}  # half a key
            return {"Priority": item["rush"], "Due": item.get("due", "never")}
        return None


class Calm(SparseIndex):
    """The same entry for all that have one, as an aggregate would have, were it an item."""

    name = "calm"
    source = orders
    index = Index("Calm", pk="Calm", sk="order", prefix="very ")
    when = ~attr("rush").exists()
    key = "yes"


class OrdersOfCustomers(Aggregation):
    """Whose aggregates are in the same table: no items of a sparse index, though they have all that one asks for."""

    name = "orders-of-customers"
    source = orders
    group_by = "customer"
    window = AllTime()
    sk_prefix = "count#"
    on_expiry = "retract"
    Orders = Count()


class Statuses(Aggregation):
    """In a table of its own, and with bad records of its own."""

    name = "statuses"
    source = orders
    target = Table("Statuses", pk="key")
    group_by = "status"
    window = AllTime()
    partitions = 2
    Orders = Count()


class Champions(SparseIndex):
    """Only champions carry an award; a number as the table's key."""

    name = "champions"
    source = scores
    index = Index("Awards", pk="Award", sk="user")
    when = attr("status").equals("open")

    @staticmethod
    def entry(item: Mapping[str, Any]) -> dict[str, str] | None:
        return {"Award": f"{item['game']} {item['due']}"} if item.get("rush") in (1, 2) else None


class Alone(SparseIndex):
    """By a function that looks for another's entry, which would be there or not."""

    name = "alone"
    source = orders
    index = Index("Alone", pk="Alone", sk="order")

    @staticmethod
    def entry(item: Mapping[str, Any]) -> dict[str, Any] | None:
        return None if "Crowd" in item or item["status"] != "open" else {"Alone": str(item.get("OrderOpenDate", "yes"))}


class Crowd(SparseIndex):
    """By one that looks for the former's."""

    name = "crowd"
    source = orders
    index = Index("Crowds", pk="Crowd", sk="order")

    @staticmethod
    def entry(item: Mapping[str, Any]) -> dict[str, Any] | None:
        return {"Crowd": f"with {item['Alone']}" if "Alone" in item else "alone"} if "rush" in item else None


class OpenOnes(SparseIndex):
    """One of three kinds of items that share an index: copies, which may be bad."""

    name = "open-ones"
    source = orders
    index = Index("Kinds", pk="Kind", sk="Within", prefix="open#")
    when = attr("status").equals("open")
    key = attr("placed.by")
    sort = attr("placed.on")
    include = ("total",)


class Rushed(SparseIndex):
    """By a function, which is asked for every item, and may raise."""

    name = "rushed"
    source = orders
    index = Index("Kinds", pk="Kind", sk="Within", prefix="rush#")
    include = ("due",)

    @staticmethod
    def entry(item: Mapping[str, Any]) -> dict[str, Any] | None:
        return {"Kind": str(item["rush"]), "Within": item["due"]} if item.get("rush") in (2, 3, "1") else None


class Hidden(SparseIndex):
    """Always the same."""

    name = "hidden"
    source = orders
    index = Index("Kinds", pk="Kind", sk="Within", prefix="hidden#")
    when = attr("hidden").exists()
    key = "yes"
    sort = "yes"


SPARSE = (
    App("open-orders", [OpenOrders]),
    App("overlapping", [OpenOrders, Urgent, Calm]),
    App("both-kinds", [Statuses, OpenOrders, OrdersOfCustomers, Calm]),
    App("two-tables", [Champions, Urgent, OrdersOfCustomers]),
    App("looking-at-each-other", [Alone, Crowd, OpenOrders]),
    App("sharing", [OpenOnes, Rushed, Hidden, OrdersOfCustomers]),
)


def history_of(app: App, *, least: int = 3, most: int = 8) -> Any:
    """Random histories of an app: few items and few values, so that items come back to what they were."""
    tables = list({d.source.name: d.source for d in app.declarations}.values())

    def history(random: Random) -> list[Change]:
        keys = random.choice((1, 2, 4))
        found = []
        if random.random() < 0.2:
            found = [existing(*item_of(random, tables, keys)) for _ in range(random.randrange(1, 3))]
        for _ in range(random.randint(least, most) if random.random() < 0.95 else random.randint(most, 40)):
            table, item = item_of(random, tables, keys)
            drawn = random.random()
            if drawn < 0.5:
                found.append(put(table, item))
            elif drawn < 0.8:
                some = {name: value for name, value in item.items() if name in table.keys or random.random() < 0.4}
                found.append(update(table, some))
            else:
                found.append((delete if drawn < 0.92 else expire)(table, item))
        return found

    return history


def item_of(random: Random, tables: list[Table], keys: int) -> tuple[Table, dict[str, Any]]:
    """A table and an item for it."""
    item: dict[str, Any] = {"status": random.choice(("open", "open", "open", "shipped"))}
    on = random.choice(("2024-01-01", "2024-01-02", "2024-01-02", "", 5))
    item["placed"] = {"on": on, "by": random.choice(("ann", "bob"))} if random.random() < 0.9 else "soon"
    if random.random() < 0.5:
        item["rush"] = random.choice((1, 1, 2, 3, "1"))
    if random.random() < 0.5:
        item["due"] = random.choice(("2024-02-01", "2024-02-02", ""))
    if random.random() < 0.2:
        item["hidden"] = True
    if random.random() < 0.1:
        item["OrderOpenDate"] = "2024-01-03"  # nobody's business but ours
    if random.random() < 0.05:
        item["Priority"] = 9
    if random.random() < 0.05:
        item["Calm"] = random.choice(("yes", "very yes"))
    if random.random() < 0.1:
        item["Kind"] = random.choice(("open#ann", "rush#2", "hidden#yes", "nobody's"))
    if random.random() < 0.1:
        item["Within"] = random.choice(("2024-01-01", "2024-02-01", "yes"))
    if random.random() < 0.05:
        del item["status"]
    number = random.randrange(keys)
    table = random.choice(tables)
    if table is scores:
        item.pop("Award", None)
        return table, {"user": number, "game": "chess", **item}
    return table, {"customer": f"customer{number % 2}", "order": f"order-{number}", **item}
