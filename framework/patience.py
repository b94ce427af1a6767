"""Long work on a service: requests that are made again, many things worked on at once and taken in their order."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from botocore.exceptions import ClientError, HTTPClientError, IncompleteReadError
from botocore.exceptions import ConnectionError as NoConnectionError
from botocore.parsers import ResponseParserError

from framework.client import CONNECTIONS

__all__ = ["ahead", "patiently"]

_Thing = TypeVar("_Thing")
_Found = TypeVar("_Found")

# What another try may not meet again (DynamoDB developer guide, error handling; S3 API reference, error responses).
_PASSING = frozenset(
    {
        "ConditionalRequestConflict",
        "InternalError",
        "InternalServerError",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "ThrottlingException",
        "TransactionConflictException",
    }
)
_MOST_TRIES, _FIRST_PAUSE, _LONGEST_PAUSE = 12, 0.1, 20.0


def ahead(
    work: Callable[[_Thing], _Found], things: Iterable[_Thing], *, workers: int = CONNECTIONS
) -> Iterator[_Found]:
    """What some work gives for each of many things, in their order; as many are worked on at once as there are workers.

    No more of them are taken, or wait for their turn, at any time. What the work raises is raised here.
    """
    pool = ThreadPoolExecutor(workers, thread_name_prefix="streamfold")
    waiting: deque[Future[_Found]] = deque()
    try:
        for thing in things:
            waiting.append(pool.submit(work, thing))
            if len(waiting) >= workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def patiently(call: Callable[[], _Found], sleep: Callable[[float], None] = time.sleep) -> _Found:
    """The answer to a request, made again, for minutes, as long as its failure may pass.

    Raises:
        ClientError: The service refuses it.
    """
    for tries in range(1, _MOST_TRIES):
        try:
            return call()
        except ClientError as error:
            if error.response["Error"]["Code"] not in _PASSING:
                raise
        except (HTTPClientError, IncompleteReadError, NoConnectionError, ResponseParserError):
            pass
        sleep(random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**tries)))
    return call()
