"""Whatever an event holds, nothing but a `StreamfoldError` comes out, and nothing is written."""

from __future__ import annotations

from datetime import timedelta
from json import dumps
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from framework import App, Index, SparseIndex, StreamfoldError, Table, attr
from framework.consumer import Consumer
from framework.control import Control
from framework.failures import failure_of
from framework.quarantine import Entry, entry_item
from framework.redrive import Quarantine
from handlers.app import app
from handlers.music_library import MonthlyDownloads
from tests.unit.stream import ARN, download, event, record
from tests.unit.test_redrive import Stream

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(float("nan"))
json = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8
)  # fmt: skip
typed = st.dictionaries(st.sampled_from(["S", "N", "B", "M", "L", "NULL", "SS"]), json, max_size=2)
images = json | st.dictionaries(st.sampled_from(["songID", "SK", "Timestamp", "DownloadCount"]), typed | json)
changes = st.fixed_dictionaries(
    {},
    optional={
        "Keys": images,
        "NewImage": images | st.just(download()),
        "OldImage": images | st.just(download()),
        "SequenceNumber": json | st.sampled_from(["100000000000000000000", "12"]),
        "ApproximateCreationDateTime": json | st.floats() | st.just(1_514_764_800),
    },
)
records = json | st.fixed_dictionaries(
    {},
    optional={
        "eventSource": json | st.just("aws:dynamodb"),
        "eventSourceARN": json | st.just(ARN),
        "eventName": json | st.sampled_from(["INSERT", "MODIFY", "REMOVE"]),
        "dynamodb": json | changes,
        "userIdentity": json,
    },
)
whole = st.fixed_dictionaries(
    {
        "eventSource": st.just("aws:dynamodb"),
        "eventSourceARN": st.just(ARN),
        "eventName": st.sampled_from(["INSERT", "MODIFY", "REMOVE"]),
        "dynamodb": changes,
    },
    optional={"eventID": json | st.just("id")},
)
events = json | st.fixed_dictionaries(
    {}, optional={"Records": json | st.lists(records | whole, max_size=3), "shardId": json | st.just("shardId-1")}
)


class Untouched:
    """A client that must not be used."""

    def __init__(self) -> None:
        self.calls = 0

    def update_item(self, **arguments: Any) -> Any:
        self.calls += 1
        return {"Attributes": {}}

    def transact_write_items(self, **arguments: Any) -> Any:
        self.calls += 1
        return {}

    def put_item(self, **arguments: Any) -> Any:
        self.calls += arguments["Item"]["pk"] != {"S": "delivery"}
        return {}

    def get_item(self, **arguments: Any) -> Any:
        return {}

    def query(self, **arguments: Any) -> Any:
        if ":first" not in arguments["ExpressionAttributeValues"]:
            return {"Items": []}
        prefix = arguments["ExpressionAttributeValues"][":first"]["S"].rpartition("/")[0]
        images = ("NewImage", "OldImage")
        return {"Items": [{"sk": {"S": f"{prefix}/0212/{name}/{image}"}} for name in NAMES for image in images]}


class Everything(MonthlyDownloads):
    """All that is declared of times."""

    name = "everything"
    source = Table("MusicLibrary", pk="songID", sk="SK", ttl="Timestamp", home="us-east-1")
    target = Table("Totals", pk="key", ttl="expires")
    retention = timedelta(days=1)


class Elsewhere(Everything):
    """Of a replica."""

    source = Table("MusicLibrary", pk="songID", sk="SK", home="eu-west-1")


class Copied(SparseIndex):
    """A sparse index that copies an attribute."""

    name = "copied"
    source = Everything.source
    index = Index("Copied", pk="songID", sk="Copied")
    when = ~attr("SK").equals("x")
    sort = attr("Timestamp")


class Called(SparseIndex):
    """A sparse index by a function."""

    name = "called"
    source = Everything.source
    index = Index("Called", pk="Called", sk="SK")

    @staticmethod
    def entry(item: Any) -> dict[str, Any] | None:
        return {"Called": item["Timestamp"]} if len(item) != 2 else None


NAMES = ("monthly-downloads", "everything", "copied", "called")
# Without a control table, and by each protocol with one.
deliveries = st.sampled_from([None, "lanes", "ledger"])


def consumer(an_app: App, client: Untouched, delivery: str | None) -> Consumer:
    if delivery is None:
        return Consumer(an_app, "MusicLibrary", client, connections=1)
    control = Control(client, "control", lambda name, content: None, connections=1)
    return Consumer(an_app, "MusicLibrary", client, control=control, delivery=delivery, connections=1)


apps = st.sampled_from(
    [
        app,
        App("everything", [Everything]),
        App("elsewhere", [Elsewhere]),
        App("copied", [Copied]),
        App("called", [Called]),
    ]
)


@given(apps, deliveries, events)
def test_an_event_ends_in_a_response_or_a_streamfold_error_without_a_write(
    an_app: App, delivery: str | None, an_event: Any
) -> None:
    client = Untouched()
    try:
        response = consumer(an_app, client, delivery)(an_event)
    except StreamfoldError:
        assert client.calls == 0
    else:
        assert set(response) == {"batchItemFailures", "state", "streamfold"}


@given(apps, deliveries, st.lists(whole, min_size=1, max_size=3))
def test_a_malformed_record_among_good_ones_is_refused_whole_or_named(
    an_app: App, delivery: str | None, bad: list[Any]
) -> None:
    client = Untouched()
    good = record(10**20, new=download("good"))
    try:
        consumer(an_app, client, delivery)(event(good, *bad))
    except StreamfoldError:
        assert client.calls == 0


infos = st.fixed_dictionaries(
    {},
    optional={
        "streamArn": json | st.just(ARN),
        "shardId": json | st.just("shardId-1"),
        "batchSize": json | st.just(1),
        "startSequenceNumber": json | st.just("1"),
        "endSequenceNumber": json | st.just("2"),
    },
)
bodies = json | st.fixed_dictionaries({}, optional={"DDBStreamBatchInfo": json | infos, "payload": json | events})


@given(apps, bodies)
def test_whatever_a_failed_batch_holds_it_is_named_and_nothing_is_written(an_app: App, body: Any) -> None:
    client = Untouched()
    there = Quarantine(an_app, client, "control", load=lambda name: b"", store=lambda name, content: None)
    try:
        redriven = there.redrive_batch(failure_of("f", dumps(body)), Stream())
    except StreamfoldError:
        assert client.calls == 0
    else:
        assert redriven.done or client.calls == 0


@given(apps, json | changes | whole, st.sampled_from(["NewImage", "OldImage"]))
def test_whatever_an_entry_holds_it_is_named_and_kept(an_app: App, held: Any, image: str) -> None:
    client = Untouched()
    there = Quarantine(an_app, client, "control", load=lambda name: b"", store=lambda name, content: None)
    (name,) = (declaration.name for declaration in an_app.declarations)
    entry = Entry(
        handler=name,
        image=image,
        stream_arn=ARN,
        shard_id="shardId-1",
        sequence_number=1,
        record=record(1, new=download()),
        reason="",
        at=0,
    )
    item = {**entry_item(entry, lambda name, content: None), "record": {"S": dumps(held)}}
    there.redrive(item, dry_run=True)
    assert client.calls == 0
    assert there.redrive(item).place == entry.place
