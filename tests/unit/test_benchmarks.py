"""The benchmark's counts: what each handler costs is a fact about it, not about the machine."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from benchmarks.alternatives import HANDLERS, Handler
from benchmarks.archives import archived
from benchmarks.events import LARGEST_BATCH, LARGEST_PAYLOAD, event_of, recount
from benchmarks.extremes import extremes
from benchmarks.indexes import reads, writes
from benchmarks.row import Case, WrongCountError, cost_of


@pytest.mark.parametrize(
    ("handler", "requests", "wcu"),
    [
        ("streamfold", 100, 300),  # an update of the table, an index entry moved, for each song
        ("guide", 1000, 3000),  # the same for each record
        ("powertools", 3000, 5000),  # and a marker that is put and updated
        ("claims", 1000, 6000),  # claim and update count twice in a transaction, the index once
    ],
)
def test_1000_records_of_100_songs_cost_what_awss_rules_say(handler: str, requests: int, wcu: int) -> None:
    cost = cost_of(Case(handler, 1000, 100, 0), runs=1)
    assert (cost.requests, cost.wcu) == (requests, wcu)


@pytest.mark.parametrize(("records", "songs"), [(50, 10), (200, 10), (200, 50)])
def test_streamfold_writes_once_for_each_distinct_aggregate(records: int, songs: int) -> None:
    cost = cost_of(Case("streamfold", records, songs, 0), runs=2)
    assert (cost.requests, cost.wcu) == (songs, 3 * songs)


def test_a_handler_that_miscounts_has_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    guide = HANDLERS["guide"]

    def forgets_the_last(client: Any) -> Handler:
        handle = guide(client)
        return lambda event: handle({**event, "Records": event["Records"][:-1]})

    monkeypatch.setitem(HANDLERS, "guide", forgets_the_last)
    with pytest.raises(WrongCountError, match="expected 3, came 1"):
        cost_of(Case("guide", 4, 2, 0), runs=1)


def test_the_largest_event_fits_what_lambda_hands_over() -> None:
    event = event_of(LARGEST_BATCH, LARGEST_BATCH)
    assert len(event["Records"]) == LARGEST_BATCH
    assert len(json.dumps(event, separators=(",", ":"))) <= LARGEST_PAYLOAD


def test_an_events_downloads_are_spread_evenly_over_its_songs() -> None:
    assert recount(event_of(6, 3, start=9)) == Counter(
        {("song-00000", "2018-01"): 2, ("song-00001", "2018-01"): 2, ("song-00002", "2018-01"): 2}
    )


def test_a_process_that_knows_the_extremes_improves_them_at_no_cost() -> None:
    assert [(step.requests, step.wcu) for step in extremes(batches=8, records=100, songs=10)] == [(10, 10)] * 8


def test_extremes_that_stand_cost_nothing_and_those_that_improve_a_second_request() -> None:
    first, *later = extremes(batches=8, records=100, songs=10, fresh=True)
    assert first.requests == 10
    assert all(10 <= step.requests <= 20 for step in later)
    assert sum(step.requests for step in later[3:]) < sum(step.requests for step in later[:4])
    assert all(step.wcu == step.requests for step in (first, *later))


def test_a_threshold_spares_the_index_what_is_below_and_shards_cost_nothing_to_write() -> None:
    plain, sharded, charted, fresh, both = writes(batches=6, records=200, songs=500, limit=5)
    assert (sharded.requests, sharded.wcu, sharded.entries) == (plain.requests, plain.wcu, plain.entries)
    assert (both.requests, both.wcu, both.entries) == (charted.requests, charted.wcu, charted.entries)
    assert charted.requests == plain.requests
    assert charted.wcu < plain.wcu * 0.7
    assert charted.entries < plain.entries / 4
    assert fresh.wcu - charted.wcu == fresh.requests - charted.requests > 0


def test_an_archive_costs_by_the_batch_and_not_by_the_item() -> None:
    small, large = archived(items=2000, batches=(100, 1000))
    assert [(each.puts, each.wcu) for each in (small, large)] == [(20, 61), (2, 7)]


def test_the_top_ten_cost_a_request_a_key_and_not_the_table() -> None:
    one, eight, scan = reads(aggregates=3000, latency_ms=0)
    assert (one.requests, one.read_units) == (1, 0.5)
    assert (eight.requests, eight.read_units) == (9, 4.5)
    assert scan.read_units > 30
