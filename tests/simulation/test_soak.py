"""The soak: it stops at what is wrong, with the seed, and tells how it went."""

from __future__ import annotations

import pytest

from tests.simulation.soak import chunk, main
from tests.simulation.test_mutations import without_condition


def test_a_soak_tells_how_many_histories_it_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--histories", "120", "--processes", "1", "--first", "1000"]) == 0
    output = capsys.readouterr()
    assert output.out.startswith("120 histories from seed 1000 on, none wrong, in ")
    assert output.err == "", "no progress where nobody watches"


def test_a_soak_ends_with_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seconds", "0.1", "--processes", "1"]) == 0
    assert " histories from seed 0 on, none wrong" in capsys.readouterr().out


def test_what_is_wrong_is_told_with_its_seed_and_is_replayed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_condition(monkeypatch)
    tried, failure = chunk(range(100, 200))
    seed = 100 + tried - 1
    assert failure.splitlines()[-1] == f'replay: make soak ARGS="--seed {seed}"'
    assert f"with seed {seed}:" in failure
    assert main(["--seed", str(seed)]) == 1
    assert failure.splitlines()[1] in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--seconds", "0"], ["--histories", "-1"], ["--seed", "x"], ["--faster"]])
def test_wrong_usage_is_told(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
