"""What is particular to transactions: all or none, the reasons, and the tokens.

AWS facts: DynamoDB API reference, "TransactWriteItems": at most 100 actions and 4 MB, one action an item, a
reason for every action of a cancelled one, and a ClientRequestToken that holds for ten minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from framework.codec import Image
from framework.local.capacity import item_size
from framework.local.storage import Table
from framework.local.values import RefusedError, ServiceError
from framework.local.writes import ConditionFailedError, Write, check_of, delete_of, put_of, update_of

__all__ = ["Tokens", "TransactionCanceledError", "outcomes_of", "write_of"]

_MOST_ACTIONS = 100
_LARGEST = 4 * 1024 * 1024  # bytes of all its items
_TOKEN_LIFE = 600.0  # seconds
_ACTIONS = {"Put": put_of, "Update": update_of, "Delete": delete_of, "ConditionCheck": check_of}


class TransactionCanceledError(ServiceError):
    """A transaction that was not made; carries a reason for each of its actions."""

    def __init__(self, reasons: Sequence[Mapping[str, Any]]) -> None:
        codes = ", ".join(reason["Code"] for reason in reasons)
        super().__init__(
            "TransactionCanceledException",
            f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
            CancellationReasons=reasons,
        )


def write_of(table: Callable[[str], Table], entry: Mapping[str, Any]) -> Write:
    """The write of one action; `table` finds a table by its name.

    Raises:
        RefusedError: It is not exactly one action, or the action is not what the service takes.
    """
    if len(entry) != 1 or not _ACTIONS.keys() >= entry.keys():
        raise RefusedError(
            f"TransactItems can only contain one of ConditionCheck, Put, Update or Delete, came {sorted(entry)}"
        )
    ((kind, body),) = entry.items()
    return _ACTIONS[kind](table(body["TableName"]), body)


def outcomes_of(writes: Sequence[Write]) -> list[tuple[Image | None, Image | None]]:
    """Every action's item before and after; nothing is stored yet.

    Raises:
        RefusedError: Too many actions or bytes, or two actions on one item.
        TransactionCanceledError: An action's condition does not hold, or its update does not fit its item.
    """
    if not 0 < len(writes) <= _MOST_ACTIONS:
        raise RefusedError(f"TransactItems must have 1 to {_MOST_ACTIONS} members, came {len(writes)}")
    if len({(write.table.name, write.place) for write in writes}) < len(writes):
        raise RefusedError("Transaction request cannot include multiple operations on one item")
    changes, reasons = [], []
    for write in writes:
        reason: dict[str, Any] = {"Code": "None"}
        try:
            changes.append(write.outcome())
        except ConditionFailedError as failed:
            reason = {"Code": "ConditionalCheckFailed", "Message": str(failed), **failed.extra}
        except RefusedError as refused:
            reason = {"Code": "ValidationError", "Message": str(refused)}
        reasons.append(reason)
    if len(changes) < len(writes):
        raise TransactionCanceledError(reasons)
    if sum(item_size(after) for _, after in changes if after is not None) > _LARGEST:
        raise RefusedError("Transaction request size exceeded the limit of 4 MB")
    return changes


class Tokens:
    """The ClientRequestTokens of the last ten minutes: what comes again is not carried out again."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, int]] = {}

    def answered(self, token: str | None, entries: Any, now: float) -> bool:
        """Whether a request with this token was carried out; `now` is in seconds.

        Raises:
            ServiceError: It was, but the request was another.
        """
        while self._seen and next(iter(self._seen.values()))[0] < now - _TOKEN_LIFE:
            del self._seen[next(iter(self._seen))]
        known = None if token is None else self._seen.get(token)
        if known is not None and known[1] != _fingerprint(entries):
            raise ServiceError(
                "IdempotentParameterMismatchException",
                "The client token was used for another request in the last 10 minutes",
            )
        return known is not None

    def remember(self, token: str | None, entries: Any, now: float) -> None:
        """Notes that a request was carried out."""
        if token is not None:
            self._seen[token] = (now, _fingerprint(entries))


def _fingerprint(entries: Any) -> int:
    return hash(repr(entries))
