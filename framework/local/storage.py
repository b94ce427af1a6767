"""Tables in memory: keys, items, and the indexes derived from them.

AWS facts: DynamoDB developer guide, "Quotas and limits" (sizes of keys and items), "Core components" (keys)
and "Using global secondary indexes" (an item that lacks an index key is just not in the index).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

from framework.codec import AttributeValue, Image
from framework.local.capacity import IndexShape, item_size
from framework.local.values import RefusedError, copied, normal

__all__ = ["Index", "Order", "Place", "Table", "copied_item"]

Place: TypeAlias = tuple[Any, Any]  # the comparable values of partition and sort key; None for no sort key
Order: TypeAlias = tuple[Any, ...]  # what items of one partition are sorted by

_LARGEST_ITEM = 400 * 1024  # bytes
_LARGEST_KEYS = (2048, 1024)  # bytes of a partition key and of a sort key
_WORDS = {"S": "string", "B": "binary", "N": "number"}
_INVALID = "One or more parameter values were invalid"


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index; a `local` one may be read consistently."""

    name: str
    shape: IndexShape
    local: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """Its partition key, and its sort key where it has one."""
        return self.shape.keys


@dataclass(slots=True)
class Table:
    """One table's items; those stored are never changed in place, a write puts a new one.

    Args:
        name: Its name.
        keys: The partition key, and the sort key where there is one.
        types: The type of each key attribute of table and indexes.
        indexes: The secondary indexes by name.
        description: What `describe_table` says of it.
    """

    name: str
    keys: tuple[str, ...]
    types: Mapping[str, str]
    indexes: Mapping[str, Index] = field(default_factory=dict)
    description: Mapping[str, Any] = field(default_factory=dict)
    _partitions: dict[Any, dict[Any, Image]] = field(default_factory=dict)
    _views: dict[str, dict[Any, list[tuple[Order, Image]]]] = field(default_factory=dict)
    shapes: tuple[IndexShape, ...] = ()
    _attributes: tuple[tuple[str, Index, str, int], ...] = ()

    def __post_init__(self) -> None:
        self.shapes = tuple(index.shape for index in self.indexes.values())
        # (attribute, index, type, most bytes): what has to be checked of every item written.
        self._attributes = tuple(
            (key, index, self.types[key], most)
            for index in self.indexes.values()
            for key, most in zip(index.keys, _LARGEST_KEYS, strict=False)
        )

    def __len__(self) -> int:
        return sum(map(len, self._partitions.values()))

    # -- keys --

    def key(self, key: Mapping[str, Any]) -> tuple[Place, dict[str, AttributeValue]]:
        """The place and the normal form of a request's Key.

        Raises:
            RefusedError: It is not exactly this table's key.
        """
        if len(key) != len(self.keys):
            raise RefusedError("The provided key element does not match the schema")
        image = {name: normal(key[name]) for name in self.keys if name in key}
        return self.place(image), image

    def place(self, item: Image) -> Place:
        """Where an item in normal form is kept.

        Raises:
            RefusedError: A key attribute is missing, of another type, empty or too long.
        """
        tokens = [self.token(name, item.get(name), most) for name, most in zip(self.keys, _LARGEST_KEYS, strict=False)]
        return tokens[0], (tokens[1] if len(tokens) > 1 else None)

    def token(self, name: str, value: AttributeValue | None, most: int = _LARGEST_KEYS[0]) -> Any:
        """A key attribute's value, in normal form, as what Python hashes and sorts as the service does."""
        expected = self.types[name]
        if value is None or expected not in value:
            came = "nothing" if value is None else next(iter(value), "nothing")
            raise RefusedError(
                f"{_INVALID}: The provided key element does not match the schema: Type mismatch for key "
                f"{name} expected: {expected} actual: {came}"
            )
        content = value[expected]
        if expected == "N":
            return Decimal(content)
        if not content:
            raise RefusedError(
                "One or more parameter values are not valid. The AttributeValue for a key attribute cannot "
                f"contain an empty {_WORDS[expected]} value. Key: {name}"
            )
        _require_length(name, content, most)
        return content

    # -- items --

    def get(self, place: Place) -> Image | None:
        """The item at a place."""
        partition = self._partitions.get(place[0])
        return None if partition is None else partition.get(place[1])

    def store(self, place: Place, item: Image | None) -> None:
        """Puts an item in its place, or takes what is there away (None)."""
        if self._views:
            self._views.clear()
        if item is not None:
            self._partitions.setdefault(place[0], {})[place[1]] = item
        elif (partition := self._partitions.get(place[0])) is not None:
            partition.pop(place[1], None)
            if not partition:
                del self._partitions[place[0]]

    def require_storable(self, item: Image) -> None:
        """Checks what depends on the whole item: its size, and the keys of indexes.

        Raises:
            RefusedError: Over 400 KB, or an index key of another type, empty or too long.
        """
        for name, index, expected, most in self._attributes:
            value = item.get(name)
            if value is None:
                continue
            if expected not in value:
                raise RefusedError(
                    f"{_INVALID}: Type mismatch for Index Key {name} Expected: {expected} "
                    f"Actual: {next(iter(value))} IndexName: {index.name}"
                )
            content = value[expected]
            if not content:
                raise RefusedError(
                    "One or more parameter values are not valid. A value specified for a secondary index key "
                    "is not supported. The AttributeValue for a key attribute cannot contain an empty "
                    f"{_WORDS[expected]} value. IndexName: {index.name}, IndexKey: {name}"
                )
            _require_length(name, content, most)
        if item_size(item) > _LARGEST_ITEM:
            raise RefusedError("Item size has exceeded the maximum allowed size")

    # -- reading in order --

    def partition(self, index: Index | None, value: Any) -> list[tuple[Order, Image]]:
        """The items of one partition of the table or of an index, in order; an index gives its entries."""
        if index is None:
            return [((sort,), item) for sort, item in sorted(self._partitions.get(value, {}).items(), key=_first)]
        return self._view(index).get(value, [])

    def everything(self, index: Index | None) -> list[tuple[Order, Image]]:
        """All items or entries, in one order that does not depend on how they were written."""
        if index is None:
            pairs = (((pk, sk), item) for pk, members in self._partitions.items() for sk, item in members.items())
            return sorted(pairs, key=_first)
        view = self._view(index)
        return [((pk, *order), entry) for pk in sorted(view) for order, entry in view[pk]]

    def order(self, index: Index | None, item: Image, *, whole: bool) -> Order:
        """What an item or entry in normal form is sorted by: in its partition, or (`whole`) in everything.

        Raises:
            RefusedError: A key attribute is missing or of another type.
        """
        place = self.place(item)
        if index is None:
            return place if whole else place[1:]
        tokens = tuple(self.token(name, item.get(name)) for name in index.keys)
        order = (*tokens[1:], *place)
        return (tokens[0], *order) if whole else order

    def start_key(self, index: Index | None, item: Image) -> dict[str, AttributeValue]:
        """The LastEvaluatedKey of an item: the table's key, and the index's."""
        names = self.keys if index is None else (*self.keys, *index.keys)
        return {name: copied(item[name]) for name in names}

    def _view(self, index: Index) -> dict[Any, list[tuple[Order, Image]]]:
        """An index's entries by partition, made when it is read first after a write: writes stay quick."""
        view = self._views.get(index.name)
        if view is None:
            view = {}
            for entry in self._entries(index):
                partition = self.token(index.keys[0], entry[index.keys[0]])
                view.setdefault(partition, []).append((self.order(index, entry, whole=False), entry))
            for members in view.values():
                members.sort(key=_first)
            self._views[index.name] = view
        return view

    def _entries(self, index: Index) -> Iterator[Image]:
        for members in self._partitions.values():
            for item in members.values():
                entry = index.shape.entry(item)
                if entry is not None:
                    yield entry


def copied_item(item: Image) -> dict[str, AttributeValue]:
    """A deep copy of an item."""
    return {name: copied(value) for name, value in item.items()}


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _require_length(name: str, content: str | bytes, most: int) -> None:
    # A character is at most 4 bytes: most keys need no encoding to be found short enough.
    if len(content) * 4 > most and len(content.encode() if isinstance(content, str) else content) > most:
        raise RefusedError(f"{_INVALID}: Size of key {name} has exceeded the maximum size limit of {most} bytes")
