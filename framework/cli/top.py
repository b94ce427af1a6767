"""`streamfold top`: the greatest aggregates of a window."""

from __future__ import annotations

from typing import Any

from framework.aggregation import Aggregation
from framework.app import load_app
from framework.cli import show
from framework.cli.local import drained, source_table
from framework.codec import json_line
from framework.local import Local
from framework.reading import Page

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("top", help="show the greatest aggregates of a window")
    parser.add_argument("--app", required=True, metavar="MODULE:APP", help="such as handlers.app:app")
    parser.add_argument("aggregation", metavar="AGGREGATION", help="its name, such as monthly-downloads")
    parser.add_argument("window", metavar="WINDOW", help="its label, such as 2018-01")
    parser.add_argument("-n", type=int, default=10, help="how many (default: %(default)s)")
    parser.add_argument(
        "--events", metavar="FILE", help="run this file on this machine and read that; else the table in AWS is read"
    )
    parser.add_argument("--table", help="the file's table, where the app reads several")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each aggregate")
    parser.set_defaults(run=run)


def run(options: Any) -> int:
    """Run the subcommand."""
    app = load_app(options.app)
    aggregation = app.aggregation(options.aggregation)
    if options.events is None:
        _show(aggregation, options, aggregation.top(options.window, options.n))
        return 0
    aggregation._declaration.window.label(options.window)  # a wrong one is told before the work
    with Local(app, files={source_table(app, options.table): options.events}) as local:
        done = drained(local)
        _show(aggregation, options, aggregation.top(options.window, options.n, client=local.client))
    return show.bad_records(done)


def _show(aggregation: type[Aggregation], options: Any, found: Page) -> None:
    if options.json:
        for one in found:
            group = [*one.group] if isinstance(one.group, tuple) else one.group
            print(json_line({"group": group, "window": one.window, **one.values}))
    elif found:
        show.chart(f"{aggregation.name}, {options.window}", found, show.ranked_by(aggregation))
    else:
        print(f"{aggregation.name}, {options.window}: nothing was counted")
