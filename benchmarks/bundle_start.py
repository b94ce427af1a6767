"""The bundle's cold start beside that of the smallest function that can write: `python -m benchmarks.bundle_start`.

Both are loaded by AWS's runtime client. The other function makes a boto3 DynamoDB client and nothing else.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from infra.bundle import build, zipped
from tests.infra.runtime_api import Function

__all__ = ["cold_start", "main"]

_TARGET = 1.2
_OTHER = """
import boto3
client = boto3.client("dynamodb")
def handler(event, context):
    return {}
"""
_ENVIRONMENT = {"STREAMFOLD_APP": "handlers.app:app", "STREAMFOLD_TABLE": "MusicLibrary"}
# The last of a window, without records: answered without a write, after all that comes before the first one.
_EVENT = {"Records": [], "shardId": "shardId-00000001514764800000-abcdef12", "isFinalInvokeForWindow": True}


def cold_start(bundle: Path, runs: int = 5) -> dict[str, tuple[float, float]]:
    """Seconds from a process's start to its first request for an event and to its first answer.

    Medians of interleaved runs: of `boto3`, of the `bundle`, and of the bundle with its modules `uncompiled`, as it is
    where no Python of the function's version built it. Lambda cannot keep what it compiles; the SDK it has compiled.
    """
    with tempfile.TemporaryDirectory() as folder:
        other, uncompiled = Path(folder, "other"), Path(folder, "uncompiled")
        other.mkdir()
        (other / "other.py").write_text(_OTHER)
        shutil.copytree(bundle, uncompiled, ignore=shutil.ignore_patterns("__pycache__"))
        functions = {
            "boto3": (other, "other.handler"),
            "bundle": (bundle, "framework.runtime.handler"),
            "uncompiled": (uncompiled, "framework.runtime.handler"),
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in functions}
        for run in range(runs + 1):
            for name, (path, handler) in functions.items():
                with Function(path, _ENVIRONMENT, handler=handler) as function:
                    function.invoke(_EVENT)
                    answered, loaded = function.age, function.started_in
                if run and loaded is not None:  # the first run fills the file cache
                    times[name].append((loaded, answered))
    return {
        name: (statistics.median(loaded for loaded, _ in each), statistics.median(answered for _, answered in each))
        for name, each in times.items()
    }


def main() -> None:
    """Build, measure, print. A missed target is only reported, as times are the machine's too."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bundle_start", description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder, "bundle")
        # For this machine's Python, which is the one that can be run here.
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        build(Path(__file__).resolve().parent.parent, bundle, python=python)
        size = len(zipped(bundle))
        found = cold_start(bundle, runs)
    print(f"{size / 1e6:.2f} MB zipped; medians of {runs} cold starts, and how many times boto3's")
    for name, (loaded, answered) in found.items():
        ratios = [mine / others for mine, others in zip((loaded, answered), found["boto3"], strict=True)]
        print(
            f"{name:10} loaded {loaded * 1000:4.0f} ms ({ratios[0]:.2f})"
            f"   first answer {answered * 1000:4.0f} ms ({ratios[1]:.2f})"
        )
    reached = found["bundle"][1] <= _TARGET * found["boto3"][1]
    print(f"target: first answer within {_TARGET} times: {'reached' if reached else 'missed'}")


if __name__ == "__main__":
    main()
