"""Deliver by the ledger: carry out postings, each in one transaction (`ledger.py`)."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from botocore.exceptions import ClientError

from framework.codec import Image
from framework.deliver import NotDoneError, Outcome, Terms, Writer, foreign, is_misfit
from framework.errors import BadValueError
from framework.lanes import owner
from framework.ledger import Posting, actions, marker_key, update_action
from framework.plan import drop_take_backs

__all__ = ["LedgerDelivery"]

# Reasons of a cancelled transaction (DynamoDB API reference, TransactWriteItems).
_REFUSED = "ValidationError"
_FAILED = "ConditionalCheckFailed"


class LedgerDelivery(Writer[Posting]):
    """Carries out postings.

    Args:
        client: As for `Writer`.
        control: The control table's name.
        options: As for `Writer`.
    """

    def __init__(self, client: Any, control: str, **options: Any) -> None:
        super().__init__(client, **options)
        self._control = control

    def _apply(self, job: Posting, outcome: Outcome, terms: Terms) -> None:
        left: Posting | None = job
        known: dict[tuple[str, str], Image] = {}
        tries = 0
        while left is not None:
            outcome.failed_from = left.first
            try:
                transaction = actions(left, self._control, self._now(), known)
                self._call(outcome, terms, "transact_write_items", {"TransactItems": transaction})
            except BadValueError:
                return self._isolate(left, _unwritable(left, known), outcome, terms)
            except ClientError as error:
                if error.response["Error"]["Code"] == "TransactionCanceledException":
                    reasons = _Reasons(error.response, left)
                    if reasons.marked:  # first of all: what is counted is nobody's business any more
                        left = _drop(left, reasons.marked, outcome)
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
                else:  # markers alone: no record is to blame
                    raise NotDoneError(str(error)) from error
            else:
                outcome.absorbed += sum(len(update.contributions) for update in left.updates)
                left = None
        outcome.failed_from = None

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
            elif item:
                known[update.group, update.label] = item  # an extreme stands otherwise than was guessed
            elif self._exists_elsewhere(update, outcome, terms):
                left = left.with_update(place, replace(update, exists=True))
            else:
                kept = drop_take_backs(update)
                outcome.refused_take_backs += len(update.contributions) - (len(kept.contributions) if kept else 0)
                left = left.with_update(place, kept)
        return left

    def _isolate(self, posting: Posting, refused: dict[int, str], outcome: Outcome, terms: Terms) -> None:
        """Settle the halves of a refused posting in turn, down to the contribution that DynamoDB will never take.

        Args:
            posting: The posting.
            refused: Why, by the place of the update.
            outcome: What becomes of it.
            terms: How the batch is delivered.
        """
        if len(posting.events) > 1:
            for half in posting.halves():
                self._apply(half, outcome, terms)
            return
        if self._is_marked(posting, outcome, terms):  # not every refusal looked at the marker
            _drop(posting, frozenset(posting.events), outcome)
            outcome.failed_from = None
            return
        left = posting
        for place, reason in reversed(refused.items()):
            self._reject(posting.updates[place], reason, outcome, terms, misfit=is_misfit(reason))
            left = left.with_update(place, None)
        self._apply(left, outcome, terms)  # the rest of the record, and its marker

    def _is_marked(self, posting: Posting, outcome: Outcome, terms: Terms) -> bool:
        (event,) = posting.events.values()
        arguments = {
            "TableName": self._control,
            "Key": marker_key(posting.declaration.name, event),
            "ConsistentRead": True,
        }
        return "Item" in self._call(outcome, terms, "get_item", arguments)


class _Reasons:
    """Why a transaction was cancelled.

    Attributes:
        marked: Sequence numbers of the records whose marker is there.
        failed: The item in the way, or None if there is none, by the place of each update whose condition failed.
        refused: Why DynamoDB will never take it, by the place of each such update.
        conflict: Whether another write was in the way.
    """

    def __init__(self, response: Any, posting: Posting) -> None:
        reasons = response.get("CancellationReasons") or []
        codes = [reason.get("Code") for reason in reasons]
        count = len(posting.events)
        self.marked = {s for s, code in zip(posting.events, codes, strict=False) if code == _FAILED}
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


def _drop(posting: Posting, marked: AbstractSet[int], outcome: Outcome) -> Posting | None:
    """What is left of a posting without the records whose marker is there."""
    outcome.duplicates += sum(c[0] in marked for update in posting.updates for c in update.contributions)
    return posting.without(marked)


def _unwritable(posting: Posting, known: dict[tuple[str, str], Image]) -> dict[int, str]:
    """Why updates cannot even be asked for, such as a total beyond 38 digits, by their place."""
    found = {}
    for place, update in enumerate(posting.updates):
        try:
            update_action(update, known.get((update.group, update.label)))
        except BadValueError as error:
            found[place] = str(error)
    return found
