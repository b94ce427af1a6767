"""Decode and fold alone, through the Powertools-based processor, beside a bare loop that only counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.alternatives import TABLE
from benchmarks.events import LARGEST_BATCH, event_of
from framework.consumer import route
from framework.decode import decode
from framework.fold import Folded, compile_fold
from framework.report import StreamProcessor
from handlers.app import app

__all__ = ["fold_speed"]

_SONGS = 100


def fold_speed(*, records: int = LARGEST_BATCH, runs: int = 15) -> dict[str, float]:
    """Nanoseconds a record of both, the best of interleaved runs, and the share of the bare loop's speed.

    Raises:
        AssertionError: The two do not count the same.
    """
    event = event_of(records, _SONGS)
    (declaration,) = app.sourced_from(TABLE)
    start = compile_fold(declaration)

    def bare() -> dict[tuple[str, str], int]:
        counts: dict[tuple[str, str], int] = {}
        for record in event["Records"]:
            image = record["dynamodb"]["NewImage"]
            if image["SK"]["S"].startswith("download-"):
                key = (image["songID"]["S"], image["Timestamp"]["S"][:7])
                counts[key] = counts.get(key, 0) + 1
        return counts

    def ours() -> Folded:
        batch = decode(event)
        folded, fold = start()
        processor = StreamProcessor(lambda: None)
        with processor(batch.records, route(batch, [fold])):
            processor.process()
        return folded

    if {key: len(bucket) for key, bucket in ours().buckets.items()} != bare():
        raise AssertionError("expected the fold to count what the bare loop counts")
    best = _best_of(runs, {"bare": bare, "fold": ours})
    nanoseconds = {name: seconds / records * 1e9 for name, seconds in best.items()}
    return {**nanoseconds, "ratio": best["bare"] / best["fold"]}


def _best_of(runs: int, functions: dict[str, Callable[[], Any]]) -> dict[str, float]:
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(runs):
        for name, function in functions.items():
            begin = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best
