"""Sparse indexes: what may be declared, what an item's entry is, and how a batch is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from functools import reduce
from itertools import pairwise
from operator import and_
from typing import Any

import pytest
from botocore.exceptions import ClientError

from framework import (
    Aggregation,
    AllTime,
    App,
    ConfigurationError,
    Count,
    DeclarationError,
    DeliveryError,
    Index,
    SparseIndex,
    Table,
    at_least,
    attr,
    testing,
)
from framework.codec import decode_item, encode_item
from framework.consumer import Consumer
from framework.control import Control
from framework.deliver_sparse import SparseDelivery
from framework.entry import Place, as_seen, compile_entry, compile_there
from framework.failures import failure_of
from framework.filters import compile_filters
from framework.local.memory import MemoryDynamoDB
from framework.local.provision import create_table_request
from framework.manifest import manifest
from framework.patterns import json_text
from framework.redrive import Quarantine, Redriven
from framework.sparse import SparseDeclaration
from framework.sparse_fold import EntryUpdate, entry_request
from framework.testing import event, inserted, modified, removed
from framework.writer import Terms
from tests.unit.test_quarantine import CONTROL, entries, no_object

orders = Table("Orders", pk="customer", sk="order", ttl="expires")
numbered = Table("Numbered", pk="id", pk_type="N")
BY_DATE = Index("OpenOrders", pk="customer", sk="OrderOpenDate")
BOTH = Index("Urgent", pk="Priority", sk="Due", pk_type="N")


def declare(**fields: Any) -> type[SparseIndex]:
    defaults = {
        "name": "open-orders",
        "source": orders,
        "index": BY_DATE,
        "when": attr("status").equals("open"),
        "sort": attr("placed"),
    }
    given = {name: value for name, value in {**defaults, **fields}.items() if value is not ...}
    return type("Open", (SparseIndex,), given)


def urgent(function: Any, **fields: Any) -> type[SparseIndex]:
    found = {"name": "urgent", "index": BOTH, "when": ..., "sort": ..., "entry": staticmethod(function), **fields}
    return declare(**found)


def order(number: int = 0, status: str = "open", **more: Any) -> dict[str, Any]:
    return {"customer": "ann", "order": f"order-{number}", "status": status, "placed": "2024-01-01", **more}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "Open"}, "Open.name: expected lower-case letters, digits and hyphens"),
        ({"source": ...}, "Open.source: expected a Table, came nothing"),
        ({"index": ...}, "Open.index: expected an Index, came nothing"),
        ({"index": Index("Back", pk="order", sk="customer")}, "Open.index: expected a key that is none of the table's, for an item to be in it or not, came Index"),
        ({"index": Index("Late", pk="customer", sk="expires")}, "Open.index: expected keys other than the table's time to live, came 'expires'"),
        ({"index": Index("Ours", pk="customer", sk="sf~x")}, "Open.index: expected names that do not begin with 'sf~', came 'sf~x'"),
        ({"index": Index("Type", pk="customer", sk="OrderOpenDate", pk_type="N")}, "Open.index: expected the type 'S' that the table's key 'customer' has, came 'N'"),
        ({"sort": ...}, "Open.sort: expected what 'OrderOpenDate' holds, since half a key is none, came nothing"),
        ({"key": attr("customer")}, "Open.key: expected none, since 'customer' is the table's own key, came attr"),
        ({"index": BOTH, "sort": "x"}, "Open.key: expected what 'Priority' holds, since half a key is none, came nothing"),
        ({"index": BOTH, "key": "1", "sort": "x"}, r"Open.key: expected attr\(...\) or a value that the index's key can have \(expected a number\), came '1'"),
        ({"sort": ""}, r"Open.sort: expected attr\(...\) or a value that the index's key can have \(expected 1 to 1,024 bytes\), came ''"),
        ({"sort": True}, "Open.sort: expected attr"),
        ({"sort": 0.5}, "Open.sort: expected attr"),
        ({"sort": attr("OrderOpenDate")}, "Open.key or sort: expected an attribute that is none of the entry's, came 'OrderOpenDate'"),
        ({"when": attr("OrderOpenDate.x").exists()}, "Open.when: expected an attribute that is none of the entry's, came 'OrderOpenDate.x'"),
        ({"when": True}, r"Open.when: expected a condition made with attr\(...\), came True"),
        ({"when": reduce(and_, [attr(f"a{n}").exists() for n in range(100)])}, "Open.when: expected at most 100 attributes, came 101"),
        ({"index": Index("Half", pk="customer", sk="Due", shards=2)}, "Open.index: expected neither when nor shards, which are for aggregates"),
        ({"index": Index("Half", pk="customer", sk="Due", when=at_least("Orders", 1))}, "Open.index: expected neither when nor shards"),
        ({"index": Index("Half", pk="customer", sk="Due", prefix="x")}, "Open.index: expected a prefix only before a partition key that is text and not the table's"),
        ({"index": Index("Half", pk="A", sk="Due", pk_type="N", prefix="x"), "key": 1}, "Open.index: expected a prefix only before"),
        ({"index": Index("Half", pk="A", sk="Due", prefix="x"), "key": "y" * 2048}, "Open.key: expected a value that fits into the index's key with its prefix"),
        ({"entry": 5}, "Open.entry: expected a static method that takes an item, came 5"),
        ({"entry": lambda: None}, r"Open.entry: expected a static method that takes an item, came def <lambda>\(\)"),
        ({"entry": staticmethod(lambda item: None)}, "Open.sort: expected none beside entry, came attr"),
        ({"include": ["total"]}, "Open.include: expected a tuple of attribute names"),
        ({"include": ("order",)}, "Open.include: expected each attribute once, and no key, which an index holds anyway, came 'order'"),
        ({"include": ("OrderOpenDate",)}, "Open.include: expected each attribute once"),
        ({"include": ("a", "a")}, "Open.include: expected each attribute once"),
        ({"most_bad": 2}, "Open.most_bad: expected a number from 0 to 1, came 2"),
        ({"includes": ("total",)}, r"Open.includes: expected a field that a sparse index has \(did you mean 'include'\?\)"),
        ({"where": attr("status").exists()}, "Open.where: expected a field that a sparse index has, came attr"),
        ({"Orders": Count()}, None),
    ],
)  # fmt: skip
def test_a_wrong_declaration_says_class_field_expected_and_given(fields: dict[str, Any], message: str | None) -> None:
    if message is None:
        declare(**fields)
        return
    with pytest.raises(DeclarationError, match=message):
        declare(**fields)


class Daily(Aggregation):
    name = "daily"
    source = orders
    group_by = "customer"
    window = AllTime()
    Orders = Count()
    index = Index("OpenOrders", pk="Day", sk="Orders")


def charted(prefix: str) -> type[Aggregation]:
    index = Index("OpenOrders", pk="Day", sk="Orders", prefix=prefix)
    return type("Charted", (Daily,), {"name": "charted", "index": index})


def shared(prefix: str, **fields: Any) -> type[SparseIndex]:
    index = Index("OpenOrders", pk="Day", sk="Orders", sk_type="N", prefix=prefix)
    return declare(**{"index": index, "key": attr("placed"), "sort": 7, **fields})


def kind(prefix: str, **fields: Any) -> type[SparseIndex]:
    """One of those that share an index; `status` is its kind, unless it says otherwise."""
    found = {"index": Index("Kinds", pk="Kind", sk="Within", prefix=prefix), "when": attr("status").equals(prefix)}
    return declare(**{"name": f"kind-{prefix.rstrip('#') or 'x'}", **found, "key": "yes", **fields})


@pytest.mark.parametrize(
    ("handlers", "message"),
    [
        (lambda: [declare(), declare()], "expected a name of its own, came 'open-orders' as in Open"),
        (lambda: [declare(), declare(name="two")], r"index 'OpenOrders': expected a prefix such that neither begins the other \('' of Open\), came ''"),
        (lambda: [declare(), declare(name="two", index=Index("OpenOrders", pk="customer", sk="Due"))], "index 'OpenOrders': expected the keys {'customer': 'S', 'OrderOpenDate': 'S'} that it has elsewhere, came {'customer': 'S', 'Due': 'S'}"),
        (lambda: [kind("a"), kind("b", index=Index("Kinds", pk="Kind", sk="Within", sk_type="N", prefix="b"), sort=1)], "index 'Kinds': expected the keys {'Kind': 'S', 'Within': 'S'} that it has elsewhere, came {'Kind': 'S', 'Within': 'N'}"),
        (lambda: [kind("a"), kind("c"), kind("ab")], r"index 'Kinds': expected a prefix such that neither begins the other \('a' of Open\), came 'ab'"),
        (lambda: [kind("a"), kind("")], r"index 'Kinds': expected a prefix such that neither begins the other \('a' of Open\), came ''"),
        (lambda: [kind("a"), kind("b"), kind("c", index=Index("More", pk="Kind", sk="order", prefix="c"), sort=...)], r"expected attributes of its own as its index's keys, came \('Orders', 'Kind'\) as in Open"),
        (lambda: [kind("a"), kind("b", when=attr("Within").exists())], "Open.when: expected an attribute that is none of the entry's, came 'Within'"),
        (lambda: [kind(f"{n:02}") for n in range(21)], "index 'Kinds': expected at most 20 sparse indexes that share it, came 21"),
        (lambda: [kind(k, when=reduce(and_, [attr(f"{k}{n}").exists() for n in range(60)])) for k in "ab"], "index 'Kinds': expected all that share it to look at 100 attributes at most, came 121"),
        (lambda: [declare(), Daily], "index 'OpenOrders': expected the keys {'Day': 'S', 'Orders': 'N'} that it has elsewhere, came {'customer': 'S'"),
        (lambda: [declare(), declare(name="two", index=Index("Two", pk="order", sk="OrderOpenDate"))], r"expected attributes of its own as its index's keys, came \('Orders', 'OrderOpenDate'\) as in Open"),
        (lambda: [declare(), declare(name="two", index=Index("Two", pk="order", sk="B"), sort=attr("OrderOpenDate"))], "expected attributes that no sparse index writes, came 'OrderOpenDate' of Open"),
        (lambda: [Daily, declare(index=Index("Two", pk="customer", sk="Day", sk_type="B"), sort=attr("day"))], "Open: expected keys of its index that no aggregate has, came 'Day' of Daily"),
        (lambda: [Daily, shared("")], "expected a prefix such that neither begins the other \\('' of Daily\\), came ''"),
        (lambda: [Daily, shared("a")], "expected a prefix such that neither begins the other \\('' of Daily\\), came 'a'"),
        (lambda: [charted("ab"), shared("a")], "neither begins the other \\('ab' of Charted\\), came 'a'"),
        (lambda: [SparseIndex], "expected subclasses of Aggregation, SparseIndex, TtlArchive"),
    ],
)  # fmt: skip
def test_handlers_that_do_not_go_together_are_refused(handlers: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        App("a", handlers())


def test_an_aggregation_has_no_index_with_other_types() -> None:
    with pytest.raises(DeclarationError, match="expected a partition key that is text and a sort key that is a number"):
        type("Other", (Daily,), {"name": "other", "index": Index("Days", pk="Day", sk="Orders", pk_type="N")})


def test_an_app_knows_its_handlers_by_name_and_kind() -> None:
    open_, app = declare(), App("a", [Daily_ := type("Daily", (Daily,), {"index": None}), declare()])
    assert (app.aggregations, [each.name for each in app.sparse_indexes]) == ((Daily_,), ["open-orders"])
    assert app.handler("daily") is Daily_
    assert app.sparse_index("open-orders").name == open_.name
    with pytest.raises(ConfigurationError, match=r"expected a sparse index \('open-orders'\), came 'daily'"):
        app.sparse_index("daily")
    with pytest.raises(ConfigurationError, match=r"expected an aggregation \('daily'\), came 'open-orders'"):
        app.aggregation("open-orders")


ENTRY = {"Priority": 1, "Due": "2024-02-01"}


@pytest.mark.parametrize(
    ("cls", "item", "entry", "seen", "reason"),
    [
        (declare(), order(), {"OrderOpenDate": "2024-01-01"}, {"placed", "status"}, ""),
        (declare(), order(status="shipped"), None, {"placed", "status"}, ""),
        (declare(), order(placed=5), None, {"placed", "status"}, "attribute 'placed': expected text for 'OrderOpenDate', came {'N': '5'}"),
        (declare(), order(placed=""), None, {"placed", "status"}, "attribute 'placed': expected 1 to 1,024 bytes"),
        (declare(), order(placed="x" * 1025), None, {"placed", "status"}, "attribute 'placed': expected 1 to 1,024 bytes"),
        (declare(index=Index("ByA", pk="A", sk="order", prefix="p#"), key=attr("placed"), sort=...), order(), {"A": "p#2024-01-01"}, {"placed", "status"}, ""),
        (declare(index=Index("ByA", pk="A", sk="order", prefix="p#"), key=attr("placed"), sort=...), order(placed="x" * 2047), None, {"placed", "status"}, "entry: A: expected 1 to 2,048 bytes with the prefix, came 'p#xx"),
        (declare(sort=attr("a.b[0]")), order(a={"b": ["x"]}), {"OrderOpenDate": "x"}, {"a", "status"}, ""),
        (declare(sort=attr("a.b")), order(), None, {"a", "status"}, "attribute 'a.b' is missing"),
        (declare(sort="yes", when=...), order(), {"OrderOpenDate": "yes"}, set(), ""),
        (urgent(lambda item: ENTRY), order(), ENTRY, set(), ""),
        (urgent(lambda item: None if item["status"] == "open" else item["x"]), order(), None, {"status"}, ""),
        (urgent(lambda item: item.get("due")), order(), None, {"due"}, ""),
        (urgent(lambda item: None if item["customer"] else item["x"]), order(), None, set(), ""),
        (urgent(lambda item: None if "Due" in item else ENTRY), order(Due="x"), ENTRY, set(), ""),
        (urgent(lambda item: None if len(item) == 5 else ENTRY), order(Due="x"), ENTRY, {"placed", "status"}, ""),
        (urgent(lambda item: dict(item) and ENTRY), order(), ENTRY, {"placed", "status"}, ""),
        (urgent(lambda item: {"Priority": Decimal("1E+2"), "Due": "x"}), order(), {"Priority": 100, "Due": "x"}, set(), ""),
        (urgent(lambda item: ENTRY, when=attr("a").exists()), order(), None, {"a"}, ""),
        (urgent(lambda item: item["x"]), order(), None, {"x"}, "entry: expected an entry, came KeyError: 'x'"),
        (urgent(lambda item: {"Priority": 1}), order(), None, set(), "entry: expected exactly 'Priority' and 'Due', or None, came {'Priority': 1}"),
        (urgent(lambda item: {}), order(), None, set(), "entry: expected exactly 'Priority' and 'Due', or None, came {}"),
        (urgent(lambda item: {**ENTRY, "customer": "bob"}), order(), None, set(), "entry: expected exactly 'Priority' and 'Due', or None, came {'Priority': 1"),
        (urgent(lambda item: "x"), order(), None, set(), "entry: expected exactly"),
        (urgent(lambda item: {**ENTRY, "Due": ""}), order(), None, set(), "entry: Due: expected 1 to 1,024 bytes, came ''"),
        (urgent(lambda item: {**ENTRY, "Due": None}), order(), None, set(), "entry: Due: expected text, came None"),
        (urgent(lambda item: {**ENTRY, "Priority": "1"}), order(), None, set(), "entry: Priority: expected a number, came '1'"),
        (urgent(lambda item: {**ENTRY, "Priority": 0.5}), order(), None, set(), "entry: Priority: expected an exact number"),
        (urgent(lambda item: {**ENTRY, "Priority": True}), order(), None, set(), "entry: Priority: expected a number, came True"),
    ],
)  # fmt: skip
def test_an_item_has_its_place(
    cls: type[SparseIndex], item: dict[str, Any], entry: Any, seen: set[str], reason: str
) -> None:
    image = encode_item(item)
    found = compile_entry(cls._declaration)(image)
    assert found is not None
    assert found.reason.startswith(reason)
    assert bool(found.reason) == bool(reason)
    assert found == Place(None if entry is None else encode_item(entry), tuple(sorted(seen)), found.reason)
    assert as_seen(image, found) == {name: image.get(name) for name in sorted(seen)}


WIDE = {f"a{n:03}": n for n in range(99)}


def test_what_streamfold_wrote_has_no_place_and_too_much_to_look_at_is_bad() -> None:
    place_of = compile_entry(declare(when=..., sort="yes")._declaration)
    assert place_of(encode_item({**order(), "sf~": "daily"})) is None
    place_of = compile_entry(urgent(lambda item: dict(item) and ENTRY)._declaration)
    reason = "entry: expected to look at 100 attributes at most, came 101"
    assert place_of(encode_item({**order(), **WIDE})) == Place(None, (*WIDE, "placed"), reason)


def test_the_request_for_an_entry_of_many_attributes_keeps_to_the_limits_of_an_expression() -> None:
    seen = {f"{n:0255}": {"S": "x"} if n % 2 else None for n in range(100)}
    update = EntryUpdate(urgent(lambda item: None)._declaration, {}, encode_item(ENTRY), seen, 1)
    made = entry_request(update)
    condition = made["ConditionExpression"]
    assert len(condition) < 4096
    assert condition.count("AND") + condition.count("=") + condition.count("attribute_") <= 300
    assert made["UpdateExpression"] == "SET #e0 = :e0, #e1 = :e1"


def by_status(item: Mapping[str, Any]) -> dict[str, Any] | None:
    if item["status"] == "raise":
        raise ValueError(item["why"])
    return {"Kind": item["other"], "Within": "x"} if item["status"] in ("b#", "both") else None


copied = kind("a#", when=attr("status").any_of("a#", "both", "raise"), key=attr("placed"))
function = kind("b#", when=..., key=..., sort=..., entry=staticmethod(by_status))
kinds = App("kinds", [copied, function])
BOTH_HAVE = [
    f"entry: expected one in one of the sparse indexes that share 'Kinds', came one in {each!r} and one in {other!r}"
    for each, other in (("kind-a", "kind-b"), ("kind-b", "kind-a"))
]


@pytest.mark.parametrize(
    ("item", "places"),
    [
        (order(0, "a#"), [({"Kind": "a#2024-01-01", "Within": "2024-01-01"}, {"placed", "status"}, ""), (None, {"status"}, "")]),
        (order(0, "b#", other="y"), [(None, {"placed", "status"}, ""), ({"Kind": "b#y", "Within": "x"}, {"placed", "status", "other"}, "")]),
        (order(0, "both", other="y"), [(None, {"placed", "status", "other"}, BOTH_HAVE[0]), (None, {"placed", "status", "other"}, BOTH_HAVE[1])]),
        (order(0, "both", other=""), [({"Kind": "a#2024-01-01", "Within": "2024-01-01"}, {"placed", "status", "other"}, ""), (None, {"status", "other"}, "entry: Kind: expected 1 to 2,048 bytes, came ''")]),
        (order(0, "raise", why="so"), [({"Kind": "a#2024-01-01", "Within": "2024-01-01"}, {"placed", "status", "why"}, ""), (None, {"status", "why"}, "entry: expected an entry, came ValueError: so")]),
        (order(0, "both", other="y", placed=5), [(None, {"placed", "status"}, "attribute 'placed': expected text for 'Kind'"), ({"Kind": "b#y", "Within": "x"}, {"placed", "status", "other"}, "")]),
        (order(0, "none"), [(None, {"placed", "status"}, ""), (None, {"status"}, "")]),
    ],
    ids=["the one", "the other", "both", "the other's is bad", "the other raises", "the one's is bad", "none"],
)  # fmt: skip
def test_of_those_that_share_an_index_one_has_an_item_and_it_hangs_on_what_all_look_at(
    item: dict[str, Any], places: list[Any]
) -> None:
    image = encode_item(item)
    for declaration, (entry, seen, reason) in zip(kinds.declarations, places, strict=True):
        assert isinstance(declaration, SparseDeclaration)
        found = compile_entry(declaration)(image)
        assert found is not None
        assert found.reason.startswith(reason)
        assert bool(found.reason) == bool(reason)
        assert found == Place(None if entry is None else encode_item(entry), tuple(sorted(seen)), found.reason)


@pytest.mark.parametrize(
    ("there", "a_is", "left"),
    [
        ({}, True, {}),
        ({"Kind": "a#x", "Within": "x"}, False, {}),
        ({"Kind": "b#x", "Within": "x"}, True, {"Kind": "b#x", "Within": "x"}),
        ({"Kind": "b#x"}, True, {"Kind": "b#x"}),
        ({"Kind": "b", "Within": "x"}, False, {}),
        ({"Within": "x"}, False, {}),
    ],
)
def test_what_has_no_entry_takes_out_all_but_anothers(there: dict[str, Any], a_is: bool, left: dict[str, Any]) -> None:
    declaration, _ = (kinds.declaration_of(cls) for cls in kinds.sparse_indexes)
    item = encode_item({**order(0, "none"), **there})
    assert compile_there(declaration)(item, None) is a_is
    engine = tables(kinds)
    engine.put_item(TableName="Orders", Item=item)
    update = EntryUpdate(declaration, encode_item({"customer": "ann", "order": "order-0"}), None, {}, 1)
    (outcome,) = SparseDelivery(engine, connections=1).deliver([update], Terms(deadline=float("inf")))
    assert outcome.duplicates == bool(left)
    assert engine.scan(TableName="Orders")["Items"] == [encode_item({**order(0, "none"), **left})]


def test_the_request_for_no_entry_of_many_attributes_and_sharers_keeps_to_the_limits_of_an_expression() -> None:
    many = App("many", [kind(f"{n:02}") for n in range(20)])
    seen = {f"{n:0255}": {"S": "x"} if n % 2 else None for n in range(100)}
    for sign in (None, {"S": "x"}):
        seen = dict.fromkeys(seen, sign)
        condition = entry_request(EntryUpdate(many.declaration_of(many.sparse_indexes[0]), {}, None, seen, 1))[
            "ConditionExpression"
        ]
        assert condition.count("NOT begins_with(#e0, ") == 19
        assert len(condition) < 4096
        functions = condition.count("attribute_") + 2 * condition.count("NOT begins_with")
        assert condition.count("AND") + condition.count("=") + functions <= 300


# -- the consumer --

app = App("shop", [declare(), urgent(lambda item: {**ENTRY, "Due": item["due"]} if "rush" in item else None)])


def tables(an_app: App = app) -> MemoryDynamoDB:
    engine = MemoryDynamoDB()
    for table in an_app.tables:
        engine.create_table(**create_table_request(an_app, table))
    engine.create_table(**CONTROL)
    return engine


def consumer(client: Any, an_app: App = app, delivery: str = "lanes") -> Consumer:
    control = Control(client, "control", no_object, connections=1)
    return Consumer(an_app, "Orders", client, control=control, delivery=delivery, connections=1)


def put(engine: MemoryDynamoDB, *items: Mapping[str, Any]) -> None:
    for item in items:
        engine.put_item(TableName="Orders", Item=encode_item(item))


def indexed(engine: MemoryDynamoDB, index: str = "OpenOrders", name: str = "OrderOpenDate") -> dict[str, Any]:
    found = engine.scan(TableName="Orders", IndexName=index)["Items"]
    return {item["order"]["S"]: next(iter(item[name].values())) for item in found}


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_a_batch_of_edits_of_one_item_is_one_write_of_its_last_version(delivery: str) -> None:
    engine = tables()
    versions = [order(placed=f"2024-01-0{n}") for n in range(1, 6)]
    put(engine, versions[-1])
    edits = [modified(orders, old, new) for old, new in pairwise(versions)]
    found = consumer(engine, delivery=delivery)(event(inserted(orders, versions[0]), *edits))
    assert found["batchItemFailures"] == []
    assert (found["streamfold"]["requests"], found["streamfold"]["contributions"]) == (1, 1)
    assert indexed(engine) == {"order-0": "2024-01-05"}
    again = consumer(engine, delivery=delivery)(event(inserted(orders, versions[0]), *edits[:2]))
    assert again["streamfold"]["duplicates"] == 1
    assert indexed(engine) == {"order-0": "2024-01-05"}


def test_an_own_write_that_comes_back_is_settled_without_another() -> None:
    engine = tables()
    put(engine, order())
    consumer(engine)(event(inserted(orders, order())))
    (after,) = engine.scan(TableName="Orders")["Items"]
    assert after == encode_item(order(OrderOpenDate="2024-01-01"))
    found = consumer(engine)(event(modified(orders, order(), order(OrderOpenDate="2024-01-01"))))
    assert found["streamfold"]["requests"] == 0


def test_an_item_leaves_and_a_deleted_one_is_not_brought_back() -> None:
    engine = tables()
    put(engine, order(0, "shipped", OrderOpenDate="2024-01-01"))
    records = [
        modified(orders, order(OrderOpenDate="2024-01-01"), order(0, "shipped", OrderOpenDate="2024-01-01")),
        inserted(orders, order(1)),
        inserted(orders, order(2)),
        removed(orders, order(2)),
    ]
    found = consumer(engine)(event(*records))
    assert (found["batchItemFailures"], found["streamfold"]["requests"]) == ([], 2)
    assert engine.scan(TableName="Orders")["Items"] == [encode_item(order(0, "shipped"))]


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_a_bad_record_is_set_aside_with_its_reason_and_its_item_leaves(delivery: str) -> None:
    engine = tables()
    put(engine, order(0, placed=5, OrderOpenDate="2024-01-01"), order(1))
    records = [modified(orders, order(), order(0, placed=5, OrderOpenDate="2024-01-01")), inserted(orders, order(1))]
    found = consumer(engine, delivery=delivery)(event(*records))
    assert found["batchItemFailures"] == []
    (bad,) = found["streamfold"]["bad"]
    assert (bad["handler"], bad["key"]) == ("open-orders", "customer='ann', order='order-0'")
    assert bad["reason"].startswith("attribute 'placed': expected text for 'OrderOpenDate'")
    assert indexed(engine) == {"order-1": "2024-01-01"}
    (entry,) = entries(engine).values()
    assert (entry["handler"], entry["image"]) == ({"S": "open-orders"}, {"S": "NewImage"})


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_an_item_of_which_too_much_is_looked_at_leaves_and_what_that_does_to_a_later_version_is_mended(
    delivery: str,
) -> None:
    def entry(item: Mapping[str, Any]) -> dict[str, Any]:
        return ENTRY if item["placed"] == "by name" else {**ENTRY, "Due": str([*map(item.get, (*WIDE, "a"))])}

    curious = App("curious", [urgent(entry)])
    engine = tables(curious)
    run = consumer(engine, curious, delivery)
    wide, narrow = order(**ENTRY), order(placed="by name", **ENTRY)
    put(engine, wide)
    found = run(event(inserted(orders, wide)))
    assert (found["batchItemFailures"], found["streamfold"]["badRecords"]) == ([], 1)
    assert engine.scan(TableName="Orders")["Items"] == [encode_item(order())]
    # Not all that it hung on stands in the condition, so one that comes late is written.
    put(engine, narrow)
    run(event(inserted(orders, wide)))
    after = order(placed="by name")
    assert engine.scan(TableName="Orders")["Items"] == [encode_item(after)]
    run(event(modified(orders, narrow, after)))
    assert engine.scan(TableName="Orders")["Items"] == [encode_item(narrow)]


def test_where_most_is_bad_the_batch_waits_for_that_handler_and_the_others_go_on() -> None:
    engine = tables()
    items = [order(n, rush=1) for n in range(12)]
    put(engine, *items)
    found = consumer(engine)(event(*(inserted(orders, item) for item in items)))
    assert found["streamfold"]["mostlyBad"] == 1
    assert "urgent: expected at most 50% of a batch to be bad records, came 12 of 12" in found["streamfold"]["error"]
    assert len(found["batchItemFailures"]) == 1
    assert entries(engine) == {}
    assert len(indexed(engine)) == 12


class Refusing:
    """A client that fails in one way for one item."""

    def __init__(self, engine: Any, error: ClientError, item: str) -> None:
        self._engine, self._error, self._item = engine, error, item

    def update_item(self, **arguments: Any) -> Any:
        if arguments["Key"].get("order", {}).get("S") == self._item:
            raise self._error
        return self._engine.update_item(**arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def refused(code: str, message: str = "no") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "UpdateItem")


def test_what_is_not_done_is_reported_from_its_record_and_the_rest_is_done() -> None:
    engine = tables()
    items = [order(n) for n in range(3)]
    put(engine, *items)
    run = event(*(inserted(orders, item) for item in items))
    found = consumer(Refusing(engine, refused("AccessDeniedException"), "order-1"))(run)
    (failure,) = found["batchItemFailures"]
    assert failure["itemIdentifier"] == run["Records"][1]["dynamodb"]["SequenceNumber"]
    assert indexed(engine).keys() == {"order-0", "order-2"}
    assert consumer(engine)(run)["batchItemFailures"] == []
    assert indexed(engine).keys() == {"order-0", "order-1", "order-2"}


def test_an_entry_that_makes_its_item_too_large_is_set_aside() -> None:
    engine = tables()
    items = [order(0), order(1)]
    put(engine, *items)
    error = refused("ValidationException", "Item size to update has exceeded the maximum allowed size")
    found = consumer(Refusing(engine, error, "order-0"))(event(*(inserted(orders, item) for item in items)))
    assert (found["batchItemFailures"], found["streamfold"]["badRecords"]) == ([], 1)
    (entry,) = entries(engine).values()
    assert "maximum allowed size" in entry["reason"]["S"]
    assert indexed(engine).keys() == {"order-1"}


class TooLarge:
    """A client whose items have no room for an entry, and of which some other calls fail."""

    def __init__(self, engine: Any, error: ClientError | None = None) -> None:
        self.engine, self.error = engine, error

    def update_item(self, **arguments: Any) -> Any:
        if arguments["TableName"] == "Orders" and "SET" in arguments["UpdateExpression"]:
            raise refused("ValidationException", "Item size to update has exceeded the maximum allowed size")
        if arguments["TableName"] == "Orders" and self.error is not None:
            raise self.error
        return self.engine.update_item(**arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


def test_an_item_that_has_no_room_for_its_entry_keeps_no_former_one() -> None:
    engine = tables()
    former, now = order(0), order(0, placed="2024-01-02")
    put(engine, former)
    consumer(engine)(event(inserted(orders, former)))
    assert indexed(engine).keys() == {"order-0"}
    there = decode_item(engine.scan(TableName="Orders")["Items"][0])
    changed = {**there, **now}
    put(engine, changed)
    run = event(modified(orders, there, changed))
    found = consumer(TooLarge(engine, refused("AccessDeniedException")))(run)
    assert found["batchItemFailures"] != []
    assert entries(engine) == {}
    found = consumer(TooLarge(engine))(run)
    assert (found["batchItemFailures"], found["streamfold"]["badRecords"]) == ([], 1)
    assert indexed(engine) == {}
    assert len(entries(engine)) == 1


def test_where_dynamodb_rejects_all_for_what_no_record_is_to_blame_the_batch_fails() -> None:
    engine = tables()
    put(engine, order())
    error = refused("ValidationException", "Type mismatch for Index Key OrderOpenDate Expected: N Actual: S")
    with pytest.raises(DeliveryError, match="Type mismatch for Index Key"):
        consumer(Refusing(engine, error, "order-0"))(event(inserted(orders, order())))


class PerCustomer(Aggregation):
    name = "per-customer"
    source = orders
    target = Table("Totals", pk="key")
    group_by = "shop"
    window = AllTime()
    Orders = Count()


both = App("both", [PerCustomer, declare()])


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_one_kinds_failure_neither_loses_nor_repeats_the_others_work(delivery: str) -> None:
    engine = tables(both)
    items = [order(n, shop="north") for n in range(3)]
    put(engine, *items)
    run = event(*(inserted(orders, item) for item in items))
    broken = Refusing(engine, refused("AccessDeniedException"), "order-1")
    for client in (broken, broken, engine, engine):
        consumer(client, both, delivery)(run)
    assert [item["Orders"] for item in engine.scan(TableName="Totals")["Items"]] == [{"N": "3"}]
    assert len(indexed(engine)) == 3


def test_where_dynamodb_rejects_all_of_one_kind_the_batch_fails_and_the_other_kind_is_done_once() -> None:
    engine = tables(both)
    put(engine, order(0, shop="north"))
    run = event(inserted(orders, order(0, shop="north")))
    error = refused("ValidationException", "Type mismatch for Index Key OrderOpenDate Expected: N Actual: S")
    for _ in range(2):
        with pytest.raises(DeliveryError, match="Type mismatch for Index Key"):
            consumer(Refusing(engine, error, "order-0"), both)(run)
    assert entries(engine) == {}
    assert consumer(engine, both)(run)["batchItemFailures"] == []
    assert [item["Orders"] for item in engine.scan(TableName="Totals")["Items"]] == [{"N": "1"}]
    assert len(indexed(engine)) == 1


def test_a_bad_record_of_one_kind_is_none_of_the_other() -> None:
    engine = tables(both)
    items = [order(0), order(1, placed=5, shop="north")]
    put(engine, *items)
    found = consumer(engine, both)(event(*(inserted(orders, item) for item in items)))
    assert {bad["handler"] for bad in found["streamfold"]["bad"]} == {"per-customer", "open-orders"}
    assert indexed(engine) == {"order-0": "2024-01-01"}
    assert [item["Orders"] for item in engine.scan(TableName="Totals")["Items"]] == [{"N": "1"}]


def test_a_table_with_other_keys_than_declared_fails_the_batch() -> None:
    other = Table("Orders", pk="id")
    with pytest.raises(
        ConfigurationError, match=r"open-orders: expected a table with the keys \('customer', 'order'\)"
    ):
        consumer(tables())(event(inserted(other, {**order(), "id": "x"})))


def test_a_failed_condition_is_settled_and_no_failure() -> None:
    engine = tables()
    place = compile_entry(declare()._declaration)(encode_item(order()))
    assert place is not None
    key = encode_item({"customer": "ann", "order": "order-0"})
    update = EntryUpdate(declare()._declaration, key, place.entry, as_seen(encode_item(order()), place), 7)
    (outcome,) = SparseDelivery(engine, connections=1).deliver([update], Terms(deadline=float("inf")))
    assert (outcome.failed_from, outcome.duplicates, outcome.absorbed) == (None, 1, 0)


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
@pytest.mark.parametrize("connections", [1, 8])
def test_an_item_that_changes_its_kind_moves_and_an_old_record_does_not_take_it_out(
    connections: int, delivery: str
) -> None:
    engine = tables(kinds)
    control = Control(engine, "control", no_object, connections=1)
    run = Consumer(kinds, "Orders", engine, control=control, delivery=delivery, connections=connections)
    versions = [order(0, status, other="y") for status in ("a#", "b#", "none", "both", "a#")]
    expected = ["a#2024-01-01", "b#y", None, None, "a#2024-01-01"]
    former = None
    for version, now in zip(versions, expected, strict=True):
        there = {n: v for n, v in next(iter(engine.scan(TableName="Orders")["Items"]), {}).items() if n[0] in "KW"}
        engine.put_item(TableName="Orders", Item={**encode_item(version), **there})
        current = {**version, **decode_item(there)}
        record = modified(orders, former, current) if former else inserted(orders, current)
        assert run(event(record))["batchItemFailures"] == []
        assert indexed(engine, "Kinds", "Kind") == ({"order-0": now} if now else {})
        for old in versions[: versions.index(version)]:
            run(event(inserted(orders, {**old, "Kind": "a#2024-01-01", "Within": "x"})))
            assert indexed(engine, "Kinds", "Kind") == ({"order-0": now} if now else {})
        former = current
    both = [entry["reason"]["S"] for entry in entries(engine).values() if "reason" in entry]
    assert {*both} == {*BOTH_HAVE}


# -- filters and manifest --

UNMARKED = {"sf~": {"S": [{"exists": False}]}}


def pattern(**image: Any) -> dict[str, Any]:
    return {"eventName": ["INSERT", "MODIFY"], "dynamodb": {"NewImage": {**UNMARKED, **image}}}


PRESENT = {"S": [{"exists": True}]}


@pytest.mark.parametrize(
    ("cls", "patterns", "warned"),
    [
        (declare(), [pattern(status={"S": ["open"]}), pattern(OrderOpenDate=PRESENT)], True),
        (
            declare(sort="yes"),
            [
                pattern(OrderOpenDate={"S": [{"anything-but": ["yes"]}, {"exists": False}]}, status={"S": ["open"]}),
                pattern(
                    OrderOpenDate=PRESENT, status={"S": [{"anything-but": ["open"]}, {"exists": False}]}
                ),
            ],
            False,
        ),
        (urgent(lambda item: None), [pattern()], True),
        (declare(when=...), [pattern()], True),
        (
            urgent(lambda item: None, when=attr("status").equals("open")),
            [pattern(status={"S": ["open"]}), pattern(Priority={"N": [{"exists": True}]}), pattern(Due=PRESENT)],
            True,
        ),
    ],
    ids=["copied", "always the same", "a function", "all items", "a function of some"],
)  # fmt: skip
def test_the_filter_lets_through_what_has_an_entry_or_should_have_one(
    cls: type[SparseIndex], patterns: list[Any], warned: bool
) -> None:
    filters = compile_filters([cls._declaration])
    assert sorted(filters.patterns, key=str) == sorted(patterns, key=str)
    own = (
        f"{cls.name}: no pattern can express whether an entry is the right one, so the filter lets own writes pass "
        "that set one."
    )
    assert filters.warnings == ((own,) if warned else ())


def test_the_filter_of_a_shared_index_lets_through_what_is_wrong_in_any_of_its_ways() -> None:
    one, two = kind("a#", when=attr("status").equals("a")), kind("b#", when=attr("status").equals("b"), sort="yes")
    other = {"S": [{"anything-but": ["b#yes"]}, {"exists": False}]}
    unlike = {"S": [{"anything-but": ["b"]}, {"exists": False}]}
    (declaration,) = App("a", [one, two]).declarations[1:]
    filters = compile_filters([declaration], limit=10)
    assert filters.texts == tuple(
        json_text(each)
        for each in [
            pattern(status={"S": ["b"]}, Kind=other),
            pattern(status={"S": ["b"]}, Within={"S": [{"anything-but": ["yes"]}, {"exists": False}]}),
            pattern(status=unlike, Kind=PRESENT),
            pattern(status=unlike, Within=PRESENT),
        ]
    )
    assert filters.warnings == (
        "kind-b: no pattern can express whose an entry in a shared index is, so the filter lets own writes pass that "
        "set one.",
    )
    three = kind("c#", when=attr("both").exists())
    (_, declaration, _) = App("a", [one, two, three]).declarations
    assert pattern(status={"S": ["b"]}) in compile_filters([declaration], limit=10).patterns


def test_the_manifest_has_a_shared_index_once() -> None:
    found = manifest(App("a", [kind("a#", include=("total",)), kind("b#", include=("a", "total"))]))
    assert found["tables"]["Orders"]["indexes"] == {
        "Kinds": {
            "pk": {"name": "Kind", "type": "S"},
            "sk": {"name": "Within", "type": "S"},
            "include": ["a", "total"],
        }
    }


def test_the_manifest_has_the_index_with_its_types_and_one_grant() -> None:
    found = manifest(App("a", [urgent(lambda item: None, include=("total", "a"))]))
    assert found["tables"]["Orders"]["indexes"] == {
        "Urgent": {
            "pk": {"name": "Priority", "type": "N"},
            "sk": {"name": "Due", "type": "S"},
            "include": ["a", "total"],
        }
    }
    assert found["tables"]["Orders"]["stream"] is True
    assert found["consumers"]["Orders"]["grants"] == {"Orders": ["UpdateItem"]}
    own = declare(source=numbered, index=Index("Own", pk="id", sk="On"))
    assert manifest(App("a", [own]))["tables"]["Numbered"]["indexes"]["Own"]["pk"] == {"name": "id", "type": "N"}


# -- redrive --


def redriven(engine: Any, an_app: App = app, **options: Any) -> list[Redriven]:
    there = Quarantine(an_app, engine, "control", load=lambda name: b"", store=no_object)
    return [there.redrive(item, **options) for item in [*there.open()]]


def set_aside(engine: MemoryDynamoDB) -> None:
    put(engine, order(0, placed=5), order(1))
    consumer(engine)(event(inserted(orders, order(0, placed=5)), inserted(orders, order(1))))
    assert len(entries(engine)) == 1


def test_a_record_that_was_set_aside_is_redriven_by_its_item_as_it_is_now() -> None:
    engine = tables()
    set_aside(engine)
    (still,) = redriven(engine)
    assert (still.done, still.reason[:34]) == (False, "attribute 'placed': expected text ")
    put(engine, order(0, placed="2024-03-03"))
    assert [one.done for one in redriven(engine, dry_run=True)] == [True]
    assert "order-0" not in indexed(engine)
    assert [(one.done, one.reason) for one in redriven(engine)] == [(True, "")]
    assert indexed(engine) == {"order-0": "2024-03-03", "order-1": "2024-01-01"}
    assert redriven(engine) == []
    (left,) = entries(engine).values()
    assert "done" in left


def test_an_item_that_two_sharers_had_is_redriven_into_the_one_that_has_it() -> None:
    engine, item = tables(kinds), order(0, "both", other="y")
    put(engine, item)
    consumer(engine, kinds)(event(inserted(orders, item)))
    assert [(one.done, one.reason) for one in redriven(engine, kinds)] == [(False, each) for each in BOTH_HAVE]
    put(engine, order(0, "b#", other="y"))
    assert [(one.done, one.reason) for one in redriven(engine, kinds)] == [
        (True, "its item has no entry now"),
        (True, ""),
    ]
    assert indexed(engine, "Kinds", "Kind") == {"order-0": "b#y"}


def test_a_mended_handler_finds_the_entry() -> None:
    engine = tables()
    set_aside(engine)
    mended = App("shop", [urgent(lambda item: None), declare(when=attr("placed").begins_with("2"))])
    assert [(one.done, one.reason) for one in redriven(engine, mended)] == [(True, "its item has no entry now")]


def test_an_item_that_is_gone_is_not_brought_back_and_its_entry_is_settled() -> None:
    engine = tables()
    set_aside(engine)
    engine.delete_item(TableName="Orders", Key=encode_item({"customer": "ann", "order": "order-0"}))
    assert [(one.done, one.reason) for one in redriven(engine)] == [(True, "its item is gone")]
    assert [item["order"]["S"] for item in engine.scan(TableName="Orders")["Items"]] == ["order-1"]


def test_an_entry_that_cannot_be_written_stays_open() -> None:
    engine = tables()
    set_aside(engine)
    put(engine, order(0))
    broken = Refusing(engine, refused("AccessDeniedException"), "order-0")
    (one,) = redriven(broken)
    assert not one.done
    assert "open-orders: expected to write, came" in one.reason
    assert [one.done for one in redriven(engine)] == [True]


def test_a_batch_that_lambda_gave_up_on_is_brought_again_and_does_no_harm() -> None:
    engine = tables(both)
    items = [order(n, shop="north") for n in range(3)]
    put(engine, order(0, "shipped", shop="north"), *items[1:])
    records = event(*(inserted(orders, item) for item in items), at=1_700_000_000)
    lost = {
        "DDBStreamBatchInfo": {
            "batchSize": 3,
            "streamArn": records["Records"][0]["eventSourceARN"],
            "shardId": records["shardId"],
            "startSequenceNumber": records["Records"][0]["dynamodb"]["SequenceNumber"],
            "endSequenceNumber": records["Records"][-1]["dynamodb"]["SequenceNumber"],
        },
        "payload": json.dumps(records),
    }
    there = Quarantine(both, engine, "control", load=lambda name: b"", store=no_object, now=lambda: 1_700_000_100)
    for _ in range(2):
        assert there.redrive_batch(failure_of("x", json.dumps(lost)), None).done
        assert indexed(engine).keys() == {"order-1", "order-2"}
        assert [item["Orders"] for item in engine.scan(TableName="Totals")["Items"]] == [{"N": "3"}]


def test_a_sparse_index_and_an_aggregation_share_an_index_by_a_prefix() -> None:
    late = shared("late#", name="late", when=attr("status").equals("late"), include=("due",))
    both_in_one = App("shared", [charted("day#"), shared("open#", include=("total",)), late])
    (index,) = manifest(both_in_one)["tables"]["Orders"]["indexes"].values()
    assert index == {
        "pk": {"name": "Day", "type": "S"},
        "sk": {"name": "Orders", "type": "N"},
        "include": ["due", "total"],
    }
    history = [testing.put(orders, order(n)) for n in range(3)] + [testing.put(orders, order(1, "shipped"))]
    history += [testing.put(orders, order(2, "late"))]
    testing.assert_exactly_once(both_in_one, history, seeds=range(30))
    simulation = testing.Simulation(both_in_one, seed=0)
    assert simulation.run(history).entries == 2
    found = simulation.client.scan(TableName="Orders", IndexName="OpenOrders")["Items"]
    assert sorted(item["Day"]["S"] for item in found) == ["day#all", "late#2024-01-01", "open#2024-01-01"]
    (total,) = both_in_one.aggregations[0].top("all", client=simulation.client)
    assert total["Orders"] == 3
