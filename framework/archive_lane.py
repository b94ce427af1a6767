"""Lanes of an archive: which of a shard's records are in it, and who may write which object. Pure.

A batch's items go into one object for each partition. Its name is made of the partition, the lane and the place in the
lane *after which* it begins; S3 takes it only if there is none of that name (`If-None-Match`), so that an object, once
there, stays as it is. It says in its metadata *through* which record it goes. For each lane of each archive there is an
item in the control table with

    done     the sequence number up to which every record is dealt with
    ahead    by partition, the one up to which every record that belongs into it is dealt with, where that is beyond
    claim    who writes now: through which record, and into which partitions
    layout   how the archive is divided
    number   how often the item was written

A writer reads it and drops what is dealt with. Then it *claims*: on condition that the item is as seen, it notes the
partitions into which it will write, beside those of a claim that it finds there. It puts an object into every one of
these, an empty one where it has nothing for it, all named after `done`. Where one is there already, that one's
`through` holds. At last it *commits*, on condition that its claim still stands: `done` moves to where all that it has
is in an object, and `ahead` to where others' objects went beyond. If another has claimed meanwhile it begins anew.

*Invariant.* (1) Every record of a lane that belongs into a partition, up to the greater of `done` and its `ahead`, is
in exactly one object, set aside, or belongs into none. (2) Any object of the lane that goes beyond that is named after
`done`, and its partition is in the claim.

A put under a claim is of a name after `done` as claimed, and of a partition in the claim; a claim that takes another's
place with the same `done` keeps its partitions; so (2) holds until a commit. At a commit there is an object of that
name in each of the claim's partitions, so that whoever is late with a put, however late, is refused: from then on the
objects named after `done` are what they are. The commit moves `ahead` to just what they hold, and `done` no further
than what they hold of the writer's batch, which is contiguous and begins no later than the first record that is not
dealt with: so (1) holds. A claim from before the commit can neither put (all of its names are taken) nor commit.
Nothing hangs on how a batch is cut, on who delivers it or how often, nor on whether the same code folds it; only a
record's partition has to stay the same (`ArchiveDeclaration.layout`).

The state outlives any redelivery (`quarantine.MEMORY_SECONDS`). An object must not be taken away while a process that
may still want to put its name lives: a Lambda function lives for 15 minutes at most. Nor while `done` is what it is
named after and the lane is delivered: a claim that was never committed leads whoever comes next to that name
(`compact.py` tells how it keeps to that). Redrive, which may come at any time, asks as well which objects were merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from framework.codec import AttributeValue, Image
from framework.lanes import bound

__all__ = ["AGAIN", "ALONE", "Lane", "claiming", "committing", "lane_key", "lane_of", "object_name"]


# What tells the names of objects that redrive wrote: of batches that Lambda gave up on, and of what was set aside.
AGAIN, ALONE = "-again", "-alone"


@dataclass(frozen=True, slots=True)
class Lane:
    """How far a lane is archived.

    Attributes:
        done: The sequence number up to which every record is dealt with; 0 for none.
        ahead: The one for a partition, where that is beyond.
        claimed: The partitions of the claim that stands; empty where none does.
        layout: How the archive was divided when the state was written (`ArchiveDeclaration.layout`).
        number: How often the state was written; 0 for never.
    """

    done: int = 0
    ahead: Mapping[str, int] = field(default_factory=dict)
    claimed: frozenset[str] = frozenset()
    layout: str = ""
    number: int = 0

    def of(self, partition: str) -> int:
        """The sequence number up to which every record of a partition is dealt with."""
        return max(self.done, self.ahead.get(partition, 0))


def lane_key(archive: str, prefix: str) -> dict[str, AttributeValue]:
    """The key of a lane's state in the control table; `prefix` is the shard's, as `quarantine.lane_prefix` gives it."""
    return {"pk": {"S": f"archive#{archive}"}, "sk": {"S": prefix}}


def lane_of(item: Image | None) -> Lane:
    """The state that an item holds.

    Raises:
        KeyError, TypeError, ValueError: It holds none.
    """
    if item is None:
        return Lane()
    return Lane(
        done=int(item["done"]["S"]),
        ahead={partition: int(value["S"]) for partition, value in item["ahead"]["M"].items()},
        claimed=frozenset(value["S"] for value in item["claim"]["L"]) if "claim" in item else frozenset(),
        layout=str(item["layout"]["S"]),
        number=int(item["number"]["N"]),
    )


def claiming(lane: Lane, partitions: Iterable[str], expires: int) -> dict[str, Any]:
    """The arguments, beside table and key, of the `UpdateItem` that claims, with all that is claimed already."""
    claimed: list[AttributeValue] = [{"S": partition} for partition in sorted(lane.claimed | {*partitions})]
    return _update(lane, ", claim = :claim", {":claim": {"L": claimed}}, expires)


def committing(lane: Lane, expires: int) -> dict[str, Any]:
    """The arguments, beside table and key, of the `UpdateItem` that commits.

    Args:
        lane: The state to commit, with the number that it was claimed with.
        expires: When the item may go, in epoch seconds.
    """
    return _update(lane, " REMOVE claim", {}, expires)


def _update(lane: Lane, change: str, values: dict[str, AttributeValue], expires: int) -> dict[str, Any]:
    sets = "#number = :number, expires = :expires, layout = :layout, done = :done, ahead = :ahead"
    condition = "attribute_not_exists(pk)"
    if lane.number:
        condition = "#number = :seen"
        values = {**values, ":seen": {"N": str(lane.number)}}
    ahead: AttributeValue = {"M": {partition: {"S": str(number)} for partition, number in lane.ahead.items()}}
    return {
        "UpdateExpression": f"SET {sets}{change}",
        "ConditionExpression": condition,
        "ExpressionAttributeNames": {"#number": "number"},
        "ExpressionAttributeValues": {
            ":number": {"N": str(lane.number + 1)},
            ":expires": {"N": str(expires)},
            ":layout": {"S": lane.layout},
            ":done": {"S": str(lane.done)},
            ":ahead": ahead,
            **values,
        },
    }


def object_name(folder: str, partition: str, prefix: str, after: int, suffix: str = "") -> str:
    """The name of the object that holds a lane's items of a partition after a sequence number.

    Args:
        folder: What the names of all of the archive's objects begin with.
        partition: The partition.
        prefix: The shard's, as `quarantine.lane_prefix` gives it: `TABLE/STREAM-LABEL/SHARD/`.
        after: The sequence number.
        suffix: Tells what was brought again from what came in order.
    """
    _, label, shard, _ = prefix.split("/")
    stream = "".join(character for character in label if character.isalnum())
    return f"{folder}/{partition}/{stream}-{shard}-{bound(after)}{suffix}.json.gz"
