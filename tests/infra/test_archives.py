"""Archives in the template: their bucket, how long it keeps them, and who may write there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.infra.stacks import DEV, SHOP, Deployed, deploy, table
from tests.infra.test_grants import statements

READERS = {"Sessions": ["expired-sessions"], "Visits": ["web/visits"], "Accounts": ["closed-accounts"], "Orders": []}


def archive(deployed: Deployed) -> str:
    """The logical id of the bucket of the archives."""
    (output,) = (found for name, found in deployed.data["Outputs"].items() if name == "ArchiveBucket")
    return str(output["Value"]["Ref"])


# The bucket


def test_the_bucket_of_archives_is_private_encrypted_and_keeps_versions() -> None:
    found = deploy("kept")
    made = found.data["Resources"][archive(found)]
    properties = {name: value for name, value in made["Properties"].items() if name != "LifecycleConfiguration"}
    del properties["Tags"]
    assert properties == {
        "BucketEncryption": {
            "ServerSideEncryptionConfiguration": [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
        },
        "OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
        "PublicAccessBlockConfiguration": {
            "BlockPublicAcls": True,
            "BlockPublicPolicy": True,
            "IgnorePublicAcls": True,
            "RestrictPublicBuckets": True,
        },
        "VersioningConfiguration": {"Status": "Enabled"},
    }


def test_the_bucket_of_archives_takes_tls_only() -> None:
    found = deploy("kept")
    arn = {"Fn::GetAtt": [archive(found), "Arn"]}
    policy = found.properties("S3::BucketPolicy", Bucket={"Ref": archive(found)})
    assert policy["PolicyDocument"]["Statement"] == [
        {
            "Action": "s3:*",
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Resource": [arn, {"Fn::Join": ["", [arn, "/*"]]}],
        }
    ]


def test_each_archive_is_kept_as_its_declaration_says_and_nothing_that_is_left_over_for_ever() -> None:
    found = deploy("kept")
    rules = found.data["Resources"][archive(found)]["Properties"]["LifecycleConfiguration"]["Rules"]
    assert rules == [
        {
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
            "ExpiredObjectDeleteMarker": True,
            "NoncurrentVersionExpiration": {"NoncurrentDays": 30},
            "Status": "Enabled",
        },
        {
            "ExpirationInDays": 3650,
            "Prefix": "expired-sessions/",
            "Status": "Enabled",
            "Transitions": [{"StorageClass": "GLACIER_IR", "TransitionInDays": 90}],
        },
        {
            "Prefix": "closed-accounts/",
            "Status": "Enabled",
            "Transitions": [
                {"StorageClass": "STANDARD_IA", "TransitionInDays": 30},
                {"StorageClass": "DEEP_ARCHIVE", "TransitionInDays": 365},
            ],
        },
    ]


@pytest.mark.parametrize(("context", "policy"), [({}, "Retain"), (DEV, "Delete")], ids=["production", "destroy"])
def test_archives_outlive_the_stack_unless_the_stage_is_to_be_destroyed(context: dict[str, Any], policy: str) -> None:
    found = deploy("kept", **context)
    made = found.data["Resources"][archive(found)]
    assert (made["DeletionPolicy"], made["UpdateReplacePolicy"]) == (policy, policy)


# Who may write there


@pytest.mark.parametrize("read", READERS)
def test_a_consumer_may_write_to_the_archives_of_its_table_only(read: str) -> None:
    found = deploy("kept")
    bucket = {"Fn::GetAtt": [archive(found), "Arn"]}
    folders = [{"Fn::Join": ["", [bucket, f"/{folder}/*"]]} for folder in READERS[read]]
    expected: list[Any] = [(["s3:GetObject", "s3:PutObject"], each) for each in folders]
    if folders:
        expected.append((["s3:ListBucket"], bucket))
    there = json.dumps(bucket)
    assert [each for each in statements(found, read) if there in json.dumps(each[1])] == expected
    variables = found.data["Resources"][found.function(read)]["Properties"]["Environment"]["Variables"]
    assert variables.get("STREAMFOLD_ARCHIVE") == ({"Ref": archive(found)} if folders else None)


@pytest.mark.parametrize(("app", "context"), [("music", {}), ("shop", SHOP)], ids=["music", "shop"])
def test_an_app_without_archives_has_nothing_of_them(app: str, context: dict[str, Any]) -> None:
    found = deploy(app, **context)
    assert len(found.all("S3::Bucket")) == 1  # the failure bucket
    assert "ArchiveBucket" not in found.data["Outputs"]
    assert "STREAMFOLD_ARCHIVE" not in json.dumps(found.data)
    assert "s3:GetObject" not in json.dumps(found.data)


def test_the_time_to_live_is_on_and_the_stream_has_the_old_images() -> None:
    found = deploy("kept")
    for name, ttl in (("Sessions", "ExpiresAt"), ("Visits", "expires"), ("Accounts", None)):
        made = table(found, name)
        assert made["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}
        assert made.get("TimeToLiveSpecification") == (ttl and {"AttributeName": ttl, "Enabled": True})
