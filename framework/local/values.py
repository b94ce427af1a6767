"""Values in their normal form, and the little that the service computes with them.

Values are brought to one form where they enter the engine: numbers without an exponent or a zero too many,
sets sorted, binary as `bytes`. After that two values are equal for the service exactly when they are equal
for Python, which is what makes conditions quick.

AWS facts: DynamoDB developer guide, "Supported data types and naming rules"; what happens when arithmetic
leaves the 38 digits was read in ScyllaDB's Alternator tests, which are run against the service itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    Context,
    Decimal,
    DecimalException,
    DivisionByZero,
    Inexact,
    InvalidOperation,
    Overflow,
    Subnormal,
)
from typing import Any

from framework.codec import AttributeValue, Image
from framework.errors import StreamfoldError, shortened

__all__ = [
    "ORDERED",
    "SETS",
    "RefusedError",
    "ServiceError",
    "add",
    "copied",
    "normal",
    "normal_item",
    "normal_number",
    "normal_set",
    "ordered",
    "subtract",
]

ORDERED = frozenset({"S", "N", "B"})  # the types that have an order, and the only ones for a key
SETS = frozenset({"SS", "NS", "BS"})

_DEEPEST = 32  # levels of lists and maps
_OVERFLOW = "Number overflow. Attempting to store a number with magnitude larger than supported range"
_UNDERFLOW = "Number underflow. Attempting to store a number with magnitude smaller than supported range"

# 38 digits, 1E-130 to 9.99E+125: a result that does not fit raises instead of being rounded.
_EXACT = Context(
    prec=38,
    Emin=-130,
    Emax=125,
    traps=[Inexact, Overflow, Subnormal, InvalidOperation, DivisionByZero],
)
_NORMAL_ALREADY = re.compile(r"0|-?[1-9][0-9]{0,37}").fullmatch
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?").fullmatch


class ServiceError(StreamfoldError):
    """An answer of the service that is an error.

    Args:
        code: The service's code, such as "ResourceNotFoundException".
        message: The service's message, or one that says more.
        extra: What else the answer holds, such as the item that made a condition fail.
    """

    def __init__(self, code: str, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.code = code
        self.extra = extra


class RefusedError(ServiceError):
    """A request that the service refuses with a ValidationException."""

    def __init__(self, message: str) -> None:
        super().__init__("ValidationException", message)


def normal_item(item: Image) -> dict[str, AttributeValue]:
    """An item in normal form; shares nothing with what came.

    Raises:
        RefusedError: A value that the service does not take.
    """
    if "" in item:
        raise RefusedError("One or more parameter values were invalid: Empty attribute name")
    return {name: normal(value) for name, value in item.items()}


def normal(value: AttributeValue, level: int = 0) -> AttributeValue:
    """A value in normal form; shares nothing with what came; `level` lists and maps are around it.

    Raises:
        RefusedError: The service does not take it: two types or none, a bad number, an empty set, too deep.
    """
    given: Any = value
    if (type(given) is not dict and not isinstance(given, Mapping)) or len(given) != 1:
        raise RefusedError(
            f"Supplied AttributeValue must contain exactly one of the supported datatypes, came {shortened(value)}"
        )
    ((tag, content),) = value.items()
    if tag == "S" and type(content) is str:
        return {"S": content}
    if tag == "N" and type(content) is str:
        return {"N": normal_number(content)}
    normalize = _NORMALIZERS.get(tag)
    if normalize is None:
        raise RefusedError(f"Supplied AttributeValue has an unknown type or content, came {shortened(value)}")
    return {tag: normalize(content, level)}


def _normal_bytes(content: Any, level: int = 0) -> bytes:
    if not isinstance(content, bytes | bytearray):
        raise RefusedError(f"B: expected bytes, came {shortened(content)}")
    return bytes(content)


def _normal_text(content: Any) -> str:
    if not isinstance(content, str):
        raise RefusedError(f"Expected a string, came {shortened(content)}")
    return content


def _normal_bool(content: Any, level: int) -> bool:
    if not isinstance(content, bool):
        raise RefusedError(f"BOOL: expected true or false, came {shortened(content)}")
    return content


def _normal_null(content: Any, level: int) -> bool:
    if content is not True:
        raise RefusedError(
            "One or more parameter values were invalid: Null attribute value types must have the value of true"
        )
    return True


def _normal_list(content: Any, level: int) -> list[AttributeValue]:
    if not isinstance(content, list | tuple):
        raise RefusedError(f"L: expected a list, came {shortened(content)}")
    inside = _deeper(level)
    return [normal(member, inside) for member in content]


def _normal_map(content: Any, level: int) -> dict[str, AttributeValue]:
    if not isinstance(content, Mapping):
        raise RefusedError(f"M: expected a map, came {shortened(content)}")
    inside = _deeper(level)
    return {_normal_text(name): normal(member, inside) for name, member in content.items()}


def _deeper(level: int) -> int:
    if level == _DEEPEST:
        raise RefusedError("Nesting Levels have exceeded supported limits")
    return level + 1


def _set_normalizer(tag: str, member: Callable[[Any], Any]) -> Callable[[Any, int], list[Any]]:
    def normalize(content: Any, level: int) -> list[Any]:
        if not isinstance(content, list | tuple | set | frozenset):
            raise RefusedError(f"{tag}: expected a list, came {shortened(content)}")
        if not content:
            raise RefusedError(f"One or more parameter values were invalid: A set ({tag}) may not be empty")
        members = normal_set(tag, map(member, content))
        if len(members) != len(content):
            raise RefusedError(
                f"One or more parameter values were invalid: Input collection {shortened(content)} contains duplicates."
            )
        return members

    return normalize


def normal_set(tag: str, members: Iterable[Any]) -> list[Any]:
    """The members of a set in their one order, each once; they are in normal form already."""
    return sorted(set(members), key=Decimal if tag == "NS" else None)


def normal_number(text: str) -> str:
    """The one text of a number: no exponent, no sign of a zero, no zero that says nothing.

    Raises:
        RefusedError: Not a number, more than 38 significant digits, or a magnitude outside 1E-130 to
            9.99E+125.
    """
    if _NORMAL_ALREADY(text):
        return text
    if _NUMBER(text) is None:
        raise RefusedError(f"The parameter cannot be converted to a numeric value: {shortened(text)}")
    if not text.lower().partition("e")[0].strip("+-0."):
        return "0"  # whatever its exponent
    try:
        # As many digits as came, so that nothing is rounded before it is judged.
        value = Decimal(text).normalize(Context(prec=len(text), Emax=MAX_EMAX, Emin=MIN_EMIN))
    except DecimalException:
        raise RefusedError(_UNDERFLOW if "-" in text[1:] else _OVERFLOW) from None
    if value.adjusted() > _EXACT.Emax:
        raise RefusedError(_OVERFLOW)
    if value.adjusted() < _EXACT.Emin:
        raise RefusedError(_UNDERFLOW)
    if len(value.as_tuple().digits) > _EXACT.prec:
        raise RefusedError("Attempting to store more than 38 significant digits in a Number")
    return format(value, "f")


def add(left: str, right: str) -> str:
    """The exact sum of two numbers in normal form.

    Raises:
        RefusedError: It does not fit in 38 digits or in the range; the service says "overflow" for both.
    """
    return _computed(_EXACT.add, left, right)


def subtract(left: str, right: str) -> str:
    """The exact difference of two numbers in normal form; refused as in `add`."""
    return _computed(_EXACT.subtract, left, right)


def _computed(operation: Callable[[Decimal, Decimal], Decimal], left: str, right: str) -> str:
    try:
        result = operation(Decimal(left), Decimal(right))
    except Subnormal:
        raise RefusedError(_UNDERFLOW) from None
    except DecimalException:
        raise RefusedError(_OVERFLOW) from None
    return format(_EXACT.normalize(result), "f") if result else "0"


def ordered(left: AttributeValue | None, right: AttributeValue | None, test: Callable[[Any, Any], bool]) -> bool:
    """Whether `test` (such as `operator.lt`) holds between two values.

    False when either is missing, their types differ, or their type has no order. Strings compare by their
    UTF-8 bytes, which is the order of Python's code points; binary by unsigned bytes; numbers by value.
    """
    if left is None or right is None:
        return False
    ((tag, mine),) = left.items()
    theirs = right.get(tag)
    if theirs is None or tag not in ORDERED:
        return False
    return test(Decimal(mine), Decimal(theirs)) if tag == "N" else test(mine, theirs)


def copied(value: AttributeValue) -> AttributeValue:
    """A deep copy of a value in normal form."""
    ((tag, content),) = value.items()
    if tag == "M":
        return {"M": {name: copied(member) for name, member in content.items()}}
    if tag == "L":
        return {"L": [copied(member) for member in content]}
    return {tag: list(content)} if tag in SETS else {tag: content}


_NORMALIZERS: dict[str, Callable[[Any, int], Any]] = {
    "B": _normal_bytes,
    "BOOL": _normal_bool,
    "NULL": _normal_null,
    "L": _normal_list,
    "M": _normal_map,
    "SS": _set_normalizer("SS", _normal_text),
    "NS": _set_normalizer("NS", lambda member: normal_number(_normal_text(member))),
    "BS": _set_normalizer("BS", _normal_bytes),
}
