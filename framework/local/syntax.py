"""The tree of an expression: plain values, as the grammar reads them and the compiler takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = [
    "Action",
    "And",
    "Arithmetic",
    "Between",
    "Compare",
    "IfNotExists",
    "In",
    "ListAppend",
    "Not",
    "Operand",
    "Or",
    "Path",
    "Size",
    "Test",
    "Tree",
    "Value",
    "Verb",
]


@dataclass(frozen=True, slots=True)
class Path:
    """Where a value is in an item: names, `#placeholders` and list indexes."""

    steps: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A `:placeholder` of ExpressionAttributeValues."""

    name: str


@dataclass(frozen=True, slots=True)
class Size:
    """`size(operand)`."""

    of: Operand


@dataclass(frozen=True, slots=True)
class IfNotExists:
    """`if_not_exists(path, default)`."""

    path: Path
    default: Operand


@dataclass(frozen=True, slots=True)
class ListAppend:
    """`list_append(first, second)`."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left + right` or `left - right`."""

    operator: str
    left: Operand
    right: Operand


Operand: TypeAlias = Path | Value | Size | IfNotExists | ListAppend | Arithmetic


@dataclass(frozen=True, slots=True)
class Compare:
    """`left = right`, and the other five comparisons."""

    operator: str
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class Between:
    """`subject BETWEEN low AND high`."""

    subject: Operand
    low: Operand
    high: Operand


@dataclass(frozen=True, slots=True)
class In:
    """`subject IN (options)`."""

    subject: Operand
    options: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Test:
    """A function that is a condition by itself, such as `begins_with(path, :prefix)`."""

    function: str
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT inner`."""

    inner: Tree


@dataclass(frozen=True, slots=True)
class And:
    """`left AND right`."""

    left: Tree
    right: Tree


@dataclass(frozen=True, slots=True)
class Or:
    """`left OR right`."""

    left: Tree
    right: Tree


Tree: TypeAlias = Compare | Between | In | Test | Not | And | Or
Verb: TypeAlias = Literal["SET", "REMOVE", "ADD", "DELETE"]


@dataclass(frozen=True, slots=True)
class Action:
    """One action of an update; REMOVE has no operand."""

    verb: Verb
    path: Path
    operand: Operand | None
