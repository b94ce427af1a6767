"""A poller that behaves as Lambda's event source mapping does: batches, windows, state, reported failures.

It reads *shards*, live ones of a table's stream or stand-ins such as a file, and knows of a shard only that
its records can be read again after any of them.

AWS facts: Lambda developer guide, "Using Lambda with Amazon DynamoDB" (batches, tumbling windows, reporting
batch item failures). A mapping retries until the records expire; this one gives up after a few tries and says
why, since it runs while somebody waits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from framework.decode import Record
from framework.errors import DeliveryError, shortened

__all__ = ["Poller", "Response", "Shard"]

Response = Mapping[str, Any]

RETRIES = 5
WINDOW_SECONDS = 900
# Lambda quotas: the payload of an invocation.
_MOST_BYTES = 6 * 1024 * 1024


class Shard(Protocol):
    """Stream records in order, to be read from any place."""

    @property
    def stream_arn(self) -> str:
        """The stream that the shard is of."""

    @property
    def shard_id(self) -> str:
        """The shard's name in its stream."""

    def records(self, after: int = 0) -> Iterator[Record]:
        """The records above a sequence number, as Lambda sends them, in order and as far as there are any."""


class Poller:
    """Brings one shard's records to a function, from a checkpoint that it keeps.

    Args:
        table: The source table's name, for messages.
        shard: The shard.
        invoke: The function: it takes an event and returns a response.
        batch_size: The most records of a batch.
        now: The time in epoch seconds, for windows.

    Attributes:
        checkpoint: The sequence number of the last record that is done; 0 before the first.
    """

    def __init__(
        self,
        table: str,
        shard: Shard,
        invoke: Callable[[dict[str, Any]], object],
        *,
        batch_size: int,
        now: Callable[[], float],
    ) -> None:
        self.checkpoint = 0
        self._table = table
        self._shard = shard
        self._invoke = invoke
        self._batch_size = batch_size
        self._now = now
        self._state: object = {}
        self._window: dict[str, str] | None = None

    def poll(self) -> Iterator[Response]:
        """Deliver every record above the checkpoint, and give the response to each invocation.

        The checkpoint has moved when a response is given. A shard that cannot be read on (a file with a
        broken line) raises after the full batches before that place are done; the rest of them come again
        with the next poll.

        Raises:
            DeliveryError: A batch made no progress in six invocations; the checkpoint stays before it.
        """
        for batch in _batches(self._shard.records(self.checkpoint), self._batch_size):
            yield from self._settle(batch)

    def close_window(self) -> Iterator[Response]:
        """End the window with a final invocation that has no records, if the window had any.

        Raises:
            DeliveryError: The function failed six times.
        """
        if self._window is not None:
            yield from self._settle([], final=True)
            # The next window begins with fresh state.
            self._window, self._state = None, {}

    def _settle(self, batch: list[Record], *, final: bool = False) -> Iterator[Response]:
        """Invoke until a batch is done, each time with what is left of it."""
        tries = 0
        while True:
            response = self._invoke(self._event(batch, final=final))
            done, reason = _judge(response, batch)
            if done:
                self.checkpoint, batch = int(_sequence(batch[done - 1])), batch[done:]
            if isinstance(response, Mapping):
                self._state = response.get("state", self._state)
                yield response
            if not reason and not batch:
                return
            tries = 0 if done else tries + 1
            if tries > RETRIES:
                raise self._stuck(batch, tries, reason or _reported(response))

    def _event(self, batch: list[Record], *, final: bool) -> dict[str, Any]:
        if self._window is None:
            # Windows are aligned to the epoch and do not overlap.
            start = int(self._now() // WINDOW_SECONDS) * WINDOW_SECONDS
            self._window = {"start": _utc(start), "end": _utc(start + WINDOW_SECONDS)}
        return {
            "Records": batch,
            "window": self._window,
            "state": self._state,
            "shardId": self._shard.shard_id,
            "eventSourceARN": self._shard.stream_arn,
            "isFinalInvokeForWindow": final,
            "isWindowTerminatedEarly": False,
        }

    def _stuck(self, batch: list[Record], tries: int, reason: str) -> DeliveryError:
        place = f"sequence number {_sequence(batch[0])} on" if batch else "the window's end"
        return DeliveryError(
            f"table {self._table!r}: shard {self._shard.shard_id}: from {place}: expected progress, "
            f"came none in {tries} invocations: {reason}"
        )


def _judge(response: object, batch: list[Record]) -> tuple[int, str]:
    """How many records of a batch are done, and why the whole of it has failed, if it has.

    The lowest reported sequence number is the checkpoint; one that is not in the batch fails all of it.
    """
    if not isinstance(response, Mapping):
        return 0, f"response: expected a dict, came {shortened(response)}"
    if "state" not in response:
        return 0, "response: expected a state, as a window demands, came none"
    failures = response.get("batchItemFailures") or []
    places = {_sequence(record): place for place, record in enumerate(batch)}
    lowest = len(batch)
    for failure in failures:
        identifier = failure.get("itemIdentifier") if isinstance(failure, Mapping) else failure
        if not isinstance(identifier, str) or identifier not in places:
            return (
                0,
                f"batchItemFailures: expected a sequence number of the batch, came {shortened(identifier)}",
            )
        lowest = min(lowest, places[identifier])
    return lowest, ""


def _reported(response: object) -> str:
    """Why a function reports records as not done, if it says so."""
    account = response.get("streamfold") if isinstance(response, Mapping) else None
    error = account.get("error") if isinstance(account, Mapping) else None
    return str(error or "the function reports it as not done")


def _batches(records: Iterable[Record], most: int) -> Iterator[list[Record]]:
    """Records in batches, up to a number and to the size of an invocation's payload."""
    batch: list[Record] = []
    size = 0
    for record in records:
        weight = len(json.dumps(record))
        if batch and size + weight > _MOST_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += weight
        if len(batch) == most:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _sequence(record: Record) -> str:
    number: str = record["dynamodb"]["SequenceNumber"]
    return number


def _utc(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
