"""Conditions on items, as data: `attr("SK").begins_with("download-") & ~attr("hidden").exists()`.

A condition is a value, not a function, because it is read three ways: compiled to a predicate on raw images
(`compile`), written out for people (`text`), and turned into the filter pattern of an event source mapping.
The nodes are plain frozen dataclasses for that.

    Condition
    ├── Comparison    =, <, <=, >, >= with one operand
    ├── Between       both bounds included
    ├── AnyOf         equal to one of several operands
    ├── BeginsWith
    ├── Exists
    ├── And, Or       of two conditions or more
    └── Not           also what `not_equals` and `not_exists` make

Values compare as they do in DynamoDB: only with values of their own type, numbers by value ("5" equals
"5.0"), text by the bytes of its UTF-8 (the order of Python's `str`), binary by its unsigned bytes. What
compares with a missing attribute, or with one of another type, is false; `~` is the plain complement of that.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NoReturn, TypeAlias

from framework.codec import Image
from framework.errors import DeclarationError, shortened
from framework.operands import (
    ABSENT,
    ORDERED,
    SCALAR,
    Operand,
    OperandType,
    Predicate,
    on_value,
    one_of,
    operand,
    typed,
)
from framework.paths import parse, top_level

__all__ = [
    "And",
    "AnyOf",
    "Attribute",
    "BeginsWith",
    "Between",
    "Comparison",
    "Condition",
    "Exists",
    "Not",
    "Operand",
    "Operator",
    "Or",
    "attr",
]

Operator: TypeAlias = Literal["=", "<", "<=", ">", ">="]

_METHODS: dict[Operator, str] = {"=": "equals", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
# The operand comes first in these: `"<"` asks whether the operand is greater than the value.
_COMPARE: dict[Operator, Callable[[Any, Any], bool]] = {
    "<": operator.gt,
    "<=": operator.ge,
    ">": operator.lt,
    ">=": operator.le,
}


class Condition(ABC):
    """What an item has to fulfil; made with `attr(...)`, combined with `&`, `|` and `~`."""

    __slots__ = ()

    def compile(self) -> Predicate:
        """Compile to a predicate on a raw image, be it from an event (binary as base64 text) or a client."""
        return self._compile()

    def text(self) -> str:
        """The condition as a person would say it: `SK begins with "download-" and not (hidden exists)`."""
        return self._text()

    def paths(self) -> tuple[str, ...]:
        """The paths of the attributes that it asks about, each once."""
        match self:
            case And(parts) | Or(parts):
                return tuple(dict.fromkeys(path for part in parts for path in part.paths()))
            case Not(part):
                return part.paths()
            case Comparison(path) | Between(path) | AnyOf(path) | BeginsWith(path) | Exists(path):
                return (path,)
        raise AssertionError(self)

    @abstractmethod
    def _compile(self) -> Predicate: ...

    @abstractmethod
    def _text(self) -> str: ...

    def __and__(self, other: Condition) -> And:
        return And(_parts(And, self, other))

    def __or__(self, other: Condition) -> Or:
        return Or(_parts(Or, self, other))

    def __invert__(self) -> Condition:
        return Not(self)

    def __bool__(self) -> bool:
        raise DeclarationError(f"{self!r}: expected &, | or ~ between conditions, came and, or, not or if")


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Condition):
    """`attr(path).equals(...)`, `lt`, `le`, `gt` and `ge`."""

    path: str
    operator: Operator
    operand: Operand

    def _compile(self) -> Predicate:
        kind, value = self.operand.type, self.operand.comparable()
        if self.operator != "=":
            return on_value(self.path, typed(kind, partial(_COMPARE[self.operator], value)))
        name = top_level(self.path)
        if name is not None and kind == "S":
            return lambda image: image.get(name, ABSENT).get("S") == value
        return on_value(self.path, one_of((self.operand,)))

    def _text(self) -> str:
        return f"{self.path} {self.operator} {self.operand.text()}"

    def __repr__(self) -> str:
        return f"attr({self.path!r}).{_METHODS[self.operator]}({self.operand!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Between(Condition):
    """`attr(path).between(low, high)`, both included and of one type."""

    path: str
    low: Operand
    high: Operand

    def _compile(self) -> Predicate:
        low, high = self.low.comparable(), self.high.comparable()
        return on_value(self.path, typed(self.low.type, lambda value: low <= value <= high))

    def _text(self) -> str:
        return f"{self.path} between {self.low.text()} and {self.high.text()}"

    def __repr__(self) -> str:
        return f"attr({self.path!r}).between({self.low!r}, {self.high!r})"


@dataclass(frozen=True, slots=True, repr=False)
class AnyOf(Condition):
    """`attr(path).any_of(...)`: equal to one of the operands, which may be of several types."""

    path: str
    operands: tuple[Operand, ...]

    def _compile(self) -> Predicate:
        name = top_level(self.path)
        if name is not None and all(operand.type == "S" for operand in self.operands):
            values = frozenset(operand.value for operand in self.operands)
            return lambda image: image.get(name, ABSENT).get("S") in values
        return on_value(self.path, one_of(self.operands))

    def _text(self) -> str:
        return f"{self.path} in ({', '.join(operand.text() for operand in self.operands)})"

    def __repr__(self) -> str:
        return f"attr({self.path!r}).any_of({', '.join(map(repr, self.operands))})"


@dataclass(frozen=True, slots=True, repr=False)
class BeginsWith(Condition):
    """`attr(path).begins_with(prefix)`, of text or of binary."""

    path: str
    prefix: Operand

    def _compile(self) -> Predicate:
        name, prefix = top_level(self.path), self.prefix.comparable()
        # Missing text reads as "" here, which begins with no prefix but the empty one.
        if name is not None and self.prefix.type == "S" and prefix:

            def begins(image: Image) -> bool:
                # The commonest condition. In this form it takes half the time of `get` with defaults.
                try:
                    text: str = image[name]["S"]
                except KeyError:
                    return False
                return text.startswith(prefix)

            return begins
        return on_value(self.path, typed(self.prefix.type, lambda value: value.startswith(prefix)))

    def _text(self) -> str:
        return f"{self.path} begins with {self.prefix.text()}"

    def __repr__(self) -> str:
        return f"attr({self.path!r}).begins_with({self.prefix!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Exists(Condition):
    """`attr(path).exists()`: there is a value, be it null or empty."""

    path: str

    def _compile(self) -> Predicate:
        name = top_level(self.path)
        if name is not None:
            return lambda image: name in image
        return on_value(self.path, bool)

    def _text(self) -> str:
        return f"{self.path} exists"

    def __repr__(self) -> str:
        return f"attr({self.path!r}).exists()"


@dataclass(frozen=True, slots=True, repr=False)
class _Junction(Condition):
    """Several conditions joined by one sign; the first of them that has the `decisive` outcome decides."""

    parts: tuple[Condition, ...]
    sign: ClassVar[str]
    word: ClassVar[str]
    decisive: ClassVar[bool]

    def _compile(self) -> Predicate:
        decisive = self.decisive
        predicates = tuple(part.compile() for part in self.parts)

        def junction(image: Image) -> bool:
            for holds in predicates:
                if holds(image) is decisive:
                    return decisive
            return not decisive

        return junction

    def _text(self) -> str:
        return f" {self.word} ".join(_wrapped(part, part._text()) for part in self.parts)

    def __repr__(self) -> str:
        return f" {self.sign} ".join(_wrapped(part, repr(part)) for part in self.parts)


class And(_Junction):
    """`a & b & c`: all of them."""

    __slots__ = ()

    sign = "&"
    word = "and"
    decisive = False


class Or(_Junction):
    """`a | b | c`: at least one of them."""

    __slots__ = ()

    sign = "|"
    word = "or"
    decisive = True


@dataclass(frozen=True, slots=True, repr=False)
class Not(Condition):
    """`~a`, `not_equals` and `not_exists`: whatever `a` is not true of."""

    part: Condition

    def _compile(self) -> Predicate:
        holds = self.part.compile()
        return lambda image: not holds(image)

    def _text(self) -> str:
        return f"not ({self.part._text()})"

    def __invert__(self) -> Condition:
        return self.part

    def __repr__(self) -> str:
        match self.part:
            case Comparison(path, "=", operand):
                return f"attr({path!r}).not_equals({operand!r})"
            case Exists(path):
                return f"attr({path!r}).not_exists()"
            case part:
                return f"~{_wrapped(part, repr(part))}"


@dataclass(frozen=True, slots=True, repr=False)
class Attribute:
    """An attribute of an item, to make a condition of; see `attr`.

    Operands are text, numbers (`int` or `Decimal`), bytes, and where only equality counts, booleans and None.
    A wrong one raises `DeclarationError`.
    """

    path: str

    def equals(self, value: object) -> Condition:
        """It has this type and value."""
        return Comparison(self.path, "=", self._operand("equals", value))

    def not_equals(self, value: object) -> Condition:
        """It is missing, or has another type or value: exactly `~equals(value)`."""
        return Not(Comparison(self.path, "=", self._operand("not_equals", value)))

    def any_of(self, *values: object) -> Condition:
        """It equals one of the values, given one by one or as a single list or tuple."""
        if len(values) == 1 and isinstance(values[0], list | tuple):
            values = tuple(values[0])
        if not values:
            raise DeclarationError(f"{self!r}.any_of: expected at least one value, came none")
        return AnyOf(self.path, tuple(self._operand("any_of", value) for value in values))

    def begins_with(self, prefix: object) -> Condition:
        """It is text, or binary, that begins with this."""
        return BeginsWith(self.path, self._operand("begins_with", prefix, ("S", "B")))

    def exists(self) -> Condition:
        """It is there, be it null or empty."""
        return Exists(self.path)

    def not_exists(self) -> Condition:
        """It is missing."""
        return Not(Exists(self.path))

    def between(self, low: object, high: object) -> Condition:
        """It is of the bounds' type, not below `low` and not above `high`."""
        least, most = (self._operand("between", bound, ORDERED) for bound in (low, high))
        if least.type != most.type or least.comparable() > most.comparable():
            expected = "two bounds of one type, the lower one first"
            came = f"{shortened(low)} and {shortened(high)}"
            raise DeclarationError(f"{self!r}.between: expected {expected}, came {came}")
        return Between(self.path, least, most)

    def lt(self, value: object) -> Condition:
        """It is of the value's type and less than it."""
        return Comparison(self.path, "<", self._operand("lt", value, ORDERED))

    def le(self, value: object) -> Condition:
        """It is of the value's type and not greater than it."""
        return Comparison(self.path, "<=", self._operand("le", value, ORDERED))

    def gt(self, value: object) -> Condition:
        """It is of the value's type and greater than it."""
        return Comparison(self.path, ">", self._operand("gt", value, ORDERED))

    def ge(self, value: object) -> Condition:
        """It is of the value's type and not less than it."""
        return Comparison(self.path, ">=", self._operand("ge", value, ORDERED))

    def _operand(self, method: str, value: object, types: tuple[OperandType, ...] = SCALAR) -> Operand:
        return operand(f"{self!r}.{method}", value, types)

    def _refuse(self, other: object = None) -> NoReturn:
        raise DeclarationError(f"expected a condition such as {self!r}.exists(), came {self!r}")

    __bool__ = __invert__ = __and__ = __rand__ = __or__ = __ror__ = _refuse

    def __repr__(self) -> str:
        return f"attr({self.path!r})"


def attr(path: str) -> Attribute:
    r"""An attribute to make a condition of: `attr("status").equals("open")`.

    Args:
        path: The attribute's name, or a path into it: `address.city`, `tags[0]`. A dot, a bracket or a
            backslash that belongs to a name is written with a backslash: `weird\.name`.

    Raises:
        DeclarationError: It is not a path.
    """
    try:
        parse(path)
    except DeclarationError as error:
        raise DeclarationError(f"attr: {error}") from None
    return Attribute(path)


def _parts(kind: type[_Junction], left: Condition, right: object) -> tuple[Condition, ...]:
    """Both sides of `&` or `|`; `a & b & c` is one `And` of three, however it is bracketed."""
    if not isinstance(right, Condition):
        raise DeclarationError(f"{left!r} {kind.sign} ...: expected a condition, came {shortened(right)}")
    sides = [side.parts if isinstance(side, kind) else (side,) for side in (left, right)]
    return sides[0] + sides[1]


def _wrapped(part: Condition, text: str) -> str:
    return f"({text})" if isinstance(part, _Junction) else text
