"""`streamfold top` and `streamfold series`: the greatest aggregates of a window, and one group over several windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from framework.aggregation import Aggregation
from framework.app import load_app
from framework.cli import show
from framework.cli.local import drained, source_table
from framework.codec import json_line, number
from framework.local import Local
from framework.reading import Aggregate

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    """Add the subcommands."""
    parser = commands.add_parser("top", help="show the greatest aggregates of a window, or the least")
    _add_app(parser)
    parser.add_argument("window", metavar="WINDOW", help="its label, such as 2018-01")
    parser.add_argument("-n", type=int, default=10, help="how many (default: %(default)s)")
    parser.add_argument("--bottom", action="store_true", help="the least, least first")
    parser.add_argument("--start", type=int, default=1, metavar="RANK", help="the rank to begin with")
    parser.add_argument("--token", help="go on where an earlier page stopped")
    _add_source(parser)
    parser.set_defaults(run=_top)

    parser = commands.add_parser("series", help="show one group over several windows, gaps as zero, with the total")
    _add_app(parser)
    parser.add_argument("group", nargs="+", metavar="GROUP", help="its value, or one for each attribute")
    parser.add_argument("first", metavar="FIRST", help="the first window's label")
    parser.add_argument("last", metavar="LAST", help="the last one's")
    _add_source(parser)
    parser.set_defaults(run=_series)


def _add_app(parser: Any) -> None:
    parser.add_argument("--app", required=True, metavar="MODULE:APP", help="such as handlers.app:app")
    parser.add_argument("aggregation", metavar="AGGREGATION", help="its name, such as monthly-downloads")


def _add_source(parser: Any) -> None:
    parser.add_argument(
        "--events", metavar="FILE", help="run this file on this machine and read that; else the table in AWS is read"
    )
    parser.add_argument("--table", help="the file's table, where the app reads several")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each aggregate, then the cost")


def _top(options: Any) -> int:
    def read(aggregation: type[Aggregation], client: Any) -> None:
        page = (aggregation.bottom if options.bottom else aggregation.top)(
            options.window, options.n, start=options.start, token=options.token, client=client
        )
        if options.json:
            for one in page:
                print(_line(one))
            print(json_line({"readUnits": _exact(page.read_units), "token": page.token}))
            return
        title = f"{aggregation.name}, {options.window}"
        if page:
            show.chart(title, page, show.ranked_by(aggregation))
        else:
            print(f"{title}: nothing was counted")
        print(f"{page.read_units:,} read units" + (f", more with --token {page.token}" if page.token else ""))

    return _run(options, (options.window,), read)


def _series(options: Any) -> int:
    def read(aggregation: type[Aggregation], client: Any) -> None:
        numeric = aggregation._declaration.target.pk_type == "N"
        group = tuple(number(text) if numeric else text for text in options.group)
        series = aggregation.series(group, options.first, options.last, client=client)
        if options.json:
            for one in series:
                print(_line(one))
            print(json_line({"total": dict(series.total.values), "readUnits": _exact(series.read_units)}))
            return
        show.series(f"{aggregation.name}, {' '.join(options.group)}", series, show.ranked_by(aggregation))
        print(f"{series.read_units:,} read units")

    return _run(options, (options.first, options.last), read)


def _run(options: Any, windows: tuple[str, ...], read: Callable[[type[Aggregation], Any], None]) -> int:
    """Read the table in AWS, or the one that a file makes on this machine; returns the exit code."""
    app = load_app(options.app)
    aggregation = app.aggregation(options.aggregation)
    if options.events is None:
        read(aggregation, None)
        return 0
    for window in windows:
        aggregation._declaration.window.label(window)  # a wrong one is told before the work
    with Local(app, files={source_table(app, options.table): options.events}) as local:
        done = drained(local)
        read(aggregation, local.client)
    return show.bad_records(done)


def _line(one: Aggregate) -> str:
    group = [*one.group] if isinstance(one.group, tuple) else one.group
    return json_line({"group": group, "window": one.window, **one.values})


def _exact(units: float) -> Any:
    """Read units, which come in halves, as JSON that is exact."""
    return number(str(units))
