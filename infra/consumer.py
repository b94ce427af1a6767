"""Consumer: one function for all handlers of a table, its mapping to the table's stream, and what it may do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from framework.manifest import Manifest
from infra.archive import Archive
from infra.checks import TUMBLING_SECONDS
from infra.control import Control
from infra.settings import ConsumerSettings, Settings
from infra.tables import DeployedTable

__all__ = ["Consumer"]

# An hour before the stream loses a record, Lambda puts it into the bucket: after that there is nothing to put.
_MAX_AGE_SECONDS = 23 * 3600
_ENTRY = "framework.runtime.handler"


class Consumer(Construct):
    """The consumer of one table's stream.

    Args:
        scope: The stack.
        name: The construct's id.
        table: The source table's declared name.
        manifest: The app.
        settings: The deployment.
        tables: The app's tables.
        control: Control table and failure bucket.
        archive: Where the app's archives are; None if it has none.
        code: The bundle.
        digest: What tells it from other bundles.

    Attributes:
        role: The function's role.
        function: The function.
        mapping: Its event source mapping.
    """

    def __init__(
        self,
        scope: Construct,
        name: str,
        table: str,
        manifest: Manifest,
        settings: Settings,
        tables: Mapping[str, DeployedTable],
        control: Control,
        archive: Archive | None,
        code: lambda_.Code,
        digest: str,
    ) -> None:
        super().__init__(scope, name)
        ours = settings.consumer(table)
        self.role = iam.Role(
            self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"), description=f"Streamfold: {table}"
        )
        log = logs.LogGroup(
            self,
            "Log",
            removal_policy=cdk.RemovalPolicy.RETAIN if settings.retain else cdk.RemovalPolicy.DESTROY,
        )
        # The construct takes names of days only.
        cast(logs.CfnLogGroup, log.node.default_child).retention_in_days = ours.log_days
        log.grant_write(self.role)
        # Of all tables: one may have in the account the name that another is declared with.
        names = {declared: settings.physical(declared) for declared in manifest["tables"]}
        renamed = json.dumps({d: p for d, p in names.items() if d != p})
        kept = archive if archive is not None and archive.folders(table) else None
        self.function = lambda_.Function(
            self,
            "Function",
            description=f"Streamfold: {', '.join(manifest['consumers'][table]['handlers'])}"[:256],
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            handler=_ENTRY,
            code=code,
            role=self.role,
            memory_size=ours.memory,
            timeout=cdk.Duration.seconds(ours.timeout),
            tracing=lambda_.Tracing.ACTIVE,
            log_group=log,
            logging_format=lambda_.LoggingFormat.JSON,
            environment={
                "STREAMFOLD_APP": settings.app,
                "STREAMFOLD_TABLE": settings.physical(table),
                "STREAMFOLD_CONTROL": control.table.table_name,
                "STREAMFOLD_BUCKET": control.bucket.bucket_name,
                "STREAMFOLD_DELIVERY": ours.delivery,
                "STREAMFOLD_NAMES": renamed,
                "STREAMFOLD_VERSION": _version(digest, settings.app, renamed),
                **({"STREAMFOLD_ARCHIVE": kept.bucket.bucket_name} if kept is not None else {}),
            },
        )
        self._grant(table, manifest, tables, control, kept)
        self.mapping = self._map(table, manifest, ours, tables, control)

    def _grant(
        self,
        table: str,
        manifest: Manifest,
        tables: Mapping[str, DeployedTable],
        control: Control,
        archive: Archive | None,
    ) -> None:
        stream = tables[table].table.table_stream_arn
        statements = [
            iam.PolicyStatement(
                actions=[f"dynamodb:{action}" for action in ("DescribeStream", "GetRecords", "GetShardIterator")],
                resources=[str(stream)],
            ),
            # IAM knows no resource for it (service authorization reference, Amazon DynamoDB).
            iam.PolicyStatement(actions=["dynamodb:ListStreams"], resources=["*"]),
            iam.PolicyStatement(actions=["s3:ListBucket"], resources=[control.bucket.bucket_arn]),
            iam.PolicyStatement(actions=["s3:PutObject"], resources=[control.bucket.arn_for_objects("*")]),
            iam.PolicyStatement(
                actions=[f"dynamodb:{action}" for action in ("GetItem", "PutItem", "Query", "UpdateItem")],
                resources=[control.table.table_arn],
            ),
            *(
                iam.PolicyStatement(
                    actions=[f"dynamodb:{action}" for action in actions],
                    resources=[tables[target].table.table_arn],
                )
                for target, actions in manifest["consumers"][table]["grants"].items()
            ),
            *(archive.grants(table) if archive is not None else []),
        ]
        for statement in statements:
            self.role.add_to_policy(statement)

    def _map(
        self,
        table: str,
        manifest: Manifest,
        ours: ConsumerSettings,
        tables: Mapping[str, DeployedTable],
        control: Control,
    ) -> lambda_.CfnEventSourceMapping:
        # It reads the stream as soon as it is made; it comes after the function, and that after its role's policy.
        return lambda_.CfnEventSourceMapping(
            self,
            "Mapping",
            event_source_arn=tables[table].table.table_stream_arn,
            function_name=self.function.function_arn,
            starting_position="TRIM_HORIZON",
            batch_size=ours.batch_size,
            maximum_batching_window_in_seconds=ours.batching_window,
            tumbling_window_in_seconds=TUMBLING_SECONDS if ours.delivery == "lanes" else None,
            parallelization_factor=ours.parallelization,
            function_response_types=["ReportBatchItemFailures"],
            bisect_batch_on_function_error=True,
            maximum_retry_attempts=ours.retries,
            maximum_record_age_in_seconds=_MAX_AGE_SECONDS,
            destination_config=lambda_.CfnEventSourceMapping.DestinationConfigProperty(
                on_failure=lambda_.CfnEventSourceMapping.OnFailureProperty(destination=control.bucket.bucket_arn)
            ),
            filter_criteria=lambda_.CfnEventSourceMapping.FilterCriteriaProperty(
                filters=[
                    lambda_.CfnEventSourceMapping.FilterProperty(pattern=text)
                    for text in manifest["consumers"][table]["filters"]
                ]
            ),
        )


def _version(*parts: str) -> str:
    """Names what a function counts by: its code, and the configuration that it reads records by (`turns.py`)."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
