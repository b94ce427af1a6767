"""Measures: what an aggregation keeps of the items in a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import Literal

from framework.errors import DeclarationError, shortened

__all__ = [
    "EXACT",
    "Average",
    "Count",
    "Kind",
    "Max",
    "Measure",
    "Min",
    "Number",
    "Slot",
    "Sum",
    "at_or_above",
    "combine",
]

Number = int | Decimal
Kind = Literal["add", "least", "greatest"]

# Wide enough that no sum or difference of numbers that DynamoDB can hold (1E-130 to 9.99E+125) is ever rounded.
EXACT = Context(prec=400, Emin=-999999, Emax=999999)

# Results are given as exactly as DynamoDB could hold them: 38 digits.
_DIGITS_38 = Context(prec=38)
_DIGITS_38_UP = Context(prec=38, rounding=ROUND_CEILING)
# AWS facts: writes. What the service holds is 0 or of a magnitude from the one to the other.
_SMALLEST, _LARGEST = Decimal("1E-130"), Decimal(f"{'9' * 38}E+88")


@dataclass(frozen=True, slots=True)
class Slot:
    """One attribute of an aggregate item that a measure keeps.

    Attributes:
        attribute: The attribute's name on the aggregate.
        kind: How values come together: added up, the least, or the greatest of them.
        of: The path of the number on the source item; None where each item counts as one.
    """

    attribute: str
    kind: Kind
    of: str | None = None


def combine(kind: Kind, values: Sequence[Number]) -> Number:
    """One value out of several of a slot, exactly."""
    if kind == "least":
        return min(values)
    if kind == "greatest":
        return max(values)
    if all(type(value) is int for value in values):
        return sum(values)
    total = Decimal(0)
    for value in values:
        total = EXACT.add(total, value)
    return total


def at_or_above(value: Decimal) -> Decimal | None:
    """The least number that DynamoDB can hold which is not below a value; None if none is.

    What the service holds is at or above a value exactly if it is at or above that number: so a comparison with a
    value of too many digits is made with a number of 38.
    """
    if value > _LARGEST:
        return None
    if -_SMALLEST < value < _SMALLEST and value:
        return _SMALLEST if value > 0 else Decimal(0)
    return _DIGITS_38_UP.plus(max(value, -_LARGEST))


class Measure:
    """A value kept for each group and window; assign one to a class attribute of an `Aggregation`."""

    __slots__ = ()

    def slots(self, name: str) -> tuple[Slot, ...]:
        """The attributes that this measure keeps when it is declared as `name`."""
        raise NotImplementedError  # pragma: no cover - abstract

    def read(self, name: str, stored: dict[str, Number]) -> Number | None:
        """The measure's value out of the stored attributes; None where nothing was stored."""
        return stored.get(name)


@dataclass(frozen=True, slots=True)
class Count(Measure):
    """How many items there are."""

    def slots(self, name: str) -> tuple[Slot, ...]:
        """See `Measure.slots`."""
        return (Slot(name, "add"),)


@dataclass(frozen=True, slots=True)
class _OfAttribute(Measure):
    """A measure of a number that every counted item must have.

    Args:
        of: The number's attribute, nested as in `"price.amount"`. An item without it, or with another type in
            it, is a bad record: nothing stands in for a missing number. Leave such items out with `where`.
    """

    of: str

    def __post_init__(self) -> None:
        if not isinstance(self.of, str) or not self.of:
            raise DeclarationError(f"{type(self).__name__}: of: expected an attribute name, came {shortened(self.of)}")


class Sum(_OfAttribute):
    """The exact sum of a number."""

    __slots__ = ()

    def slots(self, name: str) -> tuple[Slot, ...]:
        """See `Measure.slots`."""
        return (Slot(name, "add", self.of),)


class Average(_OfAttribute):
    """The mean of a number, kept as `<name>Sum` and `<name>Count` so that it can be taken back exactly."""

    __slots__ = ()

    def slots(self, name: str) -> tuple[Slot, ...]:
        """See `Measure.slots`."""
        return (Slot(f"{name}Sum", "add", self.of), Slot(f"{name}Count", "add"))

    def read(self, name: str, stored: dict[str, Number]) -> Number | None:
        """See `Measure.read`."""
        total, count = stored.get(f"{name}Sum"), stored.get(f"{name}Count")
        if not count or total is None:
            return None
        mean = _DIGITS_38.divide(Decimal(total), Decimal(count))
        return int(mean) if mean == mean.to_integral_value() else mean


class Min(_OfAttribute):
    """The least value seen. It cannot take back, so it needs `changes = "inserts"`."""

    __slots__ = ()

    def slots(self, name: str) -> tuple[Slot, ...]:
        """See `Measure.slots`."""
        return (Slot(name, "least", self.of),)


class Max(_OfAttribute):
    """The greatest value seen. It cannot take back, so it needs `changes = "inserts"`."""

    __slots__ = ()

    def slots(self, name: str) -> tuple[Slot, ...]:
        """See `Measure.slots`."""
        return (Slot(name, "greatest", self.of),)
