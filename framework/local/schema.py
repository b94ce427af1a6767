"""From a CreateTable request to a table.

AWS facts: DynamoDB API reference, "CreateTable"; the naming rules are in the developer guide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from framework.local.capacity import IndexShape
from framework.local.storage import Index, Table
from framework.local.values import RefusedError

__all__ = ["table_of"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}").fullmatch
_INVALID = "One or more parameter values were invalid"
# Parameters of CreateTable that a description does not repeat, or not under this name.
_SETTINGS = frozenset({"BillingMode", "ProvisionedThroughput", "Tags", "SSESpecification", "TableClass"})


def table_of(request: Mapping[str, Any]) -> Table:
    """The empty table that a CreateTable request describes.

    Raises:
        RefusedError: Its keys are not what the service takes, or do not fit the attribute definitions.
    """
    name = request["TableName"]
    if not _NAME(name):
        raise RefusedError(f"{_INVALID}: Invalid table name: 3 to 255 of a-z A-Z 0-9 _ . -, came {name!r}")
    types = {each["AttributeName"]: each["AttributeType"] for each in request["AttributeDefinitions"]}
    keys = _keys(request["KeySchema"])
    indexes: dict[str, Index] = {}
    for parameter, local in (("GlobalSecondaryIndexes", False), ("LocalSecondaryIndexes", True)):
        for each in request.get(parameter) or ():
            index_keys = _keys(each["KeySchema"])
            projected = _projected(each.get("Projection") or {}, (*keys, *index_keys))
            indexes[each["IndexName"]] = Index(each["IndexName"], IndexShape(index_keys, projected), local)
    used = {*keys, *(key for index in indexes.values() for key in index.keys)}
    if used != set(types):
        raise RefusedError(
            f"{_INVALID}: Some AttributeDefinitions are not used, or some key attributes have no definition: "
            f"keys: {sorted(used)}, AttributeDefinitions: {sorted(types)}"
        )
    return Table(name, keys, types, indexes, _description(request))


def _keys(schema: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    kinds = [part["KeyType"] for part in schema]
    if kinds not in (["HASH"], ["HASH", "RANGE"]):
        raise RefusedError(f"{_INVALID}: Invalid KeySchema: expected HASH and maybe RANGE, came {kinds}")
    return tuple(part["AttributeName"] for part in schema)


def _projected(projection: Mapping[str, Any], keys: Sequence[str]) -> frozenset[str] | None:
    kind = projection.get("ProjectionType", "ALL")
    if kind == "ALL":
        return None
    return frozenset(keys) | frozenset(projection.get("NonKeyAttributes", ()) if kind == "INCLUDE" else ())


def _description(request: Mapping[str, Any]) -> dict[str, Any]:
    arn = f"arn:aws:dynamodb:us-east-1:000000000000:table/{request['TableName']}"
    described = {name: value for name, value in request.items() if name not in _SETTINGS}
    for parameter in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        if request.get(parameter):
            described[parameter] = [
                {**each, "IndexArn": f"{arn}/index/{each['IndexName']}"}
                | ({"IndexStatus": "ACTIVE"} if parameter.startswith("Global") else {})
                for each in request[parameter]
            ]
    return {**described, "TableStatus": "ACTIVE", "TableArn": arn}
