"""The AWS clients: made in one place, DynamoDB's once in a process."""

from __future__ import annotations

import functools
from typing import Any
from zlib import crc32

__all__ = ["CONNECTIONS", "client", "dynamodb", "put_object", "s3"]

# Writes under way at once. A botocore request costs about 1 ms of CPU (AWS facts: local engines) against some 5 ms
# of waiting, so a few keep a core busy; 16 leave room for slow replies.
CONNECTIONS = 16


@functools.cache
def dynamodb() -> Any:
    """The process's boto3 DynamoDB client, configured by the environment as every AWS SDK is.

    Its time-outs are short, for a reply takes milliseconds and an invocation's time is limited; its own retries are
    few, since delivery has its own, inside the time left.
    """
    # Imported here so that `import framework` stays without it. boto3's own session gives the same client, 25 ms later.
    import botocore.session
    from botocore.config import Config

    config = Config(
        connect_timeout=2,
        read_timeout=5,
        max_pool_connections=CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": 3},
    )
    found = botocore.session.get_session().create_client("dynamodb", config=config)
    found.meta.events.register("after-call.dynamodb", _whole)
    return found


def _whole(http_response: Any, **_: Any) -> None:
    """Refuse a reply that was damaged on the way.

    botocore's retries look for that, but once they are used up it gives the reply out as an empty one: no item, no
    entries.
    """
    expected = http_response.headers.get("x-amz-crc32")
    if expected is not None and crc32(http_response.content) != int(expected):
        from botocore.parsers import ResponseParserError

        raise ResponseParserError(f"DynamoDB: expected a reply with the checksum {expected}, came a damaged one")


@functools.cache
def s3() -> Any:
    """The process's S3 client, for objects of some megabytes; otherwise as `dynamodb`."""
    import botocore.session
    from botocore.config import Config

    config = Config(connect_timeout=2, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 3})
    return botocore.session.get_session().create_client("s3", config=config)


def client(service: str) -> Any:
    """A client of another service, such as `"s3"`."""
    import botocore.session

    return botocore.session.get_session().create_client(service)


def put_object(bucket: str, name: str, content: bytes) -> None:
    """Put an object into a bucket. Rare, so its client is made for it."""
    client("s3").put_object(Bucket=bucket, Key=name, Body=content)
