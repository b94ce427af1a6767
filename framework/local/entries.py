"""The model of sparse indexes: which entry every item has to have, found naively from the items.

Nothing of the pipeline is used, neither fold nor condition nor what a function looked at. Of the declarations,
conditions are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any

from framework.app import App
from framework.codec import Image, decode, decode_item, encode, plain_json
from framework.conditions import Attribute
from framework.local.history import key_text
from framework.local.recount import Seen, Wrong
from framework.paths import getter
from framework.sparse import SparseDeclaration

__all__ = ["Entries"]

_TYPES: dict[str, Any] = {"S": str, "N": int | Decimal, "B": bytes}


class Entries:
    """What the items of an app's tables have to have in its sparse indexes after some changes.

    - An item that changed since the stream is on has exactly its entry: both halves of a composite one, and nothing of
      one that it should not have. If its entry cannot be told, it has none. Of those that share an index it has the
      only one's, and none if there are several.
    - An item that was there before the stream was on, and has not changed since, is as it was.
    - Streamfold writes to an item that is there, and leaves it with the entry that it should have: not only at the end.

    Args:
        app: The app.
        changes: The changes, in order.
    """

    def __init__(self, app: App, changes: Iterable[Seen]) -> None:
        self._tables = {table.name: table for table in app.tables}
        self._declarations: dict[str, list[SparseDeclaration]] = defaultdict(list)
        for cls in app.sparse_indexes:
            self._declarations[cls._declaration.source.name].append(cls._declaration)
        # Those of each table that share an index.
        self._groups = {
            table: [
                [each for each in found if each.index.name == name]
                for name in dict.fromkeys(each.index.name for each in found)
            ]
            for table, found in self._declarations.items()
        }
        self._managed = {
            table: {name for each in found for name in each.managed} for table, found in self._declarations.items()
        }
        self._changed = {
            (each.table, key_text(self._tables[each.table], each.new or each.old or {})) for each in changes
        }

    def items(self, left: Mapping[str, Mapping[str, Image]]) -> dict[str, dict[str, Image]]:
        """The users' items with the entries that they have to have.

        Args:
            left: The items that the users have in each table, by the text of their keys.
        """
        return {
            table: {key: self._expected(table, item) if (table, key) in self._changed else item for key, item in of}
            for table, of in ((table, items.items()) for table, items in left.items())
        }

    def count(self, left: Mapping[str, Mapping[str, Image]]) -> int:
        """How many entries there have to be."""
        return sum(
            _one(group, self._bare(table, item)) is not None
            for table, items in left.items()
            for key, item in items.items()
            for group in self._groups.get(table, [])
            if (table, key) in self._changed
        )

    def wrong_writes(self, written: Iterable[tuple[str, Image | None, Image]]) -> Iterator[Wrong]:
        """What is wrong with what Streamfold wrote to users' items: the table, the item before and after each write."""
        for table, before, after in written:
            if not self._declarations[table]:
                continue
            key = key_text(self._tables[table], after)
            if before is None:
                yield Wrong(table, key, "no write to an item that is not there", plain_json(after))
            for group in self._groups[table]:
                managed = group[0].managed
                came = {name: after[name] for name in managed if name in after}
                former = {name: before[name] for name in managed if before is not None and name in before}
                one = _one(group, self._bare(table, after))
                expected = {} if one is None else one[1]
                # Of those that share an index, one that has no entry takes out what is nobody's, before another that
                # has one puts it in: but never what that one has put in.
                prefix = group[0].index.prefix if one is None else one[0].index.prefix
                cleared = len(group) > 1 and not came and not _begins(former.get(group[0].index.pk), prefix)
                if came not in (former, expected) and not cleared:
                    text = f"an entry of {plain_json(expected)} written"
                    yield Wrong(" ".join(each.name for each in group), key, text, plain_json(after))

    def _expected(self, table: str, item: Image) -> Image:
        rest = self._bare(table, item)
        found = (_one(group, rest) for group in self._groups.get(table, []))
        return reduce(or_, (one[1] for one in found if one is not None), rest)

    def _bare(self, table: str, item: Image) -> Image:
        """An item without the attributes of entries, on which no entry hangs."""
        managed = self._managed.get(table, set())
        return {name: value for name, value in item.items() if name not in managed}


def _one(group: Iterable[SparseDeclaration], rest: Image) -> tuple[SparseDeclaration, Image] | None:
    """The one of those that share an index which has to have an item, and its entry; None for none or several."""
    found = [(each, entry) for each in group if (entry := _entry(each, rest)) is not None]
    return found[0] if len(found) == 1 else None


def _begins(value: Any, prefix: str) -> bool:
    return value is not None and value.get("S", "").startswith(prefix)


def _entry(declaration: SparseDeclaration, rest: Image) -> Image | None:
    """The entry that an item has to have, found from its other attributes; None for none."""
    managed = declaration.managed
    if declaration.when is not None and not declaration.when.compile()(rest):
        return None
    found: Any
    if declaration.entry is not None:
        try:
            found = declaration.entry(decode_item(rest))
        except Exception:  # a user's code may raise anything
            return None
    else:
        raw = {
            name: getter(held.path)(rest) if isinstance(held, Attribute) else held
            for name, held in (declaration.holds or {}).items()
        }
        found = {name: decode(value) for name, value in raw.items() if value is not None}
    if not isinstance(found, Mapping) or set(found) != set(managed):
        return None
    if declaration.index.prefix and isinstance(found[declaration.index.pk], str) and found[declaration.index.pk]:
        found = {**found, declaration.index.pk: declaration.index.prefix + found[declaration.index.pk]}
    for name, (kind, most) in managed.items():
        value = found[name]
        if isinstance(value, bool) or not isinstance(value, _TYPES[kind]):
            return None
        if not isinstance(value, Decimal | int) and not 1 <= _size(value) <= most:
            return None
    return {name: encode(found[name]) for name in managed}


def _size(value: str | bytes) -> int:
    return len(value.encode() if isinstance(value, str) else value)
