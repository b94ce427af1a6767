"""A cold start: what a fresh process takes until a batch could come."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["cold_start"]

_CLIENT = 'import boto3; boto3.client("dynamodb")'
_READY = "import framework.runtime"
_TIMED = "import time; begin = time.perf_counter(); {}; print(time.perf_counter() - begin)"
# As in Lambda, credentials and Region come from the environment; they lead nowhere.
_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    # What tells the entry that it is the function, and which.
    "AWS_LAMBDA_FUNCTION_NAME": "benchmark",
    "_HANDLER": "framework.runtime.handler",
    "STREAMFOLD_APP": "handlers.app:app",
    "STREAMFOLD_TABLE": "MusicLibrary",
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


def cold_start(runs: int = 9) -> dict[str, float]:
    """Milliseconds in fresh processes, medians of interleaved runs: boto3 with a client, our entry ready.

    The second includes all of the first: the entry makes its own client. Both find their modules compiled.
    """
    programs = {"boto3": _CLIENT, "ready": _READY}
    times: dict[str, list[float]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory() as compiled:
        environment = os.environ | _ENVIRONMENT | {"PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for run in range(runs + 1):
            for name, program in programs.items():
                seconds = _run(program, environment)
                if run:  # the first run compiles and fills the file cache
                    times[name].append(seconds)
    medians = {name: statistics.median(each) * 1000 for name, each in times.items()}
    return {**medians, "added": medians["ready"] - medians["boto3"]}


def _run(program: str, environment: dict[str, str]) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _TIMED.format(program)],
        env=environment,
        cwd=Path(__file__).resolve().parent.parent,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return float(done.stdout)
