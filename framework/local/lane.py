"""One shard as an event source mapping reads it: batches, windows, tries, what is given up on.

What Lambda keeps for a shard is here: the checkpoint, the batch that is not done, in pieces where it was cut, and the
state of the window. `due` says when the next thing happens, `act` does it.

AWS facts: Lambda developer guide, "Polling and batching streams", "Implementing stateful DynamoDB stream processing in
Lambda", "Retain discarded records for a DynamoDB event source in Lambda"; LocalStack's recordings of AWS, in which a
reported failure uses up a retry even if the batch made progress. How long Lambda waits between tries, nobody says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from framework.local.attempts import MOST_STATE_BYTES, Piece, Throttled, Verdict, Window, event_of, judge
from framework.local.clock import Clock
from framework.local.destinations import AGE_EXCEEDED, RETRIES_EXHAUSTED, Destination, Recorder
from framework.local.settings import FOREVER, Settings
from framework.local.streams import RETENTION_SECONDS, Entry, Shard

__all__ = ["Invoke", "Lane", "Surroundings"]

# A function: an event, and when it has to have ended, in epoch seconds.
Invoke = Callable[[dict[str, Any], float], object]

_MOST_BYTES = 6 * 1024 * 1024  # of an invocation's payload (Lambda quotas)
# Between tries: doubled each time. Ours, see above.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all shards of a mapping share.

    Attributes:
        settings: The mapping's settings.
        clock: The time.
        invoke: The function.
        timeout: Seconds that an invocation may take.
        recorder: Writes invocation records; None without a destination.
        destination: Takes them.
    """

    settings: Settings
    clock: Clock
    invoke: Invoke
    timeout: float
    recorder: Recorder | None = None
    destination: Destination | None = None


class Lane:
    """One shard and how far it is done.

    Args:
        shard: The shard.
        around: What all shards share.
        idle_since: Since when nothing has been under way before it, in epoch seconds.
        checkpoint: Where to begin.

    Attributes:
        shard: The shard.
        checkpoint: The sequence number of the last record that is done, given up on, held back or lost; 0 before any.
        idle_since: When something was last done, in epoch seconds.
        failures: Tries since anything was last done.
        reason: Why the last one failed.
        invocations: Times that the function was invoked; throttled ones do not count.
        discarded: Records given up on.
        lost: Records that expired before they were done.
    """

    def __init__(self, shard: Shard, around: Surroundings, *, idle_since: float, checkpoint: int = 0) -> None:
        self.shard = shard
        self.checkpoint = checkpoint
        self.idle_since = idle_since
        self.failures = 0
        self.reason = ""
        self.invocations = 0
        self.discarded = 0
        self.lost = 0
        self._around = around
        self._settings = around.settings
        self._clock = around.clock
        self._pieces: deque[Piece] = deque()
        self._window: Window | None = None
        self._state = "{}"
        self._not_before = 0.0
        self._throttles = 0
        self._raised = False

    @property
    def finished(self) -> bool:
        """Whether the shard has split and all of it is done, so that its children may be read."""
        return (
            self.shard.closed
            and not self._pieces
            and self._window is None
            and self.shard.first(self.checkpoint, now=self._clock.now) is None
            and not self.shard.lost(self.checkpoint, now=self._clock.now)
        )

    def due(self) -> float | None:
        """When there is something to do, in epoch seconds; None as long as nothing comes."""
        now = self._clock.now
        if self._pieces:
            return self._not_before
        if self.shard.lost(self.checkpoint, now=now) or self._is_over(self._window, self.checkpoint):
            return now
        first = self.shard.first(self.checkpoint, now=now)
        if first is None:
            return None if self._window is None else self._window.end
        before = self._end_of_window(first)
        _, full = self._next_batch(before)
        if full or self.shard.closed:
            return now
        # A batching window begins with the batch's first record, or once the function is free again if that is later.
        ready = max(first.at, self.idle_since) + self._settings.batching_window
        return min(ready, before)

    def act(self) -> None:
        """Do what is due: invoke the function, or pass over records that it does not get."""
        if not self._pieces:
            self._take()
        looked_at = None
        while self._pieces and self._pieces[0] is not looked_at:  # where all of one goes, the next may be as old
            looked_at = self._pieces[0]
            self._drop_old()
        if self._pieces:
            self._attempt(self._pieces[0])

    def _take(self) -> None:
        """Make the next batch out of what the shard has, or the end of the window."""
        now = self._clock.now
        if lost := self.shard.lost(self.checkpoint, now=now):
            self.lost += lost
            self.checkpoint = self.shard.trimmed(now=now)
            return
        if self._is_over(self._window, self.checkpoint):
            self._pieces.append(Piece(entries=(), through=self.checkpoint, since=now))
            return
        first = self.shard.first(self.checkpoint, now=now)
        if first is None:
            return
        places, _ = self._next_batch(self._end_of_window(first))
        entries = self.shard.entries(places)
        through = entries[-1].sequence
        kept = tuple(entry for entry in entries if self._settings.passes(entry.record))
        if not kept:
            self._done(through)
            return
        self._pieces.append(Piece(entries=kept, through=through, since=now))

    def _next_batch(self, before: float) -> tuple[range, bool]:
        return self.shard.batch(
            self.checkpoint,
            now=self._clock.now,
            most=self._settings.batch_size,
            most_bytes=_MOST_BYTES,
            before=before,
        )

    def _end_of_window(self, entry: Entry) -> float:
        window = self._window_of((entry,))
        return float("inf") if window is None else window.end

    def _window_of(self, entries: Sequence[Entry]) -> Window | None:
        """The window that records of a batch belong to; a batch without any ends the one that is open."""
        length = self._settings.tumbling_window
        # A record is of the window in which it was put into the stream, whenever it is processed.
        return Window.at(entries[0].at, length) if entries and length else self._window

    def _is_over(self, window: Window | None, after: int) -> bool:
        """Whether a window has no more records above a sequence number, and gets none."""
        if window is None:
            return False
        first = self.shard.first(after, now=self._clock.now)
        if first is not None:
            return first.at >= window.end
        # "When the shard ends, Lambda considers the window closed" (services-ddb-windows).
        return self.shard.closed or self._clock.now >= window.end

    def _drop_old(self) -> None:
        """Take out of the first piece what has expired or is too old for the function to get."""
        piece, now, max_age = self._pieces[0], self._clock.now, self._settings.max_age
        if not piece.entries:
            # Nothing expires where a window is ended, so that alone would be tried for ever.
            longest = RETENTION_SECONDS if max_age == FOREVER else min(RETENTION_SECONDS, max_age)
            if now - piece.since > longest:
                self._give_up(piece, AGE_EXCEEDED)
            return
        expired = sum(entry.at <= now - RETENTION_SECONDS for entry in piece.entries)
        if expired:
            self.lost += expired
            piece = self._cut(piece, expired)
        aged = 0 if max_age == FOREVER else sum(now - entry.at > max_age for entry in piece.entries)
        if aged:
            old = replace(piece, entries=piece.entries[:aged])
            self._cut(piece, aged)
            self._discard(old, AGE_EXCEEDED)

    def _cut(self, piece: Piece, count: int) -> Piece:
        """Go on with the first piece without its first records, which are done in one way or another."""
        rest = replace(piece, entries=piece.entries[count:])
        if rest.entries:
            self._pieces[0] = rest
            self.checkpoint = piece.entries[count - 1].sequence
        else:
            self._pieces.popleft()
            self._done(piece.through)
        return rest

    def _attempt(self, piece: Piece) -> None:
        window = self._window_of(piece.entries)
        final = len(self._pieces) == 1 and self._is_over(window, piece.through) and not piece.early
        event = self._event(piece, window, final=final)
        try:
            response = self._around.invoke(event, self._clock.now + self._around.timeout)
        except Throttled as error:
            self._throttles += 1
            self.reason = str(error) or "throttled"
            self._pause(self._throttles)
            return
        except Exception as error:
            verdict, self._raised = Verdict(0, f"{type(error).__name__}: {error}"), True
        else:
            reporting = self._settings.report_failures
            verdict = judge(response, piece.entries, windowed=window is not None, reporting=reporting)
            self._raised = False
        self._window = window
        self._throttles = 0
        self.invocations += 1
        piece = self._pieces[0] = replace(piece, invocations=piece.invocations + 1)
        if verdict.reason:
            self._failed(piece, verdict.reason)
        elif verdict.done < len(piece.entries):
            self._reported(piece, verdict.done)
            self._keep(verdict.state)
        else:
            self._pieces.popleft()
            self._done(piece.through)
            if final or piece.early:
                self._end_window(early=piece.early)
            else:
                self._keep(verdict.state)

    def _event(self, piece: Piece, window: Window | None, *, final: bool) -> dict[str, Any]:
        return event_of(
            piece.entries,
            self.shard.stream_arn,
            self.shard.shard_id,
            window=window,
            state=self._state,
            final=final,
            early=piece.early,
        )

    def _failed(self, piece: Piece, reason: str) -> None:
        """The first piece has failed as a whole: cut it in two, try again, or give up."""
        self.failures += 1
        self.reason = reason
        self._pause(self.failures)
        half = len(piece.entries) // 2
        if self._settings.bisect and half:
            # "Splitting batches doesn't consume the retry quota" (services-dynamodb-errors).
            left, right = piece.entries[:half], piece.entries[half:]
            self._pieces[0] = replace(piece, entries=right)
            self._pieces.appendleft(replace(piece, entries=left, through=left[-1].sequence))
        else:
            self._try_again(piece)

    def _reported(self, piece: Piece, done: int) -> None:
        """The first piece comes again from a record on: it is split there, with bisecting or without."""
        if done:
            self._done(piece.entries[done - 1].sequence)
        rest = replace(piece, entries=piece.entries[done:])
        self.failures += 1
        self.reason = f"reported from sequence number {rest.entries[0].sequence} on"
        self._pause(self.failures)
        self._try_again(rest)

    def _try_again(self, piece: Piece) -> None:
        """Let the first piece come again, if a retry is left."""
        retries = self._settings.retries
        if retries != FOREVER and piece.retries >= retries:
            self._give_up(piece, RETRIES_EXHAUSTED)
        else:
            self._pieces[0] = replace(piece, retries=piece.retries + 1)

    def _give_up(self, piece: Piece, condition: str) -> None:
        """Go on without the first piece: its records, or the end of a window."""
        self._pieces.popleft()
        if piece.entries:
            self._discard(piece, condition)
        else:
            self._end_window(early=piece.early)
        self._done(piece.through)

    def _discard(self, piece: Piece, condition: str) -> None:
        """Send records to the destination, if there is one."""
        self.discarded += len(piece.entries)
        recorder, destination = self._around.recorder, self._around.destination
        if recorder is not None and destination is not None:
            event = self._event(piece, self._window_of(piece.entries), final=False)
            now, raised = self._clock.now, self._raised
            destination(recorder.record(piece, self.shard, condition=condition, now=now, raised=raised, event=event))

    def _keep(self, state: str) -> None:
        """Keep the window's state; one that has grown too large ends the window early, and then it goes on."""
        if self._window is not None:
            self._state = state
            if len(state.encode()) > MOST_STATE_BYTES:
                end = Piece(entries=(), through=self.checkpoint, since=self._clock.now, early=True)
                self._pieces.appendleft(end)

    def _end_window(self, *, early: bool) -> None:
        self._state = "{}"
        if not early:
            self._window = None

    def _done(self, through: int) -> None:
        """Something is done with all records up to one."""
        self.checkpoint = max(self.checkpoint, through)
        self.failures = 0
        self.reason = ""
        self._not_before = 0.0
        self.idle_since = self._clock.now

    def _pause(self, tries: int) -> None:
        self._not_before = self._clock.now + min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(tries - 1, 10))
