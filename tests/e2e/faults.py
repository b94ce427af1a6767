"""The faults that the proxy lets happen to DynamoDB's requests."""

from __future__ import annotations

from collections import Counter
from typing import Any

__all__ = ["FAULTS", "missing"]


def _rule(operation: str, **more: Any) -> dict[str, Any]:
    return {"service": "dynamodb", "operation": operation, **more}


def _error(code: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": "planted", **({"fields": fields} if fields else {})}}


_THROTTLE = _error("ProvisionedThroughputExceededException")
_BROKEN = _error("InternalServerError")
_RESET = {"reset": True}
# The wrong checksum tells the SDK, as AWS's right one would; roto sends none.
_CUT_SHORT = {"response": {"truncate_frac": 0.5, "set_headers": {"x-amz-crc32": "1"}}}
# It is made, and then the connection breaks within the reply: the SDK makes it again.
_CUT_OFF = {"response": {"abort_frac": 0.5}}
_CONFLICT = [{"Code": "None"}, {"Code": "TransactionConflict", "Message": "planted"}]
_THROTTLED = [{"Code": "ThrottlingError", "Message": "planted"}, {"Code": "None"}]

_ANY = (_THROTTLE, _BROKEN, _RESET, _CUT_SHORT)
_ON_WRITES = {
    "UpdateItem": [*_ANY, _error("TransactionConflictException")],
    "TransactWriteItems": [
        *_ANY,
        _error("TransactionCanceledException", CancellationReasons=_CONFLICT),
        _error("TransactionCanceledException", CancellationReasons=_THROTTLED),
    ],
}
FAULTS = [
    *(_rule(operation, probability=0.1, **_CUT_OFF) for operation in _ON_WRITES),
    *(_rule(operation, probability=0.03, **effect) for operation, effects in _ON_WRITES.items() for effect in effects),
    # There are few of these, so the first ones fail, each in its way, and then every tenth.
    *(
        _rule(operation, sequence={"fail": 1, "pass": 9}, **effect)
        for operation in ("PutItem", "Query", "GetItem")
        for effect in (*_ANY, _CUT_OFF)
    ),
]


def missing(fired: Counter[tuple[str, str]], write: str) -> set[tuple[str, str]]:
    """The faults that have not happened, by operation and kind.

    Args:
        fired: What happened.
        write: The operation that counts; of the other, which is rare, any fault is enough.
    """
    happened = {(operation, action.partition(":")[2] or action) for operation, action in fired}
    expected = {(rule["operation"], _kind(rule)) for rule in FAULTS}
    return expected - happened - {each for each in expected if each[0] in {*_ON_WRITES} - {write}}


def _kind(rule: dict[str, Any]) -> str:
    """What microburst calls a fault, without the word before the colon."""
    if "error" in rule:
        return str(rule["error"]["code"])
    return "reset" if "reset" in rule else "abort" if "abort_frac" in rule["response"] else "truncate"
