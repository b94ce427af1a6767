"""`Local`: an app's tables, streams and functions in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

from framework.app import App
from framework.consumer import Consumer
from framework.control import Control
from framework.decode import table_of
from framework.deliver_archive import Bucket
from framework.errors import ConfigurationError, EventError, shortened
from framework.live import LiveShard, live_shards
from framework.local.bridge import Memory
from framework.local.capacity import Meter
from framework.local.objects import MemoryObjects
from framework.local.poller import Poller, Response, Shard
from framework.local.provision import create_table_request
from framework.local.sources import FileSource
from framework.local.world import CONTROL, CONTROL_REQUEST
from framework.tables import Table

__all__ = ["Drained", "Local", "OnProgress"]

# Called after each invocation: records delivered so far, and the share of the files that is read, 0 to 1;
# None where all sources are live tables, whose end nobody knows.
OnProgress = Callable[[int, float | None], None]

_MOST_RECORDS = 10_000  # of a batch (Lambda quotas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What happened until the streams were empty.

    Attributes:
        records: Records delivered, those delivered again included.
        invocations: Times that a function was called, the final calls of windows included.
        updates: Updates of aggregates.
        requests: Requests that the functions made to DynamoDB, as counted at their client.
        wcu: Write units of those requests by AWS's rules, index writes included.
        duplicates: Contributions that had been counted before.
        refused_take_backs: Take-backs without an aggregate to take from.
        late: Records that were ignored for coming after their aggregate's retention.
        bad: The records that could not be counted: handler, key, sequence number and reason of each.
    """

    records: int = 0
    invocations: int = 0
    updates: int = 0
    requests: int = 0
    wcu: int = 0
    duplicates: int = 0
    refused_take_backs: int = 0
    late: int = 0
    bad: tuple[dict[str, str], ...] = ()


class Local:
    """An app on this machine: its tables in an in-process DynamoDB, its functions driven as by Lambda.

        with Local(app) as local:
            local.client.put_item(TableName="MusicLibrary", Item={...})
            local.drain()
            MonthlyDownloads.top("2018-01", client=local.client)

    The DynamoDB is moto, for its streams. Where every table that is read comes from a file, nothing has to be read
    from a stream, and the engine in memory answers instead, several times as quick; the tests hold the two against
    each other.

    Inside, the environment holds fake credentials and nothing else of AWS; it is put back at the end. One at
    a time in a process.

    Args:
        app: The app.
        files: The path of a file for each table, by name, whose items come from one and not from the table.
        batch_size: The most records of an invocation.

    Attributes:
        now: The time in epoch seconds, for windows and watermarks; may be replaced.
        objects: The bucket of the archives, in memory, as a boto3 S3 client shows it.

    Raises:
        ConfigurationError: moto is not installed, `files` names a table that no aggregation reads, or the
            batch size is out of Lambda's limits.
        SourceError: A file that is not there.
    """

    now: Callable[[], float]

    def __init__(self, app: App, *, files: Mapping[str, Path | str] | None = None, batch_size: int = 1000) -> None:
        if type(batch_size) is not int or not 1 <= batch_size <= _MOST_RECORDS:
            raise ConfigurationError(f"Local: batch_size: expected 1 to {_MOST_RECORDS:,}, came {batch_size!r}")
        self.now = time.time
        self._app = app
        self._files = {name: FileSource(path, app.sourced_from(name)[0].source) for name, path in (files or {}).items()}
        self._batch_size = batch_size
        self._stack = ExitStack()
        self._running: _Running | None = None
        self.objects = MemoryObjects(lambda: self.now())

    def __enter__(self) -> Local:
        with ExitStack() as stack:
            live = [d.source.name for d in self._app.declarations if d.source.name not in self._files]
            engine = stack.enter_context(_moto() if live else Memory())
            client = engine.client()
            for table in self._app.tables:
                client.create_table(**self._create_table_request(table))
            self._running = self._run(engine, client, list(dict.fromkeys(live)))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def client(self) -> Any:
        """A boto3 DynamoDB client on the tables, usable from threads. What it costs is not counted."""
        return self._opened.client

    @property
    def function_client(self) -> Any:
        """The client that the functions write with: the place for a test to inject a fault."""
        return self._opened.function_client

    def drain(self, on_progress: OnProgress | None = None) -> Drained:
        """Deliver what the streams hold until nothing is left, then end the windows.

        Where it stopped is kept: the next call goes on from there. What a file gives before a broken line is
        delivered in full batches; the rest of it comes again once the line is mended.

        Args:
            on_progress: Called after each invocation with the records so far and the share of the files read.

        Raises:
            DeliveryError: A batch made no progress in six invocations.
            SourceError: A file with a broken line.
            StreamfoldError: Whatever a function raises; the batch comes again with the next call.
        """
        meter = self._opened.meter
        requests, wcu = meter.requests, meter.wcu
        tally = _Tally()
        for response in self._responses():
            tally.add(response)
            if on_progress is not None:
                on_progress(tally.sums["records"], self._share_read())
        return tally.drained(requests=meter.requests - requests, wcu=meter.wcu - wcu)

    def deliver(self, event: object) -> dict[str, Any]:
        """Give one event to the function of its table, as Lambda would; it does not move `drain`'s place.

        Args:
            event: An event as Lambda sends it. Its records say which table; without any it is for the only
                source.

        Returns:
            Lambda's response.

        Raises:
            EventError: The event does not say its table, and there are several; or it is none of a DynamoDB
                stream.
            ConfigurationError: No aggregation reads the table, or the event lacks `shardId`.
        """
        consumers = self._opened.consumers
        table = _table_of(event)
        if table is None and len(consumers) == 1:
            (table,) = consumers
        if table is None:
            raise EventError(
                "event: expected records whose eventSourceARN names one of the tables "
                f"{', '.join(consumers)}, came {shortened(event)}"
            )
        self._app.sourced_from(table)
        return consumers[table](event)

    @property
    def _opened(self) -> _Running:
        if self._running is None:
            raise ConfigurationError("Local: expected a use inside `with Local(app)`, came one outside")
        return self._running

    def _create_table_request(self, table: Table) -> dict[str, Any]:
        request = create_table_request(self._app, table)
        if table.name in self._files:
            # Nobody would read it, and a record costs moto time.
            request.pop("StreamSpecification")
        return request

    def _run(self, engine: Any, client: Any, live: list[str]) -> _Running:
        function_client = engine.client(metered=True)
        streams = engine.client("dynamodbstreams") if live else None
        names = dict.fromkeys(declaration.source.name for declaration in self._app.declarations)
        # One connection, for the engine takes one request at a time, and so that a run can be repeated to the
        # letter. The clock is looked up at each call, for it may be replaced.
        options: dict[str, Any] = {"connections": 1, "now": lambda: self.now()}
        if self._app.archives:
            client.create_table(**CONTROL_REQUEST)
            options["bucket"] = Bucket(lambda: self.objects, "archive")
            options["control"] = Control(function_client, CONTROL, _keep_nothing, connections=1, now=options["now"])
        consumers = {name: Consumer(self._app, name, function_client, **options) for name in names}

        def poller(table: str, shard: Shard) -> Poller:
            return Poller(table, shard, consumers[table], batch_size=self._batch_size, now=lambda: self.now())

        def shards(table: str) -> list[LiveShard]:
            arn = client.describe_table(TableName=table)["Table"]["LatestStreamArn"]
            # A global table's home is here: on one machine there is no replica.
            return live_shards(streams, arn, self._app.sourced_from(table)[0].source.home)

        return _Running(
            client=client,
            function_client=function_client,
            meter=engine.meter,
            consumers=consumers,
            files=[poller(name, source) for name, source in self._files.items()],
            live=[poller(name, shard) for name in live for shard in shards(name)],
        )

    def _responses(self) -> Iterator[Response]:
        """The response to each invocation, until no source gives a record any more."""
        running = self._opened
        for poller in running.files:
            yield from poller.poll()
        delivered = True
        while delivered:
            delivered = False
            # Aggregates in one table may be the source of another aggregation.
            for response in chain.from_iterable(poller.poll() for poller in running.live):
                delivered = True
                yield response
        for poller in (*running.files, *running.live):
            yield from poller.close_window()

    def _share_read(self) -> float | None:
        shares = [source.progress() for source in self._files.values()]
        return sum(shares) / len(shares) if shares else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """What there is while the engine runs: clients, what they cost, functions and pollers."""

    client: Any
    function_client: Any
    meter: Meter
    consumers: Mapping[str, Consumer]
    files: list[Poller]
    live: list[Poller]


class _Tally:
    """Sums of what the responses say."""

    def __init__(self) -> None:
        self.sums = dict.fromkeys(("records", "updates", "duplicates", "refusedTakeBacks", "lateRecords"), 0)
        self._invocations = 0
        self._bad: list[dict[str, str]] = []

    def add(self, response: Response) -> None:
        account = response["streamfold"]
        self._invocations += 1
        for name in self.sums:
            self.sums[name] += account[name]
        self._bad.extend(account["bad"])

    def drained(self, *, requests: int, wcu: int) -> Drained:
        return Drained(
            records=self.sums["records"],
            invocations=self._invocations,
            updates=self.sums["updates"],
            requests=requests,
            wcu=wcu,
            duplicates=self.sums["duplicates"],
            refused_take_backs=self.sums["refusedTakeBacks"],
            late=self.sums["lateRecords"],
            bad=tuple(self._bad),
        )


def _keep_nothing(name: str, content: bytes) -> None:
    raise ConfigurationError(f"Local: expected records that an item can hold, came one of {len(content):,} bytes")


def _moto() -> Any:
    try:
        # Imported here: reading a file or weighing an item needs no moto.
        from framework.local.moto_quirks import Moto
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"Local: expected the extra 'local' (pip install 'streamfold[local]'), came {error}"
        ) from error
    return Moto()


def _table_of(event: object) -> str | None:
    """The table that an event's first record is of; None if it does not say."""
    try:
        return table_of(event["Records"][0]["eventSourceARN"])  # type: ignore[index]
    except (KeyError, IndexError, TypeError):
        return None
