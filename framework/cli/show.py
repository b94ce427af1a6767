"""What a person sees: progress, charts, bad records."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.bar import Bar
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid
from rich.text import Text

from framework.aggregation import Aggregation
from framework.local import Drained
from framework.measures import Number
from framework.reading import Aggregate, Series

__all__ = ["bad_records", "bars", "chart", "complain", "entry", "progress", "ranked_by", "ranking", "series", "table"]

_MOST_NAMED = 20
_MOST_CHARTED = 10
_COLUMNS = "▁▂▃▄▅▆▇█"


class _Console(Console):
    """rich's own ends the process as failed when whoever read its output has seen enough."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


@contextmanager
def progress(title: str, *, unit: str = "records") -> Iterator[Callable[[int, float | None], None]]:
    """A progress bar on standard error, with the time that is left; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda records, share: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn(f"{{task.fields[records]:,}} {unit}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0, records=0)

        def advance(records: int, share: float | None) -> None:
            bar.update(task, completed=share or 0.0, records=records)

        yield advance


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows beneath the names of their columns, nothing left out: folded in a terminal, whole lines elsewhere."""
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column, overflow="fold")
    for row in rows:
        grid.add_row(*map(Text, row))
    (_Console() if sys.stdout.isatty() else _Console(width=10_000)).print(grid)


def chart(title: str, found: Sequence[Aggregate], measure: str) -> None:
    """Aggregates as horizontal bars."""
    print(title)
    bars([(_group(one), one[measure] or 0) for one in found])


def entry(one: Aggregate, measure: str) -> str:
    """An aggregate as a line of its own, of however many: its value, a tab and its group."""
    return f"{one[measure] or 0:,}\t{_printable(_group(one))}"


def _group(one: Aggregate) -> str:
    return " ".join(one.group) if isinstance(one.group, tuple) else str(one.group)


def _printable(text: str) -> str:
    """A text whose characters cannot move the cursor."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def series(title: str, found: Series, measure: str) -> None:
    """A series as one line of columns, then as horizontal bars, and the total of every measure."""
    values = [one[measure] or 0 for one in found]
    print(f"{title}: {measure} {_sparkline(values)}")
    bars([(one.window, value) for one, value in zip(found, values, strict=True)])
    shown = (f"{name} {'none' if value is None else f'{value:,}'}" for name, value in found.total.values.items())
    print(f"together: {', '.join(shown)}")


def _sparkline(values: Sequence[Number]) -> str:
    """Numbers as columns of up to eight eighths: the lowest for nothing and less, the highest for the greatest."""
    most = max(values)
    return "".join(_COLUMNS[round(7 * (value / most)) if value > 0 else 0] for value in values)


def bars(rows: Sequence[tuple[str, Number]]) -> None:
    """Names with numbers as horizontal bars."""
    grid = Grid(box=None, show_header=False)
    most = max((float(value) for _, value in rows), default=0.0)
    for name, value in rows:
        # As text, for in a plain string rich would read [...] as markup.
        bar = Bar(most or 1.0, 0, max(float(value), 0.0), width=40)
        grid.add_row(Text(_printable(name), overflow="ellipsis", no_wrap=True), f"{value:,}", bar)
    _Console().print(grid)


def ranking(title: str, aggregation: type[Aggregation], found: Iterable[Aggregate]) -> None:
    """The ten greatest of some aggregates, by the measure of the index or else the first one."""
    measure = ranked_by(aggregation)
    best = heapq.nlargest(_MOST_CHARTED, found, key=lambda one: one[measure] or 0)
    chart(f"{title}, by {measure}", best, measure)


def ranked_by(aggregation: type[Aggregation]) -> str:
    """The measure that an aggregation's index is ordered by; the first one where there is no index."""
    declaration = aggregation._declaration
    return next(
        name
        for name, measure in declaration.measures.items()
        if declaration.index is None or declaration.index.sk in [slot.attribute for slot in measure.slots(name)]
    )


def complain(text: str) -> None:
    """Write a line to standard error; where nobody reads it, what was found still decides the exit code."""
    try:
        if sys.stderr is not None:
            print(text, file=sys.stderr, flush=True)
    except OSError:
        pass


def bad_records(drained: Drained) -> int:
    """Name the records that could not be counted, on standard error; returns the exit code."""
    for bad in drained.bad[:_MOST_NAMED]:
        text = f"{bad['handler']}: {bad['key']}: {bad['sequenceNumber']}: {bad['reason']}"
        complain(f"bad record: {text}")
    if len(drained.bad) > _MOST_NAMED:
        complain(f"bad records: {len(drained.bad) - _MOST_NAMED} more")
    return 3 if drained.bad else 0
