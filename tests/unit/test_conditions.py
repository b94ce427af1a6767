"""Conditions: what they hold for, how they read, and what is refused when they are made."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from framework.conditions import And, Comparison, Condition, Not, Operand, Or, attr
from framework.errors import DeclarationError
from framework.paths import getter, parse

ITEM: dict[str, dict[str, Any]] = {
    "s": {"S": "download-1"},
    "empty": {"S": ""},
    "umlaut": {"S": "\uff5e"},  # before any character beyond U+FFFF in UTF-8, but after it in UTF-16
    "n": {"N": "5.0"},
    "long": {"N": "0.12345678901234567890123456789012345678"},
    "b": {"B": "/w=="},  # 0xff, as an event has it
    "raw": {"B": b"\xff"},  # and as a client has it
    "yes": {"BOOL": True},
    "no": {"BOOL": False},
    "null": {"NULL": True},
    "l": {"L": [{"S": "a"}, {"M": {"k": {"N": "1"}}}]},
    "m": {"M": {"city": {"S": "Rome"}, "a.b": {"S": "dotted"}, "0": {"S": "zero"}}},
    "weird.name[0]\\": {"S": "weird"},
    "ss": {"SS": ["a"]},
}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (attr("s").equals("download-1"), True),
        (attr("s").equals("download"), False),
        (attr("empty").equals(""), True),
        (attr("missing").equals(""), False),
        (attr("n").equals("5.0"), False),
        (attr("n").equals(5), True),
        (attr("n").equals(Decimal("5.00")), True),
        (attr("s").equals(5), False),
        (attr("long").equals(Decimal("0.12345678901234567890123456789012345678")), True),
        (attr("long").equals(Decimal("0.12345678901234567890123456789012345679")), False),
        (attr("long").lt(Decimal("0.12345678901234567890123456789012345679")), True),
        (attr("b").equals(b"\xff"), True),
        (attr("raw").equals(b"\xff"), True),
        (attr("b").equals("/w=="), False),
        (attr("b").equals(bytearray(b"\xff")), True),
        (attr("yes").equals(True), True),
        (attr("no").equals(False), True),
        (attr("no").equals(True), False),
        (attr("yes").equals(1), False),
        (attr("n").equals(True), False),
        (attr("null").equals(None), True),
        (attr("missing").equals(None), False),
        (attr("no").equals(None), False),
        (attr("ss").equals("a"), False),
        # not_equals is the complement, missing attributes included.
        (attr("s").not_equals("download-1"), False),
        (attr("s").not_equals("x"), True),
        (attr("missing").not_equals("x"), True),
        (attr("n").not_equals("5"), True),
        (attr("s").any_of("x", "download-1"), True),
        (attr("s").any_of(["x", "download-1"]), True),
        (attr("s").any_of("x"), False),
        (attr("missing").any_of("x", "y"), False),
        (attr("n").any_of("5", 5), True),
        (attr("n").any_of("5", 6), False),
        (attr("yes").any_of(1, "x"), False),
        (attr("null").any_of("x", None), True),
        (attr("l").any_of("x", 1, None), False),
        (attr("s").begins_with("download-"), True),
        (attr("s").begins_with("upload-"), False),
        (attr("s").begins_with(""), True),
        (attr("missing").begins_with(""), False),
        (attr("missing").begins_with("d"), False),
        (attr("n").begins_with("5"), False),
        (attr("b").begins_with(b"\xff"), True),
        (attr("raw").begins_with(b"\xfe"), False),
        (attr("b").begins_with("/"), False),
        (attr("s").exists(), True),
        (attr("null").exists(), True),
        (attr("empty").exists(), True),
        (attr("missing").exists(), False),
        (attr("missing").not_exists(), True),
        (attr("null").not_exists(), False),
        (attr("n").lt(5), False),
        (attr("n").lt(6), True),
        (attr("n").lt(10), True),  # as text "10" would come before "5"
        (attr("n").le(5), True),
        (attr("n").le(4), False),
        (attr("n").gt(5), False),
        (attr("n").gt(Decimal("4.9")), True),
        (attr("n").ge(5), True),
        (attr("n").ge(Decimal("5.1")), False),
        (attr("n").lt("6"), False),
        (attr("missing").lt(6), False),
        (attr("missing").ge(6), False),
        (attr("s").lt("download-10"), True),
        (attr("s").gt("download"), True),
        (attr("umlaut").lt("\U00010000"), True),
        (attr("b").gt(b"\x01\x02"), True),
        (attr("raw").lt(b"\x01"), False),
        (attr("n").between(5, 5), True),
        (attr("n").between(1, Decimal("4.99")), False),
        (attr("n").between(6, 10), False),
        (attr("s").between("a", "e"), True),
        (attr("s").between("a", "d"), False),
        (attr("n").between("1", "9"), False),
        (attr("b").between(b"\x00", b"\xff\x00"), True),
        (attr("missing").between(1, 2), False),
        # Paths.
        (attr("m.city").equals("Rome"), True),
        (attr("m.city").begins_with("R"), True),
        (attr("m.city").any_of("Rome", "Paris"), True),
        (attr("m.city").exists(), True),
        (attr("m.town").exists(), False),
        (attr("m.town").not_exists(), True),
        (attr("m.city.name").exists(), False),
        (attr("l[0]").equals("a"), True),
        (attr("l[1].k").equals(1), True),
        (attr("l[2]").exists(), False),
        (attr("l.k").exists(), False),
        (attr("m[0]").exists(), False),
        (attr("m.0").equals("zero"), True),
        (attr("missing.a[0]").exists(), False),
        (attr("missing.a[0]").not_equals(1), True),
        (attr(r"m.a\.b").equals("dotted"), True),
        (attr(r"weird\.name\[0\]\\").equals("weird"), True),
        # Composition.
        (attr("s").exists() & attr("n").equals(5), True),
        (attr("s").exists() & attr("n").equals(6), False),
        (attr("missing").exists() & attr("n").equals(5), False),
        (attr("s").exists() & attr("n").exists() & attr("missing").exists(), False),
        (attr("s").exists() & attr("n").exists() & attr("b").exists(), True),
        (attr("missing").exists() | attr("n").equals(5), True),
        (attr("missing").exists() | attr("n").equals(6), False),
        (attr("n").equals(6) | attr("n").equals(7) | attr("n").equals(5), True),
        (~(attr("s").exists() & attr("missing").exists()), True),
        (~attr("s").exists() | attr("missing").exists(), False),
        (~~attr("s").exists(), True),
    ],
    ids=repr,
)
def test_a_condition_holds_for_an_item_as_in_dynamodb(condition: Condition, holds: bool) -> None:
    assert condition.compile()(ITEM) is holds
    assert (~condition).compile()(ITEM) is not holds


# A value of every type as a client has it, with an operand that equals it where there can be one.
VALUES: dict[str, tuple[dict[str, Any], Any]] = {
    "S": ({"S": "1"}, "1"),
    "N": ({"N": "1"}, 1),
    "B": ({"B": b"1"}, b"1"),
    "BOOL": ({"BOOL": True}, True),
    "NULL": ({"NULL": True}, None),
    "SS": ({"SS": ["1"]}, ...),
    "NS": ({"NS": ["1"]}, ...),
    "BS": ({"BS": [b"1"]}, ...),
    "L": ({"L": [{"S": "1"}]}, ...),
    "M": ({"M": {"1": {"S": "1"}}}, ...),
    "missing": ({}, ...),
}
OPERATORS: dict[str, tuple[set[str], Callable[[Any, Any], Condition]]] = {
    "equals": ({"S", "N", "B", "BOOL", "NULL"}, lambda a, v: a.equals(v)),
    "any_of": ({"S", "N", "B", "BOOL", "NULL"}, lambda a, v: a.any_of(v)),
    "begins_with": ({"S", "B"}, lambda a, v: a.begins_with(v)),
    "le": ({"S", "N", "B"}, lambda a, v: a.le(v)),
    "ge": ({"S", "N", "B"}, lambda a, v: a.ge(v)),
    "between": ({"S", "N", "B"}, lambda a, v: a.between(v, v)),
}


@pytest.mark.parametrize("path", ["t", "m.t", "l[1]", r"m\.t[0].t"])
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator_holds_only_for_a_value_of_its_operands_type(operator: str, kind: str, path: str) -> None:
    types, make = OPERATORS[operator]
    value = VALUES[kind][0]
    item: dict[str, Any] = {
        "t": {"t": value},
        "m.t": {"m": {"M": {"t": value}}},
        "l[1]": {"l": {"L": [{"NULL": True}, value]}},
        r"m\.t[0].t": {"m.t": {"L": [{"M": {"t": value}}]}},
    }[path]
    if kind == "missing":
        item = {}
    for type_ in types:
        condition = make(attr(path), VALUES[type_][1])
        assert condition.compile()(item) is (type_ == kind)
        assert (~condition).compile()(item) is (type_ != kind)
    for strict in ("lt", "gt"):
        for type_ in ("S", "N", "B"):
            assert not getattr(attr(path), strict)(VALUES[type_][1]).compile()(item)
    assert attr(path).exists().compile()(item) is (kind != "missing")
    assert attr(path).not_exists().compile()(item) is (kind == "missing")


READINGS = [
    (attr("SK").begins_with("download-"), 'SK begins with "download-"'),
    (attr("status").equals('say "é"'), 'status = "say \\"é\\""'),
    (attr("n").equals(5), "n = 5"),
    (attr("n").le(Decimal("1.50")), "n <= 1.5"),
    (attr("n").lt(1), "n < 1"),
    (attr("n").gt(1), "n > 1"),
    (attr("n").ge(-1), "n >= -1"),
    (attr("n").between(1, 5), "n between 1 and 5"),
    (attr("b").equals(b"\x01\x02"), 'b = binary "AQI="'),
    (attr("x").equals(True), "x = true"),
    (attr("x").equals(None), "x = null"),
    (attr("x").any_of("a", 1, False), 'x in ("a", 1, false)'),
    (attr("a.b[0]").exists(), "a.b[0] exists"),
    (attr("a").not_exists(), "not (a exists)"),
    (attr("a").not_equals("x"), 'not (a = "x")'),
    (~attr("a").begins_with("x"), 'not (a begins with "x")'),
    (
        attr("SK").begins_with("download-") & (attr("status").equals("open") | ~attr("n").exists()),
        'SK begins with "download-" and (status = "open" or not (n exists))',
    ),
    (attr("a").exists() & attr("b").exists() | attr("c").exists(), "(a exists and b exists) or c exists"),
    (~(attr("a").exists() | attr("b").exists()), "not (a exists or b exists)"),
]


@pytest.mark.parametrize(("condition", "text"), READINGS)
def test_a_condition_reads_as_a_person_would_say_it(condition: Condition, text: str) -> None:
    assert condition.text() == text


@pytest.mark.parametrize("condition", [condition for condition, _ in READINGS], ids=repr)
def test_the_repr_of_a_condition_is_its_source(condition: Condition) -> None:
    assert eval(repr(condition), {"attr": attr, "Decimal": Decimal}) == condition


@pytest.mark.parametrize(
    ("condition", "source"),
    [
        (
            attr("SK").begins_with("a") & attr("n").not_equals(5),
            "attr('SK').begins_with('a') & attr('n').not_equals(5)",
        ),
        (~(attr("a").exists() | attr("b").not_exists()), "~(attr('a').exists() | attr('b').not_exists())"),
        (~attr("a").any_of("x", 1), "~attr('a').any_of('x', 1)"),
    ],
)
def test_a_repr_has_no_more_brackets_than_it_needs(condition: Condition, source: str) -> None:
    assert repr(condition) == source


def test_conditions_are_plain_values() -> None:
    a, b, c = attr("a").equals("x"), attr("b").equals("y"), attr("c").equals("z")
    assert a == Comparison("a", "=", Operand("S", "x")) != attr("a").equals("y")
    assert (a & b) & c == a & (b & c) == And((a, b, c))
    assert (a | b) | c == a | (b | c) == Or((a, b, c))
    assert a & b != a | b
    assert a & b != b & a
    assert attr("a").not_equals("x") == ~a == Not(a)
    assert attr("a").not_exists() == ~attr("a").exists()
    assert ~~a == a
    assert len({a, attr("a").equals("x"), ~a, a & b}) == 3


def test_operands_that_are_equal_in_python_but_not_in_dynamodb_make_different_conditions() -> None:
    assert attr("a").equals(True) != attr("a").equals(1)
    assert attr("a").any_of(0, 1) != attr("a").any_of(False, True)
    assert attr("a").equals(5) == attr("a").equals(Decimal("5.0"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: attr("x").any_of(), "attr('x').any_of: expected at least one value, came none"),
        (lambda: attr("x").any_of([]), "attr('x').any_of: expected at least one value, came none"),
        (
            lambda: attr("x").any_of({"a"}),
            "attr('x').any_of: expected text, a number, bytes, a boolean or None",
        ),
        (lambda: attr("x").equals(1.5), "attr('x').equals: expected an exact number"),
        (lambda: attr("x").not_equals(1.5), "attr('x').not_equals: expected an exact number"),
        (lambda: attr("x").equals(Decimal("NaN")), "attr('x').equals: "),
        (lambda: attr("x").lt(Decimal("Infinity")), "attr('x').lt: "),
        (lambda: attr("x").equals(10**39 + 1), "attr('x').equals: expected a number of at most 38"),
        (
            lambda: attr("x").equals([1]),
            "attr('x').equals: expected text, a number, bytes, a boolean or None",
        ),
        (lambda: attr("x").equals(object()), "attr('x').equals: "),
        (lambda: attr("x").equals("\ud800"), "attr('x').equals: expected text that UTF-8 can hold"),
        (lambda: attr("x").begins_with(5), "attr('x').begins_with: expected text or bytes, came 5"),
        (lambda: attr("x").begins_with(None), "attr('x').begins_with: expected text or bytes, came None"),
        (lambda: attr("x").lt(True), "attr('x').lt: expected text, a number or bytes, came True"),
        (lambda: attr("x").le(None), "attr('x').le: expected text, a number or bytes, came None"),
        (lambda: attr("x").gt(["a"]), "attr('x').gt: expected text, a number or bytes, came ['a']"),
        (lambda: attr("x").ge(1.0), "attr('x').ge: expected an exact number"),
        (
            lambda: attr("x").between(5, 1),
            "attr('x').between: expected two bounds of one type, the lower one first",
        ),
        (lambda: attr("x").between("a", 5), "came 'a' and 5"),
        (
            lambda: attr("x").between(False, True),
            "attr('x').between: expected text, a number or bytes, came False",
        ),
        (lambda: attr("x").exists() & True, "attr('x').exists() & ...: expected a condition, came True"),
        (
            lambda: attr("x").exists() | attr("y"),
            "attr('x').exists() | ...: expected a condition, came attr('y')",
        ),
        (
            lambda: attr("x").exists() and attr("y").exists(),
            "expected &, | or ~ between conditions, came and, or",
        ),
        (lambda: not attr("x").exists(), "expected &, | or ~ between conditions, came and, or"),
        (
            lambda: attr("x") and attr("y").exists(),
            "expected a condition such as attr('x').exists(), came attr('x')",
        ),
        (lambda: attr(""), "attr: path: expected names and indexes such as 'address.city' or 'tags[0]'"),
        (lambda: attr(5), "attr: path: expected names and indexes"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_condition_is_refused_when_it_is_made(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(message)):
        make()


def test_a_condition_on_binary_holds_for_an_event_and_for_a_client_alike() -> None:
    at_least = attr("b").ge(b"\x80").compile()
    for value in (b"", b"\x7f\xff", b"\x80", b"\xff"):
        held = [at_least({"b": {"B": raw}}) for raw in (value, base64.b64encode(value).decode())]
        assert held == [value >= b"\x80"] * 2


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("SK", ("SK",)),
        ("address.city", ("address", "city")),
        ("tags[0]", ("tags", 0)),
        ("a[10][2].b.c[0]", ("a", 10, 2, "b", "c", 0)),
        ("0.1", ("0", "1")),
        ("with space.ü", ("with space", "ü")),
        (r"weird\.name", ("weird.name",)),
        (r"a\[0\].b\\", ("a[0]", "b\\")),
        (r"\..\.", (".", ".")),
    ],
)
def test_a_path_is_taken_apart_into_names_and_indexes(path: str, steps: tuple[str | int, ...]) -> None:
    assert parse(path) == steps


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "[0]",
        "a[]",
        "a[x]",
        "a[-1]",
        "a[0",
        "a]",
        "a[0]b",
        "a.[0]",
        "a\\",
        r"\a",
        "a[٣]",
    ],
)
def test_what_is_not_a_path_is_refused(path: str) -> None:
    with pytest.raises(DeclarationError, match=rf"came {re.escape(repr(path))}$"):
        getter(path)
