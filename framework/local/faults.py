"""Faults: what Lambda and DynamoDB may do to a function, each at a rate, out of one seeded source of chance."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from itertools import accumulate
from random import Random

from framework.errors import ConfigurationError, shortened

__all__ = ["Chance", "Faults"]

_PER_CALL = (
    "second_poller",
    "crash",
    "timeout",
    "lost_reply",
    "late",
    "throttle",
    "conflict",
    "internal_error",
    "denied",
    "slow",
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Faults:
    """How often each fault comes, as a probability from 0 to 1.

    Attributes:
        second_poller: Before a call to DynamoDB, a second poller takes its turn: it works from an older checkpoint.
        crash: The process ends before a call, or after DynamoDB has done it.
        timeout: The invocation's time ends before a call, or after DynamoDB has done it.
        lost_reply: The connection ends before DynamoDB has done the call, or after it, so that its reply is lost.
        late: The connection ends, and DynamoDB does the call at some later time: before another call, or at the end.
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
        quiet: After a change, what is left is done, the second pollers end, and one to three days pass.

    Raises:
        ConfigurationError: A rate that is no probability.
    """

    second_poller: float = 0.08
    crash: float = 0.05
    timeout: float = 0.02
    lost_reply: float = 0.05
    late: float = 0.03
    throttle: float = 0.04
    conflict: float = 0.02
    internal_error: float = 0.01
    denied: float = 0.02
    slow: float = 0.03
    not_invoked: float = 0.03
    restart: float = 0.03
    duplicate: float = 0.08
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
        late: Calls that DynamoDB has still to do.
    """

    faults: Faults
    random: Random
    on: bool = True
    happened: Counter[str] = field(default_factory=Counter)
    late: list[Callable[[], object]] = field(default_factory=list)
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
