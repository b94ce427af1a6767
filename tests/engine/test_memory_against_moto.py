"""Two engines that share no expressions, the one in memory and moto, give the same answers to the same requests.

Left out is where moto is known to differ from the service (AWS facts: local engines), and what was seen here besides:
it looks at a condition before it looks at the item put, lets DELETE and REMOVE make an item, leaves out the
LastEvaluatedKey of a page that ends with the last item, takes NULL for a missing attribute, steps into attributes that
are no maps or lists, and keeps entries of one sort key in another order. Codes are
compared, not messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from math import inf
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import event, given, settings
from hypothesis import strategies as st

from framework import Aggregation, AllTime, App, Count, Index, Max, Min, Sum, Table
from framework.codec import decode_item
from framework.deliver import Delivery
from framework.lanes import MARK
from framework.local.memory import MemoryDynamoDB
from framework.local.moto_quirks import Moto
from framework.local.provision import create_table_request
from framework.plan import Update
from framework.writer import Terms

plays = Table("Plays", pk="id")
shares = Table("Shares", pk="genre", sk="label")


class Totals(Aggregation):
    """Takes back, and is ranked by an index."""

    name = "totals"
    source = plays
    target = shares
    group_by = "genre"
    window = AllTime()
    Plays = Count()
    Seconds = Sum("seconds")
    index = Index("ByWindow", pk="Window", sk="Plays")


class Extremes(Aggregation):
    """Assumes in its condition which extremes are kept."""

    name = "extremes"
    source = plays
    target = shares
    group_by = "genre"
    window = AllTime()
    changes = "inserts"
    sk_prefix = "x#"
    Total = Sum("seconds")
    Least = Min("seconds")
    Most = Max("seconds")


CREATE = create_table_request(App("both", [Totals, Extremes]), shares)
DECLARATIONS = {each.name: each._declaration for each in (Totals, Extremes)}
SLOTS = {name: len(declaration.slots) for name, declaration in DECLARATIONS.items()}


CREATE = create_table_request(App("both", [Totals, Extremes]), shares)
SHOWN = ("Item", "Attributes", "Count", "ScannedCount")


class Both:
    """A client of both engines: each request goes to the two of them and has to come to the same."""

    def __init__(self, moto: Any) -> None:
        self.memory, self.moto = MemoryDynamoDB(), moto
        self.memory.create_table(**CREATE)

    def __getattr__(self, operation: str) -> Any:
        def call(**arguments: Any) -> Any:
            answers = [_answer(engine, operation, arguments) for engine in (self.memory, self.moto)]
            mine, others = map(_comparable, answers)
            assert mine == others, f"{operation}({arguments})"
            event(f"{operation}: {mine['code']}")
            if isinstance(answers[0], ClientError):
                raise answers[0]
            return answers[0]

        return call

    def entries(self, engine: Any) -> list[Any]:
        """What one of the engines has in its index, page by page; entries of one sort key come in any order."""
        found: list[Any] = []
        for window in ("all", "a"):
            asked = {":w": {"S": window}}
            pages = [{}]
            while pages:
                page = engine.query(
                    TableName=shares.name,
                    IndexName="ByWindow",
                    KeyConditionExpression="#w = :w",
                    ExpressionAttributeNames={"#w": "Window"},
                    ExpressionAttributeValues=asked,
                    ScanIndexForward=False,
                    Limit=2,
                    **pages.pop(),
                )
                found += [_plain(item) for item in page["Items"]]
                if "LastEvaluatedKey" in page:
                    pages.append({"ExclusiveStartKey": page["LastEvaluatedKey"]})
        counts = [item["Plays"] for item in found]
        return [counts, sorted(found, key=lambda item: (item["genre"], item["label"]))]


def _answer(engine: Any, operation: str, arguments: dict[str, Any]) -> Any:
    try:
        return getattr(engine, operation)(**arguments)
    except ClientError as error:
        return error


def _comparable(answer: Any) -> dict[str, Any]:
    """What of an answer both have to agree on: numbers by value, sets without an order."""
    failed = isinstance(answer, ClientError)
    response = answer.response if failed else answer
    found = {name: _plain(response[name]) for name in SHOWN if name in response}
    if "Items" in response:
        found["Items"] = [_plain(item) for item in response["Items"]]
    return found | {"code": answer.response["Error"]["Code"] if failed else "done"}


def _plain(part: Any) -> Any:
    return decode_item(part) if isinstance(part, dict) else part


# -- what is asked --

NAMES = ("a", "b", "c", "d")
groups = st.sampled_from(["jazz", "rock"])
labels = st.sampled_from(["all", "x#all", "y"])
keys = st.builds(lambda group, label: {"genre": {"S": group}, "label": {"S": label}}, groups, labels)

numbers = st.sampled_from(["0", "1", "-1", "2.50", "1E3", "9" * 38, "1E-20"]).map(lambda text: {"N": text})
texts = st.sampled_from(["", "a", "ab", "b", "\uff5e", "\U00010000"]).map(lambda text: {"S": text})
sets = st.sampled_from([{"SS": ["a", "b"]}, {"SS": ["b"]}, {"NS": ["1", "2.5"]}])
others = st.sampled_from([{"B": b"\x00\xff"}, {"BOOL": True}, {"BOOL": False}])
lists = st.lists(numbers | texts, max_size=3).map(lambda members: {"L": members})
maps = st.dictionaries(st.sampled_from(["k", "l"]), numbers | texts, max_size=2).map(lambda members: {"M": members})
values: st.SearchStrategy[Any] = numbers | texts | sets | others | lists | maps
attributes = st.dictionaries(st.sampled_from(NAMES), values, max_size=4)
# What the aggregates keep, of a type that an index refuses as well.
kept = st.fixed_dictionaries(
    {},
    optional={
        "Plays": numbers | texts,
        "Window": texts,
        "Least": numbers,
        "Most": numbers,
        "Total": numbers,
        "m": maps,
        "l": lists,
        MARK: st.sampled_from(["totals", "extremes"]).map(lambda name: {"S": name}),
    },
)
items = st.builds(lambda key, some, more: {**some, **more, **key}, keys, attributes, kept)

UPDATES = [
    "SET {0} = :n",
    "SET {0} = :v",
    "SET {0} = {1}",
    "SET {0} = {1}, {1} = {0}",
    "SET {0} = if_not_exists({0}, :v)",
    "SET {0} = if_not_exists({1}, :n) + :n",
    "SET {0} = {1} + :n",
    "SET {0} = :n - {1}",
    "SET {0} = list_append({0}, :l)",
    "SET l = list_append(:l, if_not_exists(l, :l)), {0} = :v",
    "SET {0} = list_append(:l, if_not_exists({1}, :l))",
    "SET m.k = :v",
    "SET l[0] = :v",
    "SET l[7] = :v, {0} = l[0]",
    "REMOVE {0}",
    "REMOVE {0}, {1}",
    "REMOVE m.k",
    "REMOVE l[1]",
    "REMOVE {0} SET {1} = {0}",
    "ADD {0} :n",
    "ADD {0} :s",
    "ADD {0} :n SET {1} = :v",
    "ADD {0} :n, {1} :s",
    "DELETE {0} :s",
]
# Numbers are compared in the attributes that hold nothing else: moto fails on an order between types, as it does on the
# size of what has none, and finds two missing attributes equal.
CONDITIONS = [
    "attribute_exists({0})",
    "attribute_not_exists({0})",
    "attribute_not_exists(Least) OR Least < :n",
    "attribute_exists(m.k) AND NOT m.k = :v",
    "{0} = :v",
    "{0} <> :v",
    "attribute_exists({0}) AND {0} = {1}",
    "Least >= :n",
    "Least < Most",
    "Most BETWEEN :low AND :n",
    "{0} IN (:v, :n)",
    "begins_with({0}, :t)",
    "contains({0}, :t)",
    "attribute_type({0}, :type)",
    "NOT ({0} = :v OR Least > :n)",
]


@st.composite
def placeholders(draw: st.DrawFn, **templates: str) -> dict[str, Any]:
    """Expressions on two attributes, with what they have to be given."""
    names = draw(st.permutations(NAMES))[:2]
    texts_ = {parameter: template.format("#x", "#y") for parameter, template in templates.items()}
    used = " ".join(texts_.values())
    given = {
        ":n": numbers,
        ":v": values,
        ":l": lists,
        ":s": sets,
        ":t": texts,
        ":type": st.sampled_from(["S", "N", "L", "SS", "BOOL"]).map(lambda text: {"S": text}),
        ":low": st.just({"N": "-1"}),  # not above any of the numbers
    }
    words = set(used.replace("(", " ").replace(")", " ").replace(",", " ").split())
    found = {name: draw(strategy) for name, strategy in given.items() if name in words}
    arguments: dict[str, Any] = dict(texts_)
    named = {name: attribute for name, attribute in zip(("#x", "#y"), names, strict=True) if name in used}
    if named:
        arguments["ExpressionAttributeNames"] = named
    if found:
        arguments["ExpressionAttributeValues"] = found
    return arguments


@st.composite
def conditional(draw: st.DrawFn) -> dict[str, Any]:
    """No condition, or one."""
    if draw(st.booleans()):
        return {}
    shown = draw(st.sampled_from(["NONE", "ALL_OLD"]))
    asked = draw(placeholders(ConditionExpression=draw(st.sampled_from(CONDITIONS))))
    return asked | {"ReturnValuesOnConditionCheckFailure": shown}


@st.composite
def puts(draw: st.DrawFn) -> Any:
    more = draw(conditional()) | {"ReturnValues": draw(st.sampled_from(["NONE", "ALL_OLD"]))}
    item = draw(items)
    if "ConditionExpression" in more and "S" in item.get("Plays", {}):
        del item["Plays"]  # which of two errors it is: the service looks at the request first
    return "put_item", {"TableName": shares.name, "Item": item, **more}


@st.composite
def deletes(draw: st.DrawFn) -> Any:
    more = draw(conditional()) | {"ReturnValues": draw(st.sampled_from(["NONE", "ALL_OLD"]))}
    return "delete_item", {"TableName": shares.name, "Key": draw(keys), **more}


@st.composite
def updates(draw: st.DrawFn) -> Any:
    templates = {"UpdateExpression": draw(st.sampled_from(UPDATES))}
    if "SET" not in templates["UpdateExpression"] and "ADD" not in templates["UpdateExpression"]:
        # moto makes an item that is not there.
        templates["ConditionExpression"] = "attribute_exists(genre)"
    elif draw(st.booleans()):
        templates["ConditionExpression"] = draw(st.sampled_from(CONDITIONS))
    more = draw(placeholders(**templates))
    more["ReturnValues"] = draw(st.sampled_from(["NONE", "ALL_OLD", "ALL_NEW"]))
    more["ReturnValuesOnConditionCheckFailure"] = draw(st.sampled_from(["NONE", "ALL_OLD"]))
    return "update_item", {"TableName": shares.name, "Key": draw(keys), **more}


gets = keys.map(lambda key: ("get_item", {"TableName": shares.name, "Key": key}))


@st.composite
def queries(draw: st.DrawFn) -> Any:
    sort = draw(st.sampled_from(["", "", " AND label = :l", " AND label > :l", " AND begins_with(label, :l)"]))
    arguments: dict[str, Any] = {
        "TableName": shares.name,
        "KeyConditionExpression": f"genre = :g{sort}",
        "ExpressionAttributeValues": {":g": {"S": draw(groups)}} | ({":l": {"S": draw(labels)}} if sort else {}),
        "ScanIndexForward": draw(st.booleans()),
    }
    if draw(st.booleans()):
        arguments["Limit"] = draw(st.integers(1, 3))
    if draw(st.booleans()):
        arguments["ExclusiveStartKey"] = {
            "genre": arguments["ExpressionAttributeValues"][":g"],
            "label": {"S": draw(labels)},
        }
    return "query", arguments


@st.composite
def batches(draw: st.DrawFn) -> Any:
    """An aggregate's share of a batch, early ones as a redelivery has them; written as the product does."""
    aggregation = draw(st.sampled_from([Totals, Extremes]))._declaration
    sequences = sorted(draw(st.sets(st.integers(10**21, 10**21 + 12), min_size=1, max_size=4)))
    amount = st.integers(-20, 20)
    contributions = []
    for sequence in sequences:
        adds = aggregation.changes == "inserts" or draw(st.booleans())
        sign = 1 if adds else -1
        measured = [draw(amount)] * 3 if aggregation.name == "extremes" else [sign, sign * draw(amount)]
        contributions.append((sequence, adds, tuple(measured)))
    lane = draw(st.sampled_from(["sf~aaaaaaaa", "sf~bbbbbbbb", "sf~cccccccc", "sf~dddddddd"]))
    update = Update(aggregation, draw(groups), "all", 0, lane, tuple(contributions))
    return update, draw(st.sampled_from([420_000, 420_000, 420_060])) * 3600.0


@pytest.fixture(scope="module")
def moto() -> Iterator[Moto]:
    with Moto() as moto:
        yield moto


@settings(max_examples=40)
@given(
    steps=st.lists(puts() | updates() | deletes() | gets | queries() | batches() | batches(), min_size=8, max_size=24)
)
def test_both_engines_answer_any_sequence_of_requests_alike(moto: Moto, steps: list[Any]) -> None:
    client = moto.client(metered=True)
    client.create_table(**CREATE)
    try:
        both, before = Both(client), moto.meter.wcu
        for first, second in steps:
            if isinstance(first, Update):
                # The write that the plan asks for, and all that follows when it is refused.
                (settled,) = Delivery(both, connections=1, now=lambda now=second: now).deliver(
                    [first], Terms(deadline=inf, accept_misfits=True)
                )
                assert settled.error == ""
            else:
                with suppress(ClientError):
                    getattr(both, first)(**second)
        assert both.memory.wcu == moto.meter.wcu - before
        assert both.entries(both.memory) == both.entries(client)
    finally:
        client.delete_table(TableName=shares.name)
