"""Whatever an event holds, nothing but a `StreamfoldError` comes out, and nothing is written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from framework import App, StreamfoldError, Table
from framework.consumer import Consumer
from handlers.app import app
from handlers.music_library import MonthlyDownloads
from tests.unit.stream import ARN, download, event, record

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
        "SequenceNumber": json | st.just("100000000000000000000"),
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
    }
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


class Everything(MonthlyDownloads):
    """All that is declared of times."""

    name = "everything"
    source = Table("MusicLibrary", pk="songID", sk="SK", ttl="Timestamp", home="us-east-1")
    target = Table("Totals", pk="key", ttl="expires")
    retention = timedelta(days=1)


class Elsewhere(Everything):
    """Of a replica."""

    source = Table("MusicLibrary", pk="songID", sk="SK", home="eu-west-1")


apps = st.sampled_from([app, App("everything", [Everything]), App("elsewhere", [Elsewhere])])


@given(apps, events)
def test_an_event_ends_in_a_response_or_a_streamfold_error_without_a_write(an_app: App, an_event: Any) -> None:
    client = Untouched()
    try:
        response = Consumer(an_app, "MusicLibrary", client, connections=1)(an_event)
    except StreamfoldError:
        assert client.calls == 0
    else:
        assert set(response) == {"batchItemFailures", "state", "streamfold"}


@given(apps, st.lists(whole, min_size=1, max_size=3))
def test_a_malformed_record_among_good_ones_is_refused_whole_or_named(an_app: App, bad: list[Any]) -> None:
    client = Untouched()
    good = record(10**20, new=download("good"))
    try:
        Consumer(an_app, "MusicLibrary", client, connections=1)(event(good, *bad))
    except StreamfoldError:
        assert client.calls == 0
