"""Alarms and the dashboard: each alarm's metric, place, threshold and period."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.infra.stacks import SHOP, TOPIC, Deployed, deploy

HOUR = 3_600_000


def resolved(deployed: Deployed, value: Any) -> Any:
    """What a dimension's value stands for: a table's name, or `of TABLE` for the function that reads it."""
    if not isinstance(value, dict):
        return value
    resource = deployed.data["Resources"][value["Ref"]]
    properties = resource["Properties"]
    if resource["Type"] == "AWS::Lambda::Function":
        return f"of {properties['Environment']['Variables']['STREAMFOLD_TABLE']}"
    return properties.get("TableName", resource["Type"])


def alarms(deployed: Deployed) -> dict[str, tuple[Any, ...]]:
    """By name: namespace, metric, statistic, dimensions and threshold, all of them checked to compare alike."""
    found: dict[str, tuple[Any, ...]] = {}
    for resource in deployed.all("CloudWatch::Alarm").values():
        alarm = resource["Properties"]
        assert alarm["ComparisonOperator"] == "GreaterThanThreshold"
        assert (alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"], alarm["ActionsEnabled"]) == (1, 1, True)
        metric, period, statistic = alarm, alarm.get("Period"), alarm.get("Statistic")
        if "Metrics" in alarm:
            (stat,) = (each["MetricStat"] for each in alarm["Metrics"] if "MetricStat" in each)
            metric, period, statistic = stat["Metric"], stat["Period"], stat["Stat"]
        assert period == 300
        where = {each["Name"]: resolved(deployed, each["Value"]) for each in metric["Dimensions"]}
        # A quiet stream is good; what its age is then nobody knows.
        missing = "missing" if metric["MetricName"] == "IteratorAge" else "notBreaching"
        assert alarm["TreatMissingData"] == missing
        found[alarm["AlarmName"]] = (metric["Namespace"], metric["MetricName"], statistic, where, alarm["Threshold"])
    assert len(found) == len(deployed.all("CloudWatch::Alarm"))
    return found


def of_consumer(stack: str, table: str, read: str, timeout: int = 120) -> dict[str, tuple[Any, ...]]:
    """The alarms of a table's consumer."""
    function, name = {"FunctionName": f"of {read}"}, f"{stack}-{table}"
    ages = {
        f"{name}-Iterator-Age-Max-{hours}h": ("AWS/Lambda", "IteratorAge", "Maximum", function, hours * HOUR)
        for hours in (1, 6, 18)
    }
    records = {
        f"{name}-records-{table}-{short}-Any": ("Streamfold", metric, "Sum", {"Function": f"of {read}"}, 0)
        for metric, short in (
            ("BadRecords", "bad-records"),
            ("RefusedTakeBacks", "refused-take-backs"),
            ("NotDone", "not-done"),
        )
    }
    return {
        **ages,
        **records,
        f"{name}-Fault-Count-Errors": ("AWS/Lambda", "Errors", "Sum", function, 0),
        f"{name}-Throttled-Count-Throttles": ("AWS/Lambda", "Throttles", "Sum", function, 0),
        # Four fifths of the timeout, in milliseconds.
        f"{name}-Latency-Maximum-Duration": ("AWS/Lambda", "Duration", "Maximum", function, timeout * 800),
    }


def of_table(stack: str, table: str, physical: str, *indexes: str) -> dict[str, tuple[Any, ...]]:
    """The alarms of a table and of its indexes."""
    where, throttled = {"TableName": physical}, ("AWS/DynamoDB", "WriteThrottleEvents", "Sum")
    return {
        f"{stack}-{table}-Write-Throttled-Events-Write": (*throttled, where, 0),
        f"{stack}-{table}-conflicts-Many": ("AWS/DynamoDB", "TransactionConflict", "Sum", where, 100),
        **{
            f"{stack}-{table}-index-{index}-Write-Throttled-Events-Write": (
                *throttled,
                {**where, "GlobalSecondaryIndexName": index},
                0,
            )
            for index in indexes
        },
    }


def of_bucket(stack: str) -> dict[str, tuple[Any, ...]]:
    where = {"BucketName": "AWS::S3::Bucket", "FilterId": "given-up"}
    return {f"{stack}-failure-bucket-Any": ("AWS/S3", "PutRequests", "Sum", where, 0)}


def test_the_alarms_of_the_music_library() -> None:
    assert alarms(deploy("music")) == {
        **of_consumer("music-prod", "MusicLibrary", "MusicLibrary"),
        **of_table("music-prod", "MusicLibrary", "MusicLibrary", "MonthDownloadsIndex"),
        **of_bucket("music-prod"),
    }


def test_the_alarms_of_an_app_with_several_tables_one_of_them_imported() -> None:
    assert alarms(deploy("shop", **SHOP)) == {
        **of_consumer("shop-prod", "Orders", "shop-orders"),
        **of_consumer("shop-prod", "Visits", "Visits"),
        **of_table("shop-prod", "Orders", "shop-orders"),
        **of_table("shop-prod", "Visits", "Visits", "ViewsIndex"),
        **of_table("shop-prod", "Totals", "Totals", "SalesIndex"),
        **of_bucket("shop-prod"),
    }


def test_the_duration_is_measured_against_the_timeout_that_is_set() -> None:
    found = alarms(deploy("music", consumers={"MusicLibrary": {"timeout": 60}}))
    assert found["music-prod-MusicLibrary-Latency-Maximum-Duration"][-1] == 48_000


def test_the_failure_buckets_alarm_reads_the_metrics_that_the_bucket_writes() -> None:
    found = deploy("music")
    (filters,) = found.properties("S3::Bucket")["MetricsConfigurations"]
    assert alarms(found)["music-prod-failure-bucket-Any"][3]["FilterId"] == filters["Id"]


def test_an_alarms_name_that_would_be_too_long_ends_in_a_digest() -> None:
    found, again = (alarms(deploy("long names", **context)) for context in ({}, {"region": "eu-central-1"}))
    assert found.keys() == again.keys()
    assert max(map(len, found)) == 255
    assert all(name.startswith(f"one-prod-{'T' * 200}") for name in found if "failure-bucket" not in name)
    assert len(found) == len(alarms(deploy("music")))


@pytest.mark.parametrize(
    ("context", "actions"), [({}, None), ({"alarmTopic": TOPIC}, [TOPIC])], ids=["without", "with"]
)
def test_alarms_go_to_the_topic_if_there_is_one(context: dict[str, Any], actions: list[str] | None) -> None:
    found = deploy("shop", **SHOP, **context)
    for name, alarm in found.all("CloudWatch::Alarm").items():
        assert alarm["Properties"].get("AlarmActions") == actions, name
    assert not found.all("SNS::Topic")


def test_one_dashboard_shows_every_consumer_table_index_and_the_failure_bucket() -> None:
    found = deploy("shop", **SHOP)
    dashboard = found.properties("CloudWatch::Dashboard")
    assert dashboard["DashboardName"] == "shop-prod"
    shown = json.dumps(dashboard["DashboardBody"])
    titles = ["Consumer of Orders", "Consumer of Visits", "Records of Orders", "Records that Lambda gave up on"]
    indexes = ["ViewsIndex", "SalesIndex"]
    metrics = ["IteratorAge", "Errors", "Throttles", "Duration", "BadRecords", "RefusedTakeBacks", "NotDone"]
    metrics += ["WriteThrottleEvents", "TransactionConflict", "PutRequests"]
    for text in (*titles, *indexes, *metrics):
        assert text in shown, text
    for kind in ("Lambda::Function", "DynamoDB::Table"):
        for logical in found.all(kind):
            # The control table is nobody's hot spot.
            assert (logical in shown) is not logical.startswith("Control"), logical
