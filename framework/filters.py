"""Filters: which records a mapping has to send, as the patterns of its filter criteria. Pure.

Whatever could change an aggregate, or is a bad record of one, passes; a pattern is wider than that where it cannot say
more, and never narrower: what a filter drops is gone without a word. What Streamfold itself wrote does not pass.

    where  --negations inwards, alternatives outwards-->  terms  --with events, image and mark-->  patterns

A *term* asks something of some *places*, the paths in an image down to a value's type; what it asks of one is a *leaf*.
A term's pattern is about new images or about old ones, never both: the keys of one object are ANDed.

AWS facts: Lambda developer guide, "Control which events Lambda sends to your function" and "Using event filtering with
a DynamoDB event source"; EventBridge user guide, "Comparison operators for use in event patterns".
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, combinations
from os.path import commonprefix
from typing import Any

from framework.codec import encode, to_event
from framework.conditions import And, AnyOf, BeginsWith, Between, Comparison, Condition, Exists, Not, Or
from framework.declaration import Declaration
from framework.errors import DeclarationError, shortened
from framework.lanes import MARK
from framework.operands import SCALAR, Operand
from framework.paths import parse

__all__ = ["MOST_CHARACTERS", "MOST_PATTERNS", "Filters", "compile_filters"]

# Lambda developer guide, the first page named above; Lambda API reference, "Filter".
MOST_PATTERNS = 10
MOST_CHARACTERS = 4096
# What a condition's terms are kept to while it is compiled, lest the product of many alternatives grows without bound.
_MOST_TERMS = 16
_has_one_form = re.compile(r"-?[0-9]{1,15}").fullmatch

_Texts = Iterable[str]
_Place = tuple[str, ...]  # ("address", "M", "city", "S")
_EVENT: _Place = ()  # stands for the record's eventName
_MARKED: _Place = (MARK, "S")
_Lost = set[tuple[str, _Place]]  # of which aggregation's condition, and where, something had to go


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
        return tuple(map(_text, self.patterns))


def compile_filters(declarations: Sequence[Declaration], *, limit: int = 5) -> Filters:
    """Compile the filter of a mapping.

    Args:
        declarations: All the aggregations that the mapping feeds.
        limit: How many patterns the account's quota allows; more than that are merged into wider ones.

    Raises:
        DeclarationError: No record could ever pass, or the limit is not one.
    """
    if type(limit) is not int or not 1 <= limit <= MOST_PATTERNS:
        raise DeclarationError(f"limit: expected a whole number from 1 to {MOST_PATTERNS}, came {shortened(limit)}")
    warnings: dict[str, None] = {}
    new, old = list[_Term](), list[_Term]()
    too_many, too_long = _Lost(), _Lost()
    for each in declarations:
        found = _Compiler(each.name, warnings).terms_of(each.where)
        if not found:
            warnings[f"{each.name}: no item can fulfil its condition, so no pattern is about it."] = None
        events = ["INSERT", "MODIFY"] if each.changes == "all" else ["INSERT"]
        new = _either([*new, *(term.at(_EVENT, _leaf(events)) for term in found)], too_many)
        if each.changes == "all":
            old = _either([*old, *(term.at(_EVENT, _leaf(["MODIFY", "REMOVE"])) for term in found)], too_many)
    if not new and not old:
        came = "; ".join(each.where.text() for each in declarations if each.where is not None) or "no aggregation"
        raise DeclarationError(f"filter: expected a condition that an item can fulfil, came {shortened(came, 200)}")
    while len(new) + len(old) > limit and max(len(new), len(old)) > 1:
        _widen((new, old), too_many)
    new, old = (_either((_shorten(term, too_long) for term in terms), too_long) for terms in (new, old))
    _warn(warnings, too_many, f"the mapping has at most {limit} pattern{'s' * (limit > 1)}")
    _warn(warnings, too_long, f"a pattern has at most {MOST_CHARACTERS:,} characters")
    patterns = [_pattern(term) for term in new] + [_pattern(term, "OldImage") for term in old]
    if len(patterns) > limit:
        names = ", ".join(each.name for each in declarations)
        warnings[f"{names}: one pattern is either about new images or about old ones, so every record passes."] = None
        patterns = [{"eventName": ["INSERT", "MODIFY", "REMOVE"]}]
    return Filters(tuple(patterns), tuple(warnings))


@dataclass(frozen=True, slots=True)
class _Leaf:
    """What is asked of one place; made by `_leaf`, so that leaves that take the same are equal."""

    literals: frozenset[str | bool]  # values that may be there
    prefixes: frozenset[str]  # what text there may begin with
    but: frozenset[str] | None  # texts that may not be there, while any other may
    absent: bool  # whether nothing may be there

    def takes(self, value: str | bool) -> bool:
        if self.but is not None:
            return value not in self.but
        return value in self.literals or (isinstance(value, str) and value.startswith(tuple(self.prefixes)))

    def join(self, other: _Leaf) -> _Leaf:
        """What takes what either takes, exactly."""
        buts = [each.but for each in (self, other) if each.but is not None]
        but, absent = frozenset.intersection(*buts) if buts else None, self.absent or other.absent
        return _leaf(self.literals | other.literals, self.prefixes | other.prefixes, but, absent)

    def meet(self, other: _Leaf) -> _Leaf:
        """What takes what both take, or more where `loses` says so."""
        absent = self.absent and other.absent
        if self.but is not None and other.but is not None:
            return _leaf(but=self.but | other.but, absent=absent)
        literals = {*filter(other.takes, self.literals), *filter(self.takes, other.literals)}
        if self.but is not None or other.but is not None:
            return _leaf(literals, self.prefixes | other.prefixes, absent=absent)
        pairs = [(p, q) for p in self.prefixes for q in other.prefixes if p.startswith(q) or q.startswith(p)]
        return _leaf(literals, (max(pair, key=len) for pair in pairs), absent=absent)

    def loses(self, other: _Leaf) -> bool:
        """Whether `meet` is wider: a prefix of the other is one of texts that may not be there."""
        return any(text.startswith(tuple(other.prefixes)) for text in self.but or ())

    def shorter(self) -> _Leaf:
        """A wider leaf that takes less room."""
        texts = [value for value in (*self.literals, *self.prefixes) if isinstance(value, str)]
        wider = self.join(_leaf(prefixes=[commonprefix(texts)[:256]]))  # noqa: RUF071 - of text, not of paths
        return _ANYTHING if wider == self or self.but is not None else wider

    def json(self) -> list[Any]:
        found: list[Any] = sorted(self.literals, key=lambda value: (isinstance(value, bool), value))
        found += [{"prefix": prefix} for prefix in sorted(self.prefixes)]
        if self.but is not None:
            found.append({"anything-but": sorted(self.but)} if self.but else {"exists": True})
        return found + [{"exists": False}] * self.absent


def _leaf(values: Iterable[Any] = (), prefixes: _Texts = (), but: _Texts | None = None, absent: bool = False) -> _Leaf:
    """A leaf in its one form."""
    values, starts = frozenset(values), tuple(prefixes)
    but = () if but is None and "" in starts else but
    if but is not None:
        out = frozenset(value for value in but if value not in values and not value.startswith(starts))
        return _Leaf(frozenset(), frozenset(), out, absent)
    shortest = frozenset(p for p in starts if not any(p != q and p.startswith(q) for q in starts))
    rest = frozenset(value for value in values if isinstance(value, bool) or not value.startswith(starts))
    return _Leaf(rest, shortest, None, absent)


_ABSENT = _leaf(absent=True)
_PRESENT = _leaf(but=())
_ANYTHING = _leaf(but=(), absent=True)


@dataclass(frozen=True, slots=True)
class _Term:
    """Leaves that have to be fulfilled together, and the aggregations whose conditions they are from."""

    leaves: Mapping[_Place, _Leaf]
    names: frozenset[str]

    def at(self, place: _Place, leaf: _Leaf) -> _Term:
        leaves = {**self.leaves, place: leaf}
        return _Term({at: leaf for at, leaf in leaves.items() if leaf != _ANYTHING}, self.names)

    def wider(self, other: _Term) -> _Term:
        """What both ask, and no more."""
        common = self.leaves.keys() & other.leaves.keys()
        joined = ((place, self.leaves[place].join(other.leaves[place])) for place in common)
        return _Term({place: leaf for place, leaf in joined if leaf != _ANYTHING}, self.names | other.names)

    def merged(self, other: _Term) -> _Term | None:
        """The term that takes exactly what one of the two takes; None if there is none that is short enough."""
        some, others = self.leaves.keys(), other.leaves.keys()
        if not (some <= others or some >= others):
            return None
        wider = self.wider(other)
        if wider.leaves in (self.leaves, other.leaves):
            return wider
        one_apart = some == others and len(self.differences(other)) == 1
        # Mark and eventName may still be to come: they take less than 100 characters.
        return wider if one_apart and len(_text(_pattern(wider))) <= MOST_CHARACTERS - 100 else None

    def differences(self, other: _Term) -> set[_Place]:
        return {place for place, _ in self.leaves.items() ^ other.leaves.items()}

    def possible(self) -> bool:
        """Whether an item can fulfil it; a value has one type."""
        types: dict[_Place, str] = {}
        there = [place for place, leaf in self.leaves.items() if not leaf.absent]
        steps = [(place[:at], place[at]) for place in there for at in range(1, len(place), 2)]
        return _leaf() not in self.leaves.values() and all(types.setdefault(at, kind) == kind for at, kind in steps)


def _add(terms: list[_Term], term: _Term) -> None:
    """Add to alternatives of which none can be merged with another without loss."""
    for each in terms:
        if (merged := each.merged(term)) is not None:
            terms[:] = [other for other in terms if other is not each]
            return _add(terms, merged)
    terms.append(term)


def _either(alternatives: Iterable[_Term], lost: _Lost) -> list[_Term]:
    """The alternatives, merged where nothing is lost by it, or else where there are too many."""
    found: list[_Term] = []
    for term in alternatives:
        _add(found, term)
        if len(found) > _MOST_TERMS:
            _widen((found,), lost)
    return found


def _widen(sides: Sequence[list[_Term]], lost: _Lost) -> None:
    """Merge the two terms of a side whose merger asks of most places, and changes fewest."""
    pairs = ((terms, a, b, a.wider(b)) for terms in sides for a, b in combinations(terms, 2))
    terms, a, b, wider = max(pairs, key=lambda pair: (len(pair[3].leaves), -len(pair[1].differences(pair[2]))))
    lost.update((name, place) for name in wider.names for place in a.differences(b))
    terms[:] = [term for term in terms if term is not a and term is not b]
    _add(terms, wider)


def _shorten(term: _Term, lost: _Lost) -> _Term:
    """The term, or one that asks less and is short enough."""
    while len(_text(_pattern(term))) > MOST_CHARACTERS:
        room = {place: len(_text([place, leaf.json()])) for place, leaf in sorted(term.leaves.items())}
        place = max(room.keys() - {_EVENT, _MARKED}, key=lambda place: (room[place], place))
        lost.update((name, place) for name in term.names)
        term = term.at(place, term.leaves[place].shorter())
    return term


def _warn(warnings: dict[str, None], lost: _Lost, reason: str) -> None:
    if lost:
        names, paths = {name for name, _ in lost}, {".".join(place[::2]) or "eventName" for _, place in lost}
        warnings[f"{', '.join(sorted(names))}: {reason}, so it asks less of {', '.join(sorted(paths))}."] = None


class _Compiler:
    """Compiles one aggregation's condition."""

    def __init__(self, name: str, warnings: dict[str, None]) -> None:
        self.name, self.names, self.warnings, self.too_many = name, frozenset({name}), warnings, _Lost()

    def terms_of(self, where: Condition | None) -> list[_Term]:
        """Alternatives that take every image that counts; none if none can."""
        unmarked = [_Term({_MARKED: _ABSENT}, self.names)]
        found = unmarked if where is None else self.both(unmarked, self.terms(where, False))
        _warn(self.warnings, self.too_many, f"the condition has more than {_MOST_TERMS} alternatives")
        return found

    def terms(self, condition: Condition, negated: bool) -> list[_Term]:
        match condition:
            case Not(part):
                return self.terms(part, not negated)
            case And(parts) | Or(parts):
                several = [self.terms(part, negated) for part in parts]
                if isinstance(condition, And) is not negated:
                    return reduce(self.both, several)
                return _either(chain.from_iterable(several), self.too_many)
            case Comparison(path) | Between(path) | AnyOf(path) | BeginsWith(path) | Exists(path):
                text = (Not(condition) if negated else condition).text()
                steps = parse(path)
                place = tuple(chain.from_iterable((str(step), "M") for step in steps))[:-1]
                # The service knows no positions in lists, joins names by dots, and has a meaning for "$or".
                odd = any(isinstance(step, int) or "." in step or step.startswith("$") for step in steps)
                asked = [self.cannot(text, "lets every item pass", {})] if odd else self.asked(condition, negated, text)
                terms = (_Term({(*place, kind): one[kind] for kind in one}, self.names) for one in asked)
                return _either(terms, self.too_many)
        raise AssertionError(condition)

    def asked(self, condition: Condition, negated: bool, text: str) -> list[dict[str, _Leaf]]:
        """What is asked of the attribute, by type, as alternatives."""
        match condition:
            case Comparison(path, "=", operand):
                return self.asked(AnyOf(path, (operand,)), negated, text)
            case Exists() if negated:
                return [self.cannot(text, "lets sets, lists and maps pass", dict.fromkeys(SCALAR, _ABSENT))]
            case AnyOf(_, operands) if negated and all(operand.type == "S" for operand in operands):
                return [{"S": _leaf(but=[str(operand.value) for operand in operands], absent=True)}]
            case _ if negated or isinstance(condition, Exists):
                return [self.cannot(text, "lets every item pass", {})]
            case AnyOf(_, operands):
                return [self.equal(operand, text) for operand in operands]
            case BeginsWith(_, Operand("B", bytes(prefix))):
                # Three bytes are four characters; those of one or two depend on what follows.
                leaves = {"B": _leaf(prefixes=[b64encode(prefix[: len(prefix) // 3 * 3]).decode()])}
                return [self.cannot(text, "looks at whole groups of 3 bytes", leaves) if len(prefix) % 3 else leaves]
            case BeginsWith(_, Operand("S", str(prefix))):
                return [{"S": _leaf(prefixes=[prefix])}]
            case Comparison(_, _, operand) | Between(_, operand):
                return [self.cannot(text, f"asks for any {operand.type}", {operand.type: _PRESENT})]
        raise AssertionError(condition)

    def equal(self, operand: Operand, text: str) -> dict[str, _Leaf]:
        ((kind, literal),) = to_event({"_": encode(operand.value)})["_"].items()
        exact = kind != "N" or _has_one_form(literal)
        return {kind: _leaf([literal])} if exact else self.cannot(text, f"asks for any {kind}", {kind: _PRESENT})

    def cannot(self, text: str, instead: str, leaves: dict[Any, _Leaf]) -> dict[str, _Leaf]:
        self.warnings[f"{self.name}: no pattern can express {text}, so the filter {instead}."] = None
        return leaves

    def both(self, some: list[_Term], others: list[_Term]) -> list[_Term]:
        met = (self.meet(one, other) for one in some for other in others)
        return _either((term for term in met if term.possible()), self.too_many)

    def meet(self, one: _Term, other: _Term) -> _Term:
        leaves = dict(one.leaves)
        for place, leaf in other.leaves.items():
            held = leaves.get(place, _ANYTHING)
            if held.loses(leaf) or leaf.loses(held):
                self.cannot(f"exceptions from a prefix of {'.'.join(place[::2])}", "makes none", {})
            leaves[place] = held.meet(leaf)
        return _Term(leaves, self.names)


def _pattern(term: _Term, side: str = "NewImage") -> dict[str, Any]:
    pattern: dict[str, Any] = {}
    for place, leaf in sorted(term.leaves.items()):
        inner = pattern
        *steps, last = ("dynamodb", side, *place) if place else ("eventName",)
        for step in steps:
            inner = inner.setdefault(step, {})
        inner[last] = leaf.json()
    return pattern


def _text(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))
