"""Apply: every item of a table brought to the entry that a sparse index says, as its stream does it from now on.

The same conditional write as for a record (`sparse_fold.py`): it does not matter whether the consumer is at work
meanwhile, nor how often a part of the table is walked through.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from framework.codec import Image
from framework.deliver_sparse import SparseDelivery
from framework.entry import as_seen, compile_entry, compile_there
from framework.errors import BadRecordError, BadValueError, ConfigurationError, DeliveryError, shortened
from framework.sparse import SparseDeclaration
from framework.sparse_fold import EntryUpdate
from framework.walker import OnProgress, Pace, Places, Walker
from framework.writer import Outcome, Terms

__all__ = ["Applied", "Apply", "Failed", "settle"]

_MOST_NAMED = 1000


@dataclass(frozen=True, slots=True)
class Failed:
    """An item whose entry cannot be told, so that it has none, or that DynamoDB will not take.

    Attributes:
        key: The item's key.
        reason: What was expected and what came.
    """

    key: Image
    reason: str


@dataclass(slots=True)
class Applied:
    """What became of the items.

    Attributes:
        items: How many there are.
        right: How many are as they should be, aggregates among them.
        entered: How many got an entry, or another one; in a dry run, would get one.
        left: How many lost theirs; in a dry run, would.
        moved_on: How many were changed between the read and the write; their record in the stream is about them.
        failed: How many have an entry that cannot be told or written.
        named: The first thousand of these.
    """

    items: int = 0
    right: int = 0
    entered: int = 0
    left: int = 0
    moved_on: int = 0
    failed: int = 0
    named: list[Failed] = field(default_factory=list)

    def add(self, other: Applied) -> None:
        """Add what became of other items."""
        for each in fields(self)[:-1]:
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        self.named += other.named[: _MOST_NAMED - len(self.named)]


class Apply:
    """Brings a table's items to their entries in a sparse index.

    Args:
        declaration: The sparse index.
        client: A boto3 DynamoDB client.
        dry_run: Only count what would be written.
        segments: Segments that are walked at once.
        rcu: Read units a second at most; None for no limit.
        wcu: Write units a second at most, those of the index included; None for no limit.
        places: Where to keep how far it has come, and to go on from; None for nowhere.
        options: As for `Walker`.

    Raises:
        ConfigurationError: The file of places is of another walk.
    """

    def __init__(
        self,
        declaration: SparseDeclaration,
        client: Any,
        *,
        dry_run: bool = False,
        segments: int = 4,
        rcu: float | None = None,
        wcu: float | None = None,
        places: Path | None = None,
        **options: Any,
    ) -> None:
        self._declaration = declaration
        self._dry_run = dry_run
        self._place_of, self._is_there = compile_entry(declaration), compile_there(declaration)
        dry = " in a dry run" if dry_run else ""
        purpose = f"apply {declaration.name} ({_version(declaration)}) to {_table(client, declaration)}{dry}"
        where = Places(purpose, segments, places)
        self._walker = Walker(client, declaration.source.name, where, rate=rcu, **options)
        clock = options.get("clock", time.monotonic)
        pace = Pace(wcu, clock=clock, sleep=self._walker.pause)
        self._writer = _PacedDelivery(client, pace, clock=clock, sleep=self._walker.pause)
        self._applied = Applied()
        self._lock = threading.Lock()

    def run(self, on_progress: OnProgress = lambda items, of: None) -> Applied:
        """Walk through the table; returns what became of this run's items.

        Raises:
            ClientError: DynamoDB refuses to be read. The places tell how far it has come.
            DeliveryError: It refuses to be written to, likewise.
        """
        self._walker.walk(self._visit, on_progress)
        return self._applied

    def _write(self, update: EntryUpdate) -> bool:
        """Write an entry; whether the item has changed since it was read.

        Raises:
            DeliveryError: DynamoDB refuses what no item is to blame for.
            BadValueError: It will never take this one.
        """
        # Without end: it slows down where DynamoDB does.
        (outcome,) = self._writer.deliver([update], Terms(deadline=float("inf")))
        if outcome.failed_from is not None:
            raise DeliveryError(f"{self._declaration.name}: expected to write, came {outcome.error}")
        if outcome.rejected:
            raise BadValueError(outcome.rejected[0].reason)
        return outcome.duplicates > 0

    def _visit(self, items: Sequence[Image]) -> None:
        found = Applied(items=len(items))
        for item in items:
            self._settle(item, found)
        with self._lock:
            self._applied.add(found)

    def _settle(self, item: Image, found: Applied) -> None:
        declaration = self._declaration
        key = {name: item[name] for name in declaration.source.keys if name in item}
        if len(key) < len(declaration.source.keys):
            expected = f"a table with the keys {declaration.source.keys}"
            raise ConfigurationError(f"{declaration.name}: expected {expected}, came {shortened([*item])}")
        moved_on = False
        try:
            place = self._place_of(item)
            right = place is None or self._is_there(item, place.entry)
            if place is not None and not right and not self._dry_run:
                moved_on = self._write(EntryUpdate(declaration, key, place.entry, as_seen(item, place), 0))
        except (BadRecordError, BadValueError) as error:
            self._fail(key, str(error), found)
            return
        if place is not None and place.reason:
            self._fail(key, place.reason, found)
        elif place is None or right:
            found.right += 1
        elif moved_on:
            found.moved_on += 1
        elif place.entry is None:
            found.left += 1
        else:
            found.entered += 1

    @staticmethod
    def _fail(key: Image, reason: str, found: Applied) -> None:
        found.failed += 1
        found.named.append(Failed(key, reason))


def settle(declaration: SparseDeclaration, client: Any, key: Image, *, dry_run: bool = False, seconds: float) -> str:
    """Bring one item to its entry, as the item is now.

    Args:
        declaration: The sparse index.
        client: A boto3 DynamoDB client.
        key: The item's key.
        dry_run: Only find out whether its entry can be told.
        seconds: How long to try.

    Returns:
        What is worth to be known.

    Raises:
        BadRecordError: Its entry cannot be told; it has none now.
        BadValueError: DynamoDB will not take it.
        DeliveryError: It could not be written.
    """
    item = client.get_item(TableName=declaration.source.name, Key=key, ConsistentRead=True).get("Item")
    place = None if item is None else compile_entry(declaration)(item)
    if item is None or place is None:
        return "its item is gone"
    note = "" if place.entry is not None else "its item has no entry now"
    if not dry_run and not compile_there(declaration)(item, place.entry):
        update = EntryUpdate(declaration, key, place.entry, as_seen(item, place), 0)
        terms = Terms(deadline=time.monotonic() + seconds, accept_misfits=True)
        (outcome,) = SparseDelivery(client, connections=1).deliver([update], terms)
        if outcome.failed_from is not None:
            raise DeliveryError(f"{declaration.name}: expected to write, came {outcome.error}")
        if outcome.rejected:
            raise BadValueError(outcome.rejected[0].reason)
        if outcome.duplicates:
            note = "its item has changed meanwhile, of which it has another record"
    if place.reason:
        raise BadRecordError(place.reason)
    return note


class _PacedDelivery(SparseDelivery):
    """Carries out updates of entries, at a rate in write units."""

    def __init__(self, client: Any, pace: Pace, *, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        super().__init__(client, connections=1, clock=clock, sleep=sleep)
        self._pace = pace

    def _call(
        self, outcome: Outcome, terms: Terms, operation: str, arguments: dict[str, Any], client: Any = None
    ) -> Any:
        self._pace.take(1)
        try:
            reply = super()._call(outcome, terms, operation, {**arguments, "ReturnConsumedCapacity": "TOTAL"}, client)
        except ClientError:
            raise  # a refused write costs as well, and does not say how much
        self._pace.spend(reply.get("ConsumedCapacity", {}).get("CapacityUnits", 1), taken=1)
        return reply


def _version(declaration: SparseDeclaration) -> str:
    """Names what a declaration says, so that a walk is not taken up for another."""
    said = [repr(sorted(declaration.hidden))]
    for each in (declaration, *sorted(declaration.siblings, key=lambda sibling: sibling.name)):
        said += [repr(part) for part in (each.index, each.when, each.holds)]
        code = getattr(each.entry, "__code__", None)
        said += [] if code is None else _code(code)
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:12]


def _code(code: Any) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        yield from _code(constant) if hasattr(constant, "co_code") else [repr(constant)]


def _table(client: Any, declaration: SparseDeclaration) -> str:
    """Names a table, so that a walk is not taken up for another of its name, where we may ask."""
    name = declaration.source.name
    try:
        table = client.describe_table(TableName=name)["Table"]
    except (ClientError, BotoCoreError, KeyError):
        return name
    return " ".join([name, *(str(table[field]) for field in ("TableArn", "TableId") if field in table)])
