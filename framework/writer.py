"""Writer: settles a batch's writes in parallel, in time, and again where that may help. What deliveries share.

Each write is settled on its own: written, found written already, or reported as not done. Writes go out in parallel
and in any order, for they are about different items. What is not settled when time runs out is reported from its first
record; a write that is still under way then may yet commit, which the protocol makes harmless.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnectionError
from botocore.parsers import ResponseParserError

from framework.client import CONNECTIONS
from framework.known import Known
from framework.lanes import owner
from framework.plan import Update
from framework.sparse import Handler

__all__ = [
    "Keeper",
    "NotDoneError",
    "Outcome",
    "Rejection",
    "Terms",
    "Writer",
    "is_misfit",
    "refuse_misfit",
    "rejections",
]

# What another try may not meet again (DynamoDB developer guide, error handling; AWS facts: writes for the conflict; S3
# API reference, error responses).
_PASSING = frozenset(
    {
        "ConditionalRequestConflict",
        "InternalError",
        "InternalServerError",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "ThrottlingException",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
# What DynamoDB says of a value that an aggregate cannot take, and nothing else: every other rejection may be the
# table's fault, such as keys of another type, and then no record is to blame.
_ABOUT_A_VALUE = (
    "Number overflow",
    "Number underflow",
    "significant digits",
    "a number of a magnitude",
    "incorrect data type",
    "Item size",
)
# What an answer means hangs on the request.
_JUDGED = frozenset(
    {
        "ConditionalCheckFailedException",
        "PreconditionFailed",
        "TransactionCanceledException",
        "ValidationException",
    }
)
# Full jitter between tries, in seconds: from 0 up to 50 ms, doubled each time up to 2 s.
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class Rejection(NamedTuple):
    """What one record adds to one aggregate, where that cannot be.

    Attributes:
        sequence: The record's sequence number.
        bucket: The aggregate's group and label.
        reason: Why not.
        uncertain: Whether it may have been counted already.
        refused: Whether it takes back from an aggregate that is not there.
    """

    sequence: int
    bucket: tuple[str, str]
    reason: str
    uncertain: bool = False
    refused: bool = False


class Keeper(Protocol):
    """Makes entries of the quarantine for a batch."""

    def write(self, declaration: Handler, rejected: Sequence[Rejection], check: Mapping[str, Any] | None = None) -> int:
        """Write entries now, in transactions that have a further action each.

        Returns:
            For how many of the rejections, from the first: for all, unless the further action's condition failed.

        Raises:
            NotDoneError: They could not be written.
        """

    def actions(self, declaration: Handler, rejected: Sequence[Rejection]) -> Mapping[str, Mapping[str, Any]]:
        """The actions of a transaction that write entries, each under a name of its own.

        Raises:
            NotDoneError: They cannot be written.
        """


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
        rejected: The contributions that are set aside.
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
        keeper: Keeps what cannot be counted, before anything that follows it is written; None to keep it nowhere.
        accept_misfits: Whether to set aside also what may be the deployment's fault; otherwise it is not done.
        earlier: Waits for what the batch writes before it for the same aggregation; whether that is done.
        through: The last record of a run that is brought again after others have followed it; 0 for no such run.
        forgotten: Whether that was so long ago that watermarks may have been dropped.
    """

    deadline: float
    keeper: Keeper | None = None
    accept_misfits: bool = False
    earlier: Callable[[], bool] = lambda: True
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
        self._last_seen = Known()

    def deliver(self, jobs: Sequence[AJob], terms: Terms) -> list[Outcome]:
        """Settle what is to be written, in parallel.

        Args:
            jobs: What to write.
            terms: Until when, and what becomes of what cannot be counted.

        Returns:
            An outcome for each, in their order.
        """
        workers = min(self._connections, len(jobs))
        if workers < 2:
            outcomes: list[Outcome] = []
            for job in jobs:
                outcomes.append(self._settle(job, self._in_order(jobs, outcomes.__getitem__, len(outcomes), terms)))
            return outcomes
        pool = ThreadPoolExecutor(workers, thread_name_prefix="streamfold")
        try:
            futures: list[Future[Outcome]] = []

            def result(place: int) -> Outcome:
                # It has begun before, so that this is no wait for what waits.
                wait([futures[place]], timeout=max(0.0, terms.deadline - self._clock()))
                return _result(jobs[place], futures[place])

            for place, job in enumerate(jobs):
                futures.append(pool.submit(self._settle, job, self._in_order(jobs, result, place, terms)))
            wait(futures, timeout=max(0.0, terms.deadline - self._clock()))
            return [_result(job, future) for job, future in zip(jobs, futures, strict=True)]
        finally:
            # A write without a reply is left behind: the invocation must end in time, and it can do no harm.
            pool.shutdown(wait=False, cancel_futures=True)

    def _in_order(self, jobs: Sequence[AJob], result: Callable[[int], Outcome], place: int, terms: Terms) -> Terms:
        """The terms for one write, where it matters what is written before it; `result` waits for another's outcome."""
        return terms

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

    def _call(
        self, outcome: Outcome, terms: Terms, operation: str, arguments: dict[str, Any], client: Any = None
    ) -> Any:
        """Make a request, again as long as its failure may pass; to DynamoDB, unless another client is given.

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
                return getattr(client or self._client, operation)(**arguments)
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
        pause = self._jitter(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(tries, 20)))
        if self._clock() + pause >= terms.deadline:
            raise NotDoneError(f"the invocation's time ran out after {tries} tries: {reason}")
        self._sleep(pause)


def rejections(update: Update, reason: str, *, uncertain: bool = False, refused: bool = False) -> list[Rejection]:
    """A rejection of each contribution of an update."""
    bucket = (update.group, update.label)
    return [Rejection(sequence, bucket, reason, uncertain, refused) for sequence, _, _ in update.contributions]


def refuse_misfit(reason: str, outcome: Outcome, terms: Terms, *, misfit: bool) -> None:
    """Stop before what may be the deployment's fault is set aside.

    Raises:
        NotDoneError: It may be, and that is not accepted yet.
    """
    if misfit and not terms.accept_misfits:
        outcome.misfit = True
        raise NotDoneError(reason)


def is_misfit(reason: str) -> bool:
    """Whether a rejection may be the deployment's fault, such as keys of another type."""
    return not any(text in reason for text in _ABOUT_A_VALUE)


def _result(job: Job, future: Future[Outcome]) -> Outcome:
    if future.done():
        return future.result()
    return Outcome(job.declaration, failed_from=job.first, error="the invocation's time ran out")
