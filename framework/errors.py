"""The one error tree.

    StreamfoldError
    ├── DeclarationError     a class or a value in `handlers/` is declared wrongly
    ├── ConfigurationError   what is deployed does not fit what is declared
    ├── EventError           an event is not what Lambda sends for a DynamoDB stream
    ├── BadRecordError       one record can never succeed as it is
    ├── BadValueError        a value that DynamoDB would refuse
    ├── DeliveryError        writes that did not go through
    ├── ReadError            a read that the declaration does not allow
    └── SourceError          a file of items that cannot be read

A message says where, what was expected and what came.
"""

from __future__ import annotations

__all__ = [
    "BadRecordError",
    "BadValueError",
    "ConfigurationError",
    "DeclarationError",
    "DeliveryError",
    "EventError",
    "ReadError",
    "SourceError",
    "StreamfoldError",
    "raised",
    "shortened",
]


class StreamfoldError(Exception):
    """Every error that Streamfold raises on purpose."""


class DeclarationError(StreamfoldError):
    """A declaration is wrong: raised when its class or value is made, never later."""


class ConfigurationError(StreamfoldError):
    """What is deployed does not fit what is declared (environment, event source mapping, stream view)."""


class EventError(StreamfoldError):
    """An event is not one that Lambda sends for a DynamoDB stream; nothing was written."""


class BadRecordError(StreamfoldError):
    """One record can never succeed as it is: a missing attribute, a wrong type, a date that does not parse."""


class BadValueError(StreamfoldError):
    """A value that DynamoDB would refuse."""


class DeliveryError(StreamfoldError):
    """Writes that did not go through, for a reason that another try may not have."""


class ReadError(StreamfoldError):
    """A read that the declaration does not allow, such as `top` without an index."""


class SourceError(StreamfoldError):
    """A file of items cannot be read; names the file and the line."""


def shortened(value: object, limit: int = 60) -> str:
    """The `repr` of a value, cut to `limit` characters, for a message; its type where it has none that can be shown."""
    try:
        text = repr(value)
    except Exception:  # a user's, or one that is too deep or too long
        text = f"a {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def raised(error: BaseException) -> str:
    """What a user's code raised, for a message: the type, and the text if there is one."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__
