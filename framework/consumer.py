"""Consumer: the pipeline for all handlers of one table, as a function of Lambda's events."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from framework.account import account
from framework.app import App
from framework.archive import ArchiveDeclaration
from framework.archive_fold import FoldedArchive, compile_archive
from framework.aside import Aside, Kept
from framework.client import CONNECTIONS
from framework.control import Control
from framework.declaration import Declaration
from framework.decode import SOURCE, Batch, Record, created, decode, event_ids, explain
from framework.deliver import Delivery
from framework.deliver_archive import ArchiveDelivery, Bucket, Filing
from framework.deliver_ledger import LedgerDelivery
from framework.deliver_sparse import SparseDelivery, Together
from framework.errors import ConfigurationError, DeliveryError, EventError, shortened
from framework.fold import Folded, compile_fold
from framework.lanes import lane_attribute, lane_partition
from framework.ledger import DELIVERIES, Posting, marker, postings
from framework.part import Fold, Part
from framework.plan import Update, plan
from framework.quarantine import lane_prefix
from framework.report import StreamProcessor
from framework.sparse import SparseDeclaration
from framework.sparse_fold import EntryUpdate, FoldedItems, compile_items
from framework.writer import NotDoneError, Outcome, Terms, Writer

__all__ = ["Consumer", "route"]

_log = logging.getLogger("streamfold")

# Without a context there is no deadline to keep; a run on one's own machine still ends.
_SECONDS_WITHOUT_CONTEXT = 300.0
# Time kept for the report, of what the invocation has left: at most 1.5 s, at most a fifth.
_RESERVE_SECONDS, _RESERVE_SHARE = 1.5, 0.2
_COMPILERS: dict[type, Callable[[Any], Callable[[], tuple[Part, Fold]]]] = {
    Declaration: compile_fold,
    SparseDeclaration: compile_items,
    ArchiveDeclaration: compile_archive,
}
# Less than the 48 hours after which a watermark may go (`lanes.py`).
_WATERMARKS_LAST = 46 * 3600.0


class Consumer:
    """All handlers of an app that read one table's stream.

    Args:
        app: The app.
        table: The source table's name.
        client: A boto3 DynamoDB client.
        control: Keeps what is set aside; without it that is only logged.
        bucket: Where archives are; needed where there are any.
        delivery: `"lanes"`, or `"ledger"` for batches that do not come shard by shard in order; it needs `control`,
            and no archive can be kept by it.
        redriving: Whether it brings what Lambda gave up on, after other records have followed. Each record is then
            settled under a marker of its own, and what a lane's watermark no longer tells is set aside as uncertain.
        connections: Writes under way at once.
        now: The time in epoch seconds.
        clock: A steady clock in seconds, for deadlines.
        sleep: Waits for some seconds.
        jitter: A number between two, at random.

    Raises:
        ConfigurationError: No handler of the app reads the table, there is no such delivery, or an archive lacks what
            it needs.
    """

    def __init__(
        self,
        app: App,
        table: str,
        client: Any,
        *,
        control: Control | None = None,
        bucket: Bucket | None = None,
        delivery: str = "lanes",
        redriving: bool = False,
        connections: int = CONNECTIONS,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        by_ledger = delivery == "ledger" or redriving
        if delivery not in DELIVERIES or (by_ledger and control is None):
            expected = "'lanes', or 'ledger' with a control table"
            raise ConfigurationError(f"consumer of {table!r}: delivery: expected {expected}, came {delivery!r}")
        declarations = app.sourced_from(table)
        self._table = table
        self._home = declarations[0].source.home
        self._said_away = False
        self._delivery = delivery
        self._redriving = redriving
        self._control = control
        self._now = now
        self._clock = clock
        self._starts = [_COMPILERS[type(each)](each) for each in declarations]
        self._aside = Aside(declarations, control, now, lanes=delivery == "lanes")
        options: dict[str, Any] = {
            "connections": connections,
            "now": now,
            "clock": clock,
            "sleep": sleep,
            "jitter": jitter,
        }
        writers: dict[type, Writer[Any]] = {
            Update: Delivery(client, **options),
            Posting: LedgerDelivery(client, **options),
            EntryUpdate: SparseDelivery(client, **options),
        }
        for archive in declarations:
            if isinstance(archive, ArchiveDeclaration):
                if control is None or bucket is None or delivery != "lanes":
                    expected = "delivery by lanes, a control table and a bucket for the archive"
                    came = f"delivery={delivery!r}, control={control!r}, bucket={bucket!r}"
                    raise ConfigurationError(f"{archive.name}: expected {expected}, came {came}")
                writers[Filing] = ArchiveDelivery(client, control.table, bucket, **options)
        self._writer = Together(client, writers, **options)

    def __call__(self, event: object, context: Any = None) -> dict[str, Any]:
        """Process one event; see `runtime.handler`."""
        deadline = self._clock() + _seconds_left(context)
        batch = decode(event, lanes=self._delivery == "lanes")
        if batch.records and batch.table != self._table:
            raise ConfigurationError(f"event: expected records of table {self._table!r}, came {batch.table!r}")
        if batch.records and self._home not in (None, batch.region):
            return self._away(batch)
        started = [start() for start in self._starts]
        folded = [f for f, _ in started]
        try:
            if self._control is not None and not self._redriving:
                self._control.check(self._table, self._delivery)
            turn, owned = self._aside.begin(batch)
        except DeliveryError as error:
            if not batch.records:
                raise
            return self._again(batch, folded, str(error))
        outcomes: list[Outcome] = []
        folds = self._aside.around(started, owned)
        keeper = self._aside.keeper(batch, turn, owned, deadline)
        processor = StreamProcessor(lambda: self._deliver(batch, folded, outcomes, keeper, deadline))
        try:
            with processor(batch.records, route(batch, folds)):
                processor.process()
        except (EventError, ConfigurationError) as error:
            explain(batch.records, error)  # only here is it known which of the records it is
        bad = [one for share in folded for one in share.bad]
        for outcome in outcomes:
            if outcome.rejected:
                bad += self._aside.rejected(batch, outcome.declaration, outcome.rejected)
        mostly_bad = len(self._aside.split(folded)[0])
        found = account(batch, folded, bad, outcomes, mostly_bad)
        return {**processor.response(), "state": {}, "streamfold": found}

    def _again(self, batch: Batch, folded: Sequence[Part], error: str) -> dict[str, Any]:
        """The answer where nothing could begin.

        It is reported and not raised: Lambda halves a batch that raises, and of halves nobody can tell that most of
        the batch is bad.
        """
        try:
            first = _first(batch)
        except (KeyError, TypeError, ValueError):
            explain(batch.records, DeliveryError(error))
        failed = Outcome(folded[0].declaration, failed_from=first, error=error)
        found = account(batch, folded, [], [failed])
        return {"batchItemFailures": [{"itemIdentifier": str(first)}], "state": {}, "streamfold": found}

    def _away(self, batch: Batch) -> dict[str, Any]:
        """The answer to a replica's records of a global table: its home Region has them as well, and counts them."""
        if not self._said_away:
            self._said_away = True
            _log.warning(
                "table %s: its records count in its home Region %s alone, so those of %s are acknowledged and left",
                self._table,
                self._home,
                batch.region,
            )
        found = {**account(batch, [], [], []), "away": len(batch.records)}
        return {"batchItemFailures": [], "state": {}, "streamfold": found}

    def _deliver(
        self, batch: Batch, folded: Sequence[Part], outcomes: list[Outcome], keeper: Kept | None, deadline: float
    ) -> int | None:
        """Deliver a batch; the sequence number from which on it has to come again, or None."""
        refused, sound = self._aside.split(folded)
        try:
            jobs = self._jobs(batch, sound, keeper)
        except NotDoneError as error:
            # What follows a record that could not be set aside must not pass it by.
            outcomes.append(Outcome(folded[0].declaration, failed_from=_first(batch), error=str(error)))
            return _first(batch)
        settled = self._settle(batch, jobs, Terms(deadline=deadline, keeper=keeper))
        # A handler that finds most of a batch bad has it again from the start, and the others go on.
        settled += [Outcome(share.declaration, failed_from=_first(batch), error=share.complaint) for share in refused]
        outcomes += settled
        return min((o.failed_from for o in settled if o.failed_from is not None), default=None)

    def _settle(self, batch: Batch, jobs: Sequence[Any], terms: Terms) -> list[Outcome]:
        if self._redriving:
            # In order and up to the first that is not done, since each moves the lane.
            old = bool(batch.records) and self._now() - (created(batch.records[0]) or 0) > _WATERMARKS_LAST
            through = _last(batch) if batch.records else 0
            terms = replace(terms, accept_misfits=True, through=through, forgotten=old)
            settled: list[Outcome] = []
            for job in jobs:
                if not any(o.declaration is job.declaration and o.failed_from is not None for o in settled[-1:]):
                    settled += self._writer.deliver([job], terms)
            return settled
        settled = self._writer.deliver(jobs, terms)
        misfits = [place for place, outcome in enumerate(settled) if outcome.misfit]
        if misfits:
            _refuse_a_bad_deployment(settled)
            terms = replace(terms, accept_misfits=True)
            again = self._writer.deliver([jobs[place] for place in misfits], terms)
            for place, outcome in zip(misfits, again, strict=True):
                settled[place] = outcome
        return settled

    def _jobs(self, batch: Batch, folded: Sequence[Part], keeper: Kept | None) -> list[Any]:
        """What is to be written. By lanes, and of sparse indexes, entries of bad records are written first.

        What is written of sparse indexes is the same by either protocol.
        """
        counting = [part for part in folded if isinstance(part, Folded)]
        indexing = [part for part in folded if isinstance(part, FoldedItems)]
        archiving = [part for part in folded if isinstance(part, FoldedArchive) and (part.lines or part.bad)]
        if self._redriving:
            for share in counting:
                share.drop_expired(self._now())
        counting = [share for share in counting if share.buckets or share.bad]
        if keeper is not None:
            if counting or archiving or any(part.bad or part.contributions for part in indexing):
                keeper.take_turn()
            for part in (*indexing, *archiving):
                keeper.write_bad(part)
        return [
            *self._counted(batch, counting, keeper),
            *(update for part in indexing for update in part.updates),
            *(_filing(batch, part) for part in archiving if part.lines),
        ]

    def _counted(self, batch: Batch, counting: Sequence[Folded], keeper: Kept | None) -> list[Any]:
        if self._control is None or keeper is None or (self._delivery == "lanes" and not self._redriving):
            if keeper is not None:
                for share in counting:
                    keeper.write_bad(share)
            return [update for share in counting if share.buckets for update in plan(share, *_lane(batch, share))]
        events = event_ids(batch.records) if counting else {}
        found: list[Posting] = []
        for share in counting:
            name = share.declaration.name
            guards = {number: marker(self._control.table, name, event, self._now()) for number, event in events.items()}
            lane, partition = _lane(batch, share)
            bad = keeper.actions_bad(share)
            apart = set(bad)
            if self._redriving:
                apart |= {int(sequence) for bucket in share.buckets.values() for sequence, _, _ in bucket}
            made = postings(share, guards, partition, apart=apart, lane=lane if self._delivery == "lanes" else "")
            found += [posting.with_others(bad.get(posting.first, {})) for posting in made]
        return found


def _filing(batch: Batch, share: FoldedArchive) -> Filing:
    # A batch in order is the rule, but not relied on.
    lines = sorted(share.lines, key=lambda line: line.number)
    return Filing(share.declaration, lane_prefix(batch.stream_arn, batch.shard_id), _first(batch), _last(batch), lines)


def _first(batch: Batch) -> int:
    return min(int(record["dynamodb"]["SequenceNumber"]) for record in batch.records)


def _last(batch: Batch) -> int:
    return max(int(record["dynamodb"]["SequenceNumber"]) for record in batch.records)


def _lane(batch: Batch, share: Folded) -> tuple[str, int]:
    """A batch's lane attribute, and the partition that it feeds."""
    lane = lane_attribute(share.declaration.name, batch.stream_arn, batch.shard_id or batch.records[0]["eventID"])
    return lane, lane_partition(lane, share.declaration.partitions)


def _seconds_left(context: Any) -> float:
    left = _SECONDS_WITHOUT_CONTEXT if context is None else context.get_remaining_time_in_millis() / 1000
    return left - min(_RESERVE_SECONDS, left * _RESERVE_SHARE)


def _refuse_a_bad_deployment(outcomes: list[Outcome]) -> None:
    """Fail the batch where DynamoDB rejects all of it for what no record is to blame for, such as a wrong table."""
    for counts in (True, False):  # that the one kind's writes are taken says nothing about the other's
        ours = [outcome for outcome in outcomes if outcome.declaration.counts is counts]
        # Without the key that it is about: Lambda logs what is raised.
        reasons = [outcome.error.partition(": {")[0] for outcome in ours if outcome.misfit]
        if reasons and not any(outcome.absorbed or outcome.duplicates for outcome in ours):
            expected = "expected DynamoDB to take some of the writes"
            raise DeliveryError(f"batch: {expected}, came a rejection of all: {reasons[0]}")


def route(batch: Batch, folds: list[Fold]) -> Fold:
    """Give each record to all folds, if it is of the batch's stream."""
    stream, source = batch.stream_arn, SOURCE
    first, *rest = folds

    def route_one(record: Record) -> None:
        try:
            if record["eventSourceARN"] != stream or record["eventSource"] != source:
                came = shortened(f"{record['eventSource']} {record['eventSourceARN']}")
                raise EventError(f"event: expected records of one DynamoDB stream, came one of {came} among {stream}")
        except (KeyError, TypeError):
            explain([record])
        first(record)
        for fold in rest:
            fold(record)

    return route_one
