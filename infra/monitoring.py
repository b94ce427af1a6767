"""Monitoring: alarms and a dashboard. Each alarm is explained in `docs/operating.md`."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

import aws_cdk as cdk
import cdk_monitoring_constructs as monitoring
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_sns as sns

from framework.telemetry import NAMESPACE
from infra.consumer import Consumer
from infra.control import METRICS_ID, Control
from infra.settings import Settings
from infra.tables import DeployedTable

__all__ = ["monitor"]

_HOUR = 3_600_000  # milliseconds
# A record is lost after 24 hours: look, hurry, drop everything.
_AGES = {"1h": 1, "6h": 6, "18h": 18}
_LONGEST = 255  # CloudWatch API reference, PutMetricAlarm
_PERIOD = cdk.Duration.minutes(5)
_ABOVE = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
_QUIET = cloudwatch.TreatMissingData.NOT_BREACHING


def monitor(
    scope: cdk.Stack,
    name: str,
    settings: Settings,
    tables: Mapping[str, DeployedTable],
    consumers: Mapping[str, Consumer],
    control: Control,
) -> None:
    """Add alarms and the dashboard to a stack.

    Args:
        scope: The stack.
        name: The stack's name, before every alarm's.
        settings: The deployment; its alarm topic, if any, gets all alarms.
        tables: The app's tables.
        consumers: The consumers by the source table's declared name.
        control: Control table and failure bucket.
    """
    topic = settings.alarm_topic
    action = None
    if topic is not None:
        action = monitoring.SnsAlarmActionStrategy(on_alarm_topic=sns.Topic.from_topic_arn(scope, "AlarmTopic", topic))
    facade = monitoring.MonitoringFacade(
        scope,
        "Monitoring",
        alarm_factory_defaults=monitoring.AlarmFactoryDefaults(
            actions_enabled=True, alarm_name_prefix=name, action=action, evaluation_periods=1, datapoints_to_alarm=1
        ),
        metric_factory_defaults=monitoring.MetricFactoryDefaults(),
        dashboard_factory=monitoring.DefaultDashboardFactory(
            scope, "Dashboards", dashboard_name_prefix=name, create_dashboard=True
        ),
    )
    for table, consumer in consumers.items():
        facade.add_large_header(f"Consumer of {table}")
        _monitor_function(facade, table, consumer)
    for table, deployed in tables.items():
        _monitor_table(facade, table, deployed)
    _monitor_failures(facade, control)
    for each in scope.node.find_all():
        if isinstance(each, cloudwatch.CfnAlarm) and each.alarm_name is not None:
            each.alarm_name = _fitting(each.alarm_name)


def _fitting(name: str) -> str:
    """An alarm's name, whose end is a digest of it where it would be too long."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 9]}-{sha256(name.encode()).hexdigest()[:8]}"


def _monitor_function(facade: monitoring.MonitoringFacade, table: str, consumer: Consumer) -> None:
    facade.monitor_lambda_function(
        lambda_function=consumer.function,
        alarm_friendly_name=table,
        human_readable_name=f"Consumer of {table}",
        is_iterator=True,
        add_max_iterator_age_alarm={
            age: monitoring.MaxAgeThreshold(max_age_in_millis=hours * _HOUR, period=_PERIOD)
            for age, hours in _AGES.items()
        },
        add_fault_count_alarm={"Errors": monitoring.ErrorCountThreshold(max_error_count=0, period=_PERIOD)},
        add_throttles_count_alarm={"Throttles": monitoring.ErrorCountThreshold(max_error_count=0, period=_PERIOD)},
        add_max_latency_alarm={
            "Duration": monitoring.LatencyTimeoutPercentageThreshold(
                max_latency_percentage_of_timeout=80, period=_PERIOD
            )
        },
    )
    metrics = [
        (
            "BadRecords",
            "bad-records",
            "Records that cannot be counted were set aside. Nothing is lost, it can wait: streamfold quarantine list.",
        ),
        (
            "RefusedTakeBacks",
            "refused-take-backs",
            "Deletes or edits met no aggregate: it expired, or the items were there before the stream was on.",
        ),
        (
            "NotDone",
            "not-done",
            "Part of a batch comes again. Passing if rare; else the function's log says why, and the stream waits.",
        ),
    ]
    facade.monitor_custom(
        alarm_friendly_name=f"{table}-records",
        human_readable_name=f"Records of {table}",
        metric_groups=[
            monitoring.CustomMetricGroup(
                title=metric,
                metrics=[
                    monitoring.CustomMetricWithAlarm(
                        metric=cloudwatch.Metric(
                            namespace=NAMESPACE,
                            metric_name=metric,
                            dimensions_map={"Function": consumer.function.function_name},
                            statistic="Sum",
                            period=_PERIOD,
                        ),
                        alarm_friendly_name=f"{table}-{short}",
                        add_alarm={"Any": _above(0, meaning)},
                    )
                ],
            )
            for metric, short, meaning in metrics
        ],
    )


def _monitor_table(facade: monitoring.MonitoringFacade, name: str, deployed: DeployedTable) -> None:
    throttled = {"Write": monitoring.ThrottledEventsThreshold(max_throttled_events_threshold=0, period=_PERIOD)}
    billing = dynamodb.BillingMode.PROVISIONED if deployed.provisioned else dynamodb.BillingMode.PAY_PER_REQUEST
    facade.monitor_dynamo_table(
        table=deployed.table,
        billing_mode=billing,
        alarm_friendly_name=name,
        human_readable_name=name,
        add_write_throttled_events_count_alarm=throttled,
    )
    for index in deployed.indexes:
        facade.monitor_dynamo_table_global_secondary_index(
            table=deployed.table,
            global_secondary_index_name=index,
            alarm_friendly_name=f"{name}-index-{index}",
            human_readable_name=f"{name} {index}",
            add_write_throttled_events_count_alarm=throttled,
        )
    facade.monitor_custom(
        alarm_friendly_name=f"{name}-conflicts",
        human_readable_name=f"Conflicts on {name}",
        metric_groups=[
            monitoring.CustomMetricGroup(
                title="Transaction conflicts",
                metrics=[
                    monitoring.CustomMetricWithAlarm(
                        metric=deployed.table.metric("TransactionConflict", statistic="Sum", period=_PERIOD),
                        alarm_friendly_name=f"{name}-conflicts",
                        # Conflicts are retried; hundreds say that something else writes the aggregates.
                        add_alarm={
                            "Many": _above(
                                100, "Writes met transactions, and are tried again. What else writes the table?"
                            )
                        },
                    )
                ],
            )
        ],
    )


def _monitor_failures(facade: monitoring.MonitoringFacade, control: Control) -> None:
    facade.add_large_header("Records that Lambda gave up on")
    facade.monitor_custom(
        alarm_friendly_name="failure-bucket",
        human_readable_name="Failure bucket",
        metric_groups=[
            monitoring.CustomMetricGroup(
                title="Objects",
                metrics=[
                    monitoring.CustomMetricWithAlarm(
                        # Of requests, for the number of objects is told once a day only.
                        metric=cloudwatch.Metric(
                            namespace="AWS/S3",
                            metric_name="PutRequests",
                            dimensions_map={"BucketName": control.bucket.bucket_name, "FilterId": METRICS_ID},
                            statistic="Sum",
                            period=_PERIOD,
                        ),
                        alarm_friendly_name="failure-bucket",
                        add_alarm={
                            "Any": _above(
                                0, "Lambda gave records up; they are in the bucket: streamfold redrive --failures."
                            )
                        },
                    )
                ],
            )
        ],
    )


def _above(threshold: float, meaning: str) -> monitoring.CustomThreshold:
    return monitoring.CustomThreshold(
        threshold=threshold,
        comparison_operator=_ABOVE,
        treat_missing_data_override=_QUIET,
        period=_PERIOD,
        alarm_description_override=f"{meaning} See docs/operating.md.",
    )
