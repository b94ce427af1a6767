"""The bundle as Lambda runs it: AWS's runtime client calls the entry, and the writes go over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from framework.local.bridge import _answered
from framework.local.memory import MemoryDynamoDB
from framework.local.provision import create_table_request
from handlers.app import app
from infra.bundle import build
from tests.infra.runtime_api import Function, FunctionError
from tests.unit.stream import download, event, record

pytest.importorskip("awslambdaric")  # there are wheels for Linux only

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {"STREAMFOLD_APP": "handlers.app:app", "STREAMFOLD_TABLE": "MusicLibrary"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("bundle")
    build(ROOT, target)
    return target


class DynamoDB(ThreadingHTTPServer):
    """The engine in memory behind HTTP."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.engine = MemoryDynamoDB()
        self.lock = threading.Lock()
        self.operations: list[str] = []


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: DynamoDB

    def do_POST(self) -> None:
        operation = self.headers["X-Amz-Target"].rpartition(".")[2]
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.operations.append(operation)
            status, answer = _answered(self.server.engine, operation, body)
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def dynamodb() -> Iterator[DynamoDB]:
    with DynamoDB() as server:
        for table in app.tables:
            server.engine.create_table(**create_table_request(app, table))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()


def counts(engine: MemoryDynamoDB) -> dict[tuple[str, str], str]:
    items = engine.scan(TableName="MusicLibrary")["Items"]
    return {(i["songID"]["S"], i["SK"]["S"]): i["DownloadCount"]["N"] for i in items if "DownloadCount" in i}


def test_downloads_are_counted_once_over_http(bundle: Path, dynamodb: DynamoDB) -> None:
    batch = event(
        record(1, new=download("a")),
        record(2, new=download("a", "2018-02-01T00:00:00Z")),
        record(3, new=download("b")),
        record(4, new=download("a")),
    )
    endpoint = f"http://127.0.0.1:{dynamodb.server_port}"
    with Function(bundle, {**SETTINGS, "AWS_ENDPOINT_URL_DYNAMODB": endpoint}) as function:
        response = function.invoke(batch)
        again = function.invoke(batch)
        removed = function.invoke(event(record(5, old=download("b"))))
    assert response["batchItemFailures"] == again["batchItemFailures"] == removed["batchItemFailures"] == []
    assert response["state"] == {}
    assert [r["streamfold"]["duplicates"] for r in (response, again, removed)] == [0, 4, 0]
    assert counts(dynamodb.engine) == {("a", "2018-01"): "2", ("a", "2018-02"): "1", ("b", "2018-01"): "0"}
    assert set(dynamodb.operations) == {"UpdateItem"}


def test_an_event_of_something_else_fails_with_the_reason(bundle: Path, dynamodb: DynamoDB) -> None:
    endpoint = f"http://127.0.0.1:{dynamodb.server_port}"
    with Function(bundle, {**SETTINGS, "AWS_ENDPOINT_URL_DYNAMODB": endpoint}) as function:
        with pytest.raises(FunctionError, match="expected a DynamoDB stream event with Records") as error:
            function.invoke({"source": "aws.s3"})
        assert error.value.payload["errorType"] == "EventError"
        assert "EventError" in function.output
        # Its process goes on, as Lambda's does.
        assert function.invoke(event(record(1, new=download("a"))))["batchItemFailures"] == []
    assert counts(dynamodb.engine) == {("a", "2018-01"): "1"}


def test_a_setting_that_lacks_is_named(bundle: Path) -> None:
    with Function(bundle, {"STREAMFOLD_APP": "handlers.app:app"}) as function:
        with pytest.raises(FunctionError, match="environment: expected STREAMFOLD_TABLE, came None") as error:
            function.invoke(event())
        assert error.value.payload["errorType"] == "ConfigurationError"


def test_a_handler_that_is_not_in_the_bundle_fails_when_it_is_loaded(bundle: Path) -> None:
    with Function(bundle, SETTINGS, handler="framework.local.engine.handler") as function:
        with pytest.raises(FunctionError, match=r"No module named 'framework\.local'") as error:
            function.invoke(event())
        assert error.value.payload["errorType"] == "Runtime.ImportModuleError"


def test_the_time_that_is_left_bounds_the_writes(bundle: Path) -> None:
    # A port where nothing listens: every try fails, until the reserve for the report is reached.
    with DynamoDB() as server:
        endpoint = f"http://127.0.0.1:{server.server_port}"
    environment = {**SETTINGS, "AWS_ENDPOINT_URL_DYNAMODB": endpoint}
    with Function(bundle, environment, remaining=2.0) as function:
        response = function.invoke(event(record(7, new=download("a"))))
    assert response["batchItemFailures"] == [{"itemIdentifier": "7"}]
    assert "ran out" in response["streamfold"]["error"]
