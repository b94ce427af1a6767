"""Query and scan: one page of a table or an index.

AWS facts: DynamoDB developer guide, "Querying tables" and "Scanning tables": a page ends at Limit items or 1
MB, whichever comes first, counted before the filter; LastEvaluatedKey is there whenever a page ended that
way, even if nothing follows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from zlib import crc32

from framework.codec import Image
from framework.local.capacity import item_size, read_units
from framework.local.expressions import (
    Condition,
    Expression,
    Names,
    Projection,
    Values,
    condition,
    filled,
    projection,
)
from framework.local.keyconditions import key_constants
from framework.local.storage import Index, Order, Table, copied_item
from framework.local.values import RefusedError, normal_item

__all__ = ["query_of", "scan_of"]

Request: TypeAlias = Mapping[str, Any]
Candidates: TypeAlias = list[tuple[Order, Image]]

_LARGEST_PAGE = 1024 * 1024  # bytes
_MOST_SEGMENTS = 1_000_000


@dataclass(frozen=True, slots=True)
class _Selection:
    """What a request keeps of the items it reads, and what it shows of those."""

    names: Names
    values: Values
    chosen: Condition | None
    pick: Projection | None
    counts_only: bool

    def keeps(self, item: Image) -> bool:
        return self.chosen is None or self.chosen(item, self.names, self.values)

    def shown(self, item: Image) -> dict[str, Any]:
        return copied_item(item) if self.pick is None else self.pick.apply(item, self.names)


def query_of(table: Table, request: Request) -> tuple[dict[str, Any], float]:
    """A Query's answer and the read units it costs.

    Raises:
        RefusedError: The index is not there, or an expression or a start key is not what the service takes.
    """
    index = _index(table, request)
    keys = table.keys if index is None else index.keys
    asked = condition("KeyConditionExpression", request["KeyConditionExpression"])
    selection = _selection(request, asked)
    if selection.chosen is not None:
        for key in selection.chosen.attributes(selection.names).intersection(keys):
            raise RefusedError(
                f"Filter Expression can only contain non-primary key attributes: Primary key attribute: {key}"
            )
    constants = key_constants(asked, keys, selection.names, selection.values)
    tokens = {name: [table.token(name, value) for value in each] for name, each in constants.items()}
    candidates = table.partition(index, tokens[keys[0]][0])
    if len(constants) > 1:
        candidates = [pair for pair in candidates if asked(pair[1], selection.names, selection.values)]
    start = _start(table, index, request, whole=False)
    if request.get("ScanIndexForward", True):
        candidates = candidates if start is None else candidates[bisect_right(candidates, start, key=_order) :]
    else:
        end = len(candidates) if start is None else bisect_left(candidates, start, key=_order)
        candidates = candidates[:end][::-1]
    return _answer(table, index, request, selection, candidates)


def scan_of(table: Table, request: Request) -> tuple[dict[str, Any], float]:
    """A Scan's answer and the read units it costs; refused as `query_of`."""
    index = _index(table, request)
    selection = _selection(request)
    start = _start(table, index, request, whole=True)
    candidates = _segment(request, table.keys[0], table.everything(index))
    if start is not None:
        candidates = candidates[bisect_right(candidates, start, key=_order) :]
    return _answer(table, index, request, selection, candidates)


def _segment(request: Request, key: str, candidates: Candidates) -> Candidates:
    """Those of one of a parallel scan's segments: all items of a partition key are in the same one."""
    segment, total = request.get("Segment"), request.get("TotalSegments")
    if segment is None and total is None:
        return candidates
    if segment is None or total is None or not 0 <= segment < total <= _MOST_SEGMENTS:
        raise RefusedError(f"The Segment and TotalSegments parameters do not go together: {segment} of {total}")
    return [pair for pair in candidates if crc32(repr(pair[1][key]).encode()) % total == segment]


def _index(table: Table, request: Request) -> Index | None:
    name = request.get("IndexName")
    if name is None:
        return None
    index = table.indexes.get(name)
    if index is None:
        raise RefusedError(f"The table does not have the specified index: {name}")
    if request.get("ConsistentRead") and not index.local:
        raise RefusedError("Consistent reads are not supported on global secondary indexes")
    return index


def _selection(request: Request, *others: Expression) -> _Selection:
    filter_text, projection_text = request.get("FilterExpression"), request.get("ProjectionExpression")
    chosen = None if filter_text is None else condition("FilterExpression", filter_text)
    pick = None if projection_text is None else projection(projection_text)
    names = request.get("ExpressionAttributeNames")
    expressions = [each for each in (*others, chosen, pick) if each is not None]
    values = filled(expressions, names, request.get("ExpressionAttributeValues"))
    return _Selection(names or {}, values, chosen, pick, request.get("Select") == "COUNT")


def _start(table: Table, index: Index | None, request: Request, *, whole: bool) -> Order | None:
    start = request.get("ExclusiveStartKey")
    if start is None:
        return None
    if set(start) != {*table.keys, *(index.keys if index else ())}:
        raise RefusedError("The provided starting key is invalid: it is not a key of the table or index")
    return table.order(index, normal_item(start), whole=whole)


def _order(pair: tuple[Order, Image]) -> Order:
    return pair[0]


def _answer(
    table: Table, index: Index | None, request: Request, selection: _Selection, candidates: Candidates
) -> tuple[dict[str, Any], float]:
    read, size, cut = _page(candidates, request.get("Limit"))
    kept = [item for item in read if selection.keeps(item)]
    answer: dict[str, Any] = {"Count": len(kept), "ScannedCount": len(read)}
    if not selection.counts_only:
        answer["Items"] = [selection.shown(item) for item in kept]
    if cut:
        answer["LastEvaluatedKey"] = table.start_key(index, read[-1])
    return answer, read_units(size, consistent=bool(request.get("ConsistentRead")))


def _page(candidates: Candidates, limit: int | None) -> tuple[list[Image], int, bool]:
    """What one page reads, its bytes, and whether it ended before its candidates were known to."""
    if limit is not None and limit < 1:
        raise RefusedError(f"Limit must be at least 1, came {limit}")
    read: list[Image] = []
    size = 0
    for _, item in candidates:
        weight = item_size(item)
        if read and size + weight > _LARGEST_PAGE:
            return read, size, True
        read.append(item)
        size += weight
        if len(read) == limit:
            return read, size, True
    return read, size, False
