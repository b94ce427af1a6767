"""The event source of Lambda for DynamoDB streams, on a simulated clock.

    stream = Stream(arn)
    mapping = Mapping(Settings(tumbling_window=900), stream, function, clock)
    stream.shard_of("a").append(record, at=clock.now)
    mapping.run()

A mapping reads every shard of a stream from its start, a shard before its children, and brings the records to a
function as Lambda would, batch by batch and again where that failed. Nothing here is left to chance: the same stream,
the same function and the same clock give the same invocations. What Lambda does with one shard is in `lane`.
"""

from __future__ import annotations

from collections import abc

from framework.errors import ConfigurationError
from framework.local.attempts import FunctionError, Throttled, TimedOut
from framework.local.clock import Clock
from framework.local.destinations import Destination, InvocationRecord, Recorder
from framework.local.lane import Invoke, Lane, Surroundings
from framework.local.settings import FOREVER, Settings
from framework.local.streams import Stream

__all__ = [
    "FOREVER",
    "FunctionError",
    "InvocationRecord",
    "Mapping",
    "Settings",
    "Throttled",
    "TimedOut",
]


class Mapping:
    """An event source mapping.

    The function is called with an event and the moment, in epoch seconds, when it has to have ended. It returns its
    response, raises `Throttled` if it was not invoked, and whatever `Exception` else it raises is a failure of it. What
    is no `Exception` passes through, as if the mapping had stopped in the middle: the batch comes again.

    Args:
        settings: The settings.
        stream: The stream.
        invoke: The function.
        clock: The time. Only `run` moves it; the function may.
        destination: Takes the invocation records of `settings.destination`.
        function: The function's name, for invocation records.
        timeout: Seconds that an invocation may take.
        checkpoints: Where to begin, by shard, as `checkpoints` of another mapping was at some time: one that goes on
            in its place, or a second one beside it.

    Raises:
        ConfigurationError: The settings name a destination and none is given, or the other way round.
    """

    def __init__(
        self,
        settings: Settings,
        stream: Stream,
        invoke: Invoke,
        clock: Clock,
        *,
        destination: Destination | None = None,
        function: str = "function",
        timeout: float = 60.0,
        checkpoints: abc.Mapping[str, int] | None = None,
    ) -> None:
        if (settings.destination is None) is not (destination is None):
            raise ConfigurationError(
                f"Mapping: destination: expected one that takes the records for {settings.destination!r}, "
                f"came {destination!r}"
            )
        kind = settings.destination
        self._around = Surroundings(
            settings=settings,
            clock=clock,
            invoke=invoke,
            timeout=timeout,
            recorder=None if kind is None else Recorder(kind, stream.arn, function),
            destination=destination,
        )
        self._clock = clock
        self._began = clock.now
        self._stream = stream
        self._starts = dict(checkpoints or {})
        self._lanes: dict[str, Lane] = {}
        self._active: list[Lane] = []
        self._turn = 0
        self._readable()

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The shards that are or were read, each with how far it is and what happened."""
        return tuple(self._lanes.values())

    @property
    def checkpoints(self) -> dict[str, int]:
        """The sequence number of the last record that is done, by shard."""
        return {lane.shard.shard_id: lane.checkpoint for lane in self._lanes.values()}

    @property
    def invocations(self) -> int:
        """Times that the function was invoked."""
        return sum(lane.invocations for lane in self._lanes.values())

    @property
    def discarded(self) -> int:
        """Records given up on."""
        return sum(lane.discarded for lane in self._lanes.values())

    @property
    def lost(self) -> int:
        """Records that expired before they were done."""
        return sum(lane.lost for lane in self._lanes.values())

    def due(self) -> float | None:
        """When there is something to do, in epoch seconds; None as long as no record comes."""
        return min((due for lane in self._readable() if (due := lane.due()) is not None), default=None)

    def step(self) -> bool:
        """Do one thing that is due now: shards take turns. No time passes but what the function lets pass.

        Returns:
            Whether there was anything to do.
        """
        lanes = self._readable()
        for place in range(len(lanes)):
            turn = (self._turn + place) % len(lanes)
            due = lanes[turn].due()
            if due is not None and due <= self._clock.now:
                self._turn = turn + 1
                lanes[turn].act()
                return True
        return False

    def run(self, until: float | None = None) -> None:
        """Do whatever comes due, and let time pass in between.

        Args:
            until: When to stop, in epoch seconds, after what is due just then. Without it, when nothing is left: every
                record is done, given up on or lost, and every window has ended.
        """
        while (due := self.due()) is not None and (until is None or max(due, self._clock.now) <= until):
            self._clock.wait_until(due)
            self.step()
        if until is not None:
            self._clock.wait_until(until)

    def _readable(self) -> list[Lane]:
        """The shards that may be read and are not done."""
        if any(lane.finished for lane in self._active):
            self._active = [lane for lane in self._active if not lane.finished]
        # A parent stands before its children, so that one pass finds also the children of one that has nothing left.
        for shard in self._stream.shards if len(self._lanes) < len(self._stream.shards) else ():
            parent = None if shard.parent is None else self._lanes.get(shard.parent.shard_id)
            ready = shard.parent is None or (parent is not None and parent.finished)
            if ready and shard.shard_id not in self._lanes:
                # Not from now on, for it must not matter how often somebody looks.
                since = self._began if parent is None else parent.idle_since
                lane = Lane(shard, self._around, idle_since=since, checkpoint=self._starts.get(shard.shard_id, 0))
                self._lanes[shard.shard_id] = lane
                self._active.append(lane)
        return self._active
