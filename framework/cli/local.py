"""`streamfold local`: any app on any file of items."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from framework.aggregation import Aggregation
from framework.app import App, load_app
from framework.cli import show
from framework.codec import Image, plain_json
from framework.errors import ConfigurationError
from framework.lanes import LANE_PREFIX, owner
from framework.local import Drained, Local
from framework.reading import Aggregate, aggregates_of

__all__ = ["add_to", "aggregate_items", "drained", "source_table"]


def add_to(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("local", help="run an app on a file of items, on this machine")
    parser.add_argument("--app", required=True, metavar="MODULE:APP", help="such as handlers.app:app")
    parser.add_argument("--events", required=True, metavar="FILE", help="JSON lines, DynamoDB JSON or CSV; gzip or not")
    parser.add_argument("--table", help="the file's table, where the app reads several")
    parser.add_argument(
        "--batch-size",
        type=int,
        default=1000,
        metavar="N",
        help="most records of an invocation, up to 10000: the more, the fewer writes (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON for each aggregate, then the cost")
    parser.set_defaults(run=run)


def source_table(app: App, named: str | None) -> str:
    """The table that a file stands for.

    Raises:
        ConfigurationError: The app reads several tables and none is named, or not the one that is.
    """
    names = sorted({declaration.source.name for declaration in app.declarations})
    if named is None and len(names) > 1:
        raise ConfigurationError(f"--table: expected one of {', '.join(names)}, came none")
    return app.sourced_from(named or names[0])[0].source.name


def drained(local: Local) -> Drained:
    """Deliver everything, with a progress bar."""
    with show.progress("folding") as advance:
        return local.drain(advance)


def aggregate_items(app: App, client: Any) -> Iterator[Image]:
    """Every aggregate item of an app's tables, without mark and watermarks."""
    for table in dict.fromkeys(declaration.target.name for declaration in app.declarations):
        for item in _items(table, client):
            if owner(item) is not None:
                yield {name: value for name, value in item.items() if not name.startswith(LANE_PREFIX)}


def _items(table: str, client: Any) -> Iterator[Image]:
    for page in client.get_paginator("scan").paginate(TableName=table):
        yield from page["Items"]


def run(options: Any) -> int:
    """Run the subcommand."""
    app = load_app(options.app)
    table = source_table(app, options.table)
    with Local(app, files={table: options.events}, batch_size=options.batch_size) as local:
        done = drained(local)
        aggregates = 0
        for item in aggregate_items(app, local.client):
            aggregates += 1
            if options.json:
                print(plain_json(item))
        account = {
            "records": done.records,
            "aggregates": aggregates,
            "requests": done.requests,
            "wcu": done.wcu,
            "badRecords": len(done.bad),
        }
        if options.json:
            print(json.dumps(account))
        else:
            _for_people(app, local, account)
    return show.bad_records(done)


def _for_people(app: App, local: Local, account: dict[str, int]) -> None:
    for cls in app.aggregations:
        by_window = _by_window(cls, local.client)
        for label in sorted(by_window)[-1:]:
            windows = f"{len(by_window):,} window{'s' * (len(by_window) != 1)}"
            show.ranking(f"{cls.name}, {label} (the last of {windows})", cls, by_window[label])
        if not by_window:
            print(f"{cls.name}: nothing was counted")
    print(
        f"{account['records']:,} records, {account['aggregates']:,} aggregates, "
        f"{account['requests']:,} requests, {account['wcu']:,} write units"
    )


def _by_window(cls: type[Aggregation], client: Any) -> dict[str, list[Aggregate]]:
    """An aggregation's aggregates by their windows' labels, from the table: not all have an index."""
    declaration = cls._declaration
    own = (item for item in _items(declaration.target.name, client) if owner(item) == cls.name)
    found: dict[str, list[Aggregate]] = {}
    for one in aggregates_of(declaration, own):
        found.setdefault(one.window, []).append(one)
    return found
