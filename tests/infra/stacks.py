"""Synthesized stacks for the tests: two apps, each synthesized once for its settings."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk.assertions import Annotations, Match, Template

from framework import (
    Aggregation,
    App,
    Average,
    Count,
    Daily,
    Index,
    Monthly,
    SparseIndex,
    Sum,
    Table,
    TtlArchive,
    Yearly,
    attr,
)
from framework.manifest import manifest
from handlers.app import app as music
from handlers.expired_sessions import ExpiredSessions
from handlers.open_orders import OpenOrders
from infra.settings import read_settings
from infra.stack import StreamfoldStack

__all__ = [
    "ACCOUNT",
    "APPS",
    "CAPACITY",
    "CHINA",
    "DEV",
    "ORDERS_STREAM",
    "SHOP",
    "TOPIC",
    "Deployed",
    "Make",
    "accounts",
    "archive",
    "changes",
    "deploy",
    "kept",
    "keys",
    "music",
    "shop",
    "synthesize",
    "table",
    "visits",
]

ACCOUNT = "111122223333"
ORDERS_STREAM = f"arn:aws:dynamodb:eu-central-1:{ACCOUNT}:table/shop-orders/stream/2026-01-31T00:00:00.000"

accounts = Table("Accounts", pk="account", pk_type="N")
orders = Table("Orders", pk="orderID")
visits = Table("Visits", pk="page", sk="at", ttl="expires")
totals = Table("Totals", pk="group", sk="window")


class Sales(Aggregation):
    """Money by country, on several items, with an index that holds more than its keys."""

    name = "sales"
    source = orders
    target = totals
    where = attr("amount").gt(0)
    group_by = "country"
    window = Monthly("paid")
    partitions = 3
    Price = Average("amount")
    Orders = Count()
    index = Index("SalesIndex", pk="SalesMonth", sk="Orders")
    sk_prefix = "sales#"


class Refunds(Aggregation):
    """Refunds by country, beside the sales."""

    name = "refunds"
    source = orders
    target = totals
    where = attr("kind").equals("refund")
    group_by = "country"
    window = Monthly("paid")
    Refunded = Sum("amount")
    sk_prefix = "refunds#"


class Views(Aggregation):
    """Views of a page, beside what is counted, with an index of keys only."""

    name = "views"
    source = visits
    where = attr("kind").equals("view")
    group_by = "page"
    window = Daily("at")
    Views = Count()
    index = Index("ViewsIndex", pk="ViewsDay", sk="Views")


class Stays(Aggregation):
    """Seconds on a page, in another table."""

    name = "stays"
    source = visits
    target = totals
    where = attr("kind").equals("leave")
    group_by = "page"
    window = Daily("at")
    Seconds = Sum("seconds")
    sk_prefix = "stays#"


class LongStays(SparseIndex):
    """The longest stays on a page, by a number."""

    name = "long-stays"
    source = visits
    index = Index("LongStays", pk="page", sk="Long", sk_type="N")
    when = attr("seconds").ge(600)
    sort = attr("seconds")
    include = ("user",)


class OldVisits(TtlArchive):
    """Visits by the day on which they expired, for ever, in a folder in a folder."""

    name = "old-visits"
    source = visits
    prefix = "web/visits"


class ClosedAccounts(TtlArchive):
    """Accounts that somebody closed, by the year in which they were opened, from a table without a time to live."""

    name = "closed-accounts"
    source = accounts
    also_deletes = True
    partition = Yearly("opened")
    storage = {"STANDARD_IA": 30, "DEEP_ARCHIVE": 365}  # noqa: RUF012 - read once, when the class is made


APPS = {
    "music": music,
    "shop": App("shop", [Sales, Refunds, Views, Stays]),
    "shop-before": App("shop", [Sales, Views, Stays]),  # a handler less, of a table that has another
}
APPS["shop-sales"] = App("shop", [Sales])
APPS["shop-before-stays"] = App("shop", [Sales, Refunds, Views])


def _count_of(table: Table, name: str) -> type[Aggregation]:
    fields = {"name": name, "source": table, "target": totals, "sk_prefix": f"{name}#"}
    return type(name, (Aggregation,), {**fields, "group_by": "country", "window": Monthly("paid"), "Count": Count()})


# Two tables that may take each other's name, loaded as the function loads its app.
archive = App("archive", [_count_of(orders, "new"), _count_of(Table("OldOrders", pk="orderID"), "old")])
APPS["archive"] = archive
# These are also the ids of other parts of the stack, and names that every JavaScript object has.
for _name in ("Control", "Monitoring", "Dashboards", "constructor"):
    APPS[f"table {_name}"] = App("one", [type("Likes", (Stays,), {"source": Table(_name, pk="page"), "target": None})])
_long = {
    "source": Table("T" * 255, pk="page", sk="sk"),
    "target": None,
    "index": Index("I" * 255, pk="Day", sk="Seconds"),
}
APPS["long names"] = App("one", [type("Likes", (Stays,), _long)])
APPS["table __proto__"] = App("one", [type("Likes", (Stays,), {"target": Table("__proto__", pk="page", sk="at")})])
APPS["global"] = App(
    "one", [type("Likes", (Stays,), {"source": Table("Likes", pk="page", home="eu-west-1"), "target": None})]
)
# Of both kinds: an index of other types beside one of an aggregation, and a table with a sparse index alone.
APPS["sparse"] = App("sparse", [Views, LongStays, OpenOrders])
# Archives of every division, one beside an aggregation, and a consumer without any.
kept = App("web-shop", [ExpiredSessions, OldVisits, Views, ClosedAccounts, Sales])
APPS["kept"] = kept
# Orders is there already; Visits and Totals are made.
SHOP: dict[str, Any] = {"tables": {"Orders": {"name": "shop-orders", "streamArn": ORDERS_STREAM}}}

# Contexts.
DEV = {"stage": "dev", "removal": "destroy"}
CAPACITY = {"read": {"least": 2, "most": 20}, "write": {"least": 3, "most": 30}}
TOPIC = f"arn:aws:sns:eu-central-1:{ACCOUNT}:operators"
CHINA = {
    "region": "cn-north-1",
    "account": ACCOUNT,
    "tables": {
        "Orders": {
            "name": "shop-orders",
            "streamArn": ORDERS_STREAM.replace("arn:aws:", "arn:aws-cn:").replace("eu-central-1", "cn-north-1"),
        }
    },
}


@dataclass(frozen=True, slots=True)
class Deployed:
    """A synthesized stack."""

    stack: StreamfoldStack
    template: Template
    data: dict[str, Any]

    def all(self, kind: str, **properties: Any) -> dict[str, dict[str, Any]]:
        """The resources of a type that have these properties, by logical id."""
        return {
            logical: resource
            for logical, resource in self.data["Resources"].items()
            if resource["Type"] == f"AWS::{kind}"
            and all(resource.get("Properties", {}).get(name) == value for name, value in properties.items())
        }

    def id_of(self, kind: str, **properties: Any) -> str:
        (logical,) = self.all(kind, **properties)
        return logical

    def properties(self, kind: str, **properties: Any) -> dict[str, Any]:
        (resource,) = self.all(kind, **properties).values()
        found: dict[str, Any] = resource["Properties"]
        return found

    def function(self, table: str) -> str:
        """The logical id of the function that reads a table."""
        (logical,) = (
            logical
            for logical, resource in self.all("Lambda::Function").items()
            if resource["Properties"]["Environment"]["Variables"]["STREAMFOLD_TABLE"] == table
        )
        return logical

    @property
    def control(self) -> str:
        """The logical id of the control table: the one with the key `pk`."""
        return self.id_of("DynamoDB::Table", KeySchema=keys("pk", "sk"))

    def arn(self, table: str) -> Any:
        """A table's ARN, as a template has it."""
        return {"Fn::GetAtt": [self.id_of("DynamoDB::Table", TableName=table), "Arn"]}

    def warnings(self) -> list[str]:
        found = Annotations.from_stack(self.stack).find_warning("*", Match.any_value())
        return [str(message.entry.data) for message in found]


Make = Callable[..., Deployed]


def synthesize(app: str, context: dict[str, Any], *, root: Path, code: str = "x", made: Any = None) -> Deployed:
    """Synthesize an app; `made` is the CDK's, a new one if not given."""
    settings = read_settings(context.get)
    made = made or cdk.App()
    name = settings.stack(APPS[app].name)
    inline = lambda_.Code.from_inline(code)
    stack = StreamfoldStack(made, name, manifest(APPS[app]), settings, code=inline, digest=code, root=root)
    template = Template.from_stack(stack)
    return Deployed(stack, template, dict(template.to_json()))


def deploy(app: str, *, code: str = "x", **context: Any) -> Deployed:
    """An app's stack in a checkout without a snapshot."""
    return _deploy(app, code, json.dumps(context))


@functools.cache
def _deploy(app: str, code: str, context: str) -> Deployed:
    return synthesize(app, json.loads(context), root=_no_snapshot(), code=code)


@functools.cache
def _no_snapshot() -> Path:
    return Path(mkdtemp(prefix="streamfold-"))


def music(**context: Any) -> Deployed:
    return deploy("music", **context)


def shop(**context: Any) -> Deployed:
    return deploy("shop", **SHOP, **context)


def table(deployed: Deployed, name: str) -> dict[str, Any]:
    return deployed.properties("DynamoDB::Table", TableName=name)


def keys(*names: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": name, "KeyType": kind} for name, kind in zip(names, ("HASH", "RANGE"), strict=len(names) == 2)
    ]


def changes(before: Any, after: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths at which two JSON values differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from changes(before.get(key, ...), after.get(key, ...), (*path, key))
    elif before != after:
        yield path
