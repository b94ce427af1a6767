"""Deliver: carry out a plan. The only step with effects.

Each update is settled on its own: written, found absorbed already, or reported as not done. Updates go out in
parallel and in any order, for they are about different items. What is not settled when time runs out is reported
from its first record; a write that is still under way then may yet commit, which its watermark makes harmless.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any, cast

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnectionError
from botocore.parsers import ResponseParserError

from framework.client import CONNECTIONS
from framework.codec import Image
from framework.errors import BadValueError
from framework.lanes import hour_of, owner
from framework.plan import Update, drop_absorbed, drop_take_backs, forget, request

__all__ = ["Delivery", "Outcome"]

# What another try may not meet again (DynamoDB developer guide, error handling; AWS facts: writes for the conflict).
_PASSING = frozenset(
    {
        "InternalServerError",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "ThrottlingException",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
# What DynamoDB says of a value that an aggregate cannot take, and nothing else: every other rejection may be the
# table's fault, such as keys of another type, and then no record is to blame.
_ABOUT_A_VALUE = ("Number overflow", "Number underflow", "significant digits", "incorrect data type", "Item size")
# Full jitter between tries, in seconds: from 0 up to 50 ms, doubled each time up to 2 s.
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


@dataclass(slots=True)
class Outcome:
    """What became of one update.

    Attributes:
        update: The update as planned.
        requests: Requests made.
        absorbed: Records that were counted.
        duplicates: Records that had been counted before.
        refused_take_backs: Take-backs whose aggregate is not there.
        rejected: Sequence number and reason of each record that DynamoDB will never take.
        misfit: Whether the fault may lie in the deployment, not in the records.
        failed_from: Sequence number of the first record that is not done; None where all are.
        error: Why it is not done.
    """

    update: Update
    requests: int = 0
    absorbed: int = 0
    duplicates: int = 0
    refused_take_backs: int = 0
    rejected: list[tuple[int, str]] = field(default_factory=list)
    misfit: bool = False
    failed_from: int | None = None
    error: str = ""

    def reject(self, update: Update, reason: str, *, misfit: bool) -> None:
        """Set the update's records aside."""
        self.misfit = self.misfit or misfit
        self.rejected += [(sequence, reason) for sequence, _, _ in update.contributions]


class _NotDoneError(Exception):
    """An update cannot be settled in this invocation."""


class Delivery:
    """Carries out updates with a boto3 DynamoDB client.

    Args:
        client: The client, or anything with its `update_item` and `get_item`.
        connections: Writes under way at once; with 1 they go out one by one, in order, in the caller's thread.
        now: The time in epoch seconds, for watermarks.
        clock: A steady clock in seconds, for deadlines.
        sleep: Waits for some seconds.
        jitter: A number between two, at random.
    """

    def __init__(
        self,
        client: Any,
        *,
        connections: int = CONNECTIONS,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._client = client
        self._connections = connections
        self._now = now
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter

    def deliver(self, updates: Sequence[Update], deadline: float) -> list[Outcome]:
        """Settle updates, in parallel, until a deadline.

        Args:
            updates: What to write: at most one update for each item.
            deadline: When to stop, by the steady clock.

        Returns:
            An outcome for each update, in their order.
        """
        workers = min(self._connections, len(updates))
        if workers < 2:
            return [self._settle(update, deadline) for update in updates]
        pool = ThreadPoolExecutor(workers, thread_name_prefix="streamfold")
        try:
            futures = [pool.submit(self._settle, update, deadline) for update in updates]
            wait(futures, timeout=max(0.0, deadline - self._clock()))
            return [_result(update, future) for update, future in zip(updates, futures, strict=True)]
        finally:
            # A write without a reply is left behind: the invocation must end in time, and it can do no harm.
            pool.shutdown(wait=False, cancel_futures=True)

    def _settle(self, update: Update, deadline: float) -> Outcome:
        outcome = Outcome(update)
        try:
            self._apply(update, outcome, deadline)
        except _NotDoneError as stop:
            outcome.error = str(stop)
        return outcome

    def _apply(self, update: Update, outcome: Outcome, deadline: float) -> None:
        """Write an update, or find that it is written; split it where DynamoDB rejects it."""
        left: Update | None = update
        known: Image | None = None
        tries = 0
        while left is not None:
            tries += 1
            current = left
            outcome.failed_from = current.first
            hour = hour_of(self._now())
            try:
                try:
                    item = self._call(outcome, deadline, "update_item", request(current, hour, known))["Attributes"]
                except ClientError as error:
                    if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                        raise
                    known = cast("Image | None", error.response.get("Item"))
                    left = self._reconsider(current, known, outcome, deadline)  # it may read, and fail as a write may
                    continue
            except BadValueError as error:
                return self._isolate(current, outcome, deadline, str(error), misfit=False)
            except ClientError as error:
                code = error.response["Error"]["Code"]
                if code == "ValidationException":
                    reason = error.response["Error"].get("Message", code)
                    misfit = not any(text in reason for text in _ABOUT_A_VALUE)
                    return self._isolate(current, outcome, deadline, reason, misfit=misfit)
                elif code in _PASSING:
                    self._pause(tries, deadline, str(error))
                else:
                    raise _NotDoneError(str(error)) from error
            except (HTTPClientError, NoConnectionError, ResponseParserError) as error:
                self._pause(tries, deadline, str(error))
            except BotoCoreError as error:
                raise _NotDoneError(str(error)) from error
            else:
                outcome.absorbed += len(current.contributions)
                self._forget(current, item, hour, outcome, deadline)
                left = None
        outcome.failed_from = None

    def _reconsider(self, update: Update, item: Image | None, outcome: Outcome, deadline: float) -> Update | None:
        """What is left of an update that the item's state refused."""
        if item and owner(item) != update.declaration.name:
            whose = "that Streamfold did not write" if owner(item) is None else f"of {owner(item)!r}"
            reason = f"key {update.key}: expected no item or the aggregation's own, came one {whose}"
            outcome.reject(update, reason, misfit=owner(item) is not None)
            return None
        if item:
            try:
                left = drop_absorbed(update, item)
            except BadValueError as error:  # somebody wrote over the watermark: what it covers cannot be told
                outcome.reject(update, f"key {update.key}: {error}", misfit=True)
                return None
            outcome.duplicates += len(update.contributions) - (len(left.contributions) if left else 0)
            return left
        if self._exists_elsewhere(update, outcome, deadline):
            return replace(update, exists=True)
        left = drop_take_backs(update)
        outcome.refused_take_backs += len(update.contributions) - (len(left.contributions) if left else 0)
        return left

    def _exists_elsewhere(self, update: Update, outcome: Outcome, deadline: float) -> bool:
        """Whether another partition holds the aggregate. Decides only whether a take-back may make an item."""
        table = update.declaration.target
        replies = (
            self._call(outcome, deadline, "get_item", {"TableName": table.name, "Key": key, "ConsistentRead": True})
            for key in update.siblings
        )
        return any(owner(reply.get("Item", {})) == update.declaration.name for reply in replies)

    def _isolate(self, update: Update, outcome: Outcome, deadline: float, reason: str, *, misfit: bool) -> None:
        """Apply the halves of a rejected update in turn, down to the record that DynamoDB will never take."""
        if len(update.contributions) == 1:
            outcome.reject(update, reason, misfit=misfit)
            outcome.failed_from = None
            return
        for half in update.halves():
            self._apply(half, outcome, deadline)

    def _forget(self, update: Update, item: Image, hour: int, outcome: Outcome, deadline: float) -> None:
        arguments = forget(update, item, hour)
        if arguments is not None:
            try:
                self._call(outcome, deadline, "update_item", arguments)
            except (_NotDoneError, ClientError, BotoCoreError):
                pass  # A later write will find the same watermarks.

    def _call(self, outcome: Outcome, deadline: float, operation: str, arguments: dict[str, Any]) -> Any:
        if self._clock() >= deadline:
            raise _NotDoneError("the invocation's time ran out")
        outcome.requests += 1
        return getattr(self._client, operation)(**arguments)

    def _pause(self, tries: int, deadline: float, reason: str) -> None:
        pause = self._jitter(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**tries))
        if self._clock() + pause >= deadline:
            raise _NotDoneError(f"the invocation's time ran out after {tries} tries: {reason}")
        self._sleep(pause)


def _result(update: Update, future: Future[Outcome]) -> Outcome:
    if future.done():
        return future.result()
    return Outcome(update, failed_from=update.first, error="the invocation's time ran out")
