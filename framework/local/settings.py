"""The settings of an event source mapping, within the limits that Lambda sets them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from framework.errors import ConfigurationError, shortened
from framework.filters import MOST_PATTERNS
from framework.local.filtering import compiled

__all__ = ["FOREVER", "Settings"]

FOREVER = -1  # no limit, as Lambda spells it

# Lambda API reference, CreateEventSourceMapping: the least and the most of each number.
_LIMITS = {
    "batch_size": (1, 10_000),
    "batching_window": (0, 300),
    "tumbling_window": (0, 900),
    "retries": (FOREVER, 10_000),
    "max_age": (60, 604_800),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a mapping that reads a DynamoDB stream.

    Attributes:
        batch_size: The most records that are read for a batch.
        batching_window: Seconds that a batch waits for more records, from its first one on.
        tumbling_window: Seconds of a window, 0 for none.
        parallelization: Batches of a shard under way at once; only 1 is simulated.
        retries: How often a failed batch comes again; `FOREVER` until its records expire.
        max_age: Seconds after which a record is given up on; `FOREVER` for when it expires.
        bisect: Whether a batch that fails is cut in two.
        report_failures: Whether the function says from where on a batch comes again.
        filters: Patterns, of which a record has to match one; without any every record passes.
        destination: What gets an invocation record for the records given up on.
        passes: Whether the filters let a record pass.

    Raises:
        ConfigurationError: A value that Lambda would refuse.
    """

    batch_size: int = 100
    batching_window: int = 0
    tumbling_window: int = 0
    parallelization: int = 1
    retries: int = FOREVER
    max_age: int = FOREVER
    bisect: bool = False
    report_failures: bool = False
    filters: tuple[Mapping[str, Any], ...] = ()
    destination: Literal["s3", "sqs"] | None = None
    passes: Callable[[Mapping[str, Any]], bool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, (least, most) in _LIMITS.items():
            value = getattr(self, name)
            # A bool is an int in Python and a wrong value here.
            if type(value) is not int or not (least <= value <= most or (name == "max_age" and value == FOREVER)):
                either = f"{FOREVER} or " if name == "max_age" else ""
                raise _wrong(name, f"{either}a whole number from {least:,} to {most:,}", value)
        if type(self.parallelization) is not int or self.parallelization != 1:
            raise _wrong("parallelization", "1, for a shard's batches go one by one here", self.parallelization)
        for name in ("bisect", "report_failures"):
            if type(getattr(self, name)) is not bool:
                raise _wrong(name, "a bool", getattr(self, name))
        if self.destination not in (None, "s3", "sqs"):
            raise _wrong("destination", "'s3', 'sqs' or None", self.destination)
        self._check_filters()

    def _check_filters(self) -> None:
        if not isinstance(self.filters, tuple) or len(self.filters) > MOST_PATTERNS:
            raise _wrong("filters", f"a tuple of at most {MOST_PATTERNS} patterns", self.filters)
        try:
            object.__setattr__(self, "passes", compiled(self.filters))
        except ValueError as error:
            raise ConfigurationError(f"Settings: filters: {error}") from None


def _wrong(name: str, expected: str, came: object) -> ConfigurationError:
    return ConfigurationError(f"Settings: {name}: expected {expected}, came {shortened(came)}")
