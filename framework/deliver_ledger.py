"""Deliver by the ledger: carry out postings, each in one transaction (`ledger.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from typing import Any

from botocore.exceptions import ClientError

from framework.codec import Image
from framework.deliver import NOT_THERE, foreign
from framework.errors import BadValueError
from framework.lanes import hour_of, is_redriven, owner, position
from framework.ledger import Posting, actions, update_action
from framework.plan import Update, absence, fence
from framework.writer import NotDoneError, Outcome, Terms, Writer, is_misfit, refuse_misfit, rejections

__all__ = ["LedgerDelivery"]

# Reasons of a cancelled transaction (DynamoDB API reference, TransactWriteItems).
_REFUSED = "ValidationError"
_UNCERTAIN = "whether it was counted: expected a watermark that tells, came one that has moved on"
_FAILED = "ConditionalCheckFailed"
_MOST_STARTS = 5


class LedgerDelivery(Writer[Posting]):
    """Carries out postings.

    What cannot be counted becomes entries in the transaction that settles its record, which is then alone in it.
    """

    def _in_order(self, jobs: Sequence[Posting], result: Callable[[int], Outcome], place: int, terms: Terms) -> Terms:
        ours = jobs[place].declaration

        def earlier() -> bool:
            return all(result(n).failed_from is None for n in range(place) if jobs[n].declaration is ours)

        return replace(terms, earlier=earlier)

    def _apply(self, job: Posting, outcome: Outcome, terms: Terms) -> None:
        start = self._without_forgotten(job, outcome, terms) if terms.forgotten else job
        left: Posting | None = start
        known = {(each.group, each.label): item for each in job.updates if (item := self._last_seen.get(each))}
        tries, starts, rejected, refused = 0, 0, len(outcome.rejected), outcome.refused_take_backs
        while left is not None:
            outcome.failed_from = left.first
            try:
                transaction = actions(left, self._now(), known)
                self._call(outcome, terms, "transact_write_items", {"TransactItems": transaction})
            except BadValueError:
                left = self._isolate(left, _unwritable(left, self._now(), known), outcome, terms)
            except ClientError as error:
                if error.response["Error"]["Code"] == "TransactionCanceledException":
                    reasons = _Reasons(error.response, left)
                    if reasons.settled:  # first of all: what is counted is nobody's business any more
                        left = _drop(left, reasons.settled, outcome)
                    elif reasons.refused:
                        left = self._isolate(left, reasons.refused, outcome, terms)
                    elif reasons.failed:
                        left = self._reconsider(left, reasons.failed, known, outcome, terms)
                    elif reasons.others:  # what it was made from has changed: from the start
                        starts += 1
                        if starts > _MOST_STARTS:
                            raise NotDoneError(
                                f"expected what it was made from to stay, came changes: {error}"
                            ) from error
                        left, known = start, {}
                        del outcome.rejected[rejected:]
                        outcome.refused_take_backs = refused
                    else:
                        tries += 1
                        outcome.conflicts += reasons.conflict
                        self._pause(tries, terms, str(error))
                elif left.updates:
                    reason = error.response["Error"].get("Message", str(error))
                    left = self._isolate(left, dict.fromkeys(range(len(left.updates)), reason), outcome, terms)
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
                left = self._set_aside(left, place, _UNCERTAIN, outcome, terms, uncertain=True)
        return left

    def _reconsider(
        self,
        posting: Posting,
        failed: dict[int, Image | None],
        known: dict[tuple[str, str], Image],
        outcome: Outcome,
        terms: Terms,
    ) -> Posting | None:
        """What is left of a cancelled posting, once the conditions that failed are looked at."""
        left = posting
        for place, item in reversed(failed.items()):  # from the end, so that places hold
            update = posting.updates[place]
            if item and owner(item) != update.declaration.name:
                if len(posting.guards) > 1:
                    self._by_halves(posting, outcome, terms)
                    return None
                refuse_misfit(foreign(update, item), outcome, terms, misfit=owner(item) is not None)
                left = self._set_aside(left, place, foreign(update, item), outcome, terms)
            elif item and self._has_passed(update, item):
                left = self._behind(left, place, item, outcome, terms)
            elif item:
                known[update.group, update.label] = item  # a total or an extreme stands otherwise than was guessed
                self._last_seen.keep(update, item)
            elif known.pop((update.group, update.label), None):
                self._last_seen.keep(update, None)  # it is gone, and what is left is tried again as if never seen
            elif self._exists_elsewhere(update, outcome, terms):
                left = left.with_update(place, replace(update, exists=True))
            elif len(posting.guards) > 1:
                self._by_halves(posting, outcome, terms)
                return None
            else:
                left = self._refuse_take_back(left, place, outcome, terms)
        return left

    def _has_passed(self, update: Update, item: Image) -> bool:
        """Whether a lane has moved on in an item, up to an update or beyond."""
        if not update.lane or update.lane not in item:
            return False
        try:
            return position(item[update.lane]) >= update.first
        except BadValueError:
            return True

    def _behind(self, posting: Posting, place: int, item: Image, outcome: Outcome, terms: Terms) -> Posting:
        """What is left of one record whose lane has moved on, up to it or beyond.

        As long as the lane's watermark lies in the run that is brought again, it tells that the record was absorbed.
        Beyond its end it tells nothing: what follows the run has moved it, whether or not the run was absorbed. Nor
        does one that another redrive has moved.
        """
        update = posting.updates[place]
        with suppress(BadValueError):  # somebody wrote over the watermark
            if position(item[update.lane]) <= terms.through and not is_redriven(item[update.lane]):
                outcome.duplicates += 1
                return posting.with_update(place, None)
        return self._set_aside(posting, place, _UNCERTAIN, outcome, terms, uncertain=True)

    def _refuse_take_back(self, posting: Posting, place: int, outcome: Outcome, terms: Terms) -> Posting:
        """What is left of one record whose aggregate is not there: nothing is taken back from it."""
        update = posting.updates[place]
        if not terms.earlier():  # it may have been about to be made
            raise NotDoneError(NOT_THERE)
        outcome.refused_take_backs += 1
        left = posting.with_update(place, None)
        if terms.keeper is None:
            return left
        entries = terms.keeper.actions(update.declaration, rejections(update, NOT_THERE, refused=True))
        return left.with_others({**entries, f"absence/{update.group}/{update.label}": absence(update)})

    def _set_aside(
        self, posting: Posting, place: int, reason: str, outcome: Outcome, terms: Terms, *, uncertain: bool = False
    ) -> Posting:
        """A posting of one record, with entries in the place of an update."""
        update = posting.updates[place]
        rejected = rejections(update, reason, uncertain=uncertain)
        outcome.rejected += rejected
        left = posting.with_update(place, None)
        return left if terms.keeper is None else left.with_others(terms.keeper.actions(update.declaration, rejected))

    def _isolate(self, posting: Posting, refused: dict[int, str], outcome: Outcome, terms: Terms) -> Posting | None:
        """What is left of a refused posting: the halves are settled in turn, down to the record that is to blame.

        Args:
            posting: The posting.
            refused: Why, by the place of the update.
            outcome: What becomes of it.
            terms: How the batch is delivered.
        """
        if len(posting.guards) > 1:
            self._by_halves(posting, outcome, terms)
            return None
        if self._is_settled(posting, outcome, terms):  # not every refusal looked at the guard
            return _drop(posting, frozenset(posting.guards), outcome)
        left = posting
        for place, reason in reversed(refused.items()):
            refuse_misfit(reason, outcome, terms, misfit=is_misfit(reason))
            left = self._without_refused(left, place, reason, outcome, terms)
        return left

    def _without_refused(self, posting: Posting, place: int, reason: str, outcome: Outcome, terms: Terms) -> Posting:
        """What is left of one record of which DynamoDB will not take an update."""
        update = posting.updates[place]
        arguments = {"TableName": update.declaration.target.name, "Key": update.key, "ConsistentRead": True}
        try:
            item = self._call(outcome, terms, "get_item", arguments).get("Item")
        except ClientError:  # the table has other keys: nothing is there, and no watermark to move
            return self._set_aside(posting, place, reason, outcome, terms)
        own = item is not None and owner(item) == update.declaration.name
        if item is not None and own and self._has_passed(update, item):
            return self._behind(posting, place, item, outcome, terms)
        if item is None and not update.opens:
            if not self._exists_elsewhere(update, outcome, terms):
                return self._refuse_take_back(posting, place, outcome, terms)
            update = replace(update, exists=True)
        left = self._set_aside(posting, place, reason, outcome, terms)
        if not update.lane or not (own or item is None):
            return left
        return left.with_others({f"fence/{update.group}/{update.label}": fence(update, hour_of(self._now()))})

    def _by_halves(self, posting: Posting, outcome: Outcome, terms: Terms) -> None:
        for half in posting.halves():
            self._apply(half, outcome, terms)

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
        others: Whether the condition of a further action failed.
        conflict: Whether another write was in the way.
    """

    def __init__(self, response: Any, posting: Posting) -> None:
        reasons = response.get("CancellationReasons") or []
        codes = [reason.get("Code") for reason in reasons]
        count, end = len(posting.guards), len(posting.guards) + len(posting.updates)
        self.settled = {s for s, code in zip(posting.guards, codes, strict=False) if code == _FAILED}
        updates = dict(enumerate(reasons[count:end]))
        self.failed: dict[int, Image | None] = {
            place: reason.get("Item") for place, reason in updates.items() if reason.get("Code") == _FAILED
        }
        self.refused: dict[int, str] = {
            place: reason.get("Message", reason["Code"])
            for place, reason in updates.items()
            if reason.get("Code") == _REFUSED
        }
        self.others = _FAILED in codes[end:]
        # It and every reason else, such as a throttle, is one that another try may not meet again.
        self.conflict = "TransactionConflict" in codes


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
