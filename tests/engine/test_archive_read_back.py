"""An archive read back by an engine that is none of ours: 100,000 items that expired, each once, value for value."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import duckdb

from framework import App, Monthly, Table, TtlArchive
from framework.codec import encode_item, to_event
from framework.consumer import Consumer
from framework.control import Control
from framework.deliver_archive import Bucket
from framework.filters import compile_filters
from framework.local.clock import Clock
from framework.local.faults import Chance, Faults
from framework.local.faulty import Poller
from framework.local.history import expired, stream_arn
from framework.local.memory import MemoryDynamoDB
from framework.local.objects import MemoryObjects, Together
from framework.local.settings import Settings
from framework.local.streams import Stream
from framework.local.world import CONTROL, CONTROL_REQUEST

ITEMS = 100_000
START = 1_517_443_190.0  # 2018-01-31T23:59:50Z
sessions = Table("Sessions", pk="id", pk_type="N", ttl="expires")


class Sessions(TtlArchive):
    name = "sessions"
    source = sessions
    partition = Monthly("began")


app = App("archive", [Sessions])


def item(random: Random, number: int) -> dict[str, Any]:
    """An item with some of every type."""
    found: dict[str, Any] = {"id": number, "began": f"2018-{random.randint(1, 3):02}-15", "expires": 1_517_443_000}
    values: list[Any] = [
        10**37 + number, "käse\u2028\"\\ 🧀", b"\x00\xff" * 3, {b"a", b"\xff"}, {"x", "y"}, {1, 10**20}, [], {},
        [1, {"deep": [None, True, b"\x01"]}], None, False, "",
    ]  # fmt: skip
    return found | {f"a{place}": random.choice(values) for place in range(random.randrange(4))}


class Run:
    """A stream of expired items, and the pollers of its mapping."""

    def __init__(self, seed: int) -> None:
        self.clock = Clock(START)
        self.engine = MemoryDynamoDB(clock=lambda: self.clock.now, metered=False)
        self.engine.create_table(**CONTROL_REQUEST)
        self.objects = MemoryObjects(lambda: self.clock.now)
        self.chance = Chance(Faults(duplicate=0.1, deploy=0.05, restart=0.05, slow=0.01, timeout=0.01), Random(seed))
        self.stream = Stream(stream_arn(sessions), shards=4)
        self.second: Poller | None = None
        self.busy = False
        self.older: list[dict[str, int]] = [{}]

    def poller(self, checkpoints: dict[str, int] | None = None) -> Poller:
        settings = Settings(
            batch_size=self.chance.random.choice((100, 500, 1000, 10_000)),
            batching_window=1,
            tumbling_window=900,
            bisect=True,
            report_failures=True,
            filters=compile_filters(app.declarations).patterns,
        )
        client = Together(self.engine, self.objects)
        options: dict[str, Any] = {"client": client, "meanwhile": self.meanwhile, "checkpoints": checkpoints}
        return Poller(self.stream, settings, self.clock, self.chance, self.consumer, **options)

    def consumer(self, client: Any) -> Consumer:
        options: dict[str, Any] = {
            "connections": 1,
            "now": lambda: self.clock.now,
            "clock": lambda: self.clock.now,
            "sleep": self.clock.sleep,
        }
        control = Control(client, CONTROL, self.no_object, **options)
        return Consumer(app, "Sessions", client, control=control, bucket=Bucket(lambda: client, "a"), **options)

    def no_object(self, name: str, content: bytes) -> None:
        raise AssertionError(f"no record is set aside, came {name}")

    def meanwhile(self) -> bool:
        """A second poller takes a step, from an older checkpoint."""
        if self.busy:
            return False
        if self.second is None:
            self.second = self.poller(self.chance.random.choice(self.older))
        self.busy = True
        try:
            took = self.second.source.step()
        finally:
            self.busy = False
        if not took:
            self.second = None
        return took

    def drain(self) -> Poller:
        first = self.poller()
        for _ in range(100_000):
            took = first.source.step()
            self.older.append(first.source.checkpoints)
            if self.chance.strikes("deploy"):
                first = self.poller(first.source.checkpoints)
            if not took:
                done = first.source.checkpoints
                if all(
                    shard.first(done.get(shard.shard_id, 0), now=self.clock.now) is None for shard in self.stream.shards
                ):
                    return first
                due = first.source.due()
                assert due is not None
                self.clock.wait_until(due)
        raise AssertionError("expected an end")


def test_an_independent_engine_finds_each_item_once_value_for_value(tmp_path: Path) -> None:
    random, run = Random(7), Run(7)
    items = [item(random, number) for number in range(ITEMS)]
    for each in items:
        run.stream.shard_of(str(each["id"])).append(expired(sessions, each), at=run.clock.now)
    first = run.drain()
    assert not first.source.lost
    assert not first.source.discarded
    for fault in ("second_poller", "crash after", "lost_reply after", "deploy", "restart", "late"):
        assert run.chance.happened[fault] > 0, fault
    run.chance.on = False
    while run.chance.late:
        run.chance.late.pop()()
    for name, content in run.objects.objects.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with duckdb.connect() as engine:
        rows = engine.sql(
            "SELECT CAST(Item AS VARCHAR), month FROM read_ndjson("
            f"'{tmp_path}/sessions/*/*.json.gz', columns={{'Item': 'JSON'}}, hive_partitioning=true)"
        ).fetchall()
        (twice,) = engine.sql(
            "SELECT count(*) - count(DISTINCT Item ->> '$.id.N') FROM read_ndjson("
            f"'{tmp_path}/sessions/*/*.json.gz', columns={{'Item': 'JSON'}})"
        ).fetchall()
    assert (len(rows), twice) == (ITEMS, (0,))
    came = {}
    for text, month in rows:
        image = json.loads(text)
        came[int(image["id"]["N"])] = (image, month)
    for each in items:
        image, month = came[each["id"]]
        assert image == to_event(encode_item(each))
        assert month == each["began"][:7]
