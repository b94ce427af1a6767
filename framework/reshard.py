"""Reshard: bring an index's entries to the partition keys that its declaration has now.

Each write of an aggregate moves its entry by itself, and reads cover both the former keys and the new ones
(`Index.keys`). What is not written any more stays where it is, under a key that may get hot by reads. This scans the
index, which is sparse, and moves what is left: one conditional update for each entry, of its key alone and only if that
is still as it was seen. So it may be broken off, begun again and run twice, at any time.

An entry of more shards than there are now, or under a former prefix, which no read would find, is moved as well.
"""

from __future__ import annotations

import json
import random
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from botocore.exceptions import ClientError

from framework.client import CONNECTIONS
from framework.codec import Image
from framework.declaration import Declaration
from framework.errors import ReadError, shortened
from framework.lanes import MARK

__all__ = ["Resharded", "reshard"]

_PAGE = 1000  # entries between two tokens
# A table that cannot take more for now, or has another write in the way, is asked again later and later, for minutes.
_PASSING = frozenset(
    {
        "InternalServerError",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
        "TransactionConflictException",
    }
)
_MOST_TRIES, _FIRST_PAUSE, _LONGEST_PAUSE = 20, 0.1, 20.0


@dataclass(frozen=True, slots=True)
class Resharded:
    """How far resharding has come.

    Attributes:
        seen: Entries of the aggregation that were looked at; one that was moved may be seen again.
        moved: Those that were under another key than the declaration says, and are not any more.
        changed: Those that changed or left the index at that moment, by a write of their own.
        read_units: Read units consumed.
        write_units: Write units consumed.
        token: Text to go on from; None at the end.
    """

    seen: int = 0
    moved: int = 0
    changed: int = 0
    read_units: float = 0.0
    write_units: float = 0.0
    token: str | None = None


def reshard(
    declaration: Declaration,
    client: Any,
    *,
    token: str | None = None,
    dry_run: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Resharded]:
    """Move an index's entries to their shards, some at a time.

    Args:
        declaration: The aggregation.
        client: A boto3 DynamoDB client.
        token: Where an earlier run stopped.
        dry_run: Only count what would be moved.
        sleep: Waits for some seconds.

    Yields:
        How far it has come, after each page.

    Raises:
        ReadError: There is no index, or the token is wrong.
        ClientError: DynamoDB refuses a request, or for minutes has no capacity for it.
    """
    index = declaration.index
    if index is None:
        raise ReadError(f"{declaration.name}: expected an index to reshard, came a declaration without one")
    request: dict[str, Any] = {
        "TableName": declaration.target.name,
        "IndexName": index.name,
        "Limit": _PAGE,
        "ReturnConsumedCapacity": "TOTAL",
    }
    if token is not None:
        request["ExclusiveStartKey"] = _key_of(declaration, token)
    key_for = _compile(declaration)
    done = Resharded()
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="streamfold") as pool:
        while True:
            page = _patiently(sleep, client.scan, request)
            found = [(item, key) for item in page["Items"] if (key := key_for(item)) is not None]
            due = [(item, key) for item, key in found if item[index.pk]["S"] != key]
            costs: list[float | None] = [0.0] * len(due)
            if not dry_run:
                costs = list(pool.map(lambda one: _move(declaration, client, one[0], one[1], sleep), due))
            last = page.get("LastEvaluatedKey")
            done = Resharded(
                seen=done.seen + len(found),
                moved=done.moved + sum(cost is not None for cost in costs),
                changed=done.changed + costs.count(None),
                read_units=done.read_units + _units(page),
                write_units=done.write_units + sum(cost or 0.0 for cost in costs),
                token=None if last is None else _token_of(declaration, last),
            )
            yield done
            if last is None:
                return
            request["ExclusiveStartKey"] = last


def _compile(declaration: Declaration) -> Callable[[Image], str | None]:
    """A function from an entry to the key that it should have; None for one of somebody else's.

    Whose it is, the key of its item tells: that is no other aggregation's (`App`).
    """
    index = declaration.index
    assert index is not None

    @lru_cache(maxsize=4096)
    def sort_keys(label: str) -> frozenset[str]:
        try:
            return declaration.sort_keys(declaration.window.label(label))
        except ReadError:
            return frozenset()

    def key_for(item: Image) -> str | None:
        group, label = declaration.text_of(item)
        return index.key(group, label) if declaration.is_at(item, sort_keys(label)) else None

    return key_for


def _move(declaration: Declaration, client: Any, item: Image, key: str, sleep: Callable[[float], None]) -> float | None:
    """Give an entry its key; the write units, or None where the entry has changed."""
    assert declaration.index is not None
    try:
        reply = _patiently(
            sleep,
            client.update_item,
            {
                "TableName": declaration.target.name,
                "Key": {name: item[name] for name in declaration.target.keys},
                "UpdateExpression": "SET #pk = :key",
                "ConditionExpression": "#pk = :seen AND #mark = :name",
                "ExpressionAttributeNames": {"#pk": declaration.index.pk, "#mark": MARK},
                "ExpressionAttributeValues": {
                    ":key": {"S": key},
                    ":seen": item[declaration.index.pk],
                    ":name": {"S": declaration.name},
                },
                "ReturnConsumedCapacity": "TOTAL",
            },
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
            raise
        return None
    return _units(reply)


def _patiently(sleep: Callable[[float], None], call: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    for tries in range(1, _MOST_TRIES):
        try:
            return call(**arguments)
        except ClientError as error:
            if error.response["Error"]["Code"] not in _PASSING:
                raise
            sleep(random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**tries)))
    return call(**arguments)


def _units(reply: Any) -> float:
    return float(reply.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0))


def _token_of(declaration: Declaration, key: Image) -> str:
    assert declaration.index is not None
    text = json.dumps([declaration.name, declaration.index.name, key], separators=(",", ":"))
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _key_of(declaration: Declaration, token: str) -> dict[str, Any]:
    assert declaration.index is not None
    try:
        name, index, key = json.loads(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        if (name, index) != (declaration.name, declaration.index.name) or not isinstance(key, dict):
            raise ValueError(name)
    except (ValueError, TypeError, RecursionError):
        raise ReadError(f"{declaration.name}: token: expected one of its resharding, came {shortened(token)}") from None
    return key
