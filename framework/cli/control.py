"""What the commands share that work on a deployed app's control table."""

from __future__ import annotations

import os
from typing import Any

from framework.app import load_app
from framework.client import client, dynamodb, s3
from framework.deliver_archive import Bucket
from framework.errors import ConfigurationError
from framework.redrive import Quarantine

__all__ = ["add_control", "quarantine_of"]


def add_control(parser: Any) -> None:
    """Add the options that say which app and which control table."""
    parser.add_argument("--app", default="handlers.app:app", metavar="MODULE:APP", help="(default: %(default)s)")
    parser.add_argument(
        "--control",
        default=os.environ.get("STREAMFOLD_CONTROL"),
        metavar="TABLE",
        help="the control table, an output of the deployment (default: $STREAMFOLD_CONTROL)",
    )
    parser.add_argument(
        "--bucket",
        default=os.environ.get("STREAMFOLD_BUCKET"),
        metavar="BUCKET",
        help="the failure bucket, for records too large for the table (default: $STREAMFOLD_BUCKET)",
    )
    parser.add_argument(
        "--archive",
        default=os.environ.get("STREAMFOLD_ARCHIVE"),
        metavar="BUCKET",
        help="the archives' bucket, where the app has any (default: $STREAMFOLD_ARCHIVE)",
    )


def quarantine_of(options: Any) -> Quarantine:
    """The quarantine that the options name.

    Raises:
        ConfigurationError: They name none.
    """
    if not options.control:
        raise ConfigurationError("--control: expected the control table's name, came none (nor STREAMFOLD_CONTROL)")

    def bucket() -> str:
        if not options.bucket:
            raise ConfigurationError("--bucket: expected the failure bucket's name, came none (nor STREAMFOLD_BUCKET)")
        return str(options.bucket)

    def load(name: str) -> bytes:
        return bytes(client("s3").get_object(Bucket=bucket(), Key=name)["Body"].read())

    def store(name: str, content: bytes) -> None:
        client("s3").put_object(Bucket=bucket(), Key=name, Body=content)

    archive = Bucket(s3, options.archive) if options.archive else None
    return Quarantine(load_app(options.app), dynamodb(), options.control, load=load, store=store, archive=archive)
