"""Metrics of what went wrong, written to the function's log in CloudWatch's embedded metric format.

Nothing is written where nothing went wrong: an alarm treats what is missing as good, and the usual invocation pays
nothing for it, not even the import.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["NAMESPACE", "emit"]

NAMESPACE = "Streamfold"


def emit(account: Mapping[str, Any], function: str) -> None:
    """Write the metrics of one invocation: BadRecords, RefusedTakeBacks, LateRecords, NotDone.

    Args:
        account: What happened, as in the response under `streamfold`.
        function: The function's name, the metrics' dimension.
    """
    found = {
        "BadRecords": account["badRecords"],
        "RefusedTakeBacks": account["refusedTakeBacks"],
        "LateRecords": account["lateRecords"],
        "NotDone": int(bool(account["error"])),
    }
    if not any(found.values()):
        return
    from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

    metrics = EphemeralMetrics(namespace=NAMESPACE)
    metrics.add_dimension(name="Function", value=function)
    for name, count in found.items():
        metrics.add_metric(name=name, unit=MetricUnit.Count, value=count)
    metrics.flush_metrics()
