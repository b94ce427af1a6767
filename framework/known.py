"""Known: what a process last saw of aggregates, for writes that have to assume something of their item.

Such a write is refused where it assumes wrongly, and made again: that costs a request and a write unit, never a count.
So what is known may be out of date, forgotten, or of another process' past.
"""

from __future__ import annotations

from threading import Lock

from framework.codec import Image
from framework.plan import Update

__all__ = ["Known"]

# Of what is written all the time, which is what is worth to be known: some 7 MB.
_MOST = 10_000


class Known:
    """The measures of aggregates as they were last seen, of those whose writes have to guess."""

    def __init__(self) -> None:
        self._items: dict[tuple[str, str, str, int], Image] = {}
        self._lock = Lock()

    def get(self, update: Update) -> Image | None:
        """What was last seen of an update's item; None if nothing was."""
        return self._items.get(_place(update))

    def keep(self, update: Update, item: Image | None) -> None:
        """Keep what an update's item was seen to be; None for gone."""
        if not update.declaration.guesses:
            return
        place = _place(update)
        with self._lock:
            self._items.pop(place, None)  # the last seen goes to the end
            if item is not None:
                attributes = (slot.attribute for slot in update.declaration.slots)
                self._items[place] = {name: item[name] for name in attributes if name in item}
                if len(self._items) > _MOST:
                    del self._items[next(iter(self._items))]


def _place(update: Update) -> tuple[str, str, str, int]:
    return update.declaration.name, update.group, update.label, update.partition
