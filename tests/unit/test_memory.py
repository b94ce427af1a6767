import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError

from framework.local.bridge import boto3_client
from framework.local.memory import MemoryDynamoDB

INDEX = "MonthDownloadsIndex"
LANE = {
    "UpdateExpression": "ADD #c :n SET #l = :last, #m = :month",
    "ConditionExpression": "attribute_not_exists(#l) OR #l < :first",
    "ExpressionAttributeNames": {"#c": "DownloadCount", "#l": "~1", "#m": "Month"},
}


@pytest.fixture
def engine() -> MemoryDynamoDB:
    """One table as in AWS's guide, and one that is keyed by a number or bytes."""
    engine = MemoryDynamoDB()
    engine.create_table(
        TableName="music",
        KeySchema=[key("songID", "HASH"), key("SK", "RANGE")],
        AttributeDefinitions=[typed("songID"), typed("SK"), typed("Month"), typed("DownloadCount", "N")],
        GlobalSecondaryIndexes=[
            {
                "IndexName": INDEX,
                "KeySchema": [key("Month", "HASH"), key("DownloadCount", "RANGE")],
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["title"]},
            }
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    engine.create_table(
        TableName="numbers",
        KeySchema=[key("pk", "HASH"), key("n", "RANGE")],
        AttributeDefinitions=[typed("pk", "B"), typed("n", "N")],
    )
    return engine


def key(name: str, kind: str) -> dict[str, str]:
    return {"AttributeName": name, "KeyType": kind}


def typed(name: str, kind: str = "S") -> dict[str, str]:
    return {"AttributeName": name, "AttributeType": kind}


def song(number: int = 1, month: str = "2018-01") -> dict[str, Any]:
    return {"songID": {"S": f"song-{number}"}, "SK": {"S": month}}


def counted(engine: Any, first: int, last: int, count: int = 1, **more: Any) -> Any:
    """One write of the lanes protocol."""
    values = {":n": {"N": str(count)}, ":month": {"S": "2018-01"}}
    values |= {":first": {"S": f"{first:040d}"}, ":last": {"S": f"{last:040d}"}}
    return engine.update_item(TableName="music", Key=song(), ExpressionAttributeValues=values, **LANE, **more)


def refusal(call: Callable[[], Any]) -> dict[str, Any]:
    with pytest.raises(ClientError) as caught:
        call()
    response: Any = caught.value.response
    return {"Code": response["Error"]["Code"], "Message": response["Error"]["Message"], **response}


def fill(engine: MemoryDynamoDB, count: int) -> None:
    for number in range(count):
        item = song(number) | {"Month": {"S": "2018-01"}, "DownloadCount": {"N": str(number // 2)}}
        engine.put_item(TableName="music", Item=item | {"title": {"S": "t"}, "hidden": {"S": "h"}})


# -- the lanes protocol --


def test_a_lane_moves_forward_once_and_the_failure_shows_where_it_stands(engine: MemoryDynamoDB) -> None:
    counted(engine, 1, 5, 5)
    counted(engine, 6, 9, 4)
    failed = refusal(lambda: counted(engine, 6, 9, 4, ReturnValuesOnConditionCheckFailure="ALL_OLD"))
    assert failed["Code"] == "ConditionalCheckFailedException"
    stored = song() | {"DownloadCount": {"N": "9"}, "~1": {"S": f"{9:040d}"}, "Month": {"S": "2018-01"}}
    assert failed["Item"] == stored
    assert engine.get_item(TableName="music", Key=song())["Item"] == stored


def test_a_failed_condition_shows_the_item_only_when_asked_and_there(engine: MemoryDynamoDB) -> None:
    counted(engine, 1, 5)
    assert "Item" not in refusal(lambda: counted(engine, 1, 5))
    gone = refusal(
        lambda: engine.delete_item(
            TableName="music",
            Key=song(2),
            ConditionExpression="attribute_exists(songID)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    )
    assert gone["Code"] == "ConditionalCheckFailedException"
    assert "Item" not in gone


def test_the_lanes_protocol_costs_three_units_and_one_when_it_fails(engine: MemoryDynamoDB) -> None:
    counted(engine, 1, 1)
    assert engine.wcu == 2  # the table, and an entry added
    counted(engine, 2, 2)
    assert engine.wcu == 5  # the table, and an entry moved
    refusal(lambda: counted(engine, 2, 2))
    assert engine.wcu == 6
    assert engine.requests["UpdateItem"] == 3


def test_a_failed_condition_costs_by_the_larger_of_what_is_and_what_would_be(engine: MemoryDynamoDB) -> None:
    large = song() | {"title": {"S": "x" * 5000}}
    refusal(lambda: engine.put_item(TableName="music", Item=large, ConditionExpression="attribute_exists(songID)"))
    assert engine.wcu == 5


def test_threads_lose_no_update(engine: MemoryDynamoDB) -> None:
    def add() -> None:
        for _ in range(200):
            engine.update_item(
                TableName="music",
                Key=song(),
                UpdateExpression="ADD plays :n",
                ExpressionAttributeValues={":n": {"N": "1"}},
            )

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert engine.get_item(TableName="music", Key=song())["Item"]["plays"] == {"N": "800"}
    assert engine.wcu == 800


# -- single writes --


@pytest.mark.parametrize(
    ("wanted", "attributes"),
    [
        ("NONE", None),
        ("ALL_OLD", song() | {"title": {"S": "old"}, "m": {"M": {"a": {"N": "1"}, "b": {"N": "2"}}}}),
        (
            "ALL_NEW",
            song() | {"title": {"S": "new"}, "m": {"M": {"a": {"N": "9"}, "b": {"N": "2"}}}, "x": {"N": "1"}},
        ),
        ("UPDATED_OLD", {"title": {"S": "old"}, "m": {"M": {"a": {"N": "1"}}}}),
        ("UPDATED_NEW", {"title": {"S": "new"}, "m": {"M": {"a": {"N": "9"}}}, "x": {"N": "1"}}),
    ],
)
def test_an_update_returns_the_values_that_were_asked_for(engine: MemoryDynamoDB, wanted: str, attributes: Any) -> None:
    engine.put_item(
        TableName="music",
        Item=song() | {"title": {"S": "old"}, "m": {"M": {"a": {"N": "1"}, "b": {"N": "2"}}}},
    )
    response = engine.update_item(
        TableName="music",
        Key=song(),
        UpdateExpression="SET title = :t, m.a = :nine ADD x :one",
        ExpressionAttributeValues={":t": {"S": "new"}, ":nine": {"N": "9"}, ":one": {"N": "1"}},
        ReturnValues=wanted,
    )
    assert response.get("Attributes") == attributes


@pytest.mark.parametrize(
    ("expression", "values", "there"),
    [
        ("SET a = :s", {":s": {"S": "x"}}, True),
        ("ADD a :n", {":n": {"N": "1"}}, True),
        (None, None, True),  # an update that says nothing makes the item
        ("REMOVE a", None, False),
        ("REMOVE a.b", None, False),
        ("DELETE a :s", {":s": {"SS": ["x"]}}, False),
    ],
)
def test_only_an_update_that_puts_something_makes_the_item(
    engine: MemoryDynamoDB, expression: Any, values: Any, there: bool
) -> None:
    request = {"UpdateExpression": expression, "ExpressionAttributeValues": values}
    given = {name: value for name, value in request.items() if value is not None}
    engine.update_item(TableName="music", Key=song(), **given)
    assert ("Item" in engine.get_item(TableName="music", Key=song())) == there


def test_put_and_delete_return_what_was_there(engine: MemoryDynamoDB) -> None:
    first, second = song() | {"title": {"S": "1"}}, song() | {"title": {"S": "2"}}
    assert engine.put_item(TableName="music", Item=first, ReturnValues="ALL_OLD") == {}
    assert engine.put_item(TableName="music", Item=second, ReturnValues="ALL_OLD") == {"Attributes": first}
    assert engine.delete_item(TableName="music", Key=song(), ReturnValues="ALL_OLD") == {"Attributes": second}
    assert engine.delete_item(TableName="music", Key=song(), ReturnValues="ALL_OLD") == {}
    assert engine.get_item(TableName="music", Key=song()) == {}


def test_what_comes_in_and_goes_out_is_never_shared_with_what_is_stored(engine: MemoryDynamoDB) -> None:
    item: Any = song() | {"m": {"M": {"l": {"L": [{"SS": ["a"]}]}}}}
    engine.put_item(TableName="music", Item=item)
    item["m"]["M"]["l"]["L"].append({"N": "1"})
    out = engine.get_item(TableName="music", Key=song())["Item"]
    out["m"]["M"]["l"]["L"][0]["SS"].append("b")
    engine.scan(TableName="music")["Items"][0]["m"]["M"].clear()
    assert engine.get_item(TableName="music", Key=song())["Item"] == song() | {
        "m": {"M": {"l": {"L": [{"SS": ["a"]}]}}}
    }


@pytest.mark.parametrize(
    ("operation", "request_", "reason"),
    [
        ("put_item", {"Item": {"songID": {"S": "x"}}}, "Type mismatch for key SK"),
        ("put_item", {"Item": {"songID": {"N": "1"}, "SK": {"S": "x"}}}, "Type mismatch for key songID"),
        ("put_item", {"Item": {"songID": {"S": ""}, "SK": {"S": "x"}}}, "empty string value. Key: songID"),
        ("put_item", {"Item": {"songID": {"S": "é" * 1025}, "SK": {"S": "x"}}}, "2048 bytes"),
        ("put_item", {"Item": {"songID": {"S": "x"}, "SK": {"S": "x" * 1025}}}, "1024 bytes"),
        ("put_item", {"Item": song() | {"Month": {"N": "1"}}}, "Type mismatch for Index Key Month"),
        ("put_item", {"Item": song() | {"Month": {"S": ""}}}, f"IndexName: {INDEX}, IndexKey: Month"),
        ("put_item", {"Item": song() | {"fill": {"S": "x" * 400 * 1024}}}, "Item size has exceeded"),
        ("put_item", {"Item": song() | {"": {"S": "x"}}}, "Empty attribute name"),
        ("put_item", {"Item": song() | {"a": {"SS": []}}}, "may not be empty"),
        ("put_item", {"Item": song(), "ReturnValues": "ALL_NEW"}, "ALL_OLD or NONE"),
        ("put_item", {"Item": song(), "ExpressionAttributeNames": {"#a": "a"}}, "unused"),
        ("update_item", {"Key": {"songID": {"S": "x"}}}, "does not match the schema"),
        ("update_item", {"Key": song() | {"x": {"S": "x"}}}, "does not match the schema"),
        ("update_item", {"Key": song(), "UpdateExpression": "REMOVE SK"}, "Cannot update attribute SK"),
        ("update_item", {"Key": song(), "ReturnValues": "SOME"}, "Unknown ReturnValues"),
        (
            "update_item",
            {
                "Key": song(),
                "UpdateExpression": "SET DownloadCount = :v",
                "ExpressionAttributeValues": {":v": {"S": "1"}},
            },
            "Type mismatch for Index Key DownloadCount",
        ),
        (
            "update_item",
            {
                "Key": song(),
                "UpdateExpression": "SET a = :v",
                "ExpressionAttributeValues": {":v": {"S": "x" * 400 * 1024}},
            },
            "Item size has exceeded",
        ),
        ("get_item", {"Key": {"songID": {"S": "x"}}}, "does not match the schema"),
        ("delete_item", {"Key": {"songID": {"S": "x"}, "sk": {"S": "x"}}}, "Type mismatch for key SK"),
        ("query", {"KeyConditionExpression": "songID = :p"}, "not defined"),
        ("query", {"IndexName": "none", "KeyConditionExpression": "songID = :p"}, "specified index: none"),
        (
            "query",
            {"IndexName": INDEX, "KeyConditionExpression": "songID = :p", "ConsistentRead": True},
            "Consistent reads are not supported",
        ),
        ("scan", {"Limit": 0}, "at least 1"),
        ("scan", {"ExclusiveStartKey": {"songID": {"S": "x"}}}, "starting key is invalid"),
    ],
)
def test_a_request_that_the_service_refuses_changes_nothing(
    engine: MemoryDynamoDB, operation: str, request_: Any, reason: str
) -> None:
    failed = refusal(lambda: getattr(engine, operation)(TableName="music", **request_))
    assert failed["Code"] == "ValidationException"
    assert reason in failed["Message"]
    assert engine.scan(TableName="music")["Count"] == 0
    assert engine.wcu == 0


@pytest.mark.parametrize(
    ("text", "values", "reason"),
    [
        ("ADD n :v", {":v": {"N": "0.1"}}, "overflow"),
        ("SET n = n + :v", {":v": {"N": "1E-38"}}, "overflow"),
        ("SET n = :v", {":v": {"N": "1" * 39}}, "38 significant digits"),
        ("SET a = :v, b = absent", {":v": {"N": "1"}}, "does not exist in the item"),
        ("SET a = :v ADD title :w", {":v": {"N": "1"}, ":w": {"N": "1"}}, "incorrect data type"),
        ("SET a = :v, title = list_append(title, :l)", {":v": {"N": "1"}, ":l": {"L": []}}, "incorrect data type"),
        ("ADD n :v DELETE l :w", {":v": {"N": "-1"}, ":w": {"SS": ["x"]}}, "incorrect data type"),
        ("SET a = :v, absent.b = :v", {":v": {"N": "1"}}, "document path"),
        ("SET l[0] = :v, title.b = :v", {":v": {"N": "1"}}, "document path"),
        ("SET a = :v, #m = :e", {":v": {"N": "1"}, ":e": {"S": ""}}, f"IndexName: {INDEX}, IndexKey: Month"),
        ("SET a = :v, #m = n", {":v": {"N": "1"}}, "Type mismatch for Index Key Month"),
        ("SET a = :v, SK = :v", {":v": {"N": "1"}}, "Cannot update attribute SK"),
    ],
)
def test_a_refused_update_leaves_the_item_as_it_was_and_costs_nothing(
    engine: MemoryDynamoDB, text: str, values: Any, reason: str
) -> None:
    stored = song() | {"n": {"N": "9" * 38}, "title": {"S": "t"}, "l": {"L": [{"N": "1"}]}}
    engine.put_item(TableName="music", Item=stored)
    request: Any = {"UpdateExpression": text, "ExpressionAttributeValues": values}
    if "#m" in text:
        request["ExpressionAttributeNames"] = {"#m": "Month"}
    failed = refusal(lambda: engine.update_item(TableName="music", Key=song(), **request))
    assert (failed["Code"], reason in failed["Message"]) == ("ValidationException", True)
    assert engine.get_item(TableName="music", Key=song())["Item"] == stored
    assert engine.wcu == 1


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({}, "does not match the schema"),
        ({"pk": {"B": b"x"}}, "does not match the schema"),
        ({"pk": {"B": b"x"}, "n": {"N": "1"}, "m": {"N": "1"}}, "does not match the schema"),
        ({"pk": {"B": b"x"}, "m": {"N": "1"}}, "Type mismatch for key n expected: N actual: nothing"),
        ({"pk": {"B": b"x"}, "n": {"S": "1"}}, "Type mismatch for key n expected: N actual: S"),
        ({"pk": {"S": "x"}, "n": {"N": "1"}}, "Type mismatch for key pk expected: B actual: S"),
        ({"pk": {"B": b""}, "n": {"N": "1"}}, "empty binary value. Key: pk"),
        ({"pk": {"B": b"x" * 2049}, "n": {"N": "1"}}, "2048 bytes"),
        ({"pk": {"B": b"x"}, "n": {"N": "1" * 39}}, "38 significant digits"),
        ({"pk": {"B": b"x"}, "n": {"N": "one"}}, "cannot be converted to a numeric value"),
    ],
)
@pytest.mark.parametrize(
    "call",
    [
        lambda engine, key: engine.get_item(TableName="numbers", Key=key),
        lambda engine, key: engine.delete_item(TableName="numbers", Key=key),
        lambda engine, key: engine.update_item(TableName="numbers", Key=key, UpdateExpression="REMOVE a"),
        lambda engine, key: engine.batch_get_item(RequestItems={"numbers": {"Keys": [key]}}),
        lambda engine, key: engine.batch_write_item(RequestItems={"numbers": [{"DeleteRequest": {"Key": key}}]}),
        lambda engine, key: engine.transact_write_items(
            TransactItems=[claim(1), {"Delete": {"TableName": "numbers", "Key": key}}]
        ),
    ],
    ids=["get", "delete", "update", "batch get", "batch write", "transaction"],
)
def test_a_key_that_is_not_the_tables_is_refused_by_every_operation(
    engine: MemoryDynamoDB, call: Any, wrong: Any, reason: str
) -> None:
    failed = refusal(lambda: call(engine, wrong))
    assert (failed["Code"], reason in failed["Message"]) == ("ValidationException", True)
    assert (engine.wcu, engine.scan(TableName="music")["Count"]) == (0, 0)


def test_a_number_is_one_key_however_it_is_written(engine: MemoryDynamoDB) -> None:
    for text in ("1E1", "10", "10.0", "+010"):
        engine.update_item(
            TableName="numbers",
            Key={"pk": {"B": b"x"}, "n": {"N": text}},
            UpdateExpression="ADD seen :one",
            ExpressionAttributeValues={":one": {"N": "1"}},
        )
    (item,) = engine.scan(TableName="numbers")["Items"]
    assert item == {"pk": {"B": b"x"}, "n": {"N": "10"}, "seen": {"N": "4"}}


def test_an_item_may_have_exactly_400_kilobytes(engine: MemoryDynamoDB) -> None:
    item = song() | {"fill": {"S": "x" * (400 * 1024 - len("songIDsong-1SK2018-01fill"))}}
    engine.put_item(TableName="music", Item=item)
    assert engine.wcu == 400


def test_an_item_with_half_an_index_key_is_not_in_the_index(engine: MemoryDynamoDB) -> None:
    engine.put_item(TableName="music", Item=song() | {"Month": {"S": "2018-01"}})
    assert top(engine)["Count"] == 0


def test_what_the_engine_does_not_know_is_said_and_not_ignored(engine: MemoryDynamoDB) -> None:
    with pytest.raises(NotImplementedError, match=r"UpdateItem: .* does not know AttributeUpdates"):
        engine.update_item(TableName="music", Key=song(), AttributeUpdates={})
    with pytest.raises(NotImplementedError, match="NONE and TOTAL, came INDEXES"):
        engine.get_item(TableName="music", Key=song(), ReturnConsumedCapacity="INDEXES")


# -- tables --


def test_tables_are_described_listed_and_deleted(engine: MemoryDynamoDB) -> None:
    fill(engine, 3)
    described = engine.describe_table(TableName="music")["Table"]
    assert (described["TableStatus"], described["ItemCount"]) == ("ACTIVE", 3)
    assert described["GlobalSecondaryIndexes"][0]["IndexStatus"] == "ACTIVE"
    assert engine.list_tables() == {"TableNames": ["music", "numbers"]}
    assert engine.get_item(TableName=described["TableArn"], Key=song())["Item"]
    engine.delete_table(TableName="music")
    assert refusal(lambda: engine.get_item(TableName="music", Key=song()))["Code"] == "ResourceNotFoundException"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"TableName": "music"}, "ResourceInUseException"),
        ({"TableName": "ab"}, "ValidationException"),
        ({"KeySchema": [key("pk", "RANGE")]}, "ValidationException"),
        ({"AttributeDefinitions": [typed("other")]}, "ValidationException"),
        ({"AttributeDefinitions": [typed("pk"), typed("more")]}, "ValidationException"),
    ],
)
def test_a_table_that_the_service_refuses(engine: MemoryDynamoDB, change: Any, code: str) -> None:
    request = {
        "TableName": "new",
        "KeySchema": [key("pk", "HASH")],
        "AttributeDefinitions": [typed("pk")],
    }
    assert refusal(lambda: engine.create_table(**{**request, "TableName": "fresh", **change}))["Code"] == code


# -- reads --


def top(engine: Any, **more: Any) -> Any:
    return engine.query(
        TableName="music",
        IndexName=INDEX,
        KeyConditionExpression="#m = :m",
        ExpressionAttributeNames={"#m": "Month"},
        ExpressionAttributeValues={":m": {"S": "2018-01"}},
        ScanIndexForward=False,
        **more,
    )


def pages(read: Callable[..., Any], **request: Any) -> list[Any]:
    items, start = [], {}
    while True:
        page = read(**request, **start)
        items += page["Items"]
        if "LastEvaluatedKey" not in page:
            return items
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}


def test_an_index_is_read_in_its_order_and_gives_what_is_projected(engine: MemoryDynamoDB) -> None:
    fill(engine, 12)
    best = top(engine, Limit=3)["Items"]
    assert [item["songID"]["S"] for item in best] == ["song-11", "song-10", "song-9"]
    assert best[0] == {
        "songID": {"S": "song-11"},
        "SK": {"S": "2018-01"},
        "Month": {"S": "2018-01"},
        "DownloadCount": {"N": "5"},
        "title": {"S": "t"},
    }


def test_an_index_is_up_to_date_after_every_kind_of_write(engine: MemoryDynamoDB) -> None:
    fill(engine, 3)
    assert top(engine)["Count"] == 3
    engine.delete_item(TableName="music", Key=song(0))
    assert top(engine)["Count"] == 2
    engine.update_item(TableName="music", Key=song(1), UpdateExpression="REMOVE DownloadCount")
    assert top(engine)["Count"] == 1
    counted(engine, 1, 1, 7)
    assert [item["DownloadCount"] for item in top(engine)["Items"]] == [{"N": "7"}, {"N": "1"}]


@pytest.mark.parametrize("limit", [1, 2, 5, 12, 100])
@pytest.mark.parametrize("forward", [True, False])
def test_pages_give_every_item_once_in_order(engine: MemoryDynamoDB, limit: int, forward: bool) -> None:
    fill(engine, 12)
    request = {"Limit": limit, "ScanIndexForward": forward}
    expression: Any = {
        "KeyConditionExpression": "#m = :m",
        "ExpressionAttributeNames": {"#m": "Month"},
        "ExpressionAttributeValues": {":m": {"S": "2018-01"}},
    }
    items = pages(engine.query, TableName="music", IndexName=INDEX, **request, **expression)
    counts = [int(item["DownloadCount"]["N"]) for item in items]
    assert counts == sorted(counts, reverse=not forward)
    assert len({item["songID"]["S"] for item in items}) == 12
    everything = pages(engine.scan, TableName="music", Limit=limit)
    assert len({item["songID"]["S"] for item in everything}) == len(everything) == 12
    entries = pages(engine.scan, TableName="music", IndexName=INDEX, Limit=limit)
    assert len({item["songID"]["S"] for item in entries}) == len(entries) == 12


def test_a_page_goes_on_after_a_start_key_that_is_gone(engine: MemoryDynamoDB) -> None:
    fill(engine, 4)
    page = engine.scan(TableName="music", Limit=2)
    engine.delete_item(TableName="music", Key=page["LastEvaluatedKey"])
    rest = engine.scan(TableName="music", ExclusiveStartKey=page["LastEvaluatedKey"])
    assert [item["songID"]["S"] for item in rest["Items"]] == ["song-2", "song-3"]


def test_a_page_ends_at_its_limit_even_if_nothing_follows(engine: MemoryDynamoDB) -> None:
    fill(engine, 2)
    assert "LastEvaluatedKey" in engine.scan(TableName="music", Limit=2)
    assert "LastEvaluatedKey" not in engine.scan(TableName="music", Limit=3)


def test_a_page_holds_one_megabyte(engine: MemoryDynamoDB) -> None:
    for number in range(5):
        engine.put_item(TableName="music", Item=song(number) | {"fill": {"S": "x" * 300 * 1024}})
    page = engine.scan(TableName="music")
    assert page["Count"] == 3
    assert engine.rcu == pytest.approx(0.5 * 226)
    assert len(pages(engine.scan, TableName="music")) == 5


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (song(), "starting key is invalid"),
        ({"Month": {"S": "2018-01"}, "DownloadCount": {"N": "1"}}, "starting key is invalid"),
        (song() | {"Month": {"S": "2018-01"}, "DownloadCount": {"S": "1"}}, "Type mismatch for key DownloadCount"),
        (song() | {"Month": {"S": ""}, "DownloadCount": {"N": "1"}}, "empty string value. Key: Month"),
    ],
)
def test_an_index_goes_on_only_from_a_whole_key_of_table_and_index(
    engine: MemoryDynamoDB, start: Any, reason: str
) -> None:
    fill(engine, 2)
    assert reason in refusal(lambda: top(engine, ExclusiveStartKey=start))["Message"]


def test_a_limit_counts_what_is_read_and_pages_go_on_until_the_filter_finds_all(engine: MemoryDynamoDB) -> None:
    fill(engine, 7)
    request: Any = {
        "TableName": "music",
        "FilterExpression": "DownloadCount = :two",
        "ExpressionAttributeValues": {":two": {"N": "2"}},
    }
    first = engine.scan(Limit=3, **request)
    assert (first["Items"], first["ScannedCount"], "LastEvaluatedKey" in first) == ([], 3, True)
    found = pages(engine.scan, Limit=3, **request)
    assert [item["songID"]["S"] for item in found] == ["song-4", "song-5"]


@pytest.mark.parametrize(
    ("projection", "shown"),
    [
        ({"ProjectionType": "KEYS_ONLY"}, {"id", "at", "plays"}),
        ({"ProjectionType": "INCLUDE", "NonKeyAttributes": ["a"]}, {"id", "at", "plays", "a"}),
        ({"ProjectionType": "ALL"}, {"id", "at", "plays", "a", "b"}),
    ],
)
def test_a_local_index_may_be_read_consistently_and_shows_what_is_projected(
    engine: MemoryDynamoDB, projection: Any, shown: set[str]
) -> None:
    engine.create_table(
        TableName="local",
        KeySchema=[key("id", "HASH"), key("at", "RANGE")],
        AttributeDefinitions=[typed("id"), typed("at"), typed("plays", "N")],
        LocalSecondaryIndexes=[
            {"IndexName": "by", "KeySchema": [key("id", "HASH"), key("plays", "RANGE")], "Projection": projection}
        ],
    )
    for at, plays in (("1", "10"), ("2", "9"), ("3", None)):
        item = {"id": {"S": "x"}, "at": {"S": at}, "a": {"S": "a"}, "b": {"S": "b"}}
        engine.put_item(TableName="local", Item=item | ({"plays": {"N": plays}} if plays else {}))
    page = engine.query(
        TableName="local",
        IndexName="by",
        KeyConditionExpression="id = :x",
        ExpressionAttributeValues={":x": {"S": "x"}},
        ConsistentRead=True,
    )
    assert [item["at"]["S"] for item in page["Items"]] == ["2", "1"]
    assert set(page["Items"][0]) == shown


NUMBERS = ["-1E10", "-2", "-1.5", "0", "0.5", "9", "10", "1E20"]


@pytest.mark.parametrize(
    ("condition", "values", "found"),
    [
        ("pk = :p", {}, NUMBERS),
        ("pk = :p AND n = :a", {":a": "9.0"}, ["9"]),
        ("pk = :p AND n < :a", {":a": "-1.5"}, ["-1E10", "-2"]),
        ("n >= :a AND pk = :p", {":a": "9"}, ["9", "10", "1E20"]),
        ("pk = :p AND n BETWEEN :a AND :b", {":a": "-2", ":b": "0.5"}, ["-2", "-1.5", "0", "0.5"]),
    ],
)
def test_numbers_sort_by_value_and_key_conditions_pick_a_range(
    engine: MemoryDynamoDB, condition: str, values: Any, found: list[str]
) -> None:
    for number in reversed(NUMBERS):
        engine.put_item(TableName="numbers", Item={"pk": {"B": b"\x00"}, "n": {"N": number}})
        engine.put_item(TableName="numbers", Item={"pk": {"B": b"\x01"}, "n": {"N": number}})
    items = engine.query(
        TableName="numbers",
        KeyConditionExpression=condition,
        ExpressionAttributeValues={":p": {"B": b"\x00"}, **{k: {"N": v} for k, v in values.items()}},
    )["Items"]
    assert [Decimal(item["n"]["N"]) for item in items] == [Decimal(number) for number in found]


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("SK = :s", "missed key schema element: songID"),
        ("songID = :p OR SK = :s", "joined by AND"),
        ("NOT songID = :p", "joined by AND"),
        ("songID <> :p", "joined by AND"),
        ("songID IN (:p)", "joined by AND"),
        ("contains(songID, :p)", "joined by AND"),
        ("songID > :p", "has to be equal"),
        ("begins_with(songID, :p)", "has to be equal"),
        ("songID = :p AND title = :s", "missed key schema element: SK"),
        ("songID = :p AND SK > :p AND SK < :s", "one condition per key"),
        ("songID = :n", "Type mismatch for key songID"),
        ("songID = :p AND SK = :n", "Type mismatch for key SK"),
    ],
)
def test_a_key_condition_that_is_refused(engine: MemoryDynamoDB, condition: str, reason: str) -> None:
    values = {":p": {"S": "song-1"}, ":s": {"S": "2018"}, ":n": {"N": "1"}}
    failed = refusal(
        lambda: engine.query(
            TableName="music",
            KeyConditionExpression=condition,
            ExpressionAttributeValues={name: each for name, each in values.items() if name in condition},
        )
    )
    assert reason in failed["Message"]


def test_a_filter_drops_after_the_page_is_read(engine: MemoryDynamoDB) -> None:
    for month in ("2018-01", "2018-02", "2018-03"):
        engine.put_item(TableName="music", Item=song(1, month) | {"plays": {"N": month[-1]}})
    request: Any = {
        "TableName": "music",
        "KeyConditionExpression": "songID = :p AND begins_with(SK, :y)",
        "FilterExpression": "plays > :one",
        "ProjectionExpression": "SK",
        "ExpressionAttributeValues": {":p": {"S": "song-1"}, ":y": {"S": "2018"}, ":one": {"N": "1"}},
    }
    page = engine.query(Limit=2, **request)
    assert (page["Items"], page["Count"], page["ScannedCount"]) == ([{"SK": {"S": "2018-02"}}], 1, 2)
    assert engine.query(Select="COUNT", **request) == {"Count": 2, "ScannedCount": 3}
    on_key = refusal(lambda: engine.query(**{**request, "FilterExpression": "plays > :one AND SK > :y"}))
    assert "Primary key attribute: SK" in on_key["Message"]


def test_capacity_is_told_when_asked(engine: MemoryDynamoDB) -> None:
    fill(engine, 2)
    total = {"ReturnConsumedCapacity": "TOTAL"}
    read = engine.get_item(TableName="music", Key=song(), ConsistentRead=True, **total)
    assert read["ConsumedCapacity"] == {"TableName": "music", "CapacityUnits": 1.0}
    assert top(engine, **total)["ConsumedCapacity"]["CapacityUnits"] == 0.5
    assert engine.rcu == 1.5
    gone = engine.delete_item(TableName="music", Key=song(), **total)
    assert gone["ConsumedCapacity"]["CapacityUnits"] == 2


# -- batches --


def test_a_batch_puts_deletes_and_gets(engine: MemoryDynamoDB) -> None:
    fill(engine, 2)
    before = engine.wcu
    writes = [{"PutRequest": {"Item": song(7)}}, {"DeleteRequest": {"Key": song(0)}}]
    assert engine.batch_write_item(RequestItems={"music": writes}) == {"UnprocessedItems": {}}
    assert engine.wcu - before == 1 + 2
    answer = engine.batch_get_item(
        RequestItems={"music": {"Keys": [song(7), song(0), song(1)], "ProjectionExpression": "songID"}}
    )
    assert answer["Responses"]["music"] == [{"songID": {"S": "song-7"}}, {"songID": {"S": "song-1"}}]


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [(range(26), "Too many items"), ([1, 2, 1], "contains duplicates"), ([], "Too many items")],
)
def test_a_batch_that_is_refused_writes_nothing(engine: MemoryDynamoDB, numbers: Any, reason: str) -> None:
    writes = [{"PutRequest": {"Item": song(number)}} for number in numbers]
    failed = refusal(lambda: engine.batch_write_item(RequestItems={"music": writes}))
    assert reason in failed["Message"]
    assert engine.scan(TableName="music")["Count"] == 0


# -- transactions --


def put(number: int, **more: Any) -> dict[str, Any]:
    return {"Put": {"TableName": "music", "Item": song(number), **more}}


def claim(number: int) -> dict[str, Any]:
    return put(number, ConditionExpression="attribute_not_exists(songID)")


def add(number: int, amount: Any = None) -> dict[str, Any]:
    return {
        "Update": {
            "TableName": "music",
            "Key": song(number),
            "UpdateExpression": "ADD plays :n",
            "ExpressionAttributeValues": {":n": amount or {"N": "1"}},
        }
    }


def test_a_transaction_is_made_whole_and_its_table_writes_cost_twice(engine: MemoryDynamoDB) -> None:
    check = {
        "ConditionCheck": {
            "TableName": "music",
            "Key": song(9),
            "ConditionExpression": "attribute_not_exists(SK)",
        }
    }
    delete = {"Delete": {"TableName": "music", "Key": song(8)}}
    engine.transact_write_items(TransactItems=[claim(1), add(2), check, delete])
    assert {item["songID"]["S"] for item in engine.scan(TableName="music")["Items"]} == {"song-1", "song-2"}
    assert engine.wcu == 8


def test_a_cancelled_transaction_changes_nothing_and_gives_every_reason(engine: MemoryDynamoDB) -> None:
    engine.put_item(TableName="music", Item=song(1) | {"plays": {"S": "many"}})
    shown = put(1, ConditionExpression="attribute_not_exists(SK)", ReturnValuesOnConditionCheckFailure="ALL_OLD")
    failed = refusal(lambda: engine.transact_write_items(TransactItems=[claim(2), shown]))
    assert failed["Code"] == "TransactionCanceledException"
    assert "[None, ConditionalCheckFailed]" in failed["Message"]
    assert failed["CancellationReasons"] == [
        {"Code": "None"},
        {
            "Code": "ConditionalCheckFailed",
            "Message": "The conditional request failed",
            "Item": song(1) | {"plays": {"S": "many"}},
        },
    ]
    mistyped = refusal(lambda: engine.transact_write_items(TransactItems=[claim(2), add(1)]))
    assert [reason["Code"] for reason in mistyped["CancellationReasons"]] == ["None", "ValidationError"]
    assert engine.scan(TableName="music")["Count"] == 1


def test_every_kind_of_action_gives_its_own_reason_and_shows_an_item_only_if_asked(engine: MemoryDynamoDB) -> None:
    stored = song(1) | {"plays": {"N": "9" * 38}}
    for number in (1, 2, 3, 4, 5):
        engine.put_item(TableName="music", Item=song(number) | {"plays": {"N": "9" * 38}})
    before = engine.wcu
    gone: Any = {"TableName": "music", "ConditionExpression": "attribute_not_exists(SK)"}
    shown = {"ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    actions: list[Any] = [
        {"ConditionCheck": {"Key": song(1), **gone, **shown}},
        {"Delete": {"Key": song(2), **gone}},
        {"Put": {"Item": song(3), **gone}},
        add(4, {"N": "0.1"}),
        {"Delete": {"Key": song(6), **gone}},
        {"Update": {**add(5)["Update"], **gone, **shown}},
    ]
    failed = refusal(lambda: engine.transact_write_items(TransactItems=actions, ClientRequestToken="once"))
    reasons = failed["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == [
        "ConditionalCheckFailed",
        "ConditionalCheckFailed",
        "ConditionalCheckFailed",
        "ValidationError",
        "None",
        "ConditionalCheckFailed",
    ]
    assert [reason.get("Item", {}).get("songID", {}).get("S") for reason in reasons] == [
        "song-1", None, None, None, None, "song-5",
    ]  # fmt: skip
    assert reasons[0]["Item"] == stored
    assert engine.wcu - before == 2 * 6
    # A transaction that was cancelled has not used up its token.
    engine.transact_write_items(TransactItems=[claim(7)], ClientRequestToken="once")
    assert engine.scan(TableName="music")["Count"] == 6


def test_an_action_sees_the_items_as_they_were_before_the_transaction(engine: MemoryDynamoDB) -> None:
    check = {"TableName": "music", "Key": song(2), "ConditionExpression": "attribute_not_exists(SK)"}
    engine.transact_write_items(TransactItems=[claim(1), {"ConditionCheck": check}])
    check["ConditionExpression"] = "attribute_exists(SK)"
    failed = refusal(lambda: engine.transact_write_items(TransactItems=[{"ConditionCheck": check}, claim(3)]))
    assert [reason["Code"] for reason in failed["CancellationReasons"]] == ["ConditionalCheckFailed", "None"]
    assert engine.scan(TableName="music")["Count"] == 1


def test_a_transaction_with_a_table_that_is_not_there_changes_nothing(engine: MemoryDynamoDB) -> None:
    absent = {"Put": {"TableName": "absent", "Item": song(2)}}
    failed = refusal(lambda: engine.transact_write_items(TransactItems=[claim(1), absent]))
    assert failed["Code"] == "ResourceNotFoundException"
    assert (engine.scan(TableName="music")["Count"], engine.wcu) == (0, 0)


def test_capacity_of_batches_and_transactions_is_told_by_table(engine: MemoryDynamoDB) -> None:
    total = {"ReturnConsumedCapacity": "TOTAL"}
    numbered = {"pk": {"B": b"x"}, "n": {"N": "1"}}
    puts = {
        "music": [{"PutRequest": {"Item": song(n)}} for n in (1, 2)],
        "numbers": [{"PutRequest": {"Item": numbered}}],
    }
    written = engine.batch_write_item(RequestItems=puts, **total)
    got = engine.batch_get_item(
        RequestItems={"music": {"Keys": [song(1), song(3)], "ConsistentRead": True}, "numbers": {"Keys": [numbered]}},
        **total,
    )
    delete = {"Delete": {"TableName": "numbers", "Key": numbered}}
    transacted = engine.transact_write_items(TransactItems=[add(1), delete, add(2)], **total)

    def told(answer: Any) -> dict[str, float]:
        return {each["TableName"]: each["CapacityUnits"] for each in answer["ConsumedCapacity"]}

    assert told(written) == {"music": 2, "numbers": 1}
    assert told(got) == {"music": 2, "numbers": 0.5}
    assert told(transacted) == {"music": 4, "numbers": 2}
    assert (engine.wcu, engine.rcu) == (3 + 6, 2.5)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([claim(1), add(1)], "multiple operations on one item"),
        ([claim(number) for number in range(101)], "1 to 100 members"),
        ([], "1 to 100 members"),
        ([{**claim(1), **add(2)}], "only contain one of"),
        ([add(1, {"S": "x"})], "operand type: S"),
        (
            [{"Put": {"TableName": "music", "Item": song(n) | {"f": {"S": "x" * 400_000}}}} for n in range(11)],
            "exceeded the limit of 4 MB",
        ),
    ],
)
def test_a_transaction_that_is_refused_changes_nothing(engine: MemoryDynamoDB, entries: Any, reason: str) -> None:
    failed = refusal(lambda: engine.transact_write_items(TransactItems=entries))
    assert (failed["Code"], reason in failed["Message"]) == ("ValidationException", True)
    assert engine.scan(TableName="music")["Count"] == 0


def test_a_request_token_holds_for_ten_minutes() -> None:
    now = [0.0]
    engine = MemoryDynamoDB(clock=lambda: now[0])
    engine.create_table(
        TableName="music",
        KeySchema=[key("songID", "HASH"), key("SK", "RANGE")],
        AttributeDefinitions=[typed("songID"), typed("SK")],
    )

    def transact(number: int = 1) -> None:
        engine.transact_write_items(TransactItems=[add(number)], ClientRequestToken="token")

    transact()
    now[0] = 599
    transact()
    assert engine.get_item(TableName="music", Key=song())["Item"]["plays"] == {"N": "1"}
    assert refusal(lambda: transact(2))["Code"] == "IdempotentParameterMismatchException"
    now[0] = 601
    transact()
    assert engine.get_item(TableName="music", Key=song())["Item"]["plays"] == {"N": "2"}


# -- through a real boto3 client --


def test_a_boto3_client_sees_the_same_values_and_errors(engine: MemoryDynamoDB) -> None:
    client: Any = boto3_client(engine)
    item = song() | {
        "raw": {"B": b"\x00\xff"},
        "B": {"M": {"B": {"S": "names like types"}, "BS": {"BS": [b"\x01", b"\x02"]}}},
        "long": {"N": "12345678901234567890123456789012345678"},
        "mixed": {"L": [{"NULL": True}, {"BOOL": False}, {"NS": ["1", "2"]}, {"M": {}}]},
    }
    client.put_item(TableName="music", Item=item)
    assert client.get_item(TableName="music", Key=song())["Item"] == item
    assert engine.get_item(TableName="music", Key=song())["Item"] == item
    client.delete_item(TableName="music", Key=song())
    counted(client, 1, 5, 5)
    with pytest.raises(client.exceptions.ConditionalCheckFailedException) as caught:
        counted(client, 5, 5, ReturnValuesOnConditionCheckFailure="ALL_OLD")
    assert caught.value.response["Item"]["DownloadCount"] == {"N": "5"}
    assert top(client)["Items"][0]["DownloadCount"] == {"N": "5"}
    with pytest.raises(client.exceptions.TransactionCanceledException) as cancelled:
        client.transact_write_items(TransactItems=[claim(2), claim(1)])
    codes = [reason["Code"] for reason in cancelled.value.response["CancellationReasons"]]
    assert codes == ["None", "ConditionalCheckFailed"]
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.describe_table(TableName="absent")
    assert refusal(lambda: client.scan(TableName="music", Limit=1, FilterExpression="x"))["Code"] == (
        "ValidationException"
    )
    client.get_waiter("table_exists").wait(TableName="music")


def test_a_boto3_client_waits_as_long_as_it_was_told(engine: MemoryDynamoDB, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("framework.local.bridge.time.sleep", waits.append)
    client = boto3_client(engine, latency=0.004)
    client.get_item(TableName="music", Key=song())
    client.get_item(TableName="music", Key=song())
    assert waits == [0.004, 0.004]


@pytest.mark.filterwarnings("ignore:Couldn't determine the remaining time")
def test_powertools_idempotency_runs_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from aws_lambda_powertools.utilities.idempotency import (
        DynamoDBPersistenceLayer,
        IdempotencyConfig,
        idempotent_function,
    )

    engine = MemoryDynamoDB()
    engine.create_table(TableName="claims", KeySchema=[key("id", "HASH")], AttributeDefinitions=[typed("id")])
    store = DynamoDBPersistenceLayer(table_name="claims", boto3_client=boto3_client(engine))
    seen: list[str] = []

    @idempotent_function(data_keyword_argument="record", persistence_store=store, config=IdempotencyConfig())
    def once(record: str) -> str:
        seen.append(record)
        return record

    assert [once(record=record) for record in ("a", "b", "a")] == ["a", "b", "a"]
    assert seen == ["a", "b"]
    # A claim and its completion each; the repeat's claim fails and gives the record back.
    assert (engine.requests["PutItem"], engine.requests["UpdateItem"]) == (3, 2)


def test_every_write_that_changes_something_is_told_with_the_item_before_and_after() -> None:
    told: list[Any] = []
    engine = MemoryDynamoDB(metered=False, on_change=lambda *change: told.append(change))
    keys = {"KeySchema": [key("id", "HASH")], "AttributeDefinitions": [typed("id")]}
    engine.create_table(TableName="one", **keys)
    item, other = {"id": {"S": "a"}}, {"id": {"S": "a"}, "n": {"N": "1"}}
    engine.put_item(TableName="one", Item=item)
    engine.put_item(TableName="one", Item=item)
    add = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": {"N": "1"}}}
    engine.update_item(TableName="one", Key=item, **add)
    with pytest.raises(ClientError):
        engine.delete_item(TableName="one", Key=item, ConditionExpression="attribute_not_exists(n)")
    engine.transact_write_items(TransactItems=[{"Delete": {"TableName": "one", "Key": item}}])
    engine.delete_item(TableName="one", Key=item)
    assert told == [("one", None, item), ("one", item, other), ("one", other, None)]
    assert engine.wcu == 2, "the transaction's only"
