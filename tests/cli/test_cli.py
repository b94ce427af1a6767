"""The command: output for machines, exit codes, and one sentence for what is wrong."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from framework.cli import main
from framework.cli.demo import differences, fold_flights
from framework.demo import flights
from framework.local.memory import MemoryDynamoDB
from framework.local.world import table_requests
from handlers.app import app as music
from handlers.music_library import MonthlyDownloads

APP = ["--app", "handlers.app:app"]


def download(song: str, number: int, at: str) -> dict[str, Any]:
    return {"songID": song, "SK": f"download-{number}", "Timestamp": at}


ITEMS = [download("ab"[n % 3 == 0], n, "2018-01-15T10:00:00Z") for n in range(9)]
EXPECTED = [
    {"songID": "a", "SK": "2018-01", "Month": "2018-01", "DownloadCount": 6},
    {"songID": "b", "SK": "2018-01", "Month": "2018-01", "DownloadCount": 3},
]


def write(path: Path, form: str) -> Path:
    if form == "csv":
        text = "songID,SK,Timestamp\n" + "".join(",".join(item.values()) + "\n" for item in ITEMS)
    elif form == "typed":
        text = "".join(json.dumps({"Item": {k: {"S": v} for k, v in item.items()}}) + "\n" for item in ITEMS)
    else:
        text = "".join(json.dumps(item) + "\n" for item in ITEMS)
    file = path / "events"
    file.write_bytes(gzip.compress(text.encode()) if form == "gzip" else text.encode())
    return file


@pytest.mark.parametrize("form", ["plain", "typed", "csv", "gzip"])
def test_local_prints_each_aggregate_and_then_what_it_cost(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(write(tmp_path, form))
    for _ in range(2):
        assert main(["local", *APP, "--events", file, "--json"]) == 0
        *items, account = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert sorted(items, key=lambda item: item["songID"]) == EXPECTED
        assert account == {"records": 9, "aggregates": 2, "requests": 2, "wcu": 4, "badRecords": 0}


def test_local_shows_people_the_last_window_of_each_aggregation_with_an_index_or_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with gzip.open(flights.DATA, "rt", newline="") as rows:
        (tmp_path / "flights.csv").write_text("".join(itertools.islice(rows, 1200)))
    assert main(["local", "--app", "framework.demo.flights:app", "--events", str(tmp_path / "flights.csv")]) == 0
    out = capsys.readouterr().out
    assert "monthly-flights, 2013-01 (the last of 1 window), by Flights" in out
    assert "daily-flights, 2013-01-02 (the last of 2 windows), by Flights" in out


def test_local_says_so_where_nothing_was_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "events.jsonl").write_text(json.dumps({"songID": "a", "SK": "info"}) + "\n")
    assert main(["local", *APP, "--events", str(tmp_path / "events.jsonl")]) == 0
    assert "monthly-downloads: nothing was counted" in capsys.readouterr().out


def test_top_ranks_a_window_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(write(tmp_path, "plain"))
    assert main(["top", *APP, "--events", file, "monthly-downloads", "2018-01", "-n", "1", "--json"]) == 0
    best, about = map(json.loads, capsys.readouterr().out.splitlines())
    assert best == {"group": "a", "window": "2018-01", "DownloadCount": 6}
    assert about["readUnits"] == 0.5
    goes_on = ["monthly-downloads", "2018-01", "--token", about["token"], "--json"]
    assert main(["top", *APP, "--events", file, *goes_on]) == 0
    *rest, about = map(json.loads, capsys.readouterr().out.splitlines())
    assert [(one["group"], one["DownloadCount"]) for one in rest] == [("b", 3)]
    assert about["token"] is None


def test_top_begins_at_any_rank_and_at_either_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "events.jsonl"
    items = [download(song, n, "2018-01-15") for song, plays in (("a", 3), ("b", 1), ("c", 2)) for n in range(plays)]
    file.write_text("".join(json.dumps(item) + "\n" for item in items))
    command = ["top", *APP, "--events", str(file), "monthly-downloads", "2018-01"]
    assert main([*command, "--start", "2"]) == 0
    out = capsys.readouterr().out
    assert out.index("c") < out.index("b ")
    assert "█" in out
    assert "0.5 read units\n" in out
    assert main([*command, "--bottom", "-n", "1"]) == 0
    out = capsys.readouterr().out
    assert "b" in out.splitlines()[1]
    assert "0.5 read units, more with --token " in out


def test_top_shows_what_lies_between_bounds_and_all_of_it_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "events.jsonl"
    counts = {"a": 3, "b": 1, "c": 2, "\x1bd": 1200}
    items = [download(song, n, "2018-01-15") for song, plays in counts.items() for n in range(plays)]
    file.write_text("".join(json.dumps(item) + "\n" for item in items))
    command = ["top", *APP, "--events", str(file), "monthly-downloads", "2018-01"]

    def groups(*more: str) -> list[str]:
        assert main([*command, *more, "--json"]) == 0
        *found, about = map(json.loads, capsys.readouterr().out.splitlines())
        assert about["readUnits"] == 0.5
        return [one["group"] for one in found]

    assert groups("--at-least", "2", "--at-most", "1000") == ["a", "c"]
    assert groups("--bottom", "-n", "1", "--at-least", "1.5") == ["c"]
    assert groups("--all", "--at-most", "3") == ["a", "c", "b"]
    assert main([*command, "-n", "1", "--at-most", "3", "--json"]) == 0
    token = json.loads(capsys.readouterr().out.splitlines()[-1])["token"]
    assert groups("--all", "--at-most", "3", "--token", token) == ["c", "b"]
    assert main([*command, "--all"]) == 0
    expected = ["1,200\t\N{REPLACEMENT CHARACTER}d", "3\ta", "2\tc", "1\tb", "4 aggregates, 0.5 read units"]
    assert capsys.readouterr().out.splitlines() == expected
    assert main([*command, "--all", "--at-least", "5000"]) == 0
    assert capsys.readouterr().out == "0 aggregates, 0.5 read units\n"


def test_all_is_printed_as_it_is_read_and_tells_where_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(MemoryDynamoDB):
        """Gives a page of two, and no other until it is mended."""

        broken = True

        def query(self, **arguments: Any) -> Any:
            if self.broken and "ExclusiveStartKey" in arguments:
                raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "later"}}, "Query")
            return super().query(**arguments | {"Limit": 2})

    engine = Failing()
    for request in table_requests(music):
        engine.create_table(**request)
    for song, count in (("a", 5), ("b", 4), ("c", 3)):
        key = {"songID": {"S": song}, "SK": {"S": "2018-01"}, "Month": {"S": "2018-01"}}
        engine.put_item(TableName="MusicLibrary", Item={**key, "DownloadCount": {"N": str(count)}})
    monkeypatch.setattr("framework.reading.dynamodb", lambda: engine)
    assert main(["top", *APP, "monthly-downloads", "2018-01", "--all"]) == 1
    out, err = capsys.readouterr()
    assert out == "5\ta\n"
    assert "stopped after 1 aggregates; go on with --token " in err
    token = err.split("--token ")[1].split()[0]
    engine.broken = False
    read = MonthlyDownloads.all("2018-01", token=token, client=engine)
    assert next(read).group == "b"


def test_a_series_is_a_sparkline_bars_and_a_total(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "events.jsonl"
    dates = [("2018-01-15", 4), ("2018-03-01", 8), ("2018-04-01", 1)]
    items = [download("a", f"{at}-{n}", at) for at, plays in dates for n in range(plays)]
    file.write_text("".join(json.dumps(item) + "\n" for item in items))
    command = ["series", *APP, "--events", str(file), "monthly-downloads", "a", "2018-01", "2018-04"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "monthly-downloads, a: DownloadCount ▅▁█▂"
    assert [line.split()[:2] for line in lines[1:5]] == [
        ["2018-01", "4"],
        ["2018-02", "0"],
        ["2018-03", "8"],
        ["2018-04", "1"],
    ]
    assert lines[5] == "together: DownloadCount 13"
    assert main([*command, "--json"]) == 0
    *months, total = map(json.loads, capsys.readouterr().out.splitlines())
    assert [month["DownloadCount"] for month in months] == [4, 0, 8, 1]
    assert total == {"total": {"DownloadCount": 13}, "readUnits": 1}


def test_a_bad_record_is_named_and_the_exit_code_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text(json.dumps(download("a", 99, "soon")) + "\n" + json.dumps(ITEMS[1]) + "\n")
    assert main(["local", *APP, "--events", str(file), "--json"]) == 3
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[-1])["aggregates"] == 1
    assert "bad record: monthly-downloads: songID='a', SK='download-99': " in err
    assert "expected ISO-8601 text or epoch seconds, came {'S': 'soon'}" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["local", *APP, "--events", "BROKEN"], "broken.jsonl"),
        (["local", *APP, "--events", "nowhere.jsonl"], "nowhere.jsonl: expected a file"),
        (["local", "--app", "nowhere:app", "--events", "x"], "expected a module that can be imported"),
        (["local", *APP, "--events", "x", "--table", "Other"], "expected a source table"),
        (["top", *APP, "nothing", "2018-01"], "expected an aggregation"),
        (["top", *APP, "monthly-downloads", "2018-13", "--events", "x"], "2018-13"),
        (["series", *APP, "monthly-downloads", "a", "2018-01", "2018-13", "--events", "x"], "2018-13"),
        (
            ["top", *APP, "monthly-downloads", "2018-01", "--all", "--start", "2", "-n", "5"],
            "--all: expected none of -n, --bottom, --start beside it, came -n, --start",
        ),
        (
            ["top", *APP, "monthly-downloads", "2018-01", "--all", "--bottom"],
            "--all: expected none of -n, --bottom, --start beside it, came --bottom",
        ),
        (
            ["top", *APP, "monthly-downloads", "2018-01", "--at-least", "3", "--at-most", "2.5"],
            "monthly-downloads: at_most: expected no less than at_least, 3, came 2.5",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence_and_nothing_is_printed(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text(json.dumps(ITEMS[0]) + '\n{"songID": \n')
    assert main([str(broken) if a == "BROKEN" else a for a in arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.strip().count("\n") == 0
    assert ("line 2" in err or ":2:" in err) is ("BROKEN" in arguments)


@pytest.mark.parametrize(
    ("text", "came"),
    [
        ("raise ValueError('boom')", "ValueError: boom"),
        ("def", "SyntaxError: "),
        ("import sys; sys.exit('bye')", "SystemExit: bye"),
    ],
)
def test_an_app_that_fails_when_it_is_imported_is_one_sentence(
    text: str, came: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "failing_app.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["local", "--app", "failing_app:app", "--events", "x"]) == 1
    assert f"expected a module that can be imported, came {came}" in capsys.readouterr().err
    sys.modules.pop("failing_app", None)


def test_a_group_is_shown_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "events.jsonl"
    songs = ("a[/b]", "[red]x", ":smile:", "\x1b[31mred")
    file.write_text("".join(json.dumps(download(song, 1, "2018-01-15")) + "\n" for song in songs))
    assert main(["top", *APP, "--events", str(file), "monthly-downloads", "2018-01"]) == 0
    out = capsys.readouterr().out
    assert all(song in out for song in songs[:3])
    assert "\x1b" not in out


SHELL = f"{sys.executable} -m framework.cli local --app handlers.app:app --events"


@pytest.mark.parametrize(
    ("command", "code", "out", "err"),
    [
        ("{run} --json >&-", 3, "", "bad record"),
        ("{run} --json 2>&-", 3, '"DownloadCount": 1', ""),
        ("{run} --json >/dev/full", 1, "", "streamfold: expected an output that can be written"),
        ("PYTHONIOENCODING=ascii {run}", 3, "na?ve", "bad record"),
        ("(({run} --json; echo $? >&3) 2>&1 >/dev/null | true) 3>&1", 0, "3\n", ""),
        ("({run} --json; echo $? >&2) | true", 0, "", ""),
        ("(PYTHONUNBUFFERED=1 {run}; echo code $? >&2) | true", 0, "", "code 0"),
    ],
)
def test_closed_full_and_narrow_outputs(command: str, code: int, out: str, err: str, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    items = [download("naïve", 1, "2018-01-15"), *(download("a", n, "soon") for n in range(30))]
    file.write_text("".join(json.dumps(item) + "\n" for item in items))
    line = command.replace("{run}", f"{SHELL} {file}")
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    assert out in done.stdout
    assert err in done.stderr
    assert "Traceback" not in done.stderr
    assert "bad record" not in done.stdout


def test_wrong_usage_exits_with_2() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["local"])


@pytest.mark.parametrize("text", ["x", "1e999", "", "NaN"])
def test_a_bound_is_a_number(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["top", *APP, "monthly-downloads", "2018-01", "--at-least", text])
    assert f"argument --at-least: expected a number, came {text}" in capsys.readouterr().err


def test_the_command_runs_as_a_module(tmp_path: Path) -> None:
    file = str(write(tmp_path, "csv"))
    command = [sys.executable, "-m", "framework.cli", "local", *APP, "--events", file, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["records"] == 9
    assert "\x1b" not in done.stdout + done.stderr


def test_flights_equal_an_independent_recount_for_every_aggregate(tmp_path: Path) -> None:
    file = tmp_path / "flights-2013.csv.gz"
    with gzip.open(flights.DATA, "rt", newline="") as lines:
        rows = list(itertools.islice(csv.reader(lines), 1500))
    with gzip.open(file, "wt", newline="") as lines:
        csv.writer(lines).writerows(rows)
    summary = fold_flights(file, quiet=True)
    assert summary["equal"]
    assert summary["records"] == 1499
    assert summary["aggregates"] > 150


def test_a_difference_is_found_and_named() -> None:
    good = {("AA#MIA", "2013-01"): {"Flights": Decimal(5)}}
    assert differences(good, good) == []
    assert len(differences({("AA#MIA", "2013-01"): {"Flights": Decimal(6)}}, good)) == 1
    assert len(differences({}, good)) == 1
