"""The model: what an app's aggregates have to be, counted naively from the changes, and what is wrong with them.

Nothing of the pipeline is used, neither fold nor plan nor lanes: each change adds `f(new) - f(old)`, once, in the
order in which it was made. Of the declarations, conditions, windows and group keys are (they have tests of their own).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any, TypeAlias
from zlib import crc32

from framework.app import App
from framework.codec import Image, decode, decode_item, plain_json
from framework.declaration import Declaration
from framework.errors import BadRecordError, BadValueError, ConfigurationError
from framework.lanes import LANE_PREFIX, MARK
from framework.local.history import key_text
from framework.measures import Slot
from framework.paths import getter
from framework.tables import Table

__all__ = ["Recount", "Seen", "Wrong", "replicated"]

_MOST_OUTCOMES = 10_000
_EXACT = Context(prec=400, Emin=-999999, Emax=999999)

Values: TypeAlias = tuple[Decimal, ...]
Share: TypeAlias = tuple[tuple[str, str], Values]  # group and label; a value for each slot


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a change adds to one aggregate.

    Attributes:
        adds: Whether it only adds.
        owed: Whether the same item added to the aggregate before, so that there is an aggregate to take back from.
        values: A value for each slot.
    """

    adds: bool
    owed: bool
    values: Values


@dataclass(frozen=True, slots=True)
class Seen:
    """A change of an item of a source table, as the stream tells of it.

    Attributes:
        table: The table's name.
        shard: The shard that its record is in.
        old: The item before it; None for none.
        new: The item after it; None for none.
        expiry: Whether its time to live removed it.
        at: When, in whole epoch seconds.
    """

    table: str
    shard: str
    old: Image | None
    new: Image | None
    expiry: bool
    at: int


@dataclass(frozen=True, slots=True)
class Wrong:
    """An item that is not what it has to be.

    Attributes:
        where: The aggregation, or the table where it is of none.
        key: The item's key, as text.
        expected: What it has to be, as text.
        came: What it is, as text.
    """

    where: str
    key: str
    expected: str
    came: str

    def __str__(self) -> str:
        return f"{self.where} {self.key}: expected {self.expected}, came {self.came}"


class Recount:
    """What the tables of an app have to hold after some changes.

    - Every aggregate that has to be there is there, every measure's attribute equals, the index's partition key is the
      prefix, the window's label and the group's shard, or is missing where the item's total is below the threshold,
      the mark is the aggregation's name, its time to live is that of its retention, and beside keys and watermarks
      there is nothing else.
    - No other item is in the tables, but the users' own, each as it was put, with the entries of sparse indexes that it
      has to have (`entries.py`).
    - An aggregate from which everything was taken back has to be there, with zeros: it keeps the watermarks. One to
      which nothing was ever added must not be there.
    - The items of an aggregate's partitions are added up; which of them there are is not compared.
    - A record that cannot be counted for an aggregation counts for nothing, neither its old nor its new image.
    - A change that came when its aggregate's retention was over counts for nothing.
    - What takes back an item that was added to the aggregate counts: the addition is in the same shard or in one that
      it came from by a split, so it was done before, and the aggregate is there.
    - What takes back an item that was there before the stream was on may find the aggregate or not, for shards are in
      no order. It is refused where no shard has made the aggregate, and counts once where another one has; what was
      refused may come again and count. Each of these outcomes is right.

    Args:
        app: The app. The numbers that are added up must not need more than 38 digits, for DynamoDB refuses a sum that
            does, and which one depends on the order.
        changes: The changes, in order.
        by_item: Whether only the changes of one item are settled in order, as by the ledger, and not those of a shard.

    Raises:
        ConfigurationError: So many existing items are taken back that there are too many outcomes.
    """

    def __init__(self, app: App, changes: Iterable[Seen], *, by_item: bool = False) -> None:
        self._app = app
        changes = list(changes)
        if by_item:
            tables = {table.name: table for table in app.tables}
            changes = [
                replace(c, shard=f"{c.shard} {key_text(tables[c.table], c.new or c.old or {})}") for c in changes
            ]
        self._expected = {
            (declaration.name, *share): _Totals(declaration.slots, lanes)
            for declaration in (cls._declaration for cls in app.aggregations)
            for share, lanes in _contributions(declaration, changes).items()
        }

    @property
    def aggregates(self) -> int:
        """How many aggregates there have to be."""
        return sum(bool(totals.possible) for totals in self._expected.values())

    def wrong(self, tables: Mapping[str, Iterable[Image]], left: Mapping[str, Mapping[str, Image]]) -> list[Wrong]:
        """What is wrong with the tables.

        Args:
            tables: The items of every table, by its name.
            left: The items that the users have in each table, by the text of their keys.
        """
        found: list[Wrong] = []
        parts: dict[tuple[str, ...], list[Image]] = defaultdict(list)
        places = self._places()
        for table in self._app.tables:
            own = dict(left.get(table.name, {}))
            for item in tables[table.name]:
                key = key_text(table, item)
                place = places.get((table.name, key))
                if MARK not in item:
                    kept = own.pop(key, None)
                    if kept != item:
                        found.append(Wrong(table.name, key, _shown(kept), _shown(item)))
                elif place is None:
                    found.append(Wrong(str(item[MARK].get("S")), key, "no such aggregate", _shown(item)))
                else:
                    parts[place].append(item)
            found += [Wrong(table.name, key, _shown(item), "nothing") for key, item in own.items()]
        for place, totals in self._expected.items():
            declaration = self._app.aggregation(place[0])._declaration
            found += totals.wrong(declaration, place[1], place[2], parts.get(place, []))
        return found

    def _places(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Which aggregate an item may be of, by table and key."""
        declarations = {cls.name: cls._declaration for cls in self._app.aggregations}
        return {
            _place(declarations[name], group, label, partition): (name, group, label)
            for name, group, label in self._expected
            for partition in range(declarations[name].partitions)
        }


class _Totals:
    """What one aggregate may come to: each slot's value, in one way or in several."""

    def __init__(self, slots: Sequence[Slot], lanes: Mapping[str, Sequence[Contribution]]) -> None:
        self._slots = slots
        certain: list[Values] = []
        optional: dict[str, list[Values]] = {}
        makers: list[str] = []
        for lane, each in lanes.items():
            first = next((place for place, contribution in enumerate(each) if contribution.adds), len(each))
            optional[lane] = [contribution.values for contribution in each[:first] if not contribution.owed]
            certain += [contribution.values for contribution in each[:first] if contribution.owed]
            certain += [contribution.values for contribution in each[first:]]
            if first < len(each):
                makers.append(lane)
        self.possible: set[Values] = set()
        # The shard that makes the aggregate has had refused what it took back before. Of every other shard, anything
        # that it took back before its own first addition may have met the aggregate or not, but for what is owed.
        for maker in makers:
            totals = {self._sum(certain)}
            for lane, early in optional.items():
                for values in early if lane != maker else ():
                    totals |= {self._sum([total, values]) for total in totals}
                    if len(totals) > _MOST_OUTCOMES:
                        raise ConfigurationError(
                            f"history: expected fewer changes of existing items, came {len(totals)} outcomes or "
                            "more for one aggregate"
                        )
            self.possible |= totals

    def _sum(self, rows: Sequence[Values]) -> Values:
        combine: dict[str, Callable[[Sequence[Decimal]], Decimal]] = {"add": _total, "least": min, "greatest": max}
        columns = zip(*rows, strict=True)
        return tuple(combine[slot.kind](column) for slot, column in zip(self._slots, columns, strict=True))

    def wrong(self, declaration: Declaration, group: str, label: str, items: Sequence[Image]) -> Iterator[Wrong]:
        """What is wrong with the items of the aggregate."""
        key = _place(declaration, group, label, 0)[1]
        if not items or not self.possible:
            if items or self.possible:
                came = " and ".join(map(_shown, items)) or "nothing"
                yield Wrong(declaration.name, key, self._text(), came)
            return
        for item in items:
            yield from _misshapen(declaration, group, label, item)
        try:
            values = [tuple(Decimal(item[slot.attribute]["N"]) for slot in self._slots) for item in items]
        except KeyError:
            yield Wrong(declaration.name, key, self._text(), " and ".join(map(_shown, items)))
            return
        total = self._sum(values)
        if total not in self.possible:
            yield Wrong(declaration.name, key, self._text(), self._named(total))

    def _text(self) -> str:
        return " or ".join(self._named(values) for values in sorted(self.possible)) or "no such aggregate"

    def _named(self, values: Values) -> str:
        return ", ".join(f"{slot.attribute} {value:f}" for slot, value in zip(self._slots, values, strict=True))


def _place(declaration: Declaration, group: str, label: str, partition: int) -> tuple[str, str]:
    table = declaration.target
    return table.name, key_text(table, declaration.key(group, label, partition))


def _misshapen(declaration: Declaration, group: str, label: str, item: Image) -> Iterator[Wrong]:
    """What of an aggregate item is wrong beside the measures."""
    fixed: dict[str, Any] = {MARK: {"S": declaration.name}}
    index = declaration.index
    if index is not None:
        shard = f"#{crc32(group.encode()) % index.shards}" if index.shards > 1 else ""
        total = Decimal(0) if index.when is None else Decimal(item.get(index.when.measure, {}).get("N", "0"))
        qualifies = index.when is None or total >= index.when.limit
        fixed[index.pk] = {"S": f"{index.prefix}{label}{shard}"} if qualifies else None
    if declaration.target.ttl is not None and (over := declaration.expiry(label)) is not None:
        fixed[declaration.target.ttl] = {"N": str(over)}
    known = {*declaration.target.keys, *fixed, *(slot.attribute for slot in declaration.slots)}
    surplus = [name for name in item if name not in known and not name.startswith(LANE_PREFIX)]
    came = {name: item.get(name) for name in fixed}
    if came != fixed or surplus:
        key = key_text(declaration.target, item)
        yield Wrong(declaration.name, key, f"{fixed} and no more than the measures", _shown(item))


def _contributions(
    declaration: Declaration, changes: Iterable[Seen]
) -> dict[tuple[str, str], dict[str, list[Contribution]]]:
    """What every change adds to which aggregate of an aggregation, by the shard that tells of it."""
    share = _share(declaration)
    found: dict[tuple[str, str], dict[str, list[Contribution]]] = defaultdict(lambda: defaultdict(list))
    added: set[tuple[str, tuple[str, str]]] = set()  # which item to which aggregate
    for change in changes:
        if change.table != declaration.source.name:
            continue
        if declaration.changes == "inserts" and change.old is not None:
            continue
        if declaration.on_expiry == "keep" and (change.expiry or replicated(declaration.source, change)):
            continue
        item = key_text(declaration.source, change.new or change.old or {})
        for place, adds, values in _difference(share(change.old), share(change.new)):
            over = declaration.expiry(place[1])
            if over is None or change.at < over:
                found[place][change.shard].append(Contribution(adds, (item, place) in added, values))
                if adds:
                    added.add((item, place))
    return found


def replicated(table: Table, change: Seen) -> bool:
    """Whether it may be another Region's expiry of a global table's item: the delete of one whose time was over."""
    if table.home is None or table.ttl is None or change.old is None or change.new is not None:
        return False
    over = change.old.get(table.ttl, {}).get("N")
    return over is not None and Decimal(over) <= change.at


def _difference(old: Share | None, new: Share | None) -> Iterator[tuple[tuple[str, str], bool, Values]]:
    """What a change adds: to which aggregate, whether it only adds, and a value for each slot."""
    if old is not None and new is not None and old[0] == new[0]:
        if old[1] != new[1]:
            yield new[0], False, _less(new[1], old[1])
        return
    if old is not None:
        yield old[0], False, _less((Decimal(0),) * len(old[1]), old[1])
    if new is not None:
        yield new[0], True, new[1]


def _share(declaration: Declaration) -> Callable[[Image | None], Share | None]:
    """What an image counts for: nothing if there is none, if it does not match or if it cannot be counted."""
    matches = declaration.where.compile() if declaration.where is not None else lambda image: True
    label, group = declaration.window.compile(), _group(declaration)

    slots = declaration.slots
    known: dict[int, Share | None] = {}  # what is new in one change is old in the next

    def share(image: Image | None) -> Share | None:
        if id(image) not in known:
            known[id(image)] = of(image)
        return known[id(image)]

    def of(image: Image | None) -> Share | None:
        if image is None or not matches(image):
            return None
        try:
            text = group(image)
            return None if text is None else ((text, label(image)), tuple(_amount(slot, image) for slot in slots))
        except (BadRecordError, BadValueError):
            return None

    return share


def _group(declaration: Declaration) -> Callable[[Image], str | None]:
    if isinstance(declaration.group_by, tuple):
        readers = [getter(path) for path in declaration.group_by]
        return lambda image: declaration.group_key(*(_plain(read(image)) for read in readers))
    function = declaration.group_by

    def call(image: Image) -> str | None:
        try:
            found = function(decode_item(image))
        except Exception as error:  # a user's code may raise anything
            raise BadRecordError(str(error)) from error
        if found is None:
            return None
        return declaration.group_key(*found) if isinstance(found, tuple) else declaration.group_key(found)

    return call


def _plain(value: Any) -> object:
    if value is None:
        raise BadRecordError("missing")
    return decode(value)


def _amount(slot: Slot, image: Image) -> Decimal:
    if slot.of is None:
        return Decimal(1)
    found = _plain(getter(slot.of)(image))
    if not isinstance(found, Decimal):
        raise BadRecordError("no number")
    return found


def _less(new: Values, old: Values) -> Values:
    return tuple(_EXACT.subtract(n, o) for n, o in zip(new, old, strict=True))


def _total(values: Iterable[Decimal]) -> Decimal:
    total = Decimal(0)
    for value in values:
        total = _EXACT.add(total, value)
    return total


def _shown(item: Image | None) -> str:
    return "nothing" if item is None else plain_json(item)
