"""A simulated clock: time passes when somebody says so, and a day takes no time at all."""

from __future__ import annotations

from framework.errors import ConfigurationError, shortened

__all__ = ["Clock"]


class Clock:
    """The time of a simulation, which never goes back.

    What simulates and what is simulated share one clock: the function that a mapping invokes may let time pass.

    Args:
        now: The time at the start, in epoch seconds.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = float(now)

    @property
    def now(self) -> float:
        """The time in epoch seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            ConfigurationError: Less than no time, or none that can be told.
        """
        if not 0 <= seconds < float("inf"):
            raise ConfigurationError(f"clock: expected 0 seconds or more, came {shortened(seconds)}")
        self._now += seconds

    def sleep(self, seconds: float) -> None:
        """Let time pass, under the name that `time` has for it, to be given to what waits.

        Raises:
            ConfigurationError: Less than no time, or none that can be told.
        """
        self.advance(seconds)

    def wait_until(self, moment: float) -> None:
        """Let time pass up to a moment; one that is over changes nothing.

        It is hit exactly: a sum of differences of floats may end just before it, for ever.
        """
        self._now = max(self._now, moment)
