"""Nag: why each finding of cdk-nag's AwsSolutions that is left is left.

cdk-nag itself is on a developer's machine only; what is acknowledged here the CDK keeps beside the constructs, so
templates do not change. `tests/infra/test_lint.py` runs it, and fails on a reason that nothing needs any more.
"""

from __future__ import annotations

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.archive import Archive
from infra.consumer import Consumer
from infra.control import Control

__all__ = ["explain"]


def explain(stack: cdk.Stack, consumers: Mapping[str, Consumer], control: Control, archive: Archive | None) -> None:
    """Acknowledge, with their reasons, the findings that are meant to be so.

    Args:
        stack: The stack.
        consumers: The consumers by the source table's declared name.
        control: Control table and failure bucket.
        archive: Where the app's archives are, if it has any.
    """
    _because(
        control.bucket,
        "S1",
        "Only Lambda writes to the failure bucket and only operators read it: an access log would take a second "
        "bucket; CloudTrail's data events tell the same where they are wanted.",
    )
    if archive is not None:
        _because(
            archive.bucket,
            "S1",
            "Only the consumers write to the archives' bucket, each object once: an access log would take a second "
            "bucket; CloudTrail's data events tell who read what, where that is wanted.",
        )
    objects = _arn(stack, control.bucket, "*")
    for table, consumer in consumers.items():
        _because(
            consumer.function,
            "L1",
            "The bundle holds wheels for Python 3.13 and is tested with it: the runtime moves with them, by hand.",
        )
        _because(
            consumer.role,
            "IAM5[Resource::*]",
            "IAM knows no resource for dynamodb:ListStreams, xray:PutTraceSegments and xray:PutTelemetryRecords "
            "(service authorization reference).",
        )
        _because(
            consumer.role,
            f"IAM5[Resource::{objects}]",
            "Lambda names the objects in the failure bucket itself, by mapping, shard and time.",
        )
        if archive is not None:
            for folder in archive.folders(table):
                _because(
                    consumer.role,
                    f"IAM5[Resource::{_arn(stack, archive.bucket, f'{folder}/*')}]",
                    "The objects of an archive are named by partition, shard and sequence number, in its folder.",
                )


def _arn(stack: cdk.Stack, bucket: s3.Bucket, objects: str) -> str:
    """The ARN of a bucket's objects, as cdk-nag writes it."""
    made = bucket.node.default_child
    assert isinstance(made, cdk.CfnElement)
    return f"<{stack.get_logical_id(made)}.Arn>/{objects}"


def _because(construct: Construct, rule: str, reason: str) -> None:
    acknowledgment = cdk.Acknowledgment(id=f"AwsSolutions::AwsSolutions-{rule}", reason=reason)
    cdk.Validations.of(construct).acknowledge(acknowledgment)
