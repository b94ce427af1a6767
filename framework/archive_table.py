"""The table that an archive is compared with, or restored into: its keys, its time to live, which items it has.

AWS facts: DynamoDB API reference, BatchGetItem (100 keys and 16 MB at most; what it did not come to is given back),
DescribeTable, DescribeTimeToLive.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from framework.codec import Image
from framework.errors import ConfigurationError
from framework.patience import patiently
from framework.tables import Table

__all__ = ["MOST_KEYS", "check_keys", "items_there", "ttl_of"]

MOST_KEYS = 100
_PAUSE = 0.2  # seconds, after an answer that is not the whole one


def check_keys(client: Any, name: str, source: Table) -> None:
    """See that a table has the keys of an archive's items.

    Raises:
        ConfigurationError: It has others.
        ClientError: There is no such table.
    """
    described = patiently(lambda: client.describe_table(TableName=name))["Table"]
    types = {each["AttributeName"]: each["AttributeType"] for each in described["AttributeDefinitions"]}
    schema = sorted(described["KeySchema"], key=lambda each: each["KeyType"])  # HASH, RANGE
    came = {each["AttributeName"]: types[each["AttributeName"]] for each in schema}
    expected: dict[str, str] = {**source.key_types}
    if [*came.items()] != [*expected.items()]:
        raise ConfigurationError(
            f"table {name!r}: expected the keys of the archived items of {source.name!r}, {_text(expected)}, "
            f"came {_text(came)}"
        )


def ttl_of(client: Any, name: str) -> str | None:
    """By which attribute a table's items expire; None if they do not."""
    found = patiently(lambda: client.describe_time_to_live(TableName=name))["TimeToLiveDescription"]
    return found["AttributeName"] if found["TimeToLiveStatus"] in ("ENABLED", "ENABLING") else None


def items_there(
    client: Any,
    name: str,
    keys: Sequence[Image],
    names: Sequence[str] | None = None,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Image]:
    """Those of some items that a table has, in any order.

    Args:
        client: A boto3 DynamoDB client.
        name: The table.
        keys: The items' keys, each once, 100 at most.
        names: The attributes that are wanted; None for all.
        sleep: Waits for some seconds.
    """
    wanted: dict[str, Any] = {"Keys": list(keys), "ConsistentRead": True}
    if names is not None:
        places = {f"#n{number}": each for number, each in enumerate(names)}
        wanted |= {"ProjectionExpression": ", ".join(places), "ExpressionAttributeNames": places}
    asked: dict[str, Any] = {name: wanted} if keys else {}
    found: list[Image] = []
    while asked:
        reply = patiently(partial(client.batch_get_item, RequestItems=asked), sleep)
        found += reply["Responses"].get(name, ())
        asked = reply.get("UnprocessedKeys") or {}
        if asked:
            sleep(_PAUSE)
    return found


def _text(keys: dict[str, str]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in keys.items())
