"""What a process knows of aggregates saves requests, and is never trusted."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from framework import Aggregation, App, Count, Index, Monthly, Sum, Table, at_least
from framework import known as module
from framework.consumer import Consumer
from framework.control import Control
from framework.known import Known
from framework.local.memory import MemoryDynamoDB
from framework.local.world import table_requests
from framework.plan import Update
from framework.redrive import Quarantine
from framework.testing import event, inserted, modified, removed

plays = Table("Plays", pk="song", sk="SK")


class Chart(Aggregation):
    """Songs with a score of three or more."""

    name = "chart"
    source = plays
    group_by = "song"
    window = Monthly("at")
    Score = Sum("amount")
    index = Index("Chart", pk="Month", sk="Score", when=at_least("Score", 3))


class Plain(Chart):
    """Nothing to guess."""

    name = "plain"
    Plays = Count()
    index = Index("Chart", pk="Month", sk="Score")


app = App("app", [Chart])
CONTROL = "control"


def play(number: int, amount: int = 1, song: str = "blue") -> dict[str, Any]:
    return {"song": song, "SK": f"play-{number}", "at": "2018-01-15", "amount": amount}


def tables() -> MemoryDynamoDB:
    engine = MemoryDynamoDB()
    (request,) = table_requests(app)
    engine.create_table(**request)
    keys = [{"AttributeName": name, "KeyType": kind} for name, kind in (("pk", "HASH"), ("sk", "RANGE"))]
    types = [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")]
    engine.create_table(TableName=CONTROL, KeySchema=keys, AttributeDefinitions=types, BillingMode="PAY_PER_REQUEST")
    return engine


def consumer_of(engine: MemoryDynamoDB, delivery: str = "lanes") -> Consumer:
    control = Control(engine, CONTROL, lambda name, content: None, connections=1)
    return Consumer(app, "Plays", engine, control=control, delivery=delivery, connections=1)


def chart(engine: MemoryDynamoDB) -> dict[str, int]:
    entries = engine.scan(TableName="Plays", IndexName="Chart")["Items"]
    return {entry["song"]["S"]: int(entry["Score"]["N"]) for entry in entries}


def asked(engine: MemoryDynamoDB, consumer: Consumer, batch: dict[str, Any]) -> int:
    before = engine.requests["UpdateItem"]
    assert consumer(batch)["batchItemFailures"] == []
    return engine.requests["UpdateItem"] - before


def test_a_process_asks_once_for_what_it_wrote_last_and_twice_where_it_assumes_wrongly() -> None:
    engine = tables()
    one, other = (Consumer(app, "Plays", engine, connections=1) for _ in range(2))
    assert asked(engine, one, event(inserted(plays, play(1)), inserted(plays, play(2)))) == 1
    assert chart(engine) == {}
    assert asked(engine, one, event(inserted(plays, play(3)))) == 1
    assert chart(engine) == {"blue": 3}
    assert asked(engine, other, event(inserted(plays, play(4)))) == 2
    assert asked(engine, other, event(inserted(plays, play(5)))) == 1
    # What the first one knows is out of date: it takes it for three, and is told that it is five.
    assert asked(engine, one, event(removed(plays, play(5)))) == 2
    assert chart(engine) == {"blue": 4}
    assert asked(engine, one, event(modified(plays, play(4), play(4, amount=-1)))) == 1
    assert chart(engine) == {}


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_what_is_known_of_an_item_that_is_gone_is_forgotten(delivery: str) -> None:
    engine = tables()
    consumer = consumer_of(engine, delivery)
    for number in range(3):
        consumer(event(inserted(plays, play(number, amount=3))))
    assert chart(engine) == {"blue": 9}
    engine.delete_item(TableName="Plays", Key={"song": {"S": "blue"}, "SK": {"S": "2018-01"}})
    for number in range(3, 6):
        assert consumer(event(inserted(plays, play(number))))["batchItemFailures"] == []
    assert chart(engine) == {"blue": 3}


def test_what_is_redriven_enters_and_leaves_the_index_too() -> None:
    engine = tables()
    consumer = consumer_of(engine)
    consumer(event(*(inserted(plays, play(n)) for n in range(2)), inserted(plays, {**play(2), "amount": "x"})))
    consumer(event(inserted(plays, {**play(3), "amount": "x"}), removed(plays, {**play(4), "amount": "x"})))
    assert chart(engine) == {}
    there = Quarantine(app, engine, CONTROL, load=lambda name: b"", store=lambda name, content: None)
    charts = []
    for item in [*there.open()]:
        record = json.loads(item["record"]["S"])
        for image in ("NewImage", "OldImage"):
            if image in record["dynamodb"]:
                record["dynamodb"][image]["amount"] = {"N": "2"}
        done = there.redrive({**item, "record": {"S": json.dumps(record)}})
        assert done.done, done.reason
        charts.append(chart(engine).get("blue"))
    assert charts == [4, 6, 4]
    assert all(each.done for each in map(there.redrive, there.open()))


def test_only_what_has_to_be_guessed_is_kept_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    known = Known()

    def update(group: str, declaration: Any = Chart._declaration) -> Update:
        return Update(declaration, group, "2018-01", 0, "sf~lane", ((1, True, (1,)),))

    item = {"song": {"S": "a"}, "Score": {"N": "5"}, "sf~lane": {"S": "0211@1"}}
    for group in "abac":
        known.keep(update(group), item)
    assert [known.get(update(group)) for group in "abc"] == [{"Score": {"N": "5"}}, None, {"Score": {"N": "5"}}]
    known.keep(update("a"), None)
    assert known.get(update("a")) is None
    known.keep(update("a", Plain._declaration), item)
    assert known.get(update("a", Plain._declaration)) is None


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
@pytest.mark.parametrize("seed", range(20))
def test_the_index_holds_what_a_model_says_after_every_batch(delivery: str, seed: int) -> None:
    """Two processes, batches in halves and again, items put, edited and deleted."""
    random, engine = Random(seed), tables()
    consumers = [consumer_of(engine, delivery) for _ in range(2)]
    items: dict[tuple[str, int], dict[str, Any]] = {}
    for _ in range(25):
        records = []
        for _ in range(random.randint(1, 6)):
            key = random.choice(["blue", "red"]), random.randrange(4)
            old = items.pop(key, None)
            new = play(key[1], random.choice([-1, 0, 1, 2, 3]), key[0])
            if old is None:
                items[key] = new
                records.append(inserted(plays, new))
            elif random.random() < 0.4:
                records.append(removed(plays, old))
            else:
                items[key] = new
                records.append(modified(plays, old, new))
        batch = event(*records)
        for _ in range(random.randint(1, 3)):
            assert random.choice(consumers)(batch)["batchItemFailures"] == []
            # A part of it again, which begins where it pleases.
            part = {**batch, "Records": batch["Records"][random.randrange(len(records)) :]}
            assert random.choice(consumers)(part)["batchItemFailures"] == []
        totals = {song: sum(item["amount"] for (s, _), item in items.items() if s == song) for song in ("blue", "red")}
        assert chart(engine) == {song: total for song, total in totals.items() if total >= 3}
