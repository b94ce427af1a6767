"""What `make soak` runs: simulated histories on all cores, for a time or a number, until one is wrong.

The seeds are those of the tests: a failure of CI is replayed here, and one that is found here there.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import count, islice
from multiprocessing import get_context
from random import Random

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from framework.testing import Simulation
from tests.simulation.apps import app_of, delivery_of, history_of

CHUNK = 100
SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for: one seed, a number of histories from a seed on, or as many as there is time for."""

    seed: int | None
    first: int
    histories: int | None
    seconds: float
    processes: int


def main(arguments: list[str] | None = None) -> int:
    """Exit codes: 0; 1 where a history was wrong; 2 for wrong usage; 130 when interrupted."""
    options = parsed(arguments)
    if options.seed is not None:
        return replay(options.seed)
    try:
        return soak(options)
    except KeyboardInterrupt:
        return 130


def parsed(arguments: list[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="make soak", description="Simulate histories until one is wrong.")
    parser.add_argument("--seconds", type=positive(float), default=SECONDS, help="for how long (default: %(default)s)")
    parser.add_argument("--histories", type=positive(int), help="how many, however long it takes")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--processes", type=positive(int), default=os.cpu_count(), help="default: %(default)s")
    parser.add_argument("--seed", type=int, help="replay this one, and show it")
    found = parser.parse_args(arguments)
    return Options(found.seed, found.first, found.histories, found.seconds, found.processes or 1)


def positive(kind: type[int] | type[float]) -> type:
    def parse(text: str) -> float:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise ValueError(text)
        return value

    parse.__name__ = f"positive {kind.__name__}"
    return parse  # type: ignore[return-value]


def soak(options: Options) -> int:
    began = time.monotonic()
    done, failure = 0, ""
    waiting = chunks(options)
    # Not a fork: the child would have the parent's threads, those of the progress line.
    with (
        bar(options) as progress,
        ProcessPoolExecutor(options.processes, get_context("spawn"), initializer=look_for_garbage_rarely) as pool,
    ):
        task = progress.add_task("", total=options.histories or options.seconds, done=0)
        under_way = {pool.submit(chunk, seeds) for seeds in islice(waiting, 2 * options.processes)}
        while under_way and not failure:
            ended, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for size, what in (future.result() for future in ended):
                done += size
                failure = failure or what
            spent = time.monotonic() - began
            progress.update(task, completed=done if options.histories else min(spent, options.seconds), done=done)
            if options.histories is not None or spent < options.seconds:
                under_way |= {pool.submit(chunk, seeds) for seeds in islice(waiting, len(ended))}
        pool.shutdown(wait=False, cancel_futures=True)
    if failure:
        print(failure)
        return 1
    spent = time.monotonic() - began
    print(
        f"{done:,} histories from seed {options.first} on, none wrong, in {spent:.0f} s ({done / spent:,.0f} a second)"
    )
    return 0


def bar(options: Options) -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.fields[done]} histories"), BarColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def chunks(options: Options) -> Iterator[range]:
    """Ranges of seeds; without an end where time is the limit."""
    if options.histories is None:
        for first in count(options.first, CHUNK):
            yield range(first, first + CHUNK)
    else:
        end = options.first + options.histories
        for first in range(options.first, end, CHUNK):
            yield range(first, min(first + CHUNK, end))


def look_for_garbage_rarely() -> None:
    gc.set_threshold(100_000, 20, 100)


def chunk(seeds: range) -> tuple[int, str]:
    """How many seeds were tried, and what was wrong with the last of them."""
    for seed in seeds:
        app = app_of(seed)
        try:
            run = Simulation(app, seed=seed, delivery=delivery_of(seed)).run(history_of(app)(Random(seed)))
        except Exception as error:
            return seed - seeds.start + 1, failed(seed, repr(error))
        if run.wrong:
            return seed - seeds.start + 1, failed(seed, "\n  ".join(map(str, run.wrong[:5])))
    return len(seeds), ""


def failed(seed: int, what: str) -> str:
    return f'app {app_of(seed).name!r} with seed {seed}:\n  {what}\nreplay: make soak ARGS="--seed {seed}"'


def replay(seed: int) -> int:
    app = app_of(seed)
    history = history_of(app)(Random(seed))
    print(f"app {app.name!r} by {delivery_of(seed)} with seed {seed}:", *history, sep="\n  ")
    run = Simulation(app, seed=seed, delivery=delivery_of(seed)).run(history)
    print("faults:", ", ".join(f"{name} {number}" for name, number in sorted(run.happened.items())) or "none")
    print(f"{run.aggregates} aggregates, {len(run.wrong) or 'none'} wrong", *run.wrong, sep="\n  ")
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
