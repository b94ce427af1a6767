"""Restore: put archived items back into a table, the newest version of each, and none over what is there.

The archive is read twice: first to find the newest version of each item that is wanted, then to put these. A put is
made on condition that there is no item of that key, for what is in the table is newer than what left it. So it may be
broken off, begun again and run twice at any time, and beside whoever writes to the table.

Items pass as they are in the archive: only binary is turned from base64 text into bytes, for that is how a client takes
it; a number stays the text that it was.

AWS facts: DynamoDB developer guide, "Time to Live" (what lies more than five years back never expires).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from botocore.exceptions import ClientError

from framework.archive_lines import Content, Problem, item_of
from framework.archive_newest import Newest, Order, Selection, item_digest
from framework.archive_objects import ArchiveObjects
from framework.archive_table import MOST_KEYS, items_there, ttl_of
from framework.codec import AttributeValue, number, number_text, to_event
from framework.errors import BadValueError, ConfigurationError, ReadError, shortened
from framework.patience import ahead, patiently
from framework.walker import Pace

__all__ = ["Choice", "Chosen", "OnProgress", "Restore", "Restored", "Survey", "TimeToLive", "time_to_live"]

_DAY = 86_400
_NEVER = 5 * 366 * _DAY  # seconds back from which on an item does not expire
_MOST_NAMED = 1000

OnProgress = Callable[[int, float | None], object]
"""Called now and then with the items that are done, and the share of the work that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeToLive:
    """What becomes of restored items' time to live.

    Attributes:
        attribute: By which attribute items expire; None if they do not.
        days: How many days from now on they have; None for the time that they had.
        keep: Whether also those are restored whose time is over, and that would expire again at once.
    """

    attribute: str | None = None
    days: int | None = None
    keep: bool = False

    def is_over(self, item: dict[str, AttributeValue], now: float) -> bool:
        """Whether an item would expire at once."""
        if self.attribute is None or self.days is not None:
            return False
        try:
            at = number(item[self.attribute]["N"])
        except (KeyError, BadValueError):
            return False
        return now - _NEVER < at <= now


@dataclass(frozen=True, slots=True)
class Chosen:
    """An item that is to be restored.

    Attributes:
        object: The name of the object that it is in.
        line: Its line there.
        item: The item, as a client takes it.
        text: The line, which holds the item as it was archived.
    """

    object: str
    line: int
    item: dict[str, AttributeValue]
    text: bytes


@dataclass(slots=True)
class Survey:
    """What there is to restore.

    Attributes:
        objects: Objects that were read.
        found: Items that are wanted, every version of them.
        items: How many they are, each once.
        over: How many of the versions have a time to live that is over.
        failed: How many objects and lines could not be read.
        named: The first thousand of these.
    """

    objects: int = 0
    found: int = 0
    items: int = 0
    over: int = 0
    failed: int = 0
    named: list[Problem] = field(default_factory=list)

    def fail(self, problem: Problem) -> None:
        """Note what could not be read."""
        self.failed += 1
        if len(self.named) < _MOST_NAMED:
            self.named.append(problem)


@dataclass(slots=True)
class Restored:
    """What became of the items.

    Attributes:
        restored: How many were put; in a dry run, would be.
        there: How many were in the table.
        failed: How many the table would not take.
        named: The first thousand of these.
        units: Write units consumed.
    """

    restored: int = 0
    there: int = 0
    failed: int = 0
    named: list[Problem] = field(default_factory=list)
    units: float = 0.0


class Choice:
    """The newest version of each item that is wanted of an archive.

    Args:
        objects: The archive.
        selection: Which items.
        ttl: Their time to live.
        now: The time in epoch seconds.

    Attributes:
        table: The table that the items are from.
        missed: What could be read at first, and cannot any more.
    """

    def __init__(
        self,
        objects: ArchiveObjects,
        selection: Selection,
        ttl: TimeToLive,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._objects = objects
        self.table = objects.declaration.source
        self._selection = selection
        self._is_wanted = selection.compile()
        self._ttl = ttl
        self._now = now
        self._order = Order(objects.declaration)
        self._newest = Newest()
        self._bytes = 0
        self._unread: set[str] = set()
        self.missed: list[Problem] = []

    def survey(self, on_progress: OnProgress = lambda items, share: None) -> Survey:
        """Find out what there is; before anything else.

        Raises:
            ClientError: S3 refuses to be read.
        """
        found = Survey()
        self._order, self._bytes = Order(self._objects.declaration), 0
        self._newest.forget()
        partitions = self._objects.partitions(self._selection.since, self._selection.until)
        for partition in self._order.see(partitions):
            self._bytes += sum(stored.size for stored in partition.objects)
        read = 0
        for content in self._contents():
            if isinstance(content, Problem):
                self._unread.add(content.object)
                found.fail(content)
                continue
            found.objects += 1
            for rank, place, text in self._order.ranked(content):
                try:
                    item = item_of(text, self.table)
                except ReadError as error:
                    found.fail(Problem(self._where(content), str(error), place))
                    continue
                if self._is_wanted(item):
                    found.found += 1
                    found.items += self._newest.add(item_digest(item, self.table), rank)
                    found.over += self._ttl.is_over(item, self._now())
            read += content.stored.size
            on_progress(found.found, read / self._bytes if self._bytes else None)
        return found

    def items(self) -> Iterator[Chosen]:
        """The newest versions, with their new time to live. What came into the archive since the survey is left out."""
        for content in self._contents():
            if isinstance(content, Problem):
                if content.object not in self._unread:
                    self.missed.append(content)
                continue
            for rank, place, text in self._order.ranked(content):
                try:
                    item = item_of(text, self.table)
                except ReadError:
                    continue
                if self._is_wanted(item) and self._newest.is_newest(item_digest(item, self.table), rank):
                    yield Chosen(self._where(content), place, self._renewed(item), text)

    def line(self, chosen: Chosen) -> bytes:
        """A chosen item as a line of DynamoDB JSON: as archived, but for a new time to live."""
        if self._ttl.days is None:
            return chosen.text.rstrip(b"\n") + b"\n"
        return json.dumps({"Item": to_event(chosen.item)}, separators=(",", ":")).encode() + b"\n"

    def close(self) -> None:
        """Free what it takes."""
        self._newest.close()

    def _contents(self) -> Iterator[Content | Problem]:
        def wanted() -> Iterator[Any]:
            for partition in self._objects.partitions(self._selection.since, self._selection.until):
                yield from partition.problems
                yield from partition.objects

        # A problem has no content, and keeps its place.
        def fetch(each: Any) -> Content | Problem:
            return each if isinstance(each, Problem) else self._objects.fetch(each)

        for found in ahead(fetch, wanted(), workers=4):
            try:
                yield found
            finally:
                if isinstance(found, Content):
                    found.close()

    def _where(self, content: Content) -> str:
        return self._objects.where(content.stored.partition, content.stored.name)

    def _renewed(self, item: dict[str, AttributeValue]) -> dict[str, AttributeValue]:
        if self._ttl.days is None or self._ttl.attribute is None:
            return item
        return {**item, self._ttl.attribute: {"N": number_text(int(self._now()) + self._ttl.days * _DAY)}}


class Restore:
    """Puts archived items into a table.

    Args:
        client: A boto3 DynamoDB client.
        table: The table's name.
        choice: The items.
        dry_run: Only count what would be put.
        wcu: Write units a second at most; None for no limit.
        options: `clock` and `sleep`, as for `Pace`.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        choice: Choice,
        *,
        dry_run: bool = False,
        wcu: float | None = None,
        **options: Any,
    ) -> None:
        self._client = client
        self._name = table
        self._choice = choice
        self._dry_run = dry_run
        self._pace = Pace(wcu, **options)

    def run(self, survey: Survey, on_progress: OnProgress = lambda items, share: None) -> Restored:
        """Put what a survey has found.

        Raises:
            ClientError: S3 or DynamoDB refuses a request that no item is to blame for. It may be run again.
        """
        done, items, count = Restored(), self._choice.items(), 0
        if self._dry_run:
            while some := [*islice(items, MOST_KEYS)]:
                there = items_there(self._client, self._name, [self._key(each) for each in some], self._keys)
                done.there += len(there)
                done.restored += len(some) - len(there)
                count += len(some)
                on_progress(count, count / survey.items)
            return done
        for reason, units, chosen in ahead(self._put, items):
            done.units += units
            if reason is None:
                done.restored += 1
            elif not reason:
                done.there += 1
            else:
                done.failed += 1
                if len(done.named) < _MOST_NAMED:
                    done.named.append(Problem(chosen.object, reason, chosen.line))
            count += 1
            on_progress(count, count / survey.items)
        done.failed += len(self._choice.missed)
        done.named += self._choice.missed
        return done

    @property
    def _keys(self) -> tuple[str, ...]:
        return self._choice.table.keys

    def _key(self, chosen: Chosen) -> dict[str, AttributeValue]:
        return {name: chosen.item[name] for name in self._keys}

    def _put(self, chosen: Chosen) -> tuple[str | None, float, Chosen]:
        """Put an item: None if it was, an empty text if one is there, or why it cannot be; and the units."""
        request = {
            "TableName": self._name,
            "Item": chosen.item,
            "ConditionExpression": "attribute_not_exists(#pk)",
            "ExpressionAttributeNames": {"#pk": self._keys[0]},
            "ReturnConsumedCapacity": "TOTAL",
        }

        def put() -> Any:
            self._pace.take(1)  # that is what a refused one costs at least
            return self._client.put_item(**request)

        try:
            units = float(patiently(put).get("ConsumedCapacity", {}).get("CapacityUnits", 1.0))
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "ConditionalCheckFailedException":
                return "", 1.0, chosen
            if code == "ValidationException":
                return f"expected an item that DynamoDB takes, came {shortened(str(error), 200)}", 0.0, chosen
            raise
        self._pace.spend(units, taken=1)
        return None, units, chosen


def time_to_live(client: Any, table: str, choice: TimeToLive) -> TimeToLive:
    """By which attribute a table's items expire, put into what is to become of that.

    Args:
        client: A boto3 DynamoDB client.
        table: The table's name.
        choice: What is to become of it, with the attribute of the source, for a table that has none.
    """
    found = ttl_of(client, table)
    if choice.days is None:
        return TimeToLive(attribute=found, keep=choice.keep)
    attribute = found or choice.attribute
    if attribute is None:
        raise ConfigurationError(f"table {table!r}: expected one with a time to live, came one without")
    return TimeToLive(attribute=attribute, days=choice.days)
