"""What conditions compare attributes with, and how one raw value is put to a test.

AWS facts: DynamoDB compares only values of one type; numbers by value, text by the bytes of its UTF-8, binary
by its unsigned bytes (developer guide, "Condition and filter expressions, operators, and functions").
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, TypeAlias, cast

from framework.codec import AttributeValue, Image, encode, number_text
from framework.errors import BadValueError, DeclarationError, shortened
from framework.paths import getter

__all__ = [
    "ABSENT",
    "ORDERED",
    "SCALAR",
    "Operand",
    "OperandType",
    "Predicate",
    "on_value",
    "one_of",
    "operand",
    "typed",
]

OperandType: TypeAlias = Literal["S", "N", "B", "BOOL", "NULL"]
Predicate: TypeAlias = Callable[[Image], bool]
_Test: TypeAlias = Callable[[AttributeValue], bool]

SCALAR: tuple[OperandType, ...] = ("S", "N", "B", "BOOL", "NULL")
"""The types that equality is about."""

ORDERED: tuple[OperandType, ...] = ("S", "N", "B")
"""The types with an order."""

ABSENT: AttributeValue = {}
"""Stands in for a missing attribute: no type is found in it. Never changed, never given out."""

_IN_WORDS: dict[OperandType, str] = {
    "S": "text",
    "N": "a number",
    "B": "bytes",
    "BOOL": "a boolean",
    "NULL": "None",
}


@dataclass(frozen=True, slots=True)
class Operand:
    """What an attribute is compared with; made by `operand`.

    Attributes:
        type: Its DynamoDB type: only attributes of this type compare with it, so that `True` is not 1.
        value: As Python has it.
    """

    type: OperandType
    value: str | int | Decimal | bytes | None

    def comparable(self) -> Any:
        """The value in the form that raw values are brought to before they are compared."""
        return Decimal(cast(int, self.value)) if self.type == "N" else self.value

    def text(self) -> str:
        """The operand as a person would write it."""
        match self.value:
            case bytes(binary):
                return f'binary "{b64encode(binary).decode()}"'
            case bool() | str() | None:
                return json.dumps(self.value, ensure_ascii=False)
            case number:
                return number_text(number)

    def __repr__(self) -> str:
        return repr(self.value)


def operand(where: str, value: object, types: tuple[OperandType, ...]) -> Operand:
    """Check an operand.

    Args:
        where: What it is given to, for the message.
        value: What a user wrote.
        types: The types it may have.

    Raises:
        DeclarationError: DynamoDB cannot hold it, or it has another type.
    """
    try:
        ((tag, _),) = encode(value).items()
    except BadValueError as error:
        raise DeclarationError(f"{where}: {error}") from None
    if tag not in types:
        *some, last = (_IN_WORDS[kind] for kind in types)
        raise DeclarationError(f"{where}: expected {', '.join(some)} or {last}, came {shortened(value)}")
    checked: Any = value
    return Operand(tag, bytes(checked) if tag == "B" else checked)


def on_value(path: str, test: _Test) -> Predicate:
    """A predicate that puts an attribute's raw value to a test; a missing one does not pass."""
    get = getter(path)
    return lambda image: test(get(image) or ABSENT)


def typed(kind: OperandType, accepts: Callable[[Any], bool]) -> _Test:
    """A test that a value passes if it is of one type and accepted in its comparable form."""
    comparable = _COMPARABLE.get(kind)

    def test(value: AttributeValue) -> bool:
        raw = value.get(kind)
        return raw is not None and accepts(raw if comparable is None else comparable(raw))

    return test


def one_of(operands: tuple[Operand, ...]) -> _Test:
    """A test that a value passes if it equals one of the operands."""
    wanted: defaultdict[OperandType, set[Any]] = defaultdict(set)
    for each in operands:
        wanted[each.type].add(each.comparable())
    tests = [typed(kind, frozenset(values).__contains__) for kind, values in wanted.items()]
    return tests[0] if len(tests) == 1 else lambda value: any(test(value) for test in tests)


def _binary(raw: str | bytes) -> bytes:
    """Binary from a client, or from an event, where it is base64 text."""
    return b64decode(raw) if isinstance(raw, str) else bytes(raw)


# Building and comparing a Decimal never rounds. A raw null is `True`.
_COMPARABLE: dict[OperandType, Callable[[Any], Any]] = {"N": Decimal, "B": _binary, "NULL": lambda raw: None}
