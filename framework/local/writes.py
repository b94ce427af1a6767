"""One write, as a value: where, on what condition, and what it makes of the item.

Single writes, batches and transactions are all made of these. AWS facts: DynamoDB API reference, "PutItem",
"UpdateItem", "DeleteItem" and "TransactWriteItems".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from framework.codec import Image
from framework.local.capacity import write_units
from framework.local.expressions import Condition, Names, Update, Values, condition, filled, update
from framework.local.paths import Steps
from framework.local.storage import Place, Table, copied_item
from framework.local.values import RefusedError, ServiceError, normal_item

__all__ = ["ConditionFailedError", "Write", "check_of", "delete_of", "put_of", "update_of"]

Request: TypeAlias = Mapping[str, Any]

_NOTHING: dict[str, Any] = {}


class ConditionFailedError(ServiceError):
    """A write's condition does not hold; carries the item where the request asked for it."""

    def __init__(self, item: Image | None) -> None:
        extra = {} if item is None else {"Item": copied_item(item)}
        super().__init__("ConditionalCheckFailedException", "The conditional request failed", **extra)


class Write(NamedTuple):
    """What a request would do to one item; a tuple because one is made for every write.

    Args:
        table: Where.
        place: Which item.
        holds: The condition, if there is one, on the item or on `{}`.
        change: The item before to the item after; None for no item.
        shows: Whether a failed condition shows the item.
        targets: The paths that an update touches.
    """

    table: Table
    place: Place
    holds: Callable[[Image], bool] | None
    change: Callable[[Image | None], Image | None]
    shows: bool = False
    targets: Sequence[Steps] = ()

    def outcome(self) -> tuple[Image | None, Image | None]:
        """The item before and after; nothing is stored yet.

        Raises:
            ConditionFailedError: The condition does not hold.
            RefusedError: The update does not fit the item, or the item after it is not storable.
        """
        before = self.table.get(self.place)
        if self.holds is not None and not self.holds(_NOTHING if before is None else before):
            raise ConditionFailedError(before if self.shows else None)
        return before, self.change(before)

    def attempted_units(self, *, transaction: bool = False) -> int:
        """What it costs when it is not made: the table's part, by the larger of what is and what would be.

        AWS facts: DynamoDB developer guide, "Read and write operations", conditional writes.
        """
        before, after = self.table.get(self.place), None
        with suppress(RefusedError):
            after = self.change(before)
        return write_units(before, after, transaction=transaction)


def put_of(table: Table, request: Request) -> Write:
    """A PutItem's write.

    Raises:
        RefusedError: The item or the condition is not what the service takes.
    """
    item = normal_item(request["Item"])
    place = table.place(item)
    table.require_storable(item)
    return Write(table, place, _conditional(request), lambda before: item, _shows(request))


def delete_of(table: Table, request: Request) -> Write:
    """A DeleteItem's write; refused as `put_of`."""
    place, _ = table.key(request["Key"])
    return Write(table, place, _conditional(request), lambda before: None, _shows(request))


def check_of(table: Table, request: Request) -> Write:
    """A transaction's ConditionCheck, which leaves the item as it is; refused as `put_of`."""
    place, _ = table.key(request["Key"])
    return Write(table, place, _conditional(request), lambda before: before, _shows(request))


def update_of(table: Table, request: Request) -> Write:
    """An UpdateItem's write.

    Raises:
        RefusedError: The key, an expression or a value is not what the service takes, or a key would be
            changed.
    """
    place, key = table.key(request["Key"])
    text = request.get("UpdateExpression")
    if text is None:
        # An update that says nothing makes an item of just the key where there is none.
        return Write(table, place, _conditional(request), lambda before: before or key, _shows(request))
    compiled = update(text)
    required = _condition(request)
    names, values = _placeholders(request, (compiled,) if required is None else (compiled, required))
    targets = compiled.targets(names)
    for steps in targets:
        if steps[0] in table.keys:
            raise RefusedError(
                f"One or more parameter values were invalid: Cannot update attribute {steps[0]}. "
                "This attribute is part of the key"
            )
    change = _updating(table, compiled, targets, key, names, values)
    return Write(table, place, _bound(required, names, values), change, _shows(request), targets)


def _updating(
    table: Table, compiled: Update, targets: Sequence[Steps], key: Image, names: Names, values: Values
) -> Callable[[Image | None], Image | None]:
    def change(before: Image | None) -> Image | None:
        if before is None and not compiled.creates:
            return None
        after = compiled.apply(key if before is None else before, targets, names, values)
        table.require_storable(after)
        return after

    return change


def _conditional(request: Request) -> Callable[[Image], bool] | None:
    required = _condition(request)
    names, values = _placeholders(request, () if required is None else (required,))
    return _bound(required, names, values)


def _condition(request: Request) -> Condition | None:
    text = request.get("ConditionExpression")
    return None if text is None else condition("ConditionExpression", text)


def _placeholders(request: Request, expressions: Sequence[Condition | Update]) -> tuple[Names, Values]:
    names = request.get("ExpressionAttributeNames")
    return names or {}, filled(expressions, names, request.get("ExpressionAttributeValues"))


def _bound(required: Condition | None, names: Names, values: Values) -> Callable[[Image], bool] | None:
    if required is None:
        return None
    holds = required.holds
    return lambda item: holds(item, names, values)


def _shows(request: Request) -> bool:
    return request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
