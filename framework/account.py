"""Account: what became of a batch, as data of JSON, for the response, the log and the metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from framework.decode import Batch
from framework.deliver import Outcome
from framework.fold import BadRecord

__all__ = ["account"]

# A response may have 6 MB (Lambda quotas), so the records set aside are listed up to a number, and all are counted.
_MOST_LISTED = 1000


def account(batch: Batch, contributions: int, bad: Sequence[BadRecord], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What became of a batch.

    Args:
        batch: The batch.
        contributions: How many contributions to aggregates were folded.
        bad: The records that could not be counted.
        outcomes: What became of each write.
    """
    failed = [outcome for outcome in outcomes if outcome.failed_from is not None]
    records = batch.records
    return {
        "shard": batch.shard_id,
        "first": records[0]["dynamodb"]["SequenceNumber"] if records else None,
        "last": records[-1]["dynamodb"]["SequenceNumber"] if records else None,
        "created": records[-1]["dynamodb"].get("ApproximateCreationDateTime") if records else None,
        "records": len(records),
        "contributions": contributions,
        "updates": len(outcomes),
        "requests": sum(outcome.requests for outcome in outcomes),
        "conflicts": sum(outcome.conflicts for outcome in outcomes),
        "duplicates": sum(outcome.duplicates for outcome in outcomes),
        "refusedTakeBacks": sum(outcome.refused_take_backs for outcome in outcomes),
        "failed": len(failed),
        "error": min(failed, key=lambda outcome: outcome.failed_from or 0).error if failed else "",
        "badRecords": len(bad),
        "bad": [
            {"handler": r.handler, "key": r.key, "sequenceNumber": r.sequence_number, "reason": r.reason}
            for r in bad[:_MOST_LISTED]
        ],
    }
