"""Tables and indexes, as a user declares them."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal
from typing import Literal
from zlib import crc32

from framework.codec import is_text, number_text
from framework.errors import BadValueError, DeclarationError, shortened

__all__ = ["NAME_RULE", "AtLeast", "Index", "KeyType", "Table", "at_least"]

KeyType = Literal["S", "N", "B"]

# 3 to 255 characters of this set, for tables and indexes alike (DynamoDB developer guide, naming rules).
_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
NAME_RULE = "3 to 255 of the characters A-Z a-z 0-9 _ . -"
_REGION = re.compile(r"[a-z]{2,}(-[a-z]+)+-[0-9]")


def _require(holds: bool, where: str, field: str, expected: str, came: object) -> None:
    if not holds:
        raise DeclarationError(f"{where}: {field}: expected {expected}, came {shortened(came)}")


def _require_name(where: str, came: object) -> None:
    good = isinstance(came, str) and _NAME.fullmatch(came) is not None
    _require(good, where, "name", NAME_RULE, came)


def _require_key(where: str, field: str, came: object) -> None:
    # A key attribute's name has at most 255 bytes (DynamoDB developer guide, naming rules).
    _require(is_text(came, 1, 255), where, field, "an attribute name of 1 to 255 bytes", came)


@dataclass(frozen=True, slots=True)
class Table:
    """A DynamoDB table whose stream a handler reads, or that a handler writes to.

    Args:
        name: The table's name.
        pk: The partition key's attribute.
        sk: The sort key's attribute; None for a table without one.
        pk_type: The partition key's type: `"S"`, `"N"` or `"B"`.
        sk_type: The sort key's type: `"S"`, `"N"` or `"B"`.
        ttl: The attribute with an item's time to live, where the table has one.
        home: For a global table, the Region in which its changes count: the stream of every replica carries the
            changes made at the others as well. None for a table of one Region.

    Raises:
        DeclarationError: A name or a type that DynamoDB would refuse, or a home that is no Region.
    """

    name: str
    pk: str
    sk: str | None = None
    _: KW_ONLY
    pk_type: KeyType = "S"
    sk_type: KeyType = "S"
    ttl: str | None = None
    home: str | None = None

    def __post_init__(self) -> None:
        where = f"Table({shortened(self.name)})"
        _require_name(where, self.name)
        _require_key(where, "pk", self.pk)
        if self.sk is not None:
            _require_key(where, "sk", self.sk)
            _require(self.sk != self.pk, where, "sk", "another attribute than the partition key", self.sk)
        for field, came in (("pk_type", self.pk_type), ("sk_type", self.sk_type)):
            _require(came in ("S", "N", "B"), where, field, "'S', 'N' or 'B'", came)
        if self.ttl is not None:
            _require_key(where, "ttl", self.ttl)
            _require(self.ttl not in self.keys, where, "ttl", "an attribute that is no key", self.ttl)
        if self.home is not None:
            good = isinstance(self.home, str) and _REGION.fullmatch(self.home) is not None
            _require(good, where, "home", "a Region such as 'eu-west-1'", self.home)

    @property
    def keys(self) -> tuple[str, ...]:
        """The key attributes: one, or two with a sort key."""
        return (self.pk,) if self.sk is None else (self.pk, self.sk)

    @property
    def key_types(self) -> dict[str, KeyType]:
        """The type of each key attribute."""
        types: dict[str, KeyType] = {self.pk: self.pk_type}
        if self.sk is not None:
            types[self.sk] = self.sk_type
        return types

    def type_of(self, key: str, declared: KeyType | None) -> KeyType:
        """The type of an index's key in this table: that of the table's own key where it is one, else text."""
        return declared or self.key_types.get(key, "S")


@dataclass(frozen=True, slots=True)
class AtLeast:
    """Which aggregates are in an index: those of which a measure is no less than a limit. Made by `at_least`."""

    measure: str
    limit: int | Decimal

    def __post_init__(self) -> None:
        _require(isinstance(self.measure, str), "at_least", "measure", "a measure's name", self.measure)
        try:
            number_text(self.limit)
        except BadValueError as error:
            raise DeclarationError(f"at_least({self.measure!r}): limit: {error}") from None

    def __repr__(self) -> str:
        return f"at_least({self.measure!r}, {self.limit})"


def at_least(measure: str, limit: int | Decimal) -> AtLeast:
    """Which aggregates an index holds: those of which a `Count` or a `Sum` is `limit` or more.

    An aggregate enters with the write that takes it there, and leaves with the one by which it falls below.

    Raises:
        DeclarationError: A limit that is no exact number; a `float` is seldom the one that was meant.
    """
    return AtLeast(measure, limit)


@dataclass(frozen=True, slots=True)
class Index:
    """A sparse global secondary index: it holds an aggregation's items, or those with an entry in a `SparseIndex`.

    The partition key of an aggregate's entry is `prefix + label`, such as `"2018-01"`, and with several shards
    `prefix + label + "#" + shard`, such as `"2018-01#5"`.

    Args:
        name: The index's name.
        pk: Its partition key. Of an aggregation, the attribute that holds `prefix + label`; only aggregates have it.
        sk: Its sort key. Of an aggregation, the attribute that orders a window's entries: one of the measures.
        pk_type: The partition key's type: `"S"`, `"N"` or `"B"`; that of the table's key where it is one, else text.
            An aggregation's is text.
        sk_type: The sort key's type, likewise. An aggregation's is a number.
        prefix: Text before every partition key, where several handlers share the index.
        when: Which aggregates the index holds, as `at_least(...)` says it; all if not set.
        shards: Over how many partition keys the entries of one window are spread, 1 to 100. One key takes 1,000 write
            units a second, and then the table's own writes are throttled (AWS facts: writes). May be raised later.

    Raises:
        DeclarationError: A name or a type that DynamoDB would refuse, or a value that a field cannot have.
    """

    name: str
    _: KW_ONLY
    pk: str
    sk: str
    pk_type: KeyType | None = None
    sk_type: KeyType | None = None
    prefix: str = ""
    when: AtLeast | None = None
    shards: int = 1

    def __post_init__(self) -> None:
        where = f"Index({shortened(self.name)})"
        _require_name(where, self.name)
        _require_key(where, "pk", self.pk)
        _require_key(where, "sk", self.sk)
        _require(self.sk != self.pk, where, "sk", "another attribute than the index's partition key", self.sk)
        for field, came in (("pk_type", self.pk_type), ("sk_type", self.sk_type)):
            _require(came in ("S", "N", "B", None), where, field, "'S', 'N', 'B' or None", came)
        # A partition key has at most 2,048 bytes; a label and a shard need some of them.
        _require(is_text(self.prefix, 0, 900), where, "prefix", "text of at most 900 bytes", self.prefix)
        good = self.when is None or isinstance(self.when, AtLeast)
        _require(good, where, "when", "at_least(...) or None", self.when)
        good = type(self.shards) is int and 1 <= self.shards <= 100
        _require(good, where, "shards", "a whole number from 1 to 100", self.shards)

    def key(self, group: str, label: str) -> str:
        """The partition key of an aggregate's entry.

        Its shard is the CRC-32 of the group's key text in UTF-8 modulo `shards`: the same in every process and for
        ever, for where it is told otherwise, an entry is looked for in vain.

        Args:
            group: The group's key text.
            label: The window's label.
        """
        text = self.prefix + label
        # What UTF-8 cannot hold DynamoDB refuses, and then that record is to blame.
        return text if self.shards == 1 else f"{text}#{crc32(group.encode(errors='surrogatepass')) % self.shards}"

    def keys(self, label: str) -> tuple[str, ...]:
        """The partition keys that a window's entries may have, those from before `shards` was raised included.

        An entry that was written under fewer shards has the plain label or a lower shard, so all are among them.
        """
        text = self.prefix + label
        return (text,) if self.shards == 1 else (text, *(f"{text}#{shard}" for shard in range(self.shards)))
