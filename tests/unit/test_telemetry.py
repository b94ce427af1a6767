"""What the function's log says: one line of metrics a batch, a structured line for what went wrong, no payload."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from framework import telemetry
from framework.telemetry import tell

_GOOD: dict[str, Any] = {
    "shard": "shardId-1",
    "first": "100",
    "last": "300",
    "created": 1_500_000_000,
    "records": 9,
    "contributions": 7,
    "updates": 3,
    "duplicates": 1,
    "conflicts": 2,
    "badRecords": 0,
    "bad": [],
    "refusedTakeBacks": 0,
    "lateRecords": 0,
    "mostlyBad": 0,
    "failed": 0,
    "error": "",
}
_BAD = {"handler": "downloads", "key": "songID='secret'", "sequenceNumber": "200", "reason": "'at': expected a date, came 'secret'"}  # fmt: skip


@pytest.fixture(autouse=True)
def new_logger() -> None:
    # Powertools keeps a logger for each service, and that the output it was made with.
    telemetry._logger.cache_clear()
    logging.Logger.manager.loggerDict.pop("streamfold", None)


def _lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_batch_is_one_line_of_metrics(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_500_000_012.5)
    tell(_GOOD, "consumer")
    (found,) = _lines(capsys)
    (metrics,) = found["_aws"]["CloudWatchMetrics"]
    assert metrics["Namespace"] == "Streamfold"
    assert metrics["Dimensions"] == [["Function"]]
    values = {metric["Name"]: found[metric["Name"]] for metric in metrics["Metrics"]}
    assert values == {
        "Records": [9],
        "Folded": [7],
        "Written": [3],
        "Duplicates": [1],
        "Conflicts": [2],
        "BadRecords": [0],
        "RefusedTakeBacks": [0],
        "LateRecords": [0],
        "MostlyBad": [0],
        "NotDone": [0],
        "Lag": [12.5],
    }
    assert found["Function"] == "consumer"
    assert (found["shard"], found["first"], found["last"]) == ("shardId-1", "100", "300")


def test_the_end_of_a_window_without_records_is_not_worth_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    tell({**_GOOD, "records": 0}, "consumer")
    assert _lines(capsys) == []


def test_a_bad_record_is_told_without_what_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    tell({**_GOOD, "badRecords": 1, "bad": [_BAD]}, "consumer")
    _, line = _lines(capsys)
    assert "secret" not in json.dumps(line)
    assert line["level"] == "WARNING"
    assert line["message"] == "bad record"
    assert line["reason"] == "'at': expected a date"
    assert (line["handler"], line["shard"], line["first"], line["last"]) == ("downloads", "shardId-1", "100", "300")
    assert line["sequenceNumber"] == "200"


def test_values_are_logged_where_that_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMFOLD_LOG_VALUES", "1")
    tell({**_GOOD, "badRecords": 1, "bad": [_BAD]}, "consumer")
    assert (_lines(capsys)[1]["key"], _BAD["reason"][-8:]) == ("songID='secret'", "'secret'")


def test_many_bad_records_are_told_of_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    tell({**_GOOD, "badRecords": 500, "bad": [_BAD] * 500}, "consumer")
    lines = _lines(capsys)
    assert len(lines) == 22
    assert lines[-1]["count"] == 480


def test_late_records_are_a_line_a_batch(capsys: pytest.CaptureFixture[str]) -> None:
    tell({**_GOOD, "lateRecords": 3}, "consumer")
    metrics, line = _lines(capsys)
    assert metrics["LateRecords"] == [3]
    assert (line["message"], line["count"]) == ("late records, after their aggregate's retention", 3)


def test_what_is_not_done_and_refused_take_backs_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    tell({**_GOOD, "failed": 2, "error": "too slow", "refusedTakeBacks": 4}, "consumer")
    _, error, refused = _lines(capsys)
    assert (error["level"], error["message"], error["writes"], error["error"]) == ("ERROR", "not done", 2, "too slow")
    assert (refused["message"], refused["count"]) == ("take-backs without an aggregate to take from", 4)


def test_an_error_is_told_without_the_key_that_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    error = "expected no item or the aggregation's own, came one of 'others': {'songID': {'S': 'secret'}}"
    tell({**_GOOD, "failed": 1, "error": error}, "consumer")
    assert _lines(capsys)[1]["error"] == "expected no item or the aggregation's own, came one of 'others'"
