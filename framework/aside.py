"""Set aside: what cannot be counted becomes entries of the quarantine, and what is there is left out of the count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from framework.control import Control
from framework.declaration import Declaration
from framework.decode import Batch, by_number, explain, is_sequence_number, key_text
from framework.errors import BadRecordError, BadValueError
from framework.fold import IMAGES, BadRecord, Fold, Folded, compile_half, fold_around
from framework.quarantine import Entry, lane_prefix
from framework.turns import Turn, counted
from framework.writer import Rejection, Terms

__all__ = ["Aside", "Kept"]


class Aside:
    """What a consumer sets aside.

    Args:
        declarations: The consumer's aggregations.
        control: Keeps it; None if nobody does.
        now: The time in epoch seconds.
        lanes: Whether lanes remember what has counted.

    Attributes:
        lanes: As given.
    """

    def __init__(
        self,
        declarations: Iterable[Declaration],
        control: Control | None,
        now: Callable[[], float],
        *,
        lanes: bool,
    ) -> None:
        self._declarations = {declaration.name: declaration for declaration in declarations}
        # Compiled where something is set aside, which is seldom.
        self._half = cache(lambda name: compile_half(self._declarations[name]))
        self._control = control
        self._now = now
        self.lanes = lanes

    def around(self, batch: Batch, started: Sequence[tuple[Folded, Fold]]) -> tuple[Turn | None, list[Fold]]:
        """The turn to count a batch in, and its folds, which leave out what is in quarantine, settled or not.

        By the ledger neither is needed: a record's marker tells that it is settled.
        """
        if self._control is None or not batch.records or not self.lanes:
            return None, [fold for _, fold in started]
        try:
            # A batch in order is the rule, but not relied on.
            numbers = sorted([record["dynamodb"]["SequenceNumber"] for record in batch.records], key=int)
        except (KeyError, TypeError, ValueError, OverflowError):
            explain(batch.records)
        first, last = numbers[0], numbers[-1]
        if not is_sequence_number(first) or not is_sequence_number(last):
            explain(batch.records)
        turn, owned = self._control.begin(batch, int(first))
        return turn, [
            fold_around(folded, fold, self._half(folded.declaration.name), found)
            if (found := owned.get(folded.declaration.name))
            else fold
            for folded, fold in started
        ]

    def split(self, folded: Iterable[Folded]) -> tuple[list[Folded], list[Folded]]:
        """The shares that are not to be set aside, since most of each is bad, and the rest."""
        shares = list(folded)
        refused = [share for share in shares if self._control is not None and share.mostly_bad]
        return refused, [share for share in shares if share not in refused]

    def keeper(self, batch: Batch, turn: Turn | None, deadline: float) -> Kept | None:
        """Keeps what of a batch cannot be counted; None if nobody does."""
        if self._control is None:
            return None
        return Kept(self, self._control, batch, turn, deadline)

    def rejected(self, batch: Batch, declaration: Declaration, rejected: Sequence[Rejection]) -> list[BadRecord]:
        """The records of rejected contributions, each with the images that made the contribution."""
        records = by_number(batch.records)
        return [
            BadRecord(
                declaration.name,
                key_text(record := records[sequence]),
                record["dynamodb"]["SequenceNumber"],
                reason,
                tuple(image for image in IMAGES if self._bucket(declaration, record, image) == bucket),
                record,
                uncertain,
            )
            for sequence, bucket, reason, uncertain, _ in rejected
        ]

    def _bucket(self, declaration: Declaration, record: dict[str, Any], image: str) -> tuple[str, str] | None:
        try:
            half = self._half(declaration.name)(record, image)
        except (BadRecordError, BadValueError):
            return None
        return None if half is None else half[0]

    def entries(self, batch: Batch, bad: BadRecord, *, uncertain: bool = False, refused: bool = False) -> list[Entry]:
        """The entries of a bad record, one for each image that does not count."""
        return [
            Entry(
                handler=bad.handler,
                image=image,
                stream_arn=batch.stream_arn,
                shard_id=batch.shard_id,
                sequence_number=int(bad.sequence_number),
                record=bad.record,
                reason=bad.reason,
                at=int(self._now()),
                uncertain=bad.uncertain or uncertain,
                refused=refused,
            )
            for image in bad.images
        ]


@dataclass(frozen=True, slots=True)
class Kept:
    """Keeps what of one batch cannot be counted; the `Keeper` of its deliveries.

    Attributes:
        aside: Makes entries.
        control: Writes them.
        batch: The batch.
        turn: The turn that it is counted in; None where entries are written with what else their records add.
        deadline: Until when.
    """

    aside: Aside
    control: Control
    batch: Batch
    turn: Turn | None
    deadline: float

    def write(
        self, declaration: Declaration, rejected: Sequence[Rejection], check: Mapping[str, Any] | None = None
    ) -> int:
        """See `Keeper.write`."""
        assert self.turn is not None
        terms = Terms(deadline=self.deadline)
        return self.control.keep(declaration, self.turn, self._of(declaration, rejected), terms, check)

    def actions(self, declaration: Declaration, rejected: Sequence[Rejection]) -> dict[str, Mapping[str, Any]]:
        """See `Keeper.actions`."""
        return self._actions(self._of(declaration, rejected))

    def write_bad(self, share: Folded) -> None:
        """Write entries for the records that a fold found bad.

        Raises:
            NotDoneError: They could not be written.
        """
        entries = [entry for bad in share.bad for entry in self.aside.entries(self.batch, bad)]
        if entries:
            assert self.turn is not None
            self.control.keep(share.declaration, self.turn, entries, Terms(deadline=self.deadline))

    def actions_bad(self, share: Folded) -> dict[int, dict[str, Mapping[str, Any]]]:
        """The actions that write entries for the records that a fold found bad, by their sequence numbers.

        Redriven by lanes, nobody knows what another version has made of them, so that they are uncertain.
        """
        lanes = self.aside.lanes
        return {
            int(bad.sequence_number): self._actions(self.aside.entries(self.batch, bad, uncertain=lanes))
            for bad in share.bad
        }

    def _of(self, declaration: Declaration, rejected: Sequence[Rejection]) -> list[Entry]:
        refused = {sequence for sequence, _, _, _, refused in rejected if refused}
        return [
            entry
            for bad in self.aside.rejected(self.batch, declaration, rejected)
            for entry in self.aside.entries(self.batch, bad, refused=int(bad.sequence_number) in refused)
        ]

    def _actions(self, entries: Sequence[Entry]) -> dict[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {entry.place: self.control.put(entry) for entry in entries}
        if entries and self.aside.lanes:
            # Whoever begins the shard's records later has to look for them.
            prefix = lane_prefix(self.batch.stream_arn, self.batch.shard_id)
            found["entries"] = counted(self.control.table, prefix, 1)
        return found
