"""From the tree of an expression to closures that read an item.

AWS facts: DynamoDB developer guide, "Comparison operator and function reference" and "Update expressions".
What they leave open (a missing attribute is unequal to everything and in no order; a constant of a wrong type
is refused where an attribute of a wrong type is just false) was read in ScyllaDB's Alternator tests, which
are run against the service itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

from framework.codec import AttributeValue, Image
from framework.local import syntax
from framework.local.paths import found, resolved
from framework.local.syntax import Operand, Path, Tree, Value
from framework.local.values import ORDERED, SETS, RefusedError, add, normal, ordered, subtract

__all__ = ["Check", "Compiler", "Evaluate", "Names", "Predicate", "Values"]

Names: TypeAlias = Mapping[str, str]
Values: TypeAlias = Mapping[str, AttributeValue]
Predicate: TypeAlias = Callable[[Image, Names, Values], bool]
Evaluate: TypeAlias = Callable[[Image, Names, Values], AttributeValue | None]
Check: TypeAlias = Callable[[Values], None]

_TYPES = frozenset({"S", "N", "B", "SS", "NS", "BS", "L", "M", "BOOL", "NULL"})
_IN_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MISSING = "The provided expression refers to an attribute that does not exist in the item"
_WRONG_TYPE = "An operand in the update expression has an incorrect data type"


@dataclass(slots=True)
class Compiler:
    """Turns the parts of a tree into closures, and gathers what has to be checked of the constants."""

    kind: str
    checks: list[Check] = field(default_factory=list)

    # -- operands --

    def operand(self, operand: Operand) -> Evaluate:
        """The closure that gives an operand's value, or None where an attribute is missing."""
        match operand:
            case Value(name):
                return lambda item, names, values: values[name]
            case Path():
                return _reader(operand)
            case syntax.Size(of):
                subject = self.operand(of)
                return lambda item, names, values: _size(subject(item, names, values))
            case syntax.IfNotExists(path, default):
                present, otherwise = _reader(path), self._required(default)
                return lambda item, names, values: present(item, names, values) or otherwise(item, names, values)
            case syntax.ListAppend(first, second):
                return self._computed("list_append", "L", operator.add, first, second)
            case syntax.Arithmetic(sign, left, right):
                return self._computed(sign, "N", add if sign == "+" else subtract, left, right)

    def _computed(
        self, function: str, tag: str, compute: Callable[[Any, Any], Any], left: Operand, right: Operand
    ) -> Evaluate:
        self._constant(left, function, frozenset({tag}))
        self._constant(right, function, frozenset({tag}))
        first, second = self._required(left), self._required(right)

        def evaluate(item: Image, names: Names, values: Values) -> AttributeValue:
            one, other = first(item, names, values), second(item, names, values)
            if tag not in one or tag not in other:
                raise RefusedError(_WRONG_TYPE)
            return {tag: compute(one[tag], other[tag])}

        return evaluate

    def _required(self, operand: Operand) -> Callable[[Image, Names, Values], AttributeValue]:
        """An operand of an update, which has to be there."""
        if isinstance(operand, Value):
            constant = operand.name
            return lambda item, names, values: values[constant]
        evaluate = self.operand(operand)

        def required(item: Image, names: Names, values: Values) -> AttributeValue:
            value = evaluate(item, names, values)
            if value is None:
                raise RefusedError(_MISSING)
            return value

        return required

    # -- what constants have to be --

    def _constant(self, operand: Operand, function: str, allowed: frozenset[str]) -> None:
        """Has a constant of another type refused with the request, before any item is read."""
        if isinstance(operand, Value):
            name, kind = operand.name, self.kind

            def check(values: Values) -> None:
                if allowed.isdisjoint(values[name]):
                    _refuse_type(kind, function, values[name])

            self.checks.append(check)

    def _between_constants(self, low: Value, high: Value) -> None:
        kind = self.kind

        def check(values: Values) -> None:
            bottom, top = values[low.name], values[high.name]
            if bottom.keys() != top.keys():
                raise RefusedError(
                    f"Invalid {kind}: The BETWEEN operator requires same data type for lower and upper "
                    f"bounds; lower bound operand: {bottom}, upper bound operand: {top}"
                )
            if ordered(bottom, top, operator.gt):
                raise RefusedError(
                    f"Invalid {kind}: The BETWEEN operator requires upper bound to be greater than or equal "
                    f"to lower bound; lower bound operand: {bottom}, upper bound operand: {top}"
                )

        self.checks.append(check)

    def _known_type(self, operand: Operand) -> None:
        kind = self.kind
        assert isinstance(operand, Value)  # the grammar lets nothing else through
        name = operand.name

        def check(values: Values) -> None:
            if values[name].get("S") not in _TYPES:
                raise RefusedError(f"Invalid {kind}: Invalid attribute type name found; type: {values[name]}")

        self.checks.append(check)

    # -- conditions --

    def predicate(self, tree: Tree) -> Predicate:
        """The closure that tells whether a condition holds."""
        match tree:
            case syntax.Or(left, right):
                one, other = self.predicate(left), self.predicate(right)
                return lambda item, names, values: one(item, names, values) or other(item, names, values)
            case syntax.And(left, right):
                one, other = self.predicate(left), self.predicate(right)
                return lambda item, names, values: one(item, names, values) and other(item, names, values)
            case syntax.Not(inner):
                negated = self.predicate(inner)
                return lambda item, names, values: not negated(item, names, values)
            case syntax.Compare(comparator, subject, operand):
                return self._comparison(comparator, subject, operand)
            case syntax.Between(subject, low, high):
                return self._between(subject, low, high)
            case syntax.In(subject, options):
                return self._among(subject, options)
            case syntax.Test(function, operands):
                return self._test(function, operands)

    def _comparison(self, comparator: str, subject: Operand, operand: Operand) -> Predicate:
        left, right = self.operand(subject), self.operand(operand)
        if comparator == "=":
            return lambda item, names, values: _equal(left(item, names, values), right(item, names, values))
        if comparator == "<>":
            return lambda item, names, values: not _equal(left(item, names, values), right(item, names, values))
        for side in (subject, operand):
            self._constant(side, comparator, ORDERED)
        test = _IN_ORDER[comparator]
        return lambda item, names, values: ordered(left(item, names, values), right(item, names, values), test)

    def _between(self, subject: Operand, low: Operand, high: Operand) -> Predicate:
        for side in (subject, low, high):
            self._constant(side, "BETWEEN", ORDERED)
        if isinstance(low, Value) and isinstance(high, Value):
            self._between_constants(low, high)
        value, bottom, top = self.operand(subject), self.operand(low), self.operand(high)

        def holds(item: Image, names: Names, values: Values) -> bool:
            came = value(item, names, values)
            return ordered(bottom(item, names, values), came, operator.le) and ordered(
                came, top(item, names, values), operator.le
            )

        return holds

    def _among(self, subject: Operand, options: tuple[Operand, ...]) -> Predicate:
        value, candidates = self.operand(subject), tuple(map(self.operand, options))

        def holds(item: Image, names: Names, values: Values) -> bool:
            came = value(item, names, values)
            return any(_equal(came, candidate(item, names, values)) for candidate in candidates)

        return holds

    def _test(self, function: str, operands: tuple[Operand, ...]) -> Predicate:
        subject = self.operand(operands[0])
        if function == "attribute_exists":
            return lambda item, names, values: subject(item, names, values) is not None
        if function == "attribute_not_exists":
            return lambda item, names, values: subject(item, names, values) is None
        if function == "attribute_type":
            self._known_type(operands[1])
        if function == "begins_with":
            for side in operands:
                self._constant(side, "begins_with", frozenset({"S", "B"}))
        test = _TESTS[function]
        argument = self.operand(operands[1])

        def holds(item: Image, names: Names, values: Values) -> bool:
            came, wanted = subject(item, names, values), argument(item, names, values)
            return came is not None and wanted is not None and test(came, wanted)

        return holds

    # -- updates --

    def outcome(self, action: syntax.Action) -> Evaluate:
        """The closure that gives what the attribute is after an action; None where it is gone."""
        if action.operand is None:
            return lambda item, names, values: None
        if action.verb == "SET":
            return self._required(action.operand)
        allowed = SETS | {"N"} if action.verb == "ADD" else SETS
        self._constant(action.operand, action.verb, allowed)
        current, amount = _reader(action.path), self._required(action.operand)
        combine = _added if action.verb == "ADD" else _without

        def evaluate(item: Image, names: Names, values: Values) -> AttributeValue | None:
            return combine(current(item, names, values), amount(item, names, values))

        return evaluate


def _reader(path: Path) -> Evaluate:
    """The closure that reads a path; a single name, by far the most common one, costs one look-up."""
    if len(path.steps) > 1:
        return lambda item, names, values: found(item, resolved(path, names))
    name = str(path.steps[0])
    if name.startswith("#"):
        return lambda item, names, values: item.get(names[name])
    return lambda item, names, values: item.get(name)


def _refuse_type(kind: str, function: str, value: AttributeValue) -> NoReturn:
    raise RefusedError(
        f"Invalid {kind}: Incorrect operand type for operator or function; operator or function: {function}, "
        f"operand type: {next(iter(value))}"
    )


def _equal(left: AttributeValue | None, right: AttributeValue | None) -> bool:
    return left is not None and left == right


def _size(value: AttributeValue | None) -> AttributeValue | None:
    """Characters of a string, bytes of a binary, members of a collection; a number and the rest have none."""
    if value is None:
        return None
    ((tag, content),) = value.items()
    return None if tag in ("N", "BOOL", "NULL") else {"N": str(len(content))}


def _has_type(value: AttributeValue, wanted: AttributeValue) -> bool:
    return wanted["S"] in value


def _begins_with(value: AttributeValue, prefix: AttributeValue) -> bool:
    ((tag, content),) = prefix.items()
    return tag in ("S", "B") and tag in value and bool(value[tag].startswith(content))


def _contains(value: AttributeValue, wanted: AttributeValue) -> bool:
    """A part of a text or a binary, a member of a set, or an element of a list."""
    ((tag, content),) = wanted.items()
    if "L" in value:
        return wanted in value["L"]
    if tag in ORDERED and tag + "S" in value:
        return content in value[tag + "S"]
    return tag in ("S", "B") and tag in value and content in value[tag]


def _added(current: AttributeValue | None, amount: AttributeValue) -> AttributeValue:
    """What ADD leaves: a sum, or a union; a missing attribute is zero or empty."""
    if current is None:
        return amount
    ((tag, content),) = amount.items()
    if tag not in current:
        raise RefusedError(_WRONG_TYPE)
    if tag == "N":
        return {"N": add(current["N"], content)}
    return normal({tag: {*current[tag], *content}})


def _without(current: AttributeValue | None, amount: AttributeValue) -> AttributeValue | None:
    """What DELETE leaves of a set; an empty set is no attribute."""
    if current is None:
        return None
    ((tag, content),) = amount.items()
    if tag not in current:
        raise RefusedError(_WRONG_TYPE)
    left = [member for member in current[tag] if member not in content]
    return {tag: left} if left else None


_TESTS: dict[str, Callable[[AttributeValue, AttributeValue], bool]] = {
    "attribute_type": _has_type,
    "begins_with": _begins_with,
    "contains": _contains,
}
