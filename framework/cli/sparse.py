"""`streamfold sparse apply`: every item of a table brought to the entry that a sparse index says."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from framework.app import load_app
from framework.apply import Applied, Apply
from framework.cli import show
from framework.client import dynamodb
from framework.codec import Image, json_line, to_plain
from framework.errors import ConfigurationError
from framework.walker import MOST_SEGMENTS

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    """Add the subcommands."""
    parser = commands.add_parser("sparse", help="work on a sparse index")
    verbs = parser.add_subparsers(dest="verb", required=True)
    apply = verbs.add_parser("apply", help="bring every item of the table to the entry that it should have")
    apply.add_argument("--app", default="handlers.app:app", metavar="MODULE:APP", help="(default: %(default)s)")
    apply.add_argument("--handler", required=True, metavar="NAME", help="the sparse index's name")
    apply.add_argument("--dry-run", action="store_true", help="only count what would be written")
    apply.add_argument(
        "--segments",
        type=_segments,
        default=4,
        metavar="N",
        help=f"parts of the table at once, 1 to {MOST_SEGMENTS} (default: %(default)s)",
    )
    apply.add_argument("--rcu", type=_rate, metavar="UNITS", help="read units a second at most (default: no limit)")
    apply.add_argument(
        "--wcu", type=_rate, metavar="UNITS", help="write units a second at most, the index's too (default: no limit)"
    )
    apply.add_argument(
        "--resume",
        metavar="FILE",
        help="keep in this file how far it has come, and go on from there (default: streamfold-apply-NAME.json, "
        "which must not be there)",
    )
    apply.add_argument("--json", action="store_true", help="one line of JSON for each item that fails, then the counts")
    apply.set_defaults(run=_apply)


def _apply(options: Any) -> int:
    app = load_app(options.app)
    declaration = app.declaration_of(app.sparse_index(options.handler))
    places = _places(options)
    apply = Apply(
        declaration,
        dynamodb(),
        dry_run=options.dry_run,
        segments=options.segments,
        rcu=options.rcu,
        wcu=options.wcu,
        places=places,
    )
    try:
        with show.progress("applying", unit="items") as advance:
            done = apply.run(lambda items, of: advance(items, min(1.0, items / of) if of else None))
    except BaseException:
        if places is not None and places.exists():
            show.complain(f"streamfold: not at its end: go on with --resume {places}")
        raise
    return _tell(done, options)


def _places(options: Any) -> Path | None:
    if options.resume is not None:
        return Path(options.resume)
    if options.dry_run:
        return None
    path = Path(f"streamfold-apply-{options.handler}.json")
    if path.exists():
        raise ConfigurationError(
            f"{path}: expected no walk that is not at its end, came one: go on with --resume {path}, or delete it"
        )
    return path


def _tell(done: Applied, options: Any) -> int:
    for failed in done.named:
        if options.json:
            print(
                json_line(
                    {"item": {name: to_plain(value) for name, value in failed.key.items()}, "reason": failed.reason}
                )
            )
        else:
            show.complain(f"failed: {_text(failed.key)}: {failed.reason}")
    if not options.json and done.failed > len(done.named):
        show.complain(f"failed: {done.failed - len(done.named):,} more")
    counts = {
        "items": done.items,
        "right": done.right,
        "entered": done.entered,
        "left": done.left,
        "movedOn": done.moved_on,
        "failed": done.failed,
    }
    if options.json:
        print(json_line(counts))
    else:
        entered, left = ("to enter", "to leave") if options.dry_run else ("entered", "left")
        print(
            f"{done.items:,} items: {done.right:,} right, {done.entered:,} {entered}, {done.left:,} {left}, "
            f"{done.moved_on:,} changed meanwhile, {done.failed:,} failed"
        )
    return 3 if done.failed else 0


def _text(key: Image) -> str:
    return ", ".join(f"{name}={to_plain(value)!r}" for name, value in key.items())


def _rate(text: str) -> float:
    rate = float(text)
    if not 0 < rate < math.inf:
        raise argparse.ArgumentTypeError(f"expected units above 0, came {text}")
    return rate


def _segments(text: str) -> int:
    count = int(text)
    if not 1 <= count <= MOST_SEGMENTS:
        raise argparse.ArgumentTypeError(f"expected 1 to {MOST_SEGMENTS}, came {text}")
    return count
