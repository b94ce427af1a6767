"""The function that Lambda runs: one consumer for all handlers of a table.

The whole pipeline, once:

    event -> decode -> route -> fold (pure) -> plan (values) -> deliver (effects) -> report

1. *decode* (`decode.py`): Lambda's event to the batch of one lane; refuses anything else before a write.
2. *route*: each aggregation that reads the table gets every record (`Consumer`).
3. *fold* (`fold.py`): what each change adds to which aggregate; records that cannot be counted are set aside.
4. *plan* (`plan.py`): one update for each aggregate, with the protocol's condition (`lanes.py`).
5. *deliver* (`deliver.py`): the writes, in parallel, inside the invocation's time.
6. *report* (`report.py`): the lowest sequence number that is not done.

Exactly once rests on three facts: a shard's records come as contiguous runs that begin no later than the first one
not reported done; an aggregate and its watermark move in one conditional write; and no record is skipped: it is
done, set aside with its reason, or the batch comes again from it.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable
from typing import Any
from zlib import crc32

from framework import startup
from framework.app import App, load_app
from framework.client import CONNECTIONS, dynamodb
from framework.decode import SOURCE, Batch, Record, by_number, decode, explain, key_text
from framework.deliver import Delivery, Outcome
from framework.errors import ConfigurationError, DeliveryError, EventError, shortened
from framework.fold import BadRecord, Fold, Folded, compile_fold
from framework.lanes import lane_attribute
from framework.metrics import emit
from framework.plan import Update, plan
from framework.report import StreamProcessor

__all__ = ["Consumer", "handler", "route"]

_log = logging.getLogger("streamfold")

# Without a context there is no deadline to keep; a run on one's own machine still ends.
_SECONDS_WITHOUT_CONTEXT = 300.0
# Time kept for the report, of what the invocation has left: at most 1.5 s, at most a fifth.
_RESERVE_SECONDS, _RESERVE_SHARE = 1.5, 0.2
# A response may have 6 MB (Lambda quotas), so the records set aside are listed up to a number, and all are counted.
_MOST_LISTED = 1000
_MOST_LOGGED = 20


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Lambda's entry.

    `STREAMFOLD_APP` names the app (`handlers.app:app`), `STREAMFOLD_TABLE` the source table, and `STREAMFOLD_NAMES`,
    where tables have other names in the account than in the declarations, those names (see `load_app`).

    Args:
        event: A batch of a DynamoDB stream, from a mapping with a tumbling window.
        context: Lambda's context, for the time that is left.

    Returns:
        Lambda's response: `batchItemFailures` with the lowest sequence number that is not done, or empty; `state`,
        always empty; and under `streamfold` what happened.

    Raises:
        EventError: The event is not one of a DynamoDB stream.
        ConfigurationError: The environment or the mapping does not fit the app.
    """
    response = _consumer()(event, context)
    emit(response["streamfold"], getattr(context, "function_name", "local"))
    return response


@functools.cache
def _consumer() -> Consumer:
    found = {name: os.environ.get(name) for name in ("STREAMFOLD_APP", "STREAMFOLD_TABLE")}
    for name, value in found.items():
        if not value:
            raise ConfigurationError(f"environment: expected {name}, came {value!r}")
    return Consumer(load_app(str(found["STREAMFOLD_APP"])), str(found["STREAMFOLD_TABLE"]), dynamodb())


class Consumer:
    """All aggregations of an app that read one table's stream, as a function of Lambda's events.

    Args:
        app: The app.
        table: The source table's name.
        client: A boto3 DynamoDB client.
        connections: Writes under way at once.
        now: The time in epoch seconds.

    Raises:
        ConfigurationError: No aggregation of the app reads the table.
    """

    def __init__(
        self,
        app: App,
        table: str,
        client: Any,
        *,
        connections: int = CONNECTIONS,
        now: Callable[[], float] = time.time,
    ) -> None:
        declarations = app.sourced_from(table)
        self._table = table
        self._home = declarations[0].source.home
        self._said_away = False
        self._starts = [compile_fold(declaration) for declaration in declarations]
        self._delivery = Delivery(client, connections=connections, now=now)

    def __call__(self, event: object, context: Any = None) -> dict[str, Any]:
        """Process one event; see `handler`."""
        deadline = _deadline(context)
        batch = decode(event)
        if batch.records and batch.table != self._table:
            raise ConfigurationError(f"event: expected records of table {self._table!r}, came {batch.table!r}")
        if batch.records and self._home not in (None, batch.region):
            return self._away(batch)
        started = [start() for start in self._starts]
        folded = [f for f, _ in started]
        outcomes: list[Outcome] = []

        def close() -> int | None:
            outcomes.extend(self._delivery.deliver(_plan(folded, batch), deadline))
            _refuse_a_bad_deployment(outcomes)
            failed = [o.failed_from for o in outcomes if o.failed_from is not None]
            return min(failed, default=None)

        processor = StreamProcessor(close)
        try:
            with processor(batch.records, route(batch, [fold for _, fold in started])):
                processor.process()
        except (EventError, ConfigurationError) as error:
            explain(batch.records, error)  # only here is it known which of the records it is
        return {**processor.response(), "state": {}, "streamfold": _account(batch, folded, outcomes)}

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
        account = {**_account(batch, [], []), "away": len(batch.records)}
        return {"batchItemFailures": [], "state": {}, "streamfold": account}


def _deadline(context: Any) -> float:
    left = _SECONDS_WITHOUT_CONTEXT if context is None else context.get_remaining_time_in_millis() / 1000
    return time.monotonic() + left - min(_RESERVE_SECONDS, left * _RESERVE_SHARE)


def _refuse_a_bad_deployment(outcomes: list[Outcome]) -> None:
    """Fail the batch where DynamoDB rejects all of it for what no record is to blame for, such as a wrong table."""
    rejected = [reason for outcome in outcomes if outcome.misfit for _, reason in outcome.rejected]
    if rejected and not any(outcome.absorbed or outcome.duplicates for outcome in outcomes):
        raise DeliveryError(
            f"batch: expected DynamoDB to take some of the writes, came a rejection of all: {rejected[0]}"
        )


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


def _plan(folded: list[Folded], batch: Batch) -> list[Update]:
    updates: list[Update] = []
    for share in folded:
        lane = lane_attribute(share.declaration.name, batch.stream_arn, batch.shard_id)
        # By lane, so that each of a busy aggregate's items collects only its part of the lanes.
        partition = crc32(lane.encode()) % share.declaration.partitions
        updates.extend(plan(share, lane, partition))
    return updates


def _account(batch: Batch, folded: list[Folded], outcomes: list[Outcome]) -> dict[str, Any]:
    """What happened, logged and for the response."""
    bad = [record for share in folded for record in share.bad]
    if any(outcome.rejected for outcome in outcomes):
        bad.extend(_rejected(batch, outcomes))
    for record in bad[:_MOST_LOGGED]:
        _log.warning("bad record: %s: %s: %s: %s", record.handler, record.key, record.sequence_number, record.reason)
    if len(bad) > _MOST_LOGGED:
        _log.warning("bad records: %d more in this batch", len(bad) - _MOST_LOGGED)
    failed = [outcome for outcome in outcomes if outcome.failed_from is not None]
    error = min(failed, key=lambda outcome: outcome.failed_from or 0).error if failed else ""
    if failed:
        _log.error("%d of %d updates not done: %s", len(failed), len(outcomes), error)
    refused = sum(outcome.refused_take_backs for outcome in outcomes)
    if refused:
        _log.warning("take-backs without an aggregate to take from: %d in this batch", refused)
    late = sum(share.late for share in folded)
    if late:
        _log.warning("late records, after their aggregate's retention: %d in this batch", late)
    return {
        "records": len(batch.records),
        "away": 0,
        "updates": len(outcomes),
        "requests": sum(outcome.requests for outcome in outcomes),
        "duplicates": sum(outcome.duplicates for outcome in outcomes),
        "refusedTakeBacks": refused,
        "lateRecords": late,
        "error": error,
        "badRecords": len(bad),
        "bad": [
            {"handler": r.handler, "key": r.key, "sequenceNumber": r.sequence_number, "reason": r.reason}
            for r in bad[:_MOST_LISTED]
        ],
    }


def _rejected(batch: Batch, outcomes: list[Outcome]) -> list[BadRecord]:
    records = by_number(batch.records)
    return [
        BadRecord(
            outcome.update.declaration.name,
            key_text(records[sequence]),
            records[sequence]["dynamodb"]["SequenceNumber"],
            reason,
        )
        for outcome in outcomes
        for sequence, reason in outcome.rejected
    ]


if os.environ.get("AWS_LAMBDA_FUNCTION_NAME"):
    # Lambda loads a function with a whole processor, whatever its memory: the client is made then, not at the first
    # event.
    _consumer()
startup.loaded()
