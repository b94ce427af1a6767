"""What was measured, as Markdown, as JSON, and against the targets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.archives import Archived
from benchmarks.extremes import Step
from benchmarks.indexes import Read, Written

__all__ = ["Row", "Target", "extremes_text", "indexes_text", "markdown", "row_of", "targets"]

# handler, records, songs, latency_ms, requests, wcu, seconds, cpu_seconds, peak_mb, records_per_second
Row = dict[str, Any]

_HOW = """\
Each row is one event, one invocation, with all its records (Lambda hands over at most 10,000). DynamoDB is an
engine in the same process behind a real boto3 client, which answers after the latency: `seconds` and
`CPU s` hold all of the client's own work and some 50 µs of the engine's a request. Every aggregate exists
before. WCU is by AWS's rules, index writes and transactions included. Each row has a process of its own, and
what the handler wrote is compared with a recount; where a run takes less than a second, the median of five
stands. `peak MB` is by how much the process grows above the event that is there already: the peak resident
size of a second fresh process, whose DynamoDB keeps nothing and answers at once (measured once for both
latencies). 1,000 records are of at most 1,000 songs; a row that is missing is measured with `--full`."""


_COLUMNS = (
    "handler",
    "records",
    "songs",
    "latency ms",
    "requests",
    "WCU",
    "seconds",
    "CPU s",
    "peak MB",
    "records/s",
)


@dataclass(frozen=True, slots=True)
class Target:
    """What was to be reached.

    Attributes:
        name: In words.
        reached: Whether it is.
        came: What was measured.
        exact: A count, which no slow machine excuses.
    """

    name: str
    reached: bool
    came: str
    exact: bool


def row_of(case: dict[str, Any], cost: dict[str, Any], peak_mb: float) -> Row:
    """A row, with its keys in order."""
    return {
        **case,
        "requests": cost["requests"],
        "wcu": cost["wcu"],
        "seconds": round(cost["seconds"], 4),
        "cpu_seconds": round(cost["cpu_seconds"], 4),
        "peak_mb": round(peak_mb, 2),
        "records_per_second": round(case["records"] / cost["seconds"]),
    }


def targets(
    rows: Sequence[Row], fold: dict[str, float], start: dict[str, float], entry: dict[str, float]
) -> list[Target]:
    """Each target with what came."""
    found = {(row["handler"], row["records"], row["songs"], row["latency_ms"]): row for row in rows}
    cheap = found["streamfold", 1000, 100, 0]
    beside = ", ".join(
        f"{name} {found[name, 1000, 100, 0]['wcu']:,} and {found[name, 1000, 100, 0]['requests']:,}"
        for name in ("guide", "powertools", "claims")
    )
    fast, slow = found["streamfold", 10_000, 100, 4], found["guide", 10_000, 100, 4]
    times = fast["records_per_second"] / slow["records_per_second"]
    songs = sorted({row["songs"] for row in rows if row["records"] == 10_000})
    writes = [found["streamfold", 10_000, each, 0]["requests"] for each in songs]
    added, ratio = start["added"], fold["ratio"]
    return [
        Target(
            "1,000 records of 100 songs: at most 300 WCU and 100 requests",
            cheap["wcu"] <= 300 and cheap["requests"] <= 100,
            f"{cheap['wcu']} and {cheap['requests']} ({beside})",
            exact=True,
        ),
        Target(
            "10,000 records: one write for each distinct aggregate",
            writes == songs,
            ", ".join(f"{each:,} for {song:,}" for each, song in zip(writes, songs, strict=True)),
            exact=True,
        ),
        Target(
            "10,000 records of 100 songs at 4 ms: at least 100 times the guide's records a second",
            times >= 100,
            f"{times:.0f} times",
            exact=False,
        ),
        Target("decode and fold: at least 0.3 of a bare loop", ratio >= 0.3, f"{ratio:.2f}", exact=False),
        Target("decode and fold: 0.45 of a bare loop (aim)", ratio >= 0.45, f"{ratio:.2f}", exact=False),
        Target("cold start: at most 100 ms above boto3", added <= 100, f"{added:.0f} ms", exact=False),
        Target(
            "quarantine and metrics: at most 10 % of a batch on which all goes well",
            entry["added"] <= 0.1,
            f"{entry['added']:.1%}",
            exact=False,
        ),
    ]


def markdown(
    rows: Sequence[Row],
    lines: Sequence[Row],
    fold: dict[str, float],
    start: dict[str, float],
    entry: dict[str, float],
    steps: Sequence[tuple[Step, Step]],
    written: Sequence[Written],
    read: Sequence[Read],
    archives: Sequence[Archived],
    reached: Iterable[Target],
) -> str:
    """The whole report."""
    parts = [
        "# Benchmark",
        _HOW,
        _table(
            _COLUMNS,
            (_cells(row) for row in rows),
        ),
        "## Decode and fold alone",
        f"Through the Powertools-based processor {fold['fold']:,.0f} ns a record, a bare loop over the "
        f"dicts that only counts {fold['bare']:,.0f} ns: {fold['ratio']:.2f} of its speed. "
        "Best of interleaved runs.",
        "## Cold start",
        f"`import boto3` and a client {start['boto3']:.0f} ms, our entry ready (its client included) "
        f"{start['ready']:.0f} ms: {start['added']:.0f} ms more. Medians of fresh, "
        "interleaved processes, modules compiled.",
        "## Quarantine and metrics",
        f"1,000 records of 100 songs, 0 ms, in a warm process: {entry['bare'] * 1000:.0f} ms without control table and "
        f"metrics, {entry['whole'] * 1000:.0f} ms with both: {entry['added']:.1%} more. Medians of interleaved runs.",
        "## Time and memory by records",
        "Streamfold, 100 songs, 0 ms, each size as one event (20,000 are more than Lambda hands over).",
        _table(
            ("records", "requests", "seconds", "peak MB", "µs a further record"),
            _growth(lines),
        ),
        *extremes_text(steps),
        *indexes_text(written, read),
        *archives_text(archives),
        "## Targets",
        _table(
            ("target", "reached", "measured"),
            ((each.name, "yes" if each.reached else "**no**", each.came) for each in reached),
        ),
    ]
    return "\n\n".join(parts) + "\n"


def extremes_text(steps: Sequence[tuple[Step, Step]]) -> list[str]:
    """What Min and Max cost."""
    return [
        "## Min and Max",
        "A count, a Min and a Max of random values, 100 aggregates, batches of 1,000 records one after the "
        "other, each in a fresh process and all in one. A batch that improves an extreme takes a refused write and "
        "another one, unless the process knows the extreme.",
        _table(
            ("batch", "requests an aggregate", "WCU an aggregate", "in one process", "WCU there"),
            (
                (str(fresh.batch), *(f"{n / 100:.2f}" for n in (fresh.requests, fresh.wcu, one.requests, one.wcu)))
                for fresh, one in steps
                if fresh.batch in (1, 2, 3, 5, 10, 20)
            ),
        ),
    ]


def archives_text(archives: Sequence[Archived]) -> list[str]:
    """What an archive costs."""
    columns = ("items a batch", "puts for 1,000 items", "WCU for 1,000 items", "RCU for 1,000 items", "bytes an item")
    return [
        "## Archives",
        f"{archives[0].items:,} items that expire, in batches a minute apart, into an archive by day. With an object "
        "for each item it would be 1,000 puts for 1,000 items.",
        _table(
            columns,
            (
                (f"{a.batch:,}", *(f"{n / a.items:.1f}" for n in (1000 * a.puts, 1000 * a.wcu, 1000 * a.rcu, a.size)))
                for a in archives
            ),
        ),
    ]


def indexes_text(written: Sequence[Written], read: Sequence[Read]) -> list[str]:
    """What indexes with a threshold or shards cost to write, and what the top ten cost to read."""
    return [
        "## Charts",
        "20,000 downloads of up to 10,000 songs, the r-th as often as 1/r, in batches of 1,000 one after the other. An "
        "aggregate below the threshold costs the index nothing. A fresh process for each batch does not know which are "
        "above it: of those it takes a refused write and another one.",
        _table(
            ("index", "requests a record", "WCU a record", "entries"),
            ((w.index, f"{w.requests / w.records:.3f}", f"{w.wcu / w.records:.3f}", f"{w.entries:,}") for w in written),
        ),
        "The top ten of 100,000 aggregates, through a boto3 client whose requests are answered after 4 ms.",
        _table(
            ("read by", "requests", "read units", "seconds"),
            ((r.way, f"{r.requests:,}", f"{r.read_units:,.1f}", f"{r.seconds:.3f}") for r in read),
        ),
    ]


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row["handler"],
        f"{row['records']:,}",
        f"{row['songs']:,}",
        f"{row['latency_ms']:g}",
        f"{row['requests']:,}",
        f"{row['wcu']:,}",
        f"{row['seconds']:.3f}",
        f"{row['cpu_seconds']:.3f}",
        f"{row['peak_mb']:.1f}",
        f"{row['records_per_second']:,}",
    )


def _growth(lines: Sequence[Row]) -> Iterable[tuple[str, ...]]:
    before: Row | None = None
    for row in lines:
        further = ""
        if before is not None:
            further = f"{(row['seconds'] - before['seconds']) / (row['records'] - before['records']) * 1e6:.1f}"
        before = row
        numbers = (
            f"{row['records']:,}",
            f"{row['requests']:,}",
            f"{row['seconds']:.3f}",
            f"{row['peak_mb']:.1f}",
        )
        yield (*numbers, further)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    # Numbers to the right: every column but one of words.
    words = {"handler", "index", "measured", "reached", "read by", "target"}
    rule = ["---" if name in words else "--:" for name in header]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *rows))
