"""The control table as the consumer uses it: which protocol delivers, whose turn a shard is, and what is set aside.

A table with the keys `pk` and `sk` (text) and the time to live `expires`, made by the deployment. It holds

    pk            sk
    delivery      TABLE                                      the protocol that delivers the table's stream
    turn#...      -                                          which version counts a shard's records (`turns.py`)
    quarantine    TABLE/LABEL/SHARD/SEQUENCE/HANDLER/IMAGE   an entry (`quarantine.py`)
    ledger#...    -                                          a marker (`ledger.py`)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from framework.codec import Image
from framework.decode import Batch, created
from framework.errors import ConfigurationError, DeliveryError, shortened
from framework.lanes import bound
from framework.quarantine import PARTITION, Entry, entry_item, lane_prefix, place_of
from framework.sparse import Handler
from framework.turns import Turn, counted, is_taken, taking, turn_key, turn_of
from framework.writer import NotDoneError, Outcome, Terms, Writer

__all__ = ["DELIVERY", "Control", "Owned"]

DELIVERY = "delivery"

# By handler and sequence number, which images of the record are in quarantine.
Owned = dict[str, dict[int, frozenset[str]]]

_CHECK_AGAIN_SECONDS = 30.0
_MOST_TRIES = 20  # to take a turn that passes to and fro
# Of one transaction's 100 actions and 4 MB (DynamoDB API reference, TransactWriteItems).
_MOST_ENTRIES, _MOST_BYTES = 50, 3 * 1024 * 1024
_MOST_ENTRY_BYTES = 360 * 1024  # what is larger lies elsewhere (`quarantine.py`)
_UNCERTAIN = "it may have counted while another version was deployed"


@dataclass(frozen=True, slots=True)
class _Known:
    """What a process knows to be in quarantine of a shard: from which record on, and at which count of entries."""

    owned: Owned
    first: int
    entries: int


class Control(Writer[Any]):
    """Writes entries, and reads what a consumer has to know before it counts.

    Args:
        client: As for `Writer`.
        table: The control table's name.
        store: Puts an object under a name, for records that are too large for an item.
        version: Names the code and the configuration that count; two that may count a record otherwise never share one.
        options: As for `Writer`.
    """

    def __init__(
        self, client: Any, table: str, store: Callable[[str, bytes], None], *, version: str = "", **options: Any
    ) -> None:
        super().__init__(client, **options)
        self.table = table
        self.store = store
        self._version = version
        self._known: dict[str, _Known] = {}
        self._checked_at: float | None = None

    def check(self, source: str, delivery: str) -> None:
        """See, now and then, that a table's stream is delivered by the protocol that it always was.

        Neither protocol knows what the other has counted, so a record that comes again would be counted twice.

        Raises:
            ConfigurationError: It was delivered by the other; or the control table is not there or has other keys.
            DeliveryError: The control table does not answer.
        """
        if self._checked_at is not None and self._clock() - self._checked_at <= _CHECK_AGAIN_SECONDS:
            return
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
        self._checked_at = self._clock()

    def begin(self, batch: Batch, first: int) -> tuple[Turn, Owned]:
        """Look at the turn for a batch; it is taken before anything is written.

        Args:
            batch: The batch, with records of one shard.
            first: Its first sequence number.

        Returns:
            The turn, and what is in quarantine of the shard from the batch on, settled or not.

        Raises:
            DeliveryError: The control table does not answer.
            ConfigurationError: The turn is none.
        """
        newest = max((time for record in batch.records if (time := created(record)) is not None), default=None)
        prefix = lane_prefix(batch.stream_arn, batch.shard_id)
        turn = self._turn(self._seen(prefix), prefix, newest)
        if not turn.entries:
            return turn, {}
        known = self._known.get(prefix)
        if known is None or known.entries != turn.entries or first < known.first:
            known = self._known[prefix] = _Known(self.owned(prefix, first), first, turn.entries)
        return turn, known.owned

    def take(self, turn: Turn) -> None:
        """Take a turn that was looked at, if it is not ours already.

        Raises:
            NotDoneError: It could not be taken, or something was set aside in the meantime.
        """
        try:
            for _ in range(_MOST_TRIES):
                item = turn.seen
                if not is_taken(item, self._version, turn.newest):
                    arguments = taking(item, self._version, turn.newest, self._now())
                    taken = self._ask("update_item", Key=turn_key(turn.prefix), **arguments)
                    item = None if taken is None else taken["Attributes"]
                if item is None:
                    turn.seen = self._seen(turn.prefix)
                    continue
                now = self._turn(item, turn.prefix, turn.newest)
                if now.entries != turn.entries:
                    raise NotDoneError("something else was set aside meanwhile")
                # In this order: an entry of another thread is refused rather than taken for certain.
                turn.since = now.since
                turn.number = now.number
                turn.seen = now.seen
                return
        except (DeliveryError, ConfigurationError) as error:
            raise NotDoneError(str(error)) from error
        raise NotDoneError(
            f"control table {self.table!r}: expected the turn of {turn.prefix}, came others at all times"
        )

    def _take_again(self, turn: Turn) -> None:
        """Take a turn that has passed since it was ours: what is set aside is uncertain from now on."""
        try:
            turn.seen = self._seen(turn.prefix)
            turn.entries = self._turn(turn.seen, turn.prefix, turn.newest).entries
        except (DeliveryError, ConfigurationError) as error:
            raise NotDoneError(str(error)) from error
        self.take(turn)

    def _seen(self, prefix: str) -> Image | None:
        found: Image | None = self._ask("get_item", Key=turn_key(prefix), ConsistentRead=True).get("Item")
        return found

    def _turn(self, item: Image | None, prefix: str, newest: float | None) -> Turn:
        try:
            return turn_of(item, prefix, newest)
        except (KeyError, TypeError, ValueError) as error:
            came = f"control table {self.table!r}: turn of {prefix}: expected a turn, came {shortened(item, 300)}"
            raise ConfigurationError(came) from error

    def owned(self, prefix: str, first: int) -> Owned:
        """What is in quarantine of a shard from a sequence number on, settled or not.

        Raises:
            DeliveryError: The control table does not answer.
        """
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

    def put(self, entry: Entry) -> dict[str, Any]:
        """The action of a transaction that writes an entry.

        Raises:
            NotDoneError: The record is too large for an item, and cannot be stored elsewhere.
        """
        try:
            item = entry_item(entry, self.store)
        except (ClientError, BotoCoreError) as error:
            raise NotDoneError(f"bucket: {error}") from error
        return {"Put": {"TableName": self.table, "Item": item, "ConditionExpression": "attribute_not_exists(pk)"}}

    def keep(
        self,
        declaration: Handler,
        turn: Turn | None,
        entries: Sequence[Entry],
        terms: Terms,
        check: Mapping[str, Any] | None = None,
    ) -> int:
        """Write entries of a handler; those that are there stay as they are.

        Args:
            declaration: The handler.
            turn: The turn in which the batch began; None where it does not matter who else has the records.
            entries: The entries, record by record.
            terms: Until when.
            check: A further action of each transaction.

        Returns:
            Of how many records, from the first, they were written: of all, unless the check's condition failed.

        Raises:
            NotDoneError: They could not be.
        """
        outcome = Outcome(declaration)
        kept = 0
        for run in _runs(entries):
            if not self._keep(turn, run, outcome, terms, check):
                break
            kept += len({entry.sequence_number for entry in run})
        return kept

    def _keep(
        self,
        turn: Turn | None,
        entries: Sequence[Entry],
        outcome: Outcome,
        terms: Terms,
        check: Mapping[str, Any] | None,
    ) -> bool:
        left, tries = list(entries), 0
        checks = [] if check is None else [check]
        head = len(checks) + (turn is not None)
        while left:
            tries += 1
            actions = [*checks, *(self.put(_as_certain(entry, turn)) for entry in left)]
            if turn is not None:
                actions.insert(0, counted(self.table, turn.prefix, len(left), turn.number))
            try:
                self._call(outcome, terms, "transact_write_items", {"TransactItems": actions})
                return True
            except ClientError as error:
                codes = [reason.get("Code") for reason in error.response.get("CancellationReasons") or ()]
                failed = [code == "ConditionalCheckFailed" for code in codes]
                if len(failed) != len(actions) or not (any(failed) or "ValidationError" not in codes):
                    raise NotDoneError(f"quarantine: {error}") from error
                if turn is not None and failed[0]:
                    self._take_again(turn)
                elif any(failed[:head]):
                    return False
                elif any(failed):
                    left = [e for e, there in zip(left, failed[head:], strict=True) if not there]
                else:
                    self._pause(tries, terms, str(error))
        return True


def _as_certain(entry: Entry, turn: Turn | None) -> Entry:
    if turn is None or entry.uncertain or entry.refused or turn.alone(created(entry.record)):
        return entry
    return replace(entry, uncertain=True, reason=f"{entry.reason}; {_UNCERTAIN}")


def _runs(entries: Sequence[Entry]) -> Iterable[Sequence[Entry]]:
    """Entries in runs that fit into a transaction each, those of a record together."""
    run: list[Entry] = []
    size = 0
    for _, found in groupby(entries, key=lambda entry: entry.sequence_number):
        ours = list(found)
        weight = sum(min(len(json.dumps(entry.record)), _MOST_ENTRY_BYTES) for entry in ours)
        if run and (len(run) + len(ours) > _MOST_ENTRIES or size + weight > _MOST_BYTES):
            yield run
            run, size = [], 0
        run += ours
        size += weight
    if run:
        yield run


def _add(owned: Owned, place: str) -> None:
    try:
        handler, sequence, image = place_of(place)
    except ValueError:
        return  # nobody's entry
    images = owned.setdefault(handler, {})
    images[sequence] = images.get(sequence, frozenset()) | {image}
