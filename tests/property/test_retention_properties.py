"""Whatever is delivered again and whenever, an aggregate holds the changes that were made in its time."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from framework import Aggregation, App, Count, Daily, Table
from framework.consumer import Consumer
from framework.fold import compile_fold
from framework.local.memory import MemoryDynamoDB
from framework.local.provision import create_table_request
from tests.unit.stream import event, record

DAY = 86_400
START = 1_514_764_800  # 2018-01-01
ZONE_OFFSET = 13 * 3600  # of Tongatapu then

table = Table("MusicLibrary", pk="songID", sk="SK", ttl="expires")

# A change: of which song, from which day to which (None: no item), made how many seconds after the start, if it says.
days = st.none() | st.integers(0, 3)
changes = st.lists(
    st.tuples(st.sampled_from("ab"), days, days, st.none() | st.integers(0, 6 * DAY)).filter(
        lambda change: change[1] is not None or change[2] is not None
    ),
    min_size=1,
    max_size=12,
)
retentions = st.integers(1, 3 * DAY)


def declare(retention: int | None, late: str) -> type[Aggregation]:
    fields = {
        "name": "plays",
        "source": table,
        "group_by": "songID",
        "window": Daily("at", tz="Pacific/Tongatapu"),
        "retention": retention and timedelta(seconds=retention),
        "late": late,
        "Plays": Count(),
    }
    return type("Plays", (Aggregation,), fields)


def image(song: str, day: int | None) -> Any:
    if day is None:
        return None
    at = datetime.fromtimestamp(START + day * DAY, UTC).isoformat()[:10]
    return {"songID": {"S": song}, "SK": {"S": "x"}, "at": {"S": at}}


def records(history: list[Any]) -> list[dict[str, Any]]:
    found = []
    for number, (song, old, new, made) in enumerate(history):
        one = record(100 + number, old=image(song, old), new=image(song, new))
        if made is not None:
            one["dynamodb"]["ApproximateCreationDateTime"] = START + made
        found.append(one)
    return found


def in_time(day: int, made: int | None, retention: int) -> bool:
    return made is None or made < (day + 1) * DAY - ZONE_OFFSET + retention


def parts(history: list[Any], retention: int) -> tuple[list[tuple[str, int, int, int]], set[int]]:
    """What counts, as song, day, sign and number; and which changes have a part that does not. Written out by hand."""
    counted, late = [], set()
    for number, (song, old, new, made) in enumerate(history):
        for day, sign in ((old, -1), (new, 1)):
            if day is None or old == new:
                continue
            if in_time(day, made, retention):
                counted.append((song, day, sign, number))
            else:
                late.add(number)
    return counted, late


@given(changes, retentions, st.sampled_from(["ignore", "set-aside"]))
def test_what_counts_is_what_was_changed_before_the_window_and_its_retention_were_over(
    history: list[Any], retention: int, policy: str
) -> None:
    folded, fold = compile_fold(declare(retention, policy)._declaration)()
    for one in records(history):
        fold(one)
    counted, late = parts(history, retention)
    found = [
        (group, (datetime.fromisoformat(label) - datetime(2018, 1, 1)).days, sign, int(number) - 100)
        for (group, label), bucket in folded.buckets.items()
        for number, _, (sign,) in bucket
    ]
    assert sorted(found) == sorted(counted)
    if policy == "ignore":
        assert (folded.late, folded.bad) == (len(late), [])
    else:
        assert folded.late == len(late)
        assert [int(bad.sequence_number) - 100 for bad in folded.bad] == sorted(late)


@given(changes, st.integers(10**6, 10**7))
def test_a_retention_that_nothing_outlives_changes_nothing(history: list[Any], retention: int) -> None:
    results = []
    for declared in (None, retention):
        folded, fold = compile_fold(declare(declared, "ignore")._declaration)()
        for one in records(history):
            fold(one)
        results.append((dict(folded.buckets), folded.bad, folded.late))
    assert results[0] == results[1]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 6 * DAY)), min_size=1, max_size=12),
    retentions,
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 12)), max_size=6),
)
def test_a_redelivery_is_judged_as_the_first_delivery_was(
    puts: list[Any], retention: int, runs: list[tuple[int, int]]
) -> None:
    history = [(song, None, day, made) for song, day, made in puts]
    app = App("plays", [declare(retention, "ignore")])
    engine = MemoryDynamoDB()
    engine.create_table(**create_table_request(app, table))
    consumer = Consumer(app, "MusicLibrary", engine, connections=1)
    stream = records(history)
    done = 0
    for start, size in [*runs, (0, len(stream))]:
        start = min(start, done)
        if batch := stream[start : start + size]:
            assert consumer(event(*batch))["batchItemFailures"] == []
            done = max(done, start + len(batch))
    expected = Counter((song, day) for song, day, made in puts if in_time(day, made, retention))
    items = {(i["songID"]["S"], i["SK"]["S"]): i for i in engine.scan(TableName="MusicLibrary")["Items"]}
    assert items.keys() == {(song, image(song, day)["at"]["S"]) for song, day in expected}
    for (song, day), count in expected.items():
        item = items[song, image(song, day)["at"]["S"]]
        assert item["Plays"] == {"N": str(count)}
        assert item["expires"] == {"N": str(START + (day + 1) * DAY - ZONE_OFFSET + retention)}
