"""What a deployment makes: each property of the template, for the music library and for a shop with an imported table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.infra.stacks import (
    ACCOUNT,
    CAPACITY,
    CHINA,
    DEV,
    ORDERS_STREAM,
    SHOP,
    TOPIC,
    Make,
    changes,
    deploy,
    keys,
    music,
    shop,
    table,
)

# Tables


@pytest.mark.parametrize(
    ("make", "name", "key", "ttl", "stream"),
    [
        (music, "MusicLibrary", ("songID", "SK"), None, True),
        (shop, "Visits", ("page", "at"), "expires", True),
        (shop, "Totals", ("group", "window"), None, False),
    ],
    ids=["read and written", "read, with a time to live", "only written"],
)
def test_a_new_table_is_as_declared(make: Make, name: str, key: tuple[str], ttl: str | None, stream: bool) -> None:
    deployed = make()
    found = table(deployed, name)
    assert found["KeySchema"] == keys(*key)
    assert found["BillingMode"] == "PAY_PER_REQUEST"
    assert found["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert found.get("TimeToLiveSpecification") == (ttl and {"AttributeName": ttl, "Enabled": True})
    assert found.get("StreamSpecification") == ({"StreamViewType": "NEW_AND_OLD_IMAGES"} if stream else None)


@pytest.mark.parametrize(
    ("make", "name", "index", "key", "projection"),
    [
        (music, "MusicLibrary", "MonthDownloadsIndex", ("Month", "DownloadCount"), {"ProjectionType": "KEYS_ONLY"}),
        (shop, "Visits", "ViewsIndex", ("ViewsDay", "Views"), {"ProjectionType": "KEYS_ONLY"}),
        (
            shop,
            "Totals",
            "SalesIndex",
            ("SalesMonth", "Orders"),
            {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["PriceCount", "PriceSum"]},
        ),
    ],
    ids=["music", "keys only", "with attributes"],
)
def test_an_index_holds_the_measures_and_no_lanes(
    make: Make, name: str, index: str, key: tuple[str], projection: dict[str, Any]
) -> None:
    deployed = make()
    found = table(deployed, name)
    assert found["GlobalSecondaryIndexes"] == [{"IndexName": index, "KeySchema": keys(*key), "Projection": projection}]
    types = {each["AttributeName"]: each["AttributeType"] for each in found["AttributeDefinitions"]}
    assert [types[name] for name in key] == ["S", "N"]


def test_a_table_has_its_sparse_indexes_beside_those_of_aggregations() -> None:
    visits, orders = (table(deploy("sparse"), name) for name in ("Visits", "CustomerOrders"))
    views, stays = visits["GlobalSecondaryIndexes"]
    assert (views["IndexName"], views["KeySchema"]) == ("ViewsIndex", keys("ViewsDay", "Views"))
    projection = {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["user"]}
    assert stays == {"IndexName": "LongStays", "KeySchema": keys("page", "Long"), "Projection": projection}
    types = {each["AttributeName"]: each["AttributeType"] for each in visits["AttributeDefinitions"]}
    assert types == {"page": "S", "at": "S", "ViewsDay": "S", "Views": "N", "Long": "N"}
    (open_,) = orders["GlobalSecondaryIndexes"]
    assert (open_["KeySchema"], open_["Projection"]) == (
        keys("CustomerId", "OrderOpenDate"),
        {"ProjectionType": "KEYS_ONLY"},
    )


def test_tables_and_their_consumers_are_called_what_the_context_says() -> None:
    found = music(tables={"MusicLibrary": {"name": "music-of-dev"}})
    assert table(found, "music-of-dev")
    variables = found.properties("Lambda::Function")["Environment"]["Variables"]
    assert variables["STREAMFOLD_TABLE"] == "music-of-dev"
    assert json.loads(variables["STREAMFOLD_NAMES"]) == {"MusicLibrary": "music-of-dev"}


@pytest.mark.parametrize(
    ("given", "read", "write"),
    [
        (CAPACITY, (2, 20), (3, 30)),
        ({"read": CAPACITY["read"]}, (2, 20), (5, 5)),
        ({"write": CAPACITY["write"]}, (5, 5), (3, 30)),
    ],
    ids=["both", "read", "write"],
)
def test_provisioned_capacity_starts_at_the_least_and_scales_on_table_and_index(
    given: dict[str, Any], read: tuple[int, int], write: tuple[int, int]
) -> None:
    found = music(tables={"MusicLibrary": given})
    made, name = table(found, "MusicLibrary"), found.id_of("DynamoDB::Table", TableName="MusicLibrary")
    assert made.get("BillingMode", "PROVISIONED") == "PROVISIONED"  # CloudFormation's default
    for each in (made, made["GlobalSecondaryIndexes"][0]):
        assert each["ProvisionedThroughput"] == {"ReadCapacityUnits": read[0], "WriteCapacityUnits": write[0]}
    targets = found.all("ApplicationAutoScaling::ScalableTarget")
    place = ["", ["table/", {"Ref": name}]]
    of_index = ["", ["table/", {"Ref": name}, "/index/MonthDownloadsIndex"]]
    assert sorted(
        (
            resource["Properties"]["ScalableDimension"],
            resource["Properties"]["ResourceId"]["Fn::Join"],
            resource["Properties"]["MinCapacity"],
            resource["Properties"]["MaxCapacity"],
        )
        for resource in targets.values()
    ) == [
        ("dynamodb:index:ReadCapacityUnits", of_index, *read),
        ("dynamodb:index:WriteCapacityUnits", of_index, *write),
        ("dynamodb:table:ReadCapacityUnits", place, *read),
        ("dynamodb:table:WriteCapacityUnits", place, *write),
    ]
    policies = [each["Properties"] for each in found.all("ApplicationAutoScaling::ScalingPolicy").values()]
    assert sorted(policy["ScalingTargetId"]["Ref"] for policy in policies) == sorted(targets)
    assert {policy["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] for policy in policies} == {70}


def test_an_imported_table_is_referred_to_and_nothing_about_it_is_changed() -> None:
    found = shop()
    made = {each["Properties"].get("TableName") for each in found.all("DynamoDB::Table").values()}
    assert made == {"Visits", "Totals", None}  # the last is the control table's
    # Its name and stream stand where they are read, and nowhere else.
    text = json.dumps({k: v for k, v in found.data["Resources"].items() if v["Type"] != "AWS::CloudWatch::Dashboard"})
    assert text.count(ORDERS_STREAM) == 2  # grant and mapping
    assert found.data["Metadata"]["streamfold"]["indexes"].keys() == {"Visits", "Totals"}


def test_a_table_may_be_named_like_a_part_of_the_stack_or_of_an_object() -> None:
    for name in ("Control", "Monitoring", "Dashboards", "constructor"):
        assert table(deploy(f"table {name}"), name)


# What survives


@pytest.mark.parametrize("make", [music, shop], ids=["music", "shop"])
@pytest.mark.parametrize(
    ("context", "policy", "protected"), [({}, "Retain", True), (DEV, "Delete", False)], ids=["production", "destroy"]
)
def test_data_outlives_the_stack_unless_the_stage_is_to_be_destroyed(
    make: Make, context: dict[str, Any], policy: str, protected: bool
) -> None:
    found = make(**context)
    kept = {**found.all("DynamoDB::Table"), **found.all("S3::Bucket"), **found.all("Logs::LogGroup")}
    assert {each["DeletionPolicy"] for each in kept.values()} == {policy}
    assert {each["UpdateReplacePolicy"] for each in kept.values()} == {policy}
    tables = found.all("DynamoDB::Table").values()
    assert {each["Properties"].get("DeletionProtectionEnabled", False) for each in tables} == {protected}
    assert found.stack.termination_protection is protected


@pytest.mark.parametrize(
    ("make", "name", "app", "stage"),
    [(music, "music-prod", "music", "prod"), (lambda: shop(**DEV), "shop-dev", "shop", "dev")],
    ids=["music", "shop"],
)
def test_the_stage_is_in_every_name_and_tag(make: Make, name: str, app: str, stage: str) -> None:
    deployed = make()
    assert deployed.stack.stack_name == name
    assert deployed.data["Description"] == f"Streamfold: {app}, stage {stage}"
    assert deployed.data["Metadata"]["streamfold"]["stack"] == name
    tags = [{"Key": "streamfold:app", "Value": app}, {"Key": "streamfold:stage", "Value": stage}]
    untagged = {"AWS::IAM::Policy", "AWS::S3::BucketPolicy"}  # they take none
    for logical, resource in deployed.data["Resources"].items():
        if resource["Type"] not in untagged:
            assert resource["Properties"]["Tags"] == tags, logical
    for alarm in deployed.all("CloudWatch::Alarm").values():
        assert alarm["Properties"]["AlarmName"].startswith(f"{name}-")


def test_account_and_region_are_the_commands_own_unless_given() -> None:
    given = music(region="eu-central-1", account=ACCOUNT).stack
    assert (given.account, given.region) == (ACCOUNT, "eu-central-1")
    assert music().stack.environment == "aws://unknown-account/unknown-region"


# Control table and failure bucket


@pytest.mark.parametrize("make", [music, shop], ids=["music", "shop"])
def test_the_control_table_is_on_demand_and_restorable(make: Make) -> None:
    deployed = make()
    found = deployed.properties("DynamoDB::Table", KeySchema=keys("pk", "sk"))
    del found["Tags"]
    assert found == {
        "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
        "BillingMode": "PAY_PER_REQUEST",
        "DeletionProtectionEnabled": True,
        "KeySchema": keys("pk", "sk"),
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
        "TimeToLiveSpecification": {"AttributeName": "expires", "Enabled": True},
    }


@pytest.mark.parametrize("make", [music, shop], ids=["music", "shop"])
def test_the_failure_bucket_is_private_encrypted_and_cleaned_up(make: Make) -> None:
    deployed = make()
    found = deployed.properties("S3::Bucket")
    assert {name: value for name, value in found.items() if name != "Tags"} == {
        "BucketEncryption": {
            "ServerSideEncryptionConfiguration": [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
        },
        "LifecycleConfiguration": {
            "Rules": [
                {"Prefix": "aws/", "ExpirationInDays": 90, "Status": "Enabled"},
                {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}, "Status": "Enabled"},
            ]
        },
        "MetricsConfigurations": [{"Id": "given-up", "Prefix": "aws/"}],
        "OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
        "PublicAccessBlockConfiguration": {
            "BlockPublicAcls": True,
            "BlockPublicPolicy": True,
            "IgnorePublicAcls": True,
            "RestrictPublicBuckets": True,
        },
    }


@pytest.mark.parametrize("make", [music, shop], ids=["music", "shop"])
def test_the_failure_bucket_takes_tls_only(make: Make) -> None:
    deployed = make()
    bucket = deployed.id_of("S3::Bucket")
    arn = {"Fn::GetAtt": [bucket, "Arn"]}
    policy = deployed.properties("S3::BucketPolicy", Bucket={"Ref": bucket})
    assert policy["PolicyDocument"]["Statement"] == [
        {
            "Action": "s3:*",
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Resource": [arn, {"Fn::Join": ["", [arn, "/*"]]}],
        }
    ]


# The whole


@pytest.mark.parametrize("make", [music, lambda **context: deploy("shop", **context)], ids=["music", "shop"])
def test_no_partition_is_written_out_in_china(make: Make) -> None:
    context = {**CHINA, "alarmTopic": TOPIC.replace("arn:aws:sns:eu-central-1", "arn:aws-cn:sns:cn-north-1")}
    if make is music:
        context["tables"] = {"MusicLibrary": CAPACITY}
    found = make(**context)
    assert found.stack.region == "cn-north-1"
    assert "arn:aws:" not in json.dumps(found.data)


VERSION = ("Environment", "Variables", "STREAMFOLD_VERSION")


def test_one_more_handler_changes_filters_grants_description_and_code_only() -> None:
    before = deploy("shop-before", **SHOP)
    after = deploy("shop", code="y", **SHOP)
    function = after.function("shop-orders")
    mapping = after.id_of("Lambda::EventSourceMapping", FunctionName={"Fn::GetAtt": [function, "Arn"]})
    other = after.function("Visits")
    assert set(changes(before.data, after.data)) == {
        ("Resources", function, "Properties", "Description"),
        ("Resources", function, "Properties", "Code", "ZipFile"),
        ("Resources", other, "Properties", "Code", "ZipFile"),  # the bundle is one
        *(("Resources", each, "Properties", *VERSION) for each in (function, other)),
        ("Resources", mapping, "Properties", "FilterCriteria", "Filters"),
    }


def test_a_handler_with_another_target_adds_a_grant() -> None:
    before, after = deploy("shop-before-stays", **SHOP), deploy("shop", **SHOP)
    role = after.data["Resources"][after.function("Visits")]["Properties"]["Role"]["Fn::GetAtt"][0]
    policy = after.id_of("IAM::Policy", Roles=[{"Ref": role}])
    assert ("Resources", policy, "Properties", "PolicyDocument", "Statement") in set(changes(before.data, after.data))
    old, new = (each.data["Resources"][policy]["Properties"]["PolicyDocument"]["Statement"] for each in (before, after))
    assert [each for each in new if each not in old] == [
        {
            "Action": [f"dynamodb:{action}" for action in ("UpdateItem", "GetItem", "ConditionCheckItem")],
            "Effect": "Allow",
            "Resource": after.arn("Totals"),
        }
    ]
