"""Redrive: what was set aside, or given up on by Lambda, counted after all, and once.

An entry of the quarantine is settled in one transaction with what its image adds: the entry is the guard
(`ledger.Guard`). A batch that Lambda gave up on goes through the consumer again, each record under a marker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any
from zlib import crc32

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from framework.app import App
from framework.apply import settle
from framework.codec import Image
from framework.consumer import Consumer
from framework.control import DELIVERY, Control
from framework.decode import Record, created, table_of
from framework.deliver import NotDoneError, Rejection, Terms
from framework.deliver_ledger import LedgerDelivery
from framework.errors import ConfigurationError, StreamfoldError
from framework.failures import Failure
from framework.fold import compile_half
from framework.ledger import Guard, Posting
from framework.live import LiveShard
from framework.plan import Update
from framework.quarantine import PARTITION, Entry, entry_of, key_of, remembers, settlement
from framework.sparse import Handler, SparseDeclaration
from framework.sparse_fold import item_key

__all__ = ["Quarantine", "Redriven"]

_SECONDS = 60.0  # for one entry or one failed batch


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


class Quarantine:
    """The entries of an app's control table, and what to do with them.

    Args:
        app: The app, with the tables' names in the account.
        client: A boto3 DynamoDB client.
        control: The control table's name.
        load: Gets an object of the failure bucket by its name.
        store: Puts one.
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
        now: Callable[[], float] = time.time,
    ) -> None:
        self.app = app
        self._client = client
        self._control = control
        self._load = load
        self._store = store
        self._now = now

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
        while True:
            page = self._client.query(**request)
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def entry(self, place: str) -> Entry | None:
        """The open entry with a sort key; None if there is none.

        Raises:
            BadValueError: It cannot be read.
        """
        item = self._client.get_item(TableName=self._control, Key=key_of(place), ConsistentRead=True).get("Item")
        return None if item is None or "done" in item else entry_of(item, self._load)

    def discard(self, place: str) -> bool:
        """Settle an entry without counting it; whether it was open."""
        try:
            self._client.update_item(**settlement(self._control, place, self._now()))
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            return False
        return True

    def redrive(self, item: Image, *, dry_run: bool = False, uncertain: bool = False) -> Redriven:
        """Count what an entry is about, as its handler is now; what still fails stays, with the new reason.

        Of a sparse index, bring the entry's item to its place as the item is now.

        Args:
            item: The entry's item.
            dry_run: Only find out whether it can be counted; nothing is written.
            uncertain: Whether to count it though it may have been counted already.
        """
        place = item["sk"]["S"]
        try:
            entry = entry_of(item, self._load)
            if entry.uncertain and not uncertain:
                return Redriven(place, False, f"uncertain: {entry.reason}")
            declaration = self._declaration(entry)
            if isinstance(declaration, SparseDeclaration):
                return self._settle_entry(place, entry, declaration, dry_run=dry_run)
            half = compile_half(declaration)(entry.record, entry.image)
        except (StreamfoldError, ClientError, BotoCoreError) as error:
            return self._stays(item, str(error), dry_run=dry_run)
        updates: tuple[Update, ...] = ()
        if half is not None:
            (group, label), (_, adds, values) = half
            partition = crc32(place.encode()) % declaration.partitions
            updates = (Update(declaration, group, label, partition, "", ((entry.sequence_number, adds, values),)),)
        if dry_run:
            return Redriven(place, True, "" if half else "counts for nothing")
        if entry.image == "OldImage" and updates and not self._is_there(updates[0]) and self._has_earlier(item, entry):
            reason = "expected what its item added before to be settled first, came an entry that is open"
            return Redriven(place, False, reason)
        guard = Guard(
            {"Update": settlement(self._control, place, self._now())},
            self._control,
            key_of(place),
            settled_by="done",
            settled_if_gone=True,
        )
        writer = LedgerDelivery(self._client, connections=1, now=self._now)
        terms = Terms(deadline=time.monotonic() + _SECONDS, set_aside=_keep, accept_misfits=True)
        (outcome,) = writer.deliver([Posting(declaration, {entry.sequence_number: guard}, updates)], terms)
        if outcome.failed_from is not None:
            return self._stays(item, outcome.error, dry_run=False)
        if outcome.duplicates:
            return Redriven(place, True, "was settled by somebody else")
        if outcome.refused_take_backs:
            return Redriven(place, True, "the aggregate to take it back from is not there")
        return Redriven(place, True, "" if half else "counts for nothing")

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

    def redrive_batch(self, failure: Failure, streams: Any) -> Redriven:
        """Bring a batch that Lambda gave up on to its consumer again.

        Args:
            failure: The batch.
            streams: A boto3 DynamoDB Streams client, for a batch of which only the place is known.
        """
        try:
            event = failure.event(lambda each: _records(streams, each))
            consumer = Consumer(
                self.app,
                failure.table,
                self._client,
                control=Control(self._client, self._control, self._store, connections=1, now=self._now),
                delivery=self.delivery(failure.table) or "lanes",
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
        except (StreamfoldError, ClientError, BotoCoreError, ResponseParserError) as error:
            return Redriven(failure.source, False, str(error))
        account = response["streamfold"]
        done = not response["batchItemFailures"]
        aside = f"{account['badRecords']} set aside" if account["badRecords"] else ""
        return Redriven(failure.source, done, aside if done else account["error"])

    def _is_there(self, update: Update) -> bool:
        keys = (update.key, *update.siblings)
        table = update.declaration.target.name
        found = (self._client.get_item(TableName=table, Key=key, ConsistentRead=True) for key in keys)
        return any("Item" in each for each in found)

    def _has_earlier(self, item: Image, entry: Entry) -> bool:
        """Whether an image of the same item is open that should have been added before one that is to be taken back.

        Where the aggregate is not there yet, that would be taken back from nothing, and the other added for good.
        """
        return any(
            other["image"] == {"S": "NewImage"}
            and other["key"] == item["key"]
            and int(other["sequence"]["S"]) < entry.sequence_number
            for other in self.open(handler=entry.handler)
        )

    def _declaration(self, entry: Entry) -> Handler:
        declaration = self.app.handler(entry.handler)._declaration
        table = table_of(entry.stream_arn)
        if declaration.source.name != table:
            raise ConfigurationError(
                f"{entry.handler}: expected records of {declaration.source.name!r}, came {table!r}"
            )
        return declaration

    def delivery(self, table: str) -> str | None:
        """The protocol that delivers a table's stream, by what the control table remembers; None if nothing is."""
        key = {"pk": {"S": DELIVERY}, "sk": {"S": table}}
        item = self._client.get_item(TableName=self._control, Key=key, ConsistentRead=True).get("Item")
        return None if item is None else item.get("delivery", {}).get("S")

    def switch(self, table: str, delivery: str) -> None:
        """Have a table's stream, which has to be drained, delivered by another protocol from now on."""
        item = {"pk": {"S": DELIVERY}, "sk": {"S": table}, "delivery": {"S": delivery}}
        self._client.put_item(TableName=self._control, Item=item)

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


def _keep(declaration: Handler, rejected: Sequence[Rejection]) -> None:
    """What DynamoDB will not take stays in its entry."""
    raise NotDoneError(rejected[0].reason)


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
