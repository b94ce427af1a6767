"""Document paths: reading, writing and picking what is inside an item.

AWS facts: DynamoDB developer guide, "Specifying item attributes in expressions" and "Update expressions".
That indexes mean the list as it was before the update, and that elements set beyond its end are appended in
the order of their index, is what ScyllaDB's Alternator tests, which are run against the service itself, show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, TypeAlias

from framework.codec import AttributeValue, Image
from framework.local.syntax import Path
from framework.local.values import RefusedError, copied

__all__ = ["Steps", "found", "picked", "require_apart", "resolved", "write_inside"]

Steps: TypeAlias = tuple[str | int, ...]  # attribute names and list indexes; the first is a name

_INVALID = "The document path provided in the update expression is invalid for update"


def resolved(path: Path, names: Mapping[str, str]) -> Steps:
    """A path with the attributes' own names in place of placeholders."""
    if len(path.steps) == 1:  # by far the most common one
        name = path.steps[0]
        return (names[name],) if type(name) is str and name[0] == "#" else path.steps
    return tuple(names[step] if type(step) is str and step[0] == "#" else step for step in path.steps)


def found(item: Image, steps: Steps) -> AttributeValue | None:
    """The value at a path, or None; a step into the wrong type finds nothing."""
    value = item.get(steps[0])  # type: ignore[arg-type]  # a path starts with a name
    for step in steps[1:]:
        if value is None:
            return None
        if type(step) is str:
            value = value.get("M", {}).get(step)
        else:
            members: Sequence[AttributeValue] = value.get("L", ())
            value = members[step] if step < len(members) else None  # type: ignore[index, operator]
    return value


def require_apart(kind: str, targets: Sequence[Steps]) -> None:
    """Refuses paths that touch: the same, one inside the other, or a name and an index of one value.

    Raises:
        RefusedError: Two of them do; `kind` is the request's parameter, for the message.
    """
    if max(map(len, targets)) == 1 and len(set(targets)) == len(targets):
        return
    for one, other in combinations(targets, 2):
        shared = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
        if shared is None:
            raise RefusedError(_clash(kind, "overlap with", one, other))
        if type(one[shared]) is not type(other[shared]):
            raise RefusedError(_clash(kind, "conflict with", one, other))


def _clash(kind: str, how: str, one: Steps, other: Steps) -> str:
    return (
        f"Invalid {kind}: Two document paths {how} each other; must remove or rewrite one of these paths; "
        f"path one: {list(one)}, path two: {list(other)}"
    )


def write_inside(item: dict[str, AttributeValue], changes: Sequence[tuple[Steps, AttributeValue | None]]) -> None:
    """Sets (a value) or removes (None) what is inside attributes; values that were there are copied first.

    Raises:
        RefusedError: A path's parent is not there, or is not a map or a list.
    """
    for name in {str(steps[0]) for steps, _ in changes}:
        if name in item:
            item[name] = copied(item[name])
    # By index upwards, so that what is set beyond the end of a list is appended in that order; downwards, so
    # that a removal does not move what is still to be removed.
    in_order = sorted(changes, key=lambda change: change[0])
    for steps, value in in_order:
        if value is not None:
            _set_inside(_parent(item, steps), steps[-1], value)
    for steps, value in reversed(in_order):
        if value is None:
            _remove_inside(_parent(item, steps), steps[-1])


def _parent(item: Image, steps: Steps) -> Any:
    """The members of the map or the list that a path ends in."""
    value = found(item, steps[:-1])
    members = None if value is None else value.get("M" if type(steps[-1]) is str else "L")
    if members is None:
        raise RefusedError(_INVALID)
    return members


def _set_inside(members: Any, step: str | int, value: AttributeValue) -> None:
    if type(step) is int and step >= len(members):
        members.append(value)
    else:
        members[step] = value


def _remove_inside(members: Any, step: str | int) -> None:
    if type(step) is str:
        members.pop(step, None)
    elif step < len(members):  # type: ignore[operator]
        del members[step]


def picked(item: Image, targets: Sequence[Steps]) -> dict[str, AttributeValue]:
    """The part of an item that the paths point at, copied, in its place; elements of a list move together."""
    wanted: dict[Any, Any] = {}
    for steps in targets:
        node = wanted
        for step in steps:
            node = node.setdefault(step, {})
    return _picked_members(item, wanted)


def _picked_members(members: Image, wanted: Mapping[Any, Any]) -> dict[str, AttributeValue]:
    parts = {name: _picked_value(members[name], deeper) for name, deeper in wanted.items() if name in members}
    return {name: part for name, part in parts.items() if part is not None}


def _picked_value(value: AttributeValue, wanted: Mapping[Any, Any]) -> AttributeValue | None:
    if not wanted:
        return copied(value)
    if "M" in value:
        inside = _picked_members(value["M"], wanted)
        return {"M": inside} if inside else None
    members = value.get("L", ())
    indexes = sorted(step for step in wanted if type(step) is int and step < len(members))
    parts = [part for at in indexes if (part := _picked_value(members[at], wanted[at])) is not None]
    return {"L": parts} if parts else None
