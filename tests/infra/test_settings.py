"""Settings out of the context: safe defaults, and a sentence for what is wrong, also from `python -m infra.app`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import aws_lambda as lambda_

import infra.app
from framework import ConfigurationError
from framework.manifest import manifest
from infra.checks import check
from infra.settings import ArchiveSettings, Capacity, ConsumerSettings, Settings, TableSettings, read_settings
from tests.infra.stacks import APPS, ORDERS_STREAM, SHOP

ROOT = Path(__file__).resolve().parents[2]
MUSIC_STREAM = "arn:aws:dynamodb:eu-central-1:111122223333:table/MusicLibrary/stream/2026-01-31T00:00:00.000"
LOG_DAYS = (
    "one of 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653"
)
KEYS = "account, alarmTopic, app, archives, consumers, indexes, region, removal, tables"


def test_nothing_has_to_be_set_and_data_is_then_kept() -> None:
    assert read_settings({}.get) == Settings()
    assert (Settings().stage, Settings().retain, Settings().alarm_topic) == ("prod", True, None)
    assert Settings().consumer("MusicLibrary") == ConsumerSettings(
        batch_size=1000, batching_window=1, parallelization=1
    )
    assert Settings().physical("MusicLibrary") == "MusicLibrary"


@pytest.mark.parametrize(
    ("context", "settings"),
    [
        (
            {"stage": "dev", "stages": {"dev": {"removal": "destroy", "region": "eu-central-1"}}},
            Settings(stage="dev", retain=False, region="eu-central-1"),
        ),
        ({"stage": "test", "stages": {"dev": {"removal": "destroy"}}}, Settings(stage="test")),
        ({"stages": {"prod": {"region": "eu-central-1"}}, "region": "cn-north-1"}, Settings(region="cn-north-1")),
        ({"stages": '{"prod": {"removal": "destroy"}}'}, Settings(retain=False)),
        ({"account": "", "region": "", "alarmTopic": ""}, Settings()),
        ({"account": "111122223333", "region": "us-gov-west-1"}, Settings(account="111122223333", region="us-gov-west-1")),
        ({"region": "eusc-de-east-1"}, Settings(region="eusc-de-east-1")),
        ({"alarmTopic": "arn:aws-cn:sns:cn-north-1:111122223333:ops"}, Settings(alarm_topic="arn:aws-cn:sns:cn-north-1:111122223333:ops")),
        ({"indexes": "next"}, Settings(next_index=True)),
        ({"app": "mine:app"}, Settings(app="mine:app")),
        ({"tables": {"A": {"name": "a-dev", "existing": True}}}, Settings(tables={"A": TableSettings(name="a-dev", existing=True)})),
        (
            SHOP,
            Settings(tables={"Orders": TableSettings(name="shop-orders", existing=True, stream_arn=ORDERS_STREAM)}),
        ),
        (
            {"tables": '{"A": {"read": {"least": 1, "most": 2}, "write": {"least": "3", "most": 3}}}'},
            Settings(tables={"A": TableSettings(read=Capacity(least=1, most=2), write=Capacity(least=3, most=3))}),
        ),
        (
            {"consumers": {"A": {"batchSize": 1, "batchingWindow": 0, "memory": 128, "timeout": 3, "retries": -1, "logDays": 1}}},
            Settings(
                consumers={
                    "A": ConsumerSettings(batch_size=1, batching_window=0, memory=128, timeout=3, retries=-1, log_days=1)
                }
            ),
        ),
        (
            {"archives": {"a": {"since": "2018-01"}, "b": {"since": "2018", "until": "2019"}, "c": {"until": "2018-01-31"}}},
            Settings(
                archives={
                    "a": ArchiveSettings(since="2018-01"),
                    "b": ArchiveSettings(since="2018", until="2019"),
                    "c": ArchiveSettings(until="2018-01-31"),
                }
            ),
        ),
    ],
)  # fmt: skip
def test_the_context_is_read(context: dict[str, Any], settings: Settings) -> None:
    assert read_settings(context.get) == settings


def of_table(**table: Any) -> dict[str, Any]:
    return {"tables": {"Music": table}}


def of_consumer(**consumer: Any) -> dict[str, Any]:
    return {"consumers": {"Music": consumer}}


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"stage": "Prod"}, "stage: expected lower-case letters, digits and hyphens, at most 31, letter first, came 'Prod'"),
        ({"stage": "a" * 32}, f"stage: expected lower-case letters, digits and hyphens, at most 31, letter first, came '{'a' * 32}'"),
        ({"stage": 5}, "stage: expected lower-case letters, digits and hyphens, at most 31, letter first, came 5"),
        ({"stages": "dev"}, "stages: expected an object, on the command line as JSON, came 'dev'"),
        ({"stages": ["dev"]}, "stages: expected an object, came ['dev']"),
        ({"stages": {"prod": None}}, "stages.prod: expected an object, came None"),
        ({"stages": {"prod": {"regoin": "x"}}}, f"stages.prod: expected keys among {KEYS}, came ['regoin']"),
        ({"account": "12345"}, "account: expected 12 digits as text, came '12345'"),
        ({"account": 111122223333}, "account: expected 12 digits as text, came 111122223333"),
        ({"region": "Frankfurt"}, "region: expected a Region such as eu-central-1, came 'Frankfurt'"),
        ({"removal": "delete"}, "removal: expected retain or destroy, came 'delete'"),
        ({"alarmTopic": "ops"}, "alarmTopic: expected the ARN of an SNS topic, came 'ops'"),
        ({"indexes": "2"}, "indexes: expected all or next, came '2'"),
        ({"tables": "{"}, "tables: expected an object, on the command line as JSON, came '{'"),
        ({"tables": "[1]"}, "tables: expected an object, came [1]"),
        ({"tables": {"Music": "x"}}, "tables.Music: expected an object, on the command line as JSON, came 'x'"),
        (of_table(arn="x"), "tables.Music: expected keys among existing, name, read, readers, streamArn, write, came ['arn']"),
        (of_table(name="a"), "tables.Music.name: expected 3 to 255 of the characters A-Z a-z 0-9 _ . -, came 'a'"),
        (of_table(streamArn="x"), "tables.Music.streamArn: expected the ARN of a DynamoDB stream, came 'x'"),
        (of_table(streamArn=MUSIC_STREAM), "tables.Music.streamArn: expected a stream of table 'Music', came 'arn:aws:dynamodb:eu-central-1:111122223333:table/MusicLibr…"),
        (of_table(name="Other", streamArn=MUSIC_STREAM), "tables.Music.streamArn: expected a stream of table 'Other', came 'arn:aws:dynamodb:eu-central-1:111122223333:table/MusicLibr…"),
        (of_table(existing="yes"), "tables.Music.existing: expected true beside a streamArn, else true or false, came 'yes'"),
        (of_table(name="MusicLibrary", streamArn=MUSIC_STREAM, existing=False), "tables.Music.existing: expected true beside a streamArn, else true or false, came False"),
        (of_table(existing=True, read={"least": 1, "most": 2}), "tables.Music: expected no capacity for an existing table, since nothing about it is changed, came {'existing': True, 'read': {'least': 1, 'most': 2}}"),
        (of_table(existing=True, write={"least": 1, "most": 2}), "tables.Music: expected no capacity for an existing table, since nothing about it is changed, came {'existing': True, 'write': {'least': 1, 'most': 2}}"),
        (of_table(readers=11), "tables.Music.readers: expected a whole number from 0 to 10, came 11"),
        (of_table(read=5), "tables.Music.read: expected an object, came 5"),
        (of_table(read={"min": 5}), "tables.Music.read: expected keys among least, most, came ['min']"),
        (of_table(read={"most": 5}), "tables.Music.read.least: expected a whole number from 1 to 40,000, came None"),
        (of_table(write={"least": 5}), "tables.Music.write.most: expected a whole number from 5 to 40,000, came None"),
        (of_table(write={"least": 5, "most": 4}), "tables.Music.write.most: expected a whole number from 5 to 40,000, came 4"),
        ({"consumers": []}, None),
        ({"consumers": {"Music": []}}, "consumers.Music: expected an object, came []"),
        (of_consumer(batch=5), "consumers.Music: expected keys among batchSize, batchingWindow, delivery, logDays, memory, parallelization, retries, timeout, came ['batch']"),
        (of_consumer(batchSize=0), "consumers.Music.batchSize: expected a whole number from 1 to 10,000, came 0"),
        (of_consumer(batchSize=10_001), "consumers.Music.batchSize: expected a whole number from 1 to 10,000, came 10001"),
        (of_consumer(batchSize=True), "consumers.Music.batchSize: expected a whole number from 1 to 10,000, came True"),
        (of_consumer(batchingWindow=301), "consumers.Music.batchingWindow: expected a whole number from 0 to 300, came 301"),
        (of_consumer(delivery="queue"), "consumers.Music.delivery: expected lanes or ledger, came 'queue'"),
        (of_consumer(parallelization=11), "consumers.Music.parallelization: expected a whole number from 1 to 10, came 11"),
        (of_consumer(memory=64), "consumers.Music.memory: expected a whole number from 128 to 10,240, came 64"),
        (of_consumer(timeout=2.5), "consumers.Music.timeout: expected a whole number from 3 to 900, came 2.5"),
        (of_consumer(retries=-2), "consumers.Music.retries: expected a whole number from -1 to 10,000, came -2"),
        (of_consumer(logDays=4000), "consumers.Music.logDays: expected a whole number from 1 to 3,653, came 4000"),
        (of_consumer(logDays=2), f"consumers.Music.logDays: expected {LOG_DAYS}, came 2"),
        ({"archives": {"old": {"from": "2018"}}}, "archives.old: expected keys among since, until, came ['from']"),
        ({"archives": {"old": {"since": "01/2018"}}}, "archives.old.since: expected the label of a partition such as 2018-01, came '01/2018'"),
        ({"archives": {"old": {"until": 2018}}}, "archives.old.until: expected the label of a partition such as 2018-01, came 2018"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_told_in_a_sentence(context: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert read_settings(context.get) == Settings()
        return
    with pytest.raises(ConfigurationError) as raised:
        read_settings(context.get)
    assert str(raised.value) == f"context: {message}"


@pytest.mark.parametrize(
    ("app", "context", "message"),
    [
        ("music", {"tables": {"Musik": {}}}, "tables.Musik: expected one of the app's tables (MusicLibrary), came 'Musik'"),
        ("shop", {"consumers": {"Totals": {}}}, "consumers.Totals: expected one of the app's consumers (Orders, Visits), came 'Totals'"),
        (
            "shop",
            {"tables": {"Visits": {"name": "Totals"}}},
            "tables: expected a name of its own for each, came Orders, Totals, Totals",
        ),
        (
            "music",
            {"tables": {"MusicLibrary": {"existing": True}}},
            "tables.MusicLibrary: expected a streamArn, since a consumer reads the table, came none: turn its stream on with the view type NEW_AND_OLD_IMAGES and give its ARN",
        ),
        (
            "music",
            {"tables": {"MusicLibrary": {"streamArn": MUSIC_STREAM, "readers": 2}}},
            "tables.MusicLibrary.readers: expected at most 1, since a stream takes 2 readers and the consumer is one, came 2",
        ),
        (
            "music",
            {"consumers": {"MusicLibrary": {"batchingWindow": 0, "batchSize": 11}}},
            "consumers.MusicLibrary.batchingWindow: expected at least 1 for a batchSize above 10, as Lambda does, came 0",
        ),
        (
            "music",
            {"region": "eu-north-1", "tables": {"MusicLibrary": {"streamArn": MUSIC_STREAM}}},
            f"tables.MusicLibrary.streamArn: expected one in eu-north-1, came {MUSIC_STREAM}",
        ),
        (
            "music",
            {"region": "eu-north-1", "alarmTopic": "arn:aws:sns:us-east-1:123456789012:alarms"},
            "alarmTopic: expected one in eu-north-1, came arn:aws:sns:us-east-1:123456789012:alarms",
        ),
        (
            "music",
            {"alarmTopic": "arn:aws:sns:cn-north-1:123456789012:alarms"},
            "alarmTopic: expected arn:aws-cn:... in cn-north-1, came arn:aws:sns:cn-north-1:123456789012:alarms",
        ),
        (
            "music",
            {"tables": {"MusicLibrary": {"streamArn": MUSIC_STREAM.replace("eu-central-1", "us-gov-west-1")}}},
            f"tables.MusicLibrary.streamArn: expected arn:aws-us-gov:... in us-gov-west-1, came {MUSIC_STREAM.replace('eu-central-1', 'us-gov-west-1')}",
        ),
        (
            "music",
            {"consumers": {"MusicLibrary": {"parallelization": 2}}},
            "consumers.MusicLibrary.parallelization: expected 1, or the delivery 'ledger', since exactly once by lanes needs a shard's records one batch after the other, came 2",
        ),
        (
            "music",
            {"consumers": {"MusicLibrary": {"timeout": 900, "batchingWindow": 300}}},
            "consumers.MusicLibrary: expected a batching window and a timeout shorter than the tumbling window of 900 s, came 300 s and 900 s",
        ),
        (
            "kept",
            {"consumers": {"Sessions": {"delivery": "ledger"}}},
            "consumers.Sessions.delivery: expected 'lanes', since the archive 'expired-sessions' goes by the order of a shard's records, came 'ledger'",
        ),
        ("music", {"archives": {"old": {}}}, "archives.old: expected one of the app's archives (it has none), came 'old'"),
        (
            "kept",
            {"archives": {"expired-sessions": {"since": "2018"}}},
            "archives.expired-sessions.since: expected a partition's label of the form yyyy-MM, came '2018'",
        ),
        (
            "kept",
            {"archives": {"old-visits": {"until": "2018-02-30"}}},
            "archives.old-visits.until: expected a partition's label of the form yyyy-MM-dd, came '2018-02-30'",
        ),
        (
            "kept",
            {"archives": {"closed-accounts": {"since": "2018", "until": "2017"}}},
            "archives.closed-accounts.until: expected 2018 or later, as in since, came '2017'",
        ),
    ],
    ids=["unknown table", "unknown consumer", "one name twice", "no stream", "third reader", "no batching window", "stream elsewhere", "topic elsewhere", "topic of another partition", "stream of another partition", "parallel", "window", "archive by the ledger", "unknown archive", "label of another division", "no day", "end before start"],
)  # fmt: skip
def test_what_cannot_work_together_is_told_in_a_sentence(
    app: str, context: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check(manifest(APPS[app]), read_settings(context.get), tmp_path)
    assert str(raised.value) == f"context: {message}"


def test_a_name_that_no_map_of_the_cdk_holds_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check(manifest(APPS["table __proto__"]), Settings(), tmp_path)
    assert str(raised.value) == "table '__proto__': expected names that the CDK's maps can hold, came '__proto__'"


def test_a_consumer_without_an_archive_may_use_the_ledger_beside_those_that_have_one(tmp_path: Path) -> None:
    check(manifest(APPS["kept"]), read_settings({"consumers": {"Orders": {"delivery": "ledger"}}}.get), tmp_path)


def test_a_second_reader_and_the_longest_timeout_are_fine(tmp_path: Path) -> None:
    context = {
        "tables": {"MusicLibrary": {"streamArn": MUSIC_STREAM, "readers": 1}},
        "consumers": {"MusicLibrary": {"timeout": 899, "batchingWindow": 300}},
    }
    check(manifest(APPS["music"]), read_settings(context.get), tmp_path)


def run(command: list[str], context: dict[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python as the CDK's command runs it, with a folder of modules on its path."""
    given = {"CDK_CONTEXT_JSON": json.dumps(context), "CDK_OUTDIR": str(folder / "cdk.out"), "PYTHONPATH": str(folder)}
    # As on a machine whose Node is old: we silence the banner about it, not whoever runs the tests.
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("JSII_", "CDK_"))}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=ours | given, capture_output=True, text=True, timeout=120, check=False
    )


BROKEN = """
from framework import Aggregation, App, Count, Monthly, Table

class Likes(Aggregation):
    name = "likes"
    source = Table("Songs", pk="song")
    group_by = "song"
    window = Monthly("at")
    Likes = Count

app = App("likes", [Likes])
"""


@pytest.mark.parametrize(
    ("context", "sentence"),
    [
        ({"app": "handlers.nothing:app"}, r"app 'handlers.nothing:app': expected a module that can be imported, came ModuleNotFoundError: No module named 'handlers.nothing'"),
        ({"app": "handlers.app:nothing"}, r"app 'handlers.app:nothing': expected 'nothing' to be an App, came None"),
        ({"app": "handlers.app"}, r"app: expected MODULE:VARIABLE such as 'handlers.app:app', came 'handlers.app'"),
        ({"app": "broken:app"}, r"Likes.Likes: expected a measure such as Count\(...\), came the class Count"),
        ({"app": "two_lines:app"}, r"app 'two_lines:app': expected a module that can be imported, came ValueError: one two"),
        ({"tables": '{"MusicLibrary": {"existing": true}}'}, r"context: tables.MusicLibrary: expected a streamArn, .* and give its ARN"),
        ({"tables": "{"}, r"context: tables: expected an object, on the command line as JSON, came '{'"),
    ],
    ids=["no module", "no app", "no variable", "declaration", "two lines", "no stream", "no JSON"],
)  # fmt: skip
def test_bad_input_ends_with_one_sentence_and_no_trace(context: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "two_lines.py").write_text("raise ValueError('one\\n two')")
    done = run(["-m", "infra.app"], context, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(rf"streamfold: {sentence}\n", done.stderr), done.stderr


CROWDED = """
from framework import Aggregation, App, Count, Index, Monthly, Sum, Table

measures = {f"Total{n}": Sum(f"number{n}") for n in range(101)}
fields = {"name": "likes", "source": Table("Songs", pk="song", sk="sk"), "group_by": "song", "window": Monthly("at")}
index = Index("LikesIndex", pk="Month", sk="Likes")
app = App("crowded", [type("Likes", (Aggregation,), {**fields, **measures, "Likes": Count(), "index": index})])
"""
# Without the bundle, whose wheels may have to be downloaded.
UNBUNDLED = (
    "import sys, infra.app as a; a.code = lambda app: (a.lambda_.Code.from_inline('x'), 'x'); sys.exit(a.main())"
)


def test_what_only_the_cdk_refuses_is_a_sentence_too(tmp_path: Path) -> None:
    (tmp_path / "crowded.py").write_text(CROWDED)
    done = run(["-c", UNBUNDLED], {"app": "crowded:app"}, tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    sentence = "streamfold: synth: expected a stack that the CDK can make, came .*maximum number of nonKeyAttributes.*"
    assert re.fullmatch(sentence + "\n", done.stderr), done.stderr


def test_good_input_is_synthesized_without_a_word(tmp_path: Path) -> None:
    done = run(["-c", UNBUNDLED], {}, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "cdk.out" / "music-prod.template.json").is_file()


def test_a_copy_of_the_bundle_that_an_earlier_synth_made_is_not_taken_again(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "app.py").write_text("whole")
    bundled = UNBUNDLED.replace("from_inline('x')", f"from_asset({str(tmp_path / 'bundle')!r})")
    for _ in range(2):
        assert run(["-c", bundled], {}, tmp_path).returncode == 0
        (copy,) = (tmp_path / "cdk.out").glob("asset.*/app.py")
        assert copy.read_text() == "whole"
        copy.write_text("damaged")


def test_an_error_of_ours_in_the_synthesis_keeps_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> lambda_.Code:
        raise RuntimeError("a defect")

    monkeypatch.setattr(infra.app, "code", fails)
    with pytest.raises(RuntimeError, match="a defect"):
        infra.app.main()


def test_what_cdk_runs_without_any_context_is_the_app_of_the_handlers() -> None:
    command = json.loads((ROOT / "cdk.json").read_text())
    assert command["app"].endswith("python -m infra.app")
    settings = read_settings(command["context"].get)
    assert settings == Settings()
    assert read_settings({**command["context"], "stage": "dev"}.get) == Settings(stage="dev", retain=False)
