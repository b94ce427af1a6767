"""`streamfold top` and `streamfold series`: the greatest aggregates of a window, and one group over several windows."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from framework.aggregation import Aggregation
from framework.app import load_app
from framework.cli import show
from framework.cli.local import drained, source_table
from framework.codec import json_line, number
from framework.errors import BadValueError, ConfigurationError
from framework.local import Local
from framework.reading import Aggregate

__all__ = ["add_to"]

_MANY = 10


def add_to(commands: Any) -> None:
    """Add the subcommands."""
    parser = commands.add_parser("top", help="show the greatest aggregates of a window, or the least")
    _add_app(parser)
    parser.add_argument("window", metavar="WINDOW", help="its label, such as 2018-01")
    parser.add_argument("-n", type=int, help=f"how many (default: {_MANY})")
    parser.add_argument("--bottom", action="store_true", help="the least, least first")
    parser.add_argument("--start", type=int, metavar="RANK", help="the rank to begin with")
    parser.add_argument("--all", action="store_true", help="every one, in order, as it is read")
    parser.add_argument("--at-least", type=_number, metavar="N", help="none with less")
    parser.add_argument("--at-most", type=_number, metavar="N", help="none with more")
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


def _number(text: str) -> Decimal:
    try:
        return number(text)
    except BadValueError:
        raise argparse.ArgumentTypeError(f"expected a number, came {text}") from None


def _top(options: Any) -> int:
    beside = {"-n": options.n is not None, "--bottom": options.bottom, "--start": options.start is not None}
    if options.all and any(beside.values()):
        came = ", ".join(name for name, given in beside.items() if given)
        raise ConfigurationError(f"--all: expected none of {', '.join(beside)} beside it, came {came}")

    def read(aggregation: type[Aggregation], client: Any) -> None:
        asked: dict[str, Any] = {"at_least": options.at_least, "at_most": options.at_most}
        asked |= {"token": options.token, "client": client}
        if options.all:
            _all(aggregation, options, asked)
            return
        many, start = (default if came is None else came for came, default in ((options.n, _MANY), (options.start, 1)))
        page = (aggregation.bottom if options.bottom else aggregation.top)(options.window, many, start=start, **asked)
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


def _all(aggregation: type[Aggregation], options: Any, asked: Mapping[str, Any]) -> None:
    """Print every aggregate as it is read: there may be more than memory holds."""
    ranking = aggregation.all(options.window, **asked)
    measure, seen = show.ranked_by(aggregation), 0
    try:
        for one in ranking:
            print(_line(one) if options.json else show.entry(one, measure))
            seen += 1
    except OSError:  # of the output: who reads it has seen enough, or a disk is full
        raise
    except BaseException:
        if ranking.token is not None:
            show.complain(f"stopped after {seen:,} aggregates; go on with --token {ranking.token}")
        raise
    if options.json:
        print(json_line({"readUnits": _exact(ranking.read_units), "token": ranking.token}))
    else:
        print(f"{seen:,} aggregates, {ranking.read_units:,} read units")


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
