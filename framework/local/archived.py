"""The model of archives: which items every archive has to hold, found naively from what happened.

Nothing of the pipeline is used, neither fold nor lanes. Of the declarations, conditions and windows are.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from framework.app import App
from framework.archive import ArchiveDeclaration
from framework.codec import Image, to_event
from framework.errors import BadRecordError, BadValueError
from framework.lanes import MARK
from framework.local.recount import Seen, Wrong, replicated

__all__ = ["Archived"]


class Archived:
    """What the archives of an app have to hold after some changes.

    - Each item that expired is there once for each time that it did, in its partition, value for value as it was.
    - Each that was deleted is, where the archive says so.
    - Nothing else is there. An item whose partition cannot be told is set aside, and not there.

    Args:
        app: The app.
        changes: The changes, in order.
    """

    def __init__(self, app: App, changes: Iterable[Seen]) -> None:
        changes = list(changes)
        self._expected: dict[str, Counter[tuple[str, str]]] = {}
        self._folders: dict[str, str] = {}
        for cls in app.archives:
            declaration = cls._declaration
            self._folders[declaration.name] = f"{declaration.prefix}/"
            self._expected[declaration.name] = Counter(
                place for each in changes if (place := _place(declaration, each)) is not None
            )

    @property
    def items(self) -> int:
        """How many items there have to be."""
        return sum(map(Counter.total, self._expected.values()))

    def wrong(self, objects: Mapping[str, bytes]) -> Iterator[Wrong]:
        """What is wrong with the objects in the archives' bucket."""
        left = dict(objects)
        for name, expected in self._expected.items():
            folder = self._folders[name]
            came: Counter[tuple[str, str]] = Counter()
            for each in [key for key in left if key.startswith(folder)]:
                partition = each.removeprefix(folder).partition("/")[0]
                for line in gzip.decompress(left.pop(each)).decode().splitlines():
                    came[partition, _canonical(json.loads(line)["Item"])] += 1
            for place in sorted(expected.keys() | came.keys()):
                if came[place] != expected[place]:
                    partition, item = place
                    yield Wrong(name, f"{partition} {item}", f"{expected[place]} times", f"{came[place]}")
        for surplus in left:
            yield Wrong("archives", surplus, "no such object", f"{len(left[surplus])} bytes")


def _place(declaration: ArchiveDeclaration, change: Seen) -> tuple[str, str] | None:
    """The partition of an item that is gone, and the item; None if it does not belong into the archive."""
    old = change.old
    if change.table != declaration.source.name or change.new is not None or old is None or MARK in old:
        return None
    if not (declaration.also_deletes or change.expiry or replicated(declaration.source, change)):
        return None
    if declaration.where is not None and not declaration.where.compile()(old):
        return None
    if declaration.partition is None:
        label = datetime.fromtimestamp(change.at, UTC).date().isoformat()
    else:
        try:
            label = declaration.partition.compile()(old)
        except (BadRecordError, BadValueError):
            return None
    kept = {
        name: value
        for name, value in old.items()
        if (declaration.only is None or name in declaration.only) and name not in declaration.without
    }
    return f"{declaration.partition_key}={label}", _canonical(to_event(kept))


def _canonical(item: Image) -> str:
    return json.dumps(item, sort_keys=True)
