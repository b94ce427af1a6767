"""Archive: the bucket that archives are in, and for how long."""

from __future__ import annotations

from collections.abc import Iterator

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from framework.manifest import ArchiveManifest, Manifest
from infra.settings import Settings

__all__ = ["Archive"]

_NONCURRENT_DAYS = 30  # to get back in what was deleted by mistake
_UNFINISHED_DAYS = 1


class Archive(Construct):
    """The archives of an app: a bucket with a folder for each.

    Args:
        scope: The stack.
        name: The construct's id.
        manifest: The app.
        settings: The deployment.

    Attributes:
        bucket: Where the archives are.
    """

    def __init__(self, scope: Construct, name: str, manifest: Manifest, settings: Settings) -> None:
        super().__init__(scope, name)
        self._archives = manifest["archives"]
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            versioned=True,
            lifecycle_rules=[
                s3.LifecycleRule(
                    abort_incomplete_multipart_upload_after=cdk.Duration.days(_UNFINISHED_DAYS),
                    expired_object_delete_marker=True,
                    noncurrent_version_expiration=cdk.Duration.days(_NONCURRENT_DAYS),
                ),
                *(rule for archive in self._archives.values() for rule in _lifecycle(archive)),
            ],
            removal_policy=cdk.RemovalPolicy.RETAIN if settings.retain else cdk.RemovalPolicy.DESTROY,
        )

    def folders(self, table: str) -> list[str]:
        """The folders of a table's archives, by its declared name; none where it has no archive."""
        return [archive["folder"] for archive in self._archives.values() if archive["table"] == table]

    def grants(self, table: str) -> list[iam.PolicyStatement]:
        """What the consumer of a table may do here; nothing where it has no archive.

        It looks at the metadata of an object that is there already, which is a `GetObject`; without `ListBucket` one
        that is gone would look like one that it may not see (S3 API reference, HeadObject).
        """
        objects = [self.bucket.arn_for_objects(f"{folder}/*") for folder in self.folders(table)]
        if not objects:
            return []
        return [
            iam.PolicyStatement(actions=["s3:PutObject", "s3:GetObject"], resources=objects),
            iam.PolicyStatement(actions=["s3:ListBucket"], resources=[self.bucket.bucket_arn]),
        ]


def _lifecycle(archive: ArchiveManifest) -> Iterator[s3.LifecycleRule]:
    """What is declared of an archive's objects, as a rule; none where nothing is."""
    after = archive["delete_after"]
    if archive["storage"] or after is not None:
        yield s3.LifecycleRule(
            prefix=f"{archive['folder']}/",
            expiration=None if after is None else cdk.Duration.days(after),
            transitions=[
                s3.Transition(storage_class=s3.StorageClass(name), transition_after=cdk.Duration.days(days))
                for name, days in archive["storage"].items()
            ],
        )
