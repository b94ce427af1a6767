"""A function that fails as functions do: a client of which every call may fail, and the poller that invokes it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError, ConnectionClosedError

from framework.errors import DeliveryError
from framework.local.attempts import FunctionError, Throttled, TimedOut, Window, event_of
from framework.local.clock import Clock
from framework.local.faults import Chance
from framework.local.history import WINDOW_SECONDS
from framework.local.mapping import Mapping as EventSource
from framework.local.settings import Settings
from framework.local.streams import Entry, Shard, Stream

__all__ = ["Broken", "FaultyClient", "Poller", "Stopped"]

_CODES = {
    "throttle": "ThrottlingException",
    "conflict": "TransactionConflictException",
    "internal_error": "InternalServerError",
    "denied": "AccessDeniedException",
}
_SECONDS_A_CALL = 0.005
_LATE_ENDS = 0.2  # before each call, for one of those that are late
_TIMEOUT = 30.0  # seconds of an invocation


class Stopped(BaseException):
    """The process is gone between two instructions; no `except Exception` of what runs in it may see that.

    Attributes:
        error: What the mapping sees of it.
    """

    def __init__(self, error: FunctionError) -> None:
        super().__init__(error)
        self.error = error


class FaultyClient:
    """A boto3 DynamoDB client, of which every call may fail.

    Args:
        client: The client behind it.
        chance: Which faults come.
        clock: The time.
        meanwhile: Gives a second poller its turn; returns whether it took it.

    Attributes:
        deadline: When the invocation has to have ended, in epoch seconds.
    """

    def __init__(self, client: Any, chance: Chance, clock: Clock, meanwhile: Callable[[], bool]) -> None:
        self.deadline = float("inf")
        self._client = client
        self._chance = chance
        self._clock = clock
        self._meanwhile = meanwhile

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        return functools.partial(self._call, operation)

    def _call(self, operation: str, **arguments: Any) -> Any:
        call = getattr(self._client, operation)
        self._clock.advance(_SECONDS_A_CALL)
        if self._chance.late and self._chance.random.random() < _LATE_ENDS:
            self._chance.late.pop(self._chance.random.randrange(len(self._chance.late)))()
        fault = self._chance.of_call()
        if fault is None:
            return call(**arguments)
        if fault in _CODES:
            self._chance.happened[fault] += 1
            raise ClientError({"Error": {"Code": _CODES[fault], "Message": "simulated"}}, operation)
        if fault == "late":
            self._chance.happened[fault] += 1
            self._chance.late.append(functools.partial(_done, call, arguments))
            raise ConnectionClosedError(endpoint_url="https://dynamodb")
        if fault == "second_poller":
            if self._meanwhile():
                self._chance.happened[fault] += 1
        elif self._chance.before(fault):
            self._strike(fault)
            return self._in_time(call, arguments)
        reply = self._in_time(call, arguments)
        if fault != "second_poller":
            self._strike(fault)
            self._in_time(dict, {})
        return reply

    def _in_time(self, call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        if self._clock.now >= self.deadline:
            raise Stopped(TimedOut("Task timed out"))
        return call(**arguments)

    def _strike(self, fault: str) -> None:
        if fault == "crash":
            raise Stopped(FunctionError("Runtime exited"))
        if fault == "lost_reply":
            raise ConnectionClosedError(endpoint_url="https://dynamodb")
        left = max(0.0, self.deadline - self._clock.now)
        self._clock.advance(left if fault == "timeout" else self._chance.random.uniform(0.0, left))


def _done(call: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Do a call for whose answer nobody waits any more."""
    try:
        call(**arguments)
    except ClientError:
        pass


class Broken(BaseException):
    """A consumer raised an error. Unlike the error itself, this is no failed try to a mapping.

    Attributes:
        error: The error.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class Poller:
    """A mapping of one source table, and the function that it invokes.

    Args:
        stream: The table's stream.
        settings: The mapping's settings.
        clock: The time.
        chance: Which faults come.
        start: Makes a consumer with a client: a new process of the function.
        client: The client without faults.
        meanwhile: Gives a second poller its turn; returns whether it took it.
        checkpoints: Where it begins.

    Attributes:
        source: The mapping.
    """

    def __init__(
        self,
        stream: Stream,
        settings: Settings,
        clock: Clock,
        chance: Chance,
        start: Callable[[Any], Callable[[Any, Any], object]],
        *,
        client: Any,
        meanwhile: Callable[[], bool],
        checkpoints: Mapping[str, int] | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._start = start
        self._client = FaultyClient(client, chance, clock, meanwhile)
        self._consumer: Callable[[Any, Any], object] | None = None
        self.source = EventSource(settings, stream, self._invoke, clock, timeout=_TIMEOUT, checkpoints=checkpoints)

    def deliver(self, shard: Shard, entries: Sequence[Entry]) -> None:
        """Bring some records of a shard to the function, whatever the mapping is at, and whatever comes of it."""
        entries = [entry for entry in entries if self._settings.passes(entry.record)]
        if entries:
            window = Window.at(entries[0].at, WINDOW_SECONDS)
            event = event_of(entries, shard.stream_arn, shard.shard_id, window=window)
            try:
                self._invoke(event, self._clock.now + _TIMEOUT)
            except (FunctionError, Throttled, DeliveryError):
                pass

    def _invoke(self, event: dict[str, Any], deadline: float) -> object:
        """Lambda's invocation of the function: in the process that there is, or in a new one."""
        if self._chance.strikes("not_invoked"):
            raise Throttled("Rate exceeded")
        self._client.deadline = deadline
        try:
            if self._consumer is None or self._chance.strikes("restart"):
                self._consumer = self._start(self._client)
            return self._consumer(event, _Context(self._clock, deadline))
        except Stopped as stopped:
            self._consumer = None
            raise stopped.error from None
        except DeliveryError:  # what another try may not meet
            raise
        except Exception as error:
            raise Broken(error) from error


@dataclass(frozen=True, slots=True)
class _Context:
    """Lambda's context, as far as a consumer asks it."""

    clock: Clock
    deadline: float

    def get_remaining_time_in_millis(self) -> int:
        """The time left."""
        return int((self.deadline - self.clock.now) * 1000)
