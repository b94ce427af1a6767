"""The commands on a deployed app's control table: quarantine, redrive, delivery."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from framework.cli import control as shared
from framework.cli import main
from framework.cli import redrive as commands
from framework.local.memory import MemoryDynamoDB
from tests.unit.stream import download, event, record
from tests.unit.test_quarantine import consumer, entries, heavy, tables, total
from tests.unit.test_redrive import at, failed, mend

APP = ["--app", "tests.unit.test_quarantine:app"]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> MemoryDynamoDB:
    made = tables()
    monkeypatch.setattr(shared, "dynamodb", lambda: made)
    monkeypatch.setenv("STREAMFOLD_CONTROL", "control")
    monkeypatch.delenv("STREAMFOLD_BUCKET", raising=False)
    return made


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    command, *rest = arguments
    options = rest[:1] + APP + rest[1:] if command == "quarantine" else APP + rest
    assert main([command, *options]) == code
    out, err = capsys.readouterr()
    return out if code in (0, 3) else err


def lines(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(capsys, *arguments, "--json", code=code).splitlines()]


def test_what_is_in_quarantine_is_listed_shown_and_discarded(
    engine: MemoryDynamoDB, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "quarantine", "list") == "nothing is in quarantine\n"
    consumer(engine)(event(record(1, new=download("a")), record(2, new=download("b"))))
    first, second = lines(capsys, "quarantine", "list")
    assert (first["handler"], first["image"], first["sequenceNumber"]) == ("weights", "NewImage", "1")
    assert first["reason"] == "attribute 'weight' is missing"
    assert first["at"] == "2020-09-13T12:26:40Z"
    text = run(capsys, "quarantine", "list")
    assert first["entry"] in text
    assert text.endswith("2 open\n")
    assert lines(capsys, "quarantine", "list", "--handler", "downloads") == []
    assert lines(capsys, "quarantine", "list", "--since", "2020-09-13T12:26:41") == []
    assert len(lines(capsys, "quarantine", "list", "--since", "2020-09-13T14:26:40+02:00")) == 2
    (shown,) = lines(capsys, "quarantine", "show", first["entry"])
    assert shown["record"] == record(1, new=download("a"))
    assert json.loads(run(capsys, "quarantine", "show", first["entry"])) == shown
    assert run(capsys, "quarantine", "discard", first["entry"]) == f"discarded {first['entry']}\n"
    for verb in ("show", "discard"):
        error = run(capsys, "quarantine", verb, first["entry"], code=1)
        assert error == f"quarantine: expected an open entry, came {first['entry']!r}\n"
    assert [one["entry"] for one in lines(capsys, "quarantine", "list")] == [second["entry"]]


def test_entries_are_redriven_and_what_stays_makes_the_exit_code(
    engine: MemoryDynamoDB, capsys: pytest.CaptureFixture[str]
) -> None:
    consumer(engine)(event(record(1, new=download("a"))))
    mend(engine, "3")
    consumer(engine)(event(record(2, new=download("b"))))
    good, bad = entries(engine)
    assert [one["done"] for one in lines(capsys, "redrive", "--dry-run", code=3)] == [True, False]
    assert run(capsys, "redrive", "--dry-run", code=3).endswith("1 could be settled, 1 kept\n")
    assert total(engine, "a") is None
    assert run(capsys, "redrive", "--handler", "downloads") == "0 settled, 0 kept\n"
    text = run(capsys, "redrive", code=3)
    assert text == f"kept: {bad}: attribute 'weight' is missing\n1 settled, 1 kept\n"
    assert total(engine, "a") == (1, 3)
    assert lines(capsys, "redrive", code=3) == [
        {"entry": bad, "done": False, "reason": "attribute 'weight' is missing"}
    ]
    assert "done" in entries(engine)[good]


def test_a_failed_batch_comes_from_a_file_or_the_input(
    engine: MemoryDynamoDB, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("framework.redrive.remembers", lambda created, now: True)
    body = failed(at(1, new=heavy("a", "5")))
    (tmp_path / "failed.json").write_text(body)
    monkeypatch.setattr("sys.stdin", io.StringIO(body))
    for source in (str(tmp_path / "failed.json"), "-"):
        assert lines(capsys, "redrive", "--failures", source) == [{"entry": source, "done": True, "reason": ""}]
        assert total(engine, "a") == (1, 5)
    (tmp_path / "failed.json").write_text("{}")
    (one,) = lines(capsys, "redrive", "--failures", str(tmp_path / "failed.json"), code=3)
    assert "expected Lambda's record of a failed batch" in one["reason"]


class Bucket:
    """An S3 client with some objects."""

    class exceptions:  # botocore's name
        NoSuchKey = KeyError

    def __init__(self, objects: dict[str, str]) -> None:
        self.objects = objects

    def get_paginator(self, operation: str) -> Bucket:
        return self

    def paginate(self, **arguments: Any) -> list[dict[str, Any]]:
        found = [{"Key": key} for key in self.objects if key.startswith(arguments["Prefix"])]
        return [{"Contents": found[:1]}, {"Contents": found[1:]}, {}]

    def get_object(self, **arguments: Any) -> dict[str, Any]:
        return {"Body": io.BytesIO(self.objects[arguments["Key"]].encode())}

    def delete_object(self, **arguments: Any) -> None:
        del self.objects[arguments["Key"]]


class Queue:
    """An SQS client whose messages come again until they are deleted."""

    def __init__(self, bodies: dict[str, str]) -> None:
        self.bodies = bodies

    def receive_message(self, **arguments: Any) -> dict[str, Any]:
        found = [{"MessageId": name, "ReceiptHandle": name, "Body": body} for name, body in self.bodies.items()]
        return {"Messages": found} if found else {}

    def delete_message(self, **arguments: Any) -> None:
        del self.bodies[arguments["ReceiptHandle"]]


@pytest.mark.parametrize("kind", ["s3", "sqs"])
def test_what_is_done_is_deleted_in_the_bucket_or_the_queue_and_the_rest_is_kept(
    kind: str, engine: MemoryDynamoDB, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("framework.redrive.remembers", lambda created, now: True)
    bodies = {
        "aws/1": failed(at(1, new=heavy("a", "5"))),
        "aws/2": "{",
        "aws/3": failed(at(3, new=heavy("a", "6"))),
        "quarantine/x.json.gz": "not Lambda's",
    }
    if kind == "sqs":
        del bodies["quarantine/x.json.gz"]
    monkeypatch.setattr(commands, "client", lambda service: {"s3": Bucket, "sqs": Queue}[service](bodies))
    source = "s3://failures/" if kind == "s3" else "https://sqs.eu-west-1.amazonaws.com/1/failures"
    found = lines(capsys, "redrive", "--failures", source, code=3)
    assert [one["done"] for one in found] == [True, False, True]
    assert total(engine, "a") == (2, 11)
    assert set(bodies) == ({"aws/2", "quarantine/x.json.gz"} if kind == "s3" else {"aws/2"})


def test_the_protocol_changes_once_the_stream_is_said_to_be_drained(
    engine: MemoryDynamoDB, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "delivery", "MusicLibrary") == "MusicLibrary: not yet delivered\n"
    consumer(engine)(event(record(1, new=heavy("a", "5"))))
    assert run(capsys, "delivery", "MusicLibrary") == "MusicLibrary: lanes\n"
    error = run(capsys, "delivery", "MusicLibrary", "ledger", code=1)
    assert "MusicLibrary: expected --drained, since ledger knows nothing of what lanes has counted, came none" in error
    assert run(capsys, "delivery", "MusicLibrary", "ledger", "--drained") == "MusicLibrary: ledger\n"
    assert consumer(engine, delivery="ledger")(event(record(2, new=heavy("a", "5"))))["batchItemFailures"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["redrive", "--control", ""], "--control: expected the control table's name, came none"),
        (
            ["redrive", "--handler", "wieghts"],
            "app 'weights': expected a handler ('weights', 'downloads'), came 'wieghts'",
        ),
        (["redrive", "--failures", "x", "--handler", "weights"], "--failures: expected no other choice of entries"),
        (["redrive", "--failures", "no/such/file"], "No such file"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(
    arguments: list[str], message: str, engine: MemoryDynamoDB, capsys: pytest.CaptureFixture[str]
) -> None:
    error = run(capsys, *arguments, code=1)
    assert message in error
    assert error.count("\n") == 1
