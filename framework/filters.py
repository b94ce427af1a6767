"""Filters: which records a mapping has to send, as the patterns of its filter criteria. Pure.

Whatever could change an aggregate or an entry, or is a bad record of one, passes; a pattern is wider than that where it
cannot say more, and never narrower: what a filter drops is gone without a word. An aggregate does not pass.

    where  --negations inwards, alternatives outwards-->  terms  --with events, image and mark-->  patterns

Of a sparse index, a new image passes that has an entry or should have one. That its entry is the right one already, as
after Streamfold's own write, a pattern can tell only where the entry is the same for all items and the index is not
shared: none compares two attributes. What left the index does not pass again.

AWS facts: Lambda developer guide, "Control which events Lambda sends to your function" and "Using event filtering with
a DynamoDB event source"; EventBridge user guide, "Comparison operators for use in event patterns".
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any

from framework.archive import ArchiveDeclaration
from framework.codec import AttributeValue, encode, to_event
from framework.conditions import And, AnyOf, BeginsWith, Between, Comparison, Condition, Exists, Not, Or
from framework.decode import EXPIRED_BY
from framework.errors import DeclarationError, shortened
from framework.operands import SCALAR, Operand
from framework.paths import parse
from framework.patterns import (
    ABSENT,
    ANYTHING,
    EVENT,
    MARKED,
    MOST_CHARACTERS,
    MOST_TERMS,
    PRESENT,
    WHO,
    Leaf,
    Lost,
    Term,
    either,
    json_text,
    leaf_of,
    pattern_of,
    shorten,
    widen,
)
from framework.sparse import Handler, SparseDeclaration

__all__ = ["MOST_CHARACTERS", "MOST_PATTERNS", "Filters", "compile_filters"]

# Lambda developer guide, the first page named above.
MOST_PATTERNS = 10
_has_one_form = re.compile(r"-?[0-9]{1,15}").fullmatch


@dataclass(frozen=True, slots=True)
class Filters:
    """The filter criteria of a mapping.

    Attributes:
        patterns: The patterns as plain JSON data; a record that matches one of them passes.
        warnings: What they cannot express, so that more records pass: a sentence each, the aggregation first.
    """

    patterns: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The patterns as an event source mapping takes them: compact JSON with sorted keys, in ASCII."""
        return tuple(map(json_text, self.patterns))


def compile_filters(declarations: Sequence[Handler], *, limit: int = 5) -> Filters:
    """Compile the filter of a mapping.

    Args:
        declarations: All the handlers that the mapping feeds.
        limit: How many patterns the account's quota allows; more than that are merged into wider ones.

    Raises:
        DeclarationError: No record could ever pass, or the limit is not one.
    """
    if type(limit) is not int or not 1 <= limit <= MOST_PATTERNS:
        raise DeclarationError(f"limit: expected a whole number from 1 to {MOST_PATTERNS}, came {shortened(limit)}")
    warnings: dict[str, None] = {}
    new, old = list[Term](), list[Term]()
    too_many, too_long = Lost(), Lost()
    for each in declarations:
        if isinstance(each, SparseDeclaration):
            places = _Compiler(each.name, warnings).terms_of_entry(each)
            new = either([*new, *(term.at(EVENT, leaf_of(["INSERT", "MODIFY"])) for term in places)], too_many)
            continue
        found = _Compiler(each.name, warnings).terms_of(each.where)
        if isinstance(each, ArchiveDeclaration):
            gone = [term.at(EVENT, leaf_of(["REMOVE"])) for term in found]
            if not each.also_deletes and each.replicated_ttl is None:
                gone = [term.at(WHO, leaf_of([EXPIRED_BY])) for term in gone]
            old = either([*old, *gone], too_many)
            continue
        if not found:
            warnings[f"{each.name}: no item can fulfil its condition, so no pattern is about it."] = None
        events = ["INSERT", "MODIFY"] if each.changes == "all" else ["INSERT"]
        new = either([*new, *(term.at(EVENT, leaf_of(events)) for term in found)], too_many)
        if each.changes == "all":
            old = either([*old, *(term.at(EVENT, leaf_of(["MODIFY", "REMOVE"])) for term in found)], too_many)
    if not new and not old:
        conditions = (None if isinstance(each, SparseDeclaration) else each.where for each in declarations)
        came = "; ".join(where.text() for where in conditions if where is not None) or "no handler"
        raise DeclarationError(f"filter: expected a condition that an item can fulfil, came {shortened(came, 200)}")
    while len(new) + len(old) > limit and max(len(new), len(old)) > 1:
        widen((new, old), too_many)
    new, old = (either((shorten(term, too_long) for term in terms), too_long) for terms in (new, old))
    _warn(warnings, too_many, f"the mapping has at most {limit} pattern{'s' * (limit > 1)}")
    _warn(warnings, too_long, f"a pattern has at most {MOST_CHARACTERS:,} characters")
    patterns = [pattern_of(term) for term in new] + [pattern_of(term, "OldImage") for term in old]
    if len(patterns) > limit:
        names = ", ".join(each.name for each in declarations)
        warnings[f"{names}: one pattern is either about new images or about old ones, so every record passes."] = None
        patterns = [{"eventName": ["INSERT", "MODIFY", "REMOVE"]}]
    return Filters(tuple(patterns), tuple(warnings))


def _warn(warnings: dict[str, None], lost: Lost, reason: str) -> None:
    if lost:
        names, paths = {name for name, _ in lost}, {".".join(place[::2]) for _, place in lost}
        warnings[f"{', '.join(sorted(names))}: {reason}, so it asks less of {', '.join(sorted(paths))}."] = None


class _Compiler:
    """Compiles one handler's condition."""

    def __init__(self, name: str, warnings: dict[str, None]) -> None:
        self.name, self.names, self.warnings, self.too_many = name, frozenset({name}), warnings, Lost()

    def terms_of(self, where: Condition | None) -> list[Term]:
        """Alternatives that take every image that counts; none if none can."""
        unmarked = [Term({MARKED: ABSENT}, self.names)]
        found = unmarked if where is None else self.both(unmarked, self.terms(where, False))
        _warn(self.warnings, self.too_many, f"the condition has more than {MOST_TERMS} alternatives")
        return found

    def terms_of_entry(self, declaration: SparseDeclaration) -> list[Term]:
        """Alternatives that take every image whose entry is not the right one, or cannot be told."""
        when, managed, fixed = declaration.when, declaration.managed, declaration.fixed
        present = [self.held(name, kind, PRESENT) for name, (kind, _) in managed.items()]
        if fixed is None:
            self.cannot("whether an entry is the right one", "lets own writes pass that set one", {})
            return either([*self.terms_of(when), *present], self.too_many)
        other = [self.held(name, "S", self.but(name, value)) for name, value in fixed.items()]
        wrong = self.both(self.terms_of(when), other)
        if when is not None:
            wrong += self.both(self.terms_of(Not(when)), present)
        if declaration.siblings:
            self.cannot("whose an entry in a shared index is", "lets own writes pass that set one", {})
        for each in declaration.siblings:
            # One that would have an entry in both has none, though the right one may be there.
            theirs = _Compiler(each.name, self.warnings).terms_of(each.when)
            wrong += self.both(self.terms_of(when), theirs)
        return either(wrong, self.too_many)

    def but(self, name: str, value: AttributeValue) -> Leaf:
        if "S" in value:
            return leaf_of(but=[value["S"]], absent=True)
        self.cannot(f"another {name} than always", "lets own writes pass", {})
        return ANYTHING

    def held(self, name: str, kind: str, asked: Leaf) -> Term:
        """A term about an attribute of an entry, of an item that Streamfold did not write."""
        if "." in name or name.startswith("$"):
            self.cannot(f"an attribute such as {name!r}", "lets every item pass", {})
            asked = ANYTHING
        return Term({MARKED: ABSENT}, self.names).at((name, kind), asked)

    def terms(self, condition: Condition, negated: bool) -> list[Term]:
        match condition:
            case Not(part):
                return self.terms(part, not negated)
            case And(parts) | Or(parts):
                several = [self.terms(part, negated) for part in parts]
                if isinstance(condition, And) is not negated:
                    return reduce(self.both, several)
                return either(chain.from_iterable(several), self.too_many)
            case Comparison(path) | Between(path) | AnyOf(path) | BeginsWith(path) | Exists(path):
                text = (Not(condition) if negated else condition).text()
                steps = parse(path)
                place = tuple(chain.from_iterable((str(step), "M") for step in steps))[:-1]
                # The service knows no positions in lists, joins names by dots, and has a meaning for "$or".
                odd = any(isinstance(step, int) or "." in step or step.startswith("$") for step in steps)
                asked = [self.cannot(text, "lets every item pass", {})] if odd else self.asked(condition, negated, text)
                terms = (Term({(*place, kind): one[kind] for kind in one}, self.names) for one in asked)
                return either(terms, self.too_many)
        raise AssertionError(condition)

    def asked(self, condition: Condition, negated: bool, text: str) -> list[dict[str, Leaf]]:
        """What is asked of the attribute, by type, as alternatives."""
        match condition:
            case Comparison(path, "=", operand):
                return self.asked(AnyOf(path, (operand,)), negated, text)
            case Exists() if negated:
                return [self.cannot(text, "lets sets, lists and maps pass", dict.fromkeys(SCALAR, ABSENT))]
            case AnyOf(_, operands) if negated and all(operand.type == "S" for operand in operands):
                return [{"S": leaf_of(but=[str(operand.value) for operand in operands], absent=True)}]
            case _ if negated or isinstance(condition, Exists):
                return [self.cannot(text, "lets every item pass", {})]
            case AnyOf(_, operands):
                return [self.equal(operand, text) for operand in operands]
            case BeginsWith(_, Operand("B", bytes(prefix))):
                # Three bytes are four characters; those of one or two depend on what follows.
                leaves = {"B": leaf_of(prefixes=[b64encode(prefix[: len(prefix) // 3 * 3]).decode()])}
                return [self.cannot(text, "looks at whole groups of 3 bytes", leaves) if len(prefix) % 3 else leaves]
            case BeginsWith(_, Operand("S", str(prefix))):
                return [{"S": leaf_of(prefixes=[prefix])}]
            case Comparison(_, _, operand) | Between(_, operand):
                return [self.cannot(text, f"asks for any {operand.type}", {operand.type: PRESENT})]
        raise AssertionError(condition)

    def equal(self, operand: Operand, text: str) -> dict[str, Leaf]:
        ((kind, literal),) = to_event({"_": encode(operand.value)})["_"].items()
        exact = kind != "N" or _has_one_form(literal)
        return {kind: leaf_of([literal])} if exact else self.cannot(text, f"asks for any {kind}", {kind: PRESENT})

    def cannot(self, text: str, instead: str, leaves: dict[Any, Leaf]) -> dict[str, Leaf]:
        self.warnings[f"{self.name}: no pattern can express {text}, so the filter {instead}."] = None
        return leaves

    def both(self, some: list[Term], others: list[Term]) -> list[Term]:
        met = (self.meet(one, other) for one in some for other in others)
        return either((term for term in met if term.possible()), self.too_many)

    def meet(self, one: Term, other: Term) -> Term:
        leaves = dict(one.leaves)
        for place, leaf in other.leaves.items():
            held = leaves.get(place, ANYTHING)
            if held.loses(leaf) or leaf.loses(held):
                self.cannot(f"exceptions from a prefix of {'.'.join(place[::2])}", "makes none", {})
            leaves[place] = held.meet(leaf)
        return Term(leaves, self.names)
