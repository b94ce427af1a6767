"""What the function's process does with garbage: nothing while it loads, and nobody else's process is touched."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_ENTRY = "framework.runtime.handler"
_FUNCTION = {
    "AWS_LAMBDA_FUNCTION_NAME": "under-test",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "STREAMFOLD_APP": "handlers.app:app",
    "STREAMFOLD_TABLE": "MusicLibrary",
}


def _after(program: str, environment: dict[str, str]) -> list[str]:
    """Whether garbage is looked for after a program, and whether some of what is there is exempt."""
    end = "; import gc; print(gc.isenabled(), gc.get_freeze_count() > 1000)"
    done = subprocess.run(
        [sys.executable, "-c", program + end],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("program", "handler", "expected"),
    [
        ("import framework", _ENTRY, ["False", "False"]),
        ("import framework.runtime", _ENTRY, ["True", "True"]),
        ("import framework.runtime", "a_wrapper.handler", ["True", "False"]),
        ("import framework", "", ["True", "False"]),
    ],
)
def test_garbage_is_looked_for_again_once_the_function_is_loaded(
    program: str, handler: str, expected: list[str]
) -> None:
    assert _after(program, {**_FUNCTION, "_HANDLER": handler}) == expected


def test_a_process_that_the_function_starts_is_not_touched() -> None:
    child = "import framework, gc; print(gc.isenabled())"
    program = (
        f"import framework.runtime, subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    )
    assert _after(program, {**_FUNCTION, "_HANDLER": _ENTRY}) == ["True", "True", "True"]
