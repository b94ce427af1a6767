"""Checks: combinations that cannot work are told at synth, in a sentence."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import aws_cdk as cdk
from aws_cdk.region_info import RegionInfo

from framework.errors import ConfigurationError
from framework.manifest import ArchiveManifest, Manifest
from infra.archive import DIVISIONS
from infra.indexes import indexes_now, refuse_fewer_shards
from infra.settings import Settings

__all__ = ["TUMBLING_SECONDS", "check", "warn"]

TUMBLING_SECONDS = 900  # the longest: it is there for the shard id that comes with it, not for its state
_MOST_READERS = 2  # AWS facts: the stream
_MOST_INDEXES = 20  # DynamoDB developer guide, quotas


def check(manifest: Manifest, settings: Settings, root: Path) -> None:
    """Check a deployment as a whole.

    Raises:
        ConfigurationError: Names the place, what was expected and what came.
    """
    for kind, names, known in (
        ("tables", settings.tables, manifest["tables"]),
        ("consumers", settings.consumers, manifest["consumers"]),
        ("archives", settings.archives, manifest["archives"]),
    ):
        for name in names:
            if name not in known:
                choices = ", ".join(known) or "it has none"
                raise ConfigurationError(
                    f"context: {kind}.{name}: expected one of the app's {kind} ({choices}), came {name!r}"
                )
    _check_arn("alarmTopic", settings.alarm_topic, settings)
    physical = [settings.physical(name) for name in manifest["tables"]]
    if len(set(physical)) < len(physical):
        raise ConfigurationError(f"context: tables: expected a name of its own for each, came {', '.join(physical)}")
    for name in manifest["consumers"]:
        _check_consumer(name, settings)
    for name, archive in manifest["archives"].items():
        _check_archive(name, archive, settings)
    for name, shape in manifest["tables"].items():
        _check_arn(f"tables.{name}.streamArn", settings.table(name).stream_arn, settings)
        if "__proto__" in (name, *shape["indexes"]):
            raise ConfigurationError(f"table {name!r}: expected names that the CDK's maps can hold, came '__proto__'")
        if len(shape["indexes"]) > _MOST_INDEXES:
            raise ConfigurationError(
                f"table {name!r}: expected at most {_MOST_INDEXES} indexes, DynamoDB's default, "
                f"came {len(shape['indexes'])}"
            )
        refuse_fewer_shards(root, settings.stack(manifest["name"]), name, shape["shards"])
        if not settings.table(name).existing:
            indexes_now(root, settings, manifest["name"], name, shape["indexes"])


def _check_arn(where: str, arn: str | None, settings: Settings) -> None:
    """A stream and a topic have to be where the stack is."""
    if arn is None:
        return
    _, partition, _, region, *_ = arn.split(":")
    if settings.region not in (None, region):
        raise ConfigurationError(f"context: {where}: expected one in {settings.region}, came {arn}")
    expected = RegionInfo.get(region).partition or partition  # a new Region's is not known
    if partition != expected:
        raise ConfigurationError(f"context: {where}: expected arn:{expected}:... in {region}, came {arn}")


def _check_consumer(name: str, settings: Settings) -> None:
    table, consumer = settings.table(name), settings.consumer(name)
    if table.existing and table.stream_arn is None:
        raise ConfigurationError(
            f"context: tables.{name}: expected a streamArn, since a consumer reads the table, came none: turn its "
            "stream on with the view type NEW_AND_OLD_IMAGES and give its ARN"
        )
    if table.readers + 1 > _MOST_READERS:
        raise ConfigurationError(
            f"context: tables.{name}.readers: expected at most {_MOST_READERS - 1}, since a stream takes "
            f"{_MOST_READERS} readers and the consumer is one, came {table.readers}"
        )
    if consumer.batch_size > 10 and consumer.batching_window < 1:
        raise ConfigurationError(
            f"context: consumers.{name}.batchingWindow: expected at least 1 for a batchSize above 10, as Lambda does, "
            f"came {consumer.batching_window}"
        )
    if consumer.parallelization > 1 and consumer.delivery == "lanes":
        raise ConfigurationError(
            f"context: consumers.{name}.parallelization: expected 1, or the delivery 'ledger', since exactly once by "
            f"lanes needs a shard's records one batch after the other, came {consumer.parallelization}"
        )
    if consumer.delivery == "ledger":
        return
    if consumer.batching_window >= TUMBLING_SECONDS or consumer.timeout >= TUMBLING_SECONDS:
        raise ConfigurationError(
            f"context: consumers.{name}: expected a batching window and a timeout shorter than the tumbling window of "
            f"{TUMBLING_SECONDS} s, came {consumer.batching_window} s and {consumer.timeout} s"
        )


def _check_archive(name: str, archive: ArchiveManifest, settings: Settings) -> None:
    table, ours, division = archive["table"], settings.archive(name), DIVISIONS[archive["partition"]]
    if settings.consumer(table).delivery != "lanes":
        raise ConfigurationError(
            f"context: consumers.{table}.delivery: expected 'lanes', since the archive {name!r} goes by the order of a "
            f"shard's records, came {settings.consumer(table).delivery!r}"
        )
    for key, label in (("since", ours.since), ("until", ours.until)):
        try:
            if label is not None:
                date.fromisoformat(label + division.rest)
        except ValueError:
            raise ConfigurationError(
                f"context: archives.{name}.{key}: expected a partition's label of the form {division.form}, "
                f"came {label!r}"
            ) from None
    if ours.since is not None and ours.until is not None and ours.since > ours.until:
        raise ConfigurationError(
            f"context: archives.{name}.until: expected {ours.since} or later, as in since, came {ours.until!r}"
        )


def warn(scope: cdk.Stack, manifest: Manifest, settings: Settings) -> None:
    """Say at synth where a mapping lets through more than its handlers need, and where its records do not count."""
    for name, consumer in manifest["consumers"].items():
        for warning in consumer["warnings"]:
            cdk.Annotations.of(scope).add_warning_v2(f"streamfold:filter:{name}", warning)
        home, here = manifest["tables"][name]["home"], _region(settings, name)
        if home is not None and here not in (None, home):
            cdk.Annotations.of(scope).add_warning_v2(
                f"streamfold:home:{name}",
                f"{name}: its records count in its home Region {home}, so in {here} its consumer acknowledges them and "
                "does nothing.",
            )


def _region(settings: Settings, table: str) -> str | None:
    """The Region that a table is deployed in, as far as it is known at synth."""
    arn = settings.table(table).stream_arn
    return arn.split(":")[3] if settings.region is None and arn is not None else settings.region
