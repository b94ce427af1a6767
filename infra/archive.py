"""Archive: the bucket that archives are in, for how long, and what Athena reads them by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from framework.manifest import ArchiveManifest, Manifest
from infra.settings import ArchiveSettings, Settings

__all__ = ["DIVISIONS", "Archive", "Division"]

_NONCURRENT_DAYS = 30  # to get back in what was deleted by mistake
_UNFINISHED_DAYS = 1
# Where Athena begins to look: no archive by the day of deletion is older than this kind of handler, and few items have
# a time of their own that is before DynamoDB's.
_SINCE_DELETION, _SINCE_ATTRIBUTE = "2025-01-01", "2012-01-01"
_UNTIL_DELETION, _UNTIL_ATTRIBUTE = "NOW", "NOW+5YEARS"  # a time of their own may be ahead
# Of these an object has to be restored before it can be read, and Athena reads it then only if it is told to (Athena
# user guide, "Query restored Amazon S3 Glacier objects").
_FROZEN = {"GLACIER", "DEEP_ARCHIVE"}
_SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
_INPUT = "org.apache.hadoop.mapred.TextInputFormat"
_OUTPUT = "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"
# It is in no line: JSON writes it as \t.
_DELIMITER = "\t"


@dataclass(frozen=True, slots=True)
class Division:
    """How an archive's partitions are called.

    Attributes:
        form: A label's form, as Athena has it.
        unit: How far it is from one to the next.
        rest: What makes a label the text of a day.
    """

    form: str
    unit: str
    rest: str


# By the key of the partitions, as in `ArchiveDeclaration.partition_key`.
DIVISIONS = {
    "date": Division("yyyy-MM-dd", "DAYS", ""),
    "month": Division("yyyy-MM", "MONTHS", "-01"),
    "year": Division("yyyy", "YEARS", "-01-01"),
}


class Archive(Construct):
    """The archives of an app: a bucket with a folder for each, and a Glue database with a table for each.

    Args:
        scope: The stack.
        name: The construct's id.
        manifest: The app.
        settings: The deployment.

    Attributes:
        bucket: Where the archives are.
        database: The name of the Glue database.
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
        app = manifest["name"]
        self.database = f"streamfold_{_identifier(app)}_{_identifier(settings.stage)}"
        database = glue.CfnDatabase(
            self,
            "Database",
            catalog_id=cdk.Aws.ACCOUNT_ID,
            database_input=glue.CfnDatabase.DatabaseInputProperty(
                name=self.database, description=f"Streamfold: archives of {app}, stage {settings.stage}"
            ),
        )
        for each, archive in self._archives.items():
            glue.CfnTable(
                self,
                f"{each}-table",  # so that no other part can have this id
                catalog_id=cdk.Aws.ACCOUNT_ID,
                database_name=database.ref,
                table_input=self._table(each, archive, settings.archive(each)),
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

    def _table(
        self, name: str, archive: ArchiveManifest, settings: ArchiveSettings
    ) -> glue.CfnTable.TableInputProperty:
        """A table whose partitions Athena works out itself, so that nothing has to crawl the bucket.

        A row is a line, as text, which Athena's functions for JSON read with all names and types as they are (Athena
        user guide, "Extract JSON data from strings"). The SerDes for JSON need the attributes beforehand, as columns,
        or a map whose values are of one type; of the one that would read other values as text, AWS says that its
        results can be non-deterministic (Athena user guide, "OpenX JSON SerDe"). An object without a line has no row.
        """
        key, folder = archive["partition"], f"s3://{self.bucket.bucket_name}/{archive['folder']}/"
        column = glue.CfnTable.ColumnProperty
        return glue.CfnTable.TableInputProperty(
            name=_identifier(name),
            description=f"Streamfold: items that are gone from the table {archive['table']}",
            table_type="EXTERNAL_TABLE",
            parameters={"EXTERNAL": "TRUE", **_projection(archive, settings, folder), **_restored(archive)},
            partition_keys=[column(name=key, type="string")],
            storage_descriptor=glue.CfnTable.StorageDescriptorProperty(
                columns=[column(name="line", type="string", comment='DynamoDB JSON: {"Item": {...}}')],
                location=folder,
                input_format=_INPUT,
                output_format=_OUTPUT,
                serde_info=glue.CfnTable.SerdeInfoProperty(
                    serialization_library=_SERDE,
                    parameters={"field.delim": _DELIMITER, "serialization.format": _DELIMITER},
                ),
            ),
        )


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


def _projection(archive: ArchiveManifest, settings: ArchiveSettings, folder: str) -> dict[str, str]:
    """In which partitions Athena looks (Athena user guide, "Supported types for partition projection")."""
    key = archive["partition"]
    division = DIVISIONS[key]
    by_deletion = archive["by_deletion"]
    since = settings.since or (_SINCE_DELETION if by_deletion else _SINCE_ATTRIBUTE).removesuffix(division.rest)
    until = settings.until or (_UNTIL_DELETION if by_deletion else _UNTIL_ATTRIBUTE)
    return {
        "projection.enabled": "true",
        f"projection.{key}.type": "date",
        f"projection.{key}.format": division.form,
        f"projection.{key}.range": f"{since},{until}",
        f"projection.{key}.interval": "1",
        f"projection.{key}.interval.unit": division.unit,
        "storage.location.template": f"{folder}{key}=${{{key}}}/",
    }


def _restored(archive: ArchiveManifest) -> dict[str, str]:
    return {"read_restored_glacier_objects": "true"} if _FROZEN & archive["storage"].keys() else {}


def _identifier(name: str) -> str:
    """A name as Athena takes it without quotes; two that differ still do, for none has an underscore."""
    return name.replace("-", "_")
