"""The ledger: exactly once for records that come without a lane. Pure.

Redriven records, and those of a consumer with parallelization above 1, come in no order that an aggregate could
remember. So each record that counts has a *marker*, an item of the control table, put in the same transaction as
what the record adds:

    TransactWriteItems
        Put     marker of (aggregation, record)   if attribute_not_exists(#pk)
        ...
        Update  aggregate   ADD DownloadCount :n  SET #mark = :name   if attribute_not_exists(#pk) OR #mark = :name
        ...

*Invariant.* A record's marker is there exactly if all that the record adds for the aggregation is in its aggregates,
but for what was set aside. All of it is in one transaction, which is made whole or not at all, and none is made while
the marker is there. So it does not matter how often, in which order and by how many at once records are brought.

Records share transactions up to the service's limit: 100 actions, of different items (DynamoDB API reference,
TransactWriteItems). Where one is cancelled, its reasons say which markers are there: those records fall out, and the
rest is tried again.

Markers expire after `MEMORY_SECONDS`. A stream delivers a record again within 24 hours; whoever brings records from
elsewhere has to refuse those whose marker may be gone (`remembers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from framework.codec import AttributeValue, Image
from framework.declaration import Declaration
from framework.fold import Folded
from framework.plan import Update, in_order, partition_of, request

__all__ = ["DELIVERIES", "MEMORY_SECONDS", "Posting", "actions", "marker_key", "postings", "remembers", "update_action"]

# How a consumer may deliver.
DELIVERIES = ("lanes", "ledger")

MEMORY_SECONDS = 14 * 86_400
# Markers of records near that age may be gone: a stream holds a record for a day before it is first counted.
_MARGIN_SECONDS = 2 * 86_400
_MOST_ACTIONS = 100


@dataclass(frozen=True, slots=True)
class Posting:
    """Records of one aggregation that are settled in one transaction, and what they add.

    Attributes:
        declaration: The aggregation.
        events: The `eventID` of each record by its sequence number, in rising order.
        updates: What they add to each aggregate.
    """

    declaration: Declaration = field(repr=False)
    events: Mapping[int, str]
    updates: tuple[Update, ...]

    @property
    def first(self) -> int:
        """The first record's sequence number."""
        return next(iter(self.events))

    def without(self, sequences: AbstractSet[int]) -> Posting | None:
        """What is left when some records fall out; None if nothing is."""
        return self._of([sequence for sequence in self.events if sequence not in sequences])

    def halves(self) -> tuple[Posting, Posting]:
        """The posting as two, to find the record that is refused."""
        sequences, middle = list(self.events), len(self.events) // 2
        first, second = self._of(sequences[:middle]), self._of(sequences[middle:])
        assert first is not None
        assert second is not None
        return first, second

    def with_update(self, place: int, update: Update | None) -> Posting:
        """The posting with another update at a place, or without it. Its records keep their markers."""
        return replace(
            self, updates=(*self.updates[:place], *([] if update is None else [update]), *self.updates[place + 1 :])
        )

    def _of(self, sequences: Sequence[int]) -> Posting | None:
        if not sequences:
            return None
        kept = frozenset(sequences)
        shares = ((update, tuple(c for c in update.contributions if c[0] in kept)) for update in self.updates)
        return Posting(
            self.declaration,
            {sequence: self.events[sequence] for sequence in sequences},
            tuple(replace(update, contributions=left) for update, left in shares if left),
        )


def postings(folded: Folded, events: Mapping[int, str]) -> list[Posting]:
    """One aggregation's share of a batch as postings, each within the limits of a transaction.

    Args:
        folded: What the batch folded to.
        events: The `eventID` of each record by its sequence number.
    """
    partition = partition_of(next(iter(events.values())), folded.declaration.partitions)
    added: dict[int, list[tuple[str, str]]] = {}
    contributions = {bucket: in_order(found) for bucket, found in folded.buckets.items()}
    for bucket, found in contributions.items():
        for sequence, _, _ in found:
            added.setdefault(sequence, []).append(bucket)
    whole = Posting(
        folded.declaration,
        {sequence: events[sequence] for sequence in sorted(added)},
        tuple(
            Update(folded.declaration, group, label, partition, "", found)
            for (group, label), found in contributions.items()
        ),
    )
    return [posting for run in _runs(added) if (posting := whole._of(run))]


def _runs(added: Mapping[int, Sequence[tuple[str, str]]]) -> Iterable[list[int]]:
    """Sequence numbers in runs whose markers and aggregates fit into a transaction."""
    run: list[int] = []
    buckets: set[tuple[str, str]] = set()
    for sequence in sorted(added):
        more = buckets.union(added[sequence])
        if run and len(run) + 1 + len(more) > _MOST_ACTIONS:
            yield run
            run, more = [], set(added[sequence])
        run.append(sequence)
        buckets = more
    if run:
        yield run


def actions(posting: Posting, control: str, now: float, known: Mapping[tuple[str, str], Image]) -> list[dict[str, Any]]:
    """The actions of the transaction that settles a posting: a marker for each record, then its updates.

    Args:
        posting: What to settle.
        control: The control table's name.
        now: The time in epoch seconds.
        known: Aggregate items, by group and label, as a cancelled transaction brought them.

    Raises:
        BadValueError: As `plan.request` does.
    """
    expires = str(int(now) + MEMORY_SECONDS)
    markers = [
        {
            "Put": {
                "TableName": control,
                "Item": {
                    **marker_key(posting.declaration.name, event),
                    "expires": {"N": expires},
                },
                "ConditionExpression": "attribute_not_exists(#pk)",
                "ExpressionAttributeNames": {"#pk": "pk"},
            }
        }
        for event in posting.events.values()
    ]
    return [*markers, *(update_action(u, known.get((u.group, u.label))) for u in posting.updates)]


def update_action(update: Update, known: Image | None) -> dict[str, Any]:
    """An update without a watermark, as an action of a transaction.

    Raises:
        BadValueError: As `plan.request` does.
    """
    arguments = request(update, 0, known)
    del arguments["ReturnValues"]  # a transaction returns none
    return {"Update": arguments}


def marker_key(aggregation: str, event: str) -> dict[str, AttributeValue]:
    """The key of a record's marker in the control table."""
    return {"pk": {"S": f"ledger#{aggregation}#{event}"}, "sk": {"S": "-"}}


def remembers(created: float, now: float) -> bool:
    """Whether the marker of a record that was made at some time would still be there, had it been counted."""
    return now - created < MEMORY_SECONDS - _MARGIN_SECONDS
