"""Stream records and events for tests, as short as they can be."""

from __future__ import annotations

from typing import Any

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/MusicLibrary/stream/2018-01-01T00:00:00.000"
EXPIRY = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}

Image = dict[str, dict[str, Any]]


def download(song: str = "a", at: str = "2018-01-15T10:00:00Z", **more: dict[str, Any]) -> Image:
    """An item of the music library that counts."""
    return {"songID": {"S": song}, "SK": {"S": "download-1"}, "Timestamp": {"S": at}, **more}


def record(number: int, *, new: Image | None = None, old: Image | None = None, **more: Any) -> dict[str, Any]:
    """One stream record; its kind follows from the images."""
    name = "REMOVE" if new is None else "INSERT" if old is None else "MODIFY"
    image = new or old or {}
    change: dict[str, Any] = {
        "Keys": {name: image[name] for name in ("songID", "SK") if name in image},
        "SequenceNumber": str(number),
        "StreamViewType": "NEW_AND_OLD_IMAGES",
    }
    if new is not None:
        change["NewImage"] = new
    if old is not None:
        change["OldImage"] = old
    return {
        "eventID": str(number),
        "eventName": name,
        "eventSource": "aws:dynamodb",
        "eventSourceARN": ARN,
        "dynamodb": change,
        **more,
    }


def event(*records: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One invocation's event."""
    return {
        "Records": list(records),
        "shardId": "shardId-00000001514764800000-abcdef12",
        "eventSourceARN": ARN,
        "window": {"start": "2018-01-15T10:00:00Z", "end": "2018-01-15T10:15:00Z"},
        "state": {},
        "isFinalInvokeForWindow": False,
        "isWindowTerminatedEarly": False,
        **more,
    }
