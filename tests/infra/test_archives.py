"""Archives in the template: their bucket, how long it keeps them, who may write there, and what Athena reads them by."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from framework.codec import encode_item, to_event
from framework.deliver_archive import packed
from framework.testing import Change, Faults, Simulation, delete, expire, put
from handlers.expired_sessions import sessions
from tests.infra.stacks import DEV, SHOP, Deployed, accounts, deploy, kept, table, visits
from tests.infra.test_grants import statements

READERS = {"Sessions": ["expired-sessions"], "Visits": ["web/visits"], "Accounts": ["closed-accounts"], "Orders": []}
GLUE = ("Glue::Database", "Glue::Table")


def archive(deployed: Deployed) -> str:
    """The logical id of the bucket of the archives."""
    (output,) = (found for name, found in deployed.data["Outputs"].items() if name == "ArchiveBucket")
    return str(output["Value"]["Ref"])


def table_input(deployed: Deployed, name: str) -> dict[str, Any]:
    """A Glue table."""
    (found,) = (
        each["Properties"]["TableInput"]
        for each in deployed.all("Glue::Table").values()
        if each["Properties"]["TableInput"]["Name"] == name
    )
    return dict(found)


def text(value: Any) -> str:
    """A value of a template in which the bucket's name stands for it."""
    if isinstance(value, str):
        return value
    if "Ref" in value:
        return "bucket"
    separator, parts = value["Fn::Join"]
    return str(separator.join(map(text, parts)))


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
    assert not [each for kind in GLUE for each in found.all(kind)]
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


# What Athena reads


def test_the_database_is_named_after_app_and_stage() -> None:
    for context, stage in (({}, "prod"), (DEV, "dev")):
        found = deploy("kept", **context)
        made = found.properties("Glue::Database")
        assert made["CatalogId"] == {"Ref": "AWS::AccountId"}
        assert made["DatabaseInput"]["Name"] == f"streamfold_web_shop_{stage}"
        (database,) = found.all("Glue::Database")
        tables = found.all("Glue::Table").values()
        assert {each["Properties"]["DatabaseName"]["Ref"] for each in tables} == {database}
        names = [each["Properties"]["TableInput"]["Name"] for each in tables]
        assert names == ["expired_sessions", "old_visits", "closed_accounts"]


@pytest.mark.parametrize(
    ("name", "folder", "key", "projection"),
    [
        (
            "expired_sessions",
            "expired-sessions",
            "month",
            {"format": "yyyy-MM", "range": "2012-01,NOW+5YEARS", "interval.unit": "MONTHS"},
        ),
        (
            "old_visits",
            "web/visits",
            "date",
            {"format": "yyyy-MM-dd", "range": "2025-01-01,NOW", "interval.unit": "DAYS"},
        ),
        (
            "closed_accounts",
            "closed-accounts",
            "year",
            {"format": "yyyy", "range": "2012,NOW+5YEARS", "interval.unit": "YEARS"},
        ),
    ],
)
def test_a_table_has_its_partitions_by_projection(name: str, folder: str, key: str, projection: dict[str, str]) -> None:
    found = table_input(deploy("kept"), name)
    assert found["TableType"] == "EXTERNAL_TABLE"
    assert found["PartitionKeys"] == [{"Name": key, "Type": "string"}]
    assert text(found["StorageDescriptor"]["Location"]) == f"s3://bucket/{folder}/"
    parameters = {parameter: text(value) for parameter, value in found["Parameters"].items()}
    assert parameters.pop("storage.location.template") == f"s3://bucket/{folder}/{key}=${{{key}}}/"
    restored = parameters.pop("read_restored_glacier_objects", None)
    assert restored == ("true" if name == "closed_accounts" else None)  # the one that is frozen in the end
    assert parameters == {
        "EXTERNAL": "TRUE",
        "projection.enabled": "true",
        f"projection.{key}.type": "date",
        f"projection.{key}.interval": "1",
        **{f"projection.{key}.{field}": value for field, value in projection.items()},
    }


def test_a_row_is_a_line_as_text() -> None:
    for each in deploy("kept").all("Glue::Table").values():
        descriptor = each["Properties"]["TableInput"]["StorageDescriptor"]
        assert [(column["Name"], column["Type"]) for column in descriptor["Columns"]] == [("line", "string")]
        assert descriptor["InputFormat"] == "org.apache.hadoop.mapred.TextInputFormat"
        assert descriptor["OutputFormat"] == "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"
        assert descriptor["SerdeInfo"] == {
            "Parameters": {"field.delim": "\t", "serialization.format": "\t"},
            "SerializationLibrary": "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
        }


SINCE = {
    "expired-sessions": {"since": "2017-12", "until": "2018-02"},
    "old-visits": {"since": "2018-01-30", "until": "2018-03-31"},
    "closed-accounts": {"since": "1999", "until": "2001"},
}
OF = {"month": "BeganAt", "year": "opened"}
FORMS = {"yyyy-MM-dd": "%Y-%m-%d", "yyyy-MM": "%Y-%m", "yyyy": "%Y"}
# What a reader of delimited text could stumble over.
ODD = '\t\n\r\x01\\N "quoted", \\ \u2028 käse 🧀'
GONE: dict[str, list[dict[str, Any]]] = {
    "expired_sessions": [
        {"UserId": "ann", "SessionId": str(n), "BeganAt": began, "ExpiresAt": 1_517_443_000, "Odd, \t.name": ODD}
        for n, began in enumerate(("2017-12-31", "2018-01-01T00:00:00Z", "2018-02-28", "2018-01-31"))
    ],
    "old_visits": [
        {"page": f"/{n}", "at": ODD, "expires": 1_517_443_000, "deep": [{"x": {b"\x00\t"}}, None, 10**37]}
        for n in range(9)
    ],
    "closed_accounts": [{"account": n, "opened": f"{1999 + n % 3}-12-31"} for n in range(6)],
}


def history() -> Iterator[Change]:
    for name, source, remove in (
        ("expired_sessions", sessions, expire),
        ("old_visits", visits, expire),
        ("closed_accounts", accounts, delete),
    ):
        for item in GONE[name]:
            yield put(source, item)
        for item in GONE[name]:
            yield remove(source, item)


def partitions(parameters: dict[str, str], key: str) -> dict[str, str]:
    """What Athena makes of a projection: the location of each partition by its label."""
    form = FORMS[parameters[f"projection.{key}.format"]]
    first, last = parameters[f"projection.{key}.range"].split(",")
    day, found = date.fromisoformat(f"{first}-01-01"[:10]), {}
    while (label := day.strftime(form)) <= last:
        found[label] = parameters["storage.location.template"].replace(f"${{{key}}}", label)
        day += timedelta(days=1)
    return found


def test_what_the_handlers_write_is_what_athena_finds_value_for_value(tmp_path: Path) -> None:
    simulation = Simulation(kept, seed=3, faults=Faults())
    run = simulation.run(list(history()))
    assert (run.wrong, run.archived) == ((), sum(map(len, GONE.values())))
    for name, content in simulation.objects.objects.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.with_name("empty.json.gz").write_bytes(packed([]))  # as where a claim came to nothing
    deployed, seen = deploy("kept", archives=SINCE), set()
    for name, items in GONE.items():
        made = table_input(deployed, name)
        (key,) = (column["Name"] for column in made["PartitionKeys"])
        parameters = {parameter: text(value) for parameter, value in made["Parameters"].items()}
        found = []
        for label, location in partitions(parameters, key).items():
            objects = [*(tmp_path / location.removeprefix("s3://bucket/")).glob("*")]
            seen.update(objects)
            for line in lines(objects, made["StorageDescriptor"]["SerdeInfo"]["Parameters"]):
                found.append(json.loads(line)["Item"])
                assert key == "date" or found[-1][OF[key]]["S"].startswith(label)
        expected = [to_event(encode_item(item)) for item in items]
        assert sorted(found, key=str) == sorted(expected, key=str), name
    assert seen == {path for path in tmp_path.rglob("*") if path.is_file()}


def lines(objects: list[Path], serde: dict[str, str]) -> list[str]:
    """The rows of some objects, by an engine that splits lines at the SerDe's delimiter, and gives up if one has two."""
    if not objects:
        return []
    with duckdb.connect() as engine:
        found = engine.execute(
            "SELECT line FROM read_csv(?, delim=?, quote='', escape='', nullstr='\\N', header=false, auto_detect=false, "
            "columns={'line': 'VARCHAR'})",
            [[str(path) for path in objects], serde["field.delim"]],
        ).fetchall()
    return [line for (line,) in found]
