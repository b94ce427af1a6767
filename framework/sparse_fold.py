"""Fold of a sparse index: a batch of changes to the items whose entry has to be written. Pure.

Of each item only the batch's last new image counts: a batch of edits of one item is one write. A deleted item has none.

The write sets the whole entry, or removes it, on one condition: that the item is there, is a user's, and that those of
its attributes on which its entry hangs are as they were seen.

*Invariant.* An entry is a function `f` of the item's other attributes, and of no more than those looked at. So if the
condition holds, `f` of the item as it is now is what is written, whatever else has changed: every write leaves its item
with the entry that it should have, or is refused. It does not matter who makes it, how often, in which order or how
late. An item that was changed since refuses it; one that was changed back has that entry anyway; one that was deleted
refuses it, and is not brought back. The entry's own attributes are not in the condition, for whatever they are, they
are to be this. So there is no watermark and no marker to keep.

*Nothing is missed.* Every version of an item has a record, those made by these writes as well. The last one's is folded
by somebody, and finds the item as it is: if its entry is not the right one it is written, and that version was not the
last. A version of which the entry is right is not written, and so nothing goes on for ever.

*Several in one index.* Those that share an index write the same attributes, each under a prefix of its own. An item
that would have an entry in several has none, and is bad in each: so of any version at most one has an entry to set. It
hangs on what all of them looked at, which is in the condition: whatever a SET replaces, the item as it is now has this
entry and no other. One whose `f` is None takes out what is there only if, by the condition too, it begins with no
sibling's prefix: so its write, however late, takes out no entry of a sibling. What stands wrongly under a sibling's
prefix, that sibling finds wrong, as it has the same records; what is under nobody's, each that has no entry. So where
all find the last version right, it is.

A function that goes through all of an item's attributes, instead of looking some up, may hang on which there are; that
an attribute came since is nothing that a condition can ask. One that looks at more attributes than a condition can hold
has no entry, and the write that takes it away asks for the first of them only. Either write may be wrong, for a version
that differs in the rest, until the record that tells of it is folded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from framework.codec import AttributeValue, from_event
from framework.decode import Record, explain, key_text
from framework.entry import as_seen, compile_entry, compile_there
from framework.errors import BadValueError, ConfigurationError, shortened
from framework.lanes import MARK
from framework.part import BadRecord, Fold, Part
from framework.sparse import SparseDeclaration

__all__ = ["EntryUpdate", "FoldedItems", "compile_items", "entry_request", "item_key"]


@dataclass(frozen=True, slots=True)
class EntryUpdate:
    """What has to be written to one item.

    Attributes:
        declaration: The sparse index.
        key: The item's key, as a boto3 client takes it.
        entry: The attributes of its entry; None to remove them.
        seen: The attributes that the entry hangs on, as they were seen; None for one that was missing.
        first: The sequence number of the record that tells of the item; 0 where it was read.
    """

    declaration: SparseDeclaration = field(repr=False)
    key: Mapping[str, AttributeValue]
    entry: Mapping[str, AttributeValue] | None
    seen: Mapping[str, AttributeValue | None]
    first: int


@dataclass(slots=True)
class _Item:
    """What the last record of an item comes to."""

    number: int
    concerned: bool
    update: EntryUpdate | None
    bad: BadRecord | None


@dataclass(slots=True)
class FoldedItems(Part):
    """One sparse index's share of a batch, filled record by record.

    Attributes:
        declaration: The sparse index.
        late: None.
    """

    declaration: SparseDeclaration
    _items: dict[str, _Item] = field(default_factory=dict)
    late: int = 0

    @property
    def updates(self) -> list[EntryUpdate]:
        """What has to be written: one update for an item."""
        return [item.update for item in self._items.values() if item.update is not None]

    @property
    def bad(self) -> Sequence[BadRecord]:
        """The last records of those items whose entry cannot be told. Such an item has none."""
        return [item.bad for item in self._items.values() if item.bad is not None]

    @property
    def contributions(self) -> int:
        """How many items have to be written."""
        return len(self.updates)

    @property
    def _bad_and_all(self) -> tuple[int, int]:
        """Of the items that have an entry, or had or should have one."""
        return len(self.bad), sum(item.concerned for item in self._items.values())


def compile_items(declaration: SparseDeclaration) -> Callable[[], tuple[FoldedItems, Fold]]:
    """Compile a declaration.

    Returns:
        A function that starts a batch: it returns the batch's `FoldedItems` and the closure that folds one record.
    """
    place_of, is_there = compile_entry(declaration), compile_there(declaration)

    def start() -> tuple[FoldedItems, Fold]:
        folded = FoldedItems(declaration)
        items = folded._items

        def fold(record: Record) -> None:
            try:
                name, change = record["eventName"], record["dynamodb"]
                key, number = key_text(record), int(change["SequenceNumber"])
                # A batch in order is the rule, but not relied on.
                if key in items and items[key].number > number:
                    return
                if name == "REMOVE":
                    items[key] = _Item(number, False, None, None)
                elif name in ("INSERT", "MODIFY"):
                    items[key] = of_image(record, change, number)
                else:
                    explain([record])
            except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError):
                explain([record])

        def of_image(record: Record, change: dict[str, Any], number: int) -> _Item:
            def bad(reason: str) -> BadRecord:
                named = change["SequenceNumber"]
                return BadRecord(declaration.name, key_text(record), named, reason, ("NewImage",), record)

            image = change["NewImage"]
            place = place_of(image)
            if place is None:
                return _Item(number, False, None, None)
            update = None
            if not is_there(image, place.entry):
                update = EntryUpdate(
                    declaration, item_key(declaration, record), place.entry, as_seen(image, place), number
                )
            concerned = update is not None or place.entry is not None or place.reason != ""
            return _Item(number, concerned, update, bad(place.reason) if place.reason else None)

        return folded, fold

    return start


def item_key(declaration: SparseDeclaration, record: Record) -> dict[str, AttributeValue]:
    """The key of the item that a record is about, as a boto3 client takes it.

    Raises:
        EventError: The record is none.
        ConfigurationError: The table has other keys than are declared.
    """
    try:
        keys = record["dynamodb"]["Keys"]
        found = from_event(keys)
    except (KeyError, TypeError, BadValueError):
        explain([record])
    if found.keys() != set(declaration.source.keys):
        raise ConfigurationError(
            f"{declaration.name}: expected a table with the keys {declaration.source.keys}, came {shortened([*found])}"
        )
    return found


def entry_request(update: EntryUpdate) -> dict[str, Any]:
    """The arguments of the one `UpdateItem` that gives an item its entry, or takes it away."""
    names: dict[str, str] = {"#pk": update.declaration.source.pk, "#mark": MARK}
    values: dict[str, AttributeValue] = {}
    conditions = ["attribute_exists(#pk)", "attribute_not_exists(#mark)"]
    for place, (attribute, seen) in enumerate(update.seen.items()):
        names[f"#n{place}"] = attribute
        if seen is None:
            conditions.append(f"attribute_not_exists(#n{place})")
        else:
            values[f":n{place}"] = seen
            conditions.append(f"#n{place} = :n{place}")
    for place, attribute in enumerate(update.declaration.managed):
        names[f"#e{place}"] = attribute
        if update.entry is not None:
            values[f":e{place}"] = update.entry[attribute]
    if update.entry is None:
        # A partition key with a prefix is none of the table's, so it is the entry's first attribute.
        for place, sibling in enumerate(update.declaration.siblings):
            values[f":s{place}"] = {"S": sibling.index.prefix}
            conditions.append(f"NOT begins_with(#e0, :s{place})")
    # Both halves of a composite key, or neither: half of one is in no index, without an error.
    places = range(len(update.declaration.managed))
    change = "REMOVE " + ", ".join(f"#e{place}" for place in places)
    if update.entry is not None:
        change = "SET " + ", ".join(f"#e{place} = :e{place}" for place in places)
    return {
        "TableName": update.declaration.source.name,
        "Key": dict(update.key),
        "UpdateExpression": change,
        "ConditionExpression": " AND ".join(conditions),
        "ExpressionAttributeNames": names,
        **({"ExpressionAttributeValues": values} if values else {}),
    }
