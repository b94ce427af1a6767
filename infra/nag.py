"""Nag: why each finding of cdk-nag's AwsSolutions that is left is left.

cdk-nag itself is on a developer's machine only; what is acknowledged here the CDK keeps beside the constructs, so
templates do not change. `tests/infra/test_lint.py` runs it, and fails on a reason that nothing needs any more.
"""

from __future__ import annotations

from collections.abc import Mapping

import aws_cdk as cdk
from constructs import Construct

from infra.consumer import Consumer
from infra.control import Control

__all__ = ["explain"]


def explain(stack: cdk.Stack, consumers: Mapping[str, Consumer], control: Control) -> None:
    """Acknowledge, with their reasons, the findings that are meant to be so.

    Args:
        stack: The stack.
        consumers: The consumers by the source table's declared name.
        control: Control table and failure bucket.
    """
    _because(
        control.bucket,
        "S1",
        "Only Lambda writes to the failure bucket and only operators read it: an access log would take a second "
        "bucket; CloudTrail's data events tell the same where they are wanted.",
    )
    bucket = control.bucket.node.default_child
    assert isinstance(bucket, cdk.CfnElement)
    objects = f"<{stack.get_logical_id(bucket)}.Arn>/*"
    for consumer in consumers.values():
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


def _because(construct: Construct, rule: str, reason: str) -> None:
    acknowledgment = cdk.Acknowledgment(id=f"AwsSolutions::AwsSolutions-{rule}", reason=reason)
    cdk.Validations.of(construct).acknowledge(acknowledgment)
