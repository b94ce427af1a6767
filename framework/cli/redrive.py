"""`streamfold redrive` and `streamfold delivery`: count what was set aside or given up on; change the protocol."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from framework.cli import show
from framework.cli.control import add_control, quarantine_of
from framework.cli.quarantine import moment
from framework.client import client
from framework.codec import json_line
from framework.errors import ConfigurationError, SourceError, StreamfoldError
from framework.failures import failure_of
from framework.ledger import DELIVERIES
from framework.redrive import Quarantine, Redriven

__all__ = ["add_to"]

_QUARANTINED = "quarantine/"  # what the bucket holds beside Lambda's records


def add_to(commands: Any) -> None:
    """Add the subcommands."""
    parser = commands.add_parser("redrive", help="count what was set aside, or what Lambda gave up on, once")
    add_control(parser)
    parser.add_argument("--handler", metavar="NAME", help="entries of one aggregation")
    parser.add_argument("--since", type=moment, default=0.0, metavar="TIME", help="entries since, in ISO 8601")
    parser.add_argument("--uncertain", action="store_true", help="also entries that may have been counted already")
    parser.add_argument("--dry-run", action="store_true", help="only say what could be counted now")
    parser.add_argument(
        "--failures",
        metavar="SOURCE",
        help="batches instead: s3://BUCKET/PREFIX, an SQS queue's https address, or a file; what is done is deleted "
        "there (a file is not)",
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON for each")
    parser.set_defaults(run=_redrive)

    parser = commands.add_parser("delivery", help="show or change the protocol that delivers a table's stream")
    add_control(parser)
    parser.add_argument("table", metavar="TABLE", help="the source table's name in the account")
    parser.add_argument("delivery", nargs="?", choices=DELIVERIES, help="the protocol from now on")
    parser.add_argument("--drained", action="store_true", help="the stream is drained (docs/operating.md says how)")
    parser.set_defaults(run=_delivery)


def _redrive(options: Any) -> int:
    quarantine = quarantine_of(options)
    if options.failures is not None:
        if not options.failures:
            raise ConfigurationError("--failures: expected a source, came none")
        if options.dry_run or options.handler or options.since or options.uncertain:
            raise ConfigurationError("--failures: expected no other choice of entries beside it, came one")
        return _tell(_batches(quarantine, options.failures), options)
    if options.handler:
        quarantine.app.handler(options.handler)  # a name that nobody has is told, and is not nothing to do
    found = quarantine.open(handler=options.handler, since=options.since)
    return _tell(quarantine.redrive_all(found, dry_run=options.dry_run, uncertain=options.uncertain), options)


def _tell(found: Iterable[Redriven], options: Any) -> int:
    done = kept = 0
    with show.progress("redriving") as advance:
        for one in found:
            done, kept = done + one.done, kept + (not one.done)
            advance(done + kept, None)
            if options.json:
                print(json_line({"entry": one.place, "done": one.done, "reason": one.reason}))
            elif one.reason:
                print(f"{'done' if one.done else 'kept'}: {one.place}: {one.reason}")
    if not options.json:
        print(f"{done:,} {'could be ' if options.dry_run else ''}settled, {kept:,} kept")
    return 3 if kept else 0


def _batches(quarantine: Quarantine, source: str) -> Iterator[Redriven]:
    streams: Any = None
    for name, body, delete in _bodies(source):
        try:
            failure = failure_of(name, body)
        except StreamfoldError as error:
            yield Redriven(name, False, str(error))
            continue
        if failure.records is None and streams is None:
            streams = client("dynamodbstreams")
        redriven = quarantine.redrive_batch(failure, streams)
        if redriven.done:
            delete()
        yield redriven


def _bodies(source: str) -> Iterator[tuple[str, str | bytes, Callable[[], object]]]:
    """The name and the text of each of Lambda's records, and how to delete it."""
    if source.startswith("s3://"):
        bucket, _, prefix = source.removeprefix("s3://").partition("/")
        s3 = client("s3")
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for found in page.get("Contents", ()):
                where = {"Bucket": bucket, "Key": found["Key"]}
                if not found["Key"].startswith(_QUARANTINED):
                    try:
                        body = s3.get_object(**where)["Body"].read()
                    except s3.exceptions.NoSuchKey:
                        continue  # somebody else has done it
                    yield f"s3://{bucket}/{found['Key']}", body, partial(s3.delete_object, **where)
    elif source.startswith("https://") or source.startswith("http://"):
        sqs, seen = client("sqs"), set[str]()
        # What is kept comes again once it is visible again: then it is enough.
        while new := [each for each in _received(sqs, source) if each["MessageId"] not in seen]:
            seen.update(each["MessageId"] for each in new)
            for found in new:
                receipt = {"QueueUrl": source, "ReceiptHandle": found["ReceiptHandle"]}
                yield found["MessageId"], found["Body"], partial(sqs.delete_message, **receipt)
    else:
        try:
            body = sys.stdin.read() if source == "-" else Path(source).read_bytes()
        except OSError as error:
            raise SourceError(f"--failures: expected a file that can be read, came {error}") from error
        yield source, body, lambda: None


def _received(sqs: Any, queue: str) -> list[Any]:
    answer = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=1)
    return list(answer.get("Messages", ()))


def _delivery(options: Any) -> int:
    quarantine = quarantine_of(options)
    quarantine.app.sourced_from(options.table)
    now = quarantine.delivery(options.table)
    if options.delivery is None or options.delivery == now:
        print(f"{options.table}: {now or 'not yet delivered'}")
        return 0
    if now is not None and not options.drained:
        raise ConfigurationError(
            f"{options.table}: expected --drained, since {options.delivery} knows nothing of what {now} has counted, "
            "came none: pause the writers, wait until the consumer's iterator age is 0 and it is invoked no more, "
            "disable its mapping, and wait for its timeout"
        )
    quarantine.switch(options.table, options.delivery)
    print(f"{options.table}: {options.delivery}")
    return 0
