"""Starts ministack, under its own Python, with two things that a deployment here needs.

- Alarms on `Metrics`: it refuses each alarm whose template has them, metric math or not, and with it the whole stack.
  CloudWatch takes them, and most alarms that our construct library makes are of that kind. Here such an alarm is kept
  as one on the first metric that it names: nothing evaluates it, and what it says is asserted on the template.
- Requests that count as if they had come over TLS. The bucket of `cdk bootstrap` and ours deny others, and ministack
  enforces that, as it enforces all policies here; but on the loopback it is spoken to over plain HTTP.
"""

from __future__ import annotations

from typing import Any

from ministack.app import main
from ministack.core import iam_evaluator
from ministack.services.cloudformation import provisioners

_alarm = provisioners._cw_metric_alarm_record
_condition_key = iam_evaluator._resolve_condition_key


def _alarm_on_metrics(name: str, props: dict[str, Any]) -> Any:
    if stats := [query["MetricStat"] for query in props.get("Metrics") or [] if "MetricStat" in query]:
        first, others = stats[0], {key: value for key, value in props.items() if key != "Metrics"}
        props = {**others, **first["Metric"], "Period": first["Period"], "Statistic": first["Stat"]}
    return _alarm(name, props)


def _condition_key_over_tls(key: str, context: Any) -> Any:
    return "true" if key.lower() == "aws:securetransport" else _condition_key(key, context)


if __name__ == "__main__":
    provisioners._cw_metric_alarm_record = _alarm_on_metrics
    iam_evaluator._resolve_condition_key = _condition_key_over_tls
    main()
