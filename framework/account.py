"""Account: what became of a batch, as data of JSON, for the response, the log and the metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from framework.decode import Batch, Record
from framework.part import BadRecord, Part
from framework.writer import Outcome

__all__ = ["account"]

# A response may have 6 MB (Lambda quotas), so the records set aside are listed up to a number, and all are counted.
_MOST_LISTED = 1000


def account(
    batch: Batch, folded: Sequence[Part], bad: Sequence[BadRecord], outcomes: Sequence[Outcome], mostly_bad: int = 0
) -> dict[str, Any]:
    """What became of a batch.

    Args:
        batch: The batch.
        folded: What it folded to.
        bad: The records that could not be counted.
        outcomes: What became of each write.
        mostly_bad: How many handlers found most of it bad, so that it comes again for them.
    """
    failed = [outcome for outcome in outcomes if outcome.failed_from is not None]
    records = batch.records
    return {
        "shard": batch.shard_id,
        "first": _said(records[:1], "SequenceNumber"),
        "last": _said(records[-1:], "SequenceNumber"),
        "created": _said(records[-1:], "ApproximateCreationDateTime"),
        "records": len(records),
        "away": 0,
        "contributions": sum(part.contributions for part in folded),
        "updates": len(outcomes),
        "requests": sum(outcome.requests for outcome in outcomes),
        "conflicts": sum(outcome.conflicts for outcome in outcomes),
        "duplicates": sum(outcome.duplicates for outcome in outcomes),
        "refusedTakeBacks": sum(outcome.refused_take_backs for outcome in outcomes),
        "lateRecords": sum(part.late for part in folded),
        "mostlyBad": mostly_bad,
        "failed": len(failed),
        "error": min(failed, key=lambda outcome: outcome.failed_from or 0).error if failed else "",
        "badRecords": len(bad),
        "bad": [
            {"handler": r.handler, "key": r.key, "sequenceNumber": r.sequence_number, "reason": r.reason}
            for r in bad[:_MOST_LISTED]
        ],
    }


def _said(records: Sequence[Record], field: str) -> Any:
    """What a record says; None if there is none, or one that no handler had to look at is malformed."""
    try:
        return records[0]["dynamodb"][field]
    except (IndexError, KeyError, TypeError):
        return None
