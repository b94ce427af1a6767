"""Deliver the entries of sparse indexes: each by one conditional write (`sparse_fold.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from botocore.exceptions import ClientError

from framework.sparse_fold import EntryUpdate, entry_request
from framework.writer import Job, Outcome, Rejection, Terms, Writer, is_misfit, refuse_misfit

__all__ = ["SparseDelivery", "Together"]


class SparseDelivery(Writer[EntryUpdate]):
    """Carries out updates of entries, in whichever order."""

    def _apply(self, job: EntryUpdate, outcome: Outcome, terms: Terms) -> None:
        outcome.failed_from = job.first
        reason = self._write(job, outcome, terms)
        if reason is not None:
            self._refuse(job, reason, outcome, terms)
        outcome.failed_from = None

    def _write(self, job: EntryUpdate, outcome: Outcome, terms: Terms) -> str | None:
        """Write it; why DynamoDB will never take it, if it will not."""
        try:
            self._call(outcome, terms, "update_item", entry_request(job))
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                return str(error.response["Error"].get("Message", error))
            # The item has changed since, of which it has another record, or is gone.
            outcome.duplicates += 1
        else:
            outcome.absorbed += 1
        return None

    def _refuse(self, job: EntryUpdate, reason: str, outcome: Outcome, terms: Terms) -> None:
        """Set aside what DynamoDB will never take, such as an entry that makes an item too large.

        The item keeps no former entry, which is not its own any more.
        """
        refuse_misfit(reason, outcome, terms, misfit=is_misfit(reason))
        if job.entry is not None:
            self._write(replace(job, entry=None), Outcome(job.declaration), terms)
        rejected = [Rejection(job.first, ("", ""), reason)]
        if terms.keeper is not None:
            terms.keeper.write(job.declaration, rejected)
        outcome.rejected += rejected


class Together(Writer[Any]):
    """Settles the writes of handlers of both kinds in one pool, each as its kind's writer does.

    Args:
        client: As for `Writer`.
        writers: The writer of each type of job.
        options: As for `Writer`.
    """

    def __init__(self, client: Any, writers: Mapping[type, Writer[Any]], **options: Any) -> None:
        super().__init__(client, **options)
        self._writers = writers

    def _in_order(self, jobs: Sequence[Job], result: Callable[[int], Outcome], place: int, terms: Terms) -> Terms:
        return self._writers[type(jobs[place])]._in_order(jobs, result, place, terms)

    def _apply(self, job: Job, outcome: Outcome, terms: Terms) -> None:
        self._writers[type(job)]._apply(job, outcome, terms)
