"""Patterns: what a mapping's filter asks of an image, and how that is merged without loss, or widened. Pure.

A *term* asks something of some *places*, the paths in an image down to a value's type; what it asks of one is a *leaf*.
A term's pattern is about new images or about old ones, never both: the keys of one object are ANDed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from os.path import commonprefix
from typing import Any

from framework.lanes import MARK

__all__ = [
    "ABSENT",
    "ANYTHING",
    "EVENT",
    "MARKED",
    "MOST_CHARACTERS",
    "MOST_TERMS",
    "PRESENT",
    "WHO",
    "Leaf",
    "Lost",
    "Place",
    "Term",
    "either",
    "json_text",
    "leaf_of",
    "pattern_of",
    "shorten",
    "widen",
]

# Lambda developer guide, "Control which events Lambda sends to your function".
MOST_CHARACTERS = 4096
# What a condition's terms are kept to while it is compiled, lest the product of many alternatives grows without bound.
MOST_TERMS = 16

Texts = Iterable[str]
Place = tuple[str, ...]  # ("address", "M", "city", "S")
# Of the record itself, where it is no image's: a path of one step.
EVENT: Place = ("eventName",)
WHO: Place = ("userIdentity.principalId",)
MARKED: Place = (MARK, "S")
Lost = set[tuple[str, Place]]  # of which handler's condition, and where, something had to go


@dataclass(frozen=True, slots=True)
class Leaf:
    """What is asked of one place; made by `leaf_of`, so that leaves that take the same are equal."""

    literals: frozenset[str | bool]  # values that may be there
    prefixes: frozenset[str]  # what text there may begin with
    but: frozenset[str] | None  # texts that may not be there, while any other may
    absent: bool  # whether nothing may be there

    def takes(self, value: str | bool) -> bool:
        """Whether a value may be there."""
        if self.but is not None:
            return value not in self.but
        return value in self.literals or (isinstance(value, str) and value.startswith(tuple(self.prefixes)))

    def join(self, other: Leaf) -> Leaf:
        """What takes what either takes, exactly."""
        buts = [each.but for each in (self, other) if each.but is not None]
        but, absent = frozenset.intersection(*buts) if buts else None, self.absent or other.absent
        return leaf_of(self.literals | other.literals, self.prefixes | other.prefixes, but, absent)

    def meet(self, other: Leaf) -> Leaf:
        """What takes what both take, or more where `loses` says so."""
        absent = self.absent and other.absent
        if self.but is not None and other.but is not None:
            return leaf_of(but=self.but | other.but, absent=absent)
        literals = {*filter(other.takes, self.literals), *filter(self.takes, other.literals)}
        if self.but is not None or other.but is not None:
            return leaf_of(literals, self.prefixes | other.prefixes, absent=absent)
        pairs = [(p, q) for p in self.prefixes for q in other.prefixes if p.startswith(q) or q.startswith(p)]
        return leaf_of(literals, (max(pair, key=len) for pair in pairs), absent=absent)

    def loses(self, other: Leaf) -> bool:
        """Whether `meet` is wider: a prefix of the other is one of texts that may not be there."""
        return any(text.startswith(tuple(other.prefixes)) for text in self.but or ())

    def shorter(self) -> Leaf:
        """A wider leaf that takes less room."""
        texts = [value for value in (*self.literals, *self.prefixes) if isinstance(value, str)]
        wider = self.join(leaf_of(prefixes=[commonprefix(texts)[:256]]))  # noqa: RUF071 - of text, not of paths
        return ANYTHING if wider == self or self.but is not None else wider

    def json(self) -> list[Any]:
        """The leaf as a pattern has it."""
        found: list[Any] = sorted(self.literals, key=lambda value: (isinstance(value, bool), value))
        found += [{"prefix": prefix} for prefix in sorted(self.prefixes)]
        if self.but is not None:
            found.append({"anything-but": sorted(self.but)} if self.but else {"exists": True})
        return found + [{"exists": False}] * self.absent


def leaf_of(values: Iterable[Any] = (), prefixes: Texts = (), but: Texts | None = None, absent: bool = False) -> Leaf:
    """A leaf in its one form."""
    values, starts = frozenset(values), tuple(prefixes)
    but = () if but is None and "" in starts else but
    if but is not None:
        out = frozenset(value for value in but if value not in values and not value.startswith(starts))
        return Leaf(frozenset(), frozenset(), out, absent)
    shortest = frozenset(p for p in starts if not any(p != q and p.startswith(q) for q in starts))
    rest = frozenset(value for value in values if isinstance(value, bool) or not value.startswith(starts))
    return Leaf(rest, shortest, None, absent)


ABSENT = leaf_of(absent=True)
PRESENT = leaf_of(but=())
ANYTHING = leaf_of(but=(), absent=True)


@dataclass(frozen=True, slots=True)
class Term:
    """Leaves that have to be fulfilled together, and the aggregations whose conditions they are from."""

    leaves: Mapping[Place, Leaf]
    names: frozenset[str]

    def at(self, place: Place, leaf: Leaf) -> Term:
        """The term that asks this of a place, whatever it asked of it before."""
        leaves = {**self.leaves, place: leaf}
        return Term({at: leaf for at, leaf in leaves.items() if leaf != ANYTHING}, self.names)

    def wider(self, other: Term) -> Term:
        """What both ask, and no more."""
        common = self.leaves.keys() & other.leaves.keys()
        joined = ((place, self.leaves[place].join(other.leaves[place])) for place in common)
        return Term({place: leaf for place, leaf in joined if leaf != ANYTHING}, self.names | other.names)

    def merged(self, other: Term) -> Term | None:
        """The term that takes exactly what one of the two takes; None if there is none that is short enough."""
        some, others = self.leaves.keys(), other.leaves.keys()
        if not (some <= others or some >= others):
            return None
        wider = self.wider(other)
        if wider.leaves in (self.leaves, other.leaves):
            return wider
        one_apart = some == others and len(self.differences(other)) == 1
        # Mark and eventName may still be to come: they take less than 100 characters.
        return wider if one_apart and len(json_text(pattern_of(wider))) <= MOST_CHARACTERS - 100 else None

    def differences(self, other: Term) -> set[Place]:
        """The places of which two terms ask something else."""
        return {place for place, _ in self.leaves.items() ^ other.leaves.items()}

    def possible(self) -> bool:
        """Whether an item can fulfil it; a value has one type."""
        types: dict[Place, str] = {}
        there = [place for place, leaf in self.leaves.items() if not leaf.absent]
        steps = [(place[:at], place[at]) for place in there for at in range(1, len(place), 2)]
        return leaf_of() not in self.leaves.values() and all(types.setdefault(at, kind) == kind for at, kind in steps)


def _add(terms: list[Term], term: Term) -> None:
    """Add to alternatives of which none can be merged with another without loss."""
    for each in terms:
        if (merged := each.merged(term)) is not None:
            terms[:] = [other for other in terms if other is not each]
            return _add(terms, merged)
    terms.append(term)


def either(alternatives: Iterable[Term], lost: Lost) -> list[Term]:
    """The alternatives, merged where nothing is lost by it, or else where there are too many."""
    found: list[Term] = []
    for term in alternatives:
        _add(found, term)
        if len(found) > MOST_TERMS:
            widen((found,), lost)
    return found


def widen(sides: Sequence[list[Term]], lost: Lost) -> None:
    """Merge the two terms of a side whose merger asks of most places, and changes fewest."""
    pairs = ((terms, a, b, a.wider(b)) for terms in sides for a, b in combinations(terms, 2))
    terms, a, b, wider = max(pairs, key=lambda pair: (len(pair[3].leaves), -len(pair[1].differences(pair[2]))))
    lost.update((name, place) for name in wider.names for place in a.differences(b))
    terms[:] = [term for term in terms if term is not a and term is not b]
    _add(terms, wider)


def shorten(term: Term, lost: Lost) -> Term:
    """The term, or one that asks less and is short enough."""
    while len(json_text(pattern_of(term))) > MOST_CHARACTERS:
        room = {place: len(json_text([place, leaf.json()])) for place, leaf in sorted(term.leaves.items())}
        place = max(room.keys() - {EVENT, WHO, MARKED}, key=lambda place: (room[place], place))
        lost.update((name, place) for name in term.names)
        term = term.at(place, term.leaves[place].shorter())
    return term


def pattern_of(term: Term, side: str = "NewImage") -> dict[str, Any]:
    """The term as a pattern about one of a record's images."""
    pattern: dict[str, Any] = {}
    for place, leaf in sorted(term.leaves.items()):
        inner = pattern
        *steps, last = place[0].split(".") if len(place) == 1 else ("dynamodb", side, *place)
        for step in steps:
            inner = inner.setdefault(step, {})
        inner[last] = leaf.json()
    return pattern


def json_text(data: Any) -> str:
    """Compact JSON with sorted keys, in ASCII."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"))
