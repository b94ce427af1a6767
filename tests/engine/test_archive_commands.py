"""The commands on an emulated S3 and DynamoDB: compact, verify, restore, and a native import of what restore wrote."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest

from framework.archive_newest import Selection
from framework.archive_objects import ArchiveObjects
from framework.archive_table import check_keys
from framework.codec import encode_item
from framework.compact import Compaction, Limits
from framework.deliver_archive import Bucket
from framework.native_import import check_prefix, import_request, write_import
from framework.restore import Choice, Restore, TimeToLive, time_to_live
from framework.verify import Verification
from tests.engine.test_archive_import import _same, client
from tests.engine.test_archive_read_back import Sessions, item, sessions
from tests.unit.shelf import Shelf

__all__ = ["client"]  # a fixture

ITEMS = 60


@pytest.fixture
def archive(client: Any) -> ArchiveObjects:
    """An archive of objects of five items each, with an older version of the first item."""
    random, s3, shelf = Random(3), client("s3"), Shelf(Sessions)
    s3.create_bucket(Bucket="archive")
    items = [item(random, 0), *(item(random, number) for number in range(ITEMS))]
    for first in range(0, len(items), 5):
        shelf.file(first, items[first : first + 5], partition=f"{Sessions._declaration.partition_key}=2018-01")
    for name, content in shelf.objects.objects.items():
        s3.put_object(Bucket="archive", Key=name, Body=content, Metadata=shelf.objects._about[name]["Metadata"])
    made = ArchiveObjects(Bucket(lambda: s3, "archive"), Sessions._declaration)
    made.items = {str(each["id"]): encode_item(each) for each in items}  # type: ignore[attr-defined]
    return made


def held(dynamodb: Any, table: str) -> dict[str, Any]:
    pages = dynamodb.get_paginator("scan").paginate(TableName=table)
    return {one["id"]["N"]: one for page in pages for one in page["Items"]}


def equal(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return found.keys() == expected.keys() and all(
        found[key].keys() == each.keys() and all(_same(found[key][name], each[name]) for name in each)
        for key, each in expected.items()
    )


def test_what_is_compacted_is_right_and_comes_back_equal(archive: Any, client: Any) -> None:
    later = time.time() + 3 * 86_400
    (done,) = Compaction(archive, Limits(), now=lambda: later).run()
    assert (done.before, done.after, done.deleted, done.problems) == (13, 1, 13, [])
    assert next(Compaction(archive, Limits(), now=lambda: later).run()).before == 0
    dynamodb = client("dynamodb")
    request = import_request("archive", "imports", "Restored", sessions)
    dynamodb.create_table(**request["TableCreationParameters"])
    check_keys(dynamodb, "Restored", sessions)
    ttl = time_to_live(dynamodb, "Restored", TimeToLive())
    choice = Choice(archive, Selection(), ttl)
    done = Restore(dynamodb, "Restored", choice).run(choice.survey())
    assert (done.restored, done.there) == (ITEMS, 0)
    assert equal(held(dynamodb, "Restored"), archive.items)
    (found,) = Verification(archive).run()
    assert (found.items, found.problems) == (ITEMS + 1, [])
    (found,) = Verification(archive, dynamodb, "Restored").run()
    assert {each.reason for each in found.problems} == {"expected an item that is gone, came it in Restored"}
    check_prefix(archive, "imports")
    assert write_import(archive, choice, choice.survey(), "imports") == ITEMS
    choice.close()
    request["TableCreationParameters"]["TableName"] = "Imported"
    arn = dynamodb.import_table(**request)["ImportTableDescription"]["ImportArn"]
    for _ in range(600):
        status = dynamodb.describe_import(ImportArn=arn)["ImportTableDescription"]["ImportStatus"]
        if status != "IN_PROGRESS":
            break
        time.sleep(0.05)
    assert status == "COMPLETED"
    assert equal(held(dynamodb, "Imported"), archive.items)
