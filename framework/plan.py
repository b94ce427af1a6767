"""Plan: what a batch adds, as values that say which writes to make. Pure.

An `Update` is one aggregate's share of a batch. The protocol of `lanes` is here as functions of values: `request`
turns an update into the one conditional write, `drop_absorbed` says what is left of it once the item is known. Delivery
only carries them out.

*Invariant.* Updating an aggregate with contributions `c1..cn` at once leaves it as updating it with each in turn
would. A contribution that only adds may make the item. One that takes back never does: where the item is not there
(it has expired, or its inserts came before the stream was on), the leading take-backs fall away, up to the first that
adds. (That leaves no watermark, but a refused entry in quarantine, so that it is not taken back when it is delivered
again after the item was made.) A batch that nets to nothing is still written, for its watermark must move: otherwise a
part of it, delivered again on its own, would count.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

from framework.codec import AttributeValue, Image, number, number_text
from framework.declaration import Declaration
from framework.decode import is_sequence_number
from framework.errors import BadValueError, EventError, shortened
from framework.fold import Bucket, Folded, Values
from framework.lanes import MARK, bound, position, stale, watermark
from framework.measures import EXACT, Kind, Number, at_or_above, combine
from framework.tables import AtLeast

__all__ = [
    "Update",
    "absence",
    "drop_absorbed",
    "drop_take_backs",
    "fence",
    "forget",
    "in_order",
    "plan",
    "request",
    "take_backs",
]

# Watermarks that are forgotten together, so that the write which drops them is paid for rarely.
_FORGET_TOGETHER = 3


@dataclass(frozen=True, slots=True)
class Update:
    """One aggregate's share of a batch.

    Attributes:
        declaration: The aggregation.
        group: The group's key text.
        label: The window's label.
        partition: Which of the aggregate's items.
        lane: The lane attribute; empty where markers guard the write and not a watermark.
        contributions: For each record its sequence number, whether it only adds, and a value for each slot, in
            rising order of the sequence numbers.
        redriven: Whether redrive brings it, after the lane may have moved on.
        exists: Whether the aggregate is known to have an item, in another partition, so that a take-back may
            make this one.
    """

    declaration: Declaration = field(repr=False)
    group: str
    label: str
    partition: int
    lane: str
    contributions: tuple[tuple[int, bool, Values], ...]
    redriven: bool = False
    exists: bool = False

    @property
    def first(self) -> int:
        """The first record's sequence number."""
        return self.contributions[0][0]

    @property
    def last(self) -> int:
        """The last record's sequence number."""
        return self.contributions[-1][0]

    @property
    def opens(self) -> bool:
        """Whether it may make the item: its first contribution only adds, or the aggregate exists elsewhere."""
        return self.exists or self.contributions[0][1]

    @property
    def key(self) -> dict[str, AttributeValue]:
        """The key of the aggregate item."""
        return self.declaration.key(self.group, self.label, self.partition)

    @property
    def siblings(self) -> list[dict[str, AttributeValue]]:
        """The keys of the aggregate's items in the other partitions."""
        d = self.declaration
        return [d.key(self.group, self.label, p) for p in range(d.partitions) if p != self.partition]

    def totals(self) -> Values:
        """What the contributions come to, a value for each slot; exact."""
        columns = zip(*(values for _, _, values in self.contributions), strict=True)
        kinds = (slot.kind for slot in self.declaration.slots)
        return tuple(combine(kind, column) for kind, column in zip(kinds, columns, strict=True))

    def halves(self) -> tuple[Update, Update]:
        """The update as two that follow each other, to find the contribution that is refused."""
        middle = len(self.contributions) // 2
        return (
            replace(self, contributions=self.contributions[:middle]),
            replace(self, contributions=self.contributions[middle:]),
        )


def plan(folded: Folded, lane: str, partition: int) -> list[Update]:
    """The updates of one aggregation's share of a batch, one for each aggregate.

    Args:
        folded: What the batch folded to.
        lane: The lane attribute of the batch's shard for this aggregation.
        partition: The partition that the lane feeds.
    """
    return [
        Update(folded.declaration, group, label, partition, lane, in_order(bucket))
        for (group, label), bucket in folded.buckets.items()
    ]


def in_order(bucket: Bucket) -> tuple[tuple[int, bool, Values], ...]:
    """Contributions by rising sequence number, each once: a batch in order is the rule, but not relied on."""
    for sequence, _, _ in bucket:
        if not is_sequence_number(sequence):
            raise EventError(f"event: SequenceNumber: expected 1 to 40 decimal digits as text, came {sequence!r}")
    found = [(int(sequence), opens, values) for sequence, opens, values in bucket]
    if all(a[0] < b[0] for a, b in pairwise(found)):
        return tuple(found)
    unique = {contribution[0]: contribution for contribution in found}
    return tuple(unique[sequence] for sequence in sorted(unique))


def request(update: Update, hour: int, known: Image | None = None) -> dict[str, Any]:
    """The arguments of the one `UpdateItem` that absorbs an update.

    An extreme is kept in the same write. `UpdateItem` cannot choose the greater of two numbers, so the condition
    states what the write assumes: that the extreme kept so far stands, as it nearly always does, or, where the item
    is known and the new value improves on it, that it still does. A wrong guess is refused and brings the item.

    An index with a threshold is kept likewise: the write sets the index's key or removes it, and assumes of the total
    before that with it the threshold is reached, or is not. Where nothing is known, it assumes a total of nothing: an
    aggregate that the process has not met before is new or one of the many that are seldom written, which is what
    a threshold keeps out of an index; those that are written all the time are known (`known.py`).

    Args:
        update: What to absorb.
        hour: The hour now, as `lanes.hour_of` gives it.
        known: What is known of the item: as a refused write brought it, or as it was last seen. May be out of date.

    Raises:
        BadValueError: A total that DynamoDB cannot hold in 38 digits, or an extreme that is no number.
    """
    table = update.declaration.target
    build = _Expression()
    mark, own = build.name(MARK), build.text(update.declaration.name)
    if update.lane:
        lane, last, first = (
            "#lane",
            build.text(watermark(update.last, hour, redriven=update.redriven)),
            build.text(bound(update.first)),
        )
        build.names[lane] = update.lane
        build.sets.append(f"{lane} = {last}")
        build.conditions.append(f"(attribute_not_exists({lane}) OR {lane} < {first})")
    build.sets.append(f"{mark} = {own}")
    may_make = f"attribute_not_exists({build.name(table.pk)}) OR " if update.opens else ""
    build.conditions.append(f"({may_make}{mark} = {own})")
    totals = dict(zip((slot.attribute for slot in update.declaration.slots), update.totals(), strict=True))
    index = update.declaration.index
    if index is not None:
        place = build.name(index.pk)
        if index.when is None or _qualifies(build, index.when, totals[index.when.measure], known or {}):
            build.sets.append(f"{place} = {build.text(index.key(update.group, update.label))}")
        else:
            build.removes.append(place)
    expiry = update.declaration.expiry(update.label)
    if expiry is not None and table.ttl is not None:
        build.sets.append(f"{build.name(table.ttl)} = {build.number(expiry)}")
    for slot in update.declaration.slots:
        total = totals[slot.attribute]
        name, value = build.name(slot.attribute), build.number(total)
        if slot.kind == "add":
            build.adds.append(f"{name} {value}")
        elif _improves(slot.kind, total, (known or {}).get(slot.attribute)):
            build.sets.append(f"{name} = {value}")
            build.conditions.append(f"{name} {'>' if slot.kind == 'least' else '<'} {value}")
        else:
            build.sets.append(f"{name} = if_not_exists({name}, {value})")
            stands = "<=" if slot.kind == "least" else ">="
            build.conditions.append(f"(attribute_not_exists({name}) OR {name} {stands} {value})")
    return {"TableName": table.name, "Key": update.key, **build.arguments()}


def _qualifies(build: _Expression, when: AtLeast, added: Number, known: Image) -> bool:
    """Whether the total reaches the threshold, as far as the item is known; the condition says what that assumes.

    A total that is missing is nothing. What the total has to be before, `limit - added`, may have more digits than a
    number of DynamoDB's: `at_or_above`.
    """
    kept = known.get(when.measure, {"N": "0"})
    if "N" not in kept:
        raise BadValueError(f"the total kept so far: expected a number, came {shortened(kept)}")
    limit, more = Decimal(when.limit), Decimal(added)
    needed = at_or_above(EXACT.subtract(limit, more))
    if needed is None:
        return False  # no total that there can be is enough
    qualifies = EXACT.add(number(kept["N"]), more) >= limit
    name = build.name(when.measure)
    found = f"{name} {'>=' if qualifies else '<'} {build.number(needed)}"
    # Where there is none, what is added decides alone.
    build.conditions.append(f"(attribute_not_exists({name}) OR {found})" if qualifies == (more >= limit) else found)
    return qualifies


def _improves(kind: Kind, total: Number, kept: AttributeValue | None) -> bool:
    if kept is None:
        return False
    if "N" not in kept:
        raise BadValueError(f"the extreme kept so far: expected a number, came {shortened(kept)}")
    return total < number(kept["N"]) if kind == "least" else total > number(kept["N"])


class _Expression:
    """The parts of an `UpdateItem`, with a placeholder for every name and value: none can be a reserved word."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self._places: dict[str, str] = {}  # the names' placeholders
        self.values: dict[str, AttributeValue] = {}
        self.sets: list[str] = []
        self.removes: list[str] = []
        self.adds: list[str] = []
        self.conditions: list[str] = []

    def name(self, attribute: str) -> str:
        placeholder = self._places.get(attribute)
        if placeholder is None:
            placeholder = self._places[attribute] = f"#n{len(self.names)}"
            self.names[placeholder] = attribute
        return placeholder

    def text(self, text: str) -> str:
        return self._value({"S": text})

    def number(self, value: Number) -> str:
        return self._value({"N": number_text(value)})

    def _value(self, value: AttributeValue) -> str:
        placeholder = f":v{len(self.values)}"
        self.values[placeholder] = value
        return placeholder

    def arguments(self) -> dict[str, Any]:
        clauses = {"SET": self.sets, "REMOVE": self.removes, "ADD": self.adds}
        return {
            "UpdateExpression": " ".join(f"{verb} {', '.join(each)}" for verb, each in clauses.items() if each),
            "ConditionExpression": " AND ".join(self.conditions),
            "ExpressionAttributeNames": self.names,
            "ExpressionAttributeValues": self.values,
            # Neither costs capacity (AWS facts: writes): one shows old watermarks, the other why a write was refused.
            "ReturnValues": "ALL_NEW",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }


def drop_absorbed(update: Update, item: Image) -> Update | None:
    """What is left of an update for an item that is there: the records above its watermark; None if none are.

    Raises:
        BadValueError: The watermark is none.
    """
    value = item.get(update.lane)
    if value is None:
        return update
    absorbed = position(value)
    left = tuple(c for c in update.contributions if c[0] > absorbed)
    return replace(update, contributions=left) if left else None


def drop_take_backs(update: Update) -> Update | None:
    """What is left of an update for an aggregate that is not there: all from the first record that adds, or None."""
    for place, (_, adds, _) in enumerate(update.contributions):
        if adds:
            return replace(update, contributions=update.contributions[place:])
    return None


def take_backs(update: Update) -> Update | None:
    """What `drop_take_backs` drops; None if that is nothing."""
    left = drop_take_backs(update)
    dropped = update.contributions[: -len(left.contributions) if left else None]
    return replace(update, contributions=dropped) if dropped else None


def absence(update: Update) -> dict[str, Any]:
    """The action of a transaction that sees that an aggregate which was not there still is not.

    It looks at the first partition, which redrive makes before it looks for what was refused (`refused.py`). That
    another one was made in the meantime is as if the take-back had come before it.
    """
    declaration = update.declaration
    return {
        "ConditionCheck": {
            "TableName": declaration.target.name,
            "Key": declaration.key(update.group, update.label, 0),
            "ConditionExpression": "attribute_not_exists(#mark) OR #mark <> :own",
            "ExpressionAttributeNames": {"#mark": MARK},
            "ExpressionAttributeValues": {":own": {"S": declaration.name}},
        }
    }


def fence(update: Update, hour: int) -> dict[str, Any]:
    """The action of a transaction that moves a watermark over an update that is set aside, and adds nothing.

    It makes the item where the update may.

    Args:
        update: What is set aside.
        hour: The hour now, as `lanes.hour_of` gives it.
    """
    pk = update.declaration.target.pk
    may_make = "attribute_not_exists(#pk) OR " if update.opens else ""
    ttl, expiry = update.declaration.target.ttl, update.declaration.expiry(update.label)
    expires = ttl is not None and expiry is not None
    return {
        "Update": {
            "TableName": update.declaration.target.name,
            "Key": update.key,
            "UpdateExpression": "SET #lane = :last, #mark = :own" + ", #ttl = :ttl" * expires,
            "ConditionExpression": f"({may_make}#mark = :own) AND (attribute_not_exists(#lane) OR #lane < :first)",
            "ExpressionAttributeNames": {
                "#lane": update.lane,
                "#mark": MARK,
                **({"#pk": pk} if may_make else {}),
                **({"#ttl": ttl} if expires else {}),
            },
            "ExpressionAttributeValues": {
                ":own": {"S": update.declaration.name},
                ":last": {"S": watermark(update.last, hour, redriven=update.redriven)},
                ":first": {"S": bound(update.first)},
                **({":ttl": {"N": str(expiry)}} if expires else {}),
            },
        }
    }


def forget(update: Update, item: Image, hour: int) -> dict[str, Any] | None:
    """The arguments of the `UpdateItem` that removes watermarks which no redelivery needs, or None if few are there.

    Args:
        update: What was just absorbed.
        item: The item after it.
        hour: The hour now, as `lanes.hour_of` gives it.
    """
    old = stale(item, update.lane, hour)
    if len(old) < _FORGET_TOGETHER:
        return None
    names = {f"#l{n}": attribute for n, attribute in enumerate(old)}
    return {
        "TableName": update.declaration.target.name,
        "Key": update.key,
        "UpdateExpression": f"REMOVE {', '.join(names)}",
        # A lane that moved in the meantime is needed again.
        "ConditionExpression": " AND ".join(f"#l{n} = :l{n}" for n in range(len(old))),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": {f":l{n}": {"S": value} for n, value in enumerate(old.values())},
    }
