"""`streamfold index`: what there is to do about a deployed index."""

from __future__ import annotations

from typing import Any

from framework.app import load_app
from framework.cli import show
from framework.client import dynamodb
from framework.codec import json_line, number
from framework.declaration import Declaration
from framework.errors import ReadError
from framework.reshard import Resharded, reshard

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("index", help="bring an index's entries to the shards that are declared")
    verbs = parser.add_subparsers(dest="verb", required=True)
    sub = verbs.add_parser("reshard", help="move what was written under another number of shards")
    sub.add_argument("--app", default="handlers.app:app", metavar="MODULE:APP", help="(default: %(default)s)")
    sub.add_argument("aggregation", metavar="AGGREGATION", help="its name, such as monthly-downloads")
    sub.add_argument("--dry-run", action="store_true", help="only count what would be moved")
    sub.add_argument("--token", help="go on where an earlier run stopped")
    sub.add_argument("--json", action="store_true", help="the result as a line of JSON")
    sub.set_defaults(run=_reshard)


def _reshard(options: Any) -> int:
    declaration = load_app(options.app).aggregation(options.aggregation)._declaration
    client, done = dynamodb(), Resharded(token=options.token)
    try:
        with show.progress("resharding", unit="entries") as advance:
            total = _entries(declaration, client)
            for done in reshard(declaration, client, token=options.token, dry_run=options.dry_run):
                advance(done.seen, min(1.0, done.seen / total) if total else None)
    except BaseException as error:
        if done.token is not None and not isinstance(error, ReadError):
            show.complain(f"stopped after {done.seen:,} entries; go on with --token {done.token}")
        raise
    if options.json:
        units = {"readUnits": done.read_units, "writeUnits": done.write_units}
        counts = {"seen": done.seen, "moved": done.moved, "changed": done.changed}
        print(json_line({**counts, **{name: number(str(each)) for name, each in units.items()}}))
        return 0
    print(
        f"{done.seen:,} entries, {done.moved:,} {'to be moved' if options.dry_run else 'moved'}, "
        f"{done.changed:,} changed meanwhile; {done.read_units:,} read units, {done.write_units:,} write units"
    )
    return 0


def _entries(declaration: Declaration, client: Any) -> int:
    """About how many entries an index has: DynamoDB counts them every six hours."""
    index = declaration.index
    found = client.describe_table(TableName=declaration.target.name)["Table"].get("GlobalSecondaryIndexes", ())
    return next((each.get("ItemCount", 0) for each in found if index and each["IndexName"] == index.name), 0)
