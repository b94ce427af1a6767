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
or in entries of the quarantine. All of it is in one transaction, which is made whole or not at all, and none is made
while the marker is there. So it does not matter how often, in which order, by how many at once, and by which versions
of a handler records are brought: one of them settles a record, as a whole.

Records share transactions up to the service's limit: 100 actions, of different items (DynamoDB API reference,
TransactWriteItems). Where one is cancelled, its reasons say which markers are there: those records fall out, and the
rest is tried again. A record of which something is set aside has a transaction of its own.

Markers expire after two weeks (`quarantine.MEMORY_SECONDS`); a stream delivers a record again within 24 hours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from framework.codec import AttributeValue, Image
from framework.declaration import Declaration
from framework.fold import Folded
from framework.lanes import hour_of
from framework.plan import Update, in_order, request
from framework.quarantine import MEMORY_SECONDS

__all__ = [
    "DELIVERIES",
    "Guard",
    "Posting",
    "actions",
    "marker",
    "postings",
    "update_action",
]

# How a consumer may deliver.
DELIVERIES = ("lanes", "ledger")

_MOST_ACTIONS = 100


@dataclass(frozen=True, slots=True)
class Guard:
    """What makes that a record is settled once: an item that a transaction changes with what the record adds.

    Attributes:
        action: The transaction's action, whose condition fails once the record is settled.
        table: The item's table.
        key: The item's key.
        settled_by: The attribute that the item has once the record is settled.
        settled_if_gone: Whether no item means that the record is settled, too.
    """

    action: Mapping[str, Any]
    table: str
    key: Mapping[str, AttributeValue]
    settled_by: str
    settled_if_gone: bool

    def settled(self, item: Image | None) -> bool:
        """Whether the item, or that there is none, says that the record is settled."""
        return self.settled_if_gone if item is None else self.settled_by in item


@dataclass(frozen=True, slots=True)
class Posting:
    """Records of one aggregation that are settled in one transaction, and what they add.

    Attributes:
        declaration: The aggregation.
        guards: The guard of each record by its sequence number, in rising order.
        updates: What they add to each aggregate.
        others: Further actions, such as those that write entries, each under a name of its own. Whoever adds some has a
            posting of one record.
    """

    declaration: Declaration = field(repr=False)
    guards: Mapping[int, Guard] = field(repr=False)
    updates: tuple[Update, ...]
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)

    @property
    def first(self) -> int:
        """The first record's sequence number."""
        return next(iter(self.guards))

    def without(self, sequences: AbstractSet[int]) -> Posting | None:
        """What is left when some records fall out; None if nothing is."""
        return self._of([sequence for sequence in self.guards if sequence not in sequences])

    def halves(self) -> tuple[Posting, Posting]:
        """The posting as two, to find the record that is refused."""
        sequences, middle = list(self.guards), len(self.guards) // 2
        first, second = self._of(sequences[:middle]), self._of(sequences[middle:])
        assert first is not None
        assert second is not None
        return first, second

    def with_update(self, place: int, update: Update | None) -> Posting:
        """The posting with another update at a place, or without it. Its records keep their guards."""
        return replace(
            self, updates=(*self.updates[:place], *([] if update is None else [update]), *self.updates[place + 1 :])
        )

    def with_others(self, others: Mapping[str, Mapping[str, Any]]) -> Posting:
        """The posting with further actions."""
        return replace(self, others={**self.others, **others})

    def _of(self, sequences: Sequence[int]) -> Posting | None:
        if not sequences:
            return None
        kept = frozenset(sequences)
        shares = ((update, tuple(c for c in update.contributions if c[0] in kept)) for update in self.updates)
        return Posting(
            self.declaration,
            {sequence: self.guards[sequence] for sequence in sequences},
            tuple(replace(update, contributions=left) for update, left in shares if left),
        )


def postings(
    folded: Folded,
    guards: Mapping[int, Guard],
    partition: int,
    *,
    apart: AbstractSet[int] = frozenset(),
    lane: str = "",
) -> list[Posting]:
    """One aggregation's share of a batch as postings, each within the limits of a transaction.

    Args:
        folded: What the batch folded to.
        guards: The guard of each record by its sequence number.
        partition: Which of each aggregate's items takes it.
        apart: Records that have a posting of their own, whether they add anything or not.
        lane: The lane attribute, where the records come from a lane and have to fit in with it, too.
    """
    contributions = {bucket: in_order(found) for bucket, found in folded.buckets.items()}
    added: dict[int, list[tuple[str, str]]] = {sequence: [] for sequence in apart}
    for bucket, found in contributions.items():
        for sequence, _, _ in found:
            added.setdefault(sequence, []).append(bucket)
    updates = tuple(
        Update(folded.declaration, group, label, partition, lane, found, redriven=bool(lane))
        for (group, label), found in contributions.items()
    )
    whole = Posting(folded.declaration, {sequence: guards[sequence] for sequence in sorted(added)}, updates)
    return [posting for run in _runs(added, apart) if (posting := whole._of(run))]


def _runs(added: Mapping[int, Sequence[tuple[str, str]]], apart: AbstractSet[int]) -> Iterable[list[int]]:
    """Sequence numbers in runs whose markers and aggregates fit into a transaction."""
    run: list[int] = []
    buckets: set[tuple[str, str]] = set()
    for sequence in sorted(added):
        more = buckets.union(added[sequence])
        if run and (run[-1] in apart or sequence in apart or len(run) + 1 + len(more) > _MOST_ACTIONS):
            yield run
            run, more = [], set(added[sequence])
        run.append(sequence)
        buckets = more
    if run:
        yield run


def marker(control: str, aggregation: str, event: str, now: float) -> Guard:
    """The guard of a record that comes from a stream.

    Args:
        control: The control table's name.
        aggregation: The aggregation's name.
        event: The record's `eventID`.
        now: The time in epoch seconds.
    """
    key = {"pk": {"S": f"ledger#{aggregation}#{event}"}, "sk": {"S": "-"}}
    put = {
        "TableName": control,
        "Item": {**key, "expires": {"N": str(int(now) + MEMORY_SECONDS)}},
        "ConditionExpression": "attribute_not_exists(pk)",
    }
    return Guard({"Put": put}, control, key, settled_by="pk", settled_if_gone=False)


def actions(posting: Posting, now: float, known: Mapping[tuple[str, str], Image]) -> list[Mapping[str, Any]]:
    """The actions of the transaction that settles a posting: its guards', then its updates, then the others.

    Args:
        posting: What to settle.
        now: The time in epoch seconds.
        known: Aggregate items, by group and label, as a cancelled transaction brought them.

    Raises:
        BadValueError: As `plan.request` does.
    """
    updates = [update_action(u, now, known.get((u.group, u.label))) for u in posting.updates]
    return [*(guard.action for guard in posting.guards.values()), *updates, *posting.others.values()]


def update_action(update: Update, now: float, known: Image | None) -> dict[str, Any]:
    """An update as an action of a transaction.

    Raises:
        BadValueError: As `plan.request` does.
    """
    arguments = request(update, hour_of(now), known)
    del arguments["ReturnValues"]  # a transaction returns none
    return {"Update": arguments}
