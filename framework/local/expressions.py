"""DynamoDB's expressions: parsed and compiled once, then filled in at each request.

A condition that was compiled asks an item in about a microsecond, which is what lets property tests run by
the thousand.

    names, values = {"#l": "lane"}, filled([expression], {"#l": "lane"}, {":f": {"S": "007"}})
    condition("ConditionExpression", "#l < :f")(item, names, values)       -> bool
    change = update("SET #l = :f")
    change.apply(item, change.targets(names), names, values)               -> the item after it
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from framework.codec import AttributeValue, Image
from framework.local.compiler import Check, Compiler, Evaluate, Names, Predicate, Values
from framework.local.grammar import Parser
from framework.local.paths import Steps, picked, require_apart, resolved, write_inside
from framework.local.syntax import Path, Tree
from framework.local.values import RefusedError, normal

__all__ = [
    "Condition",
    "Expression",
    "Names",
    "Projection",
    "Update",
    "Values",
    "condition",
    "filled",
    "projection",
    "update",
]

_KEPT = 4096  # compiled expressions of each kind
_EMPTY: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Expression:
    """What every compiled expression knows: its placeholders, and what its constants have to be."""

    kind: str
    names: frozenset[str]
    values: frozenset[str]
    checks: tuple[Check, ...]
    paths: tuple[Path, ...]

    def targets(self, names: Names) -> list[Steps]:
        """The paths with the attributes' own names.

        Raises:
            RefusedError: Two of them touch each other, which neither an update nor a projection may.
        """
        targets = [resolved(path, names) for path in self.paths]
        if len(targets) > 1:
            require_apart(self.kind, targets)
        return targets


@dataclass(frozen=True, slots=True)
class Condition(Expression):
    """A condition, a filter or a key condition: call it with an item and the placeholders."""

    tree: Tree
    holds: Predicate

    def __call__(self, item: Image, names: Names, values: Values) -> bool:
        """Whether it holds for an item; an item that is not there is `{}`."""
        return self.holds(item, names, values)

    def attributes(self, names: Names) -> set[str]:
        """The attributes that it reads."""
        return {str(resolved(path, names)[0]) for path in self.paths}


@dataclass(frozen=True, slots=True)
class Projection(Expression):
    """What a ProjectionExpression picks."""

    def apply(self, item: Image, names: Names) -> dict[str, AttributeValue]:
        """The part of an item that it picks, copied."""
        return picked(item, self.targets(names))


@dataclass(frozen=True, slots=True)
class Update(Expression):
    """What an UpdateExpression does; `creates` tells whether it makes an item that is not there.

    REMOVE and DELETE alone do not make one, and on an item that is not there they do nothing.
    """

    outcomes: tuple[Evaluate, ...]
    creates: bool

    def apply(self, item: Image, targets: Sequence[Steps], names: Names, values: Values) -> dict[str, AttributeValue]:
        """The item after the update; every operand is read from the item as it was.

        Args:
            item: The item before, which is left alone; the key for an item that is not there.
            targets: What `targets` gave.
            names: The request's placeholders.
            values: What `filled` gave.

        Raises:
            RefusedError: An operand is missing or has a wrong type, a number does not fit, a path leads
                nowhere.
        """
        outcomes = [outcome(item, names, values) for outcome in self.outcomes]
        after = dict(item)
        deeper = []
        for steps, value in zip(targets, outcomes, strict=True):
            name: Any = steps[0]
            if len(steps) > 1:
                deeper.append((steps, value))
            elif value is None:
                after.pop(name, None)
            else:
                after[name] = value
        if deeper:
            write_inside(after, deeper)
        return after


@lru_cache(maxsize=_KEPT)
def condition(kind: str, text: str) -> Condition:
    """The compiled condition; `kind` is the request's parameter, for messages.

    Raises:
        RefusedError: The text is not a condition.
    """
    parser, compiler = Parser(kind, text), Compiler(kind)
    tree = parser.condition()
    holds = compiler.predicate(tree)
    return Condition(
        kind, frozenset(parser.names), frozenset(parser.values), tuple(compiler.checks), tuple(parser.paths),
        tree, holds,
    )  # fmt: skip


@lru_cache(maxsize=_KEPT)
def update(text: str) -> Update:
    """The compiled update.

    Raises:
        RefusedError: The text is not an update.
    """
    kind = "UpdateExpression"
    parser, compiler = Parser(kind, text), Compiler(kind)
    actions = parser.update()
    outcomes = tuple(compiler.outcome(action) for action in actions)
    paths = tuple(action.path for action in actions)
    creates = any(action.verb in ("SET", "ADD") for action in actions)
    return Update(
        kind,
        frozenset(parser.names),
        frozenset(parser.values),
        tuple(compiler.checks),
        paths,
        outcomes,
        creates,
    )


@lru_cache(maxsize=_KEPT)
def projection(text: str) -> Projection:
    """The compiled projection.

    Raises:
        RefusedError: The text is not a list of paths.
    """
    parser = Parser("ProjectionExpression", text)
    paths = tuple(parser.projection())
    return Projection(parser.kind, frozenset(parser.names), frozenset(), (), paths)


def filled(
    expressions: Sequence[Expression],
    names: Names | None,
    values: Values | None,
) -> dict[str, AttributeValue]:
    """The request's values in normal form, after a check that placeholders are all there and all used.

    Raises:
        RefusedError: One is not defined, one is not used, or a constant has a type its operator does not
            take.
    """
    given = {name: normal(value) for name, value in values.items()} if values else {}
    used_names, used_values = _EMPTY, _EMPTY
    for expression in expressions:
        used_names |= expression.names
        used_values |= expression.values
    if used_names != (names or {}).keys() or used_values != given.keys():
        _refuse_placeholders(expressions, names or {}, given)
    for parameter, came in (("ExpressionAttributeNames", names), ("ExpressionAttributeValues", values)):
        if came is not None and not came:
            raise RefusedError(f"{parameter} must not be empty")
    for expression in expressions:
        for check in expression.checks:
            check(given)
    return given


def _refuse_placeholders(expressions: Iterable[Expression], names: Names, values: Values) -> None:
    """Says which placeholder is not defined, or which is not used."""
    names_left, values_left = set(names), set(values)
    for expression in expressions:
        for what, used, given in (("name", expression.names, names), ("value", expression.values, values)):
            missing = used.difference(given)
            if missing:
                raise RefusedError(
                    f"Invalid {expression.kind}: An expression attribute {what} used in expression is not "
                    f"defined; attribute {what}: {min(missing)}"
                )
        names_left -= expression.names
        values_left -= expression.values
    for parameter, left in (("Names", names_left), ("Values", values_left)):
        if left:
            raise RefusedError(
                f"Value provided in ExpressionAttribute{parameter} unused in expressions: keys: {{{min(left)}}}"
            )
