"""Objects in memory: as much of S3 as archives use, as a boto3 client shows it.

AWS facts: S3 user guide, "How to prevent object overwrites with conditional writes"; S3 API reference, ListObjectsV2.
"""

from __future__ import annotations

import hashlib
import io
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

__all__ = ["MemoryObjects", "Together"]

_MOST_LISTED = 1000
_NO_KEY = "The specified key does not exist."
_NOT_HELD = "At least one of the pre-conditions you specified did not hold"


class MemoryObjects:
    """One bucket's objects.

    Args:
        clock: The time in epoch seconds.

    Attributes:
        objects: The content of each, by name.
        requests: How many requests of each operation came.
    """

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: Counter[str] = Counter()
        self._clock = clock
        self._about: dict[str, dict[str, Any]] = {}

    def put_object(
        self,
        *,
        Bucket: str,
        Key: str,
        Body: bytes,
        Metadata: dict[str, str] | None = None,
        IfMatch: str | None = None,
        IfNoneMatch: str | None = None,
        ContentType: str = "binary/octet-stream",
    ) -> dict[str, Any]:
        """See S3's `PutObject`."""
        self.requests["PutObject"] += 1
        if IfMatch is not None and self._found(Key, "NoSuchKey", _NO_KEY)["ETag"] != IfMatch:
            raise _error("PreconditionFailed", _NOT_HELD, 412)
        if IfNoneMatch == "*" and Key in self.objects:
            raise _error("PreconditionFailed", _NOT_HELD, 412)
        self.objects[Key] = bytes(Body)
        self._about[Key] = {
            "ETag": f'"{hashlib.md5(self.objects[Key], usedforsecurity=False).hexdigest()}"',
            "Metadata": dict(Metadata or {}),
            # Whole seconds, as the protocol has them.
            "LastModified": datetime.fromtimestamp(int(self._clock()), UTC),
            "ContentType": ContentType,
        }
        return {"ETag": self._about[Key]["ETag"]}

    def head_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        """See S3's `HeadObject`."""
        self.requests["HeadObject"] += 1
        return self._found(Key, "404", "Not Found")

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        """See S3's `GetObject`."""
        self.requests["GetObject"] += 1
        found = self._found(Key, "NoSuchKey", _NO_KEY)
        return {**found, "Body": io.BytesIO(self.objects[Key])}

    def delete_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        """See S3's `DeleteObject`."""
        self.requests["DeleteObject"] += 1
        self._drop(Key)
        return {}

    def delete_objects(self, *, Bucket: str, Delete: Mapping[str, Any]) -> dict[str, Any]:
        """See S3's `DeleteObjects`: a thousand at most, and one that is not there is deleted as well."""
        self.requests["DeleteObjects"] += 1
        if not 1 <= len(Delete["Objects"]) <= _MOST_LISTED:
            raise _error("MalformedXML", "The XML you provided was not well-formed", 400)
        for each in Delete["Objects"]:
            self._drop(each["Key"])
        return {}

    def list_objects_v2(
        self,
        *,
        Bucket: str,
        Prefix: str = "",
        ContinuationToken: str = "",
        StartAfter: str = "",
        MaxKeys: int = _MOST_LISTED,
    ) -> dict[str, Any]:
        """See S3's `ListObjectsV2`: names in order, a thousand a page at most."""
        self.requests["ListObjectsV2"] += 1
        names = sorted(name for name in self.objects if name.startswith(Prefix))
        names = names[bisect_right(names, ContinuationToken or StartAfter) :]
        page = names[: min(MaxKeys, _MOST_LISTED)]
        listed = [
            {
                "Key": name,
                "Size": len(self.objects[name]),
                "ETag": self._about[name]["ETag"],
                "LastModified": self._about[name]["LastModified"],
                "StorageClass": "STANDARD",
            }
            for name in page
        ]
        more = {"NextContinuationToken": page[-1]} if len(names) > len(page) else {}
        return {"Contents": listed, "IsTruncated": bool(more), "KeyCount": len(page), **more}

    def _drop(self, name: str) -> None:
        self.objects.pop(name, None)
        self._about.pop(name, None)

    def _found(self, name: str, code: str, message: str) -> dict[str, Any]:
        if name not in self.objects:
            raise _error(code, message, 404)
        return {**self._about[name], "ContentLength": len(self.objects[name])}


class Together:
    """Several clients as one: an operation is of the first that has it."""

    def __init__(self, *clients: Any) -> None:
        self._clients = clients

    def __getattr__(self, operation: str) -> Any:
        for client in self._clients:
            if hasattr(client, operation):
                return getattr(client, operation)
        raise AttributeError(operation)


def _error(code: str, message: str, status: int) -> ClientError:
    reply: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(reply, "S3")
