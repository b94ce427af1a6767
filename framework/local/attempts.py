"""One invocation of a function by its event source mapping: what it gets, and what its answer means. Pure.

AWS facts: Lambda developer guide, "Configuring partial batch response with DynamoDB and Lambda" (which answers are a
success, a failure from a record on, a failure of all) and "Implementing stateful DynamoDB stream processing in Lambda"
(windows, state). Where they are silent, what LocalStack recorded of AWS in its tests of event source mappings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from framework.errors import StreamfoldError, shortened
from framework.local.streams import Entry

__all__ = [
    "MOST_STATE_BYTES",
    "FunctionError",
    "Piece",
    "Throttled",
    "TimedOut",
    "Verdict",
    "Window",
    "event_of",
    "judge",
    "utc",
]

MOST_STATE_BYTES = 1024 * 1024  # Lambda developer guide, "Implementing stateful DynamoDB stream processing"


class FunctionError(StreamfoldError):
    """A function ended with an error."""


class TimedOut(FunctionError):
    """A function did not end before its deadline."""


class Throttled(StreamfoldError):
    """A function was not invoked, for too many are running; it is no failed try."""


@dataclass(frozen=True, slots=True)
class Window:
    """A tumbling window of a shard.

    Attributes:
        start: Its start in epoch seconds, a multiple of its length.
        end: The first second after it.
    """

    start: int
    end: int

    @classmethod
    def at(cls, moment: float, seconds: int) -> Window:
        """The window that a moment lies in: aligned to the epoch, one after another without a gap."""
        start = int(moment // seconds) * seconds
        return cls(start, start + seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A batch, or a part of one that comes again.

    Attributes:
        entries: Its records, without those that the filter held back; none where a window is ended.
        through: The checkpoint once it is done: records held back at its end are done with it.
        since: When it was made.
        retries: Failed tries that count as retries.
        invocations: How often the function got these records.
        early: Whether it ends a window whose state has grown too large.
    """

    entries: tuple[Entry, ...]
    through: int
    since: float
    retries: int = 0
    invocations: int = 0
    early: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an answer means.

    Attributes:
        done: Records of the batch that are done, from its start.
        reason: Why the batch failed as a whole; empty if it did not.
        state: The state for the window's next invocation, as JSON.
    """

    done: int
    reason: str = ""
    state: str = "{}"


def judge(response: object, entries: Sequence[Entry], *, windowed: bool, reporting: bool) -> Verdict:
    """What a function's answer to a batch means.

    Args:
        response: The answer, as data of JSON.
        entries: The batch's records.
        windowed: Whether the mapping has a tumbling window, so that an answer without a state is a failure.
        reporting: Whether the mapping asks for reported failures; otherwise they mean nothing.
    """
    state = "{}"
    if windowed:
        if not isinstance(response, Mapping) or "state" not in response:
            return Verdict(0, f"response: expected a state, as a window demands, came {shortened(response)}")
        try:
            state = json.dumps(response["state"], ensure_ascii=False, separators=(",", ":"))
        except (TypeError, ValueError):
            came = shortened(response["state"])
            return Verdict(0, f"response: expected a state that JSON can tell, came {came}")
    failures = response.get("batchItemFailures") if reporting and isinstance(response, Mapping) else None
    if not failures:
        return Verdict(len(entries), state=state)
    if not isinstance(failures, list):
        return Verdict(0, f"batchItemFailures: expected a list, came {shortened(failures)}")
    places = {str(entry.sequence): place for place, entry in enumerate(entries)}
    lowest = len(entries)
    for failure in failures:
        identifier = failure.get("itemIdentifier") if isinstance(failure, Mapping) else failure
        if not isinstance(failure, Mapping) or not isinstance(identifier, str) or identifier not in places:
            expected = "an itemIdentifier with a sequence number of the batch"
            return Verdict(0, f"batchItemFailures: expected {expected}, came {shortened(failure)}")
        lowest = min(lowest, places[identifier])
    return Verdict(lowest, state=state)


def event_of(
    entries: Sequence[Entry],
    stream_arn: str,
    shard_id: str,
    *,
    window: Window | None,
    state: str = "{}",
    final: bool = False,
    early: bool = False,
) -> dict[str, Any]:
    """The event of an invocation. Its records are the stream's own: a function may not write into them."""
    event: dict[str, Any] = {"Records": [entry.record for entry in entries]}
    if window is not None:
        # An ordinary event of a DynamoDB stream does not say its shard (AWS facts: the stream).
        event |= {
            "window": {"start": utc(window.start), "end": utc(window.end)},
            "state": json.loads(state),
            "shardId": shard_id,
            "eventSourceARN": stream_arn,
            "isFinalInvokeForWindow": final,
            "isWindowTerminatedEarly": early,
        }
    return event


@lru_cache(maxsize=256)
def utc(seconds: float, form: str = "%Y-%m-%dT%H:%M:%SZ") -> str:
    """A time as text, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime(form)
