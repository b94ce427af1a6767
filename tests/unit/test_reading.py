"""Reads: no more requests than they need, what they cost, where they go on, and one group over several windows."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from framework import (
    Aggregation,
    AllTime,
    App,
    Average,
    Count,
    Daily,
    Hourly,
    Index,
    Max,
    Min,
    Monthly,
    ReadError,
    Sum,
    Table,
    at_least,
)
from framework.consumer import Consumer
from framework.local.memory import MemoryDynamoDB
from framework.local.world import table_requests
from framework.testing import event, inserted, removed

plays = Table("Plays", pk="song", sk="SK")
totals = Table("Totals", pk="key")


class Chart(Aggregation):
    """Over eight shards, from three plays on."""

    name = "chart"
    source = plays
    group_by = "song"
    window = Monthly("at")
    Plays = Count()
    Seconds = Sum("seconds")
    index = Index("Chart", pk="Month", sk="Plays", when=at_least("Plays", 3), shards=8)


class Days(Aggregation):
    """Labels that lie between those of months."""

    name = "days"
    source = plays
    group_by = "song"
    window = Daily("at")
    Plays = Count()


class Measured(Aggregation):
    """All kinds of measures in a table without a sort key, over partitions."""

    name = "measured"
    source = plays
    target = totals
    group_by = ("song", "kind")
    window = Hourly("at", tz="Europe/Berlin")
    changes = "inserts"
    partitions = 2
    Plays = Count()
    Mean = Average("seconds")
    Least = Min("seconds")
    Most = Max("seconds")


class Ever(Aggregation):
    """One window."""

    name = "ever"
    source = plays
    group_by = "song"
    window = AllTime()
    sk_prefix = "ever#"
    Plays = Count()


app = App("app", [Chart, Days, Measured, Ever])


@pytest.fixture
def engine() -> MemoryDynamoDB:
    made = MemoryDynamoDB()
    for request in table_requests(app):
        made.create_table(**request)
    return made


def play(number: int, song: str = "blue", at: str = "2018-01-15T10:00:00Z", seconds: Any = 1) -> dict[str, Any]:
    return {"song": song, "SK": f"play-{number}", "at": at, "seconds": seconds, "kind": "live"}


def feed(engine: MemoryDynamoDB, *records: Any) -> None:
    assert Consumer(app, "Plays", engine, connections=1)(event(*records))["streamfold"]["bad"] == []


def songs(engine: MemoryDynamoDB, counts: dict[str, int]) -> None:
    feed(engine, *(inserted(plays, play(n, song)) for song, count in counts.items() for n in range(count)))


def test_a_page_of_a_sharded_index_takes_a_request_a_key_and_tells_its_read_units(engine: MemoryDynamoDB) -> None:
    songs(engine, {f"song-{n}": n for n in range(1, 13)})
    before = engine.requests["Query"]
    page = Chart.top("2018-01", 5, client=engine)
    assert [(one.group, one["Plays"]) for one in page] == [(f"song-{n}", n) for n in range(12, 7, -1)]
    assert engine.requests["Query"] - before == 9  # the shards, and the plain label of the time before them
    assert page.read_units == 4.5
    assert [one.group for one in Chart.bottom("2018-01", 2, client=engine)] == ["song-3", "song-4"]
    assert [one["Plays"] for one in Chart.top(date(2018, 1, 9), 3, start=4, client=engine)] == [9, 8, 7]


def test_what_is_below_the_threshold_is_in_no_page_and_what_falls_leaves(engine: MemoryDynamoDB) -> None:
    songs(engine, {"a": 2, "b": 3, "c": 4})
    assert [one.group for one in Chart.all("2018-01", client=engine)] == ["c", "b"]
    feed(engine, removed(plays, play(0, "b")), removed(plays, play(0, "c")))
    assert [one.group for one in Chart.all("2018-01", client=engine)] == ["c"]
    month = {"song": {"S": "b"}, "SK": {"S": "2018-01"}}
    assert "Month" not in engine.get_item(TableName="Plays", Key=month)["Item"]


def test_a_raised_threshold_holds_for_reads_before_the_next_write(engine: MemoryDynamoDB) -> None:
    class Raised(Chart):
        name = "chart"
        index = Index("Chart", pk="Month", sk="Plays", when=at_least("Plays", 4), shards=8)

    songs(engine, {"a": 5, "b": 3, "c": 4})
    assert [one.group for one in Raised.all("2018-01", client=engine)] == ["a", "c"]
    assert [one.group for one in Raised.bottom("2018-01", 1, client=engine)] == ["c"]


def test_a_page_says_where_it_goes_on_and_the_last_one_that_nothing_follows(engine: MemoryDynamoDB) -> None:
    songs(engine, dict.fromkeys("abcde", 3))
    first = Chart.top("2018-01", 3, client=engine)
    assert first.token is not None
    last = Chart.top("2018-01", 3, token=first.token, client=engine)
    assert [one.group for one in (*first, *last)] == list("abcde")
    assert last.token is None
    assert (len(last), last[0].group, [one.group for one in last[1:]]) == (2, "d", ["e"])
    rest = Chart.all("2018-01", token=first.token, client=engine)
    assert next(rest).group == "d"
    assert rest.token == Chart.top("2018-01", 4, client=engine).token
    assert rest.read_units == 4.5
    assert Chart.top("2018-02", client=engine).token is None


def test_equal_entries_are_read_to_the_last_and_no_others(engine: MemoryDynamoDB) -> None:
    class Plain(Chart):
        name = "chart"
        index = Index("Chart", pk="Month", sk="Plays")

    for n in range(60):
        item = {"song": {"S": f"{n:02}"}, "SK": {"S": "2018-01"}, "Month": {"S": "2018-01"}, "Seconds": {"N": "1"}}
        engine.put_item(TableName="Plays", Item={**item, "Plays": {"N": "7" if n < 30 else str(100 + n)}})
    before = engine.requests["Query"]
    assert len(Plain.top("2018-01", 3, client=engine)) == 3
    assert engine.requests["Query"] - before == 1
    assert [one.group for one in Plain.top("2018-01", 2, start=31, client=engine)] == ["00", "01"]
    assert engine.requests["Query"] - before == 3  # 33 entries do not hold all that are equal
    assert [one.group for one in Plain.bottom("2018-01", 30, client=engine)] == [f"{n:02}" for n in range(30)]


def test_bounds_are_asked_of_every_key_so_that_what_lies_outside_costs_nothing(engine: MemoryDynamoDB) -> None:
    counts = {f"song-{n:02}": n for n in range(3, 43)}
    songs(engine, counts)
    asked: list[dict[str, Any]] = []

    class Noting:
        """Notes what is asked, and how many entries came."""

        entries = 0

        def query(self, **arguments: Any) -> Any:
            asked.append(arguments)
            page = engine.query(**arguments)
            self.entries += len(page["Items"])
            return page

    noting = Noting()
    assert [one["Plays"] for one in Chart.all("2018-01", at_least=39, at_most=41, client=noting)] == [41, 40, 39]
    assert noting.entries == 3
    assert len(asked) == 9
    assert {each["KeyConditionExpression"] for each in asked} == {"#key = :key AND #value BETWEEN :least AND :most"}
    reads: list[tuple[Any, list[int]]] = [
        (Chart.top("2018-01", 2, at_most=10, client=noting), [10, 9]),
        (Chart.top("2018-01", 2, at_most=10, start=3, client=noting), [8, 7]),
        (Chart.bottom("2018-01", 2, at_least=Decimal("9.5"), client=noting), [10, 11]),
        (Chart.top("2018-01", at_least=43, client=noting), []),
        (Chart.all("2018-01", at_least=5, at_most=5, client=noting), [5]),
    ]
    for found, expected in reads:
        assert [one["Plays"] for one in found] == expected


def test_bounds_hold_for_the_total_where_several_items_make_up_an_aggregate() -> None:
    class Parts(Aggregation):
        """Three items an aggregate, each below the bound by itself."""

        name = "parts"
        source = plays
        target = Table("Parts", pk="song", sk="SK")
        group_by = "song"
        window = Monthly("at")
        partitions = 3
        Plays = Count()
        index = Index("Parts", pk="Month", sk="Plays")

    engine = MemoryDynamoDB()
    for request in table_requests(App("app", [Parts])):
        engine.create_table(**request)
    for group, parts in (("low", (1, 1, 1)), ("high", (2, 3, 4)), ("middle", (0, 6, 0))):
        for partition, count in enumerate(parts):
            item = {**Parts._declaration.key(group, "2018-01", partition), "Month": {"S": "2018-01"}}
            engine.put_item(TableName="Parts", Item={**item, "Plays": {"N": str(count)}})
    found = Parts.all("2018-01", at_least=5, at_most=9, client=engine)
    assert [(one.group, one["Plays"]) for one in found] == [("high", 9), ("middle", 6)]
    first = Parts.top("2018-01", 1, at_least=5, client=engine)
    assert [one.group for one in first] == ["high"]
    rest = Parts.top("2018-01", at_least=5, token=first.token, client=engine)
    assert ([one.group for one in rest], rest.token) == (["middle"], None)


def test_a_long_tail_of_equal_entries_takes_few_requests(engine: MemoryDynamoDB) -> None:
    class Plain(Chart):
        name = "chart"
        index = Index("Chart", pk="Month", sk="Plays")

    for n in range(1000):
        item = {"song": {"S": f"{n:03}"}, "SK": {"S": "2018-01"}, "Month": {"S": "2018-01"}, "Seconds": {"N": "1"}}
        engine.put_item(TableName="Plays", Item={**item, "Plays": {"N": "1"}})
    before = engine.requests["Query"]
    assert [one.group for one in Plain.top("2018-01", 3, client=engine)] == ["000", "001", "002"]
    assert engine.requests["Query"] - before == 8  # pages of 4, 8, 16 up to 512


def test_an_entry_that_is_seen_under_two_keys_is_given_out_once() -> None:
    entry = {"song": {"S": "a"}, "SK": {"S": "2018-01"}, "Plays": {"N": "5"}, "Seconds": {"N": "5"}}

    class Moving:
        def query(self, **arguments: Any) -> Any:
            key = arguments["ExpressionAttributeValues"][":key"]["S"]
            return {"Items": [entry] if key in ("2018-01", "2018-01#3") else []}

    page = Chart.top("2018-01", client=Moving())
    assert ([one.group for one in page], page.read_units) == (["a"], 0.0)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda client: Days.top("2018-01-01", client=client), "days: expected an index to read a window from, came a declaration without one"),
        (lambda client: Days.all("2018-01-01", client=client), "days: expected an index"),
        (lambda client: Chart.top("2018-1", client=client), "expected a datetime, a date or a label such as '2018-01'"),
        (lambda client: Chart.top("2018-01", 0, client=client), "chart: n: expected a whole number from 1 to 1,000,000,000, came 0"),
        (lambda client: Chart.top("2018-01", True, client=client), "chart: n: expected a whole number from 1 to 1,000,000,000, came True"),
        (lambda client: Chart.bottom("2018-01", start=0, client=client), "chart: start: expected a whole number from 1 to 1,000,000,000, came 0"),
        (lambda client: Chart.top("2018-01", start=2, token="x", client=client), "chart: expected a token or a start, came both"),
        (lambda client: Chart.top("2018-01", token="x", client=client), "chart: token: expected a token of a read of '2018-01', the greatest first, came 'x'"),
        (lambda client: Chart.top("2018-01", at_least=0.5, client=client), "chart: at_least: expected an int or a Decimal that DynamoDB can hold, or None, came 0.5"),
        (lambda client: Chart.bottom("2018-01", at_most="5", client=client), "chart: at_most: expected an int or a Decimal that DynamoDB can hold, or None, came '5'"),
        (lambda client: Chart.all("2018-01", at_most=True, client=client), "chart: at_most: expected an int or a Decimal that DynamoDB can hold, or None, came True"),
        (lambda client: Chart.all("2018-01", at_least=10**38 + 1, client=client), "chart: at_least: expected an int or a Decimal that DynamoDB can hold"),
        (lambda client: Chart.all("2018-01", at_least=Decimal("NaN"), client=client), "chart: at_least: expected an int or a Decimal that DynamoDB can hold"),
        (lambda client: Chart.top("2018-01", at_least=3, at_most=2, client=client), "chart: at_most: expected no less than at_least, 3, came 2"),
        (lambda client: Chart.top("2018-01", at_least=3, at_most=5, token="x", client=client), "chart: token: expected a token of a read of '2018-01', at_least=3, at_most=5, the greatest first, came 'x'"),
        (lambda client: Chart.series("blue", "2018-02", "2018-01", client=client), "expected a last window that is not before the first, '2018-02', came '2018-01'"),
        (lambda client: Measured.series("blue", "2018-01-01T00", "2018-01-01T01", client=client), r"measured: group: expected a value for each of \('song', 'kind'\), came 'blue'"),
    ],
)  # fmt: skip
def test_a_wrong_read_is_told_in_one_sentence(read: Any, message: str, engine: MemoryDynamoDB) -> None:
    with pytest.raises(ReadError, match=message):
        read(engine)


def test_a_token_goes_on_with_its_own_read_and_with_no_other(engine: MemoryDynamoDB) -> None:
    songs(engine, dict.fromkeys("abc", 3))
    token = Chart.top("2018-01", 1, client=engine).token
    bounded = Chart.top("2018-01", 1, at_least=3, client=engine).token
    assert token is not None
    assert bounded is not None
    made = [*json.loads(urlsafe_b64decode(bounded + "=="))[:-2], "2", "a"]
    outside = urlsafe_b64encode(json.dumps(made).encode()).decode()
    others = [
        lambda: Chart.top("2018-01", at_least=3, token=token, client=engine),
        lambda: Chart.top("2018-01", token=bounded, client=engine),
        lambda: Chart.top("2018-01", at_least=2, token=bounded, client=engine),
        lambda: Chart.top("2018-01", at_most=3, token=bounded, client=engine),
        lambda: Chart.all("2018-01", at_least=3, at_most=3, token=bounded, client=engine),
        lambda: Chart.top("2018-01", at_least=3, token=outside, client=engine),
        lambda: Chart.top("2018-02", token=token, client=engine),
        lambda: Chart.bottom("2018-01", token=token, client=engine),
        lambda: Chart.top("2018-01", token=token[:-2], client=engine),
    ]
    for read in others:
        with pytest.raises(ReadError, match="chart: token: expected a token of a read of"):
            read()
    assert [one.group for one in Chart.top("2018-01", token=token, client=engine)] == ["b", "c"]
    same = Decimal("3.0")
    assert [one.group for one in Chart.all("2018-01", at_least=same, token=bounded, client=engine)] == ["b", "c"]


def test_a_series_has_every_window_gaps_as_zero_and_a_total(engine: MemoryDynamoDB) -> None:
    dates = ("2018-01-15", "2018-01-16", "2018-04-01", "2018-06-01")
    feed(engine, *(inserted(plays, play(n, at=at, seconds=Decimal("0.1"))) for n, at in enumerate(dates)))
    before = engine.requests.total()
    found = Chart.series("blue", "2018-01", "2018-05", client=engine)
    assert [(one.window, one["Plays"], str(one["Seconds"])) for one in found] == [
        ("2018-01", 2, "0.2"),
        ("2018-02", 0, "0"),
        ("2018-03", 0, "0"),
        ("2018-04", 1, "0.1"),
        ("2018-05", 0, "0"),
    ]
    assert (found.total.group, found.total.window) == ("blue", "2018-01/2018-05")
    assert found.total.values == {"Plays": 3, "Seconds": Decimal("0.3")}
    # One query, though the aggregates of days lie among those of months.
    assert engine.requests.total() - before == 1
    assert found.read_units == 1.0
    nothing = Chart.series("red", "2018-01", "2018-01", client=engine)
    assert [dict(one.values) for one in nothing] == [{"Plays": 0, "Seconds": 0}]
    assert nothing.total == nothing[0]


def test_a_series_of_hours_has_the_one_that_comes_twice_and_combines_by_kind(engine: MemoryDynamoDB) -> None:
    for n, (at, seconds) in enumerate(
        [("00:30", 1), ("00:40", 2), ("01:30", 4), ("02:10", Decimal("0.5"))]  # 02:30 twice, by the clock of Berlin
    ):
        feed(engine, inserted(plays, play(n, at=f"2018-10-28T{at}:00Z", seconds=seconds)))
    found = Measured.series(("blue", "live"), "2018-10-28T01", "2018-10-28T04", client=engine)
    assert [(one.window[8:], *one.values.values()) for one in found] == [
        ("28T01", 0, None, None, None),
        ("28T02", 2, Decimal("1.5"), 1, 2),
        ("28T02B", 1, 4, 4, 4),
        ("28T03", 1, Decimal("0.5"), Decimal("0.5"), Decimal("0.5")),
        ("28T04", 0, None, None, None),
    ]
    assert found.total.values == {"Plays": 4, "Mean": Decimal("1.875"), "Least": Decimal("0.5"), "Most": 4}
    assert found.read_units == 10.0  # two items for each of five hours, there or not
    assert {one.group for one in found} == {("blue", "live")}


def test_a_series_does_not_count_what_is_not_the_aggregations_own(engine: MemoryDynamoDB) -> None:
    engine.put_item(
        TableName="Plays",
        Item={"song": {"S": "blue"}, "SK": {"S": "2018-01"}, "Plays": {"N": "9"}, "Seconds": {"N": "9"}},
    )
    assert Chart.series("blue", "2018-01", "2018-02", client=engine).total["Plays"] == 0


def test_all_time_is_a_series_of_one(engine: MemoryDynamoDB) -> None:
    songs(engine, {"blue": 2})
    (one,) = Ever.series("blue", "all", "all", client=engine)
    assert one == Ever.get("blue", "all", client=engine)
