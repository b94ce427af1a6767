"""Indexes of deployed tables: one change an update, in waves that are told, and a snapshot that remembers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_lambda as lambda_

from framework import Aggregation, App, ConfigurationError, Count, Index, Monthly, Table
from framework.manifest import manifest
from infra.checks import check
from infra.indexes import SNAPSHOT, indexes_now, main
from infra.settings import Settings, read_settings
from infra.stack import StreamfoldStack
from tests.infra.stacks import APPS, SHOP, synthesize

WANTED = manifest(APPS["music"])["tables"]["MusicLibrary"]["indexes"]
MONTHS = WANTED["MonthDownloadsIndex"]
OTHER: Any = {"pk": {"name": "Genre", "type": "S"}, "sk": {"name": "DownloadCount", "type": "N"}, "include": ["Fans"]}
WIDER: Any = {**MONTHS, "include": ["Fans"]}


def remember(root: Path, indexes: Any, stack: str = "music-prod") -> None:
    (root / SNAPSHOT).write_text(json.dumps({stack: {"MusicLibrary": indexes}}))


def deployed(root: Path, **context: Any) -> dict[str, list[str]]:
    """The indexes in the template, each with the attributes that it holds beside its keys."""
    found = synthesize("music", context, root=root).properties("DynamoDB::Table", TableName="MusicLibrary")
    indexes = found.get("GlobalSecondaryIndexes", [])
    return {each["IndexName"]: each["Projection"].get("NonKeyAttributes", []) for each in indexes}


@pytest.mark.parametrize(
    "before",
    [{}, {"MonthDownloadsIndex": MONTHS}, {"MonthDownloadsIndex": MONTHS, "GenreIndex": OTHER}],
    ids=["one more", "none", "one less"],
)
def test_one_change_needs_no_wave(before: Any, tmp_path: Path) -> None:
    remember(tmp_path, before)
    assert indexes_now(tmp_path, Settings(), "music", "MusicLibrary", WANTED) == WANTED


def test_a_new_table_and_another_stack_get_all_indexes_at_once(tmp_path: Path) -> None:
    wanted = {"A": MONTHS, "B": OTHER, "C": WIDER}
    assert indexes_now(tmp_path, Settings(), "music", "MusicLibrary", wanted) == wanted
    for stack in ("music-dev", "shop-prod"):
        remember(tmp_path, {"D": MONTHS}, stack)
        assert indexes_now(tmp_path, Settings(), "music", "MusicLibrary", wanted) == wanted


@pytest.mark.parametrize(
    ("before", "waves"),
    [
        ({"GenreIndex": OTHER}, ["remove 'GenreIndex'", "add 'MonthDownloadsIndex'"]),
        ({"MonthDownloadsIndex": WIDER}, ["remove 'MonthDownloadsIndex'", "add 'MonthDownloadsIndex'"]),
        (
            {"MonthDownloadsIndex": WIDER, "GenreIndex": OTHER},
            ["remove 'MonthDownloadsIndex'", "remove 'GenreIndex'", "add 'MonthDownloadsIndex'"],
        ),
    ],
    ids=["another", "changed", "changed and one less"],
)
def test_several_changes_are_refused_with_the_waves_to_deploy(before: Any, waves: list[str], tmp_path: Path) -> None:
    remember(tmp_path, before)
    with pytest.raises(ConfigurationError) as raised:
        synthesize("music", {}, root=tmp_path)
    assert str(raised.value) == (
        f"table 'MusicLibrary': expected at most one index to make or remove in one update, came {len(waves)} "
        f"({', then '.join(waves)}): deploy each with -c indexes=next, and run `make deployed` after each"
    )


def charts(name: str, shards: int, index: str = "ByMonth", pk: str = "Month") -> App:
    class Chart(Aggregation):
        name = "chart"
        source = Table("MusicLibrary", pk="songID", sk="SK")
        group_by = "songID"
        window = Monthly("Timestamp")
        Downloads = Count()

    Chart.index = Index(index, pk=pk, sk="Downloads", shards=shards)
    Chart.name = name
    return App("music", [type("Ours", (Chart,), {})])


def check_shards(root: Path, app: App, **context: Any) -> None:
    check(manifest(app), read_settings(context.get), root)


def deploy(root: Path, app: App, **context: Any) -> None:
    """Synthesize, and remember it as deployed."""
    made = cdk.App(outdir=str(root / "cdk.out"))
    settings = read_settings(context.get)
    code = lambda_.Code.from_inline("pass")
    StreamfoldStack(made, settings.stack("music"), manifest(app), settings, code=code, digest="d", root=root)
    made.synth()
    assert main(root, root / "cdk.out") == 0


EXISTING = {
    "tables": {
        "MusicLibrary": {"streamArn": "arn:aws:dynamodb:eu-central-1:111122223333:table/MusicLibrary/stream/2026"}
    }
}


@pytest.mark.parametrize("context", [{}, EXISTING], ids=["own", "imported"])
def test_fewer_shards_than_there_ever_were_are_refused(context: Any, tmp_path: Path) -> None:
    deploy(tmp_path, charts("chart", 4), **context)
    deploy(tmp_path, charts("chart", 8), **context)
    deploy(tmp_path, charts("chart", 9, pk="Other"), indexes="next", **context)  # by another attribute: others
    deploy(tmp_path, charts("other", 1, index="Elsewhere", pk="Elsewhere"), indexes="next", **context)
    remembered = json.loads((tmp_path / SNAPSHOT).read_text())["shards"]
    assert remembered == {"music-prod": {"MusicLibrary": {"chart": {"Month": 8, "Other": 9}}}}
    for app, came in (
        (charts("chart", 7), 7),
        (charts("chart", 1), 1),
        (charts("chart", 2, index="Renamed"), 2),
    ):
        with pytest.raises(ConfigurationError) as raised:
            check_shards(tmp_path, app, indexes="next", **context)
        assert str(raised.value) == (
            "table 'MusicLibrary': expected 8 shards or more for 'chart' by 'Month', since its entries may be in all "
            f"of them, came {came}"
        )
    for app in (charts("chart", 8), charts("chart", 20), charts("chart", 9, pk="Other"), charts("other", 1)):
        check_shards(tmp_path, app, indexes="next", **context)
    check_shards(tmp_path, charts("chart", 1), indexes="next", **context, stage="dev")


def test_each_wave_changes_one_index_and_the_last_is_what_is_wanted(tmp_path: Path) -> None:
    remember(tmp_path, {"MonthDownloadsIndex": WIDER, "GenreIndex": OTHER})
    waves = []
    for _ in range(4):
        waves.append(deployed(tmp_path, indexes="next"))
        found = synthesize("music", {"indexes": "next"}, root=tmp_path)
        remember(tmp_path, found.data["Metadata"]["streamfold"]["indexes"]["MusicLibrary"])
    assert waves == [
        {"GenreIndex": ["Fans"]},
        {},
        {"MonthDownloadsIndex": []},
        {"MonthDownloadsIndex": []},
    ]


def test_a_wave_knows_which_indexes_it_deploys_and_watches(tmp_path: Path) -> None:
    remember(tmp_path, {"MonthDownloadsIndex": WIDER, "GenreIndex": OTHER})
    found = synthesize("music", {"indexes": "next"}, root=tmp_path)
    assert found.data["Metadata"]["streamfold"]["indexes"] == {"MusicLibrary": {"GenreIndex": OTHER}}
    names = {each["Properties"]["AlarmName"] for each in found.all("CloudWatch::Alarm").values()}
    assert "music-prod-MusicLibrary-index-GenreIndex-Write-Throttled-Events-Write" in names
    assert "music-prod-MusicLibrary-index-MonthDownloadsIndex-Write-Throttled-Events-Write" not in names


def test_indexes_of_an_existing_table_are_not_ours_to_change(tmp_path: Path) -> None:
    remember(tmp_path, {"GenreIndex": OTHER})
    stream = "arn:aws:dynamodb:eu-central-1:111122223333:table/MusicLibrary/stream/2026"
    context = {"tables": {"MusicLibrary": {"streamArn": stream}}}
    assert read_settings(context.get).table("MusicLibrary").existing
    assert not synthesize("music", context, root=tmp_path).all("DynamoDB::Table", TableName="MusicLibrary")


@pytest.mark.parametrize(
    ("text", "came"),
    [
        ("{", "expected JSON as `make deployed` writes it, came Expecting property name"),
        ("[" * 100_000, "expected JSON as `make deployed` writes it, came maximum recursion depth exceeded"),
        ("[]", "expected indexes by stack and table, came []"),
        ('{"prod": 5}', "expected indexes by stack and table, came {'prod': 5}"),
        ('{"prod": {"MusicLibrary": []}}', "expected indexes by stack and table, came {'prod': {'MusicLibrary': []}}"),
        *(
            (json.dumps({"prod": {"M": {"I": index}}}), "expected indexes by stack and table, came {'prod': {'M': {'I'")
            for index in (
                ["pk", "sk", "include"],
                {"pk": 5},
                {**MONTHS, "more": 5},
                {**MONTHS, "pk": "x"},
                {**MONTHS, "sk": None},
                {**MONTHS, "sk": {"name": "N"}},
                {**MONTHS, "pk": {"name": "M", "type": "X"}},
                {**MONTHS, "pk": {"name": 5, "type": "S"}},
                {**MONTHS, "include": None},
                {**MONTHS, "include": [5]},
            )
        ),
        ('{"shards": 5}', "expected indexes by stack and table, came {'shards': 5}"),
        (
            '{"shards": {"a-b": {"M": {"c": {"k": "8"}}}}}',
            "expected indexes by stack and table, came {'shards': {'a-b'",
        ),
    ],
)
def test_a_broken_snapshot_is_told_in_a_sentence(
    text: str, came: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / SNAPSHOT).write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        synthesize("music", {}, root=tmp_path)
    assert str(raised.value).startswith(f"{SNAPSHOT}: {came}")
    assert main(tmp_path, tmp_path) == 1
    assert capsys.readouterr().err == f"streamfold: {raised.value}\n"


def assembly(folder: Path, *apps: str) -> Path:
    """What a synth of some of the apps makes; what earlier ones made stays beside it, as the CDK leaves it."""
    made = cdk.App(outdir=str(folder))
    for app in apps:
        synthesize(app, SHOP if APPS[app].name == "shop" else {}, root=folder, made=made)
    made.synth()
    return folder


def test_the_snapshot_is_brought_up_to_date_from_what_was_synthesized_last(tmp_path: Path) -> None:
    remember(tmp_path, {"GenreIndex": OTHER}, "music-dev")
    assert main(tmp_path, assembly(tmp_path / "cdk.out", "shop")) == 0
    (tmp_path / "cdk.out" / "x-prod.template.json").write_text("half a template")
    assert main(tmp_path, assembly(tmp_path / "cdk.out", "music")) == 0
    shop = manifest(APPS["shop"])["tables"]
    expected = {
        "music-dev": {"MusicLibrary": {"GenreIndex": OTHER}},
        "music-prod": {"MusicLibrary": WANTED},
        "shop-prod": {name: shop[name]["indexes"] for name in ("Totals", "Visits")},
    }
    assert json.loads((tmp_path / SNAPSHOT).read_text()) == expected
    # What was just deployed needs no wave.
    assert deployed(tmp_path) == {"MonthDownloadsIndex": []}


def test_what_an_earlier_synth_left_is_not_taken_for_deployed(tmp_path: Path) -> None:
    assembly(tmp_path / "cdk.out", "shop")
    assert main(tmp_path, assembly(tmp_path / "cdk.out", "music")) == 0
    assert json.loads((tmp_path / SNAPSHOT).read_text()).keys() == {"music-prod"}


def test_a_table_that_left_the_app_is_forgotten(tmp_path: Path) -> None:
    assert main(tmp_path, assembly(tmp_path / "cdk.out", "shop")) == 0
    assert main(tmp_path, assembly(tmp_path / "cdk.out", "shop-sales")) == 0
    assert json.loads((tmp_path / SNAPSHOT).read_text())["shop-prod"].keys() == {"Totals"}


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"artifacts": {}}', '{"artifacts": {"x": {}}}'])
def test_a_snapshot_needs_a_synthesized_stack(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cdk.out").mkdir()
    if text is not None:
        (tmp_path / "cdk.out" / "manifest.json").write_text(text)
    assert main(tmp_path, tmp_path / "cdk.out") == 1
    expected = f"{tmp_path / 'cdk.out'}: expected a synthesized stack, came none: run `make synth` first"
    assert capsys.readouterr().err == f"streamfold: {expected}\n"
    assert not (tmp_path / SNAPSHOT).exists()
