"""Deliver: carry out a plan. The only step with effects.

Each update is settled on its own: written, found absorbed already, or reported as not done. Updates go out in
parallel and in any order, for they are about different items. What is not settled when time runs out is reported
from its first record; a write that is still under way then may yet commit, which its watermark makes harmless.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnectionError
from botocore.parsers import ResponseParserError

from framework.client import CONNECTIONS
from framework.codec import Image
from framework.errors import BadValueError
from framework.known import Known
from framework.lanes import hour_of, owner
from framework.plan import Update, drop_absorbed, drop_take_backs, forget, request
from framework.sparse import Handler

__all__ = ["Delivery", "NotDoneError", "Outcome", "Rejection", "Terms", "Writer", "foreign", "is_misfit"]

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
# What an answer means hangs on the request.
_JUDGED = frozenset({"ConditionalCheckFailedException", "TransactionCanceledException", "ValidationException"})
_AWAITED = "expected what the item added before to be counted first, came a take-back of what is set aside"
# Full jitter between tries, in seconds: from 0 up to 50 ms, doubled each time up to 2 s.
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class Rejection(NamedTuple):
    """What one record adds to one aggregate, where DynamoDB will never take it.

    Attributes:
        sequence: The record's sequence number.
        bucket: The aggregate's group and label.
        reason: What DynamoDB says.
        uncertain: Whether it may have been counted already.
    """

    sequence: int
    bucket: tuple[str, str]
    reason: str
    uncertain: bool = False


@dataclass(slots=True)
class Outcome:
    """What became of one write.

    Attributes:
        declaration: The handler.
        requests: Requests made.
        conflicts: Requests that another write was in the way of.
        absorbed: Contributions that were counted.
        duplicates: Contributions that had been counted before.
        refused_take_backs: Take-backs whose aggregate is not there.
        rejected: The contributions that DynamoDB will never take.
        misfit: Whether it is not done for what may be the deployment's fault, not the records'.
        failed_from: Sequence number of the first record that is not done; None where all are.
        error: Why it is not done.
    """

    declaration: Handler
    requests: int = 0
    conflicts: int = 0
    absorbed: int = 0
    duplicates: int = 0
    refused_take_backs: int = 0
    rejected: list[Rejection] = field(default_factory=list)
    misfit: bool = False
    failed_from: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a batch is delivered.

    Attributes:
        deadline: When to stop, by the steady clock.
        set_aside: Keeps contributions that DynamoDB will never take, before anything that follows them is written, or
            raises `NotDoneError`; None to keep them nowhere.
        awaited: Those of some records, by sequence number, of whose items an addition is set aside; None for none.
        accept_misfits: Whether to set aside also what may be the deployment's fault; otherwise it is not done.
        through: The last record of a run that is brought again after others have followed it; 0 for no such run.
        forgotten: Whether that was so long ago that watermarks may have been dropped.
    """

    deadline: float
    set_aside: Callable[[Handler, Sequence[Rejection]], None] | None = None
    awaited: Callable[[Handler, Sequence[int]], AbstractSet[int]] | None = None
    accept_misfits: bool = False
    through: int = 0
    forgotten: bool = False


class Job(Protocol):
    """What is settled by itself."""

    @property
    def declaration(self) -> Handler:
        """The handler."""

    @property
    def first(self) -> int:
        """The first record's sequence number."""


AJob = TypeVar("AJob", bound=Job)


class NotDoneError(Exception):
    """A write cannot be settled in this invocation."""


class Writer(Generic[AJob]):
    """Settles a batch's writes with a boto3 DynamoDB client: in parallel, in time, and again where that may help.

    Args:
        client: The client, or anything with those of its methods that are used.
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
        self._known = Known()

    def deliver(self, jobs: Sequence[AJob], terms: Terms) -> list[Outcome]:
        """Settle what is to be written, in parallel.

        Args:
            jobs: What to write.
            terms: Until when, and what is done with contributions that DynamoDB will never take.

        Returns:
            An outcome for each, in their order.
        """
        workers = min(self._connections, len(jobs))
        if workers < 2:
            return [self._settle(job, terms) for job in jobs]
        pool = ThreadPoolExecutor(workers, thread_name_prefix="streamfold")
        try:
            futures = [pool.submit(self._settle, job, terms) for job in jobs]
            wait(futures, timeout=max(0.0, terms.deadline - self._clock()))
            return [_result(job, future) for job, future in zip(jobs, futures, strict=True)]
        finally:
            # A write without a reply is left behind: the invocation must end in time, and it can do no harm.
            pool.shutdown(wait=False, cancel_futures=True)

    def _settle(self, job: AJob, terms: Terms) -> Outcome:
        outcome = Outcome(job.declaration)
        try:
            self._apply(job, outcome, terms)
        except NotDoneError as stop:
            outcome.error = str(stop)
        return outcome

    def _apply(self, job: AJob, outcome: Outcome, terms: Terms) -> None:
        """Write it, or find that it is written; `outcome.failed_from` tells from where on it is not."""
        raise NotImplementedError

    def _exists_elsewhere(self, update: Update, outcome: Outcome, terms: Terms) -> bool:
        """Whether another partition holds the aggregate. Decides only whether a take-back may make an item."""
        table = update.declaration.target
        replies = (
            self._call(outcome, terms, "get_item", {"TableName": table.name, "Key": key, "ConsistentRead": True})
            for key in update.siblings
        )
        return any(owner(reply.get("Item", {})) == update.declaration.name for reply in replies)

    def _refuse_take_backs(self, update: Update, outcome: Outcome, terms: Terms) -> Update | None:
        """What is left of an update whose aggregate is not there: nothing is taken back from it.

        What takes back an addition that is set aside is set aside with it, to be taken back once that has counted.
        """
        left = drop_take_backs(update)
        refused = update.contributions[: -len(left.contributions) if left else None]
        awaited = terms.awaited(update.declaration, [c[0] for c in refused]) if terms.awaited and refused else ()
        kept = tuple(c for c in refused if c[0] in awaited)
        if kept:
            self._set_aside(replace(update, contributions=kept), _AWAITED, outcome, terms)
        outcome.refused_take_backs += len(refused) - len(kept)
        return left

    def _reject(self, update: Update, reason: str, outcome: Outcome, terms: Terms, *, misfit: bool) -> None:
        """Set aside an update that DynamoDB will never take, before anything that follows it is written."""
        if misfit and not terms.accept_misfits:
            outcome.misfit = True
            raise NotDoneError(reason)
        self._set_aside(update, reason, outcome, terms)

    def _set_aside(
        self, update: Update, reason: str, outcome: Outcome, terms: Terms, *, uncertain: bool = False
    ) -> None:
        bucket = (update.group, update.label)
        rejected = [Rejection(sequence, bucket, reason, uncertain) for sequence, _, _ in update.contributions]
        if terms.set_aside is not None:
            terms.set_aside(update.declaration, rejected)
        outcome.rejected += rejected

    def _call(self, outcome: Outcome, terms: Terms, operation: str, arguments: dict[str, Any]) -> Any:
        """Make a request, again as long as its failure may pass.

        Raises:
            ClientError: DynamoDB's answer is one that the caller has to judge.
            NotDoneError: It cannot be made, or not in time.
        """
        tries = 0
        while True:
            tries += 1
            if self._clock() >= terms.deadline:
                raise NotDoneError("the invocation's time ran out")
            outcome.requests += 1
            try:
                return getattr(self._client, operation)(**arguments)
            except ClientError as error:
                code = error.response["Error"]["Code"]
                if code in _JUDGED:
                    raise
                if code not in _PASSING:
                    raise NotDoneError(str(error)) from error
                outcome.conflicts += code == "TransactionConflictException"
                reason = str(error)
            except (HTTPClientError, NoConnectionError, ResponseParserError) as error:
                reason = str(error)
            except BotoCoreError as error:
                raise NotDoneError(str(error)) from error
            self._pause(tries, terms, reason)

    def _pause(self, tries: int, terms: Terms, reason: str) -> None:
        pause = self._jitter(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**tries))
        if self._clock() + pause >= terms.deadline:
            raise NotDoneError(f"the invocation's time ran out after {tries} tries: {reason}")
        self._sleep(pause)


class Delivery(Writer[Update]):
    """Carries out updates by the lanes protocol: at most one for each item."""

    def _apply(self, update: Update, outcome: Outcome, terms: Terms) -> None:
        """Write an update, or find that it is written; split it where DynamoDB rejects it."""
        left: Update | None = update
        known = self._known.get(update)
        while left is not None:
            outcome.failed_from = left.first
            hour = hour_of(self._now())
            try:
                item = self._call(outcome, terms, "update_item", request(left, hour, known))["Attributes"]
            except BadValueError as error:
                return self._isolate(left, outcome, terms, str(error), misfit=False)
            except ClientError as error:
                if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                    known = cast("Image | None", error.response.get("Item"))
                    left = self._reconsider(left, known, outcome, terms)
                else:
                    reason = error.response["Error"].get("Message", str(error))
                    return self._isolate(left, outcome, terms, reason, misfit=is_misfit(reason))
            else:
                outcome.absorbed += len(left.contributions)
                self._known.keep(left, item)
                self._forget(left, item, hour, outcome)
                left = None
        outcome.failed_from = None

    def _reconsider(self, update: Update, item: Image | None, outcome: Outcome, terms: Terms) -> Update | None:
        """What is left of an update that the item's state refused."""
        if item and owner(item) != update.declaration.name:
            self._reject(update, foreign(update, item), outcome, terms, misfit=owner(item) is not None)
            return None
        if item:
            try:
                left = drop_absorbed(update, item)
            except BadValueError as error:  # somebody wrote over the watermark: what it covers cannot be told
                self._reject(update, f"{error}: {update.key}", outcome, terms, misfit=True)
                return None
            outcome.duplicates += len(update.contributions) - (len(left.contributions) if left else 0)
            return left
        if self._exists_elsewhere(update, outcome, terms):
            return replace(update, exists=True)
        return self._refuse_take_backs(update, outcome, terms)

    def _isolate(self, update: Update, outcome: Outcome, terms: Terms, reason: str, *, misfit: bool) -> None:
        """Apply the halves of a rejected update in turn, down to the record that DynamoDB will never take."""
        if len(update.contributions) == 1:
            self._reject(update, reason, outcome, terms, misfit=misfit)
            outcome.failed_from = None
            return
        for half in update.halves():
            self._apply(half, outcome, terms)

    def _forget(self, update: Update, item: Image, hour: int, outcome: Outcome) -> None:
        arguments = forget(update, item, hour)
        if arguments is not None:
            outcome.requests += 1
            # A later write will find the same watermarks.
            with suppress(ClientError, BotoCoreError):
                self._client.update_item(**arguments)


def is_misfit(reason: str) -> bool:
    """Whether a rejection may be the deployment's fault, such as keys of another type."""
    return not any(text in reason for text in _ABOUT_A_VALUE)


def foreign(update: Update, item: Image) -> str:
    """Why an update cannot have its item: it is somebody else's."""
    whose = "that Streamfold did not write" if owner(item) is None else f"of {owner(item)!r}"
    return f"expected no item or the aggregation's own, came one {whose}: {update.key}"


def _result(job: Job, future: Future[Outcome]) -> Outcome:
    if future.done():
        return future.result()
    return Outcome(job.declaration, failed_from=job.first, error="the invocation's time ran out")
