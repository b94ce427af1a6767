"""The tables of an app's manifest as requests to make them. Pure."""

from __future__ import annotations

from typing import Any

from framework.app import App
from framework.manifest import IndexManifest, Key, manifest
from framework.tables import Table

__all__ = ["create_table_request"]


def create_table_request(app: App, table: Table) -> dict[str, Any]:
    """The arguments of `CreateTable` for one of an app's tables: on demand, with its stream and its indexes.

    Args:
        app: The app.
        table: One of `app.tables`.
    """
    found = manifest(app)["tables"][table.name]
    keys = [key for key in (found["pk"], found["sk"]) if key is not None]
    indexed = [key for index in found["indexes"].values() for key in (index["pk"], index["sk"])]
    types = {key["name"]: key["type"] for key in (*keys, *indexed)}
    request: dict[str, Any] = {
        "TableName": table.name,
        "KeySchema": _key_schema(*keys),
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": of} for name, of in types.items()],
        "BillingMode": "PAY_PER_REQUEST",
    }
    if found["indexes"]:
        request["GlobalSecondaryIndexes"] = [_index(name, index) for name, index in found["indexes"].items()]
    if found["stream"]:
        request["StreamSpecification"] = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    return request


def _index(name: str, index: IndexManifest) -> dict[str, Any]:
    # INCLUDE without attributes is refused.
    projection = {"ProjectionType": "INCLUDE", "NonKeyAttributes": index["include"]}
    return {
        "IndexName": name,
        "KeySchema": _key_schema(index["pk"], index["sk"]),
        "Projection": projection if index["include"] else {"ProjectionType": "KEYS_ONLY"},
    }


def _key_schema(pk: Key, sk: Key | None = None) -> list[dict[str, str]]:
    schema = [{"AttributeName": pk["name"], "KeyType": "HASH"}]
    return schema if sk is None else [*schema, {"AttributeName": sk["name"], "KeyType": "RANGE"}]
