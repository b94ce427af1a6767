"""Measure speed and write cost beside the alternatives: `make bench`, or `python -m benchmarks [--full]`.

Writes `results.md` and `results.json` (the rows) beside this file. Exits with 1 if a handler's counts are
wrong or a target about counts is missed; times are only reported, as they are the machine's too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.alternatives import HANDLERS
from benchmarks.archives import archived
from benchmarks.entry import entry_cost
from benchmarks.extremes import extremes
from benchmarks.fold import fold_speed
from benchmarks.indexes import reads, writes
from benchmarks.report import Row, markdown, row_of, targets
from benchmarks.row import Case
from benchmarks.start import cold_start

_T = TypeVar("_T")

_FOLDER = Path(__file__).resolve().parent
_LATENCIES = (0, 4)
_SONGS = (10, 100, 10_000)
_SIZES = (1000, 2000, 5000, 10_000, 20_000)
# For the time left: requests a record, and milliseconds of a request that the processor needs.
_REQUESTS = {"guide": 1, "powertools": 3, "claims": 1}
_REQUEST_MS = 1.3


def main() -> int:
    """Measure, print, write; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--full",
        action="store_true",
        help="the alternatives at 10,000 records of 10 and 10,000 songs as well: half an hour more",
    )
    cases = list(_cases(full=parser.parse_args().full))
    lines = [Case("streamfold", size, 100, 0) for size in _SIZES]
    once = sorted({_at_once(case) for case in (*cases, *lines)}, key=_estimate, reverse=True)
    in_parallel = sum(map(_estimate, once)) / (os.cpu_count() or 1)
    timed = sum(map(_estimate, (*cases, *lines)))
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<45}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=console, transient=True, speed_estimate_period=3600) as progress:
            bar = _Bar(progress, 76 + in_parallel + timed)
            fold = bar.step("decode and fold", 2, fold_speed)
            start = bar.step("cold starts", 15, cold_start)
            entry = bar.step("quarantine and metrics", 8, entry_cost)
            fresh = bar.step("Min and Max, fresh processes", 2, partial(extremes, fresh=True))
            steps = bar.step("Min and Max", 2, extremes)
            written = bar.step("charts, written", 12, writes)
            read = bar.step("charts, read", 30, reads)
            archives = bar.step("archives", 5, archived)
            peaks = bar.step("peak memory of every row", in_parallel, partial(_peaks, once))
            growth = _rows(lines, peaks, bar)
            rows = _rows(cases, peaks, bar)
    except subprocess.CalledProcessError as error:
        print(f"benchmarks: {' '.join(error.cmd[2:])}: {error.stderr}", file=sys.stderr)
        return 1
    reached = targets(rows, fold, start, entry)
    pairs = list(zip(fresh, steps, strict=True))
    text = markdown(rows, growth, fold, start, entry, pairs, written, read, archives, reached)
    (_FOLDER / "results.md").write_text(text)
    (_FOLDER / "results.json").write_text(json.dumps(rows, indent=1) + "\n")
    if sys.stdout.isatty():
        Console().print(Markdown(text))
    else:
        print(text)  # Rich would squeeze the tables into the 80 columns of a pipe.
    return int(any(target.exact and not target.reached for target in reached))


def _cases(*, full: bool) -> Iterator[Case]:
    for records in (1000, 10_000):
        for songs in _SONGS:
            for latency in _LATENCIES:
                for handler in HANDLERS:
                    if full or handler == "streamfold" or records == 1000 or songs == 100:
                        yield Case(handler, records, min(songs, records), latency)


class _Bar:
    """A bar that knows what is left from estimates, and from how far those were off so far."""

    def __init__(self, progress: Progress, seconds: float) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=seconds)

    def step(self, name: str, seconds: float, work: Callable[[], _T]) -> _T:
        """Do one piece of work that should take some seconds."""
        self._progress.update(self._task, description=name)
        if not self._progress.console.is_terminal:
            self._progress.console.print(name, highlight=False)
        done = work()
        self._progress.advance(self._task, seconds)
        return done


def _estimate(case: Case) -> float:
    """About how many seconds a row takes."""
    if case.handler == "streamfold":
        return 1 + case.songs * (_REQUEST_MS + case.latency_ms / 10) / 1000
    return 1 + case.records * _REQUESTS[case.handler] * (_REQUEST_MS + case.latency_ms) / 1000


def _peaks(cases: Sequence[Case]) -> dict[Case, float]:
    """Peak memory, on all processors at once, as nothing here is timed."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda case: _measured("memory", case)["peak_mb"], cases)
        return dict(zip(cases, found, strict=True))


def _rows(cases: Sequence[Case], peaks: dict[Case, float], bar: _Bar) -> list[Row]:
    rows = []
    for case in cases:
        name = f"{case.handler}, {case.records:,} of {case.songs:,} songs, {case.latency_ms:g} ms"
        cost = bar.step(name, _estimate(case), partial(_measured, "time", case))
        rows.append(row_of(asdict(case), cost, peaks[_at_once(case)]))
    return rows


def _at_once(case: Case) -> Case:
    return replace(case, latency_ms=0)


def _measured(what: str, case: Case) -> dict[str, Any]:
    arguments = [what, case.handler, str(case.records), str(case.songs), str(case.latency_ms)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.row", *arguments],
        cwd=_FOLDER.parent,
        capture_output=True,
        check=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    sys.exit(main())
