"""The function that Lambda runs: one consumer for all handlers of a table.

The whole pipeline, once:

    event -> decode -> route -> fold (pure) -> plan (values) -> deliver (effects) -> report

1. *decode* (`decode.py`): Lambda's event to the batch of one lane; refuses anything else before a write.
2. *route*: each handler of the table gets every record (`Consumer`).
3. *fold* (`fold.py`): what each change adds to which aggregate; records that cannot be counted are set aside.
4. *plan* (`plan.py`): one update for each aggregate, with the protocol's condition (`lanes.py`).
5. *deliver* (`deliver.py`): the writes, in parallel, inside the invocation's time.
6. *report* (`report.py`): the lowest sequence number that is not done.

Exactly once rests on four facts: a shard's records come as contiguous runs that begin no later than the first one
not reported done; an aggregate and its watermark move in one conditional write; no record is skipped: it is
done, set aside with its reason, or the batch comes again from it; and what is set aside is counted by nobody else, also
where another version of the code could count it (`turns.py`).

A sparse index has a fold and a plan of its own (`sparse_fold.py`), whose writes may be made again at any time. So has
an archive (`archive_fold.py`), whose objects are each written once (`archive_lane.py`).
"""

from __future__ import annotations

import functools
import os
from typing import Any

from framework import startup
from framework.app import load_app
from framework.client import dynamodb, put_object, s3
from framework.consumer import Consumer
from framework.control import Control
from framework.deliver_archive import Bucket
from framework.errors import ConfigurationError
from framework.telemetry import tell

__all__ = ["handler"]


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Lambda's entry.

    `STREAMFOLD_APP` names the app (`handlers.app:app`), `STREAMFOLD_TABLE` the source table, and `STREAMFOLD_NAMES`,
    where tables have other names in the account than in the declarations, those names (see `load_app`).
    `STREAMFOLD_CONTROL` and `STREAMFOLD_BUCKET` name the control table and the bucket for what is set aside,
    `STREAMFOLD_ARCHIVE` the one for archives, `STREAMFOLD_DELIVERY` the protocol: `lanes` if not set, or `ledger`.
    `STREAMFOLD_VERSION` names what is deployed: two deployments that may count a record otherwise never share one
    (`turns.py`).

    Args:
        event: A batch of a DynamoDB stream, from a mapping with a tumbling window.
        context: Lambda's context, for the time that is left.

    Returns:
        Lambda's response: `batchItemFailures` with the lowest sequence number that is not done, or empty; `state`,
        always empty; and under `streamfold` what happened.

    Raises:
        EventError: The event is not one of a DynamoDB stream.
        ConfigurationError: The environment or the mapping does not fit the app.
    """
    response = _consumer()(event, context)
    tell(response["streamfold"], getattr(context, "function_name", "local"))
    return response


@functools.cache
def _consumer() -> Consumer:
    found = {name: os.environ.get(name) for name in ("STREAMFOLD_APP", "STREAMFOLD_TABLE")}
    for name, value in found.items():
        if not value:
            raise ConfigurationError(f"environment: expected {name}, came {value!r}")
    client, control = dynamodb(), os.environ.get("STREAMFOLD_CONTROL")
    return Consumer(
        load_app(str(found["STREAMFOLD_APP"])),
        str(found["STREAMFOLD_TABLE"]),
        client,
        control=Control(client, control, _store, version=os.environ.get("STREAMFOLD_VERSION", "")) if control else None,
        bucket=Bucket(s3, archive) if (archive := os.environ.get("STREAMFOLD_ARCHIVE")) else None,
        delivery=os.environ.get("STREAMFOLD_DELIVERY") or "lanes",
    )


def _store(name: str, content: bytes) -> None:
    bucket = os.environ.get("STREAMFOLD_BUCKET")
    if not bucket:
        raise ConfigurationError(f"environment: expected STREAMFOLD_BUCKET, came {bucket!r}")
    put_object(bucket, name, content)


if os.environ.get("AWS_LAMBDA_FUNCTION_NAME"):
    # Lambda loads a function with a whole processor, whatever its memory: the client is made then, not at the first
    # event.
    _consumer()
startup.loaded()
