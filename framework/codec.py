"""DynamoDB JSON to Python values and back, exactly.

    raw from an event  --from_event-->  raw for a client  --decode-->  Python values
                       <--to_event---                     <--encode--

A *raw* value is DynamoDB JSON, `{"S": "x"}`; an *image* is a raw item. In a Lambda event the binary types are
base64 text, a boto3 client takes and gives `bytes`; `decode` reads both.

Nothing here rounds. `Decimal`'s arithmetic (unary minus and `abs` included) rounds to the context's
digits, 28 by default; building, comparing, hashing and printing a `Decimal` do not, and only those are used.
What the service would refuse is refused here as `BadValueError`, which says where, what was expected and what
came. The rules for keys and for an item's size (400 KB) hang on the table and the whole item: not here.

AWS facts: DynamoDB developer guide, "Supported data types and naming rules".
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar, cast

from framework.errors import BadValueError, shortened

__all__ = [
    "AttributeValue",
    "Image",
    "Value",
    "decode",
    "decode_item",
    "encode",
    "encode_item",
    "from_event",
    "is_text",
    "json_line",
    "number",
    "number_text",
    "plain_json",
    "to_event",
    "to_plain",
]

AttributeValue: TypeAlias = dict[str, Any]
"""One raw value: a dict of one key, the type, such as `{"N": "5"}`."""

Image: TypeAlias = Mapping[str, AttributeValue]
"""A raw item: attribute names to raw values."""

_Set: TypeAlias = frozenset[str] | frozenset[Decimal] | frozenset[bytes]
Value: TypeAlias = str | Decimal | bytes | bool | _Set | list["Value"] | dict[str, "Value"] | None
"""What `decode` gives."""

_Path: TypeAlias = tuple[str | int, ...]  # its length is the nesting level
_A = TypeVar("_A")
_B = TypeVar("_B")

_NAMELESS: _Path = ("",)  # a value on its own is at level 1, as an attribute is
_MAX_LEVELS = 32
_MAX_NAME_BYTES = 65_535
_MAX_DIGITS = 38
_MAX_EXPONENT = 125
_MIN_EXPONENT = -130
_ZERO = Decimal(0)
_38_NINES = 10**_MAX_DIGITS - 1
_MAX_SAFE_INTEGER = 2**53 - 1  # beyond it, readers of JSON that use doubles lose digits (RFC 8259, 6)

# No text of this form can break a limit: no exponent, and 38 digits at most.
_is_everyday_number = re.compile(r"-?[0-9]{1,19}(?:\.[0-9]{1,19})?").fullmatch
# Narrower than Decimal's grammar, which also takes "NaN", "1_000", spaces and the digits of other scripts.
_is_number = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?").fullmatch
_SPECIAL = re.compile(r"[.\[\]\\]")  # in the path of an attribute


def decode(value: AttributeValue) -> Value:
    """Turn one raw value into a Python value.

    Args:
        value: DynamoDB JSON. Binary may be `bytes` (from a client) or base64 text (from an event).

    Returns:
        S as `str`, N as an exact `Decimal`, B as `bytes`, BOOL as `bool`, NULL as `None`, SS, NS and BS as a
        `frozenset`, L as `list`, M as `dict`.

    Raises:
        BadValueError: It is not a value that DynamoDB can hold.
    """
    return _decode(value, _NAMELESS)


def decode_item(image: Image) -> dict[str, Value]:
    """Turn a raw item into Python values, each as `decode` does."""
    return _mapped(image, (), _decode)


def encode(value: object) -> AttributeValue:
    """Turn a Python value into a raw one, as a boto3 client takes it.

    Args:
        value: `str`, `int`, `Decimal`, `bytes`, `bytearray`, `bool`, `None`, a `list`, a `tuple`, a mapping,
            or a `set` or `frozenset` of text, of numbers or of bytes.

    Returns:
        DynamoDB JSON. Numbers have one form (see `number_text`) and members of sets are sorted, so that equal
        values give equal raw values.

    Raises:
        BadValueError: DynamoDB can't hold it. A `float` is refused because it is seldom the number that was
            meant: 0.1 is 0.1000000000000000055511151231257827021181583404541015625.
    """
    return _encode(value, _NAMELESS)


def encode_item(item: Mapping[str, object]) -> dict[str, AttributeValue]:
    """Turn an item of Python values into a raw one, each as `encode` does."""
    return _mapped(item, (), _encode)


def from_event(image: Image) -> dict[str, AttributeValue]:
    """Make an image of a Lambda event into the raw item that a boto3 client takes.

    Binary becomes `bytes`. All else stays to the letter, numbers as the text they came as, and unchecked;
    scalars and sets are shared with `image`, not copied.

    Raises:
        BadValueError: A type that DynamoDB does not have, or binary that is not base64 text.
    """
    return _mapped(image, (), _with_bytes)


def to_event(image: Image) -> dict[str, AttributeValue]:
    """Make a raw item of a boto3 client into an image of a Lambda event: `from_event` the other way."""
    return _mapped(image, (), _with_base64)


def number(text: str) -> Decimal:
    """Read a DynamoDB number without rounding.

    AWS facts: 38 significant digits, a magnitude from 1E-130 to 9.99E+125 (all nines), or zero. The service
    trims zeros at both ends, so they do not count (developer guide, "Supported data types", Number).

    Raises:
        BadValueError: It is not a number, or it is outside those limits.
    """
    return _number(text, _NAMELESS)


def number_text(value: int | Decimal) -> str:
    """Write a number in one form, whatever form it came in: no exponent, no idle zeros, no minus zero.

    Raises:
        BadValueError: It has more than 38 significant digits, is too large or too small, or is not finite.
    """
    return _number_text(value, _NAMELESS)


def to_plain(value: AttributeValue) -> Any:
    """Turn a raw value into plain data for people and scripts.

    Returns:
        What `decode` gives, but sets as sorted lists, binary as base64 text, and integers as `int` as far as
        every reader of JSON holds them exactly (2**53 - 1); other numbers stay `Decimal`.
    """
    return _plain(decode(value))


def plain_json(item: Image) -> str:
    """Write a raw item as one line of plain JSON: in ASCII, attributes in the item's order, numbers exact."""
    return json_line(decode_item(item))


def json_line(values: Mapping[str, Any]) -> str:
    """Write Python values, as items have them, as one line of JSON; numbers exact, of any number of digits."""
    return _json({name: _plain(value) for name, value in values.items()})


def _decode(value: AttributeValue, at: _Path) -> Value:
    tag, raw = _tagged(value, at)
    return _DECODERS[tag](raw, at)


def _tagged(value: AttributeValue, at: _Path) -> tuple[str, Any]:
    """Take a raw value apart into its type and what is under it."""
    try:
        ((tag, raw),) = value.items()
    except (AttributeError, ValueError):
        raise _refusal(at, "DynamoDB JSON with one type, such as {'S': 'text'}", value) from None
    if tag not in _DECODERS:
        raise _refusal(at, f"one of the types {', '.join(_DECODERS)}", value)
    return tag, raw


def _text(raw: Any, at: _Path) -> str:
    if isinstance(raw, str):
        if raw.isascii():  # Python keeps this as a flag: most text need not be encoded to be checked
            return raw
        with suppress(UnicodeEncodeError):  # half of a surrogate pair: Python allows it, UTF-8 does not
            raw.encode()
            return raw
    raise _refusal(at, "text that UTF-8 can hold", raw)


def _number(raw: Any, at: _Path) -> Decimal:
    if isinstance(raw, str):
        if _is_everyday_number(raw):
            return Decimal(raw) or _ZERO  # "-0" is 0 to the service
        if _is_number(raw):
            return _within_limits(Decimal(raw), at)
    raise _refusal(at, "a number as text, such as '-1.5' or '1E+3'", raw)


def _number_text(value: object, at: _Path) -> str:
    if type(value) is int and -_38_NINES <= value <= _38_NINES:
        return str(value)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise _refusal(at, "an int or a Decimal", value)
    text = format(_within_limits(Decimal(value), at), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _within_limits(value: Decimal, at: _Path) -> Decimal:
    if not value.is_finite():
        raise _refusal(at, "a finite number", value)
    if not value:
        return _ZERO  # "0E+999" too: left alone, its text would have a thousand zeros
    if not _MIN_EXPONENT <= value.adjusted() <= _MAX_EXPONENT:
        raise _refusal(at, "a number of a magnitude from 1E-130 to 9.99E+125, or 0", value)
    # A Decimal has no leading zeros, so anything but zeros after the 38th digit is too much.
    if any(value.as_tuple().digits[_MAX_DIGITS:]):
        raise _refusal(at, f"a number of at most {_MAX_DIGITS} significant digits", value)
    return value


def _binary(raw: Any, at: _Path) -> bytes:
    if isinstance(raw, bytes | bytearray):
        return bytes(raw)
    if isinstance(raw, str):
        with suppress(ValueError):  # binascii.Error is one, and so is what text outside ASCII raises
            return binascii.a2b_base64(raw, strict_mode=True)
    raise _refusal(at, "binary as bytes or base64 text", raw)


def _base64(raw: Any, at: _Path) -> str:
    return binascii.b2a_base64(_binary(raw, at), newline=False).decode("ascii")


def _bool(raw: Any, at: _Path) -> bool:
    if not isinstance(raw, bool):
        raise _refusal(at, "true or false under BOOL", raw)
    return raw


def _null(raw: Any, at: _Path) -> None:
    if raw is not True:
        raise _refusal(at, "true under NULL", raw)


def _members_of(raw: Any, at: _Path, member: Callable[[Any, _Path], _A]) -> frozenset[_A]:
    members = frozenset(member(each, at) for each in _sequence(raw, at))
    if not members:
        raise _refusal(at, "a set of at least one member", raw)
    if len(members) != len(raw):
        raise _refusal(at, "a set without duplicates", raw)
    return members


def _sequence(raw: Any, at: _Path) -> list[Any] | tuple[Any, ...]:
    if not isinstance(raw, list | tuple):
        raise _refusal(at, "a list", raw)
    return raw


def _listed(raw: Any, at: _Path, visit: Callable[[Any, _Path], _B]) -> list[_B]:
    _check_level(_sequence(raw, at), at)
    return [visit(child, (*at, index)) for index, child in enumerate(raw)]


def _mapped(raw: Any, at: _Path, visit: Callable[[Any, _Path], _B]) -> dict[str, _B]:
    if not isinstance(raw, Mapping):
        raise _refusal(at, "a map of names to values", raw)
    _check_level(raw, at)
    return {_name(name, at): visit(child, (*at, name)) for name, child in raw.items()}


def _name(raw: Any, at: _Path) -> str:
    if isinstance(raw, str) and raw and len(_text(raw, at).encode()) <= _MAX_NAME_BYTES:
        return raw
    raise _refusal(at, f"an attribute name of 1 to {_MAX_NAME_BYTES:,} bytes", raw)


def _check_level(children: list[Any] | tuple[Any, ...] | Mapping[Any, Any], at: _Path) -> None:
    """Refuse children below level 32.

    AWS facts: 32 levels (developer guide, "Quotas", nested attribute depth). The attribute itself is level 1,
    so 31 maps around a text are the most: the guide does not say, others' tests against the service do.
    """
    if children and len(at) >= _MAX_LEVELS:
        raise _refusal(at, f"at most {_MAX_LEVELS} levels of nesting", children)


_DECODERS: dict[str, Callable[[Any, _Path], Value]] = {
    "S": _text,
    "N": _number,
    "B": _binary,
    "BOOL": _bool,
    "NULL": _null,
    "SS": lambda raw, at: _members_of(raw, at, _text),
    "NS": lambda raw, at: _members_of(raw, at, _number),
    "BS": lambda raw, at: _members_of(raw, at, _binary),
    "L": lambda raw, at: _listed(raw, at, _decode),
    "M": lambda raw, at: _mapped(raw, at, _decode),
}


def _encode(value: object, at: _Path) -> AttributeValue:
    if isinstance(value, str):
        return {"S": _text(str.__str__(value), at)}  # an enumeration's value is text as well
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):  # before int: a bool is one
        return {"BOOL": value}
    if isinstance(value, int | Decimal):
        return {"N": _number_text(value, at)}
    if isinstance(value, bytes | bytearray):
        return {"B": bytes(value)}
    if isinstance(value, set | frozenset):
        return _encode_set(value, at)
    if isinstance(value, list | tuple):
        return {"L": _listed(value, at, _encode)}
    if isinstance(value, Mapping):
        return {"M": _mapped(value, at, _encode)}
    if isinstance(value, float):
        raise _refusal(at, "an exact number (an int, or a Decimal made from text)", value)
    raise _refusal(at, "str, int, Decimal, bytes, bool, None, set, list or mapping", value)


def _encode_set(value: set[Any] | frozenset[Any], at: _Path) -> AttributeValue:
    if not value:
        raise _refusal(at, "a set of at least one member", value)
    for tag, kinds, write in _SETS:
        if all(isinstance(member, kinds) for member in value):
            raw = {member: write(member, at) for member in value}  # all checked before NaN could be compared
            return {tag: [raw[member] for member in sorted(raw)]}
    raise _refusal(at, "a set of only text, only numbers or only bytes", value)


_SETS: tuple[tuple[str, type | tuple[type, ...], Callable[[Any, _Path], Any]], ...] = (
    ("SS", str, _text),
    ("NS", (int, Decimal), _number_text),
    ("BS", bytes, _binary),
)


def _with_binary(binary: Callable[[Any, _Path], bytes | str]) -> Callable[[Any, _Path], AttributeValue]:
    """Make a function that rewrites the binary in a raw value, at any depth, and leaves all else as it is."""

    def rewrite(value: AttributeValue, at: _Path) -> AttributeValue:
        tag, raw = _tagged(value, at)
        if tag == "B":
            return {tag: binary(raw, at)}
        if tag == "BS":
            return {tag: [binary(member, at) for member in _sequence(raw, at)]}
        if tag == "L":
            return {tag: _listed(raw, at, rewrite)}
        if tag == "M":
            return {tag: _mapped(raw, at, rewrite)}
        return value

    return rewrite


_with_bytes = _with_binary(_binary)
_with_base64 = _with_binary(_base64)


def _plain(value: Value) -> Any:
    if isinstance(value, Decimal):
        # The bound comes first: int() of 1E+125 is exact, but needless.
        safe = -_MAX_SAFE_INTEGER <= value <= _MAX_SAFE_INTEGER and value == int(value)
        return int(value) if safe else value
    if isinstance(value, bytes):
        return _base64(value, _NAMELESS)
    if isinstance(value, frozenset):
        return [_plain(member) for member in sorted(cast(frozenset[Any], value))]  # members are of one type
    if isinstance(value, list):
        return [_plain(member) for member in value]
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    return value


def _json(plain: Any) -> str:
    """Write plain data as JSON; the standard encoder has no way to write a Decimal's digits."""
    if isinstance(plain, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {_json(value)}" for name, value in plain.items()) + "}"
    if isinstance(plain, list):
        return "[" + ", ".join(map(_json, plain)) + "]"
    if isinstance(plain, Decimal):
        return number_text(plain) if len(plain.as_tuple().digits) <= _MAX_DIGITS else str(plain)
    return json.dumps(plain)


def _refusal(at: _Path, expected: str, came: object) -> BadValueError:
    place = "" if at in ((), _NAMELESS) else f"at {shortened(_path_text(at), 120)}: "
    return BadValueError(f"{place}expected {expected}, came {shortened(came)}")


def _path_text(at: _Path) -> str:
    """Write a path as `attr(...)` reads it: `a.b[0]`, with a backslash before what belongs to a name."""
    steps = [f"[{step}]" if isinstance(step, int) else "." + _SPECIAL.sub(r"\\\g<0>", step) for step in at]
    return "".join(steps).lstrip(".")


def is_text(value: object, least: int, most: int) -> bool:
    """Whether a value is text of a number of bytes in UTF-8; half of a surrogate pair has no bytes."""
    try:
        return isinstance(value, str) and least <= len(value.encode()) <= most
    except UnicodeEncodeError:
        return False
