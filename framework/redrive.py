"""Redrive: what was set aside, or given up on by Lambda, counted after all, and once.

An entry of the quarantine is settled in one transaction with what its image adds: the entry is the guard
(`ledger.Guard`). A batch that Lambda gave up on goes through the consumer again, each record under a marker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any
from zlib import crc32

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from framework.app import App
from framework.apply import settle
from framework.archive import ArchiveDeclaration
from framework.archive_fold import line_of
from framework.codec import Image
from framework.consumer import Consumer
from framework.control import DELIVERY, Control
from framework.declaration import Declaration
from framework.decode import Record, created, table_of
from framework.deliver_archive import ArchiveDelivery, Bucket, Filing
from framework.errors import BadValueError, ConfigurationError, StreamfoldError
from framework.failures import Failure
from framework.fold import compile_half
from framework.ledger import Guard, Posting
from framework.live import LiveShard
from framework.plan import Update, absence
from framework.quarantine import PARTITION, Entry, entry_of, key_of, lane_prefix, refusal, remembers, settlement
from framework.refused import Refused, pages
from framework.sparse import Handler, SparseDeclaration
from framework.sparse_fold import item_key
from framework.writer import NotDoneError, Outcome, Terms

__all__ = ["Quarantine", "Redriven"]

_SECONDS = 60.0  # for one item of a sparse index
_TOGETHER = 500  # entries for which it is asked at once what was refused
_NOTHING = "counts for nothing, or the time of its aggregate is over"
_NOT_ARCHIVED = "its item does not belong into the archive now"
_VERSION = "redrive"  # by which it takes a shard's turn: no deployment has it


@dataclass(frozen=True, slots=True)
class Redriven:
    """What became of an entry or of a failed batch.

    Attributes:
        place: The entry's sort key, or what the batch was read from.
        done: Whether it is settled.
        reason: Why it is not, or what is worth to be known.
    """

    place: str
    done: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Ready:
    """An entry, and what settles it."""

    entry: Entry
    posting: Posting


class Quarantine:
    """The entries of an app's control table, and what to do with them.

    Args:
        app: The app, with the tables' names in the account.
        client: A boto3 DynamoDB client.
        control: The control table's name.
        load: Gets an object of the failure bucket by its name.
        store: Puts one.
        archive: The bucket of the app's archives; None if it has none.
        now: The time in epoch seconds.

    Attributes:
        app: The app.
    """

    def __init__(
        self,
        app: App,
        client: Any,
        control: str,
        *,
        load: Callable[[str], bytes],
        store: Callable[[str, bytes], None],
        archive: Bucket | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.app = app
        self._client = client
        self._control = control
        self._load = load
        self._store = store
        self._archive = archive
        self._now = now
        self._refused = Refused(client, control, load, now)

    def open(self, *, handler: str | None = None, since: float = 0.0) -> Iterator[Image]:
        """The items of the open entries, in the order of streams, shards and records.

        Args:
            handler: Those of one aggregation.
            since: Those set aside at or after a time, in epoch seconds.
        """
        request: dict[str, Any] = {
            "TableName": self._control,
            "KeyConditionExpression": "pk = :pk",
            "FilterExpression": "attribute_not_exists(done) AND #at >= :since",
            "ExpressionAttributeNames": {"#at": "at"},
            "ExpressionAttributeValues": {":pk": {"S": PARTITION}, ":since": {"N": str(since)}},
            "ConsistentRead": True,
        }
        if handler is not None:
            request["FilterExpression"] += " AND #handler = :handler"
            request["ExpressionAttributeNames"]["#handler"] = "handler"
            request["ExpressionAttributeValues"][":handler"] = {"S": handler}
        yield from pages(self._client, request)

    def entry(self, place: str) -> Entry | None:
        """The open entry with a sort key; None if there is none.

        Raises:
            BadValueError: It cannot be read.
        """
        item = self._client.get_item(TableName=self._control, Key=key_of(place), ConsistentRead=True).get("Item")
        return None if item is None or "done" in item else entry_of(item, self._load)

    def discard(self, place: str) -> bool:
        """Settle an entry without counting it; whether it was open.

        One that is uncertain has counted, says who discards it: so what takes it back is taken back.

        Raises:
            BadValueError: DynamoDB does not take what takes it back.
        """
        try:
            entry = self.entry(place)
        except BadValueError:
            entry = None  # it says nothing of what takes it back
        if entry is not None and entry.uncertain and entry.image == "NewImage":
            # One whose handler is gone has nothing to be taken back from.
            ours = [a._declaration for a in self.app.aggregations if a.name == entry.handler]
            error = self._refused.take_back([(declaration, entry.record) for declaration in ours])
            if error:
                raise BadValueError(f"{place}: expected what takes it back to be taken back, came {error}")
        try:
            self._client.update_item(**settlement(self._control, place, self._now()))
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            return False
        return True

    def redrive(self, item: Image, *, dry_run: bool = False, uncertain: bool = False) -> Redriven:
        """Count what one entry is about; see `redrive_all`."""
        (one,) = self.redrive_all([item], dry_run=dry_run, uncertain=uncertain)
        return one

    def redrive_all(
        self, items: Iterable[Image], *, dry_run: bool = False, uncertain: bool = False
    ) -> Iterator[Redriven]:
        """Count what entries are about, as their handlers are now; what still fails stays, with the new reason.

        Of a sparse index, bring the entry's item to its place as the item is now.

        Args:
            items: The entries' items.
            dry_run: Only find out whether they can be counted; nothing is written.
            uncertain: Whether to count also what may have been counted already.
        """
        left = iter(items)
        while some := list(islice(left, _TOGETHER)):
            read = [self._ready(item, dry_run=dry_run, uncertain=uncertain) for item in some]
            ready = [one for one in read if isinstance(one, _Ready)]
            adding = [one for one in ready if one.entry.image == "NewImage" and one.posting.updates]
            refused = {} if dry_run else self._taken_back(adding)
            for item, found in zip(some, read, strict=True):
                if isinstance(found, Redriven):
                    yield found
                elif dry_run:
                    yield Redriven(found.entry.place, True, "" if found.posting.updates else _NOTHING)
                elif isinstance(before := refused.get(found.entry.place, []), str):
                    yield self._stays(item, before, dry_run=False)
                else:
                    yield self._settle(item, found.posting, before)

    def _taken_back(self, adding: Sequence[_Ready]) -> dict[str, list[Posting] | str]:
        """What is taken back before each of some entries is counted, or why that cannot be, by the entry's place."""
        found: dict[str, list[Posting] | str] = {}
        ready: list[_Ready] = []
        for one in adding:
            try:
                if one.posting.declaration.changes == "all":
                    self._refused.make(one.posting.updates[0])
                    ready.append(one)
            except (StreamfoldError, ClientError, BotoCoreError, ResponseParserError) as error:
                found[one.entry.place] = str(error)
        for name in {one.entry.handler for one in ready}:
            ours = [one for one in ready if one.entry.handler == name]
            try:
                taken = self._refused.of((one.posting.declaration, one.entry.record) for one in ours)
                found.update(zip((one.entry.place for one in ours), taken, strict=True))
            except (StreamfoldError, ClientError, BotoCoreError, ResponseParserError) as error:
                found.update((one.entry.place, str(error)) for one in ours)
        return found

    def _ready(self, item: Image, *, dry_run: bool, uncertain: bool) -> _Ready | Redriven:
        place = item["sk"]["S"]
        try:
            entry = entry_of(item, self._load)
            if entry.uncertain and not uncertain:
                return Redriven(place, False, f"uncertain: {entry.reason}")
            declaration = self._declaration(entry)
            if isinstance(declaration, SparseDeclaration):
                return self._settle_entry(place, entry, declaration, dry_run=dry_run)
            if isinstance(declaration, ArchiveDeclaration):
                return self._file(place, entry, declaration, dry_run=dry_run)
            half = compile_half(declaration)(entry.record, entry.image)
        except (StreamfoldError, ClientError, BotoCoreError, NotDoneError) as error:
            return self._stays(item, str(error), dry_run=dry_run)
        updates: tuple[Update, ...] = ()
        expiry = None if half is None else declaration.expiry(half[0][1])
        if half is not None and (expiry is None or expiry > self._now()):
            (group, label), (_, adds, values) = half
            partition = crc32(place.encode()) % declaration.partitions
            updates = (Update(declaration, group, label, partition, "", ((entry.sequence_number, adds, values),)),)
        guard = Guard(
            {"Update": settlement(self._control, place, self._now())},
            self._control,
            key_of(place),
            settled_by="done",
            settled_if_gone=True,
        )
        return _Ready(entry, Posting(declaration, {entry.sequence_number: guard}, updates))

    def _settle(self, item: Image, posting: Posting, refused: Sequence[Posting]) -> Redriven:
        place = item["sk"]["S"]
        for each in (*refused, posting):  # what is taken back comes first
            outcome = self._refused.post(each)
            if outcome.refused_take_backs and each is posting:
                return self._refuse(item, posting.updates[0])
            if outcome.failed_from is not None:
                return self._stays(item, outcome.error, dry_run=False)
        if outcome.duplicates:
            return Redriven(place, True, "was settled by somebody else")
        return Redriven(place, True, "" if posting.updates else _NOTHING)

    def _refuse(self, item: Image, update: Update) -> Redriven:
        """Settle an entry whose aggregate is not there: it waits until what it takes back is counted, if ever."""
        place = item["sk"]["S"]
        actions = [{"Update": refusal(self._control, place, self._now())}, absence(update)]
        try:
            self._client.transact_write_items(TransactItems=actions)
        except (ClientError, BotoCoreError, ResponseParserError) as error:
            return self._stays(item, str(error), dry_run=False)
        return Redriven(place, True, "the aggregate to take it back from is not there")

    def _settle_entry(self, place: str, entry: Entry, declaration: SparseDeclaration, *, dry_run: bool) -> Redriven:
        """Bring the item that an entry is about to its place in a sparse index, as the item is now.

        What it was when it was set aside does not matter any more. The write can be repeated: so the entry is settled
        after it, and not with it.
        """
        key = item_key(declaration, entry.record)
        note = settle(declaration, self._client, key, dry_run=dry_run, seconds=_SECONDS)
        if not dry_run and not self.discard(place):
            return Redriven(place, True, "was settled by somebody else")
        return Redriven(place, True, note)

    def _file(self, place: str, entry: Entry, declaration: ArchiveDeclaration, *, dry_run: bool) -> Redriven:
        """File the item that an entry is about. That can be repeated: so the entry is settled after it."""
        line = line_of(declaration)(entry.record)
        if self._archive is None:
            raise ConfigurationError(f"{entry.handler}: expected a bucket of archives, came none")
        if line is not None and not dry_run:
            shard = lane_prefix(entry.stream_arn, entry.shard_id)
            job = Filing(declaration, shard, entry.sequence_number, entry.sequence_number, [line])
            delivery = ArchiveDelivery(self._client, self._control, self._archive, connections=1, now=self._now)
            terms = Terms(deadline=time.monotonic() + _SECONDS)
            delivery.file_alone(job, Outcome(declaration), terms)
        if not dry_run and not self.discard(place):
            return Redriven(place, True, "was settled by somebody else")
        return Redriven(place, True, "" if line is not None else _NOT_ARCHIVED)

    def redrive_batch(self, failure: Failure, streams: Any) -> Redriven:
        """Bring a batch that Lambda gave up on to its consumer again.

        Args:
            failure: The batch.
            streams: A boto3 DynamoDB Streams client, for a batch of which only the place is known.
        """
        try:
            event = failure.event(lambda each: _records(streams, each))
            delivery = self._delivered_by(failure.table, min(map(_created, event["Records"])))
            consumer = Consumer(
                self.app,
                failure.table,
                self._client,
                control=Control(
                    self._client, self._control, self._store, version=_VERSION, connections=1, now=self._now
                ),
                bucket=self._archive,
                delivery=delivery,
                redriving=True,
                connections=1,
                now=self._now,
            )
            forgotten = [record for record in event["Records"] if not remembers(_created(record), self._now())]
            if forgotten:
                return Redriven(
                    failure.source,
                    False,
                    f"expected records of the last 12 days, came {len(forgotten)} of {len(event['Records'])} that are "
                    "older or do not say: whether they were counted is forgotten",
                )
            response = consumer(event)
            account = response["streamfold"]
            failed = response["batchItemFailures"]
            error = account["error"] if failed else self._take_back(failure, event["Records"], delivery)
        except (StreamfoldError, ClientError, BotoCoreError, ResponseParserError) as error:
            return Redriven(failure.source, False, str(error))
        aside = f"{account['badRecords']} set aside" if account["badRecords"] else ""
        return Redriven(failure.source, not error, error or aside)

    def _take_back(self, failure: Failure, records: Sequence[Record], delivery: str) -> str:
        """Take back what was refused of a batch that is settled now, but for what is in quarantine; the error."""
        control = Control(self._client, self._control, self._store)
        shard = failure.shard_id if delivery == "lanes" else ""
        owned = control.owned(lane_prefix(failure.stream_arn, shard), failure.first)
        added = [
            (declaration, record)
            for declaration in self.app.sourced_from(failure.table)
            if isinstance(declaration, Declaration)
            for record in records
            if "NewImage" not in owned.get(declaration.name, {}).get(int(record["dynamodb"]["SequenceNumber"]), ())
        ]
        return self._refused.take_back(added)

    def _declaration(self, entry: Entry) -> Handler:
        declaration = self.app.declaration_of(self.app.handler(entry.handler))
        table = table_of(entry.stream_arn)
        if declaration.source.name != table:
            raise ConfigurationError(
                f"{entry.handler}: expected records of {declaration.source.name!r}, came {table!r}"
            )
        return declaration

    def delivery(self, table: str) -> str | None:
        """The protocol that delivers a table's stream, by what the control table remembers; None if nothing is."""
        return self._remembered(table).get("delivery", {}).get("S")

    def switch(self, table: str, delivery: str) -> None:
        """Have a table's stream, which has to be drained, delivered by another protocol from now on."""
        before, former = self.delivery(table) or delivery, self._remembered(table).get("former", {"L": []})["L"]
        if before != delivery:
            former = [*former, {"M": {"delivery": {"S": before}, "until": {"N": str(int(self._now()))}}}]
        key = {"pk": {"S": DELIVERY}, "sk": {"S": table}}
        more = {"delivery": {"S": delivery}, "former": {"L": former}}
        self._client.put_item(TableName=self._control, Item={**key, **more})

    def _delivered_by(self, table: str, at: float) -> str:
        """The protocol that delivered a table's stream at a time."""
        item = self._remembered(table)
        for each in item.get("former", {"L": []})["L"]:  # the oldest first
            if at < float(each["M"]["until"]["N"]):
                return str(each["M"]["delivery"]["S"])
        return str(item["delivery"]["S"]) if item else "lanes"

    def _remembered(self, table: str) -> Image:
        key = {"pk": {"S": DELIVERY}, "sk": {"S": table}}
        found: Image = self._client.get_item(TableName=self._control, Key=key, ConsistentRead=True).get("Item", {})
        return found

    def _stays(self, item: Image, reason: str, *, dry_run: bool) -> Redriven:
        place = item["sk"]["S"]
        if not dry_run:
            with suppress(ClientError, BotoCoreError, ResponseParserError):  # settled or discarded in the meantime
                self._client.update_item(
                    TableName=self._control,
                    Key=key_of(place),
                    UpdateExpression="SET reason = :reason",
                    ConditionExpression="attribute_exists(pk) AND attribute_not_exists(done)",
                    ExpressionAttributeValues={":reason": {"S": reason[:2000]}},
                )
        return Redriven(place, False, reason)


def _records(streams: Any, failure: Failure) -> list[Record]:
    shard = LiveShard(streams, failure.stream_arn, failure.shard_id)
    found = takewhile(
        lambda record: int(record["dynamodb"]["SequenceNumber"]) <= failure.last, shard.records(at=failure.first)
    )
    return list(found)


def _created(record: Record) -> float:
    """When a record was made, in epoch seconds; 0 where it does not say, or is none."""
    try:
        return created(record) or 0.0
    except (KeyError, TypeError, AttributeError):
        return 0.0
