"""A trial: an emulator with the tables of `history.app`, the proxy before it, and consumers as Lambda has them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import botocore.session
import pytest
from botocore.config import Config

from framework.client import dynamodb
from framework.consumer import Consumer
from framework.control import Control
from framework.lanes import owner
from framework.local.provision import create_table_request
from framework.reading import aggregates_of
from tests.e2e.cloud import ACCOUNT
from tests.e2e.emulator import Microburst, Ministack, Roto
from tests.e2e.faults import FAULTS
from tests.e2e.history import MENDED, TAKEN, Artists, Counts, app, ranked

__all__ = ["CONTROL", "Consume", "Emulator", "Trial", "direct_client", "lambdas_client", "no_object"]

CONTROL = "Control"

_TAKEN_KEY = {"artist": {"S": TAKEN}, "month": {"S": "2018-01"}}
_CONTROL: dict[str, Any] = {
    "TableName": CONTROL,
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
    "BillingMode": "PAY_PER_REQUEST",
}

Consume = Callable[[dict[str, Any]], dict[str, Any]]
Emulator = type[Ministack | Roto]


class _Context:
    """An invocation with some time left."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self._seconds * 1000)


class Trial:
    """An emulator with the app's tables, and the proxy before it.

    Args:
        kind: Which emulator.
        seed: Of the proxy's draws.
        folder: Where they write.
        patch: Undone when the test ends.

    Attributes:
        proxy: The proxy.
        direct: A client that goes around it.
    """

    def __init__(self, kind: Emulator, seed: int, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._kind, self._seed, self._folder, self._patch = kind, seed, folder, patch

    def __enter__(self) -> Trial:
        self._patch.setenv("AWS_ACCESS_KEY_ID", ACCOUNT)  # for ministack those of the account's root
        self._patch.setenv("AWS_SECRET_ACCESS_KEY", "fake")
        self._patch.delenv("AWS_SESSION_TOKEN")
        with ExitStack() as stack:
            emulator = stack.enter_context(self._kind(self._folder))
            self.proxy = stack.enter_context(Microburst(self._folder, emulator.endpoint, self._seed))
            self.direct = direct_client(emulator.endpoint)
            for table in app.tables:
                self.direct.create_table(**create_table_request(app, table))
            self.direct.create_table(**_CONTROL)
            self.proxy.rule(FAULTS)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def client(self) -> Any:
        """A client of the proxy."""
        client = lambdas_client(self.proxy.endpoint, self._patch)
        if self._kind is Roto:
            _bring_refusing_items(client, self.direct)
        return client

    def consumer(self, delivery: str, random: Random) -> Consume:
        """A consumer, whose invocations have now enough time, now too little."""
        client = self.client()
        control = Control(client, CONTROL, no_object, connections=4)
        consumer = Consumer(app, "Plays", client, control=control, delivery=delivery, connections=4)
        return lambda event: consumer(event, _Context(random.choice((0.5, 5, 20))))

    def counts(self) -> Counts:
        """What the aggregates say."""
        return {
            (declaration.name, str(each.group), each.window): dict(each.values)
            for declaration in [each._declaration for each in app.aggregations]
            for items in [self._items(declaration.target.name)]
            for each in aggregates_of(declaration, [item for item in items if owner(item) == declaration.name])
        }

    def ranking(self, month: str) -> list[tuple[str, Any]]:
        """A month's artists and their plays, as the index has them, each on a page that goes on after the last."""
        pages = [Artists.top(month, 1, client=self.direct)]
        while pages[-1].token is not None:
            pages.append(Artists.top(month, 1, token=pages[-1].token, client=self.direct))
        return [(str(each.group), each["Plays"]) for page in pages for each in page]

    def entries(self) -> list[dict[str, Any]]:
        """The entries of the quarantine."""
        return [item for item in self._items(CONTROL) if item["pk"] == {"S": "quarantine"}]

    def take(self) -> None:
        """Put somebody else's item at the key of an artist's aggregate."""
        self.direct.put_item(TableName=ranked.name, Item={**_TAKEN_KEY, "theirs": {"S": "x"}})

    def mend(self) -> None:
        """Put into the entries what a mended handler would find, and take that item away."""
        self.direct.delete_item(TableName=ranked.name, Key=_TAKEN_KEY)
        for entry in self.entries():
            record = json.loads(entry["record"]["S"])
            for image in ("NewImage", "OldImage"):
                if image in record["dynamodb"]:
                    record["dynamodb"][image].setdefault("weight", {"N": MENDED})
            self.direct.put_item(TableName=CONTROL, Item={**entry, "record": {"S": json.dumps(record)}})

    def _items(self, table: str) -> list[dict[str, Any]]:
        pages = self.direct.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]


def no_object(name: str, content: bytes) -> None:
    raise AssertionError(f"no object was expected, came {name}")


def direct_client(endpoint: str, service: str = "dynamodb") -> Any:
    """A client that meets no faults."""
    return botocore.session.get_session().create_client(service, endpoint_url=endpoint, config=Config(proxies={}))


def lambdas_client(endpoint: str, patch: pytest.MonkeyPatch) -> Any:
    """A client as one of Lambda's processes has it, which sends its requests to an endpoint."""
    patch.setenv("AWS_ENDPOINT_URL_DYNAMODB", endpoint)
    return dynamodb.__wrapped__()


def _bring_refusing_items(client: Any, emulator: Any) -> None:
    """Have a client get the item that refused an update from an emulator that brings it for transactions alone."""

    def remember(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        context["key"] = {name: params[name] for name in ("TableName", "Key")}

    def bring(parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        if parsed.get("Error", {}).get("Code") == "ConditionalCheckFailedException" and "Item" not in parsed:
            reply = emulator.get_item(**context["key"], ConsistentRead=True)
            parsed.update({"Item": reply["Item"]} if "Item" in reply else {})

    client.meta.events.register("before-parameter-build.dynamodb.UpdateItem", remember)
    client.meta.events.register("after-call.dynamodb.UpdateItem", bring)
