"""What an app's tables are made of, out of its declarations. Pure."""

from __future__ import annotations

from typing import Any

from framework.app import App
from framework.tables import Index, Table

__all__ = ["create_table_request"]


def create_table_request(app: App, table: Table) -> dict[str, Any]:
    """The arguments of `CreateTable` for one of an app's tables.

    On demand; with a stream of both images where an aggregation reads the table; with the indexes of the
    aggregations that write to it. An index projects the measures kept, never the watermarks: they would weigh
    on every write (DynamoDB developer guide, "Using global secondary indexes", projections).

    Args:
        app: The app.
        table: One of `app.tables`.
    """
    indexes = _indexes(app, table)
    # Aggregations that share a table or an index name the same attributes.
    types: dict[str, str] = dict(table.key_types)
    for index in indexes:
        types |= {index.pk: "S", index.sk: "N"}
    request: dict[str, Any] = {
        "TableName": table.name,
        "KeySchema": _key_schema(*table.keys),
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": of} for name, of in types.items()],
        "BillingMode": "PAY_PER_REQUEST",
    }
    if indexes:
        request["GlobalSecondaryIndexes"] = [
            {
                "IndexName": index.name,
                "KeySchema": _key_schema(index.pk, index.sk),
                "Projection": _projection(kept),
            }
            for index, kept in indexes.items()
        ]
    if any(declaration.source.name == table.name for declaration in app.declarations):
        request["StreamSpecification"] = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    return request


def _indexes(app: App, table: Table) -> dict[Index, list[str]]:
    """Each index of a table, with the attributes kept beside its keys."""
    found: dict[Index, list[str]] = {}
    for declaration in app.written_to(table.name):
        if (index := declaration.index) is not None:
            kept = found.setdefault(index, [])
            attributes = (slot.attribute for slot in declaration.slots)
            kept.extend(name for name in attributes if name != index.sk and name not in kept)
    return found


def _key_schema(pk: str, sk: str | None = None) -> list[dict[str, str]]:
    schema = [{"AttributeName": pk, "KeyType": "HASH"}]
    return schema if sk is None else [*schema, {"AttributeName": sk, "KeyType": "RANGE"}]


def _projection(kept: list[str]) -> dict[str, Any]:
    # INCLUDE without attributes is refused.
    return {"ProjectionType": "INCLUDE", "NonKeyAttributes": kept} if kept else {"ProjectionType": "KEYS_ONLY"}
