"""Bounds: between which values a read of an index goes."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from framework.codec import number, number_text
from framework.errors import BadValueError, ReadError, shortened
from framework.measures import Number

__all__ = ["Bounds"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Two values, both included, that the values which are read lie between. Made by `Bounds.of`.

    Attributes:
        least: The least value; None for no such bound.
        most: The greatest one, likewise.
    """

    least: Decimal | None = None
    most: Decimal | None = None

    @classmethod
    def of(cls, where: str, at_least: Number | None, at_most: Number | None) -> Bounds:
        """The bounds that a user gives.

        Args:
            where: The aggregation's name, for errors.
            at_least: The least value; None for no such bound.
            at_most: The greatest one, likewise.

        Raises:
            ReadError: One is no exact number that DynamoDB has, or there can be nothing between them.
        """
        found = cls(_checked(where, "at_least", at_least), _checked(where, "at_most", at_most))
        # DynamoDB refuses such a BETWEEN, and there is nothing to read.
        if found.least is not None and found.most is not None and found.least > found.most:
            raise ReadError(
                f"{where}: at_most: expected no less than at_least, {number_text(found.least)}, "
                f"came {number_text(found.most)}"
            )
        return found

    def __contains__(self, value: Decimal) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        found = {"at_least": self.least, "at_most": self.most}
        return ", ".join(f"{name}={number_text(value)}" for name, value in found.items() if value is not None)


def _checked(where: str, name: str, came: Number | None) -> Decimal | None:
    try:
        return None if came is None else number(number_text(came))
    except BadValueError:
        raise ReadError(
            f"{where}: {name}: expected an int or a Decimal that DynamoDB can hold, or None, came {shortened(came)}"
        ) from None
