"""What a `TtlArchive` class declares, resolved and checked: the value that the pipeline works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from framework.conditions import Condition
from framework.tables import Table
from framework.windows import Window

__all__ = ["ArchiveDeclaration"]

# What the name of a partition's key is, by the form of a window's labels.
_KEYS = {"day": "date", "month": "month", "year": "year"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveDeclaration:
    """One archive: which of a table's items are kept after they are gone, and where.

    Attributes:
        name: The stable name.
        source: The table.
        where: The items that are archived; None for all.
        also_deletes: Whether items that somebody deletes are archived, and not only those that expire.
        only: The attributes that are kept beside the keys; None for all.
        without: Attributes that are not kept.
        prefix: What the names of its objects begin with, without the slash that follows.
        partition: By which window of an item's time it is filed; None for the day on which it was deleted.
        storage: After how many days an object moves to a colder storage class, by class, in order.
        delete_after: After how many days it is deleted; None for never.
        most_bad: The share of a batch that may be set aside.
    """

    # Whether what a record comes to adds up, so that each has to be settled once.
    counts: ClassVar[bool] = True

    name: str
    source: Table
    where: Condition | None
    also_deletes: bool
    only: frozenset[str] | None
    without: frozenset[str]
    prefix: str
    partition: Window | None
    storage: Mapping[str, int] = field(hash=False)
    delete_after: int | None
    most_bad: float

    def named(self, names: Mapping[str, str]) -> ArchiveDeclaration:
        """The declaration with other table names, where `names` has them."""
        return replace(self, source=replace(self.source, name=names.get(self.source.name, self.source.name)))

    @property
    def target(self) -> Table:
        """The table that it is about: the source. Nothing is written to it."""
        return self.source

    @property
    def replicated_ttl(self) -> str | None:
        """For a global table, by which attribute a replica's expiry is told from a delete (`decode.is_expiry`)."""
        return self.source.ttl if self.source.home is not None else None

    @property
    def partition_key(self) -> str:
        """What a partition's folder begins with: `date`, `month` or `year`."""
        return "date" if self.partition is None else _KEYS[self.partition.form]

    @property
    def layout(self) -> str:
        """Where an item lies: as long as this is the same, a record belongs into the same object."""
        return f"{self.prefix}/{self.partition_key} {self.partition!r}"
