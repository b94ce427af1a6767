"""Resharding moves what was written under other shards, and only that; it may be broken off at any time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from framework import Aggregation, AllTime, App, Count, Index, Monthly, ReadError, Table
from framework import reshard as module
from framework.cli import index as command
from framework.cli import main
from framework.consumer import Consumer
from framework.local.memory import MemoryDynamoDB
from framework.local.world import table_requests
from framework.reshard import reshard
from framework.testing import event, inserted

plays = Table("Plays", pk="song", sk="SK")


def chart(shards: int) -> type[Aggregation]:
    class Chart(Aggregation):
        name = "chart"
        source = plays
        group_by = "song"
        window = Monthly("at")
        Plays = Count()
        index = Index("Shared", pk="Entry", sk="Plays", prefix="chart#", shards=shards)

    return Chart


class Ever(Aggregation):
    """In the same index and the same table."""

    name = "ever"
    source = plays
    group_by = "song"
    window = AllTime()
    sk_prefix = "ever#"
    Plays = Count()
    index = Index("Shared", pk="Entry", sk="Plays", prefix="ever#")


SONGS = [f"song-{n:02}" for n in range(40)]


def play(number: int, song: str) -> dict[str, Any]:
    return {"song": song, "SK": f"play-{number}", "at": f"2018-0{1 + number % 2}-15"}


@pytest.fixture
def engine() -> MemoryDynamoDB:
    made = MemoryDynamoDB()
    (request,) = table_requests(App("app", [chart(1), Ever]))
    made.create_table(**request)
    return made


def feed(engine: MemoryDynamoDB, cls: type[Aggregation], songs: list[str] = SONGS) -> None:
    consumer = Consumer(App("app", [cls, Ever]), "Plays", engine, connections=1)
    records = [inserted(plays, play(n, song)) for place, song in enumerate(songs) for n in range(1 + place % 5)]
    assert consumer(event(*records))["streamfold"]["bad"] == []


def keys(engine: MemoryDynamoDB) -> dict[str, set[str]]:
    """The songs under each partition key."""
    found: dict[str, set[str]] = {}
    for entry in engine.scan(TableName="Plays", IndexName="Shared")["Items"]:
        found.setdefault(entry["Entry"]["S"], set()).add(entry["song"]["S"])
    return found


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE", 7)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize(("former", "now"), [(1, 8), (4, 8), (8, 8), (8, 2), (8, 1)])
def test_every_entry_comes_to_the_shard_that_is_declared(engine: MemoryDynamoDB, former: int, now: int) -> None:
    feed(engine, chart(former))
    raised = chart(now)
    assert raised.index is not None
    others = {key: songs for key, songs in keys(engine).items() if key.startswith("ever#")}
    before = {song: raised.series(song, "2018-01", "2018-02", client=engine).aggregates for song in SONGS}
    wcu = engine.wcu
    *_, done = reshard(raised._declaration, engine)
    found = keys(engine)
    for label in ("2018-01", "2018-02"):
        for song in SONGS:
            if label == "2018-01" or SONGS.index(song) % 5:
                assert song in found[raised.index.key(song, label)]
    assert {key: songs for key, songs in found.items() if key.startswith("ever#")} == others
    assert {song: raised.series(song, "2018-01", "2018-02", client=engine).aggregates for song in SONGS} == before
    assert len(list(raised.all("2018-01", client=engine))) == 40
    assert done.token is None
    assert (done.moved > 0) is (former != now)
    assert done.write_units == engine.wcu - wcu == 3 * done.moved  # the item, and an entry that goes and comes
    *_, again = reshard(raised._declaration, engine)
    assert (again.seen, again.moved, again.changed, again.write_units) == (72, 0, 0, 0.0)


def test_raised_shards_read_what_was_written_under_the_former_ones_and_the_next_write_moves_it(
    engine: MemoryDynamoDB,
) -> None:
    feed(engine, chart(1))
    raised = chart(8)
    assert [one.group for one in raised.top("2018-01", 2, client=engine)] == ["song-04", "song-09"]
    more = [inserted(plays, play(100 + 2 * n, "song-07")) for n in range(9)]
    Consumer(App("app", [raised, Ever]), "Plays", engine, connections=1)(event(*more))
    assert [one.group for one in raised.top("2018-01", 2, client=engine)] == ["song-07", "song-04"]
    assert raised.index is not None
    assert keys(engine)[raised.index.key("song-07", "2018-01")] == {"song-07"}
    assert len(list(raised.all("2018-01", client=engine))) == 40


def test_entries_under_a_former_prefix_are_brought_to_the_one_that_is_declared(engine: MemoryDynamoDB) -> None:
    feed(engine, chart(2))

    class Renamed(Ever):
        name = "ever"
        index = Index("Shared", pk="Entry", sk="Plays", prefix="always#")

    (done,) = reshard(Renamed._declaration, engine)
    assert (done.seen, done.moved) == (40, 40)
    assert {key.partition("#")[0] for key in keys(engine)} == {"chart", "always"}


@pytest.mark.usefixtures("small_pages")
def test_a_dry_run_counts_and_writes_nothing(engine: MemoryDynamoDB) -> None:
    feed(engine, chart(1))
    before = keys(engine)
    *_, would = reshard(chart(8)._declaration, engine, dry_run=True)
    assert keys(engine) == before
    *_, done = reshard(chart(8)._declaration, engine)
    assert would.moved == done.moved == 72
    assert would.write_units == 0


@pytest.mark.usefixtures("small_pages")
def test_it_goes_on_in_another_process_where_it_was_broken_off(engine: MemoryDynamoDB) -> None:
    feed(engine, chart(1))
    first = next(reshard(chart(8)._declaration, engine))
    assert first.token is not None
    *_, rest = reshard(chart(8)._declaration, engine, token=first.token)
    assert first.moved + rest.moved == 72
    assert set(keys(engine)) & {"chart#2018-01", "chart#2018-02"} == set()


def test_an_entry_that_changes_meanwhile_is_left_to_its_own_write(engine: MemoryDynamoDB) -> None:
    feed(engine, chart(1), SONGS[:3])

    class Racing:
        def scan(self, **arguments: Any) -> Any:
            page = engine.scan(**arguments)
            feed(engine, chart(4), SONGS[:1])  # moves the entry of the first song itself
            engine.put_item(
                TableName="Plays",  # somebody else's item, at the key and in the index
                Item={
                    "song": {"S": SONGS[1]},
                    "SK": {"S": "2018-01"},
                    "Entry": {"S": "chart#2018-01"},
                    "Plays": {"N": "1"},
                },
            )
            return page

        def update_item(self, **arguments: Any) -> Any:
            return engine.update_item(**arguments)

    (done,) = reshard(chart(8)._declaration, Racing())
    assert (done.seen, done.moved, done.changed) == (5, 3, 2)
    four = chart(4).index
    assert four is not None
    assert SONGS[0] in keys(engine)[four.key(SONGS[0], "2018-01")]
    assert keys(engine)["chart#2018-01"] == {SONGS[1]}


def test_a_table_without_capacity_is_asked_again_and_any_other_refusal_is_told(engine: MemoryDynamoDB) -> None:
    feed(engine, chart(1), SONGS[:2])
    pauses: list[float] = []
    codes = ["ProvisionedThroughputExceededException"] * 3

    class Busy:
        def scan(self, **arguments: Any) -> Any:
            return engine.scan(**arguments)

        def update_item(self, **arguments: Any) -> Any:
            if codes:
                raise ClientError({"Error": {"Code": codes.pop(), "Message": "no"}}, "UpdateItem")
            return engine.update_item(**arguments)

    (done,) = reshard(chart(8)._declaration, Busy(), sleep=pauses.append)
    assert (done.moved, len(pauses)) == (3, 3)
    codes.append("AccessDeniedException")
    with pytest.raises(ClientError, match="AccessDenied"):
        list(reshard(chart(2)._declaration, Busy(), sleep=pauses.append))


@pytest.mark.parametrize("token", ["x", "W10", ""])
def test_a_wrong_token_or_no_index_is_told(engine: MemoryDynamoDB, token: str) -> None:
    with pytest.raises(ReadError, match="chart: token: expected one of its resharding, came"):
        next(reshard(chart(8)._declaration, engine, token=token))

    class Bare(Ever):
        name = "bare"
        index = None

    with pytest.raises(ReadError, match="bare: expected an index to reshard"):
        next(reshard(Bare._declaration, engine))


app = App("app", [chart(8), Ever])
APP = ["--app", f"{__name__}:app"]


@pytest.mark.usefixtures("small_pages")
def test_the_command_tells_what_it_moved_and_where_to_go_on(
    engine: MemoryDynamoDB, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed(engine, chart(1))
    monkeypatch.setattr(command, "dynamodb", lambda: engine)
    assert main(["index", "reshard", *APP, "chart", "--dry-run"]) == 0
    assert "72 entries, 72 to be moved, 0 changed meanwhile; " in capsys.readouterr().out

    update_item, left = engine.update_item, [20]

    def interrupted(**arguments: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return update_item(**arguments)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "update_item", interrupted)
        assert main(["index", "reshard", *APP, "chart"]) == 130
    told = capsys.readouterr().err
    assert "stopped after 14 entries; go on with --token " in told
    token = told.split("--token ")[1].strip()
    assert main(["index", "reshard", *APP, "chart", "--token", token, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert set(done) == {"seen", "moved", "changed", "readUnits", "writeUnits"}
    assert set(keys(engine)) & {"chart#2018-01", "chart#2018-02"} == set()
