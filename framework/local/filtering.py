"""Lambda's filter language, to tell on this machine which records a mapping would send.

    {"eventName": ["INSERT"], "dynamodb": {"NewImage": {"kind": {"S": ["download", {"prefix": "down"}]}}}}

The keys of an object are ANDed, the matchers of an array are ORed. Only leaves are matched: text, numbers, booleans
and nulls. What is not a leaf does not exist, an object or an empty array as little as a key that is missing. An array
in the record matches if one of its elements does; what is below two different elements is not taken together.

What the language has beyond that (`$or`, `equals-ignore-case`, `wildcard`, `cidr`, `anything-but` with a matcher)
raises `ValueError`, so that no answer is taken for one that Lambda would give.

AWS facts: Lambda developer guide, "Control which events Lambda sends to your function" (filter rule syntax) and "Using
event filtering with a DynamoDB event source"; EventBridge user guide, "Comparison operators for use in event patterns"
(exists on leaves only, arrays, numeric ranges). Where the guides are silent: aws/event-ruler, README and RuleCompiler.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

__all__ = ["compiled", "matches", "passes"]

_Number = int | float | Decimal
_Test = Callable[[list[Any]], bool]

_COMPARE: dict[object, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compiled(patterns: Iterable[Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a mapping with these patterns sends a record, as a function; one without patterns sends every record.

    Raises:
        ValueError: A pattern that Lambda would refuse, or that says what this evaluator does not know.
    """
    tests = [_test(pattern, "pattern") for pattern in patterns]
    if not tests:
        return lambda record: True
    return lambda record: any(test([record]) for test in tests)


def passes(patterns: Iterable[Mapping[str, Any]], record: Mapping[str, Any]) -> bool:
    """Whether a mapping with these patterns sends the record; see `compiled`."""
    return compiled(patterns)(record)


def matches(pattern: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """Whether a record matches a pattern.

    Raises:
        ValueError: Lambda would refuse the pattern, or it says what this evaluator does not know.
    """
    return _test(pattern, "pattern")([record])


def _test(rule: Any, at: str) -> _Test:
    """Whether what is found at one place, with arrays opened, fulfils what the pattern says there."""
    if isinstance(rule, dict) and rule:
        tests = [(key, _test(rule[key], f"{at}.{key}")) for key in rule]

        def one_has_all(found: list[Any]) -> bool:
            # In loops, for this is asked of every record: generators would take half as long again.
            for each in [value for value in found if isinstance(value, dict)] or [{}]:
                for key, test in tests:
                    if not test(_opened(each, key)):
                        break
                else:
                    return True
            return False

        return one_has_all
    if isinstance(rule, list) and rule:
        matchers = [_matcher(matcher, at) for matcher in rule]

        def one_matches(found: list[Any]) -> bool:
            leaves = [value for value in found if not isinstance(value, dict)]
            for matcher in matchers:  # noqa: SIM110
                if matcher(leaves):
                    return True
            return False

        return one_matches
    raise ValueError(f"{at}: expected an object or an array, neither of them empty, came {rule!r}")


def _opened(value: dict[str, Any], key: str) -> list[Any]:
    """What is under a key: nothing, one value, or the elements of an array."""
    waiting: list[Any] = [value[key]] if key in value else []
    if not waiting or not isinstance(waiting[0], list):
        return waiting
    found = []
    while waiting:
        each = waiting.pop(0)
        if isinstance(each, list):
            waiting = each + waiting
        else:
            found.append(each)
    return found


def _matcher(matcher: Any, at: str) -> _Test:
    match matcher:
        case str():
            return lambda leaves: matcher in leaves
        case None | bool() | int() | float() | Decimal():
            return lambda leaves: any(_same(matcher, leaf) for leaf in leaves)
        case {"exists": bool(expected), **rest} if not rest:
            return lambda leaves: bool(leaves) is expected
        case {"prefix": str(prefix), **rest} if not rest:
            return lambda leaves: any(isinstance(leaf, str) and leaf.startswith(prefix) for leaf in leaves)
        case {"suffix": str(suffix), **rest} if not rest:
            return lambda leaves: any(isinstance(leaf, str) and leaf.endswith(suffix) for leaf in leaves)
        case {"anything-but": excluded, **rest} if not rest:
            values = _alike(excluded, at)
            return lambda leaves: any(not any(_same(value, leaf) for value in values) for leaf in leaves)
        case {"numeric": list(bounds), **rest} if not rest:
            tests = _bounds(bounds, at)
            return lambda leaves: any(
                _is_number(leaf) and all(compare(leaf, bound) for compare, bound in tests) for leaf in leaves
            )
    raise ValueError(
        f"{at}: expected a literal or one of prefix, suffix, anything-but, exists, numeric, came {matcher!r}"
    )


def _alike(excluded: Any, at: str) -> list[Any]:
    """The values that `anything-but` excludes: text only, or numbers only."""
    values = excluded if isinstance(excluded, list) else [excluded]
    if values and (all(isinstance(value, str) for value in values) or all(map(_is_number, values))):
        return values
    raise ValueError(f"{at}: anything-but: expected texts or numbers, came {excluded!r}")


def _bounds(bounds: list[Any], at: str) -> list[tuple[Callable[[Any, Any], bool], _Number]]:
    """The one or two comparisons of `numeric`."""
    signs, numbers = bounds[::2], bounds[1::2]
    if len(bounds) not in (2, 4) or not all(map(_is_number, numbers)) or not all(sign in _COMPARE for sign in signs):
        raise ValueError(f'{at}: numeric: expected bounds such as [">", 0, "<=", 5], came {bounds!r}')
    return [(_COMPARE[sign], bound) for sign, bound in zip(signs, numbers, strict=True)]


def _same(literal: Any, leaf: Any) -> bool:
    """Whether two leaves are equal as JSON has it: `true` is not 1, and 1 is 1.0."""
    if _is_number(literal) or _is_number(leaf):
        return _is_number(literal) and _is_number(leaf) and bool(literal == leaf)
    return bool(literal == leaf)


def _is_number(value: object) -> bool:
    return isinstance(value, _Number) and not isinstance(value, bool)
