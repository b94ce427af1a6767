"""Ranking: the entries of one window of an index in order, read from all its partition keys at once.

    2018-01     ─┐
    2018-01#0   ─┤   queried in parallel   merged: the greatest first, equal ones by the group's key text
    2018-01#1   ─┘

Each key is a cursor: it has a page of entries, and gets another one only when the merge has used that up. DynamoDB
says nothing of the order of entries with equal sort keys, and it differs by shards. So entries that are equal are read
to the last one, from every cursor, before the first of them is given out; what comes out is the same whatever the
shards and the pages. That is what a chart with a long tail of ones costs where it is read to its tail.

A place in the order is a value and a group's key text, and from a place on is read again by a condition on the sort
key. So it holds in another process, and after `shards` was raised. Bounds are such a condition, too: what lies outside
them is not read. Where an aggregate is several items, none of these has its value: then all are read, and their total
is compared.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from threading import Lock
from typing import Any

from framework.bounds import Bounds
from framework.client import CONNECTIONS
from framework.codec import Image, number, number_text
from framework.declaration import Declaration
from framework.errors import ReadError, shortened
from framework.measures import Number, combine

__all__ = ["Entries", "Entry", "Metered", "Place", "stored"]

# A Query costs half a read unit up to 4 KB, which is some 25 entries: so many are read for nothing.
_LARGEST_PAGE = 10_000  # a page has 1 MB at most anyway
_LEAST_PAGE = 25
_EVERYTHING = Bounds()


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the order of a window's entries.

    Attributes:
        value: The measure that orders them.
        group: The group's key text.
    """

    value: Decimal
    group: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of an index, or several that make up one aggregate.

    Attributes:
        place: Where it is in the order.
        items: The items: one, or those of several partitions.
    """

    place: Place
    items: tuple[Image, ...]


class Metered:
    """A client's reads, and the read units they cost.

    Args:
        client: A boto3 DynamoDB client.

    Attributes:
        read_units: Read units consumed so far, as DynamoDB tells them.
        requests: Requests so far.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._lock = Lock()  # keys are read at once
        self.read_units = 0.0
        self.requests = 0

    def query(self, arguments: dict[str, Any]) -> Any:
        """One page of a query."""
        return self._counted(self._client.query(**arguments, ReturnConsumedCapacity="TOTAL"))

    def get(self, arguments: dict[str, Any]) -> Image | None:
        """An item, read consistently."""
        reply = self._client.get_item(**arguments, ConsistentRead=True, ReturnConsumedCapacity="TOTAL")
        item: Image | None = self._counted(reply).get("Item")
        return item

    def pages(self, arguments: dict[str, Any]) -> Iterator[Image]:
        """All items of a query."""
        while True:
            page = self.query(arguments)
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            arguments = {**arguments, "ExclusiveStartKey": page["LastEvaluatedKey"]}

    def _counted(self, reply: Any) -> Any:
        with self._lock:
            self.requests += 1
            self.read_units += reply.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0)
        return reply


class Entries:
    """The entries of one window in order, as they are asked for.

    Args:
        declaration: An aggregation with an index.
        label: The window's label.
        reads: What to read with.
        least_first: Whether the least come first.
        after: The place after which to begin, one within the bounds.
        bounds: Between which values of the measure that orders them they have to lie.
        wanted: How many will be asked for, where that is known: then no more are read than that takes.

    Attributes:
        more: Whether there may be more than what was given out.
    """

    def __init__(
        self,
        declaration: Declaration,
        label: str,
        reads: Metered,
        *,
        least_first: bool = False,
        after: Place | None = None,
        bounds: Bounds = _EVERYTHING,
        wanted: int | None = None,
    ) -> None:
        assert declaration.index is not None
        self.more = True
        self._declaration = declaration
        self._least_first = least_first
        self._after = after
        self._bounds = bounds
        self._heads: list[tuple[Decimal, int]] = []
        scattered = declaration.partitions > 1  # then no entry alone tells where its aggregate is
        keys = declaration.index.keys(label)
        limit = None if wanted is None or scattered else _page(wanted, len(keys))
        asked = _EVERYTHING if scattered else _from(after, bounds, least_first)
        queries = [_query(declaration, key, least_first, asked, limit) for key in keys]
        self._cursors = [_Cursor(declaration, label, query, reads) for query in queries]
        self._runs = self._whole() if scattered else self._merged()

    def __iter__(self) -> Iterator[Entry]:
        for run in self._runs:
            left = [entry for entry in run if self._comes(entry.place)]
            for position, entry in enumerate(left, 1):
                self.more = bool(self._heads) or position < len(left)
                yield entry
        self.more = False

    def _comes(self, place: Place) -> bool:
        """Whether a place comes after the one that was left off at."""
        return self._after is None or self._order(place) > self._order(self._after)

    def _order(self, place: Place) -> tuple[Decimal, str]:
        return self._rank(place.value), place.group

    def _rank(self, value: Decimal) -> Decimal:
        return value if self._least_first else value.copy_negate()  # a minus would round

    def _merged(self) -> Iterator[list[Entry]]:
        """The entries of all cursors, those with one value at a time."""
        _fetch(self._cursors)
        self._advance(range(len(self._cursors)))
        while self._heads:
            rank, at = self._heads[0][0], list[int]()
            run: dict[str, Entry] = {}
            while self._heads and self._heads[0][0] == rank:
                at.append(heapq.heappop(self._heads)[1])
            for place in at:
                # By group, for one that is being moved to another shard may be seen in both.
                run.update((entry.place.group, entry) for entry in self._cursors[place].take())
            self._advance(at)
            yield [run[group] for group in sorted(run)]

    def _advance(self, places: Iterable[int]) -> None:
        for place in places:
            value = self._cursors[place].head()
            if value is not None:
                heapq.heappush(self._heads, (self._rank(value), place))

    def _whole(self) -> Iterator[list[Entry]]:
        """All aggregates at once, each of its parts."""
        d, parts = self._declaration, defaultdict[str, list[Image]](list)
        _fetch(self._cursors)
        for cursor in self._cursors:
            while cursor.head() is not None:
                for entry in cursor.take():
                    parts[entry.place.group] += entry.items
        assert d.index is not None
        found = (
            Entry(Place(Decimal(stored(d, items)[d.index.sk]), group), tuple(items)) for group, items in parts.items()
        )
        within = (entry for entry in found if entry.place.value in self._bounds)
        yield sorted(within, key=lambda entry: self._order(entry.place))


class _Cursor:
    """The entries under one partition key, a page at a time."""

    def __init__(self, declaration: Declaration, label: str, query: dict[str, Any], reads: Metered) -> None:
        assert declaration.index is not None
        self._declaration = declaration
        self._sk = declaration.index.sk
        self._when = declaration.index.when
        # An index may hold other items too: of an aggregation with another prefix, or with a former number of
        # partitions.
        self._sort_keys = declaration.sort_keys(label)
        self._query: dict[str, Any] | None = query
        self._reads = reads
        self._entries: deque[Entry] = deque()

    def fetch(self) -> None:
        """Get the next page, if there is one."""
        if self._query is None:
            return
        page = self._reads.query(self._query)
        last = page.get("LastEvaluatedKey")
        if last is None:
            self._query = None
        else:
            # What the first page does not hold may be a tail of thousands that are equal: so pages grow.
            more = {"Limit": min(_LARGEST_PAGE, 2 * self._query["Limit"])} if "Limit" in self._query else {}
            self._query = {**self._query, **more, "ExclusiveStartKey": last}
        for item in page["Items"]:
            if self._declaration.is_at(item, self._sort_keys) and self._qualifies(item):
                place = Place(number(item[self._sk]["N"]), self._declaration.text_of(item)[0])
                self._entries.append(Entry(place, (item,)))

    def _qualifies(self, item: Image) -> bool:
        """Whether it reaches the threshold, which may have been raised after its last write."""
        when = self._when
        return when is None or when.measure not in item or _value(self._declaration, item, when.measure) >= when.limit

    def head(self) -> Decimal | None:
        """The value of the next entry; None if there is none."""
        while not self._entries and self._query is not None:
            self.fetch()
        return self._entries[0].place.value if self._entries else None

    def take(self) -> Iterator[Entry]:
        """The next entry and all that are equal to it."""
        value = self.head()
        while value is not None and self.head() == value:
            yield self._entries.popleft()


def stored(declaration: Declaration, items: Iterable[Image]) -> dict[str, Number]:
    """The kept attributes of an aggregate, put together from its items; or of several aggregates.

    Raises:
        ReadError: An item that holds something else than a number.
    """
    found: dict[str, Number] = {}
    items = list(items)
    for slot in declaration.slots:
        values = [_value(declaration, item, slot.attribute) for item in items if slot.attribute in item]
        if values:
            found[slot.attribute] = combine(slot.kind, values)
    return found


def _value(declaration: Declaration, item: Image, attribute: str) -> Number:
    raw = item[attribute].get("N")
    if raw is None:
        key = {name: item[name] for name in declaration.target.keys}
        raise ReadError(
            f"{declaration.name}: item {key}: {attribute}: expected a number, came {shortened(item[attribute])}"
        )
    value = number(raw)
    return int(value) if value == value.to_integral_value() else value


def _fetch(cursors: Sequence[_Cursor]) -> None:
    """Get the first page of each, at once."""
    if len(cursors) == 1:
        cursors[0].fetch()
        return
    with ThreadPoolExecutor(min(CONNECTIONS, len(cursors)), thread_name_prefix="streamfold") as pool:
        for _ in pool.map(_Cursor.fetch, cursors):
            pass


def _page(wanted: int, keys: int) -> int:
    """How many entries to ask of one key, for so many of all.

    One more than is wanted shows where equal ones end. Of several keys each has its share, and by chance up to about
    twice that; less than `_LEAST_PAGE` saves nothing.
    """
    most = min(wanted + 1, _LARGEST_PAGE)
    return most if keys == 1 else min(most, max(_LEAST_PAGE, 2 * -(-most // keys)))


def _from(after: Place | None, bounds: Bounds, least_first: bool) -> Bounds:
    """What is left of some bounds from a place in them on, itself included, for others may be equal to it."""
    if after is None:
        return bounds
    return replace(bounds, **{"least" if least_first else "most": after.value})


def _query(declaration: Declaration, key: str, least_first: bool, bounds: Bounds, limit: int | None) -> dict[str, Any]:
    index = declaration.index
    assert index is not None
    names, values = {"#key": index.pk}, {":key": {"S": key}}
    condition = "#key = :key"
    between = {":least": bounds.least, ":most": bounds.most}
    given = {name: {"N": number_text(value)} for name, value in between.items() if value is not None}
    if given:
        names["#value"], values = index.sk, values | given
        # A key condition names its sort key once (DynamoDB developer guide, Query).
        condition += " AND #value " + (
            "BETWEEN :least AND :most" if len(given) == 2 else ">= :least" if ":least" in given else "<= :most"
        )
    return {
        "TableName": declaration.target.name,
        "IndexName": index.name,
        "KeyConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
        "ScanIndexForward": least_first,
        **({} if limit is None else {"Limit": limit}),
    }
