"""Streamfold's handler and three that a team would write by hand, all to the same tables.

streamfold   framework.consumer.Consumer on handlers.app:app: the whole entry, threads included
guide        AWS's guide: one UpdateItem a record; a redelivery counts twice
powertools   Powertools' BatchProcessor with idempotent_function around each record's update
claims       one transaction a record: the update, and a claim that no one made before
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.dynamo_db_stream_event import DynamoDBRecord
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

from framework.consumer import Consumer
from framework.local.provision import create_table_request
from handlers.app import app

__all__ = ["HANDLERS", "TABLE", "TABLES", "Handler"]

Handler = Callable[[dict[str, Any]], Any]

TABLE = "MusicLibrary"
_MARKERS = {
    "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}
# The app's own tables, and one more for those that keep a marker a record.
TABLES: list[dict[str, Any]] = [
    *(create_table_request(app, table) for table in app.tables),
    {"TableName": "Idempotency", **_MARKERS},
    {"TableName": "Claims", **_MARKERS},
]
_ONE_DAY = 86_400  # a marker has to outlive every redelivery: records live for 24 hours


class _Context:
    """What of Lambda's context is asked for."""

    def get_remaining_time_in_millis(self) -> int:
        """As at the start of the longest invocation."""
        return 900_000


def streamfold(client: Any) -> Handler:
    """The product."""
    consumer = Consumer(app, TABLE, client)
    return lambda event: consumer(event, _Context())


def guide(client: Any) -> Handler:
    """One `UpdateItem` a record."""

    def handle(event: dict[str, Any]) -> None:
        for record in event["Records"]:
            image = record["dynamodb"]["NewImage"]
            if image["SK"]["S"].startswith("download-"):
                client.update_item(**_update(image["songID"]["S"], image["Timestamp"]["S"][:7]))

    return handle


def powertools(client: Any) -> Handler:
    """An `UpdateItem` a record between the put and the update of its idempotency marker."""
    config = IdempotencyConfig(event_key_jmespath="eventID", expires_after_seconds=_ONE_DAY)
    config.register_lambda_context(_Context())  # type: ignore[arg-type]  # what is asked for suffices
    store = DynamoDBPersistenceLayer(table_name="Idempotency", boto3_client=client)
    processor = BatchProcessor(event_type=EventType.DynamoDBStreams)

    @idempotent_function(  # type: ignore[untyped-decorator]  # Powertools'
        data_keyword_argument="record", persistence_store=store, config=config
    )
    def count(record: dict[str, Any]) -> None:
        image = record["dynamodb"]["NewImage"]
        if image["SK"]["S"].startswith("download-"):
            client.update_item(**_update(image["songID"]["S"], image["Timestamp"]["S"][:7]))

    def handle_record(record: DynamoDBRecord) -> None:
        count(record=record.raw_event)

    return lambda event: process_partial_response(event, handle_record, processor)


def claims(client: Any) -> Handler:
    """A transaction a record."""

    def handle(event: dict[str, Any]) -> None:
        for record in event["Records"]:
            image = record["dynamodb"]["NewImage"]
            if image["SK"]["S"].startswith("download-"):
                expires = str(record["dynamodb"]["ApproximateCreationDateTime"] + _ONE_DAY)
                claim = {
                    "TableName": "Claims",
                    "Item": {"id": {"S": record["eventID"]}, "expires": {"N": expires}},
                    "ConditionExpression": "attribute_not_exists(id)",
                }
                update = _update(image["songID"]["S"], image["Timestamp"]["S"][:7])
                client.transact_write_items(TransactItems=[{"Put": claim}, {"Update": update}])

    return handle


def _update(song: str, month: str) -> dict[str, Any]:
    return {
        "TableName": TABLE,
        "Key": {"songID": {"S": song}, "SK": {"S": month}},
        "UpdateExpression": "ADD DownloadCount :one SET #month = :month",
        "ExpressionAttributeNames": {"#month": "Month"},
        "ExpressionAttributeValues": {":one": {"N": "1"}, ":month": {"S": month}},
    }


HANDLERS: dict[str, Callable[[Any], Handler]] = {
    "streamfold": streamfold,
    "guide": guide,
    "powertools": powertools,
    "claims": claims,
}
