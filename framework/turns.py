"""Turns: which version of the code counts a shard's records. Pure.

By lanes a record's watermark says that it was dealt with, and not whether it counted or was set aside. Two versions of
a handler may differ in that. So each shard has a *turn*, an item of the control table with

    version   the code and configuration whose turn it is
    until     the latest time of creation of a record that any version may have begun to count
    since     what `until` was when the turn last passed to another version, if it ever did
    turn      how often it passed
    entries   how many entries of the quarantine were written for the shard

A process reads it before each batch. It takes the turn where that is another version's, and moves `until`, ten seconds
at a time, to cover its batch, in a write on condition that the item is as seen. An entry is written in one transaction
with the count of `entries`, on condition that `turn` is what it was when the batch began.

*Invariant.* A record created after `since` was begun by one version only, which judges it alike each time. If that one
sets it aside, nobody has counted it. Nobody that begins it later does, for the count of entries tells them to look. And
another version that begins it at the same time takes the turn first, so that the entry is refused, and is written as
*uncertain* instead: as is one of a record up to `since`. A person has to decide on those.

(Whether DynamoDB takes a value is no matter of versions: there the aggregate's own watermark moves with the entry, see
`deliver.Delivery`.)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from framework.codec import AttributeValue, Image
from framework.quarantine import MEMORY_SECONDS

__all__ = ["Turn", "counted", "is_taken", "taking", "turn_key", "turn_of"]

# By which a turn is taken ahead of the records: so that is a write in ten seconds of a shard, and not one a batch.
_AHEAD_SECONDS = 10


@dataclass(slots=True)
class Turn:
    """What a process may rest on while it counts a batch of a shard.

    Attributes:
        prefix: The shard's, as `quarantine.lane_prefix` gives it.
        newest: When the batch's newest record was created, in epoch seconds; None where none says.
        number: How often the turn had passed.
        since: Up to which time of creation another version may have begun; None if there was none.
        entries: How many entries were written.
    """

    prefix: str
    newest: float | None
    number: int
    since: float | None
    entries: int

    def alone(self, at: float | None) -> bool:
        """Whether no other version can have begun a record that was created at a time; None where it does not say."""
        return self.since is None or (at is not None and at > self.since)


def turn_key(prefix: str) -> dict[str, AttributeValue]:
    """The key of a shard's turn in the control table."""
    return {"pk": {"S": f"turn#{prefix}"}, "sk": {"S": "-"}}


def is_taken(item: Image | None, version: str, newest: float | None) -> bool:
    """Whether it is a version's turn already, for records up to a time of creation."""
    return (
        item is not None
        and item.get("version") == {"S": version}
        and (newest is None or newest <= float(item["until"]["N"]))
    )


def turn_of(item: Image, prefix: str, newest: float | None) -> Turn:
    """The turn that an item holds."""
    since = float(item["since"]["N"]) if "since" in item else None
    return Turn(prefix, newest, int(item["turn"]["N"]), since, int(item.get("entries", {"N": "0"})["N"]))


def taking(item: Image | None, version: str, newest: float | None, now: float) -> dict[str, Any]:
    """The arguments, beside table and key, of the `UpdateItem` that takes a turn from its state.

    Args:
        item: The turn as seen; None if there is none.
        version: Who takes it.
        newest: When the newest record was created that it is taken for.
        now: The time in epoch seconds.
    """
    until = ceil(newest or 0.0) + _AHEAD_SECONDS
    number, sets = 0, "version = :version, #until = :until, turn = :turn, expires = :expires"
    values: dict[str, AttributeValue] = {
        ":version": {"S": version},
        ":expires": {"N": str(int(now) + MEMORY_SECONDS)},
    }
    condition = "attribute_not_exists(version)"
    if item is not None and "version" in item:
        passes = item["version"] != {"S": version}
        number, until = int(item["turn"]["N"]) + passes, max(until, int(item["until"]["N"]))
        condition = "turn = :seen AND #until = :seenUntil"
        values |= {":seen": item["turn"], ":seenUntil": item["until"]}
        sets += ", since = :seenUntil" if passes else ""
    values |= {":turn": {"N": str(number)}, ":until": {"N": str(until)}}
    return {
        "UpdateExpression": f"SET {sets}",
        "ConditionExpression": condition,
        "ExpressionAttributeNames": {"#until": "until"},
        "ExpressionAttributeValues": values,
        "ReturnValues": "ALL_NEW",
    }


def counted(table: str, prefix: str, entries: int, turn: int | None = None) -> dict[str, Any]:
    """The action of a transaction that counts entries, if the turn has not passed.

    Args:
        table: The control table's name.
        prefix: The shard's.
        entries: How many the transaction writes.
        turn: How often the turn had passed; None to count them whoever's turn it is.
    """
    update: dict[str, Any] = {
        "TableName": table,
        "Key": turn_key(prefix),
        "UpdateExpression": "ADD #entries :entries",
        "ExpressionAttributeNames": {"#entries": "entries"},
        "ExpressionAttributeValues": {":entries": {"N": str(entries)}},
    }
    if turn is not None:
        update["ConditionExpression"] = "#turn = :turn"
        update["ExpressionAttributeNames"]["#turn"] = "turn"
        update["ExpressionAttributeValues"][":turn"] = {"N": str(turn)}
    return {"Update": update}
