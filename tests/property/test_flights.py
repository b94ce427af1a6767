"""Real events, all of them: the aggregates equal an independent recount, whatever is delivered again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from framework.consumer import Consumer
from framework.demo import flights
from framework.lanes import owner
from framework.local.memory import MemoryDynamoDB
from framework.local.provision import create_table_request
from framework.local.sources import FileSource

BATCH = 9000


def scanned(engine: MemoryDynamoDB) -> Iterator[dict[str, Any]]:
    start: dict[str, Any] = {}
    while True:
        page = engine.scan(TableName="FlightTotals", **start)
        yield from page["Items"]
        if "LastEvaluatedKey" not in page:
            return
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}


@pytest.mark.parametrize("redelivered", [False, True])
def test_the_flights_equal_a_recount_for_every_aggregate(redelivered: bool) -> None:
    engine = MemoryDynamoDB()
    for table in flights.app.tables:
        engine.create_table(**create_table_request(flights.app, table))
    consumer = Consumer(flights.app, "Flights", engine, connections=1)
    records = list(FileSource(flights.DATA, flights.flights).records())
    rng = random.Random(2013)
    duplicates = 0
    for start in range(0, len(records), BATCH):
        stop = min(start + BATCH, len(records))
        runs = [(start, stop)]
        if redelivered:
            # A part of it before the whole, the whole again, and an old range late that runs on into this one.
            old = rng.randrange(stop)
            runs = [(start, rng.randrange(start, stop) + 1), *runs, (start, stop), (old, rng.randrange(old, stop) + 1)]
        for first, last in runs:
            response = consumer({"Records": records[first:last], "shardId": "shardId-1", "state": {}})
            assert response["batchItemFailures"] == []
            assert response["streamfold"]["bad"] == []
            duplicates += response["streamfold"]["duplicates"]
    found = {
        (item["route"]["S"], item["period"]["S"]): {
            name: Decimal(value["N"]) for name, value in item.items() if "N" in value
        }
        for item in scanned(engine)
        if owner(item)
    }
    assert found == flights.recount()
    assert len(found) > 5000
    assert (duplicates > 10_000) is redelivered
