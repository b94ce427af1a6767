"""Deliver by lanes: carry out updates, each as one conditional write (`lanes.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from botocore.exceptions import BotoCoreError, ClientError

from framework.codec import Image
from framework.errors import BadValueError
from framework.lanes import hour_of, owner
from framework.plan import Update, absence, drop_absorbed, drop_take_backs, fence, forget, request, take_backs
from framework.writer import Outcome, Terms, Writer, is_misfit, refuse_misfit, rejections

__all__ = ["NOT_THERE", "Delivery", "foreign"]

NOT_THERE = "expected an aggregate to take it back from, came none"


class Delivery(Writer[Update]):
    """Carries out updates by the lanes protocol: at most one for each item.

    *Invariant.* What an aggregate cannot take is in quarantine before anything that follows it is written. Whether
    DynamoDB takes a value hangs on the aggregate, and two processes at once may find it otherwise. So the watermark
    moves over what is set aside, in one transaction with its entry: whoever comes later finds it absorbed. Where the
    item is somebody else's there is no watermark to move; only one who began before the entry was written, and comes
    after that item has gone, could count it still.
    """

    def _apply(self, update: Update, outcome: Outcome, terms: Terms) -> None:
        """Write an update, or find that it is written; split it where DynamoDB rejects it."""
        left: Update | None = update
        known = self._last_seen.get(update)
        while left is not None:
            outcome.failed_from = left.first
            hour = hour_of(self._now())
            try:
                item = self._call(outcome, terms, "update_item", request(left, hour, known))["Attributes"]
            except BadValueError as error:
                left = self._isolate(left, outcome, terms, str(error), misfit=False)
            except ClientError as error:
                if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                    known = cast("Image | None", error.response.get("Item"))
                    left = self._reconsider(left, known, outcome, terms)
                else:
                    reason = error.response["Error"].get("Message", str(error))
                    left = self._isolate(left, outcome, terms, reason, misfit=is_misfit(reason))
            else:
                outcome.absorbed += len(left.contributions)
                self._last_seen.keep(left, item)
                self._forget(left, item, hour, outcome)
                left = None
        outcome.failed_from = None

    def _reconsider(self, update: Update, item: Image | None, outcome: Outcome, terms: Terms) -> Update | None:
        """What is left of an update that the item's state refused."""
        if item and owner(item) != update.declaration.name:
            refuse_misfit(foreign(update, item), outcome, terms, misfit=owner(item) is not None)
            return self._set_aside(update, foreign(update, item), outcome, terms)
        if item:
            return self._drop_absorbed(update, item, outcome, terms)
        if self._exists_elsewhere(update, outcome, terms):
            return replace(update, exists=True)
        return self._refuse_take_backs(update, outcome, terms)

    def _drop_absorbed(self, update: Update, item: Image, outcome: Outcome, terms: Terms) -> Update | None:
        try:
            left = drop_absorbed(update, item)
        except BadValueError as error:  # somebody wrote over the watermark: what it covers cannot be told
            reason = f"{error}: {update.key}"
            refuse_misfit(reason, outcome, terms, misfit=True)
            return self._set_aside(update, reason, outcome, terms, uncertain=True)
        outcome.duplicates += len(update.contributions) - (len(left.contributions) if left else 0)
        return left

    def _isolate(self, update: Update, outcome: Outcome, terms: Terms, reason: str, *, misfit: bool) -> Update | None:
        """Apply the halves of a rejected update in turn, down to the record that DynamoDB will never take."""
        if len(update.contributions) > 1:
            for half in update.halves():
                self._apply(half, outcome, terms)
            return None
        refuse_misfit(reason, outcome, terms, misfit=misfit)
        if terms.keeper is None:
            return self._set_aside(update, reason, outcome, terms)
        arguments = {"TableName": update.declaration.target.name, "Key": update.key, "ConsistentRead": True}
        try:
            item = self._call(outcome, terms, "get_item", arguments).get("Item")
        except ClientError:  # the table has other keys: nothing is there, and no watermark to move
            return self._set_aside(update, reason, outcome, terms)
        left: Update | None = update
        if item is None and not update.opens:
            if not self._exists_elsewhere(update, outcome, terms):
                return self._refuse_take_backs(update, outcome, terms)
            left = replace(update, exists=True)
        elif item is not None and owner(item) != update.declaration.name:
            return self._set_aside(update, reason, outcome, terms)
        elif item is not None:
            left = self._drop_absorbed(update, item, outcome, terms)  # not every rejection looked at the watermark
        return left and self._set_aside(left, reason, outcome, terms, check=fence(left, hour_of(self._now())))

    def _refuse_take_backs(self, update: Update, outcome: Outcome, terms: Terms) -> Update | None:
        """What is left of an update whose aggregate is not there: nothing is taken back from it."""
        refused = take_backs(update)
        if refused is None:
            return update
        if terms.keeper is not None:
            entries = rejections(refused, NOT_THERE, refused=True)
            kept = terms.keeper.write(update.declaration, entries, absence(update))
            if kept < len(entries):  # it was made in the meantime
                outcome.refused_take_backs += kept
                return replace(update, contributions=update.contributions[kept:])
        outcome.refused_take_backs += len(refused.contributions)
        return drop_take_backs(update)

    def _set_aside(
        self,
        update: Update,
        reason: str,
        outcome: Outcome,
        terms: Terms,
        *,
        uncertain: bool = False,
        check: Mapping[str, Any] | None = None,
    ) -> Update | None:
        """Set an update aside; what is left of it, which is all where the condition of a check does not hold."""
        rejected = rejections(update, reason, uncertain=uncertain)
        if terms.keeper is not None and terms.keeper.write(update.declaration, rejected, check) < len(rejected):
            return update
        outcome.rejected += rejected
        return None

    def _forget(self, update: Update, item: Image, hour: int, outcome: Outcome) -> None:
        arguments = forget(update, item, hour)
        if arguments is not None:
            outcome.requests += 1
            # A later write will find the same watermarks.
            with suppress(ClientError, BotoCoreError):
                self._client.update_item(**arguments)


def foreign(update: Update, item: Image) -> str:
    """Why an update cannot have its item: it is somebody else's."""
    whose = "that Streamfold did not write" if owner(item) is None else f"of {owner(item)!r}"
    return f"expected no item or the aggregation's own, came one {whose}: {update.key}"
