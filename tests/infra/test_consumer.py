"""The consumer: its function, its mapping to the stream with every setting, and its filters."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk.assertions import Match

from framework.app import load_app
from framework.local.memory import MemoryDynamoDB
from framework.local.provision import create_table_request
from framework.runtime import Consumer
from tests.infra.stacks import ORDERS_STREAM, SHOP, Make, archive, deploy, music, shop
from tests.unit.stream import ARN, event, record

OTHERS = {
    "MusicLibrary": {
        "batchSize": 50,
        "batchingWindow": 7,
        "memory": 1024,
        "timeout": 60,
        "retries": 12,
        "logDays": 365,
    }
}


@pytest.mark.parametrize(
    ("make", "read", "variables", "handlers"),
    [
        (music, "MusicLibrary", {"STREAMFOLD_TABLE": "MusicLibrary", "STREAMFOLD_NAMES": "{}"}, "monthly-downloads"),
        (
            shop,
            "shop-orders",
            {"STREAMFOLD_TABLE": "shop-orders", "STREAMFOLD_NAMES": '{"Orders": "shop-orders"}'},
            "sales, refunds",
        ),
        (
            shop,
            "Visits",
            {"STREAMFOLD_TABLE": "Visits", "STREAMFOLD_NAMES": '{"Orders": "shop-orders"}'},
            "views, stays",
        ),
    ],
    ids=["music", "imported", "new"],
)
def test_a_function_runs_the_bundle_on_arm_with_its_own_log(
    make: Make, read: str, variables: dict[str, str], handlers: str
) -> None:
    deployed = make()
    function = deployed.data["Resources"][deployed.function(read)]["Properties"]
    log = function["LoggingConfig"]["LogGroup"]["Ref"]
    assert {name: value for name, value in function.items() if name not in ("Role", "Tags")} == {
        "Architectures": ["arm64"],
        "Code": {"ZipFile": "x"},
        "Description": f"Streamfold: {handlers}",
        "Environment": {
            "Variables": {
                "STREAMFOLD_APP": "handlers.app:app",
                "STREAMFOLD_BUCKET": {"Ref": deployed.id_of("S3::Bucket")},
                "STREAMFOLD_CONTROL": {"Ref": deployed.control},
                "STREAMFOLD_DELIVERY": "lanes",
                "STREAMFOLD_VERSION": function["Environment"]["Variables"]["STREAMFOLD_VERSION"],
                **variables,
            }
        },
        "Handler": "framework.runtime.handler",
        "LoggingConfig": {"LogFormat": "JSON", "LogGroup": {"Ref": log}},
        "MemorySize": 512,
        "Runtime": "python3.13",
        "Timeout": 120,
        "TracingConfig": {"Mode": "Active"},
    }
    assert deployed.data["Resources"][log]["Properties"]["RetentionInDays"] == 30


@pytest.mark.parametrize(
    ("orders", "old_orders"),
    [("OldOrders", "Orders"), ("OldOrders", "Archive"), ("Archive", "Orders"), ("Orders", "Archive")],
)
def test_a_function_runs_its_tables_handlers_whatever_name_another_table_has(
    orders: str, old_orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed = deploy("archive", tables={"Orders": {"name": orders}, "OldOrders": {"name": old_orders}})
    for cls in archive.aggregations:
        monkeypatch.setattr(cls, "_declaration", cls._declaration)  # put back, since loading names the tables
    for table, handler in ((orders, "new"), (old_orders, "old")):
        function = deployed.data["Resources"][deployed.function(table)]["Properties"]
        variables = function["Environment"]["Variables"]
        assert function["Description"] == f"Streamfold: {handler}"
        monkeypatch.setenv("STREAMFOLD_NAMES", variables["STREAMFOLD_NAMES"])
        engine, arn = MemoryDynamoDB(), ARN.replace("MusicLibrary", table)
        app = load_app("tests.infra.stacks:archive")
        for each in app.tables:
            engine.create_table(**create_table_request(app, each))
        item = {"orderID": {"S": "1"}, "country": {"S": "NZ"}, "paid": {"S": "2026-01-31"}}
        batch = event({**record(1, new=item), "eventSourceARN": arn}, eventSourceARN=arn)
        assert Consumer(app, variables["STREAMFOLD_TABLE"], engine)(batch)["streamfold"]["updates"] == 1
        assert [each["window"] for each in engine.scan(TableName="Totals")["Items"]] == [{"S": f"{handler}#2026-01"}]


@pytest.mark.parametrize("make", [music, shop], ids=["music", "shop"])
def test_every_function_has_its_own_log_role_and_mapping(make: Make) -> None:
    deployed = make()
    functions = deployed.all("Lambda::Function").values()
    logs = {each["Properties"]["LoggingConfig"]["LogGroup"]["Ref"] for each in functions}
    assert logs == set(deployed.all("Logs::LogGroup"))
    roles = {each["Properties"]["Role"]["Fn::GetAtt"][0] for each in functions}
    assert roles == set(deployed.all("IAM::Role"))
    mapped = {
        each["Properties"]["FunctionName"]["Fn::GetAtt"][0]
        for each in deployed.all("Lambda::EventSourceMapping").values()
    }
    assert mapped == set(deployed.all("Lambda::Function"))
    assert len(functions) == len(logs) == len(roles) == len(deployed.all("Lambda::EventSourceMapping"))


def pattern(side: str, events: list[str], **asked: Any) -> str:
    places = {**asked, "sf~": {"S": [{"exists": False}]}}
    return json.dumps({"dynamodb": {side: places}, "eventName": events}, sort_keys=True, separators=(",", ":"))


def both(**asked: Any) -> list[str]:
    return [pattern("NewImage", ["INSERT", "MODIFY"], **asked), pattern("OldImage", ["MODIFY", "REMOVE"], **asked)]


NUMBER, REFUND = {"amount": {"N": [{"exists": True}]}}, {"kind": {"S": ["refund"]}}


@pytest.mark.parametrize(
    ("make", "read", "stream", "patterns"),
    [
        (music, "MusicLibrary", "StreamArn", both(SK={"S": [{"prefix": "download-"}]})),
        (shop, "shop-orders", ORDERS_STREAM, [*both(**NUMBER), *both(**REFUND)]),
        (shop, "Visits", "StreamArn", both(kind={"S": ["leave", "view"]})),
    ],
    ids=["music", "imported", "new"],
)
def test_a_mapping_has_every_setting_and_the_handlers_filters(
    make: Make, read: str, stream: str, patterns: list[str]
) -> None:
    deployed = make()
    function = deployed.function(read)
    found = deployed.properties("Lambda::EventSourceMapping", FunctionName={"Fn::GetAtt": [function, "Arn"]})
    if stream == "StreamArn":
        stream = {"Fn::GetAtt": [deployed.id_of("DynamoDB::Table", TableName=read), stream]}
    bucket = deployed.id_of("S3::Bucket")
    found_patterns = [each["Pattern"] for each in found["FilterCriteria"]["Filters"]]
    assert sorted(found_patterns) == sorted(patterns)
    assert {name: value for name, value in found.items() if name not in ("FilterCriteria", "Tags")} == {
        "BatchSize": 1000,
        "BisectBatchOnFunctionError": True,
        "DestinationConfig": {"OnFailure": {"Destination": {"Fn::GetAtt": [bucket, "Arn"]}}},
        "EventSourceArn": stream,
        "FunctionName": {"Fn::GetAtt": [function, "Arn"]},
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "MaximumBatchingWindowInSeconds": 1,
        "MaximumRecordAgeInSeconds": 82_800,
        "MaximumRetryAttempts": -1,
        "ParallelizationFactor": 1,
        "StartingPosition": "TRIM_HORIZON",
        "TumblingWindowInSeconds": 900,
    }


def test_a_consumer_by_the_ledger_reads_several_batches_at_once_and_without_a_window() -> None:
    found = music(consumers={"MusicLibrary": {"delivery": "ledger", "parallelization": 4}})
    mapping = found.properties("Lambda::EventSourceMapping")
    assert mapping["ParallelizationFactor"] == 4
    assert "TumblingWindowInSeconds" not in mapping
    function = found.properties("Lambda::Function")
    assert function["Environment"]["Variables"]["STREAMFOLD_DELIVERY"] == "ledger"


def test_function_mapping_and_log_take_what_the_context_says() -> None:
    found = music(consumers=OTHERS)
    found.template.has_resource_properties("AWS::Lambda::Function", {"MemorySize": 1024, "Timeout": 60})
    found.template.has_resource_properties("AWS::Logs::LogGroup", {"RetentionInDays": 365})
    found.template.has_resource_properties(
        "AWS::Lambda::EventSourceMapping",
        {
            "BatchSize": 50,
            "MaximumBatchingWindowInSeconds": 7,
            "MaximumRetryAttempts": 12,
            "FilterCriteria": Match.any_value(),
        },
    )


@pytest.mark.parametrize("make", [music, shop], ids=["music", "shop"])
def test_a_mapping_is_made_after_what_its_function_may_do(make: Make) -> None:
    deployed = make()
    # Lambda refuses a mapping whose function may not read the stream yet; a mapping comes after its function.
    for resource in deployed.all("Lambda::Function").values():
        (role,) = (
            each for each in deployed.all("IAM::Role") if [each, "Arn"] == resource["Properties"]["Role"]["Fn::GetAtt"]
        )
        policy = deployed.id_of("IAM::Policy", Roles=[{"Ref": role}])
        assert policy in resource["DependsOn"]


def test_a_filter_that_cannot_say_everything_is_a_warning_at_synth() -> None:
    (warning,) = shop().warnings()
    assert warning.startswith("sales: no pattern can express amount > 0, so the filter asks for any N.")
    assert music().warnings() == []


@pytest.mark.parametrize(
    ("context", "warns"),
    [
        ({}, False),
        ({"region": "eu-west-1"}, False),
        ({"region": "eu-central-1"}, True),
        ({"tables": {"Likes": {"streamArn": ORDERS_STREAM.replace("shop-orders", "Likes")}}}, True),
    ],
)
def test_a_consumer_that_is_not_in_the_home_region_of_its_table_is_a_warning_at_synth(
    context: dict[str, Any], warns: bool
) -> None:
    expected = (
        "Likes: its records count in its home Region eu-west-1, so in eu-central-1 its consumer acknowledges them and "
        "does nothing."
    )
    found = [warning.partition(" [ack")[0] for warning in deploy("global", **context).warnings()]
    assert found == [expected] * warns


def test_what_a_function_counts_by_has_a_name_that_changes_with_it() -> None:
    def version(table: str, app: str = "shop", **changed: Any) -> str:
        found = deploy(app, **{**SHOP, **changed})
        return str(found.data["Resources"][found.function(table)]["Properties"]["Environment"]["Variables"][VERSION])

    renamed = {"tables": {**SHOP["tables"], "Totals": {"existing": True, "name": "all-totals"}}}
    assert version("Visits") == version("Visits", consumers={"Visits": {"memory": 1024}})
    assert len({version("Visits"), version("Visits", code="y"), version("Visits", **renamed)}) == 3


VERSION = "STREAMFOLD_VERSION"
