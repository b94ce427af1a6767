"""What an item weighs and what a request costs, by AWS's rules, in one place.

AWS facts: DynamoDB developer guide, "DynamoDB item sizes and formats", "Read and write operations" and "Using
global secondary indexes" (write costs of an index).
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from framework.codec import AttributeValue, Image

__all__ = ["IndexShape", "Meter", "item_size", "most_changes", "read_units", "write_units"]

_WRITE_BLOCK = 1024  # bytes that one write unit pays for
_READ_BLOCK = 4096  # bytes that one read unit pays for
_KEY_WRITES = 1000  # write units a second that one partition key takes, in an index too
_MOVE = 2  # write units of an entry that moves, since its sort key changed, if it has no more than a block
_COLLECTION = 3  # bytes of a list or a map, whatever is in it
_MEMBER = 1  # bytes of each member of a list or a map


@dataclass(slots=True)
class Meter:
    """What the requests of a client cost.

    Attributes:
        requests: Requests made.
        wcu: Write units, by AWS's rules, index writes included.
    """

    requests: int = 0
    wcu: int = 0


@dataclass(frozen=True, slots=True)
class IndexShape:
    """What decides whether an item is in an index, and with what.

    Args:
        keys: The index's partition key, and its sort key where it has one.
        projected: The attributes of an entry, keys of index and table included; None for all.
    """

    keys: tuple[str, ...]
    projected: frozenset[str] | None = None

    def entry(self, image: Image | None) -> Image | None:
        """The image's entry; None where the image lacks one of the keys: it is left out without an error."""
        if image is None:
            return None
        for key in self.keys:
            if key not in image:
                return None
        if self.projected is None:
            return image
        return {name: value for name, value in image.items() if name in self.projected}


def item_size(item: Image) -> int:
    """The bytes of an item: names and values, as DynamoDB counts them.

    Numbers are counted by AWS's approximation, one byte for two significant digits and one more.

    Args:
        item: An item of a table or an index; binary as `bytes` or as base64 text.
    """
    size = 0
    for name, value in item.items():
        size += len(name) if name.isascii() else len(name.encode())
        # Strings and numbers are most of what there is, and every write asks: they are not worth a call.
        text = value.get("S")
        if text is not None:
            size += len(text) if text.isascii() else len(text.encode())
        else:
            size += _value_size(value)
    return size


def _value_size(value: AttributeValue) -> int:
    ((tag, content),) = value.items()
    if tag == "N":
        return _number_size(content)
    if tag == "S":
        return len(content.encode())
    if tag == "B":
        return _binary_size(content)
    if tag == "M":
        return _COLLECTION + _MEMBER * len(content) + item_size(content)
    if tag == "L":
        return _COLLECTION + _MEMBER * len(content) + sum(map(_value_size, content))
    if tag == "SS":
        return sum(len(member.encode()) for member in content)
    if tag == "NS":
        return sum(map(_number_size, content))
    if tag == "BS":
        return sum(map(_binary_size, content))
    return 1  # BOOL and NULL


def _number_size(text: str) -> int:
    if not text.isdigit():
        text = text.lower().partition("e")[0].strip("+-").replace(".", "")
    significant = text.strip("0")
    return (len(significant) + 1) // 2 + 1


def _binary_size(content: Any) -> int:
    return len(b64decode(content) if isinstance(content, str) else content)


def write_units(
    before: Image | None,
    after: Image | None,
    indexes: Iterable[IndexShape] = (),
    *,
    transaction: bool = False,
) -> int:
    """The write units of one change: the table's and its indexes'.

    A condition that fails costs what the table's write would have: ask without indexes.

    Args:
        before: The item before; None where there was none.
        after: The item after; None for a delete.
        indexes: The table's indexes.
        transaction: Part of a transaction, which writes the table twice (to prepare and to commit).
    """
    units = _blocks(max(_size(before), _size(after)), _WRITE_BLOCK)
    # An entry is no larger than its item: where the item is one block, so is every entry.
    size_of = _one_block if units == 1 else item_size
    if transaction:
        units *= 2
    for index in indexes:
        units += _index_units(before, after, index, size_of)
    return units


def _index_units(before: Image | None, after: Image | None, index: IndexShape, size_of: Callable[[Image], int]) -> int:
    """The write units of one change in one index.

    One write to add an entry, to remove one, or to change what is projected; two to move one, because its key
    changed; none where the entry stays as it is. Each by the entry's own size.
    """
    old, new = index.entry(before), index.entry(after)
    if old is None or new is None:
        changed = new if old is None else old
        return 0 if changed is None else _blocks(size_of(changed), _WRITE_BLOCK)
    if any(old[key] != new[key] for key in index.keys):
        return _blocks(size_of(old), _WRITE_BLOCK) + _blocks(size_of(new), _WRITE_BLOCK)
    return 0 if old == new else _blocks(max(size_of(old), size_of(new)), _WRITE_BLOCK)


def read_units(size: int, *, consistent: bool = False) -> float:
    """The read units of one item, or of all that one query or scan read.

    Args:
        size: Bytes read, before filters and projections; 0 for an item that is not there, which costs as the
            least.
        consistent: A strongly consistent read, which costs double.
    """
    return _blocks(size, _READ_BLOCK) * (1.0 if consistent else 0.5)


def most_changes(shards: int, seconds: int, *, each: float = 1.0) -> float:
    """How many changes a second the index of one window takes, before the table's own writes are throttled.

    A batch moves an aggregate's entry once, however many changes of it there are. So where a batch is what comes in
    some seconds, an aggregate that changes oftener than that is moved more rarely than it changes.

    AWS facts: writes.

    Args:
        shards: Over how many partition keys the window is spread.
        seconds: What a batch gathers; 0 for nothing, where each change is a write.
        each: How often each of the aggregates changes in a second. Of one that several shards of the stream feed, as
            many batches move the entry: then it is how often it changes in one shard.
    """
    moves = shards * _KEY_WRITES / _MOVE
    return moves * max(1.0, each * seconds)


def _size(image: Image | None) -> int:
    return 0 if image is None else item_size(image)


def _one_block(image: Image) -> int:
    return 1


def _blocks(size: int, block: int) -> int:
    return max(1, -(-size // block))
