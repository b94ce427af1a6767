"""Set aside: what cannot be counted becomes entries of the quarantine, and what is there is left out of the count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any

from framework.control import Control, EntryJob
from framework.declaration import Declaration
from framework.decode import Batch, by_number, event_ids, explain, is_sequence_number, key_text
from framework.deliver import Outcome, Rejection, Terms
from framework.errors import BadRecordError, BadValueError
from framework.fold import IMAGES, Folded, compile_half, fold_around
from framework.ledger import marker
from framework.part import BadRecord, Fold, Part
from framework.quarantine import Entry, item_text, lane_prefix
from framework.sparse import Handler

__all__ = ["Aside"]


class Aside:
    """What a consumer sets aside.

    Args:
        declarations: What the consumer's handlers declare.
        control: Keeps it; None if nobody does.
        now: The time in epoch seconds.
        by_ledger: Whether a record that has counted has a marker.
    """

    def __init__(
        self,
        declarations: Iterable[Handler],
        control: Control | None,
        now: Callable[[], float],
        *,
        by_ledger: bool = False,
    ) -> None:
        self._declarations = {declaration.name: declaration for declaration in declarations}
        # Compiled where something is set aside, which is seldom.
        counting = {d.name: d for d in self._declarations.values() if isinstance(d, Declaration)}
        self._half = cache(lambda name: compile_half(counting[name]))
        self._control = control
        self._now = now
        self._by_ledger = by_ledger

    def around(self, batch: Batch, started: Sequence[tuple[Part, Fold]]) -> list[Fold]:
        """The folds of a batch, which leave out what is in quarantine, settled or not.

        But for those of sparse indexes: what is written twice is no harm there.
        """
        if self._control is None or not batch.records:
            return [fold for _, fold in started]
        try:
            # A batch in order is the rule, but not relied on.
            numbers = sorted([record["dynamodb"]["SequenceNumber"] for record in batch.records], key=int)
        except (KeyError, TypeError, ValueError, OverflowError):
            explain(batch.records)
        first, last = numbers[0], numbers[-1]
        if not is_sequence_number(first) or not is_sequence_number(last):
            explain(batch.records)
        owned = self._control.owned(lane_prefix(batch.stream_arn, batch.shard_id), int(first), int(last))
        return [
            fold_around(folded, fold, self._half(folded.declaration.name), found)
            if isinstance(folded, Folded) and (found := owned.get(folded.declaration.name))
            else fold
            for folded, fold in started
        ]

    def split(self, folded: Iterable[Part]) -> tuple[list[Part], list[Part]]:
        """The shares that are not to be set aside, since most of each is bad, and the rest."""
        shares = list(folded)
        refused = [share for share in shares if self._control is not None and share.mostly_bad]
        return refused, [share for share in shares if share not in refused]

    def keep(self, batch: Batch, folded: Iterable[Part], deadline: float) -> list[Outcome]:
        """Write entries for the records that a fold found bad."""
        if self._control is None:
            return []
        jobs = [job for share in folded for bad in share.bad for job in self._jobs(batch, bad)]
        return self._control.deliver(jobs, Terms(deadline=deadline))

    def keeper(self, batch: Batch, deadline: float) -> Callable[[Handler, Sequence[Rejection]], None] | None:
        """Writes entries for what DynamoDB rejects, at once: `Terms.set_aside`."""
        control = self._control
        if control is None:
            return None
        terms = Terms(deadline=deadline)

        def keep(declaration: Handler, rejected: Sequence[Rejection]) -> None:
            bad = self.rejected(batch, declaration, rejected)
            control.keep([job for one in bad for job in self._jobs(batch, one)], terms)

        return keep

    def awaiter(self, batch: Batch) -> Callable[[Handler, Sequence[int]], AbstractSet[int]] | None:
        """Tells of which records' items an addition is open in quarantine: `Terms.awaited`."""
        control = self._control
        if control is None:
            return None
        keys = cache(control.awaited)  # asked once a batch, and seldom at all

        def awaited(declaration: Handler, sequences: Sequence[int]) -> AbstractSet[int]:
            records, open_keys = by_number(batch.records), keys(declaration.name)
            return {sequence for sequence in sequences if open_keys and item_text(records[sequence]) in open_keys}

        return awaited

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
            for sequence, bucket, reason, uncertain in rejected
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

    def _jobs(self, batch: Batch, bad: BadRecord) -> list[EntryJob]:
        guard = None
        if self._by_ledger and self._control is not None and self._declarations[bad.handler].counts:
            (event,) = event_ids([bad.record]).values()
            guard = marker(self._control.table, bad.handler, event, self._now())
        return [
            EntryJob(
                self._declarations[bad.handler],
                Entry(
                    handler=bad.handler,
                    image=image,
                    stream_arn=batch.stream_arn,
                    shard_id=batch.shard_id,
                    sequence_number=int(bad.sequence_number),
                    record=bad.record,
                    reason=bad.reason,
                    at=int(self._now()),
                    uncertain=bad.uncertain,
                ),
                guard,
            )
            for image in bad.images
        ]
