"""The bundle's wheels: Powertools and what it needs, and the time zones, at the versions of `constraints.txt`.

What is in a wheel is checked against the sums that it holds itself: what was lost on the disk or on the way is
noticed, what somebody changed with care is not.
"""

from __future__ import annotations

import glob
import os
import re
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from framework.errors import StreamfoldError

__all__ = ["WHEELS", "BundleError", "fetch", "install", "main", "run"]

# Powertools and what it requires, less what Lambda's runtime has, and the time zones.
WHEELS = ("aws-lambda-powertools", "typing-extensions", "tzdata")

_PLATFORMS = {"arm64": "manylinux2014_aarch64", "x86_64": "manylinux2014_x86_64"}
_SECONDS = 600.0


class BundleError(StreamfoldError):
    """The bundle cannot be made from what is there."""


def fetch(root: Path, *, python: str = "3.13", architecture: str = "arm64", wheels: Path | None = None) -> list[Path]:
    """The wheels of a bundle, for arguments as `build` has them; downloaded once, so that builds need no network.

    Raises:
        BundleError: A pin is missing, or pip fails.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = (wheels or caches / "streamfold") / f"{python}-{architecture}"
    return _wheels(_pins(root / "constraints.txt"), cache, _platform(python, architecture))


def install(target: Path, wheels: Sequence[Path], *, python: str, architecture: str) -> None:
    """Unpack wheels into a folder, as pip does.

    Raises:
        BundleError: pip fails.
    """
    options = ["--isolated", "--no-index", "--no-compile", "--target", str(target)]
    _pip("install", "the wheels to install", *options, *_platform(python, architecture), *map(str, wheels))


def run(
    what: str, command: Sequence[str], *, seconds: float = _SECONDS, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever its exit code.

    Raises:
        BundleError: It cannot be started, or does not end.
    """
    try:
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BundleError(f"{what}: expected it to end, came no end in {seconds:g} s") from error
    except OSError as error:
        raise BundleError(f"{what}: expected it to start, came {error}") from error


def main() -> int:
    """Fetch the wheels for the checkout in the current folder; returns the exit code."""
    try:
        fetch(Path.cwd())
    except BundleError as error:
        print(f"streamfold: {error}", file=sys.stderr)
        return 1
    return 0


def _platform(python: str, architecture: str) -> list[str]:
    if architecture not in _PLATFORMS:
        raise BundleError(f"architecture: expected one of {', '.join(_PLATFORMS)}, came {architecture!r}")
    return ["--platform", _PLATFORMS[architecture], "--python-version", python, "--implementation", "cp"]


def _pins(constraints: Path) -> dict[str, str]:
    """The version of each wheel."""
    text = constraints.read_text() if constraints.is_file() else ""
    lines = re.findall(r"^([\w.-]+)==([^\s;#]+)", text, re.MULTILINE)
    pins = {name.lower().replace("_", "-"): version for name, version in lines}
    for name in WHEELS:
        if not pins.get(name):
            raise BundleError(f"{constraints}: expected a line {name}==VERSION, came none")
    return {name: pins[name] for name in WHEELS}


def _wheels(pins: dict[str, str], cache: Path, platform: Sequence[str]) -> list[Path]:
    """The wheels' files; those that the cache lacks are downloaded into it."""
    missing = [f"{name}=={version}" for name, version in pins.items() if not _cached(cache, name, version)]
    if missing:
        wanted = f"{', '.join(missing)} from the package index, which takes a network the first time"
        try:
            cache.mkdir(parents=True, exist_ok=True)
            # Moved when they are whole, so that a build at the same time finds no half a file.
            with TemporaryDirectory(dir=cache) as scratch:
                _pip("download", wanted, "--dest", scratch, *platform, *missing)
                for path in Path(scratch).iterdir():
                    path.replace(cache / path.name)
        except OSError as error:
            raise BundleError(f"{cache}: expected a folder that can be written, came {error}") from error
    found = [_cached(cache, name, version) for name, version in pins.items()]
    if None in found:
        raise BundleError(f"{cache}: expected wheels of {pins}, came none of some from pip")
    return [path for path in found if path]


def _cached(cache: Path, name: str, version: str) -> Path | None:
    found = cache.glob(f"{name.replace('-', '_')}-{glob.escape(version)}-*.whl")
    return next((path for path in found if _is_whole(path)), None)


def _is_whole(wheel: Path) -> bool:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.testzip() is None
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error):
        return False


def _pip(verb: str, wanted: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", verb, "--quiet", "--no-input", "--disable-pip-version-check"]
    done = run(f"pip {verb}", [*command, "--only-binary=:all:", "--no-deps", *arguments])
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        errors = [line for line in lines if line.startswith("ERROR:")] or lines
        raise BundleError(f"pip {verb}: expected {wanted}, came {errors[-1].removeprefix('ERROR:').strip()[:300]}")


if __name__ == "__main__":
    sys.exit(main())
