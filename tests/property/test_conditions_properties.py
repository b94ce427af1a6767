"""Any condition on any item: against a second evaluator, and by the laws of logic."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from framework.codec import Value, decode_item, encode_item, to_event
from framework.conditions import And, AnyOf, BeginsWith, Between, Comparison, Condition, Exists, Not, Or, attr

NAMES = ["a", "b", "c"]
PATHS = [*NAMES, "m.a", "l[0]"]

# Few values, so that they meet: equal in Python but not in DynamoDB, and the other way round.
text = st.sampled_from(["", "a", "ab", "b", "é", "1"])
numbers = st.sampled_from([0, 1, -1, Decimal("1.0"), Decimal("1E+20"), 10**20, Decimal("0.1"), Decimal("-0")])
binary = st.sampled_from([b"", b"a", b"ab", b"\xff"])
scalars: st.SearchStrategy[Any] = text | numbers | binary | st.booleans() | st.none()
ordered: st.SearchStrategy[Any] = text | numbers | binary

items = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(NAMES, scalars),
        "m": st.fixed_dictionaries({}, optional={"a": scalars}),
        "l": st.lists(scalars, max_size=1),
    },
)


def in_order(bounds: tuple[Any, Any]) -> bool:
    low, high = bounds
    return kind(low) == kind(high) and low <= high


def kind(value: object) -> str:
    """The DynamoDB type of a scalar."""
    return {str: "S", int: "N", Decimal: "N", bytes: "B", bool: "BOOL", type(None): "NULL"}[type(value)]


paths = st.sampled_from(PATHS)
leaves: st.SearchStrategy[Condition] = st.one_of(
    st.builds(lambda path, value: attr(path).equals(value), paths, scalars),
    st.builds(lambda path, value: attr(path).not_equals(value), paths, scalars),
    st.builds(
        lambda path, method, value: getattr(attr(path), method)(value),
        paths,
        st.sampled_from(["lt", "le", "gt", "ge"]),
        ordered,
    ),
    st.builds(lambda path, bounds: attr(path).between(*bounds), paths, st.tuples(ordered, ordered).filter(in_order)),
    st.builds(lambda path, values: attr(path).any_of(values), paths, st.lists(scalars, min_size=1, max_size=3)),
    st.builds(lambda path, value: attr(path).begins_with(value), paths, text | binary),
    st.builds(lambda path: attr(path).exists(), paths),
    st.builds(lambda path: attr(path).not_exists(), paths),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
    ),
    max_leaves=6,
)


def holds(condition: Condition, item: dict[str, Value]) -> bool:
    """A second, slow evaluator: on Python values in place of raw ones."""
    match condition:
        case And(parts):
            return all(holds(part, item) for part in parts)
        case Or(parts):
            return any(holds(part, item) for part in parts)
        case Not(part):
            return not holds(part, item)
        case Exists(path):
            return bool(find(path, item))
        case Comparison(path, sign, operand):
            return any(compare(value, sign, operand.value) for value in find(path, item))
        case AnyOf(path, operands):
            return any(compare(value, "=", each.value) for value in find(path, item) for each in operands)
        case Between(path, low, high):
            return any(
                compare(value, ">=", low.value) and compare(value, "<=", high.value) for value in find(path, item)
            )
        case BeginsWith(path, prefix):
            return any(
                kind(value) == prefix.type and value[: len(prefix.value)] == prefix.value  # type: ignore
                for value in find(path, item)
            )
    raise AssertionError(condition)


def find(path: str, item: Any) -> list[Any]:
    """The value at a path as a list of one, or an empty list."""
    match path:
        case "m.a":
            return [item["m"]["a"]] if "a" in item.get("m", {}) else []
        case "l[0]":
            return item.get("l", [])[:1]
    return [item[path]] if path in item else []


def compare(value: Any, sign: str, operand: Any) -> bool:
    if kind(value) != kind(operand):
        return False
    match sign:
        case "=":
            return bool(value == operand)
        case "<":
            return bool(value < operand)
        case "<=":
            return bool(value <= operand)
        case ">":
            return bool(value > operand)
    return bool(value >= operand)


def raw(item: dict[str, Any]) -> dict[str, Any]:
    return encode_item(item)


@given(conditions, items)
def test_a_compiled_condition_agrees_with_a_slow_evaluator(condition: Condition, item: dict[str, Any]) -> None:
    expected = holds(condition, decode_item(raw(item)))
    predicate = condition.compile()
    assert predicate(raw(item)) is expected
    assert predicate(to_event(raw(item))) is expected


@given(conditions, items)
def test_the_complement_holds_exactly_where_the_condition_does_not(condition: Condition, item: Any) -> None:
    assert (~condition).compile()(raw(item)) is not condition.compile()(raw(item))
    assert ~~condition == condition


names = st.sampled_from(["a", "b", "a.b", "l[0]", "\\", "0"])
sets = st.one_of(*(st.frozensets(each, min_size=1, max_size=2) for each in (text, numbers, binary)))
nested: st.SearchStrategy[Any] = st.recursive(
    scalars | sets,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def places(draw: st.DrawFn) -> tuple[dict[str, Any], str, list[Any]]:
    """An item, a path of up to four steps, and what is found there by walking: a list of one, or an empty one."""
    item = draw(st.dictionaries(names, nested, min_size=1, max_size=3))
    found: list[Any] = [item]
    path = ""
    for depth in range(draw(st.integers(1, 4))):
        here = found[0] if found else None
        # Most steps lead somewhere, some do not.
        if depth and draw(st.booleans() if not isinstance(here, list | dict) else st.just(isinstance(here, list))):
            index = draw(st.integers(0, 1))
            path += f"[{index}]"
            found = here[index : index + 1] if isinstance(here, list) else []
            continue
        there = sorted(here) if isinstance(here, dict) else []
        name = draw(st.sampled_from(there) | names if there else names)
        path += ("." if depth else "") + "".join("\\" * (sign in ".[]\\") + sign for sign in name)
        found = [here[name]] if isinstance(here, dict) and name in here else []
    return item, path, found


@given(places(), st.data())
def test_a_path_leads_to_the_value_that_walking_there_finds_however_its_names_are_written(
    place: tuple[dict[str, Any], str, list[Any]], data: st.DataObject
) -> None:
    item, path, found = place
    image = encode_item(item)
    asked = [
        (attr(path).exists(), bool(found)),
        (attr(path).not_exists(), not found),
    ]
    value = found[0] if found and isinstance(found[0], str | int | Decimal | bytes | None) else data.draw(scalars)
    same = bool(found) and not isinstance(found[0], list | dict | frozenset) and compare(found[0], "=", value)
    asked += [
        (attr(path).equals(value), same),
        (attr(path).not_equals(value), not same),
        (attr(path).any_of(value), same),
    ]
    for condition, expected in asked:
        for form in (image, to_event(image)):
            assert condition.compile()(form) is expected
            assert (~condition).compile()(form) is not expected
        assert eval(repr(condition), {"attr": attr, "Decimal": Decimal}) == condition
        assert path in condition.text()


@given(conditions, conditions, items)
def test_conditions_obey_de_morgan(a: Condition, b: Condition, item: Any) -> None:
    image = raw(item)
    assert (~(a & b)).compile()(image) is (~a | ~b).compile()(image)
    assert (~(a | b)).compile()(image) is (~a & ~b).compile()(image)


@given(conditions, conditions, conditions)
def test_brackets_make_no_difference_to_one_sign(a: Condition, b: Condition, c: Condition) -> None:
    assert (a & b) & c == a & (b & c)
    assert (a | b) | c == a | (b | c)


@given(paths, ordered, items)
def test_an_ordered_value_is_less_equal_or_greater_than_one_of_its_type(path: str, value: Any, item: Any) -> None:
    image = raw(item)
    held = [getattr(attr(path), name)(value).compile()(image) for name in ("lt", "equals", "gt")]
    found = find(path, decode_item(image))
    assert sum(held) == (bool(found) and kind(found[0]) == kind(value))


@given(conditions)
def test_the_repr_of_a_condition_makes_it_again(condition: Condition) -> None:
    again = eval(repr(condition), {"attr": attr, "Decimal": Decimal})
    assert again == condition
    assert again.text() == condition.text()
    assert hash(again) == hash(condition)
