"""What each function may do: the exact statements, and no resource left open where IAM knows one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.infra.stacks import ORDERS_STREAM, SHOP, Deployed, deploy

# IAM knows no resource for these (service authorization reference).
WITHOUT_RESOURCE = {"dynamodb:ListStreams", "xray:PutTelemetryRecords", "xray:PutTraceSegments"}
CONTEXTS: dict[str, dict[str, Any]] = {"music": {}, "shop": SHOP, "sparse": {}, "kept": {}}
DYNAMODB_STREAM = ["dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"]


def statements(deployed: Deployed, read: str) -> list[tuple[list[str], Any]]:
    """The actions and the resource of each statement of the role of the function that reads a table."""
    role = deployed.data["Resources"][deployed.function(read)]["Properties"]["Role"]["Fn::GetAtt"][0]
    policy = deployed.properties("IAM::Policy", Roles=[{"Ref": role}])
    found = []
    for statement in policy["PolicyDocument"]["Statement"]:
        assert statement.keys() == {"Action", "Effect", "Resource"}
        assert statement["Effect"] == "Allow"
        actions = statement["Action"]
        found.append(([actions] if isinstance(actions, str) else sorted(actions), statement["Resource"]))
    return found


# Of an aggregate: written, looked at where something is set aside, and seen not to be there.
WRITES = ["dynamodb:ConditionCheckItem", "dynamodb:GetItem", "dynamodb:UpdateItem"]


@pytest.mark.parametrize(
    ("app", "read", "writes"),
    [
        ("music", "MusicLibrary", {"MusicLibrary": WRITES}),
        ("shop", "shop-orders", {"Totals": WRITES}),
        ("shop", "Visits", {"Visits": WRITES, "Totals": WRITES}),
        ("sparse", "Visits", {"Visits": WRITES}),
        ("sparse", "CustomerOrders", {"CustomerOrders": ["dynamodb:UpdateItem"]}),
    ],
    ids=["music", "partitions", "two targets", "both kinds", "a sparse index alone"],
)
def test_a_function_may_do_what_its_handlers_need_and_nothing_else(
    app: str, read: str, writes: dict[str, list[str]]
) -> None:
    found = deploy(app, **CONTEXTS[app])
    function = found.data["Resources"][found.function(read)]["Properties"]
    log = function["LoggingConfig"]["LogGroup"]["Ref"]
    bucket = {"Fn::GetAtt": [found.id_of("S3::Bucket"), "Arn"]}
    stream: Any = ORDERS_STREAM
    if read != "shop-orders":
        stream = {"Fn::GetAtt": [found.id_of("DynamoDB::Table", TableName=read), "StreamArn"]}
    expected = [
        (["logs:CreateLogStream", "logs:PutLogEvents"], {"Fn::GetAtt": [log, "Arn"]}),
        (["xray:PutTelemetryRecords", "xray:PutTraceSegments"], "*"),
        (DYNAMODB_STREAM, stream),
        (["dynamodb:ListStreams"], "*"),
        (["s3:ListBucket"], bucket),
        (["s3:PutObject"], {"Fn::Join": ["", [bucket, "/*"]]}),
        (
            [f"dynamodb:{action}" for action in ("GetItem", "PutItem", "Query", "UpdateItem")],
            {"Fn::GetAtt": [found.control, "Arn"]},
        ),
        *((actions, found.arn(table)) for table, actions in writes.items()),
    ]
    assert sorted(statements(found, read), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("app", CONTEXTS)
def test_a_role_has_one_policy_of_its_own_and_only_lambda_takes_it(app: str) -> None:
    found = deploy(app, **CONTEXTS[app])
    roles = found.all("IAM::Role")
    assert len(found.all("IAM::Policy")) == len(roles)
    for role in roles.values():
        assert role["Properties"].keys() <= {"AssumeRolePolicyDocument", "Description", "Tags"}  # no managed policy
        assert role["Properties"]["AssumeRolePolicyDocument"]["Statement"] == [
            {"Action": "sts:AssumeRole", "Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}}
        ]


@pytest.mark.parametrize("app", CONTEXTS)
def test_no_resource_is_open_where_iam_knows_one_and_no_action_is(app: str) -> None:
    found = deploy(app, **CONTEXTS[app])
    for logical, policy in found.all("IAM::Policy").items():
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            assert not [action for action in actions if "*" in action], logical
            if "*" in json.dumps(statement["Resource"]).replace('/*"', ""):
                assert set(actions) <= WITHOUT_RESOURCE, logical


def test_a_function_may_write_to_an_imported_table_that_it_targets() -> None:
    context = {"tables": {**SHOP["tables"], "Totals": {"existing": True, "name": "all-totals"}}}
    found = deploy("shop", **context)
    assert not found.all("DynamoDB::Table", TableName="all-totals")
    (written,) = (
        resource for actions, resource in statements(found, "shop-orders") if "dynamodb:ConditionCheckItem" in actions
    )
    where = [{"Ref": f"AWS::{name}"} for name in ("Partition", "Region", "AccountId")]
    arn = ["arn:", where[0], ":dynamodb:", where[1], ":", where[2], ":table/all-totals"]
    assert written == {"Fn::Join": ["", arn]}
