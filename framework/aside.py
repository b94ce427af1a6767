"""Set aside: what cannot be counted becomes entries of the quarantine, and what is there is left out of the count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from framework.archive_fold import FoldedArchive, leave_out
from framework.control import Control, Owned
from framework.declaration import Declaration
from framework.decode import Batch, by_number, explain, is_sequence_number, key_text
from framework.errors import BadRecordError, BadValueError
from framework.fold import IMAGES, Folded, compile_half, fold_around
from framework.part import BadRecord, Fold, Part
from framework.quarantine import Entry, lane_prefix
from framework.sparse import Handler
from framework.turns import Turn, counted
from framework.writer import Rejection, Terms

__all__ = ["Aside", "Kept"]


class Aside:
    """What a consumer sets aside.

    Args:
        declarations: What the consumer's handlers declare.
        control: Keeps it; None if nobody does.
        now: The time in epoch seconds.
        lanes: Whether lanes remember what has counted.

    Attributes:
        lanes: As given.
    """

    def __init__(
        self,
        declarations: Iterable[Handler],
        control: Control | None,
        now: Callable[[], float],
        *,
        lanes: bool,
    ) -> None:
        self._declarations = {declaration.name: declaration for declaration in declarations}
        # Compiled where something is set aside, which is seldom.
        counting = {d.name: d for d in self._declarations.values() if isinstance(d, Declaration)}
        self._half = cache(lambda name: compile_half(counting[name]))
        self._control = control
        self._now = now
        self.lanes = lanes

    def begin(self, batch: Batch) -> tuple[Turn | None, Owned]:
        """The turn to count a batch in, and what of it is in quarantine, settled or not.

        By the ledger neither is needed: a record's marker tells that it is settled.
        """
        if self._control is None or not batch.records:
            return None, {}
        try:
            # A batch in order is the rule, but not relied on.
            numbers = sorted([record["dynamodb"]["SequenceNumber"] for record in batch.records], key=int)
        except (KeyError, TypeError, ValueError, OverflowError):
            explain(batch.records)
        first, last = numbers[0], numbers[-1]
        if not is_sequence_number(first) or not is_sequence_number(last):
            explain(batch.records)
        return self._control.begin(batch, int(first)) if self.lanes else (None, {})

    def around(self, started: Sequence[tuple[Part, Fold]], owned: Owned) -> list[Fold]:
        """The folds of a batch, which leave out what is in quarantine.

        But for those of sparse indexes: what is written twice is no harm there.
        """
        return [self._around(folded, fold, owned.get(folded.declaration.name)) for folded, fold in started]

    def _around(self, folded: Part, fold: Fold, owned: Mapping[int, frozenset[str]] | None) -> Fold:
        if owned and isinstance(folded, Folded):
            return fold_around(folded, fold, self._half(folded.declaration.name), owned)
        if owned and isinstance(folded, FoldedArchive):
            return leave_out(fold, owned)
        return fold

    def split(self, folded: Iterable[Part]) -> tuple[list[Part], list[Part]]:
        """The shares that are not to be set aside, since most of each is bad, and the rest."""
        refused: list[Part] = []
        sound: list[Part] = []
        for share in folded:
            (refused if self._control is not None and share.mostly_bad else sound).append(share)
        return refused, sound

    def keeper(self, batch: Batch, turn: Turn | None, owned: Owned, deadline: float) -> Kept | None:
        """Keeps what of a batch cannot be counted; None if nobody does."""
        if self._control is None:
            return None
        return Kept(self, self._control, batch, turn, owned, deadline)

    def rejected(self, batch: Batch, declaration: Handler, rejected: Sequence[Rejection]) -> list[BadRecord]:
        """The records of rejected contributions, each with the images that made the contribution."""
        records = by_number(batch.records)
        return [
            BadRecord(
                declaration.name,
                key_text(record := records[sequence]),
                record["dynamodb"]["SequenceNumber"],
                reason,
                self._images(declaration, record, bucket),
                record,
                uncertain,
            )
            for sequence, bucket, reason, uncertain, _ in rejected
        ]

    def _images(self, declaration: Handler, record: dict[str, Any], bucket: tuple[str, str]) -> tuple[str, ...]:
        if not declaration.counts:
            return ("NewImage",)
        return tuple(image for image in IMAGES if self._bucket(declaration.name, record, image) == bucket)

    def _bucket(self, handler: str, record: dict[str, Any], image: str) -> tuple[str, str] | None:
        try:
            half = self._half(handler)(record, image)
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
        owned: What of it is in quarantine already.
        deadline: Until when.
    """

    aside: Aside
    control: Control
    batch: Batch
    turn: Turn | None
    owned: Owned
    deadline: float

    def write(self, declaration: Handler, rejected: Sequence[Rejection], check: Mapping[str, Any] | None = None) -> int:
        """See `Keeper.write`."""
        terms = Terms(deadline=self.deadline)
        return self.control.keep(declaration, self._turn(declaration), self._of(declaration, rejected), terms, check)

    def actions(self, declaration: Handler, rejected: Sequence[Rejection]) -> dict[str, Mapping[str, Any]]:
        """See `Keeper.actions`."""
        return self._actions(self._of(declaration, rejected))

    def _turn(self, declaration: Handler) -> Turn | None:
        """The turn to write a handler's entries in: it matters only where what a record adds counts."""
        return self.turn if declaration.counts else None

    def take_turn(self) -> None:
        """Take the turn, before anything is written.

        Raises:
            NotDoneError: It could not be taken.
        """
        if self.turn is not None:
            self.control.take(self.turn)

    def write_bad(self, share: Part) -> None:
        """Write entries for the records that a fold found bad.

        Raises:
            NotDoneError: They could not be written.
        """
        entries = [entry for bad in share.bad for entry in self.aside.entries(self.batch, bad)]
        if entries:
            terms = Terms(deadline=self.deadline)
            self.control.keep(share.declaration, self._turn(share.declaration), entries, terms)

    def actions_bad(self, share: Folded) -> dict[int, dict[str, Mapping[str, Any]]]:
        """The actions that write entries for the records that a fold found bad, by their sequence numbers.

        Redriven by lanes, nobody knows what another version has made of them, so that they are uncertain.
        """
        lanes = self.aside.lanes
        return {
            int(bad.sequence_number): self._actions(self.aside.entries(self.batch, bad, uncertain=lanes))
            for bad in share.bad
        }

    def _of(self, declaration: Handler, rejected: Sequence[Rejection]) -> list[Entry]:
        refused = {sequence for sequence, _, _, _, refused in rejected if refused}
        owned = self.owned.get(declaration.name, {})
        return [
            entry
            for bad in self.aside.rejected(self.batch, declaration, rejected)
            for entry in self.aside.entries(self.batch, bad, refused=int(bad.sequence_number) in refused)
            if entry.image not in owned.get(entry.sequence_number, ())
        ]

    def _actions(self, entries: Sequence[Entry]) -> dict[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {entry.place: self.control.put(entry) for entry in entries}
        if entries and self.aside.lanes:
            # Whoever begins the shard's records later has to look for them.
            prefix = lane_prefix(self.batch.stream_arn, self.batch.shard_id)
            found["entries"] = counted(self.control.table, prefix, 1)
        return found
