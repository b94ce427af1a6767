"""Telemetry: what became of a batch, in the function's log: one line of metrics, and a line for what went wrong.

Both by Powertools: metrics in CloudWatch's embedded metric format, and structured lines. Neither holds a payload:
no keys, and of a reason only what was expected, not what came, unless `STREAMFOLD_LOG_VALUES` is set.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping
from typing import Any

__all__ = ["NAMESPACE", "tell"]

NAMESPACE = "Streamfold"

# Each metric's name, and where the account has its count.
_COUNTS = {
    "Records": "records",
    "Folded": "contributions",
    "Written": "updates",
    "Duplicates": "duplicates",
    "Conflicts": "conflicts",
    "BadRecords": "badRecords",
    "RefusedTakeBacks": "refusedTakeBacks",
    "LateRecords": "lateRecords",
    "MostlyBad": "mostlyBad",
    "NotDone": "failed",
}
_MOST_LOGGED = 20


def tell(account: Mapping[str, Any], function: str) -> None:
    """Write what became of a batch to the log. An invocation without records is not worth a line.

    Args:
        account: What happened, as in the response under `streamfold`.
        function: The function's name, the metrics' dimension.
    """
    if account["records"]:
        _measure(account, function)
    if any(account[name] for name in ("badRecords", "refusedTakeBacks", "lateRecords", "failed")):
        _log(account)


def _measure(account: Mapping[str, Any], function: str) -> None:
    # Imported with the first batch and not while the function loads.
    from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

    metrics = EphemeralMetrics(namespace=NAMESPACE)
    metrics.add_dimension(name="Function", value=function)
    for name, field in _COUNTS.items():
        metrics.add_metric(name=name, unit=MetricUnit.Count, value=account[field])
    if isinstance(created := account["created"], int | float):
        metrics.add_metric(name="Lag", unit=MetricUnit.Seconds, value=max(0.0, time.time() - created))
    for name in ("shard", "first", "last"):
        metrics.add_metadata(key=name, value=account[name])
    metrics.flush_metrics()


def _log(account: Mapping[str, Any]) -> None:
    log, where = _logger(), {name: account[name] for name in ("shard", "first", "last")}
    values = bool(os.environ.get("STREAMFOLD_LOG_VALUES"))
    for bad in account["bad"][:_MOST_LOGGED]:
        fields = {"handler": bad["handler"], "sequenceNumber": bad["sequenceNumber"]}
        reason = bad["reason"] if values else bad["reason"].partition(", came ")[0]
        log.warning("bad record", **where, **fields, reason=reason, **({"key": bad["key"]} if values else {}))
    if account["badRecords"] > _MOST_LOGGED:
        log.warning("more bad records", **where, count=account["badRecords"] - _MOST_LOGGED)
    if account["failed"]:
        error = account["error"] if values else account["error"].partition(": {")[0]
        log.error("not done", **where, writes=account["failed"], error=error)
    if account["refusedTakeBacks"]:
        log.warning("take-backs without an aggregate to take from", **where, count=account["refusedTakeBacks"])
    if account["lateRecords"]:
        log.warning("late records, after their aggregate's retention", **where, count=account["lateRecords"])


@functools.cache
def _logger() -> Any:
    from aws_lambda_powertools.logging import Logger

    return Logger(service="streamfold")
