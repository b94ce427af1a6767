"""`streamfold archive restore`: archived items put back into a table, or made ready for DynamoDB's own import."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

from framework.archive_lines import Problem
from framework.archive_newest import Selection, key_from_text, where_from_text
from framework.archive_objects import ArchiveObjects
from framework.archive_table import check_keys
from framework.cli import show
from framework.client import dynamodb
from framework.codec import json_line, number
from framework.conditions import Condition
from framework.errors import ConfigurationError
from framework.native_import import check_prefix, import_request, write_import
from framework.restore import Choice, Restore, Survey, TimeToLive, time_to_live

__all__ = ["add_to"]

_MOST_DAYS = 36_500


def add_to(verbs: Any, add_archive: Callable[[Any], object], archive_of: Callable[[Any], ArchiveObjects]) -> None:
    """Add the subcommand.

    Args:
        verbs: Where to.
        add_archive: Adds the options that say which archive.
        archive_of: The archive that they name.
    """
    parser = verbs.add_parser("restore", help="put archived items back into a table, none over what is there")
    add_archive(parser)
    parser.add_argument("--table", metavar="TABLE", help="the table (default: the one that the items are from)")
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="PK=..,SK=..",
        help="items of this key, or partition key; repeatable",
    )
    parser.add_argument("--from", dest="since", metavar="DATE", help="partitions from this day, month or year on")
    parser.add_argument("--to", dest="until", metavar="DATE", help="and up to this one")
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="ATTR=VALUE",
        help="items with this value; repeatable, all of it",
    )
    parser.add_argument("--ttl-days", type=_days, metavar="N", help="a new time to live, so many days from now")
    parser.add_argument("--keep-ttl", action="store_true", help="also items that would expire again at once")
    parser.add_argument("--wcu", type=_rate, metavar="UNITS", help="write units a second at most (default: no limit)")
    parser.add_argument("--dry-run", action="store_true", help="only count what would be put")
    parser.add_argument(
        "--native",
        metavar="PREFIX",
        help="instead, write objects for DynamoDB's import into a new table (--table) under this prefix of the bucket",
    )
    parser.set_defaults(run=lambda options: _restore(archive_of(options), options))


def _restore(objects: ArchiveObjects, options: Any) -> int:
    source, native = objects.declaration.source, options.native is not None
    keys = [key_from_text(text, source) for text in options.key]
    selection = Selection(since=options.since, until=options.until, keys=keys, where=_where(options.where))
    ttl = TimeToLive(attribute=source.ttl, days=options.ttl_days, keep=options.keep_ttl)
    table = options.table or source.name
    if native:
        if options.table is None:
            raise ConfigurationError("--native: expected --table, for an import makes a new one, came none")
        check_prefix(objects, options.native)
        # A table that an import makes has no time to live.
        ttl = TimeToLive(attribute=source.ttl if ttl.days is not None else None, days=ttl.days)
    else:
        check_keys(dynamodb(), table, source)
        ttl = time_to_live(dynamodb(), table, ttl)
    choice = Choice(objects, selection, ttl)
    try:
        with show.progress("reading", unit="items") as advance:
            survey = choice.survey(advance)
        _tell_problems(survey.named, survey.failed, options)
        if survey.over and not ttl.keep:
            text = (
                f"{survey.over:,} of {survey.found:,} items would expire again at once, by {ttl.attribute!r}: give "
                "them a new time to live (--ttl-days N), or say that they shall keep theirs (--keep-ttl)"
            )
            if not options.dry_run:
                raise ConfigurationError(f"restore: {text}")
            show.complain(f"streamfold: {text}")
        if native:
            return _native(objects, choice, survey, options)
        return _put(choice, survey, table, options)
    finally:
        choice.close()


def _put(choice: Choice, survey: Survey, table: str, options: Any) -> int:
    restore = Restore(dynamodb(), table, choice, dry_run=options.dry_run, wcu=options.wcu)
    with show.progress("looking" if options.dry_run else "restoring", unit="items") as advance:
        done = restore.run(survey, advance)
    _tell_problems(done.named, done.failed, options)
    failed, older = survey.failed + done.failed, survey.found - survey.items
    counts = {"restored": done.restored, "there": done.there, "older": older, "failed": failed}
    if options.json:
        print(json_line({**counts, "writeUnits": number(str(done.units))}))
    else:
        print(
            f"{done.restored:,} {'would be restored' if options.dry_run else 'restored'}, {done.there:,} were there, "
            f"{older:,} older versions, {failed:,} failed; {done.units:,} write units"
        )
    return 1 if failed else 0


def _native(objects: ArchiveObjects, choice: Choice, survey: Survey, options: Any) -> int:
    count = survey.items
    if not options.dry_run:
        with show.progress("writing", unit="items") as advance:
            count = write_import(objects, choice, survey, options.native, advance)
        _tell_problems(choice.missed, len(choice.missed), options)
        request = import_request(options.bucket, options.native, options.table, objects.declaration.source)
        print(json_line(request))
    show.complain(f"{count:,} items{' would be' if options.dry_run else ''} under {options.native.strip('/')}/")
    return 1 if survey.failed or choice.missed else 0


def _where(texts: list[str]) -> Condition | None:
    found: Condition | None = None
    for text in texts:
        condition = where_from_text(text)
        found = condition if found is None else found & condition
    return found


def _tell_problems(named: list[Problem], count: int, options: Any) -> None:
    for problem in named:
        if options.json and options.native is None:
            print(json_line({"object": problem.object, "line": problem.line, "reason": problem.reason}))
        else:
            show.complain(f"problem: {problem}")
    if count > len(named):
        show.complain(f"problems: {count - len(named):,} more")


def _days(text: str) -> int:
    days = int(text)
    if not 1 <= days <= _MOST_DAYS:
        raise argparse.ArgumentTypeError(f"expected 1 to {_MOST_DAYS} days, came {text}")
    return days


def _rate(text: str) -> float:
    rate = float(text)
    if not 0 < rate < math.inf:
        raise argparse.ArgumentTypeError(f"expected units above 0, came {text}")
    return rate
