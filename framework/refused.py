"""Refused: what was to be taken back from an aggregate that was not there, taken back where it is made after all.

A take-back never makes an aggregate. Mostly that is right: the item was there before the stream was on, or the
aggregate has expired. But where the item was added in a batch that Lambda gave up on, or is in quarantine, and counts
later, nothing would ever take it back. So what was refused is kept (`quarantine.Entry.refused`), and redrive takes it
back, each in one transaction with the end of its refused entry:

- of a batch, after it is settled: the batch is brought again until all of this is done;
- of an entry, before it is counted, since nobody comes back to one that is settled. For that, the aggregate is made
  first, empty, if it is not there.

*Invariant.* Once an aggregate is there, nothing of it is refused: a refused entry is written in a transaction that sees
that its first partition is not (`plan.absence`). So what was refused by the time that it is looked for is all there is,
and what a redriven record adds is taken back once: by its item's next record, or here. Cut short in between, an
aggregate is off by what the redrive has still to do.

(What a second poller counts of a batch after Lambda gave up on it is not redriven, so nothing is joined to it until the
batch is.)
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from botocore.exceptions import ClientError

from framework.codec import Image
from framework.declaration import Declaration
from framework.decode import Record
from framework.deliver_ledger import LedgerDelivery
from framework.errors import BadRecordError, BadValueError
from framework.fold import Half, HalfOf, compile_half, difference, negative
from framework.lanes import hour_of, lane_attribute, lane_partition, owner, position
from framework.ledger import Guard, Posting
from framework.plan import Update, request
from framework.quarantine import PARTITION, Entry, entry_of, retraction
from framework.sparse import Handler
from framework.writer import NotDoneError, Outcome, Rejection, Terms

__all__ = ["Refused", "pages"]

_SECONDS = 60.0  # for one entry
_LONGEST_SECONDS = 3600  # more than an invocation lasts: 15 minutes (Lambda quotas)

# By handler, stream and item, for each sequence number the entries of its images.
_Found = dict[tuple[str, str, str], dict[int, dict[str, Entry]]]


class Refused:
    """Finds what was refused, of what is redriven.

    Args:
        client: A boto3 DynamoDB client.
        control: The control table's name.
        load: Gets an object of the failure bucket by its name.
        now: The time in epoch seconds.
    """

    def __init__(
        self, client: Any, control: str, load: Callable[[str], bytes], now: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        self._control = control
        self._load = load
        self._now = now

    def make(self, update: Update) -> None:
        """Make the first partition of an update's aggregate, empty, if it is not there.

        Raises:
            ClientError: DynamoDB does not let us.
        """
        declaration = update.declaration
        if self._is_there(declaration, update.group, update.label, 0):
            return
        nothing = ((0, True, tuple(0 for _ in declaration.slots)),)
        empty = replace(update, partition=0, lane="", contributions=nothing, redriven=False)
        try:
            self._client.update_item(**request(empty, hour_of(self._now())))
        except ClientError as error:
            # Somebody else's item is there: the record itself will be refused.
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise

    def take_back(self, added: Iterable[tuple[Declaration, Record]]) -> str:
        """Take back what takes back records that have counted; why it could not be done, or empty.

        What is still not there to take it back from is left.
        """
        records = list(added)
        for declaration, record in records:
            half = _half(compile_half(declaration), record, "NewImage") if declaration.partitions > 1 else None
            if half is not None:  # it counts in another partition: nothing more is refused from now on
                (group, label), (sequence, adds, values) = half
                if any(self._is_there(declaration, group, label, p) for p in range(1, declaration.partitions)):
                    self.make(Update(declaration, group, label, 0, "", ((int(sequence), adds, values),)))
        for posting in (posting for each in self.of(records) for posting in each):
            outcome = self.post(posting)
            if outcome.failed_from is not None and not outcome.refused_take_backs:
                return outcome.error
        return ""

    def of(self, added: Iterable[tuple[Declaration, Record]]) -> list[list[Posting]]:
        """For each record whose new image an aggregation adds: the postings that take that back.

        Raises:
            BadValueError: An entry cannot be read.
        """
        records = list(added)
        names = {declaration.name for declaration, _ in records if declaration.changes == "all"}
        refused = self._read(names) if names else {}
        return [list(self._taken_back(declaration, record, refused)) for declaration, record in records]

    def post(self, posting: Posting) -> Outcome:
        """Settle one entry; what DynamoDB will not take stays in it."""
        writer = LedgerDelivery(self._client, connections=1, now=self._now)
        terms = Terms(deadline=time.monotonic() + _SECONDS, keeper=_Stays(), accept_misfits=True)
        (outcome,) = writer.deliver([posting], terms)
        return outcome

    def _is_there(self, declaration: Declaration, group: str, label: str, partition: int) -> bool:
        key = declaration.key(group, label, partition)
        item = self._client.get_item(TableName=declaration.target.name, Key=key, ConsistentRead=True).get("Item")
        return item is not None and owner(item) == declaration.name

    def _read(self, handlers: set[str]) -> _Found:
        found: _Found = defaultdict(lambda: defaultdict(dict))
        query = {
            "TableName": self._control,
            "KeyConditionExpression": "pk = :pk",
            "FilterExpression": "attribute_exists(refused)",
            "ExpressionAttributeValues": {":pk": {"S": PARTITION}},
            "ConsistentRead": True,
        }
        for item in pages(self._client, query):
            if item.get("handler", {}).get("S") in handlers:
                entry = entry_of(item, self._load)
                place = (entry.handler, entry.stream_arn, _item(entry.record))
                found[place][entry.sequence_number][entry.image] = entry
        return found

    def _taken_back(self, declaration: Declaration, record: Record, found: _Found) -> Iterator[Posting]:
        refused = found.get((declaration.name, record.get("eventSourceARN", ""), _item(record))) if found else None
        half = compile_half(declaration)
        added = _half(half, record, "NewImage") if refused else None
        before = _half(half, record, "OldImage") if refused else None
        if refused is None or added is None:
            return
        bucket, (sequence, _, values) = added
        if before is not None and before[0] == bucket and before[1][2] == negative(values):
            return  # it adds nothing
        # One edit after the other, each takes back what the one before it added.
        for number in sorted(number for number in refused if number > int(sequence)):
            entries = refused[number]
            shares = {image: _half(half, entry.record, image) for image, entry in entries.items()}
            taken, again = shares.get("OldImage"), shares.get("NewImage")
            if taken is None or taken[0] != bucket or taken[1][2] != negative(values):
                continue
            if not entries["OldImage"].retracted:
                yield self._posting(declaration, entries, taken, again)
            if again is None:
                return
            values = again[1][2]

    def _posting(
        self, declaration: Declaration, entries: Mapping[str, Entry], taken: Half, again: Half | None
    ) -> Posting:
        """Settles the entries of one record."""
        (group, label), (_, _, values) = taken
        old = entries["OldImage"]
        guard = Guard(
            {"Update": retraction(self._control, old.place)},
            self._control,
            old.key,
            settled_by="retracted",
            settled_if_gone=True,
        )
        others = {}
        if again is not None:
            values = difference(again[1][2], negative(values))
            others = {"NewImage": {"Update": retraction(self._control, entries["NewImage"].place)}}
        lane, partition = self._lane(declaration, group, label, old)
        contributions = ((old.sequence_number, False, values),)
        update = Update(declaration, group, label, partition, lane, contributions, redriven=True)
        return Posting(declaration, {old.sequence_number: guard}, (update,), others)

    def _lane(self, declaration: Declaration, group: str, label: str, entry: Entry) -> tuple[str, int]:
        """The lane of an entry, whose watermark has to move over it, and its partition.

        All that the lane adds before a refused take-back is settled, or in a batch that Lambda gave up on, or there
        would have been an aggregate. No lane is to move where it has moved on already, by the ledger, and where nobody
        can be at work on the record any more: what Lambda gave up on would be uncertain for nothing.
        """
        if not entry.shard_id:
            return "", 0
        # Who began before it was written has ended by then, and nobody else takes it back.
        over = self._now() - entry.at > _LONGEST_SECONDS
        lane = lane_attribute(declaration.name, entry.stream_arn, entry.shard_id)
        partition = lane_partition(lane, declaration.partitions)
        key = declaration.key(group, label, partition)
        item = self._client.get_item(TableName=declaration.target.name, Key=key, ConsistentRead=True).get("Item", {})
        try:
            passed = lane in item and position(item[lane]) >= entry.sequence_number
        except BadValueError:
            passed = True
        return ("", partition) if passed or over else (lane, partition)


def pages(client: Any, query: Mapping[str, Any]) -> Iterator[Image]:
    """The items that a query finds, a page at a time."""
    request = dict(query)
    while True:
        page = client.query(**request)
        yield from page["Items"]
        if "LastEvaluatedKey" not in page:
            return
        request["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def _half(half: HalfOf, record: Record, image: str) -> Half | None:
    """What an image adds now; None if that is nothing, or cannot be counted."""
    try:
        return half(record, image)
    except (BadRecordError, BadValueError):
        return None


class _Stays:
    """The `Keeper` of entries: what cannot be counted stays where it is."""

    def write(self, declaration: Handler, rejected: Sequence[Rejection], check: Any = None) -> int:
        raise NotDoneError(rejected[0].reason)

    def actions(self, declaration: Handler, rejected: Sequence[Rejection]) -> dict[str, Any]:
        raise NotDoneError(rejected[0].reason)


def _item(record: Record) -> str:
    """The key of a record's item, as text that is the same for the same item and no other."""
    return json.dumps(record["dynamodb"]["Keys"], sort_keys=True)
