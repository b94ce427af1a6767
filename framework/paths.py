r"""Paths to attributes: `address.city`, `tags[0]`, and `weird\.name` for a dot that belongs to a name."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from framework.codec import AttributeValue, Image
from framework.errors import DeclarationError, shortened

__all__ = ["Step", "getter", "parse", "top_level"]

Step = str | int
"""One step of a path: a name in a map, or an index into a list."""

_NAME = r"(?:[^.\[\]\\]|\\[.\[\]\\])+"
_PART = rf"{_NAME}(?:\[[0-9]+\])*"
_is_path = re.compile(rf"{_PART}(?:\.{_PART})*").fullmatch
_steps = re.compile(rf"\[(?P<index>[0-9]+)\]|(?P<name>{_NAME})").finditer
_ESCAPED = re.compile(r"\\(.)")


def parse(path: str) -> tuple[Step, ...]:
    r"""Take a path apart.

    Args:
        path: Names joined by dots, indexes in brackets. A dot, a bracket or a backslash that belongs to a
            name has a backslash before it.

    Returns:
        The steps from the item on. The first is always the name of an attribute.

    Raises:
        DeclarationError: It is not a path.
    """
    checked: object = path  # it is what a user wrote
    if not isinstance(checked, str) or not _is_path(checked):
        raise DeclarationError(
            "path: expected names and indexes such as 'address.city' or 'tags[0]' (with a backslash before a "
            f"dot or a bracket that belongs to a name), came {shortened(path)}"
        )
    return _steps_of(path)


@lru_cache(maxsize=1024)
def _steps_of(path: str) -> tuple[Step, ...]:
    return tuple(
        int(found["index"]) if found["index"] else _ESCAPED.sub(r"\1", found["name"]) for found in _steps(path)
    )


def getter(path: str) -> Callable[[Image], AttributeValue | None]:
    """Compile a path to a function that finds the raw value on an image; None where there is none.

    Raises:
        DeclarationError: It is not a path.
    """
    name, *steps = parse(path)
    assert isinstance(name, str)

    def top_level(image: Image) -> AttributeValue | None:
        return image.get(name)

    def nested(image: Image) -> AttributeValue | None:
        value = image.get(name)
        for step in steps:
            if value is None:
                return None
            value = _member(value, step)
        return value

    return nested if steps else top_level


def _member(value: AttributeValue, step: Step) -> AttributeValue | None:
    """The raw value one step below another; None where it is not of a type that has such a step."""
    found: AttributeValue | None
    if isinstance(step, str):
        found = value.get("M", {}).get(step)
    else:
        members = value.get("L", ())
        found = members[step] if step < len(members) else None
    return found


def top_level(path: str) -> str | None:
    """The name of an attribute of the item itself; None for a path into one.

    Raises:
        DeclarationError: It is not a path.
    """
    name, *steps = parse(path)
    return name if isinstance(name, str) and not steps else None
