"""Tables: new ones as the manifest has them, existing ones by name and stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from framework.manifest import IndexManifest, Key, Manifest, TableManifest
from infra.indexes import indexes_now
from infra.settings import Capacity, Settings, TableSettings

__all__ = ["DeployedTable", "tables_of"]

_TYPES = {
    "S": dynamodb.AttributeType.STRING,
    "N": dynamodb.AttributeType.NUMBER,
    "B": dynamodb.AttributeType.BINARY,
}
_TARGET_USE = 70  # per cent of provisioned capacity, the value that AWS suggests


@dataclass(frozen=True, slots=True)
class DeployedTable:
    """A table of the app.

    Attributes:
        table: The construct.
        new: Whether it is made here.
        indexes: The indexes that it has after this deployment.
        provisioned: Whether its capacity is provisioned.
    """

    table: dynamodb.ITable
    new: bool
    indexes: Mapping[str, IndexManifest]
    provisioned: bool


def tables_of(scope: Construct, manifest: Manifest, settings: Settings, root: Path) -> dict[str, DeployedTable]:
    """The app's tables by their declared names."""
    # A place of their own, since a table may have any name, `Control` too; `constructor` is none for a construct.
    scope = Construct(scope, "Tables")
    found: dict[str, DeployedTable] = {}
    for name, shape in manifest["tables"].items():
        table = settings.table(name)
        if table.existing:
            found[name] = DeployedTable(_existing(scope, name, table), False, shape["indexes"], False)
        else:
            indexes = indexes_now(root, settings, manifest["name"], name, shape["indexes"])
            made = _new(scope, name, shape, indexes, settings)
            found[name] = DeployedTable(made, True, indexes, _provisioned(table) is not None)
    return found


def _existing(scope: Construct, name: str, settings: TableSettings) -> dynamodb.ITable:
    if settings.stream_arn is not None:
        return dynamodb.Table.from_table_attributes(
            scope,
            f"{name}Table",
            table_arn=settings.stream_arn.partition("/stream/")[0],
            table_stream_arn=settings.stream_arn,
        )
    return dynamodb.Table.from_table_name(scope, f"{name}Table", settings.name or name)


def _new(
    scope: Construct, name: str, shape: TableManifest, indexes: Mapping[str, IndexManifest], settings: Settings
) -> dynamodb.Table:
    capacities = _provisioned(settings.table(name))
    read, write = (None, None) if capacities is None else (capacity.least for capacity in capacities)
    table = dynamodb.Table(
        scope,
        f"{name}Table",
        table_name=settings.physical(name),
        partition_key=_attribute(shape["pk"]),
        sort_key=None if shape["sk"] is None else _attribute(shape["sk"]),
        billing_mode=dynamodb.BillingMode.PROVISIONED if capacities else dynamodb.BillingMode.PAY_PER_REQUEST,
        read_capacity=read,
        write_capacity=write,
        stream=dynamodb.StreamViewType.NEW_AND_OLD_IMAGES if shape["stream"] else None,
        time_to_live_attribute=shape["ttl"],
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        deletion_protection=settings.retain,
        removal_policy=cdk.RemovalPolicy.RETAIN if settings.retain else cdk.RemovalPolicy.DESTROY,
    )
    for index_name, index in indexes.items():
        table.add_global_secondary_index(
            index_name=index_name,
            partition_key=_attribute(index["pk"]),
            sort_key=_attribute(index["sk"]),
            projection_type=dynamodb.ProjectionType.INCLUDE if index["include"] else dynamodb.ProjectionType.KEYS_ONLY,
            non_key_attributes=index["include"] or None,
            read_capacity=read,
            write_capacity=write,
        )
    if capacities:
        _scale(table, indexes, *capacities)
    return table


def _provisioned(settings: TableSettings) -> tuple[Capacity, Capacity] | None:
    """The capacity for reads and for writes; None if the table is on demand."""
    if settings.read is None and settings.write is None:
        return None
    return settings.read or _LEAST, settings.write or _LEAST


_LEAST = Capacity(least=5, most=5)


def _scale(table: dynamodb.Table, indexes: Mapping[str, IndexManifest], read: Capacity, write: Capacity) -> None:
    for capacity, of_table, of_index in (
        (read, table.auto_scale_read_capacity, table.auto_scale_global_secondary_index_read_capacity),
        (write, table.auto_scale_write_capacity, table.auto_scale_global_secondary_index_write_capacity),
    ):
        bounds = {"min_capacity": capacity.least, "max_capacity": capacity.most}
        # An index that is short of capacity throttles its table, so each scales with it.
        for scaling in (of_table(**bounds), *(of_index(index, **bounds) for index in indexes)):
            scaling.scale_on_utilization(target_utilization_percent=_TARGET_USE)


def _attribute(key: Key) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=key["name"], type=_TYPES[key["type"]])
