"""The events that every handler gets, and the recount that every handler is checked against."""

from __future__ import annotations

from collections import Counter
from typing import Any

__all__ = ["LARGEST_BATCH", "LARGEST_PAYLOAD", "MONTH", "Counts", "event_of", "recount"]

# What Lambda hands over at most in one event (Lambda developer guide, event source mappings; Lambda quotas).
LARGEST_BATCH = 10_000
LARGEST_PAYLOAD = 6 * 1024 * 1024

MONTH = "2018-01"
_ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/MusicLibrary/stream/2018-01-01T00:00:00.000"
_FIRST_SEQUENCE = 10**21

# Downloads by song and month.
Counts = Counter[tuple[str, str]]


def event_of(records: int, songs: int, *, start: int = 0, **numbers: list[int]) -> dict[str, Any]:
    """One invocation's event: downloads, each song as often as the others, all in one month.

    Args:
        records: How many downloads.
        songs: How many songs they are of; one aggregate each, as there is one month.
        start: How many records the shard had before, so that successive events follow each other.
        numbers: Further attributes of the items: a number for each record.
    """
    return {
        "Records": [
            _record(start + place, place % songs, {name: each[place] for name, each in numbers.items()})
            for place in range(records)
        ],
        "shardId": "shardId-00000001514764800000-00000001",
        "window": {"start": "2018-01-01T00:00:00Z", "end": "2018-01-01T00:15:00Z"},
        "state": {},
        "isFinalInvokeForWindow": False,
        "isWindowTerminatedEarly": False,
    }


def _record(number: int, song: int, numbers: dict[str, int]) -> dict[str, Any]:
    day, hour, minute, second = number % 28 + 1, number % 24, number % 60, number % 59
    key = {"songID": f"song-{song:05}", "SK": f"download-{number:07}"}
    return {
        "eventID": f"{number:032x}",
        "eventName": "INSERT",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "dynamodb": {
            "ApproximateCreationDateTime": 1514764800,
            # Objects of their own in keys and image, as in an event that was read from JSON.
            "Keys": {name: {"S": text} for name, text in key.items()},
            "NewImage": {
                **{name: {"S": text} for name, text in key.items()},
                "Timestamp": {"S": f"{MONTH}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"},
                **{name: {"N": str(value)} for name, value in numbers.items()},
            },
            "SequenceNumber": str(_FIRST_SEQUENCE + number * 17),
            "SizeBytes": 79,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventSourceARN": _ARN,
    }


def recount(event: dict[str, Any]) -> Counts:
    """The downloads by song and month, counted with nothing of Streamfold's."""
    counts: Counts = Counter()
    for record in event["Records"]:
        image = record["dynamodb"]["NewImage"]
        if image["SK"]["S"].startswith("download-"):
            counts[image["songID"]["S"], image["Timestamp"]["S"][:7]] += 1
    return counts
