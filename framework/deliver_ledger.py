"""Deliver by the ledger: carry out postings, each in one transaction (`ledger.py`)."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from botocore.exceptions import ClientError

from framework.codec import Image
from framework.deliver import NotDoneError, Outcome, Terms, Writer, foreign, is_misfit
from framework.errors import BadValueError
from framework.lanes import is_redriven, owner, position
from framework.ledger import Posting, actions, update_action
from framework.plan import Update, drop_absorbed

__all__ = ["LedgerDelivery"]

# Reasons of a cancelled transaction (DynamoDB API reference, TransactWriteItems).
_REFUSED = "ValidationError"
_UNCERTAIN = "whether it was counted: expected a watermark that tells, came one that has moved on"
_FAILED = "ConditionalCheckFailed"


class LedgerDelivery(Writer[Posting]):
    """Carries out postings."""

    def _apply(self, job: Posting, outcome: Outcome, terms: Terms) -> None:
        left: Posting | None = self._without_forgotten(job, outcome, terms) if terms.forgotten else job
        known = {(each.group, each.label): item for each in job.updates if (item := self._known.get(each))}
        tries = 0
        while left is not None:
            outcome.failed_from = left.first
            try:
                transaction = actions(left, self._now(), known)
                self._call(outcome, terms, "transact_write_items", {"TransactItems": transaction})
            except BadValueError:
                return self._isolate(left, _unwritable(left, self._now(), known), outcome, terms)
            except ClientError as error:
                if error.response["Error"]["Code"] == "TransactionCanceledException":
                    reasons = _Reasons(error.response, left)
                    if reasons.settled:  # first of all: what is counted is nobody's business any more
                        left = _drop(left, reasons.settled, outcome)
                    elif reasons.refused:
                        return self._isolate(left, reasons.refused, outcome, terms)
                    elif reasons.failed:
                        left = self._reconsider(left, reasons.failed, known, outcome, terms)
                    else:
                        tries += 1
                        outcome.conflicts += reasons.conflict
                        self._pause(tries, terms, str(error))
                elif left.updates:
                    reason = error.response["Error"].get("Message", str(error))
                    return self._isolate(left, dict.fromkeys(range(len(left.updates)), reason), outcome, terms)
                else:  # guards alone: no record is to blame
                    raise NotDoneError(str(error)) from error
            else:
                outcome.absorbed += sum(len(update.contributions) for update in left.updates)
                left = None
        outcome.failed_from = None

    def _without_forgotten(self, posting: Posting, outcome: Outcome, terms: Terms) -> Posting:
        """A posting without the updates whose watermark may have been dropped, so that its absence tells nothing."""
        left = posting
        for place, update in reversed([*enumerate(posting.updates)]):
            outcome.failed_from = update.first
            arguments = {"TableName": update.declaration.target.name, "Key": update.key, "ConsistentRead": True}
            item = self._call(outcome, terms, "get_item", arguments).get("Item")
            if update.lane and item and update.lane not in item:
                self._set_aside(update, _UNCERTAIN, outcome, terms, uncertain=True)
                left = left.with_update(place, None)
        return left

    def _reconsider(
        self,
        posting: Posting,
        failed: dict[int, Image | None],
        known: dict[tuple[str, str], Image],
        outcome: Outcome,
        terms: Terms,
    ) -> Posting:
        """What is left of a cancelled posting, once the conditions that failed are looked at."""
        left = posting
        for place, item in reversed(failed.items()):  # from the end, so that places hold
            update = posting.updates[place]
            if item and owner(item) != update.declaration.name:
                self._reject(update, foreign(update, item), outcome, terms, misfit=owner(item) is not None)
                left = left.with_update(place, None)
            elif item and update.lane and _stands(item, update) >= update.first:
                left = left.with_update(place, self._behind(update, item, outcome, terms))
            elif item:
                known[update.group, update.label] = item  # a total or an extreme stands otherwise than was guessed
                self._known.keep(update, item)
            elif known.pop((update.group, update.label), None):
                self._known.keep(update, None)  # it is gone, and what is left is tried again as if never seen
            elif self._exists_elsewhere(update, outcome, terms):
                left = left.with_update(place, replace(update, exists=True))
            else:
                left = left.with_update(place, self._refuse_take_backs(update, outcome, terms))
        return left

    def _behind(self, update: Update, item: Image, outcome: Outcome, terms: Terms) -> Update | None:
        """What is left of an update whose lane has moved on, above its watermark.

        As long as the lane's watermark lies in the run that is brought again, it tells what of the run was absorbed.
        Beyond its end it tells nothing: what follows the run has moved it, whether or not the run was absorbed. Nor
        does one that another redrive has moved.
        """
        left = drop_absorbed(update, item)
        absorbed = replace(update, contributions=update.contributions[: -len(left.contributions) if left else None])
        if _stands(item, update) <= terms.through and not is_redriven(item[update.lane]):
            outcome.duplicates += len(absorbed.contributions)
        else:
            self._set_aside(absorbed, _UNCERTAIN, outcome, terms, uncertain=True)
        return left

    def _isolate(self, posting: Posting, refused: dict[int, str], outcome: Outcome, terms: Terms) -> None:
        """Settle the halves of a refused posting in turn, down to the contribution that DynamoDB will never take.

        Args:
            posting: The posting.
            refused: Why, by the place of the update.
            outcome: What becomes of it.
            terms: How the batch is delivered.
        """
        if len(posting.guards) > 1:
            for half in posting.halves():
                self._apply(half, outcome, terms)
            return
        if self._is_settled(posting, outcome, terms):  # not every refusal looked at the guard
            _drop(posting, frozenset(posting.guards), outcome)
            outcome.failed_from = None
            return
        left = posting
        for place, reason in reversed(refused.items()):
            self._reject(posting.updates[place], reason, outcome, terms, misfit=is_misfit(reason))
            left = left.with_update(place, None)
        self._apply(left, outcome, terms)  # the rest of the record, and its guard

    def _is_settled(self, posting: Posting, outcome: Outcome, terms: Terms) -> bool:
        (guard,) = posting.guards.values()
        arguments = {"TableName": guard.table, "Key": guard.key, "ConsistentRead": True}
        return guard.settled(self._call(outcome, terms, "get_item", arguments).get("Item"))


class _Reasons:
    """Why a transaction was cancelled.

    Attributes:
        settled: Sequence numbers of the records whose guard says so.
        failed: The item in the way, or None if there is none, by the place of each update whose condition failed.
        refused: Why DynamoDB will never take it, by the place of each such update.
        conflict: Whether another write was in the way.
    """

    def __init__(self, response: Any, posting: Posting) -> None:
        reasons = response.get("CancellationReasons") or []
        codes = [reason.get("Code") for reason in reasons]
        count = len(posting.guards)
        self.settled = {s for s, code in zip(posting.guards, codes, strict=False) if code == _FAILED}
        updates = dict(enumerate(reasons[count:]))
        self.failed: dict[int, Image | None] = {
            place: reason.get("Item") for place, reason in updates.items() if reason.get("Code") == _FAILED
        }
        self.refused: dict[int, str] = {
            place: reason.get("Message", reason["Code"])
            for place, reason in updates.items()
            if reason.get("Code") == _REFUSED
        }
        # It and every reason else, such as a throttle, is one that another try may not meet again.
        self.conflict = "TransactionConflict" in codes


def _stands(item: Image, update: Update) -> int:
    """Where a lane stands in an item; 0 where it has not been."""
    return position(item[update.lane]) if update.lane in item else 0


def _drop(posting: Posting, settled: AbstractSet[int], outcome: Outcome) -> Posting | None:
    """What is left of a posting without the records that are settled."""
    outcome.duplicates += sum(c[0] in settled for update in posting.updates for c in update.contributions)
    return posting.without(settled)


def _unwritable(posting: Posting, now: float, known: dict[tuple[str, str], Image]) -> dict[int, str]:
    """Why updates cannot even be asked for, such as a total beyond 38 digits, by their place."""
    found = {}
    for place, update in enumerate(posting.updates):
        try:
            update_action(update, now, known.get((update.group, update.label)))
        except BadValueError as error:
            found[place] = str(error)
    return found
