"""Faults: what Lambda and DynamoDB may do to a function, each at a rate, out of one seeded source of chance."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from itertools import accumulate
from random import Random
from typing import Any

from botocore.exceptions import ClientError, ConnectionClosedError

from framework.errors import ConfigurationError, shortened
from framework.local.attempts import FunctionError, TimedOut
from framework.local.clock import Clock

__all__ = ["Chance", "Faults", "FaultyClient", "Stopped"]

_PER_CALL = (
    "second_poller",
    "crash",
    "timeout",
    "lost_reply",
    "throttle",
    "conflict",
    "internal_error",
    "denied",
    "slow",
)
_CODES = {
    "throttle": "ThrottlingException",
    "conflict": "TransactionConflictException",
    "internal_error": "InternalServerError",
    "denied": "AccessDeniedException",
}
_SECONDS_A_CALL = 0.005


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Faults:
    """How often each fault comes, as a probability from 0 to 1.

    Attributes:
        second_poller: Before a call to DynamoDB, a second poller takes its turn: it works from an older checkpoint.
        crash: The process ends before a call, or after DynamoDB has done it.
        timeout: The invocation's time ends before a call, or after DynamoDB has done it.
        lost_reply: The connection ends before DynamoDB has done the call, or after it, so that its reply is lost.
        throttle: A call is throttled.
        conflict: A call meets a transaction: `TransactionConflictException`.
        internal_error: A call gets `InternalServerError`.
        denied: A call gets `AccessDeniedException`, as while a grant is being changed.
        slow: A call takes up to the whole time of the invocation.
        not_invoked: An invocation is throttled.
        restart: An invocation gets a new process.
        duplicate: After a step, any range of records that begins among those done comes again.
        deploy: After a step, another mapping with another batch size goes on from the checkpoints, and the old one
            may go on beside it as the second poller.
        split: After a change, a shard splits.
        quiet: After a change, what is left is done, and one to three days pass.

    Raises:
        ConfigurationError: A rate that is no probability.
    """

    second_poller: float = 0.06
    crash: float = 0.03
    timeout: float = 0.01
    lost_reply: float = 0.04
    throttle: float = 0.04
    conflict: float = 0.02
    internal_error: float = 0.01
    denied: float = 0.02
    slow: float = 0.02
    not_invoked: float = 0.03
    restart: float = 0.03
    duplicate: float = 0.12
    deploy: float = 0.02
    split: float = 0.05
    quiet: float = 0.02

    def __post_init__(self) -> None:
        for each in fields(self):
            rate = getattr(self, each.name)
            if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
                raise ConfigurationError(f"Faults: {each.name}: expected 0 to 1, came {shortened(rate)}")
        total = sum(getattr(self, name) for name in _PER_CALL)
        if total > 1:
            raise ConfigurationError(
                f"Faults: expected at most 1 fault a call, came {total:.2f}: {', '.join(_PER_CALL)}"
            )

    @classmethod
    def none(cls) -> Faults:
        """No faults at all."""
        return cls(**dict.fromkeys((each.name for each in fields(cls)), 0.0))

    def __repr__(self) -> str:
        rates = {each.name: getattr(self, each.name) for each in fields(self)}
        if not any(rates.values()):
            return "Faults.none()"
        others = (each for each in fields(self) if rates[each.name] != each.default)
        return f"Faults({', '.join(f'{each.name}={rates[each.name]!r}' for each in others)})"


@dataclass(slots=True)
class Chance:
    """Draws faults, and counts them.

    Attributes:
        faults: The rates.
        random: All the chance there is.
        on: Whether there are faults at all.
        happened: How often each one came.
    """

    faults: Faults
    random: Random
    on: bool = True
    happened: Counter[str] = field(default_factory=Counter)
    _steps: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._steps = list(accumulate(getattr(self.faults, name) for name in _PER_CALL))

    def strikes(self, name: str) -> bool:
        """Whether a fault comes now."""
        if not self.on or self.random.random() >= getattr(self.faults, name):
            return False
        self.happened[name] += 1
        return True

    def of_call(self) -> str | None:
        """The fault that comes with a call, if one does."""
        if not self.on:
            return None
        drawn = self.random.random()
        place = bisect_right(self._steps, drawn)
        return _PER_CALL[place] if place < len(_PER_CALL) else None

    def before(self, name: str) -> bool:
        """Whether a fault comes before DynamoDB has done the call, or else after it."""
        first = self.random.random() < 0.5
        self.happened[f"{name} {'before' if first else 'after'}"] += 1
        return first


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
        fault = self._chance.of_call()
        if fault is None:
            return call(**arguments)
        if fault in _CODES:
            self._chance.happened[fault] += 1
            raise ClientError({"Error": {"Code": _CODES[fault], "Message": "simulated"}}, operation)
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
