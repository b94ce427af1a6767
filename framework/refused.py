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
from framework.fold import Half, HalfOf, compile_half
from framework.lanes import hour_of, owner
from framework.ledger import Guard, Posting
from framework.plan import Update, request
from framework.quarantine import PARTITION, Entry, entry_of, item_text, retraction
from framework.writer import NotDoneError, Outcome, Rejection, Terms

__all__ = ["Refused", "pages"]

_SECONDS = 60.0  # for one entry

# By handler and item, for each sequence number the entries of its images.
_Found = dict[tuple[str, str], dict[int, dict[str, Entry]]]


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

    def of(self, added: Iterable[tuple[Declaration, Record]]) -> list[list[Posting]]:
        """For each record whose new image an aggregation adds: the postings that take that back.

        Raises:
            StreamfoldError: A record or an entry cannot be read.
        """
        records = list(added)
        refused = self._read() if any(declaration.changes == "all" for declaration, _ in records) else {}
        return [list(self._taken_back(declaration, record, refused)) for declaration, record in records]

    def take_back(self, added: Iterable[tuple[Declaration, Record]]) -> str:
        """Take back what takes back records that have counted; why it could not be done, or empty.

        What is still not there to take it back from is left.
        """
        for posting in (posting for each in self.of(added) for posting in each):
            outcome = self.post(posting)
            if outcome.failed_from is not None and not outcome.refused_take_backs:
                return outcome.error
        return ""

    def post(self, posting: Posting) -> Outcome:
        """Settle one entry; what DynamoDB will not take stays in it."""
        writer = LedgerDelivery(self._client, connections=1, now=self._now)
        terms = Terms(deadline=time.monotonic() + _SECONDS, keeper=_Stays(), accept_misfits=True, accept_early=True)
        (outcome,) = writer.deliver([posting], terms)
        return outcome

    def make(self, update: Update) -> None:
        """Make the first partition of an update's aggregate, if it is not there."""
        declaration = update.declaration
        key = declaration.key(update.group, update.label, 0)
        item = self._client.get_item(TableName=declaration.target.name, Key=key, ConsistentRead=True).get("Item")
        if item is None or owner(item) != declaration.name:
            nothing = ((0, True, tuple(0 for _ in declaration.slots)),)
            empty = replace(update, partition=0, lane="", contributions=nothing, redriven=False)
            try:
                self._client.update_item(**request(empty, hour_of(self._now())))
            except ClientError as error:
                # Somebody else's item is there: the record itself will be refused.
                if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                    raise

    def _read(self) -> _Found:
        found: _Found = defaultdict(lambda: defaultdict(dict))
        query = {
            "TableName": self._control,
            "KeyConditionExpression": "pk = :pk",
            "FilterExpression": "attribute_exists(refused) AND attribute_not_exists(retracted)",
            "ExpressionAttributeValues": {":pk": {"S": PARTITION}},
            "ConsistentRead": True,
        }
        for item in pages(self._client, query):
            entry = entry_of(item, self._load)
            found[entry.handler, item_text(entry.record)][entry.sequence_number][entry.image] = entry
        return found

    def _taken_back(self, declaration: Declaration, record: Record, found: _Found) -> Iterator[Posting]:
        refused = found.get((declaration.name, item_text(record))) if found else None
        half = compile_half(declaration)
        added = _half(half, record, "NewImage") if refused else None
        if refused is None or added is None:
            return
        bucket, (sequence, _, values) = added
        # One edit after the other, each takes back what the one before it added.
        for number in sorted(number for number in refused if number > int(sequence)):
            entries = refused[number]
            shares = {image: _half(half, entry.record, image) for image, entry in entries.items()}
            taken, again = shares.get("OldImage"), shares.get("NewImage")
            if taken is None or taken[0] != bucket or taken[1][2] != tuple(-value for value in values):
                continue
            yield self._posting(declaration, entries["OldImage"], taken)
            if again is None:
                return
            yield self._posting(declaration, entries["NewImage"], again)
            values = again[1][2]

    def _posting(self, declaration: Declaration, entry: Entry, share: Half) -> Posting:
        (group, label), (_, adds, values) = share
        guard = Guard(
            {"Update": retraction(self._control, entry.place)},
            self._control,
            entry.key,
            settled_by="retracted",
            settled_if_gone=True,
        )
        update = Update(declaration, group, label, 0, "", ((entry.sequence_number, adds, values),))
        return Posting(declaration, {entry.sequence_number: guard}, (update,))


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

    def write(self, declaration: Declaration, rejected: Sequence[Rejection], check: Any = None) -> int:
        raise NotDoneError(rejected[0].reason)

    def actions(self, declaration: Declaration, rejected: Sequence[Rejection]) -> dict[str, Any]:
        raise NotDoneError(rejected[0].reason)
