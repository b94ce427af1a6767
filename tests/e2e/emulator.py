"""ministack, an emulator of AWS, as a process that lives as long as a `with` block."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType

__all__ = ["ROOT", "Ministack", "fetched"]

ROOT = Path(__file__).resolve().parents[2]

_PYTHON = ROOT / ".venv-ministack" / "bin" / "python"
_LAUNCHER = Path(__file__).with_name("launch.py")
_READY_SECONDS = 30.0
_END_SECONDS = 5.0

# A proxy of the machine must not stand before the loopback.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def fetched(url: str, timeout: float = 10.0) -> bytes:
    """What a server on the loopback gives for a URL."""
    with _open(url, timeout=timeout) as response:
        return bytes(response.read())


class Ministack:
    """The emulator on a free port of the loopback.

    Args:
        folder: Where it may write: its output, and what it keeps.

    Attributes:
        endpoint: Its URL.
    """

    def __init__(self, folder: Path) -> None:
        self._python = Path(os.environ.get("STREAMFOLD_MINISTACK_PYTHON") or _PYTHON)
        assert self._python.exists(), (
            f"expected ministack's Python at {self._python}, came none: `make e2e` installs it"
        )
        self._folder = folder
        self._output = folder / "ministack.log"
        self._port = _free_port()
        self.endpoint = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Ministack:
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._folder),
            "TMPDIR": str(self._folder),  # for its PID file too
            "S3_DATA_DIR": str(self._folder / "s3"),
            "BIND_HOST": "127.0.0.1",  # its default is every interface
            "GATEWAY_PORT": str(self._port),
            "LAMBDA_EXECUTOR": "local",
            "AUTH": "true",  # policies are enforced
            "AWS_SECRET_ACCESS_KEY": "fake",  # that of the account's root
        }
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [str(self._python), "-I", str(_LAUNCHER)],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    @property
    def output(self) -> str:
        """The end of what it has printed."""
        return self._output.read_text(errors="replace")[-4000:]

    def _wait(self) -> None:
        end = time.monotonic() + _READY_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            try:
                fetched(f"{self.endpoint}/_ministack/health", timeout=1.0)
                return
            except OSError:
                time.sleep(0.1)
        raise AssertionError(f"ministack: expected to be ready in {_READY_SECONDS:g} s, came: {self.output}")

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_SECONDS)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
