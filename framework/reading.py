"""Reading aggregates back, over any DynamoDB client."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import islice
from typing import Any, overload

from framework.bounds import Bounds
from framework.client import CONNECTIONS, dynamodb
from framework.codec import Image, number_text
from framework.declaration import Declaration, Group
from framework.errors import BadRecordError, BadValueError, ReadError, shortened
from framework.lanes import owner
from framework.measures import Number
from framework.ranking import Entries, Metered, Place, stored

__all__ = ["Aggregate", "Page", "Ranking", "Series", "aggregates_of", "get", "page", "series"]

_MOST = 1_000_000_000  # entries that are asked for


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One group's values in one window; `aggregate["DownloadCount"]` is one of them.

    Attributes:
        group: The group's value: text or a number; a tuple of texts where several attributes make a group; the text
            of the key where a function does.
        window: The window's label, `"2018-01"`; of several, the first's and the last's: `"2018-01/2018-03"`.
        values: Each measure's value by its declared name: an `int` where it is whole, else an exact `Decimal`;
            None for an average or an extreme of nothing.
    """

    group: Group
    window: str
    values: Mapping[str, Number | None]

    def __getitem__(self, measure: str) -> Number | None:
        return self.values[measure]


class _Several(Sequence[Aggregate]):
    """Aggregates that were read together."""

    __slots__ = ()
    aggregates: tuple[Aggregate, ...]

    @overload
    def __getitem__(self, place: int) -> Aggregate: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Aggregate, ...]: ...

    def __getitem__(self, place: int | slice) -> Aggregate | tuple[Aggregate, ...]:
        return self.aggregates[place]

    def __len__(self) -> int:
        return len(self.aggregates)


@dataclass(frozen=True, slots=True)
class Page(_Several):
    """Some aggregates of a window, in order: a sequence of them.

    Attributes:
        aggregates: The aggregates.
        read_units: The read units that they cost.
        token: Text from which a later read goes on, in any process; None where nothing follows.
    """

    aggregates: tuple[Aggregate, ...]
    read_units: float
    token: str | None


@dataclass(frozen=True, slots=True)
class Series(_Several):
    """One group's aggregates in windows that follow each other: a sequence of one for each window.

    Attributes:
        aggregates: The aggregates; zeros where nothing counts.
        total: What they come to together, exactly: sums of counts and sums, averages of all, extremes of extremes.
        read_units: The read units that they cost.
    """

    aggregates: tuple[Aggregate, ...]
    total: Aggregate
    read_units: float


class Ranking(Iterator[Aggregate]):
    """The aggregates of a window in order, read as they are asked for: by the indexed measure, then the group's key.

    Args:
        declaration: The aggregation.
        window: The window.
        client: A boto3 DynamoDB client; the default one if None.
        least_first: Whether the least come first, and not the greatest.
        at_least: The least value of the indexed measure that is read; None for no such bound.
        at_most: The greatest one, likewise.
        token: Where an earlier read of the same window, order and bounds stopped.
        wanted: How many will be asked for, where that is known.

    Raises:
        ReadError: There is no index, or label, bounds or token are wrong.
    """

    def __init__(
        self,
        declaration: Declaration,
        window: str | date,
        client: Any,
        *,
        least_first: bool = False,
        at_least: Number | None = None,
        at_most: Number | None = None,
        token: str | None = None,
        wanted: int | None = None,
    ) -> None:
        if declaration.index is None:
            raise ReadError(
                f"{declaration.name}: expected an index to read a window from, came a declaration without one"
            )
        self._declaration = declaration
        self._token = token
        self._last: Place | None = None
        label = declaration.window.label(window)
        self._bounds = bounds = Bounds.of(declaration.name, at_least, at_most)
        # What a token has to be about: it goes on with nothing else.
        self._about = [declaration.name, declaration.index.name, label, "least" if least_first else "greatest"]
        self._about += [str(bounds)] if bounds != Bounds() else []
        after = None if token is None else self._place(token)
        self._reads = Metered(client or dynamodb())
        self._entries = Entries(
            declaration, label, self._reads, least_first=least_first, after=after, bounds=bounds, wanted=wanted
        )
        self._left = iter(self._entries)

    def __next__(self) -> Aggregate:
        for entry in self._left:
            self._last = entry.place
            found = _together(self._declaration, entry.items)
            if found is not None:
                return found
        raise StopIteration

    @property
    def read_units(self) -> float:
        """The read units consumed so far."""
        return self._reads.read_units

    @property
    def token(self) -> str | None:
        """Text from which a later read goes on after what was given out; None where nothing follows."""
        if not self._entries.more:
            return None
        if self._last is None:
            return self._token
        found = json.dumps([*self._about, str(self._last.value), self._last.group], separators=(",", ":"))
        return urlsafe_b64encode(found.encode()).decode().rstrip("=")

    def _place(self, token: str) -> Place:
        try:
            *about, value, group = json.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            place = Place(Decimal(value), group)
            if about != self._about or not isinstance(group, str) or not place.value.is_finite():
                raise ValueError(about)
            if place.value not in self._bounds:
                raise ValueError(value)
            if self._declaration.partitions == 1:
                number_text(place.value)
        except (ValueError, TypeError, ArithmeticError, BadValueError, RecursionError):
            name, _, label, order, *bounds = self._about
            expected = ", ".join([f"a token of a read of {label!r}", *bounds, f"the {order} first"])
            raise ReadError(f"{name}: token: expected {expected}, came {shortened(token)}") from None
        return place


def page(
    declaration: Declaration,
    window: str | date,
    n: int,
    client: Any,
    *,
    start: int = 1,
    token: str | None = None,
    least_first: bool = False,
    at_least: Number | None = None,
    at_most: Number | None = None,
) -> Page:
    """The `n` aggregates of a window from a rank on; see `Aggregation.top`."""
    for name, came in (("n", n), ("start", start)):
        if type(came) is not int or not 1 <= came <= _MOST:
            expected = f"a whole number from 1 to {_MOST:,}"
            raise ReadError(f"{declaration.name}: {name}: expected {expected}, came {shortened(came)}")
    if token is not None and start != 1:
        raise ReadError(f"{declaration.name}: expected a token or a start, came both")
    wanted = start - 1 + n
    ranking = Ranking(
        declaration,
        window,
        client,
        least_first=least_first,
        at_least=at_least,
        at_most=at_most,
        token=token,
        wanted=wanted,
    )
    found = tuple(islice(ranking, start - 1, wanted))
    return Page(found, ranking.read_units, ranking.token)


def get(declaration: Declaration, group: object, window: str | date, client: Any) -> Aggregate | None:
    """The aggregate of one group in one window, read consistently; see `Aggregation.get`."""
    label, text = declaration.window.label(window), _key_text(declaration, group)
    keys = (declaration.key(text, label, partition) for partition in range(declaration.partitions))
    return _together(declaration, _own(declaration, _items(Metered(client or dynamodb()), declaration, keys)))


def series(declaration: Declaration, group: object, first: str | date, last: str | date, client: Any) -> Series:
    """One group's aggregates from one window to another, read consistently; see `Aggregation.series`."""
    text, labels = _key_text(declaration, group), list(declaration.window.between(first, last))
    reads, table = Metered(client or dynamodb()), declaration.target
    keys = [declaration.key(text, label, part) for label in labels for part in range(declaration.partitions)]
    found = _items(reads, declaration, keys) if table.sk is None else _range(reads, declaration, keys)
    items: dict[str, list[Image]] = {label: [] for label in labels}
    for item in _own(declaration, found):
        items[declaration.text_of(item)[1]].append(item)
    value = declaration.group_of(keys[0])[0]
    whole = labels[0] if len(labels) == 1 else f"{labels[0]}/{labels[-1]}"
    return Series(
        tuple(_aggregate(declaration, value, label, each) for label, each in items.items()),
        _aggregate(declaration, value, whole, [item for each in items.values() for item in each]),
        reads.read_units,
    )


def aggregates_of(declaration: Declaration, items: Iterable[Image]) -> Iterator[Aggregate]:
    """The aggregates in an aggregation's items, without those of which every record was taken back."""
    parts: dict[tuple[str, str], list[Image]] = {}
    for item in items:
        parts.setdefault(declaration.text_of(item), []).append(item)
    return (found for part in parts.values() if (found := _together(declaration, part)) is not None)


def _key_text(declaration: Declaration, group: object) -> str:
    values = group if isinstance(group, tuple) else (group,)
    expected = declaration.group_by
    if isinstance(expected, tuple) and len(values) != len(expected):
        raise ReadError(f"{declaration.name}: group: expected a value for each of {expected}, came {shortened(group)}")
    try:
        return declaration.group_key(*values)
    except (BadRecordError, BadValueError) as error:
        raise ReadError(f"{declaration.name}: {error}") from None


def _items(reads: Metered, declaration: Declaration, keys: Iterable[Image]) -> Iterator[Image]:
    """The items with some keys that are there, all asked for at once."""
    requests = [{"TableName": declaration.target.name, "Key": key} for key in keys]
    if len(requests) == 1:
        found = [reads.get(requests[0])]
    else:
        with ThreadPoolExecutor(min(CONNECTIONS, len(requests)), thread_name_prefix="streamfold") as pool:
            found = list(pool.map(reads.get, requests))
    return (item for item in found if item is not None)


def _range(reads: Metered, declaration: Declaration, keys: Sequence[Image]) -> Iterator[Image]:
    """The items with some keys of one partition, by one query: a read unit is for 4 KB of them and not for each."""
    table = declaration.target
    assert table.sk is not None
    wanted = [key[table.sk]["S"] for key in keys]
    found = reads.pages(
        {
            "TableName": table.name,
            "KeyConditionExpression": "#pk = :pk AND #sk BETWEEN :first AND :last",
            "ExpressionAttributeNames": {"#pk": table.pk, "#sk": table.sk},
            "ExpressionAttributeValues": {
                ":pk": keys[0][table.pk],
                ":first": {"S": min(wanted)},
                ":last": {"S": max(wanted)},
            },
            "ConsistentRead": True,
        }
    )
    between = frozenset(wanted)
    return (item for item in found if item[table.sk]["S"] in between)


def _own(declaration: Declaration, items: Iterable[Image]) -> list[Image]:
    return [item for item in items if owner(item) == declaration.name]


def _together(declaration: Declaration, items: Sequence[Image]) -> Aggregate | None:
    """The aggregate of its items; None if there are none or what they counted was all taken back."""
    if not items:
        return None
    found = stored(declaration, items)
    if any(found.get(slot.attribute) == 0 for slot in declaration.slots if slot.of is None):
        return None
    group, label = declaration.group_of(items[0])
    return Aggregate(group, label, {name: m.read(name, found) for name, m in declaration.measures.items()})


def _aggregate(declaration: Declaration, group: Group, label: str, items: Sequence[Image]) -> Aggregate:
    """The aggregate of items of one window or several; zeros if there are none."""
    found = {slot.attribute: 0 for slot in declaration.slots if slot.kind == "add"} | stored(declaration, items)
    return Aggregate(group, label, {name: m.read(name, found) for name, m in declaration.measures.items()})
