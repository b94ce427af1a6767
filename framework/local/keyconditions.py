"""What a KeyConditionExpression asks of the keys.

AWS facts: DynamoDB developer guide, "Key condition expressions for the Query operation": the partition key is
equal to a constant; the sort key may be compared with one, lie between two, or begin with one; nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from framework.codec import AttributeValue
from framework.local.expressions import Condition, Names, Values
from framework.local.paths import resolved
from framework.local.syntax import And, Between, Compare, Path, Test, Tree, Value
from framework.local.values import RefusedError

__all__ = ["key_constants"]

_KIND = "KeyConditionExpression"


def key_constants(
    condition: Condition, keys: Sequence[str], names: Names, values: Values
) -> dict[str, list[AttributeValue]]:
    """The constants that each key attribute is compared with.

    Args:
        condition: The compiled KeyConditionExpression.
        keys: The partition key's name, and the sort key's where there is one.
        names: The request's placeholders.
        values: What `filled` gave.

    Returns:
        By attribute; the partition's has just one.

    Raises:
        RefusedError: It does not fix the partition, or asks what a key condition cannot.
    """
    constants: dict[str, list[AttributeValue]] = {}
    for part in _parts(condition.tree):
        name, placeholders = _comparison(part, names)
        if name not in keys:
            raise RefusedError(f"Query condition missed key schema element: {keys[len(constants) % len(keys)]}")
        if name in constants:
            raise RefusedError(f"Invalid {_KIND}: {_KIND}s must only contain one condition per key")
        if name == keys[0] and not (isinstance(part, Compare) and part.operator == "="):
            raise RefusedError(f"Query key condition not supported: {name} has to be equal to a constant")
        constants[name] = [values[placeholder] for placeholder in placeholders]
    if keys[0] not in constants:
        raise RefusedError(f"Query condition missed key schema element: {keys[0]}")
    return constants


def _parts(tree: Tree) -> Iterator[Tree]:
    if isinstance(tree, And):
        yield from _parts(tree.left)
        yield from _parts(tree.right)
    else:
        yield tree


def _comparison(part: Tree, names: Names) -> tuple[str, list[str]]:
    """The attribute that a part is about, and the placeholders it compares with."""
    match part:
        case Compare(operator, Path() as path, Value(constant)) if operator != "<>" and len(path.steps) == 1:
            placeholders = [constant]
        case Between(Path() as path, Value(low), Value(high)) if len(path.steps) == 1:
            placeholders = [low, high]
        case Test("begins_with", (Path() as path, Value(prefix))) if len(path.steps) == 1:
            placeholders = [prefix]
        case _:
            raise RefusedError(
                f"Invalid {_KIND}: only =, <, <=, >, >=, BETWEEN and begins_with of a key attribute and "
                "constants, joined by AND"
            )
    return str(resolved(path, names)[0]), placeholders
