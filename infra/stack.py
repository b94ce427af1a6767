"""The stack: one app in one stage. Each concern has a module of its own; here they are put together."""

from __future__ import annotations

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from framework.manifest import Manifest
from infra.archive import Archive
from infra.checks import check, warn
from infra.consumer import Consumer
from infra.control import Control
from infra.monitoring import monitor
from infra.nag import explain
from infra.settings import Settings
from infra.tables import tables_of

__all__ = ["ROOT", "StreamfoldStack"]

ROOT = Path(__file__).resolve().parent.parent


class StreamfoldStack(cdk.Stack):
    """Tables, one consumer a table, control table, failure bucket, archives, alarms and a dashboard.

    Args:
        scope: The CDK app.
        name: The stack's name.
        manifest: What the app needs.
        settings: How it is deployed.
        code: The functions' bundle.
        digest: What tells it from other bundles.
        root: The checkout, for the snapshot of deployed indexes.

    Raises:
        ConfigurationError: A combination that cannot work.
    """

    def __init__(
        self,
        scope: Construct,
        name: str,
        manifest: Manifest,
        settings: Settings,
        *,
        code: lambda_.Code,
        digest: str,
        root: Path = ROOT,
    ) -> None:
        check(manifest, settings, root)
        super().__init__(
            scope,
            name,
            env=cdk.Environment(account=settings.account, region=settings.region),
            description=f"Streamfold: {manifest['name']}, stage {settings.stage}",
            termination_protection=settings.retain,
        )
        cdk.Tags.of(self).add("streamfold:app", manifest["name"])
        cdk.Tags.of(self).add("streamfold:stage", settings.stage)
        tables = tables_of(self, manifest, settings, root)
        control = Control(self, "Control", retain=settings.retain)
        archive = Archive(self, "Archive", manifest, settings) if manifest["archives"] else None
        consumers = {
            table: Consumer(self, f"{table}Consumer", table, manifest, settings, tables, control, archive, code, digest)
            for table in manifest["consumers"]
        }
        warn(self, manifest, settings)
        # For `infra/indexes.py`, which reads it back after the deployment.
        indexes = {name: dict(deployed.indexes) for name, deployed in tables.items() if deployed.new}
        shards = {table: shape["shards"] for table, shape in manifest["tables"].items()}
        self.template_options.metadata = {"streamfold": {"stack": name, "indexes": indexes, "shards": shards}}
        # What the operator's commands ask for.
        cdk.CfnOutput(self, "ControlTable", value=control.table.table_name)
        cdk.CfnOutput(self, "FailureBucket", value=control.bucket.bucket_name)
        if archive is not None:
            cdk.CfnOutput(self, "ArchiveBucket", value=archive.bucket.bucket_name)
        monitor(self, name, settings, tables, consumers, control)
        explain(self, consumers, control, archive)
