"""Control: the table for state that belongs to no aggregate, and the bucket for records that Lambda gives up on."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct

__all__ = ["METRICS_ID", "Control"]

METRICS_ID = "given-up"  # of the request metrics for what Lambda puts there

_GIVEN_UP = "aws/"  # what the names of Lambda's objects begin with
_FAILURE_DAYS = 90  # to redrive in; a stream keeps its records for one


class Control(Construct):
    """The control table and the failure bucket of an app.

    Args:
        scope: The stack.
        name: The construct's id.
        retain: Whether they outlive the stack.

    Attributes:
        table: Key `pk`, `sk`; time to live `expires`.
        bucket: Records that Lambda gave up on.
    """

    def __init__(self, scope: Construct, name: str, *, retain: bool) -> None:
        super().__init__(scope, name)
        removal = cdk.RemovalPolicy.RETAIN if retain else cdk.RemovalPolicy.DESTROY
        self.table = dynamodb.Table(
            self,
            "Table",
            partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            time_to_live_attribute="expires",
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=retain,
            removal_policy=removal,
        )
        self.bucket = s3.Bucket(
            self,
            "Failures",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            metrics=[s3.BucketMetrics(id=METRICS_ID, prefix=_GIVEN_UP)],
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            lifecycle_rules=[
                # Not of what the quarantine keeps there, whose entries stay until they are settled.
                s3.LifecycleRule(prefix=_GIVEN_UP, expiration=cdk.Duration.days(_FAILURE_DAYS)),
                s3.LifecycleRule(
                    abort_incomplete_multipart_upload_after=cdk.Duration.days(1),
                ),
            ],
            removal_policy=removal,
        )
