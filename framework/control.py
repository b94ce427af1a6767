"""The control table as the consumer uses it: which protocol delivers, and what is set aside.

A table with the keys `pk` and `sk` (text) and the time to live `expires`, made by the deployment. It holds

    pk            sk
    delivery      TABLE                                      the protocol that delivers the table's stream
    quarantine    TABLE/LABEL/SHARD/SEQUENCE/HANDLER/IMAGE   an entry (`quarantine.py`)
    ledger#...    -                                          a marker (`ledger.py`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from framework.deliver import NotDoneError, Outcome, Terms, Writer
from framework.errors import ConfigurationError, DeliveryError
from framework.lanes import bound
from framework.ledger import Guard
from framework.quarantine import PARTITION, Entry, entry_item, lane_prefix, place_of
from framework.sparse import Handler

__all__ = ["DELIVERY", "Control", "EntryJob", "Owned"]

DELIVERY = "delivery"

# By handler and sequence number, which images of the record are in quarantine.
Owned = dict[str, dict[int, frozenset[str]]]


# A process that had no batch of a shard for so long asks again: another one may have had some.
_FRESH_SECONDS = 30.0


@dataclass(slots=True)
class _Known:
    """What a process knows to be in quarantine of a shard, and when and up to where it last had a batch."""

    owned: Owned
    last: int
    at: float


@dataclass(frozen=True, slots=True)
class EntryJob:
    """An entry to be written.

    Attributes:
        declaration: The handler.
        entry: The entry.
        marker: The record's marker, where it has one once it is counted: then there is nothing to set aside.
    """

    declaration: Handler
    entry: Entry
    marker: Guard | None = None

    @property
    def first(self) -> int:
        """The record's sequence number."""
        return self.entry.sequence_number


class Control(Writer[EntryJob]):
    """Writes entries, and reads what a consumer has to know before it counts.

    Args:
        client: As for `Writer`.
        table: The control table's name.
        store: Puts an object under a name, for records that are too large for an item.
        options: As for `Writer`.
    """

    def __init__(self, client: Any, table: str, store: Callable[[str, bytes], None], **options: Any) -> None:
        super().__init__(client, **options)
        self.table = table
        self._store = store
        self._remembering = Lock()
        self._owned: dict[str, _Known] = {}
        self._delivers: tuple[str, str, float] | None = None

    def check(self, source: str, delivery: str) -> None:
        """See that a table's stream is delivered by the protocol that it always was.

        Neither protocol knows what the other has counted, so a record that comes again would be counted twice.

        Raises:
            ConfigurationError: It was delivered by the other; or the control table is not there or has other keys.
            DeliveryError: The control table does not answer.
        """
        key = {"pk": {"S": DELIVERY}, "sk": {"S": source}}
        ours = {**key, "delivery": {"S": delivery}}
        item = self._ask("get_item", Key=key, ConsistentRead=True).get("Item")
        if item is None and self._ask("put_item", Item=ours, ConditionExpression="attribute_not_exists(pk)") is None:
            item = self._ask("get_item", Key=key, ConsistentRead=True).get("Item")  # another process was first
        if item is None:
            item = ours
        came = item.get("delivery", {}).get("S")
        if came != delivery:
            raise ConfigurationError(
                f"consumer of {source!r}: expected delivery by {came!r}, as until now, came {delivery!r}: let the "
                f"stream drain, then `streamfold delivery {source} {delivery}` (docs/operating.md)"
            )
        self._delivers = source, delivery, self._clock()

    def owned(self, prefix: str, first: int, last: int) -> Owned:
        """What is in quarantine of a shard, settled or not.

        Asked for a shard when its records come again or come after a pause, when another process may have had some of
        them; what this process sets aside it remembers. Two processes that have the shard at the very same time do not
        see what the other sets aside meanwhile: where only one of them can count a record, as while a mended version is
        deployed, redrive finds an entry open though its record has counted.

        Args:
            prefix: The shard's, as `lane_prefix` gives it.
            first: A batch's first sequence number.
            last: Its last one.

        Raises:
            DeliveryError: The control table does not answer.
            ConfigurationError: The stream was given to the other protocol in the meantime.
        """
        known, now = self._owned.get(prefix), self._clock()
        if known is None or first <= known.last or now - known.at > _FRESH_SECONDS:
            if self._delivers is not None and now - self._delivers[2] > _FRESH_SECONDS:
                self.check(*self._delivers[:2])  # nor may it have been given to the other protocol
            known = self._owned[prefix] = _Known(self._query(prefix, first), last, now)
        known.last, known.at = last, now
        return known.owned

    def _remember(self, entry: Entry) -> None:
        with self._remembering:  # entries are written in parallel
            if known := self._owned.get(lane_prefix(entry.stream_arn, entry.shard_id)):
                _add(known.owned, entry.place)

    def awaited(self, handler: str) -> frozenset[str]:
        """The items, by the text of their keys, of which a handler has yet to count an addition that was set aside.

        Raises:
            DeliveryError: The control table does not answer.
        """
        request: dict[str, Any] = {
            "KeyConditionExpression": "pk = :pk",
            "FilterExpression": "#handler = :handler AND #image = :image AND attribute_not_exists(done)",
            "ExpressionAttributeNames": {"#handler": "handler", "#image": "image", "#key": "key"},
            "ExpressionAttributeValues": {
                ":pk": {"S": PARTITION},
                ":handler": {"S": handler},
                ":image": {"S": "NewImage"},
            },
            "ProjectionExpression": "#key",
            "ConsistentRead": True,
        }
        return frozenset(str(item["key"]["S"]) for item in self._pages(request) if "key" in item)

    def _query(self, prefix: str, first: int) -> Owned:
        found: Owned = {}
        request: dict[str, Any] = {
            "KeyConditionExpression": "pk = :pk AND sk BETWEEN :first AND :last",
            "ExpressionAttributeValues": {
                ":pk": {"S": PARTITION},
                ":first": {"S": f"{prefix}{bound(first)}"},
                ":last": {"S": f"{prefix}~"},
            },
            "ProjectionExpression": "sk",
            "ConsistentRead": True,
        }
        for item in self._pages(request):
            _add(found, item["sk"]["S"])
        return found

    def _pages(self, request: dict[str, Any]) -> Iterator[Any]:
        while True:
            page = self._ask("query", **request)
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            request = {**request, "ExclusiveStartKey": page["LastEvaluatedKey"]}

    def _ask(self, operation: str, **arguments: Any) -> Any:
        """The answer to a request; None where its condition failed."""
        try:
            return getattr(self._client, operation)(TableName=self.table, **arguments)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "ConditionalCheckFailedException":
                return None
            if code in ("ValidationException", "ResourceNotFoundException"):
                expected = "a table with the keys pk and sk as text"
                raise ConfigurationError(f"control table {self.table!r}: expected {expected}, came {error}") from error
            raise DeliveryError(f"control table {self.table!r}: expected an answer, came {error}") from error
        except (BotoCoreError, ResponseParserError) as error:
            raise DeliveryError(f"control table {self.table!r}: expected an answer, came {error}") from error

    def keep(self, jobs: Iterable[EntryJob], terms: Terms) -> None:
        """Write entries now, one by one; those that are there stay as they are.

        Raises:
            NotDoneError: One could not be written.
        """
        for job in jobs:
            outcome = self._settle(job, terms)
            if outcome.failed_from is not None:
                raise NotDoneError(f"quarantine: {outcome.error}")

    def _settle(self, job: EntryJob, terms: Terms) -> Outcome:
        outcome = super()._settle(job, terms)
        if outcome.failed_from is not None:  # it may be there all the same: ask again
            self._owned.pop(lane_prefix(job.entry.stream_arn, job.entry.shard_id), None)
        return outcome

    def _apply(self, job: EntryJob, outcome: Outcome, terms: Terms) -> None:
        outcome.failed_from = job.first
        if job.marker is not None:
            where = {"TableName": job.marker.table, "Key": job.marker.key, "ConsistentRead": True}
            if job.marker.settled(self._call(outcome, terms, "get_item", where).get("Item")):
                outcome.duplicates += 1
                outcome.failed_from = None
                return
        try:
            item = entry_item(job.entry, self._store)
        except (ClientError, BotoCoreError) as error:
            raise NotDoneError(f"bucket: {error}") from error
        arguments = {"TableName": self.table, "Item": item, "ConditionExpression": "attribute_not_exists(pk)"}
        try:
            self._call(outcome, terms, "put_item", arguments)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise NotDoneError(str(error)) from error
            outcome.duplicates += 1
        else:
            outcome.absorbed += 1
        self._remember(job.entry)
        outcome.failed_from = None


def _add(owned: Owned, place: str) -> None:
    try:
        handler, sequence, image = place_of(place)
    except ValueError:
        return  # nobody's entry
    images = owned.setdefault(handler, {})
    images[sequence] = images.get(sequence, frozenset()) | {image}
