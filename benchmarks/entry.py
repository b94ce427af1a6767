"""What the control table, the metrics and the log add to a batch on which all goes well."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from benchmarks.alternatives import TABLE, TABLES
from benchmarks.events import event_of
from framework.consumer import Consumer
from framework.control import Control
from framework.local.bridge import boto3_client
from framework.local.memory import MemoryDynamoDB
from framework.telemetry import tell
from handlers.app import app

__all__ = ["entry_cost"]

_SONGS = 100
_CONTROL: dict[str, Any] = {
    "TableName": "control",
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "S"},
    ],
    "BillingMode": "PAY_PER_REQUEST",
}


def entry_cost(*, records: int = 1000, runs: int = 15) -> dict[str, float]:
    """Seconds of a batch, the median of interleaved runs: without the three, with them, and the share they add."""
    event = event_of(records, _SONGS)
    times: dict[str, list[float]] = {"bare": [], "whole": []}
    for _ in range(runs):
        for name, found in times.items():
            engine = MemoryDynamoDB()
            for table in (*TABLES, _CONTROL):
                engine.create_table(**table)
            client = boto3_client(engine)
            control = Control(client, "control", _nothing) if name == "whole" else None
            consumer = Consumer(app, TABLE, client, control=control)
            first = {**event, "Records": event["Records"][:1]}
            # A process asks its questions with its first batch, and is warm after it.
            consumer(first)
            begin = time.perf_counter()
            response = consumer(event)
            if control is not None:
                with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
                    tell(response["streamfold"], "benchmark")
            found.append(time.perf_counter() - begin)
    bare, whole = (sorted(found)[runs // 2] for found in times.values())
    return {"bare": bare, "whole": whole, "added": whole / bare - 1}


def _nothing(name: str, content: bytes) -> None:
    raise AssertionError(f"expected nothing to be set aside, came {name}")
