"""The emulators, and the fault proxy before them: each a process that lives as long as a `with` block."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

__all__ = ["ROOT", "Microburst", "Ministack", "Roto", "Server", "fetched"]

ROOT = Path(__file__).resolve().parents[2]

_PYTHON = ROOT / ".venv-ministack" / "bin" / "python"
_LAUNCHER = Path(__file__).with_name("launch.py")
_READY_SECONDS = 30.0

# A proxy of the machine must not stand before the loopback.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def fetched(url: str, timeout: float = 10.0, body: object = None) -> bytes:
    """What a server on the loopback gives for a URL.

    Args:
        url: The URL.
        timeout: In seconds.
        body: What to post, as JSON; None to get.
    """
    data = None if body is None else json.dumps(body).encode()
    with _open(urllib.request.Request(url, data), timeout=timeout) as response:
        return bytes(response.read())


class Server:
    """A process that listens on a free port of the loopback.

    Args:
        folder: Where it may write: its output, and what it keeps.

    Attributes:
        endpoint: Its URL.
    """

    name: ClassVar[str]
    health: ClassVar[str]  # a path that it answers once it is ready
    patience: ClassVar[float] = 5.0  # seconds that it may take to end

    def __init__(self, folder: Path) -> None:
        self._python = Path(os.environ.get("STREAMFOLD_MINISTACK_PYTHON") or _PYTHON)
        assert self._python.exists(), f"expected the Python of {self.name} at {self._python}, came none: run `make e2e`"
        self._folder = folder
        self._output = folder / f"{self.name}.log"
        self._port = _free_port()
        self.endpoint = f"http://127.0.0.1:{self._port}"

    def command(self) -> list[str]:
        """What to run."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """Environment variables of its own."""
        return {}

    def __enter__(self) -> Self:
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                self.command(),
                cwd=self._folder,
                env={
                    "PATH": os.environ.get("PATH", os.defpath),
                    "HOME": str(self._folder),
                    "TMPDIR": str(self._folder),  # for ministack's PID file too
                    **self.environment(),
                },
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
                fetched(self.endpoint + self.health, timeout=1.0)
                return
            except OSError:
                time.sleep(0.1)
        raise AssertionError(f"{self.name}: expected to be ready in {_READY_SECONDS:g} s, came: {self.output}")

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(self.patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Ministack(Server):
    """ministack, an emulator of AWS."""

    name = "ministack"
    health = "/_ministack/health"

    def command(self) -> list[str]:
        return [str(self._python), "-I", str(_LAUNCHER)]

    def environment(self) -> dict[str, str]:
        return {
            "S3_DATA_DIR": str(self._folder / "s3"),
            "BIND_HOST": "127.0.0.1",  # its default is every interface
            "GATEWAY_PORT": str(self._port),
            "LAMBDA_EXECUTOR": "local",
            "AUTH": "true",  # policies are enforced
            "AWS_SECRET_ACCESS_KEY": "fake",  # that of the account's root
        }


class Roto(Server):
    """roto-aws, an emulator in Rust: exact arithmetic and isolated transactions, but no streams."""

    name = "roto"
    health = "/roto-api/health"

    def command(self) -> list[str]:
        return [str(self._python.with_name("roto-server")), "--ephemeral", "--port", str(self._port)]


class Microburst(Server):
    """microburst, a proxy that lets faults happen before an emulator.

    Args:
        folder: As for `Server`.
        upstream: The emulator's URL.
        seed: Of its draws.
    """

    name = "microburst"
    health = "/_microburst/health"
    patience = 0.5  # it may wait a minute for idle connections, and keeps nothing

    def __init__(self, folder: Path, upstream: str, seed: int) -> None:
        super().__init__(folder)
        self._upstream, self._seed = upstream, seed

    def command(self) -> list[str]:
        code = f"import random; random.seed({self._seed}); from microburst.cli import main; main()"
        return [str(self._python), "-I", "-c", code, "--upstream", self._upstream, "--port", str(self._port)]

    def rule(self, rules: list[dict[str, Any]]) -> None:
        """Have faults happen from now on: the first rule that fits a request, and whose draw wins, makes its own."""
        fetched(f"{self.endpoint}/_microburst/rules", body=rules)

    @property
    def fired(self) -> Counter[tuple[str, str]]:
        """How often each fault happened, by operation and action."""
        found = json.loads(fetched(f"{self.endpoint}/_microburst/fired?limit=2000"))
        return Counter((each["operation"], each["action"]) for each in found)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
