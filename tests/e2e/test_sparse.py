"""Sparse indexes over HTTP: an application at work, a stream with our own writes in it, pollers, and a proxy that breaks.

What is read in the end is an index of the emulator, asked by a query, beside a scan of its table.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest
from botocore.exceptions import ClientError

import framework.deliver_sparse
from framework import App, StreamfoldError
from framework.apply import Apply
from framework.codec import encode_item
from framework.consumer import Consumer
from framework.control import Control
from framework.live import LiveShard, live_shards
from framework.local.entries import Entries
from framework.local.history import key_text
from framework.local.provision import create_table_request
from framework.local.recount import Seen
from framework.local.world import CONTROL, CONTROL_REQUEST
from framework.sparse_fold import entry_request
from tests.e2e.cloud import ACCOUNT
from tests.e2e.emulator import Microburst, Ministack
from tests.e2e.faults import FAULTS
from tests.e2e.test_faults import seed, together
from tests.e2e.trial import direct_client, lambdas_client, no_object
from tests.simulation.sparse import OpenOrders, OrdersOfCustomers, Urgent, item_of, orders

__all__ = ["seed"]

app = App("sparse", [OpenOrders, Urgent, OrdersOfCustomers])
CHANGES, KEYS, SECONDS = 250, 12, 120.0


class Shop:
    """An emulator with the app's tables, and the proxy before it."""

    def __init__(self, seed: int, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._seed, self._folder, self._patch = seed, folder, patch

    def __enter__(self) -> Shop:
        self._patch.setenv("AWS_ACCESS_KEY_ID", ACCOUNT)
        self._patch.setenv("AWS_SECRET_ACCESS_KEY", "fake")
        self._patch.delenv("AWS_SESSION_TOKEN")
        with ExitStack() as stack:
            emulator = stack.enter_context(Ministack(self._folder))
            self.proxy = stack.enter_context(Microburst(self._folder, emulator.endpoint, self._seed))
            self.direct = direct_client(emulator.endpoint)
            self._streams = direct_client(emulator.endpoint, "dynamodbstreams")
            for table in app.tables:
                self.direct.create_table(**create_table_request(app, table))
            self.direct.create_table(**CONTROL_REQUEST)
            self.proxy.rule(FAULTS)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def consumer(self) -> Consumer:
        client = lambdas_client(self.proxy.endpoint, self._patch)
        return Consumer(app, orders.name, client, control=Control(client, CONTROL, no_object), connections=4)

    @property
    def shard(self) -> LiveShard:
        arn = self.direct.describe_table(TableName=orders.name)["Table"]["LatestStreamArn"]
        (shard,) = live_shards(self._streams, arn)
        return shard

    def change(self, random: Random) -> None:
        """An application puts, updates and deletes."""
        for _ in range(CHANGES):
            _, item = item_of(random, [orders], KEYS)
            raw = encode_item(item)
            key = {name: raw.pop(name) for name in orders.keys}
            drawn = random.random()
            if drawn < 0.5:
                self.direct.put_item(TableName=orders.name, Item={**key, **raw})
            elif drawn < 0.8:
                self.direct.update_item(
                    TableName=orders.name,
                    Key=key,
                    UpdateExpression="SET #status = :status, placed = :placed",
                    ExpressionAttributeNames={"#status": "status"},
                    ExpressionAttributeValues={
                        ":status": raw.get("status", {"S": "open"}),
                        ":placed": raw["placed"],
                    },
                )
            else:
                self.direct.delete_item(TableName=orders.name, Key=key)

    def follow(self, random: Random, over: Event) -> None:
        """Deliver the stream to its end, now and then from an older place on, until nothing comes any more."""
        consumer, records, done = self.consumer(), list[dict[str, Any]](), 0
        end, quiet = time.monotonic() + SECONDS, 0
        while quiet < 3:
            assert time.monotonic() < end, f"expected an end, came none after {len(records)} records"
            if done == len(records):
                records = [
                    *self.shard.records()
                ]  # ministack's numbers have zeros in front, so none is a place to go on
            if done == len(records):
                quiet += over.is_set()
                time.sleep(0.05)
                continue
            quiet = 0
            start = done if random.random() < 0.7 else random.randint(0, done)
            batch = records[start : done + random.randint(1, 40)]
            try:
                failures = consumer({"Records": batch, "shardId": self.shard.shard_id})["batchItemFailures"]
            except StreamfoldError:
                continue
            failed = int(failures[0]["itemIdentifier"]) if failures else None
            numbers = [int(record["dynamodb"]["SequenceNumber"]) for record in batch]
            settled = len(batch) if failed is None else numbers.index(failed)
            done = max(done, start + settled)

    def items(self) -> list[dict[str, Any]]:
        return [item for item in self._pages("scan", TableName=orders.name) if "sf~" not in item]

    def entries(self, index: str, key: str, value: Any) -> list[dict[str, Any]]:
        """What a partition of an index holds."""
        return [
            *self._pages(
                "query",
                TableName=orders.name,
                IndexName=index,
                KeyConditionExpression="#key = :key",
                ExpressionAttributeNames={"#key": key},
                ExpressionAttributeValues={":key": value},
            )
        ]

    def _pages(self, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        for page in self.direct.get_paginator(operation).paginate(**arguments):
            yield from page["Items"]

    def wrong(self) -> list[str]:
        """The items that have not the entry they should have, and what an index holds that it should not."""
        items = {key_text(orders, item): item for item in self.items()}
        model = Entries(app, [Seen(orders.name, "", None, item, False, 0) for item in items.values()])
        expected = model.items({orders.name: items})[orders.name]
        found = [f"{key}: expected {expected[key]}, came {items[key]}" for key in items if items[key] != expected[key]]
        keys: dict[tuple[str, str], set[str]] = {}
        for place, item in expected.items():
            if "OrderOpenDate" in item:
                keys.setdefault(("OpenOrders", item["customer"]["S"]), set()).add(place)
            if "Priority" in item:
                keys.setdefault(("Urgent", item["Priority"]["N"]), set()).add(place)
        for index, key, values in (
            ("OpenOrders", "customer", [{"S": f"customer{n}"} for n in (0, 1)]),
            ("Urgent", "Priority", [{"N": str(n)} for n in (1, 2, 3, 9)]),
        ):
            for value in values:
                came = {key_text(orders, item) for item in self.entries(index, key, value)}
                wanted = keys.get((index, next(iter(value.values()))), set())
                if came != wanted:
                    found.append(f"{index} {value}: expected {sorted(wanted)}, came {sorted(came)}")
        return found


def run(shop: Shop, seed: int) -> None:
    over = Event()

    def change(random: Random) -> None:
        try:
            shop.change(random)
        finally:
            over.set()

    pollers = [(shop.follow, Random(f"{seed} {n}"), over) for n in range(2)]
    together([(change, Random(seed)), *pollers])


def test_an_index_holds_exactly_the_items_that_a_scan_says_it_should(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Shop(seed, tmp_path, monkeypatch) as shop:
        run(shop, seed)
        assert shop.wrong() == []
        assert any("OrderOpenDate" in item for item in shop.items())
        fired = {action.partition(":")[2] for operation, action in shop.proxy.fired if operation == "UpdateItem"}
        assert len(fired) >= 4, shop.proxy.fired


def test_apply_brings_existing_items_to_their_entries_while_faults_happen(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Shop(seed, tmp_path, monkeypatch) as shop:
        shop.change(Random(seed))
        assert shop.wrong() != []
        client = lambdas_client(shop.proxy.endpoint, monkeypatch)
        for cls in app.sparse_indexes:
            for _ in range(20):
                try:
                    Apply(app.declaration_of(cls), client, segments=3).run()
                except (ClientError, StreamfoldError):
                    continue  # whoever calls the command calls it again
                break
        assert shop.wrong() == []


def test_without_the_condition_it_is_caught(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bare(update: Any) -> Any:
        made = entry_request(update)
        del made["ConditionExpression"]
        used = made["UpdateExpression"]
        for field in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
            made[field] = {
                name: value for name, value in made.get(field, {}).items() if f"{name} " in f"{used} ".replace(",", " ")
            }
            if not made[field]:
                del made[field]
        return made

    monkeypatch.setattr(framework.deliver_sparse, "entry_request", bare)
    with Shop(seed, tmp_path, monkeypatch) as shop:
        run(shop, seed)
        # Deleted items were brought back: nothing but a key and an entry.
        assert any("status" not in item and "placed" not in item for item in shop.items())
