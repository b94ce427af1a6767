"""Native import: the newest archived version of each item, as objects that DynamoDB itself imports into a new table.

An archive's own folder can be imported as it is, where no item was archived twice: of two versions, DynamoDB's import
keeps any. It costs nothing for each write, and takes no condition.

AWS facts: DynamoDB developer guide, "DynamoDB data import from Amazon S3" (a new table; duplicate keys overwrite each
other in no order; everything under the prefix is read).
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from typing import Any

from framework.archive_objects import ArchiveObjects
from framework.errors import ConfigurationError
from framework.restore import Choice, OnProgress, Survey
from framework.tables import Table

__all__ = ["check_prefix", "import_request", "write_import"]

_MOST_BYTES = 256 * 2**20  # of lines in an object: some tens of megabytes once they are compressed
_LEVEL = 6


def check_prefix(objects: ArchiveObjects, prefix: str) -> None:
    """See that a prefix is apart from the archive, and that nothing is there that would be imported as well.

    Raises:
        ConfigurationError: It is not, or something is.
        ClientError: S3 refuses to be read.
    """
    folder = prefix.strip("/")
    for taken in (f"{objects.folder}/", "_manifests/"):
        if not folder or f"{folder}/".startswith(taken) or taken.startswith(f"{folder}/"):
            raise ConfigurationError(f"native: expected a prefix outside of {taken!r}, came {prefix!r}")
    found = objects.call("list_objects_v2", Prefix=f"{folder}/", MaxKeys=1).get("Contents", ())
    if found:
        expected = f"nothing under {folder + '/'!r}, for all of it would be imported"
        raise ConfigurationError(f"native: expected {expected}, came {found[0]['Key']!r}")


def write_import(
    objects: ArchiveObjects,
    choice: Choice,
    survey: Survey,
    prefix: str,
    on_progress: OnProgress = lambda items, share: None,
) -> int:
    """Write the objects.

    Args:
        objects: The archive, for its bucket.
        choice: The items.
        survey: What there is of them.
        prefix: What the names of the objects begin with.
        on_progress: Called for each item.

    Returns:
        How many items were written.

    Raises:
        ClientError: S3 refuses a request. What is under the prefix has to be deleted before it is run again.
    """
    count = 0

    def lines() -> Iterator[bytes]:
        nonlocal count
        for chosen in choice.items():
            count += 1
            on_progress(count, count / survey.items)
            yield choice.line(chosen)

    for number, content in enumerate(_packed(lines()), 1):
        objects.call(
            "put_object",
            Key=f"{prefix.strip('/')}/{number:06d}.json.gz",
            Body=content,
            ContentType="application/gzip",
        )
    return count


def import_request(bucket: str, prefix: str, table: str, source: Table) -> dict[str, Any]:
    """The request that `aws dynamodb import-table --cli-input-json` takes.

    Args:
        bucket: The bucket.
        prefix: What the names of the objects begin with.
        table: The new table's name.
        source: The table that the items are from: the new one gets its keys.
    """
    kinds = zip(source.keys, ("HASH", "RANGE"), strict=False)
    return {
        "S3BucketSource": {"S3Bucket": bucket, "S3KeyPrefix": f"{prefix.strip('/')}/"},
        "InputFormat": "DYNAMODB_JSON",
        "InputCompressionType": "GZIP",
        "TableCreationParameters": {
            "TableName": table,
            "AttributeDefinitions": [
                {"AttributeName": name, "AttributeType": kind} for name, kind in source.key_types.items()
            ],
            "KeySchema": [{"AttributeName": name, "KeyType": kind} for name, kind in kinds],
            "BillingMode": "PAY_PER_REQUEST",
        },
    }


def _packed(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Lines as objects of some size."""
    buffer = io.BytesIO()
    size, packed = 0, None
    for line in lines:
        if packed is None:
            packed = gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=_LEVEL, mtime=0)
        packed.write(line)
        size += len(line)
        if size >= _MOST_BYTES:
            packed.close()
            yield buffer.getvalue()
            buffer, size, packed = io.BytesIO(), 0, None
    if packed is not None:
        packed.close()
        yield buffer.getvalue()
