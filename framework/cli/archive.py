"""`streamfold archive`: what is in an archive, whether it is right, and its small objects merged into large ones."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from framework.app import load_app
from framework.archive_lines import Problem, Stored
from framework.archive_objects import ArchiveObjects, Partition
from framework.cli import restore, show
from framework.client import dynamodb, s3
from framework.codec import json_line
from framework.compact import Compacted, Compaction, Limits, plan
from framework.deliver_archive import Bucket
from framework.errors import ConfigurationError, ReadError
from framework.patience import ahead
from framework.verify import Verification

__all__ = ["add_to"]

_SIZES = {"": 1, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
_TIMES = {"m": 60, "h": 3600, "d": 86_400}
_BOUNDS = (("below 64 KB", 2**16), ("below 1 MB", 2**20), ("below 8 MB", 2**23), ("below 64 MB", 2**26))
_MOST_CHARTED = 31


def add_to(commands: Any) -> None:
    """Add the subcommands."""
    parser = commands.add_parser("archive", help="look into an archive, restore from it, verify or compact it")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, about, run in (
        ("ls", "list the partitions: objects, items, bytes, times", _ls),
        ("stats", "show how many objects of which sizes there are, and what compacting would merge", _stats),
        ("verify", "see whether each archived item can be read, once", _verify),
        ("compact", "merge small objects into large ones", _compact),
    ):
        sub = verbs.add_parser(verb, help=about)
        add_archive(sub)
        sub.set_defaults(run=run)
        if verb in ("stats", "compact"):
            sub.add_argument(
                "--below", type=_size, default=8 * 2**20, metavar="SIZE", help="merge smaller objects (default: 8MB)"
            )
            sub.add_argument(
                "--older-than",
                type=_seconds,
                default=48 * 3600,
                metavar="TIME",
                help="that were put longer ago; an hour at least (default: 48h)",
            )
        if verb == "compact":
            sub.add_argument("--dry-run", action="store_true", help="only say what would be merged")
        if verb == "verify":
            sub.add_argument(
                "--table", metavar="TABLE", help="see as well that nothing archived is still in this table"
            )
    restore.add_to(verbs, add_archive, archive_of)


def add_archive(parser: Any) -> None:
    """Add the options that say which archive, and where it is."""
    parser.add_argument("archive", metavar="NAME", help="the archive's name, such as expired-sessions")
    parser.add_argument("--app", default="handlers.app:app", metavar="MODULE:APP", help="(default: %(default)s)")
    parser.add_argument(
        "--bucket",
        default=os.environ.get("STREAMFOLD_ARCHIVE"),
        metavar="BUCKET",
        help="the archives' bucket, an output of the deployment (default: $STREAMFOLD_ARCHIVE)",
    )
    parser.add_argument("--json", action="store_true", help="lines of JSON")


def archive_of(options: Any) -> ArchiveObjects:
    """The archive that the options name.

    Raises:
        ConfigurationError: They name none.
    """
    declaration = load_app(options.app).archive(options.archive)._declaration
    if not options.bucket:
        raise ConfigurationError("--bucket: expected the archives' bucket, came none (nor STREAMFOLD_ARCHIVE)")
    return ArchiveObjects(Bucket(s3, options.bucket), declaration)


def _ls(options: Any) -> int:
    objects, rows, wrong, total = archive_of(options), [], 0, [0, 0, 0]
    with show.progress("listing", unit="objects") as advance:
        for partition in objects.partitions():
            items, problems = _items(objects, partition)
            wrong += _complain(problems)
            times = [source.at for each in partition.objects if each.merged for source in each.merged.sources]
            times += [each.at for each in partition.objects if not each.merged]
            size = sum(each.size for each in partition.objects)
            about = {
                "partition": partition.name,
                "objects": len(partition.objects),
                "items": items,
                "bytes": size,
                "first": _iso(min(times)) if times else None,
                "last": _iso(max(times)) if times else None,
            }
            total = [total[0] + len(partition.objects), total[1] + items, total[2] + size]
            advance(total[0], None)
            if options.json:
                print(json_line(about))
            else:
                counts = (f"{about[name]:,}" for name in ("objects", "items", "bytes"))
                rows.append((partition.name, *counts, str(about["first"] or ""), str(about["last"] or "")))
    if rows:
        show.table(("partition", "objects", "items", "bytes", "first", "last"), rows)
    if not options.json:
        print(f"{total[1]:,} items in {total[0]:,} objects, {total[2]:,} bytes" if total[0] else "nothing is archived")
    return 1 if wrong else 0


def _items(objects: ArchiveObjects, partition: Partition) -> tuple[int, list[Problem]]:
    """How many items a partition has, as its objects say."""
    problems, items = [*partition.problems], 0

    def count(stored: Stored) -> int | Problem:
        if stored.merged is not None:
            return stored.merged.items
        try:
            return objects.about(stored).items
        except ReadError as error:
            return Problem(objects.where(stored.partition, stored.name), str(error))

    for found in ahead(count, partition.objects):
        if isinstance(found, Problem):
            problems.append(found)
        else:
            items += found
    return items, problems


def _stats(options: Any) -> int:
    objects, limits, now = archive_of(options), _limits(options), time.time()
    sizes = dict.fromkeys((*(name for name, _ in _BOUNDS), "64 MB and more"), 0)
    partitions: dict[str, int] = {}
    count = small = merged = before = after = wrong = 0
    for partition in objects.partitions():
        wrong += _complain(partition.problems)
        partitions[partition.name] = sum(each.size for each in partition.objects)
        for each in partition.objects:
            count, small, merged = count + 1, small + (each.size < limits.below), merged + (each.merged is not None)
            sizes[next((name for name, bound in _BOUNDS if each.size < bound), "64 MB and more")] += 1
        groups = plan(partition, limits, now)
        before, after = before + sum(map(len, groups)), after + len(groups)
    if options.json:
        about = {"partitions": len(partitions), "objects": count, "bytes": sum(partitions.values()), "small": small}
        print(json_line({**about, "merged": merged, "sizes": sizes, "compact": {"objects": before, "into": after}}))
        return 1 if wrong else 0
    print(f"{count:,} objects in {len(partitions):,} partitions, {sum(partitions.values()):,} bytes")
    if count:
        print("objects by size")
        show.bars([*sizes.items()])
        latest = [*partitions.items()][-_MOST_CHARTED:]
        print("bytes by partition" + (f", the last {len(latest)}" if len(latest) < len(partitions) else ""))
        show.bars(latest)
        print(f"{small:,} are below {limits.below:,} bytes; compacting now would make {after:,} of {before:,}")
    return 1 if wrong else 0


def _verify(options: Any) -> int:
    objects = archive_of(options)
    verification = Verification(objects, dynamodb() if options.table else None, options.table)
    rows, items, count, wrong = [], 0, 0, 0
    with show.progress("verifying", unit="items") as advance:
        for found in verification.run(advance):
            items, count, wrong = items + found.items, count + found.objects, wrong + len(found.problems)
            if options.json:
                for problem in found.problems:
                    print(json_line(_about(problem)))
            else:
                _complain(found.problems)
                rows.append((found.partition, f"{found.objects:,}", f"{found.items:,}", f"{len(found.problems):,}"))
    if options.json:
        print(json_line({"objects": count, "items": items, "problems": wrong}))
    else:
        if rows:
            show.table(("partition", "objects", "items", "problems"), rows)
        print(f"{items:,} items in {count:,} objects: {f'{wrong:,} problems' if wrong else 'all as they should be'}")
    return 1 if wrong else 0


def _compact(options: Any) -> int:
    objects, limits = archive_of(options), _limits(options)
    rows, wrong, before, after, left = [], 0, 0, 0, 0
    with show.progress("compacting", unit="objects") as advance:
        for done in _planned(objects, limits) if options.dry_run else Compaction(objects, limits).run():
            wrong += _complain(done.problems)
            before, after, left = before + done.before, after + done.after, left + done.left
            advance(before, None)
            counts = {"objects": done.before, "into": done.after, "bytes": done.bytes, "deleted": done.deleted}
            if options.json:
                print(json_line({"partition": done.partition, **counts, "left": done.left}))
            elif done.before or done.deleted or done.left:
                rows.append((done.partition, *(f"{each:,}" for each in counts.values())))
    if options.json:
        return 1 if wrong else 0
    if rows:
        show.table(("partition", "objects", "into", "bytes", "deleted"), rows)
    print(f"{before:,} objects {'would be ' if options.dry_run else ''}merged into {after:,}")
    if left:
        print(f"{left:,} partitions are left to another who compacts them now")
    return 1 if wrong else 0


def _planned(objects: ArchiveObjects, limits: Limits) -> Iterator[Compacted]:
    for partition in objects.partitions():
        groups = plan(partition, limits, time.time())
        size = sum(each.size for group in groups for each in group)
        before = sum(map(len, groups))
        yield Compacted(partition.name, before, len(groups), size, problems=[*partition.problems])


def _limits(options: Any) -> Limits:
    return Limits(below=options.below, older_than=options.older_than)


def _complain(problems: Any) -> int:
    for problem in problems:
        show.complain(f"problem: {problem}")
    return len(problems)


def _about(problem: Problem) -> dict[str, Any]:
    return {"object": problem.object, "line": problem.line, "reason": problem.reason}


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _unit(form: str, units: dict[str, int], example: str) -> Callable[[str], int]:
    def read(text: str) -> int:
        found = re.fullmatch(form, text)
        if found is None or found[2] not in units:
            raise argparse.ArgumentTypeError(f"expected such as {example}, came {text}")
        return int(found[1]) * units[found[2]]

    return read


_size = _unit(r"([0-9]{1,12}) ?([KMG]?B?)", _SIZES, "8MB")
_seconds = _unit(r"([0-9]{1,6})([mhd])", _TIMES, "48h")
