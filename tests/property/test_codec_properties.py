"""Round trips: any item that the service accepts goes through unchanged, both ways.

The oracles are independent of the codec: `Fraction` for the value of a number, the `json` module for lines of
JSON, and boto3's own serializers where those are right (they refuse long numbers with idle zeros and the
least numbers, and do not read the base64 of an event).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from hypothesis import example, given, settings
from hypothesis import strategies as st

from framework.codec import (
    decode,
    decode_item,
    encode,
    encode_item,
    from_event,
    number,
    number_text,
    plain_json,
    to_event,
    to_plain,
)
from framework.errors import BadValueError

thoroughly = settings(max_examples=100, deadline=None)

LEAST, TOO_LARGE = Fraction(10) ** -130, Fraction(10) ** 126


@st.composite
def decimals(draw: st.DrawFn, low: int = -130, high: int = 125) -> Decimal:
    """A number of the service: 1 to 38 digits, the first of them at 10**low to 10**high; 0 too."""
    digits = draw(st.text("0123456789", min_size=1, max_size=38)).lstrip("0")
    first = draw(st.integers(low, high) | st.sampled_from([low, high, 0]))
    return Decimal(f"{draw(st.sampled_from(['', '-']))}{digits or 0}E{first - len(digits) + 1}" if digits else "0")


def spellings(value: Decimal) -> st.SearchStrategy[str]:
    """Texts of the same number."""
    plain = format(value, "f")
    sign, digits = ("-", plain[1:]) if plain.startswith("-") else ("", plain)
    idle = digits + "000" if "." in digits else digits + ".000"
    exponent = f"{value:E}"
    return st.sampled_from([plain, exponent, exponent.lower(), f"{sign}00{digits}", sign + idle, f"{sign}{digits}E0"])


texts = st.text(max_size=8)  # Hypothesis leaves out halves of surrogate pairs
binaries = st.binary(max_size=8)
names = st.text(min_size=1, max_size=5) | st.sampled_from(["a.b", "a[0]", "\\", "S"])


def python_values(numbers: st.SearchStrategy[Decimal]) -> st.SearchStrategy[Any]:
    """Whatever `decode` can give."""
    scalars = st.none() | st.booleans() | texts | binaries | numbers
    sets = st.one_of([st.frozensets(members, min_size=1, max_size=4) for members in (texts, binaries, numbers)])
    return st.recursive(
        scalars | sets,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
        max_leaves=8,
    )


values = python_values(decimals())
items = st.dictionaries(names, values, max_size=4)


@st.composite
def event_values(draw: st.DrawFn) -> dict[str, Any]:
    """A raw value as in an event: base64 text, numbers and sets in any spelling and order."""
    return respelled(draw, encode(draw(values)))


def respelled(draw: st.DrawFn, raw: dict[str, Any]) -> dict[str, Any]:
    ((tag, under),) = raw.items()
    match tag:
        case "N":
            return {tag: draw(spellings(Decimal(under)))}
        case "NS":
            return {tag: [draw(spellings(Decimal(member))) for member in draw(st.permutations(under))]}
        case "SS":
            return {tag: draw(st.permutations(under))}
        case "B":
            return {tag: base64.b64encode(under).decode()}
        case "BS":
            return {tag: [base64.b64encode(member).decode() for member in draw(st.permutations(under))]}
        case "L":
            return {tag: [respelled(draw, member) for member in under]}
        case "M":
            return {tag: {name: respelled(draw, member) for name, member in under.items()}}
    return raw


images = st.dictionaries(names, event_values(), max_size=3)


@thoroughly
@given(values)
def test_a_python_value_comes_back_equal_and_of_the_same_type(value: Any) -> None:
    back = decode(encode(value))
    assert back == value
    assert shape(back) == shape(value)


def shape(value: Any) -> Any:
    """The types in a value: True == 1 and {} == {} would hide a change of type."""
    if isinstance(value, dict):
        return {name: shape(member) for name, member in value.items()}
    if isinstance(value, list):
        return [shape(member) for member in value]
    return (
        (type(value), *sorted({type(member).__name__ for member in value}))
        if isinstance(value, frozenset)
        else type(value)
    )


@thoroughly
@given(items)
def test_a_raw_item_in_the_one_form_comes_back_to_the_letter(item: dict[str, Any]) -> None:
    raw = encode_item(item)
    assert decode_item(raw) == item
    assert repr(encode_item(decode_item(raw))) == repr(raw)


@thoroughly
@given(images)
def test_an_event_image_comes_back_to_the_letter_and_means_the_same_either_way(image: dict[str, Any]) -> None:
    before = json.dumps(image)
    client = from_event(image)
    assert json.dumps(to_event(client)) == before
    assert json.dumps(image) == before
    assert decode_item(client) == decode_item(image)
    assert encode_item(decode_item(image)) == encode_item(decode_item(client))


@thoroughly
@given(decimals().flatmap(spellings))
@example("1E-130")
@example("-1E-130")
@example(f"9.{'9' * 37}E+125")
@example(f"-9.{'9' * 37}E+125")
@example("9" * 38)
@example("-0." + "9" * 38)
@example("1234567890123456789.1234567890123456789")
def test_a_number_keeps_its_exact_value(text: str) -> None:
    assert Fraction(number(text)) == Fraction(text)
    canonical = number_text(number(text))
    assert Fraction(canonical) == Fraction(text)
    assert number_text(number(canonical)) == canonical
    assert set(canonical) <= set("-.0123456789")
    assert "." not in canonical or canonical[-1] in "123456789"


@thoroughly
@given(decimals().flatmap(lambda value: st.lists(spellings(value), min_size=2, max_size=4)))
def test_equal_numbers_are_written_the_same(same: list[str]) -> None:
    assert len({number_text(number(text)) for text in same}) == 1
    assert len({number(text) for text in same}) == 1


@thoroughly
@given(
    st.sampled_from(["", "-", "+"]),
    st.text("0123456789", min_size=1, max_size=45) | st.integers(1, 9).map(lambda d: f"{d}{'0' * 37}{d}"),
    st.integers(-180, 140) | st.integers(-131, -129) | st.integers(124, 127),
)
@example("", "1", 126)
@example("-", "1", -131)
@example("", "1" * 39, 0)
@example("", "9" * 38, 88)
def test_a_number_is_accepted_exactly_when_the_service_can_hold_it(sign: str, digits: str, exponent: int) -> None:
    text = f"{sign}{digits}E{exponent}"
    exact = abs(Fraction(text))
    if exact == 0 or (len(digits.strip("0")) <= 38 and LEAST <= exact < TOO_LARGE):
        assert Fraction(number(text)) == Fraction(text)
        return
    with pytest.raises(BadValueError, match=r"38 significant digits|magnitude"):
        number(text)
    with pytest.raises(BadValueError, match=r"38 significant digits|magnitude"):
        number_text(Decimal(text))


@thoroughly
@given(st.integers(-(10**40), 10**40) | st.integers(1, 9).map(lambda digit: digit * 10**125))
def test_an_int_is_written_as_its_digits_or_refused(value: int) -> None:
    if len(str(abs(value)).rstrip("0")) <= 38:
        assert number_text(value) == str(value)
        assert encode(value) == encode(Decimal(value)) == {"N": str(value)}
    else:
        with pytest.raises(BadValueError, match="38 significant digits"):
            number_text(value)


@thoroughly
@given(st.text(max_size=6) | st.text("0123456789+-.eE_ ", max_size=6))
def test_any_text_is_a_number_or_a_clear_refusal(text: str) -> None:
    value, message = attempt(number, text)
    assert message.startswith("expected a number") if message else Fraction(value) == Fraction(text)


def attempt(read: Callable[[Any], Any], raw: Any) -> tuple[Any, str]:
    """What was read and no message, or nothing and the message of the refusal."""
    try:
        return read(raw), ""
    except BadValueError as error:
        return None, str(error)


tags = st.sampled_from(["S", "N", "B", "BOOL", "NULL", "SS", "NS", "BS", "L", "M", "X"])
nearly_raw = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "1", "1.0", "AQ=="]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(tags, inner, max_size=2),
    max_leaves=5,
)


@settings(max_examples=500, deadline=None)
@given(st.dictionaries(tags, nearly_raw, min_size=1, max_size=1) | nearly_raw)
def test_any_json_is_a_raw_value_or_a_clear_refusal(raw: Any) -> None:
    value, message = attempt(decode, raw)
    assert re.match(r"(at '.+': )?expected .+, came ", message) if message else decode(encode(value)) == value


@thoroughly
@given(items)
def test_a_line_of_plain_json_holds_every_number_exactly(item: dict[str, Any]) -> None:
    line = plain_json(encode_item(item))
    assert line.isascii()
    assert len(line.splitlines()) == 1
    read = json.loads(line, parse_int=Decimal, parse_float=Decimal)
    assert list(read) == list(item)
    assert read == {name: to_plain(raw) for name, raw in encode_item(item).items()}


# boto3 reads exponents through a context whose limits are not the service's, so these keep off the limits.
boto3_values = python_values(decimals(low=-80, high=80))


@thoroughly
@given(boto3_values)
def test_what_boto3_serializes_decodes_as_boto3_deserializes_it(value: Any) -> None:
    raw = TypeSerializer().serialize(value)
    assert decode(raw) == TypeDeserializer().deserialize(raw) == value


@thoroughly
@given(boto3_values)
def test_encoding_agrees_with_boto3_but_for_the_form_of_numbers_and_the_order_of_sets(value: Any) -> None:
    assert in_one_form(TypeSerializer().serialize(value)) == encode(value)


def in_one_form(raw: dict[str, Any]) -> dict[str, Any]:
    """Numbers without exponent or idle zeros, sets sorted: by the standard library alone."""
    ((tag, under),) = raw.items()
    match tag:
        case "N":
            return {tag: plain_number(under)}
        case "NS":
            return {tag: [plain_number(member) for member in sorted(under, key=Fraction)]}
        case "SS" | "BS":
            return {tag: sorted(under)}
        case "L":
            return {tag: [in_one_form(member) for member in under]}
        case "M":
            return {tag: {name: in_one_form(member) for name, member in under.items()}}
    return raw


def plain_number(text: str) -> str:
    plain = format(Decimal(text), "f")
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return "0" if plain == "-0" else plain
