"""What an `Aggregation` class declares, resolved and checked: the value that the pipeline works on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, ClassVar, Literal

from framework.codec import AttributeValue, Image, number, number_text
from framework.conditions import Condition
from framework.errors import BadRecordError, shortened
from framework.measures import Measure, Slot
from framework.tables import Index, KeyType, Table
from framework.windows import Window

__all__ = [
    "Changes",
    "Declaration",
    "Group",
    "GroupBy",
    "Late",
    "OnExpiry",
    "group_text",
    "join",
    "split",
]

Changes = Literal["all", "inserts"]
OnExpiry = Literal["keep", "retract"]
Late = Literal["ignore", "set-aside"]
GroupBy = tuple[str, ...] | Callable[[Any], Any]
# One group: the value of a single attribute as it stands in the key, or the texts of several.
Group = str | Decimal | tuple[str, ...]

# DynamoDB developer guide, quotas: the bytes of a partition key's value.
_MOST_PK_BYTES = 2048
# The longest label, that of an hour, with a partition: "#2018-10-28T02B#99".
_MOST_SORT_BYTES = 18


def join(parts: tuple[str, ...]) -> str:
    """Several group values as one key text, such that different groups never share one.

    `"#"` stands between the values; a `"#"` or `"%"` within one is written `%23` or `%25`.
    """
    return "#".join(part.replace("%", "%25").replace("#", "%23") for part in parts)


def split(text: str) -> tuple[str, ...]:
    """The group values out of `join`."""
    return tuple(part.replace("%23", "#").replace("%25", "%") for part in text.split("#"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One aggregation: from which changes, into which items.

    Attributes:
        name: The stable name that state hangs on.
        source: The table whose stream is read.
        target: The table that holds the aggregates.
        where: The items that count; None for all.
        group_by: Attribute paths, or a function of an item.
        window: The window of event time.
        measures: What is kept, by declared name.
        slots: The aggregate item's attributes that the measures keep.
        index: The index that holds the aggregates, if any.
        partitions: Over how many items one aggregate is spread.
        on_expiry: Whether an item that its time to live removed is taken back.
        changes: Whether edits and deletes count, or inserts only.
        most_bad: The share of a batch that may be set aside.
        sk_prefix: Text before the window's label in the aggregate's key.
        retention: How long after its window's end an aggregate is kept; None for ever.
        late: What becomes of a change that comes after that.
    """

    # Whether what a record comes to adds up, so that each has to be settled once.
    counts: ClassVar[bool] = True

    name: str
    source: Table
    target: Table
    where: Condition | None
    group_by: GroupBy
    window: Window
    measures: Mapping[str, Measure]
    slots: tuple[Slot, ...]
    index: Index | None
    partitions: int
    on_expiry: OnExpiry
    changes: Changes
    most_bad: float
    sk_prefix: str
    retention: timedelta | None
    late: Late

    def named(self, names: Mapping[str, str]) -> Declaration:
        """The declaration with other table names, where `names` has them."""
        source, target = (replace(t, name=names.get(t.name, t.name)) for t in (self.source, self.target))
        return replace(self, source=source, target=target)

    @property
    def several(self) -> bool:
        """Whether a group is made of several attributes."""
        return isinstance(self.group_by, tuple) and len(self.group_by) > 1

    def key(self, group: str, label: str, partition: int) -> dict[str, AttributeValue]:
        """The key of the item that holds a group's aggregate of a window.

        Args:
            group: The group as `Declaration.group_key` gives it: the text of the key value.
            label: The window's label, `"2018-01"`.
            partition: Which of the aggregate's items, 0 up to `partitions`.
        """
        sort = label if self.partitions == 1 else f"{label}#{partition}"
        table = self.target
        if table.sk is None:
            return {table.pk: {"S": f"{self.sk_prefix}{group}#{sort}"}}
        return {table.pk: {table.pk_type: group}, table.sk: {"S": self.sk_prefix + sort}}

    def expiry(self, label: str) -> int | None:
        """When the time of a window's aggregates is over, in epoch seconds; None for never."""
        if self.retention is None:
            return None
        end = self.window.end(label)
        return None if end is None else end + self.retention // timedelta(seconds=1)

    def sort_keys(self, label: str) -> frozenset[str]:
        """What the items of a window have as their sort key, or behind the group where the target has none."""
        prefix = self.sk_prefix if self.target.sk is not None else "#"
        if self.partitions == 1:
            return frozenset({prefix + label})
        return frozenset(f"{prefix}{label}#{partition}" for partition in range(self.partitions))

    def is_at(self, item: Image, sort_keys: frozenset[str]) -> bool:
        """Whether an item has the key of an aggregate with one of the `sort_keys`."""
        table = self.target
        if table.sk is not None:
            return item[table.sk].get("S") in sort_keys
        text: str = item[table.pk]["S"]
        return text.startswith(self.sk_prefix) and text.endswith(tuple(sort_keys))

    def group_key(self, *values: object) -> str:
        """The group's key text, for values as a person gives them to a read.

        Raises:
            BadRecordError: A value that cannot be a group.
        """
        if len(values) == 1:
            return self.checked(group_text(values[0], self.target.pk_type))
        return self.checked(join(tuple(map(group_text, values))))

    @property
    def most_group_bytes(self) -> int:
        """How long a group's key text may be: a target without a sort key holds prefix and label in the same value."""
        if self.target.sk is not None:
            return _MOST_PK_BYTES
        return _MOST_PK_BYTES - len(self.sk_prefix.encode()) - _MOST_SORT_BYTES

    def checked(self, text: str) -> str:
        """A group's key text, if a partition key can hold it.

        Raises:
            BadRecordError: It is empty or too long.
        """
        if not text:
            raise BadRecordError("group: expected text of 1 byte or more, came ''")
        most = self.most_group_bytes
        if len(text) * 4 > most and len(text.encode()) > most:
            raise BadRecordError(f"group: expected at most {most} bytes, came {len(text.encode())}")
        return text

    @property
    def guesses(self) -> bool:
        """Whether a write has to assume something of the item that it meets (`plan.request`)."""
        thresholded = self.index is not None and self.index.when is not None
        return thresholded or any(slot.kind != "add" for slot in self.slots)

    def group_of(self, item: Image) -> tuple[Group, str]:
        """The group and the window's label that an aggregate item belongs to."""
        text, label = self.text_of(item)
        if self.several:
            return split(text), label
        return (Decimal(text) if self.target.pk_type == "N" else text), label

    def text_of(self, item: Image) -> tuple[str, str]:
        """The group's key text and the window's label that an aggregate item belongs to."""
        table = self.target
        (raw,) = item[table.pk].values()
        if table.sk is None:
            # A label never holds "#", nor does a partition: so both are found from the right.
            parts = raw.removeprefix(self.sk_prefix).rsplit("#", 1 if self.partitions == 1 else 2)
            raw, sort = parts[0], "#".join(parts[1:])
        else:
            sort = item[table.sk]["S"].removeprefix(self.sk_prefix)
        label = sort if self.partitions == 1 else sort.rpartition("#")[0]
        return (number_text(number(raw)) if table.pk_type == "N" else raw), label


def group_text(value: object, key_type: KeyType = "S") -> str:
    """One group value as the text of a key: text as it is, a number in its shortest exact form, a boolean in words.

    Raises:
        BadRecordError: Another type, or one that a key of `key_type` cannot hold.
    """
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, int | Decimal):
        return number_text(value)
    elif isinstance(value, str):
        text = value
    else:
        raise BadRecordError(f"group: expected text, a number or a boolean, came {shortened(value)}")
    if key_type == "N":
        raise BadRecordError(f"group: expected a number for a numeric key, came {shortened(value)}")
    return text
