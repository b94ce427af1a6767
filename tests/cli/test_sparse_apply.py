"""`streamfold sparse apply`: counts, what fails, what is kept for another run, wrong use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from framework import App
from framework.cli import main
from framework.cli import sparse as command
from framework.local.memory import MemoryDynamoDB
from tests.unit.test_sparse import Refusing, declare, indexed, order, put, refused, tables

app = App("shop", [declare()])
APP = ["sparse", "apply", "--app", "tests.cli.test_sparse_apply:app", "--handler", "open-orders"]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryDynamoDB:
    made = tables(app)
    monkeypatch.setattr(command, "dynamodb", lambda: made)
    monkeypatch.chdir(tmp_path)
    return made


def test_a_dry_run_counts_and_a_run_writes(engine: MemoryDynamoDB, capsys: pytest.CaptureFixture[str]) -> None:
    put(engine, *(order(n) for n in range(1200)), order(1200, "shipped", OrderOpenDate="x"))
    assert main([*APP, "--dry-run"]) == 0
    text = "1,201 items: 0 right, 1,200 to enter, 1 to leave, 0 changed meanwhile, 0 failed\n"
    assert capsys.readouterr().out == text
    assert len(indexed(engine)) == 1
    assert main([*APP, "--segments", "3", "--rcu", "100000", "--wcu", "100000"]) == 0
    assert capsys.readouterr().out == "1,201 items: 0 right, 1,200 entered, 1 left, 0 changed meanwhile, 0 failed\n"
    assert len(indexed(engine)) == 1200
    assert main([*APP, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"items": 1201, "right": 1201, "entered": 0, "left": 0, "movedOn": 0, "failed": 0}
    assert list(Path().iterdir()) == []


def test_what_fails_is_named_and_makes_the_exit_code(
    engine: MemoryDynamoDB, capsys: pytest.CaptureFixture[str]
) -> None:
    put(engine, order(0, placed=5), order(1))
    assert main(APP) == 3
    out, err = capsys.readouterr()
    assert "1 entered" in out
    assert "1 failed" in out
    assert err.startswith("failed: customer='ann', order='order-0': attribute 'placed': expected text")
    assert main([*APP, "--json"]) == 3
    failed, counts = map(json.loads, capsys.readouterr().out.splitlines())
    assert failed["item"] == {"customer": "ann", "order": "order-0"}
    assert failed["reason"].startswith("attribute 'placed'")
    assert counts["failed"] == 1


@pytest.mark.parametrize("named", [True, False])
def test_what_stops_half_way_says_how_to_go_on(
    named: bool, engine: MemoryDynamoDB, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(engine, *(order(n) for n in range(30)))
    file = "mine.json" if named else "streamfold-apply-open-orders.json"
    options = ["--resume", file] if named else []
    broken = Refusing(engine, refused("AccessDeniedException"), "order-9")
    monkeypatch.setattr(command, "dynamodb", lambda: broken)
    assert main([*APP, "--segments", "1", "--rcu", "5", *options]) == 1
    err = capsys.readouterr().err
    assert f"streamfold: not at its end: go on with --resume {file}\n" in err
    assert "open-orders: expected to write, came" in err
    before = len(indexed(engine))
    assert before >= 20
    monkeypatch.setattr(command, "dynamodb", lambda: engine)
    if not named:
        assert main(APP) == 1
        assert f"go on with --resume {file}, or delete it" in capsys.readouterr().err
    assert main([*APP, "--resume", file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"] < 30
    assert len(indexed(engine)) == 30
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([*APP[:4], "--handler", "x"], 1, "app 'shop': expected a sparse index ('open-orders'), came 'x'"),
        (APP[:4], 2, "--handler"),
        ([*APP, "--segments", "0"], 2, "expected 1 to 16, came 0"),
        ([*APP, "--rcu", "0"], 2, "expected units above 0, came 0"),
        ([*APP, "--wcu", "many"], 2, "invalid"),
        ([*APP, "--resume", "."], 1, "expected where a walk stands"),
        (["sparse"], 2, "verb"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(
    arguments: Any, code: int, message: str, engine: MemoryDynamoDB, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        came = main(arguments)
    except SystemExit as stop:
        came = int(stop.code or 0)
    assert came == code
    assert message in capsys.readouterr().err
