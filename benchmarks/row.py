"""One row of the table, measured in a process of its own.

    python -m benchmarks.row time|memory HANDLER RECORDS SONGS LATENCY_MS

*time* runs the handler against the engine in memory behind a real boto3 client and recounts what it wrote.
Every aggregate exists before (each song was downloaded once through the same handler), so that an update
moves its index entry, as all but an aggregate's first do. The median of several runs is taken where one is
short.

*memory* runs it once against a service that keeps nothing, so what the process grows by is the handler's.
"""

from __future__ import annotations

import gc
import json
import resource
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.alternatives import HANDLERS, TABLE, TABLES, Handler
from benchmarks.events import Counts, event_of, recount
from framework.local.bridge import boto3_client
from framework.local.memory import MemoryDynamoDB

__all__ = ["Case", "Cost", "WrongCountError", "cost_of", "peak_of"]

_LONG_RUN = 1.0  # seconds: from here on one run says enough
_RUNS = 5
_MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured."""

    handler: str
    records: int
    songs: int
    latency_ms: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What one event took.

    Attributes:
        requests: Requests to DynamoDB.
        wcu: Write units by AWS's rules, index writes included.
        seconds: Wall clock.
        cpu_seconds: Processor time of all threads, the engine's share (some 50 µs a request) included.
    """

    requests: int
    wcu: int
    seconds: float
    cpu_seconds: float


class WrongCountError(Exception):
    """A handler's result differs from the recount: its row would mean nothing."""


def cost_of(case: Case, *, runs: int = _RUNS) -> Cost:
    """Measure what a handler takes for one event, and check what it wrote.

    Raises:
        WrongCountError: The aggregates differ from the recount, or a run cost other requests than the first.
    """
    engine = MemoryDynamoDB()
    for table in TABLES:
        engine.create_table(**table)
    handler = HANDLERS[case.handler](boto3_client(engine, latency=case.latency_ms / 1000))
    first = event_of(case.songs, case.songs)
    # The first aggregates are made without the delay: for 10,000 songs it would take the longest.
    HANDLERS[case.handler](boto3_client(engine))(first)
    counts = recount(first)
    start = case.songs
    costs: list[Cost] = []
    while not costs or (len(costs) < runs and costs[0].seconds < _LONG_RUN):
        event = event_of(case.records, case.songs, start=start)
        start += case.records
        counts += recount(event)
        costs.append(_timed(handler, event, engine))
    _check(case, engine, counts, costs)
    return Cost(
        costs[0].requests,
        costs[0].wcu,
        statistics.median(cost.seconds for cost in costs),
        statistics.median(cost.cpu_seconds for cost in costs),
    )


def _timed(handler: Handler, event: dict[str, Any], engine: MemoryDynamoDB) -> Cost:
    requests, wcu = engine.requests.total(), engine.wcu
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    handler(event)
    seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - processor
    return Cost(engine.requests.total() - requests, engine.wcu - wcu, seconds, cpu_seconds)


def _check(case: Case, engine: MemoryDynamoDB, counts: Counts, costs: list[Cost]) -> None:
    written = _aggregates(engine)
    if written != counts:
        song = next(iter((counts - written) + (written - counts)))
        raise WrongCountError(f"{case}: {song}: expected {counts[song]}, came {written[song]}")
    if len({(cost.requests, cost.wcu) for cost in costs}) > 1:
        raise WrongCountError(f"{case}: expected every run to cost the same, came {costs}")


def _aggregates(engine: MemoryDynamoDB) -> Counts:
    found: Counts = Counts()
    request: dict[str, Any] = {"TableName": TABLE, "IndexName": "MonthDownloadsIndex"}
    while True:
        page = engine.scan(**request)
        for item in page["Items"]:
            found[item["songID"]["S"], item["Month"]["S"]] += int(item["DownloadCount"]["N"])
        if "LastEvaluatedKey" not in page:
            return found
        request["ExclusiveStartKey"] = page["LastEvaluatedKey"]


class _Forgetful:
    """A DynamoDB that takes everything and keeps nothing."""

    def update_item(self, **_: Any) -> dict[str, Any]:
        return {"Attributes": {}}

    def put_item(self, **_: Any) -> dict[str, Any]:
        return {}

    def transact_write_items(self, **_: Any) -> dict[str, Any]:
        return {}


def peak_of(case: Case) -> float:
    """By how many megabytes the process grows at most while a handler works on an event that is there.

    To be called in a fresh process: memory that was used before is used again without growth.
    """
    client: Any = boto3_client(_Forgetful())  # type: ignore[arg-type]  # answers as the engine does
    handler = HANDLERS[case.handler](client)
    warm = min(case.songs, 32)
    handler(event_of(warm, warm))  # makes the client's caches and the threads' first stacks
    event = event_of(case.records, case.songs, start=warm)
    gc.collect()
    before = _reset_peak()
    handler(event)
    return max(0.0, _peak() - before) / _MEGABYTE


def _reset_peak() -> int:
    """The bytes resident now, from which on the peak is counted."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM to what is resident (proc(5))
    except OSError:
        pass  # not Linux: the peak so far is then the start, which is near, as nothing was freed before
    return _peak()


def _peak() -> int:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else used * 1024
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def main() -> None:
    """Measure what the command line names and print it as JSON."""
    what, handler, records, songs, latency_ms = sys.argv[1:]
    case = Case(handler, int(records), int(songs), float(latency_ms))
    result = asdict(cost_of(case)) if what == "time" else {"peak_mb": peak_of(case)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
