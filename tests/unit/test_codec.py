"""The codec's rules as tables; tests/property/test_codec_properties.py has the round trips."""

from __future__ import annotations

import json
from collections import OrderedDict
from decimal import Context, Decimal, Inexact, Rounded, localcontext
from typing import Any

import pytest

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

NINES = "9" * 38
LARGEST = NINES + "0" * 88  # 9.99E+125 with all its nines


def nested(maps: int, leaf: dict[str, Any] | None = None) -> dict[str, Any]:
    """A raw value inside so many maps."""
    value = leaf or {"S": "leaf"}
    for _ in range(maps):
        value = {"M": {"n": value}}
    return value


BOTH_WAYS = [
    ({"S": "download-1"}, "download-1"),
    ({"S": ""}, ""),
    ({"S": "naïve 東京 🎵"}, "naïve 東京 🎵"),
    ({"N": "5"}, Decimal(5)),
    ({"N": "-12.5"}, Decimal("-12.5")),
    ({"B": b"\x00\xff"}, b"\x00\xff"),
    ({"B": b""}, b""),
    ({"BOOL": True}, True),
    ({"BOOL": False}, False),
    ({"NULL": True}, None),
    ({"SS": ["", "a", "b"]}, frozenset({"b", "", "a"})),
    ({"NS": ["-3", "2", "10"]}, frozenset({Decimal(10), Decimal(-3), Decimal(2)})),
    ({"BS": [b"", b"\x01"]}, frozenset({b"\x01", b""})),
    ({"L": []}, []),
    ({"M": {}}, {}),
    ({"L": [{"M": {"a": {"L": [{"NULL": True}]}}}, {"S": "x"}]}, [{"a": [None]}, "x"]),
]


@pytest.mark.parametrize(("raw", "value"), BOTH_WAYS)
def test_every_type_decodes_to_its_python_type_and_encodes_back(raw: dict[str, Any], value: Any) -> None:
    decoded = decode(raw)
    assert decoded == value
    assert type(decoded) is type(value)
    assert encode(value) == raw


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (7, {"N": "7"}),
        (bytearray(b"ab"), {"B": b"ab"}),
        ((1, "x"), {"L": [{"N": "1"}, {"S": "x"}]}),
        ({3, Decimal("-1.50")}, {"NS": ["-1.5", "3"]}),
        ({"b", "a"}, {"SS": ["a", "b"]}),
        (OrderedDict(a=1), {"M": {"a": {"N": "1"}}}),
    ],
)
def test_what_stands_for_a_type_encodes_as_it(value: Any, raw: dict[str, Any]) -> None:
    assert encode(value) == raw
    assert isinstance(encode(value).get("B", b""), bytes)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ({"B": "AP8="}, b"\x00\xff"),
        ({"B": ""}, b""),
        ({"B": bytearray(b"ab")}, b"ab"),
        ({"BS": ["AQ==", b"\x02"]}, frozenset({b"\x01", b"\x02"})),
    ],
)
def test_binary_decodes_from_bytes_and_from_the_base64_text_of_an_event(raw: dict[str, Any], value: Any) -> None:
    assert decode(raw) == value
    assert isinstance(decode(raw), type(value))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("0.00", "0"),
        ("0E+999", "0"),
        ("007", "7"),
        ("+7", "7"),
        (".5", "0.5"),
        ("5.", "5"),
        ("1.50", "1.5"),
        ("-100", "-100"),
        ("100.00", "100"),
        ("1e3", "1000"),
        ("1E+3", "1000"),
        ("-1.25E-3", "-0.00125"),
        (NINES, NINES),
        ("-" + NINES, "-" + NINES),
        ("0." + NINES, "0." + NINES),
        (NINES + "00", NINES + "00"),
        ("000" + NINES + ".000", NINES),
        ("1E-130", "0." + "0" * 129 + "1"),
        ("-1E-130", "-0." + "0" * 129 + "1"),
        (f"9.{'9' * 37}E-130", "0." + "0" * 129 + NINES),
        (f"9.{'9' * 37}E+125", LARGEST),
        ("-" + LARGEST, "-" + LARGEST),
        ("1" + "0" * 5000 + "E-5000", "1"),
    ],
)
def test_a_number_is_read_exactly_and_written_in_one_form(text: str, canonical: str) -> None:
    assert number(text) == Decimal(text)
    assert number_text(number(text)) == canonical
    assert str(number("-0")) == str(number("-0.0E5")) == "0"
    assert encode(decode({"N": text})) == {"N": canonical}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-1, "-1"),
        (10**38 - 1, NINES),
        (10**38, "1" + "0" * 38),
        (-(10**125), "-1" + "0" * 125),
        (Decimal("1.50"), "1.5"),
        (Decimal("-0"), "0"),
        (Decimal("0E-999"), "0"),
        (Decimal("1E+3"), "1000"),
    ],
)
def test_ints_and_decimals_are_written_without_exponent_or_idle_zeros(value: int | Decimal, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize("prec", [1, 28])
@pytest.mark.parametrize(
    "text", ["-1234567890123456789.1234567890123456789", "-1234567890123456789012345678901234567.8"]
)
def test_the_decimal_context_changes_nothing(text: str, prec: int) -> None:
    with localcontext(Context(prec=prec, Emin=-1, Emax=1, traps=[Inexact, Rounded])):
        assert number_text(number(text)) == text
        assert encode(decode({"NS": [text, LARGEST]})) == {"NS": [text, LARGEST]}
        assert plain_json({"n": {"N": text}, "i": {"N": LARGEST}}) == f'{{"n": {text}, "i": {LARGEST}}}'


NOT_A_NUMBER = "expected a number as text"
MAGNITUDE = "expected a number of a magnitude from 1E-130 to 9.99E+125, or 0"
DIGITS = "expected a number of at most 38 significant digits"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        *((text, NOT_A_NUMBER) for text in ["", " 1", "1\n", "1 ", "abc", "0x1", "1_000", "1,5", "--1", "."]),
        *((text, NOT_A_NUMBER) for text in ["1E", "E5", "1.2.3", "NaN", "-Infinity", "٣", "1E9999999999"]),
        *((value, NOT_A_NUMBER) for value in [5, Decimal(5), None, b"5"]),
        ("1E+126", MAGNITUDE),
        ("-1E+126", MAGNITUDE),
        ("1" + "0" * 126, MAGNITUDE),
        ("9.9E-131", MAGNITUDE),
        ("-1E-131", MAGNITUDE),
        ("1E+999999999", MAGNITUDE),
        (NINES + "9", DIGITS),
        ("-" + NINES + ".9", DIGITS),
        ("0.1" + "0" * 37 + "1", DIGITS),
        ("1" + "0" * 40 + "1", DIGITS),
    ],
)
def test_a_number_that_the_service_refuses_is_refused_by_rule(text: Any, rule: str) -> None:
    with pytest.raises(BadValueError, match="^" + rule.replace("+", r"\+") + ".*, came "):
        number(text)
    with pytest.raises(BadValueError, match="^at 'm.n': " + rule.replace("+", r"\+")):
        decode_item({"m": {"M": {"n": {"N": text}}}})


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (Decimal("NaN"), "expected a finite number, came Decimal('NaN')"),
        (Decimal("sNaN"), "expected a finite number, came Decimal('sNaN')"),
        (Decimal("-Infinity"), "expected a finite number, came Decimal('-Infinity')"),
        (10**126, MAGNITUDE),
        (10**38 + 1, DIGITS),
        (Decimal("1E-131"), MAGNITUDE),
        (Decimal(NINES + ".9"), DIGITS),
        (True, "expected an int or a Decimal, came True"),
        (0.5, "expected an int or a Decimal, came 0.5"),
        ("5", "expected an int or a Decimal, came '5'"),
    ],
)
def test_a_value_that_is_no_number_of_the_service_is_not_written(value: Any, rule: str) -> None:
    with pytest.raises(BadValueError) as caught:
        number_text(value)
    assert str(caught.value).startswith(rule)
    assert len(str(caught.value)) < 200


def test_an_int_too_long_for_python_to_print_is_refused_as_clearly() -> None:
    with pytest.raises(BadValueError, match=r"at 'a': expected a number of a magnitude .* came Decimal\('1000"):
        encode_item({"a": 10**5000})


ONE_TYPE = "expected DynamoDB JSON with one type, such as {'S': 'text'}, came "
DUPLICATES = "expected a set without duplicates, came "
NO_TYPE = "expected str, int, Decimal, bytes, bool, None, set, list or mapping, came "
NO_MEMBER = "expected a set of at least one member, came "


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("text", ONE_TYPE + "'text'"),
        (None, ONE_TYPE + "None"),
        ({}, ONE_TYPE + "{}"),
        ({"S": "a", "N": "1"}, ONE_TYPE + "{'S': 'a', 'N': '1'}"),
        ({"X": 1}, "expected one of the types S, N, B, BOOL, NULL, SS, NS, BS, L, M, came {'X': 1}"),
        ({"s": "a"}, "expected one of the types S, N, B, BOOL, NULL, SS, NS, BS, L, M, came {'s': 'a'}"),
        ({"S": 5}, "expected text that UTF-8 can hold, came 5"),
        ({"S": None}, "expected text that UTF-8 can hold, came None"),
        ({"S": "half \ud83c"}, "expected text that UTF-8 can hold, came 'half \\ud83c'"),
        ({"B": 5}, "expected binary as bytes or base64 text, came 5"),
        ({"B": "AP8"}, "expected binary as bytes or base64 text, came 'AP8'"),
        ({"B": "AP8=\n"}, "expected binary as bytes or base64 text, came 'AP8=\\n'"),
        ({"B": "é==="}, "expected binary as bytes or base64 text, came 'é==='"),
        ({"BOOL": "true"}, "expected true or false under BOOL, came 'true'"),
        ({"BOOL": 1}, "expected true or false under BOOL, came 1"),
        ({"NULL": False}, "expected true under NULL, came False"),
        ({"NULL": 1}, "expected true under NULL, came 1"),
        ({"SS": []}, NO_MEMBER + "[]"),
        ({"NS": []}, NO_MEMBER + "[]"),
        ({"BS": []}, NO_MEMBER + "[]"),
        ({"SS": "ab"}, "expected a list, came 'ab'"),
        ({"SS": ["a", "a"]}, DUPLICATES + "['a', 'a']"),
        ({"NS": ["1", "1.0"]}, DUPLICATES + "['1', '1.0']"),
        ({"BS": ["AQ==", b"\x01"]}, DUPLICATES + "['AQ==', b'\\x01']"),
        ({"SS": ["a", 5]}, "expected text that UTF-8 can hold, came 5"),
        ({"NS": ["1", ""]}, "expected a number as text, such as '-1.5' or '1E+3', came ''"),
        ({"L": {"S": "a"}}, "expected a list, came {'S': 'a'}"),
        ({"M": [{"S": "a"}]}, "expected a map of names to values, came [{'S': 'a'}]"),
        ({"M": {"": {"S": "a"}}}, "expected an attribute name of 1 to 65,535 bytes, came ''"),
        ({"M": {5: {"S": "a"}}}, "expected an attribute name of 1 to 65,535 bytes, came 5"),
        ({"M": {"\ud83c": {"S": "a"}}}, "expected text that UTF-8 can hold, came '\\ud83c'"),
    ],
)
def test_raw_values_that_the_service_refuses_do_not_decode(raw: Any, message: str) -> None:
    with pytest.raises(BadValueError) as caught:
        decode(raw)
    assert str(caught.value) == message
    with pytest.raises(BadValueError) as caught:
        decode_item({"a": {"L": [{"NULL": True}, raw]}})
    assert str(caught.value) == f"at 'a[1]': {message}"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.1, "expected an exact number (an int, or a Decimal made from text), came 0.1"),
        (set(), NO_MEMBER + "set()"),
        (frozenset(), NO_MEMBER + "frozenset()"),
        ({"a", 1}, "expected a set of only text, only numbers or only bytes, came "),
        ({b"a", "a"}, "expected a set of only text, only numbers or only bytes, came "),
        ({(1, 2)}, "expected a set of only text, only numbers or only bytes, came {(1, 2)}"),
        ({True}, "expected an int or a Decimal, came True"),
        ({0.5}, "expected a set of only text, only numbers or only bytes, came {0.5}"),
        ({Decimal("NaN"), 1, 2}, "expected a finite number, came Decimal('NaN')"),
        ({"a", "\ud83c"}, "expected text that UTF-8 can hold, came '\\ud83c'"),
        ("\ud83c", "expected text that UTF-8 can hold, came '\\ud83c'"),
        (Decimal("Infinity"), "expected a finite number, came Decimal('Infinity')"),
        ({"": 1}, "expected an attribute name of 1 to 65,535 bytes, came ''"),
        ({5: 1}, "expected an attribute name of 1 to 65,535 bytes, came 5"),
        (1j, NO_TYPE + "1j"),
        (iter([1]), NO_TYPE + "<list_iterator"),
    ],
)
def test_python_values_that_the_service_refuses_do_not_encode(value: Any, message: str) -> None:
    with pytest.raises(BadValueError) as caught:
        encode(value)
    assert str(caught.value).startswith(message)
    with pytest.raises(BadValueError) as caught:
        encode_item({"a": [None, value]})
    assert str(caught.value).startswith(f"at 'a[1]': {message}")


@pytest.mark.parametrize(
    ("names", "path"),
    [
        (["a", "b"], "a.b"),
        (["weird.name", "x[0]"], r"weird\.name.x\[0\]"),
        (["back\\slash"], "back\\\\slash"),
        ([".dot", "0"], r"\.dot.0"),
    ],
)
def test_a_path_is_written_as_attr_reads_it(names: list[str], path: str) -> None:
    value: dict[str, Any] = {"S": 5}
    for name in reversed(names[1:]):
        value = {"M": {name: value}}
    with pytest.raises(BadValueError) as caught:
        decode_item({names[0]: value})
    assert str(caught.value).startswith(f"at {path!r}: ")


def test_the_path_inside_a_value_without_a_name_starts_at_its_first_step() -> None:
    with pytest.raises(BadValueError, match=r"^at '\[0\]\.a': "):
        decode({"L": [{"M": {"a": {"S": 5}}}]})
    with pytest.raises(BadValueError, match=r"^at 'a\[0\]': "):
        encode({"a": [0.5]})


def test_a_message_stays_short_whatever_came() -> None:
    with pytest.raises(BadValueError) as caught:
        decode_item({"n" * 60_000: {"SS": ["x" * 400_000, 5, *map(str, range(10_000))]}})
    assert len(str(caught.value)) < 250


def test_a_name_may_have_65535_bytes_and_no_more() -> None:
    longest = "é" * 32_767 + "x"
    assert encode_item({longest: 1}) == {longest: {"N": "1"}}
    with pytest.raises(BadValueError, match="1 to 65,535 bytes"):
        encode_item({longest + "x": 1})


@pytest.mark.parametrize("convert", [decode_item, from_event, to_event])
def test_32_levels_pass_and_a_33rd_is_refused(convert: Any) -> None:
    convert({"a": nested(31)})
    convert({"a": nested(31, {"L": []})})
    with pytest.raises(BadValueError, match=r"^at 'a\.n.*\.n': expected at most 32 levels of nesting, came "):
        convert({"a": nested(32)})
    with pytest.raises(BadValueError, match="expected at most 32 levels of nesting"):
        convert({"a": nested(31, {"L": [{"S": "leaf"}]})})


def test_a_value_on_its_own_has_as_many_levels_as_in_an_item() -> None:
    assert encode(decode(nested(31))) == nested(31)
    assert encode_item(decode_item({"a": nested(31)})) == {"a": nested(31)}
    deeper = {"n": decode(nested(31))}
    for refused in (lambda: decode(nested(32)), lambda: encode(deeper), lambda: encode_item({"a": deeper})):
        with pytest.raises(BadValueError, match="expected at most 32 levels of nesting"):
            refused()


def test_a_list_that_holds_itself_is_refused_not_followed() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(BadValueError, match="expected at most 32 levels of nesting"):
        encode(endless)


FROM_THE_EVENT = {
    "text": {"S": "AP8="},
    "number": {"N": "1.50"},
    "long": {"N": "1E-130"},
    "binary": {"B": "AP8="},
    "empty": {"B": ""},
    "binaries": {"BS": ["Ag==", "AQ=="]},
    "texts": {"SS": ["b", "a"]},
    "nothing": {"NULL": True},
    "list": {"L": [{"B": "AQ=="}, {"M": {"deep": {"BS": ["AQ=="]}}}, {"L": []}]},
}
FOR_A_CLIENT = FROM_THE_EVENT | {
    "binary": {"B": b"\x00\xff"},
    "empty": {"B": b""},
    "binaries": {"BS": [b"\x02", b"\x01"]},
    "list": {"L": [{"B": b"\x01"}, {"M": {"deep": {"BS": [b"\x01"]}}}, {"L": []}]},
}


def test_an_event_image_becomes_a_client_item_and_back_to_the_letter() -> None:
    before = json.dumps(FROM_THE_EVENT)
    assert from_event(FROM_THE_EVENT) == FOR_A_CLIENT
    assert to_event(FOR_A_CLIENT) == FROM_THE_EVENT
    assert json.dumps(FROM_THE_EVENT) == before
    assert decode_item(FROM_THE_EVENT) == decode_item(FOR_A_CLIENT)


def test_converting_twice_changes_nothing_more() -> None:
    assert from_event(FOR_A_CLIENT) == FOR_A_CLIENT
    assert to_event(FROM_THE_EVENT) == FROM_THE_EVENT


@pytest.mark.parametrize("convert", [from_event, to_event])
@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"B": "AP8"}, "at 'a[0]': expected binary as bytes or base64 text, came 'AP8'"),
        ({"BS": ["AQ==", "?"]}, "at 'a[0]': expected binary as bytes or base64 text, came '?'"),
        ({"BS": "AQ=="}, "at 'a[0]': expected a list, came 'AQ=='"),
        ({"X": 1}, "at 'a[0]': expected one of the types "),
        ({"S": "a", "B": "AP8="}, "at 'a[0]': " + ONE_TYPE),
    ],
)
def test_an_image_with_a_broken_value_is_not_converted(convert: Any, raw: Any, message: str) -> None:
    with pytest.raises(BadValueError) as caught:
        convert({"a": {"L": [raw]}})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("convert", [decode_item, encode_item, from_event, to_event])
def test_an_item_is_a_map_of_names(convert: Any) -> None:
    assert convert({}) == {}
    with pytest.raises(BadValueError, match=r"^expected a map of names to values, came 'text'$"):
        convert("text")
    with pytest.raises(BadValueError, match=r"^expected an attribute name of 1 to 65,535 bytes, came ''$"):
        convert({"": {"S": "x"}})


@pytest.mark.parametrize(
    ("raw", "plain", "text"),
    [
        ({"S": 'é "x"\n'}, 'é "x"\n', '"\\u00e9 \\"x\\"\\n"'),
        ({"N": "5.0"}, 5, "5"),
        ({"N": "-0"}, 0, "0"),
        ({"N": "9007199254740991"}, 2**53 - 1, "9007199254740991"),
        ({"N": "-9007199254740991"}, 1 - 2**53, "-9007199254740991"),
        ({"N": "9007199254740992"}, Decimal(2**53), "9007199254740992"),
        ({"N": "-9007199254740992"}, Decimal(-(2**53)), "-9007199254740992"),
        ({"N": "-0.10"}, Decimal("-0.1"), "-0.1"),
        ({"N": "1E-7"}, Decimal("1E-7"), "0.0000001"),
        ({"N": LARGEST}, Decimal(LARGEST), LARGEST),
        ({"B": b"\x00\xff"}, "AP8=", '"AP8="'),
        ({"BOOL": True}, True, "true"),
        ({"NULL": True}, None, "null"),
        ({"SS": ["b", "a"]}, ["a", "b"], '["a", "b"]'),
        ({"NS": ["10", "9", "-1.5"]}, [Decimal("-1.5"), 9, 10], "[-1.5, 9, 10]"),
        ({"BS": ["Ag==", "AQ=="]}, ["AQ==", "Ag=="], '["AQ==", "Ag=="]'),
        ({"L": []}, [], "[]"),
        ({"M": {}}, {}, "{}"),
        (
            {"L": [{"M": {'"': {"N": "1"}, "b": {"B": "AQ=="}}}, {"S": ""}]},
            [{'"': 1, "b": "AQ=="}, ""],
            r'[{"\"": 1, "b": "AQ=="}, ""]',
        ),
    ],
)
def test_plain_data_and_plain_json_are_exact(raw: dict[str, Any], plain: Any, text: str) -> None:
    assert to_plain(raw) == plain
    assert type(to_plain(raw)) is type(plain)
    assert plain_json({"z": raw, "a": {"S": "x"}}) == f'{{"z": {text}, "a": "x"}}'


def test_plain_json_refuses_what_is_not_an_item() -> None:
    assert plain_json({}) == "{}"
    with pytest.raises(BadValueError, match=r"^at 'a\.b': expected true under NULL"):
        plain_json({"a": {"M": {"b": {"NULL": False}}}})
