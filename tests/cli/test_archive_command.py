"""`streamfold archive`: each command on an archive in memory, as text and as JSON; wrong use."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from framework import App, Monthly, Table, TtlArchive
from framework.cli import archive as command
from framework.cli import control as shared
from framework.cli import main
from framework.cli import restore as restoring
from framework.codec import encode_item
from framework.local.memory import MemoryDynamoDB
from framework.local.objects import MemoryObjects, Together
from tests.property import test_archive_given_up as given_up
from tests.unit.shelf import DAY, SESSIONS, Shelf, session
from tests.unit.stream import event
from tests.unit.test_quarantine import tables
from tests.unit.test_restore import table


class ByMonth(TtlArchive):
    name = "by-month"
    source = SESSIONS
    partition = Monthly("began")


class ExpiredSessions(TtlArchive):
    """As in docs/archive.md."""

    name = "expired-sessions"
    source = Table("WebSessions", pk="UserId", sk="SessionId", ttl="ExpiresAt")
    partition = Monthly("BeganAt")


app = App("shop", [ByMonth, ExpiredSessions])
APP = ["by-month", "--app", "tests.cli.test_archive_command:app"]


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    made = Shelf(ByMonth)
    made.now = float(int(time.time()))
    for place in range(3):
        made.file(place * 10, [session(place), session(place + 100)], partition="month=2018-01", age=(9 - place) * DAY)
    made.file(0, [session(7)], partition="month=2018-02", age=3 * DAY)
    monkeypatch.setattr(command, "s3", lambda: made.client)
    monkeypatch.setenv("STREAMFOLD_ARCHIVE", "archive")
    return made


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> MemoryDynamoDB:
    made = table()
    for module in (command, restoring):
        monkeypatch.setattr(module, "dynamodb", lambda: made)
    return made


def run(capsys: pytest.CaptureFixture[str], verb: str, *options: str, code: int = 0) -> tuple[str, str]:
    assert main(["archive", verb, *APP, *options]) == code
    found = capsys.readouterr()
    return found.out, found.err


def lines(capsys: pytest.CaptureFixture[str], verb: str, *options: str, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(capsys, verb, *options, "--json", code=code)[0].splitlines()]


def iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


@pytest.mark.parametrize("compacted", [False, True])
def test_partitions_are_listed(shelf: Shelf, capsys: pytest.CaptureFixture[str], compacted: bool) -> None:
    if compacted:
        run(capsys, "compact")
    first, second = lines(capsys, "ls")
    size = sum(
        len(content) for name, content in shelf.objects.objects.items() if name.startswith("by-month/month=2018-01/")
    )
    assert first == {
        "partition": "month=2018-01",
        "objects": 1 if compacted else 3,
        "items": 6,
        "bytes": size,
        "first": iso(shelf.now - 9 * DAY),
        "last": iso(shelf.now - 7 * DAY),
    }
    assert (second["partition"], second["items"]) == ("month=2018-02", 1)
    out, _ = run(capsys, "ls")
    assert "month=2018-01" in out
    assert f"7 items in {2 if compacted else 4} objects, " in out.splitlines()[-1]


def test_an_empty_archive_is_told_in_a_sentence(shelf: Shelf, engine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shelf.objects.objects.clear()
    assert run(capsys, "ls")[0] == "nothing is archived\n"
    assert run(capsys, "stats")[0] == "0 objects in 0 partitions, 0 bytes\n"
    assert run(capsys, "verify")[0] == "0 items in 0 objects: all as they should be\n"
    assert run(capsys, "compact")[0] == "0 objects merged into 0\n"
    assert run(capsys, "restore")[0].startswith("0 restored, 0 were there")


def test_statistics_say_what_compacting_would_merge(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = lines(capsys, "stats")
    assert found.pop("bytes") == sum(map(len, shelf.objects.objects.values()))
    assert found.pop("sizes")["below 64 KB"] == 4
    assert found == {"partitions": 2, "objects": 4, "small": 4, "merged": 0, "compact": {"objects": 3, "into": 1}}
    assert lines(capsys, "stats", "--below", "10B")[0]["small"] == 0
    assert lines(capsys, "stats", "--older-than", "8d")[0]["compact"] == {"objects": 2, "into": 1}
    out, _ = run(capsys, "stats")
    assert out.startswith("4 objects in 2 partitions, ")
    assert out.endswith("4 are below 8,388,608 bytes; compacting now would make 1 of 3\n")
    assert "month=2018-02" in out


def test_compacting_merges_and_a_dry_run_does_not(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    before = {*shelf.objects.objects}
    assert "3 objects would be merged into 1\n" in run(capsys, "compact", "--dry-run")[0]
    assert {*shelf.objects.objects} == before
    first, _second = lines(capsys, "compact")
    assert {name: first[name] for name in ("objects", "into", "deleted", "left")} == {
        "objects": 3,
        "into": 1,
        "deleted": 3,
        "left": False,
    }
    assert len(shelf.objects.objects) == 3
    assert run(capsys, "compact") == ("0 objects merged into 0\n", "")


def test_what_is_wrong_is_named_and_makes_the_exit_code(shelf: Shelf, capsys: pytest.CaptureFixture[str]) -> None:
    assert "7 items in 4 objects: all as they should be\n" in run(capsys, "verify")[0]
    assert lines(capsys, "verify") == [{"objects": 4, "items": 7, "problems": 0}]
    name = min(shelf.objects.objects)
    shelf.objects.objects[name] = b"?"
    out, err = run(capsys, "verify", code=1)
    assert "5 items in 4 objects: 1 problems\n" in out
    assert err == f"problem: {name}: expected lines compressed with gzip, came Not a gzipped file (b'?')\n"
    problem, counts = lines(capsys, "verify", code=1)
    assert problem == {"object": name, "line": None, "reason": err.strip().partition("json.gz: ")[2]}
    assert counts == {"objects": 4, "items": 5, "problems": 1}
    assert "2 objects merged into 1\n" in run(capsys, "compact", code=1)[0]
    shelf.objects._about[name]["Metadata"] = {}
    assert "expected metadata first" in run(capsys, "ls", code=1)[1]


def test_a_table_is_compared_with(shelf: Shelf, engine: MemoryDynamoDB, capsys: pytest.CaptureFixture[str]) -> None:
    engine.put_item(TableName="Sessions", Item=encode_item(session(1)))
    engine.put_item(TableName="Sessions", Item=encode_item(session(2, newer=1)))
    _, err = run(capsys, "verify", "--table", "Sessions", code=1)
    assert err.endswith("line 1: expected an item that is gone, came it in Sessions\n")
    assert err.count("\n") == 1


def test_items_are_restored(shelf: Shelf, engine: MemoryDynamoDB, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--key", "user=ann,id=s1", "--key", "user=ann,id=s7", "--from", "2018-01", "--to", "2018-01-31"]
    out, _ = run(capsys, "restore", *chosen, "--dry-run")
    assert out == "1 would be restored, 0 were there, 0 older versions, 0 failed; 0.0 write units\n"
    assert lines(capsys, "restore", *chosen) == [{"restored": 1, "there": 0, "older": 0, "failed": 0, "writeUnits": 1}]
    assert lines(capsys, "restore", "--where", "n=7")[0]["restored"] == 1
    shelf.file(50, [session(1, n=2)], partition="month=2018-01")
    assert lines(capsys, "restore", "--wcu", "1000")[0] == {
        "restored": 5, "there": 2, "older": 1, "failed": 0, "writeUnits": 7,
    }  # fmt: skip
    assert len(engine.scan(TableName="Sessions")["Items"]) == 7


def test_what_would_expire_at_once_is_refused_until_that_is_decided(
    shelf: Shelf, engine: MemoryDynamoDB, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.update_time_to_live(
        TableName="Sessions", TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires"}
    )
    shelf.file(50, [session(50, expires=int(shelf.now) - 60)], partition="month=2018-01")
    text = "1 of 8 items would expire again at once, by 'expires': give them a new time to live (--ttl-days N)"
    assert text in run(capsys, "restore", "--dry-run")[1]
    assert text in run(capsys, "restore", code=1)[1]
    assert engine.scan(TableName="Sessions")["Items"] == []
    assert run(capsys, "restore", "--where", "n=1")[1] == ""
    assert lines(capsys, "restore", "--keep-ttl", "--where", "n=50")[0]["restored"] == 1
    (item,) = engine.scan(
        TableName="Sessions", FilterExpression="n = :n", ExpressionAttributeValues={":n": {"N": "50"}}
    )["Items"]
    assert item["expires"] == {"N": str(int(shelf.now) - 60)}
    assert lines(capsys, "restore", "--ttl-days", "30", "--where", "n=2")[0]["restored"] == 1
    (item,) = engine.scan(
        TableName="Sessions", FilterExpression="n = :n", ExpressionAttributeValues={":n": {"N": "2"}}
    )["Items"]
    assert 0 <= int(item["expires"]["N"]) - shelf.now - 30 * DAY < 60


def test_a_damaged_object_is_named_the_rest_restored_and_the_exit_code_says_so(
    shelf: Shelf, engine: MemoryDynamoDB, capsys: pytest.CaptureFixture[str]
) -> None:
    name = min(shelf.objects.objects)
    shelf.objects.objects[name] = gzip.compress(b"{}\n")
    out, err = run(capsys, "restore", code=1)
    assert out.startswith("5 restored, 0 were there, 0 older versions, 1 failed")
    assert err == f"problem: {name}: line 1: expected a line {{'Item': ...}} of DynamoDB JSON, came b'{{}}\\n'\n"
    problem, counts = lines(capsys, "restore", code=1)
    assert (problem["object"], problem["line"], counts["there"]) == (name, 1, 5)


def test_a_native_import_is_made_ready(
    shelf: Shelf, engine: MemoryDynamoDB, capsys: pytest.CaptureFixture[str]
) -> None:
    native = ["--native", "imports/1", "--table", "SessionsAgain"]
    out, err = run(capsys, "restore", *native, "--dry-run")
    assert (out, err) == ("", "7 items would be under imports/1/\n")
    out, err = run(capsys, "restore", *native)
    assert json.loads(out)["TableCreationParameters"]["TableName"] == "SessionsAgain"
    assert json.loads(out)["S3BucketSource"] == {"S3Bucket": "archive", "S3KeyPrefix": "imports/1/"}
    assert err == "7 items under imports/1/\n"
    assert len(gzip.decompress(shelf.objects.objects["imports/1/000001.json.gz"]).splitlines()) == 7
    assert "expected nothing under 'imports/1/'" in run(capsys, "restore", *native, code=1)[1]
    assert "--native: expected --table" in run(capsys, "restore", "--native", "x", code=1)[1]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["ls", "others", *APP[1:]],
            1,
            "app 'shop': expected an archive ('by-month', 'expired-sessions'), came 'others'",
        ),
        (["ls", *APP, "--bucket", ""], 1, "--bucket: expected the archives' bucket, came none"),
        (["restore", *APP, "--table", "Others"], 1, "table 'Others': expected the keys of the archived items"),
        (["restore", *APP, "--table", "Missing"], 1, "ResourceNotFoundException"),
        (["restore", *APP, "--key", "id=1"], 1, "key: expected user=... (S),id=... (S), came 'id=1'"),
        (["restore", *APP, "--from", "January"], 1, "from: expected a day, a month or a year"),
        (["restore", *APP, "--where", "x"], 1, "where: expected ATTRIBUTE=VALUE"),
        (["restore", *APP, "--ttl-days", "0"], 2, "expected 1 to 36500 days, came 0"),
        (["restore", *APP, "--wcu", "0"], 2, "expected units above 0"),
        (["compact", *APP, "--below", "8 acres"], 2, "expected such as 8MB, came 8 acres"),
        (["compact", *APP, "--older-than", "59m"], 1, "older than: expected an hour or more"),
        (["compact", *APP, "--older-than", "soon"], 2, "expected such as 48h, came soon"),
        ([], 2, "verb"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(
    arguments: Any, code: int, message: str, shelf: Shelf, engine: MemoryDynamoDB, capsys: pytest.CaptureFixture[str]
) -> None:
    table(engine, "Others", key="S")
    try:
        came = main(["archive", *arguments])
    except SystemExit as stop:
        came = int(stop.code or 0)
    assert came == code
    assert message in capsys.readouterr().err


DOCS = (Path(__file__).parents[2] / "docs" / "archive.md").read_text(encoding="utf-8")
TOLD = re.findall(r"^\$ streamfold (archive .*?)(?: >.*)?$", DOCS, re.MULTILINE)


@pytest.mark.parametrize("line", TOLD)
def test_a_command_line_of_the_docs_runs(
    line: str, shelf: Shelf, engine: MemoryDynamoDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMFOLD_NAMES", json.dumps({"WebSessions": "Sessions"}))
    engine.delete_table(TableName="Sessions")
    table(engine, UserId="S", SessionId="S")
    filled = Shelf(ExpiredSessions)
    filled.file(0, [{"UserId": "ann", "SessionId": "7", "ExpiresAt": 1_500_000_000}], partition="month=2018-01")
    shelf.client = filled.objects
    assert main([*shlex.split(line), "--app", "tests.cli.test_archive_command:app"]) == 0


def test_the_docs_tell_of_every_command() -> None:
    assert {line.split()[1] for line in TOLD} == {"ls", "stats", "restore", "verify", "compact"}


def test_redrive_files_what_was_set_aside(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    engine, objects = tables(), MemoryObjects()
    given_up.consumer(Together(engine, objects))(event(given_up.expired(1, "soon")))
    (entry,) = engine.query(
        TableName="control", KeyConditionExpression="pk = :pk", ExpressionAttributeValues={":pk": {"S": "quarantine"}}
    )["Items"]
    record = entry["record"]["S"].replace("soon-15T10:00:00Z", "2018-01-15")
    engine.put_item(TableName="control", Item={**entry, "record": {"S": record}})
    monkeypatch.setattr(shared, "dynamodb", lambda: engine)
    monkeypatch.setattr(shared, "s3", lambda: objects)
    redrive = ["redrive", "--app", "tests.property.test_archive_given_up:app", "--control", "control"]
    monkeypatch.delenv("STREAMFOLD_ARCHIVE", raising=False)
    assert main(redrive) == 3
    assert "expired: expected a bucket of archives, came none" in capsys.readouterr().out
    assert main([*redrive, "--archive", "archive"]) == 0
    assert given_up.archived(objects) == {"1": 1}
