"""What a `SparseIndex` class declares, resolved and checked: the value that the pipeline works on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

from framework.archive import ArchiveDeclaration
from framework.codec import AttributeValue
from framework.conditions import Attribute, Condition
from framework.declaration import Declaration
from framework.tables import Index, KeyType, Table

__all__ = ["MOST_READ", "MOST_SHARING", "Handler", "SparseDeclaration", "managed_keys", "wrong_key"]

# How many attributes an entry may hang on: all of them stand in a condition, which has at most 300 operators and
# functions and 4 KB (DynamoDB developer guide, quotas, "Expression parameters").
MOST_READ = 100
# How many sparse indexes may share one: all but one of their prefixes stand in that condition as well.
MOST_SHARING = 20
# DynamoDB developer guide, quotas: the bytes of a partition key's and of a sort key's value.
_MOST_BYTES = (2048, 1024)
_IN_WORDS = {"S": "text", "N": "a number", "B": "binary"}

# What an attribute of the index holds: a copy of another attribute, or always the same.
Held: TypeAlias = Attribute | AttributeValue


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseDeclaration:
    """One sparse index: which of a table's items are in it, and where.

    Attributes:
        name: The stable name.
        source: The table, whose items it is about.
        index: The index.
        when: The items that may have an entry; None for all.
        entry: A function of an item to its entry; None where `holds` says it.
        holds: What each attribute of the entry holds; None where `entry` says it.
        include: What the index holds beside keys.
        most_bad: The share of a batch that may be set aside.
        hidden: The attributes that any sparse index of the table writes, which its entry does not hang on. An `App`
            knows them, and the siblings (`App.declaration_of`).
        siblings: The others that share the index, each by a prefix of its own. They have no siblings here.
    """

    # Whether what a record comes to adds up, so that each has to be settled once.
    counts: ClassVar[bool] = False

    name: str
    source: Table
    index: Index
    when: Condition | None
    entry: Callable[[Any], Any] | None
    holds: Mapping[str, Held] | None
    include: tuple[str, ...]
    most_bad: float
    hidden: frozenset[str] = frozenset()
    siblings: tuple[SparseDeclaration, ...] = ()

    def named(self, names: Mapping[str, str]) -> SparseDeclaration:
        """The declaration with other table names, where `names` has them."""
        return replace(self, source=replace(self.source, name=names.get(self.source.name, self.source.name)))

    @property
    def target(self) -> Table:
        """The table that is written to: the source."""
        return self.source

    @property
    def key_types(self) -> dict[str, KeyType]:
        """The type of each of the index's keys."""
        index, table = self.index, self.source
        return {index.pk: table.type_of(index.pk, index.pk_type), index.sk: table.type_of(index.sk, index.sk_type)}

    @property
    def managed(self) -> dict[str, tuple[KeyType, int]]:
        """The attributes of an entry: those keys of the index that are none of the table's.

        Each with its type and the most bytes it may have. Nobody else may write them.
        """
        return managed_keys(self.source, self.index)

    def prefixed(self, entry: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
        """An entry with the index's prefix before its partition key."""
        pk, prefix = self.index.pk, self.index.prefix
        return {**entry, pk: {"S": prefix + entry[pk]["S"]}} if prefix else dict(entry)

    @property
    def fixed(self) -> dict[str, AttributeValue] | None:
        """The entry, where it is the same for all items that have one."""
        held = self.holds or {}
        fixed = {name: value for name, value in held.items() if not isinstance(value, Attribute)}
        return self.prefixed(fixed) if self.entry is None and len(fixed) == len(held) else None

    @property
    def paths(self) -> tuple[str, ...]:
        """The attributes that the entry hangs on, as far as the declaration says it: a function's are not known."""
        copied = (held.path for held in (self.holds or {}).values() if isinstance(held, Attribute))
        return tuple(dict.fromkeys((*(() if self.when is None else self.when.paths()), *copied)))


Handler: TypeAlias = Declaration | SparseDeclaration | ArchiveDeclaration
"""What a handler of any kind declares."""


def managed_keys(table: Table, index: Index) -> dict[str, tuple[KeyType, int]]:
    """The keys of an index that are none of its table's, each with its type and the most bytes it may have."""
    keys = ((index.pk, index.pk_type), (index.sk, index.sk_type))
    return {
        name: (table.type_of(name, declared), most)
        for (name, declared), most in zip(keys, _MOST_BYTES, strict=True)
        if name not in table.keys
    }


def wrong_key(value: AttributeValue, key: tuple[KeyType, int]) -> str | None:
    """Why a raw value cannot be an index's key; None if it can.

    An empty one is refused by DynamoDB (developer guide, "Using global secondary indexes"), with the whole write.

    Args:
        value: The value, binary as bytes.
        key: The key's type and the most bytes it may have, as `managed_keys` gives them.
    """
    kind, most = key
    content = value.get(kind)
    if content is None:
        return f"expected {_IN_WORDS[kind]}"
    if kind == "N":
        return None
    size = len(content.encode() if isinstance(content, str) else content)
    return None if 1 <= size <= most else f"expected 1 to {most:,} bytes"
