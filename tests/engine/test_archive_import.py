"""An archive, put into an emulated bucket, is what DynamoDB's import from S3 takes: an equal table comes of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import boto3
import pytest
from botocore.config import Config
from moto import mock_aws
from py_partiql_parser import JsonParser

from framework import App
from framework.codec import encode_item
from framework.consumer import Consumer
from framework.control import Control
from framework.deliver_archive import Bucket
from framework.local.memory import MemoryDynamoDB
from framework.local.world import CONTROL, CONTROL_REQUEST
from framework.testing import event, expired
from tests.engine.test_archive_read_back import Sessions, item, sessions

ITEMS = 300
AT = 1_517_443_190.0


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    # moto's own reader of JSON lines knows no escapes, and gives up at an empty map.
    monkeypatch.setattr(JsonParser, "parse", lambda original: map(json.loads, original.splitlines()))
    with mock_aws():
        config = Config(account_id_endpoint_mode="disabled")
        yield lambda service: boto3.client(service, config=config)


def no_object(name: str, content: bytes) -> None:
    raise AssertionError(f"no record is set aside, came {name}")


def imported(dynamodb: Any, table: str) -> str:
    arn = dynamodb.import_table(
        S3BucketSource={"S3Bucket": "archive", "S3KeyPrefix": "sessions/"},
        InputFormat="DYNAMODB_JSON",
        InputCompressionType="GZIP",
        TableCreationParameters={
            "TableName": table,
            "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "N"}],
            "BillingMode": "PAY_PER_REQUEST",
        },
    )["ImportTableDescription"]["ImportArn"]
    for _ in range(600):
        found = dynamodb.describe_import(ImportArn=arn)["ImportTableDescription"]
        if found["ImportStatus"] != "IN_PROGRESS":
            return str(found["ImportStatus"])
        time.sleep(0.05)
    raise AssertionError("expected the import to end within 30 s")


def test_an_archive_imports_into_an_equal_table(client: Any) -> None:
    random, s3, dynamodb = Random(3), client("s3"), client("dynamodb")
    s3.create_bucket(Bucket="archive")
    engine = MemoryDynamoDB()
    engine.create_table(**CONTROL_REQUEST)
    items = [item(random, number) for number in range(ITEMS)]
    control, bucket = Control(engine, CONTROL, no_object), Bucket(lambda: s3, "archive")
    consumer = Consumer(App("archive", [Sessions]), "Sessions", engine, control=control, bucket=bucket)
    for first in range(0, ITEMS, 100):
        batch = event(*(expired(sessions, each) for each in items[first : first + 100]), at=AT)
        for _ in range(2):  # and once more
            assert consumer(batch)["batchItemFailures"] == []
    assert imported(dynamodb, "Restored") == "COMPLETED"
    found = {
        one["id"]["N"]: one
        for page in dynamodb.get_paginator("scan").paginate(TableName="Restored")
        for one in page["Items"]
    }
    assert found.keys() == {str(number) for number in range(ITEMS)}
    for each in items:
        expected = encode_item(each)
        came = found[str(each["id"])]
        assert came.keys() == expected.keys()
        assert all(_same(came[name], expected[name]) for name in expected), (came, expected)


def _same(one: Any, other: Any) -> bool:
    """Whether two raw values are equal; a set's elements are in no order."""
    ((kind, value),), ((other_kind, other_value),) = one.items(), other.items()
    if kind in ("SS", "NS", "BS"):
        return kind == other_kind and sorted(value) == sorted(other_value)
    return bool(one == other)
