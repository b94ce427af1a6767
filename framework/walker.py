"""Walker: every item of a table, by a parallel scan that keeps to a rate and can be taken up again.

A scan in segments, each in a thread of its own. Where a segment stands is kept only once the work on what was read is
done: whoever takes the walk up again meets a page or so twice, and skips none. Where DynamoDB throttles, the walk slows
down; where it fails, is interrupted or killed, the file tells where it was.

AWS facts: DynamoDB developer guide, "Parallel scan"; API reference, Scan (a million segments at most) and
DescribeTable (`ItemCount` is brought up to date about every six hours).
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnectionError
from botocore.parsers import ResponseParserError

from framework.client import CONNECTIONS
from framework.codec import Image, from_event, to_event
from framework.errors import BadValueError, ConfigurationError, shortened

__all__ = ["MOST_SEGMENTS", "OnProgress", "Pace", "Places", "StoppedError", "Walker"]

MOST_SEGMENTS = CONNECTIONS  # as many as one client has; DynamoDB takes a million
OnProgress = Callable[[int, int | None], object]
"""Called after each page with the items that are done, those of earlier runs too, and how many there may be."""

# What another try may not meet again, however long it takes (DynamoDB developer guide, error handling).
_THROTTLED = frozenset({"ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException"})
_PASSING = frozenset({"InternalServerError", "ServiceUnavailable"})
_MOST_FAILURES = 10  # of one page that are no throttles
# Full jitter between tries, in seconds: from 0 up to 0.1 s, doubled each time up to 20 s.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 20.0
_NO_TIME = 1e-6  # seconds
# Items of a first page at a rate: it is not known yet what they cost.
_FIRST_PAGE = 25


class StoppedError(Exception):
    """The walk stops, for another segment failed or somebody interrupted it."""


class Pace:
    """A rate in units a second, kept by a bucket of tokens that several threads share.

    A request is made when the bucket is not in debt. What it costs is known once it is made, so it takes what it may
    cost before, and that is put right after it. The bucket holds what comes in in a second.

    Args:
        rate: Units a second; None for no limit.
        clock: A steady clock in seconds.
        sleep: Waits for some seconds.
    """

    def __init__(
        self,
        rate: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rate = rate
        self.sleep = sleep
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens = rate or 0.0
        self._at = clock()

    def take(self, units: float) -> None:
        """Wait until the bucket is not in debt, and take what a request may cost."""
        while (seconds := self._debt(units)) > _NO_TIME:
            self.sleep(seconds)

    def spend(self, units: float, taken: float = 0.0) -> None:
        """Pay for a request that has taken some units before."""
        with self._lock:
            self._tokens -= units - taken

    def _debt(self, units: float) -> float:
        """The seconds until the bucket is out of debt; where it is, the units are taken."""
        if self.rate is None:
            return 0.0
        with self._lock:
            now = self._clock()
            self._tokens = min(self.rate, self._tokens + (now - self._at) * self.rate)
            self._at = now
            debt = -self._tokens / self.rate
            if debt <= _NO_TIME:
                self._tokens -= units
            return debt


class Places:
    """Where each segment of a walk stands; in a file, so that it outlives the process.

    Args:
        purpose: What the walk is for, and of which table: a file of another one is refused.
        segments: How many there are. A file that is there says it itself.
        path: The file; None to keep them in memory.

    Attributes:
        segments: How many there are.
        items: The items that are done.

    Raises:
        ConfigurationError: The file is of another walk, or none of a walk.
    """

    def __init__(self, purpose: str, segments: int, path: Path | None = None) -> None:
        if not 1 <= segments <= MOST_SEGMENTS:
            raise ConfigurationError(f"walk: segments: expected 1 to {MOST_SEGMENTS}, came {segments}")
        self.segments = segments
        self.items = 0
        self._purpose = purpose
        self._path = path
        self._lock = threading.Lock()
        self._last: dict[int, Image | None] = {}  # what a segment has done; None for all of it
        if path is not None and path.exists():
            self._read(path)

    def start(self, segment: int) -> tuple[bool, Image | None]:
        """Whether a segment is done, and the key after which it goes on; None for its beginning."""
        return segment in self._last and self._last[segment] is None, self._last.get(segment)

    def done(self, segment: int, last: Image | None, items: int) -> int:
        """Keep that a page is done.

        Args:
            segment: The segment.
            last: The key after which it goes on; None if it is at its end.
            items: How many items the page had.

        Returns:
            The items that are done.
        """
        with self._lock:
            self._last[segment] = last
            self.items += items
            if self._path is not None:
                self._write(self._path)
            return self.items

    def forget(self) -> None:
        """Remove the file of a walk that is at its end."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _write(self, path: Path) -> None:
        # In one go, for the process may be killed meanwhile.
        last = {str(segment): key and to_event(key) for segment, key in sorted(self._last.items())}
        found = {"walk": self._purpose, "segments": self.segments, "items": self.items, "last": last}
        new = path.with_name(f"{path.name}.new")
        with new.open("w", encoding="utf-8") as file:
            json.dump(found, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)

    def _read(self, path: Path) -> None:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            purpose, self.segments, self.items = found["walk"], int(found["segments"]), int(found["items"])
            self._last = {
                int(segment): None if key is None else from_event(key) for segment, key in found["last"].items()
            }
            if not 1 <= self.segments <= MOST_SEGMENTS or not all(0 <= n < self.segments for n in self._last):
                raise ValueError(f"segments {self.segments}")
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
            BadValueError,
        ) as error:
            raise ConfigurationError(f"{path}: expected where a walk stands, came {error!r}") from error
        if purpose != self._purpose:
            raise ConfigurationError(
                f"{path}: expected a walk to {self._purpose!r}, came one to {shortened(purpose, 200)}"
            )


class Walker:
    """Walks through a table, once.

    Args:
        client: A boto3 DynamoDB client.
        table: The table's name in the account.
        places: Where the segments stand.
        rate: Read units a second; None for no limit.
        consistent: Whether to read what was written a moment ago, for twice the units.
        clock: A steady clock in seconds.
        sleep: Waits for some seconds.
        jitter: A number between two, at random.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        places: Places,
        *,
        rate: float | None = None,
        consistent: bool = True,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] | None = None,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._client = client
        self._table = table
        self._places = places
        self._consistent = consistent
        self._stop = threading.Event()
        self._sleep = sleep
        self._jitter = jitter
        self._pace = Pace(rate, clock=clock, sleep=self.pause)
        self._an_item = 0.0  # read units of one, by the last page

    def pause(self, seconds: float) -> None:
        """Wait for some seconds, as what works on a page should.

        Raises:
            StoppedError: The walk stops.
        """
        if self._sleep is not None:
            self._sleep(seconds)
        if self._stop.wait(0 if self._sleep is not None else seconds):
            raise StoppedError

    def walk(
        self, visit: Callable[[Sequence[Image]], object], on_progress: OnProgress = lambda items, of: None
    ) -> None:
        """Give each item to a function, a page at a time and several pages at once, until all are done.

        Args:
            visit: Works on a page; what it raises stops the walk.
            on_progress: Called after each page.

        Raises:
            ClientError: DynamoDB refuses to be read. The places tell where the walk was.
            Exception: What `visit` raised, likewise.
        """
        total = self._estimate()
        on_progress(self._places.items, total)

        def segment(number: int) -> None:
            finished, last = self._places.start(number)
            while not finished:
                page = self._page(number, last)
                visit(page["Items"])
                last = page.get("LastEvaluatedKey")
                finished = last is None
                on_progress(self._places.done(number, last, len(page["Items"])), total)

        with ThreadPoolExecutor(self._places.segments, thread_name_prefix="streamfold-walk") as pool:
            futures = [pool.submit(segment, number) for number in range(self._places.segments)]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                self._stop.set()  # whatever waits is needed no more
        errors = [error for future in futures if (error := future.exception()) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, StoppedError)):
            raise error
        self._places.forget()

    def _estimate(self) -> int | None:
        """How many items there are, as of some hours ago; None where that is not told."""
        try:
            found = self._client.describe_table(TableName=self._table)["Table"].get("ItemCount")
        except ClientError:  # nobody needs it
            return None
        return found if isinstance(found, int) and found > 0 else None

    def _page(self, segment: int, last: Image | None) -> Any:
        request: dict[str, Any] = {
            "TableName": self._table,
            "ConsistentRead": self._consistent,
            "ReturnConsumedCapacity": "TOTAL",
        }
        if self._places.segments > 1:
            request |= {"Segment": segment, "TotalSegments": self._places.segments}
        if last is not None:
            request["ExclusiveStartKey"] = last
        tries = failures = 0
        while True:
            if self._stop.is_set():
                raise StoppedError
            taken = 0.0
            if self._pace.rate is not None:
                # A page of a second's units at most: a whole one would take 256 at once.
                limit = int(self._pace.rate / self._an_item) if self._an_item else _FIRST_PAGE
                request["Limit"] = max(1, min(1000, limit))
                taken = request["Limit"] * self._an_item if self._an_item else self._pace.rate
                self._pace.take(taken)
            tries += 1
            try:
                page = self._client.scan(**request)
            except ClientError as error:
                code = error.response["Error"]["Code"]
                failures += code not in _THROTTLED
                if code not in _THROTTLED | _PASSING or failures >= _MOST_FAILURES:
                    raise
            except (HTTPClientError, NoConnectionError, ResponseParserError):
                failures += 1
                if failures >= _MOST_FAILURES:
                    raise
            else:
                units = page.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0)
                self._pace.spend(units, taken)
                if page.get("ScannedCount"):
                    self._an_item = units / page["ScannedCount"]
                return page
            self._pace.spend(0.0, taken)
            self.pause(self._jitter(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(tries, 20))))
