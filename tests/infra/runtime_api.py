"""A bundle run as Lambda runs it: AWS's own runtime client for Python, against a small Lambda Runtime API.

The interface is that of the Lambda developer guide, "Using the Lambda runtime API for custom runtimes".
"""

from __future__ import annotations

import importlib.util
import json
import os
import py_compile
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["BOTO3", "CLIENT", "Function", "FunctionError", "site"]

# What Lambda's runtime has beside the bundle: the SDK, and the runtime client that calls the handler.
BOTO3 = ("boto3", "botocore", "s3transfer", "urllib3", "dateutil", "six", "jmespath")
CLIENT = ("awslambdaric", "runtime_client", "simplejson", "snapshot_restore_py")

_NEXT = "/2018-06-01/runtime/invocation/next"
_is_answer = re.compile(
    r"/2018-06-01/runtime/(?:(?P<init>init)/error|invocation/(?P<id>[^/]+)/(?P<kind>response|error))"
).fullmatch
_START = (
    "import json, sys; sys.path[:0] = json.loads(sys.argv[1]); "
    "from awslambdaric.__main__ import main; main(['awslambdaric', sys.argv[2]])"
)
_IDLE_SECONDS = 120.0
_ENVIRONMENT = {
    "AWS_EXECUTION_ENV": "AWS_Lambda_python3.13",
    "AWS_LAMBDA_FUNCTION_NAME": "under-test",
    "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
    "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "LANG": "en_US.UTF-8",
    "TZ": ":UTC",
    # Nothing of the machine leads to an account.
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_SESSION_TOKEN": "testing",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}


def site(folder: Path, names: tuple[str, ...]) -> Path:
    """Fill a folder with links to some installed modules, so that a path can hold these and no others."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        spec = importlib.util.find_spec(name)
        assert spec is not None, f"expected {name} to be installed"
        assert spec.origin is not None
        origin = Path(spec.origin)
        source = origin.parent if spec.submodule_search_locations else origin
        (folder / source.name).symlink_to(source)
        if source.suffix == ".py":
            py_compile.compile(str(folder / source.name), doraise=True)  # as Lambda's own are
    return folder


class FunctionError(Exception):
    """What the function answered instead of a response.

    Attributes:
        payload: The error as Lambda would pass it on: `errorType`, `errorMessage`, `stackTrace`.
    """

    def __init__(self, payload: dict[str, Any]) -> None:
        super().__init__(f"{payload.get('errorType')}: {payload.get('errorMessage')}")
        self.payload = payload


class Function:
    """A function of a bundle in a process of its own, with nothing else importable than what Lambda has.

    Args:
        bundle: The bundle's folder.
        environment: The function's environment variables.
        handler: The entry, as Lambda's configuration names it.
        remaining: The seconds that an invocation is told it has.

    Attributes:
        started_in: Seconds from the start of the process until it asked for an event; None before.
    """

    def __init__(
        self,
        bundle: Path,
        environment: dict[str, str],
        *,
        handler: str = "framework.runtime.handler",
        remaining: float = 60.0,
    ) -> None:
        self._bundle, self._environment = bundle, environment
        self._handler, self._remaining = handler, remaining
        self._ids = count(1)

    def __enter__(self) -> Function:
        self._folder = tempfile.TemporaryDirectory()
        links = site(Path(self._folder.name, "site"), BOTO3 + CLIENT)
        self._output = Path(self._folder.name, "output")
        self._api = _Api()
        threading.Thread(target=self._api.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        environment = {
            **_ENVIRONMENT,
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{self._api.server_port}",
            "LAMBDA_TASK_ROOT": str(self._bundle),
            "_HANDLER": self._handler,
            **self._environment,
        }
        path = json.dumps([str(self._bundle), str(links)])
        with self._output.open("wb") as output:  # a pipe that nobody reads would stop the function
            self._began = time.monotonic()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-c", _START, path, self._handler],
                cwd=self._bundle,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
        self._api.events.put(None)
        self._api.shutdown()
        self._api.server_close()
        self._folder.cleanup()

    @property
    def output(self) -> str:
        """What the function has printed and logged so far."""
        return self._output.read_text(errors="replace")

    @property
    def started_in(self) -> float | None:
        first = self._api.first_next
        return None if first is None else first - self._began

    @property
    def age(self) -> float:
        """Seconds since the start of the process."""
        return time.monotonic() - self._began

    def invoke(self, event: object, timeout: float = 30.0) -> dict[str, Any]:
        """Have an event processed.

        Raises:
            FunctionError: The function failed, in this event or when it was loaded.
            TimeoutError: It did not answer.
        """
        request = f"request-{next(self._ids)}"
        end = time.monotonic() + timeout
        due = int((time.time() + self._remaining) * 1000)
        self._api.events.put((request, due, json.dumps(event).encode()))
        while (left := end - time.monotonic()) > 0:
            ended = self._process.poll() is not None  # asked first: what it answered before its end counts
            try:
                answered, failed, payload = self._api.answers.get(timeout=min(left, 0.2))
            except queue.Empty:
                if ended:
                    raise FunctionError({"errorType": "Ended", "errorMessage": self.output[-2000:]}) from None
                continue
            if answered in (request, ""):  # an answer to an earlier event comes too late
                if failed:
                    raise FunctionError(payload)
                return dict(payload)
        raise TimeoutError(f"function: expected an answer in {timeout:g} s, came none: {self.output[-2000:]}")


class _Api(ThreadingHTTPServer):
    """The Runtime API of one function.

    Attributes:
        events: What is handed out: request id, deadline in epoch milliseconds and body; None for the end.
        answers: What came back: request id (empty where the function did not even load), whether it is an error,
            and the answer.
        first_next: When the function first asked for an event, on the monotonic clock.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.events: queue.Queue[tuple[str, int, bytes] | None] = queue.Queue()
        self.answers: queue.Queue[tuple[str, bool, Any]] = queue.Queue()
        self.first_next: float | None = None

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a function that is ended hangs up
            super().handle_error(request, client_address)


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Api

    def do_GET(self) -> None:
        if self.path != _NEXT:
            return self._reply(404, b"{}")
        if self.server.first_next is None:
            self.server.first_next = time.monotonic()
        try:
            event = self.server.events.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            event = None
        if event is None:
            self.close_connection = True
            return None
        request, due, body = event
        return self._reply(
            200,
            body,
            {
                "Lambda-Runtime-Aws-Request-Id": request,
                "Lambda-Runtime-Deadline-Ms": str(due),
                "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:us-east-1:123456789012:function:under-test",
                "Lambda-Runtime-Trace-Id": "Root=1-00000000-000000000000000000000000;Sampled=0",
            },
        )

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = _is_answer(self.path)
        if not found:
            return self._reply(404, b"{}")
        self.server.answers.put((found["id"] or "", found["kind"] != "response", json.loads(body)))
        return self._reply(202, b'{"status":"OK"}')

    def _reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
