"""Restoring: the newest version of each item, as it was, none over what is there; what is damaged is named."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError, IncompleteReadError, ReadTimeoutError
from hypothesis import given, settings
from hypothesis import strategies as st

from framework import ConfigurationError, Monthly, Table, TtlArchive
from framework.archive_lane import ALONE
from framework.archive_newest import Selection, key_from_text, where_from_text
from framework.archive_table import check_keys, items_there
from framework.codec import encode_item
from framework.compact import Compaction, Limits
from framework.local.memory import MemoryDynamoDB
from framework.native_import import check_prefix, import_request, write_import
from framework.restore import Choice, Restore, Restored, Survey, TimeToLive, time_to_live
from tests.property.test_codec_properties import items as any_items
from tests.unit.shelf import DAY, NOW, PREFIX, SESSIONS, Shelf, session

NO_TTL = TimeToLive()
LATER = PREFIX.replace("-1/", "-0/")  # by its name it would be the earlier one


class ByMonth(TtlArchive):
    name = "by-month"
    source = SESSIONS
    partition = Monthly("began")


def table(engine: MemoryDynamoDB | None = None, name: str = "Sessions", **keys: str) -> MemoryDynamoDB:
    engine = engine or MemoryDynamoDB()
    keys = keys or {"user": "S", "id": "S"}
    engine.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": kind} for key, kind in keys.items()],
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, ("HASH", "RANGE"), strict=False)],
        BillingMode="PAY_PER_REQUEST",
    )
    return engine


def restore(
    shelf: Shelf, engine: Any, *, ttl: TimeToLive = NO_TTL, dry_run: bool = False, **chosen: Any
) -> tuple[Survey, Restored]:
    choice = Choice(shelf.archive, Selection(**chosen), ttl, now=lambda: NOW)
    try:
        survey = choice.survey()
        return survey, Restore(engine, "Sessions", choice, dry_run=dry_run).run(survey)
    finally:
        choice.close()


def there(engine: MemoryDynamoDB) -> dict[str, Any]:
    return {item["id"]["S"]: item for item in engine.scan(TableName="Sessions")["Items"]}


def numbers(engine: MemoryDynamoDB) -> dict[str, int]:
    return {name: int(item["n"]["N"]) for name, item in there(engine).items()}


def test_items_come_back_and_none_over_one_that_is_there() -> None:
    shelf, engine = Shelf(), table()
    shelf.file(0, [session(n) for n in range(250)])
    engine.put_item(TableName="Sessions", Item=encode_item(session(7, newer=True)))
    survey, done = restore(shelf, engine, dry_run=True)
    assert (survey.found, survey.items, done.restored, done.there) == (250, 250, 249, 1)
    assert len(there(engine)) == 1
    survey, done = restore(shelf, engine)
    assert (done.restored, done.there, done.failed, done.units) == (249, 1, 0, 250)
    assert len(there(engine)) == 250
    assert there(engine)["s7"]["newer"] == {"BOOL": True}
    survey, done = restore(shelf, engine)  # once more, to no harm
    assert (done.restored, done.there) == (0, 250)


@settings(max_examples=60, deadline=None)
@given(st.lists(any_items, min_size=1, max_size=6), st.booleans())
def test_what_is_archived_and_restored_is_equal_item_for_item(found: list[dict[str, Any]], merged: bool) -> None:
    shelf, engine = Shelf(), table()
    made = [{**item, "user": "ann", "id": f"s{number}"} for number, item in enumerate(found)]
    for number, item in enumerate(made):
        shelf.file(number * 10, [item])
    if merged:
        [*Compaction(shelf.archive, Limits(), now=lambda: NOW).run()]
    _, done = restore(shelf, engine)
    assert done.restored == len(made)
    assert there(engine) == {item["id"]: encode_item(item) for item in made}


def test_the_newest_version_wins_whatever_the_order_of_reading() -> None:
    shelf, engine = Shelf(), table()
    shelf.file(100, [session(1, n=3), session(2, n=1), session(2, n=2)], through=110)  # by line
    shelf.file(20, [session(1, n=1)])  # by range, though put at the same time, and named as later
    shelf.file(30, [session(1, n=2)])
    shelf.file(5, [session(3, n=2)], prefix=LATER, age=2 * DAY)  # by lane: this one is of the later shard
    shelf.file(110, [session(3, n=1)])
    shelf.file(3, [session(3, n=0)], suffix=ALONE, age=0)  # put late, of a record that was early
    shelf.file(120, [session(4, n=1)], partition="date=2018-01-30", age=0)  # by day before all
    shelf.file(1, [session(4, n=2)])
    expected = {"s1": 3, "s2": 2, "s3": 2, "s4": 2}
    survey, done = restore(shelf, engine)
    assert (survey.found, survey.items, done.restored, done.there) == (10, 4, 4, 0)
    assert numbers(engine) == expected
    [*Compaction(shelf.archive, Limits(), now=lambda: NOW).run()]
    engine = table()
    restore(shelf, engine)
    assert numbers(engine) == expected


def test_where_partitions_say_nothing_about_the_deletion_they_are_not_asked() -> None:
    shelf, engine = Shelf(ByMonth), table()
    shelf.file(10, [session(1, n=2)], partition="month=2017-05")
    shelf.file(5, [session(1, n=1)], partition="month=2018-01")
    restore(shelf, engine)
    assert numbers(engine) == {"s1": 2}


def test_items_are_chosen_by_key_date_and_value() -> None:
    shelf = Shelf(ByMonth)
    for place, month in enumerate(("2017-12", "2018-01", "2018-02")):
        shelf.file(
            place * 10,
            [session(place, kind="web"), {**session(place + 10, kind=5), "user": "bob"}],
            partition=f"month={month}",
        )

    def chosen(**selection: Any) -> list[str]:
        engine = table()
        restore(shelf, engine, **selection)
        return sorted(numbers(engine))

    def key(text: str) -> Any:
        return key_from_text(text, SESSIONS)

    assert chosen(since="2018-01") == ["s1", "s11", "s12", "s2"]
    assert chosen(since="2018-01-15", until="2018") == ["s1", "s11", "s12", "s2"]
    assert chosen(until="2017") == chosen(until="2017-12-01") == ["s0", "s10"]
    assert chosen(since="2018-01-31", until="2018-01-01") == ["s1", "s11"]
    assert chosen(since="2019") == []
    assert chosen(keys=[key("user=bob")]) == ["s10", "s11", "s12"]
    assert chosen(keys=[key("user=ann,id=s1"), key("user=bob,id=s1"), key("user=bob,id=s12")]) == ["s1", "s12"]
    assert chosen(where=where_from_text("kind=web")) == ["s0", "s1", "s2"]
    assert chosen(where=where_from_text("kind=5.0"), since="2018-02") == ["s12"]
    assert chosen(where=where_from_text("kind=web") & where_from_text("n=1")) == ["s1"]


def test_keys_are_typed_by_the_table() -> None:
    numbered = Table("Numbered", pk="a,b", sk="at", pk_type="B", sk_type="N")
    assert key_from_text("a,b=AP8=,at=1.50", numbered) == {"a,b": {"B": "AP8="}, "at": {"N": "1.50"}}
    assert key_from_text("user=x,y,id=a,id=b", SESSIONS) == {"user": {"S": "x,y"}, "id": {"S": "a,id=b"}}
    for text in ("at=1", "a,b=***", "a,b=AP8=,at=soon", ""):
        with pytest.raises(ConfigurationError, match=r"key: expected a,b=... \(B\),at=... \(N\), came"):
            key_from_text(text, numbered)
    for text in ("status", "=x"):
        with pytest.raises(ConfigurationError, match="where: expected ATTRIBUTE=VALUE, came"):
            where_from_text(text)
    with pytest.raises(ConfigurationError, match="from: expected a day, a month or a year"):
        Selection(since="2018-1")
    assert where_from_text("a.b=true").compile()({"a": {"M": {"b": {"BOOL": True}}}})
    assert where_from_text("a=").compile()({"a": {"S": ""}})


@pytest.mark.parametrize("attribute", [{"S": "soon"}, {"N": str(NOW + 9)}, {"N": str(NOW - 6 * 366 * DAY)}, None])
def test_what_would_not_expire_at_once_is_no_matter(attribute: Any) -> None:
    ttl = TimeToLive(attribute="expires")
    assert not ttl.is_over({} if attribute is None else {"expires": attribute}, NOW)
    assert ttl.is_over({"expires": {"N": str(NOW)}}, NOW)
    assert ttl.is_over({"expires": {"N": f"{NOW - DAY}.5"}}, NOW)
    assert not TimeToLive(attribute="expires", days=1).is_over({"expires": {"N": "1500000000"}}, NOW)


def test_a_new_time_to_live_is_that_of_the_table() -> None:
    shelf, engine = Shelf(), table()
    shelf.file(0, [session(1, expires=NOW - 9, ends=1), session(2)])
    declared = TimeToLive(attribute="expires", days=2)
    assert time_to_live(engine, "Sessions", declared) == declared
    assert time_to_live(engine, "Sessions", TimeToLive(attribute="expires")).attribute is None
    engine.update_time_to_live(TableName="Sessions", TimeToLiveSpecification={"Enabled": True, "AttributeName": "ends"})
    ttl = time_to_live(engine, "Sessions", declared)
    assert ttl == TimeToLive(attribute="ends", days=2)
    assert time_to_live(engine, "Sessions", TimeToLive(attribute="expires", keep=True)) == TimeToLive(
        attribute="ends", keep=True
    )
    assert restore(shelf, engine, ttl=ttl)[0].over == 0
    assert [item["ends"]["N"] for item in there(engine).values()] == [str(NOW + 2 * DAY)] * 2
    assert restore(shelf, engine, ttl=TimeToLive(attribute="expires"))[0].over == 1
    with pytest.raises(ConfigurationError, match="expected one with a time to live, came one without"):
        time_to_live(table(), "Sessions", TimeToLive(days=3))


def test_what_is_damaged_is_named_with_object_and_line_and_the_rest_comes_back() -> None:
    shelf, engine = Shelf(), table()
    good = shelf.file(0, [session(1)])
    broken = shelf.file(10, [session(2)])
    shelf.objects.objects[broken] = shelf.objects.objects[broken][:-9]
    empty = shelf.file(15, [session(2)])
    shelf.objects.objects[empty] = b""
    mixed = shelf.file(20, [])
    lines = [b'{"Item": {', b'{"Item": {"user": {"S": "ann"}}}', b'{"Item": {"user": {"S": "ann"}, "id": {"N": "1"}}}', b"[]",
             b'{"Item": {"user": {"S": "ann"}, "id": {"S": "s3"}, "n": {"N": "3"}}}', b'{"Item": {"user": {"S": "ann"}, "id": {"S": "x"}, "b": {"B": "*"}}}', b"\xff"]  # fmt: skip
    shelf.objects.objects[mixed] = gzip.compress(b"\n".join(lines))
    shelf.objects.put_object(Bucket="", Key="sessions/date=2018-01-31/notes.txt", Body=b"hello")
    shelf.objects.put_object(Bucket="", Key="sessions/notes.txt", Body=b"hello")
    shelf.objects.put_object(Bucket="", Key="sessions/date=2018-01-31/", Body=b"")
    untold = shelf.file(30, [session(4)])
    shelf.objects._about[untold]["Metadata"] = {}
    survey, done = restore(shelf, engine)
    assert numbers(engine) == {"s1": 1, "s3": 3, "s4": 4}
    assert (done.restored, survey.failed) == (3, 10)
    named = [(each.object, each.line, each.reason.partition(", came ")[0]) for each in survey.named]
    assert sorted(named, key=str) == sorted(
        [
            (broken, None, "expected lines compressed with gzip"),
            (empty, None, "expected lines compressed with gzip"),
            (mixed, 1, "expected a line {'Item': ...} of DynamoDB JSON"),
            (mixed, 2, "expected an item with the key 'id' (S)"),
            (mixed, 3, "expected an item with the key 'id' (S)"),
            (mixed, 4, "expected a line {'Item': ...} of DynamoDB JSON"),
            (mixed, 6, "expected an item as DynamoDB JSON: at 'b': expected binary as bytes or base64 text"),
            (mixed, 7, "expected a line {'Item': ...} of DynamoDB JSON"),
            ("sessions/date=2018-01-31/notes.txt", None, "expected an object of an archive"),
            ("sessions/notes.txt", None, "expected an object of an archive"),
        ],
        key=str,
    )
    assert str(survey.named[-1]).startswith("sessions/")
    assert good not in str(named)


def test_an_item_that_the_table_will_not_take_is_named_and_the_others_come() -> None:
    shelf, engine = Shelf(), table()
    name = shelf.file(0, [session(1), session(2, big="x" * 410_000), session(3)])
    _, done = restore(shelf, engine)
    assert (done.restored, done.failed) == (2, 1)
    assert (done.named[0].object, done.named[0].line) == (name, 2)
    assert "Item size" in done.named[0].reason


class Odd:
    """A DynamoDB client on which an operation goes wrong now and then."""

    def __init__(self, engine: Any, operation: str, *codes: str) -> None:
        self.engine, self.operation, self.codes = engine, operation, [*codes]

    def __getattr__(self, operation: str) -> Any:
        if operation == self.operation and self.codes:
            code = self.codes.pop(0)

            def refuse(**_: Any) -> Any:
                raise ClientError({"Error": {"Code": code, "Message": "."}}, operation)

            return refuse
        return getattr(self.engine, operation)


def test_a_table_that_throttles_is_asked_again_and_one_that_denies_ends_it() -> None:
    shelf, engine = Shelf(), table()
    shelf.file(0, [session(n) for n in range(30)])
    _, done = restore(shelf, Odd(engine, "put_item", "ThrottlingException"))
    assert (done.restored, done.there) == (30, 0)
    with pytest.raises(ClientError, match="AccessDenied"):
        restore(shelf, Odd(engine, "put_item", *["AccessDeniedException"] * 99))


def test_it_keeps_to_a_rate() -> None:
    shelf, engine = Shelf(), table()
    shelf.file(0, [session(n, filler="x" * 3000) for n in range(40)])
    choice, at = Choice(shelf.archive, Selection(), TimeToLive()), [0.0]

    def sleep(seconds: float) -> None:
        at[0] += seconds

    survey = choice.survey()
    done = Restore(engine, "Sessions", choice, wcu=10, clock=lambda: at[0], sleep=sleep).run(survey)
    choice.close()
    assert (done.restored, done.units) == (40, 120)
    assert at[0] >= 7  # what a second brings, and what goes out at once, is not waited for


def test_a_table_with_other_keys_is_refused_with_both_named() -> None:
    engine = table(table(), "Others", user="S", id="N")
    check_keys(engine, "Sessions", SESSIONS)
    with pytest.raises(ConfigurationError) as caught:
        check_keys(engine, "Others", SESSIONS)
    assert str(caught.value) == (
        "table 'Others': expected the keys of the archived items of 'Sessions', user (S), id (S), came user (S), id (N)"
    )
    with pytest.raises(ConfigurationError, match=r"came user \(S\)$"):
        check_keys(table(engine, "Short", user="S"), "Short", SESSIONS)
    with pytest.raises(ConfigurationError, match=r"came id \(S\), user \(S\)$"):
        check_keys(table(engine, "Turned", id="S", user="S"), "Turned", SESSIONS)


def test_what_vanishes_between_the_two_readings_is_named() -> None:
    shelf, engine = Shelf(), table()
    shelf.file(0, [session(1)])
    name = shelf.file(10, [session(2)])
    choice = Choice(shelf.archive, Selection(), TimeToLive())
    survey = choice.survey()
    shelf.objects.objects[name] = b"damaged"
    shelf.file(20, [session(3)])  # and what comes is left to another run
    done = Restore(engine, "Sessions", choice).run(survey)
    choice.close()
    assert (done.restored, done.failed, done.named[0].object) == (1, 1, name)


def test_an_answer_that_is_not_the_whole_one_is_asked_for_the_rest() -> None:
    engine = table()
    keys = [{"user": {"S": "ann"}, "id": {"S": f"s{n}"}} for n in range(5)]
    for key in keys[:4]:
        engine.put_item(TableName="Sessions", Item=key)

    class Slow:
        def batch_get_item(self, RequestItems: Any) -> Any:
            (asked,) = RequestItems.values()
            reply = engine.batch_get_item(RequestItems={"Sessions": {**asked, "Keys": asked["Keys"][:2]}})
            rest = asked["Keys"][2:]
            return {**reply, "UnprocessedKeys": {"Sessions": {**asked, "Keys": rest}} if rest else {}}

    found = items_there(Slow(), "Sessions", keys, ("user", "id"), sleep=lambda seconds: None)
    assert sorted(item["id"]["S"] for item in found) == ["s0", "s1", "s2", "s3"]
    assert items_there(Slow(), "Sessions", []) == []


def test_a_native_import_gets_the_newest_of_each_and_a_request() -> None:
    shelf = Shelf()
    shelf.file(0, [session(1, n=1, b=b"\x00\xff"), session(2)])
    shelf.file(10, [session(1, n=2, b=b"\x00\xff")])
    for days, more in ((None, {}), (3, {"expires": {"N": str(NOW + 3 * DAY)}})):
        prefix = f"imports/{days}"
        choice = Choice(shelf.archive, Selection(), TimeToLive(attribute="expires", days=days), now=lambda: NOW)
        check_prefix(shelf.archive, prefix)
        assert write_import(shelf.archive, choice, choice.survey(), prefix) == 2
        choice.close()
        lines = gzip.decompress(shelf.objects.objects[f"{prefix}/000001.json.gz"]).decode().splitlines()
        assert sorted((json.loads(line)["Item"] for line in lines), key=lambda item: item["id"]["S"]) == [
            {"user": {"S": "ann"}, "id": {"S": "s1"}, "n": {"N": "2"}, "b": {"B": "AP8="}, **more},
            {"user": {"S": "ann"}, "id": {"S": "s2"}, "n": {"N": "2"}, **more},
        ]
    for wrong in ("sessions", "sessions/new", "_manifests/x", "/", ""):
        with pytest.raises(ConfigurationError, match="native: expected a prefix outside of"):
            check_prefix(shelf.archive, wrong)
    with pytest.raises(ConfigurationError, match="expected nothing under 'imports/3/'"):
        check_prefix(shelf.archive, "imports/3/")
    request = import_request("bucket", "/imports/3/", "New", SESSIONS)
    assert request["S3BucketSource"] == {"S3Bucket": "bucket", "S3KeyPrefix": "imports/3/"}
    assert request["TableCreationParameters"]["KeySchema"] == [
        {"AttributeName": "user", "KeyType": "HASH"},
        {"AttributeName": "id", "KeyType": "RANGE"},
    ]


@pytest.mark.parametrize(
    "error", [IncompleteReadError(actual_bytes=3, expected_bytes=9), ReadTimeoutError(endpoint_url="s3")]
)
def test_an_object_whose_transfer_breaks_off_is_fetched_again(error: Exception) -> None:
    shelf, engine = Shelf(), table()
    shelf.file(0, [session(1)])
    [*Compaction(shelf.archive, Limits(), now=lambda: NOW).run()]
    broken: set[str] = set()

    class Torn:
        def read(self, size: int = -1) -> bytes:
            raise error

    class Client:
        def get_object(self, **arguments: Any) -> Any:
            reply = shelf.objects.get_object(**arguments)
            if arguments["Key"] in broken:
                return reply
            broken.add(arguments["Key"])
            return {**reply, "Body": Torn()}

        def __getattr__(self, operation: str) -> Any:
            return getattr(shelf.objects, operation)

    shelf.client = Client()
    survey, done = restore(shelf, engine)
    assert (survey.failed, done.restored) == (0, 1)


def test_an_item_in_a_cold_class_is_named() -> None:
    shelf, engine = Shelf(), table()
    name = shelf.file(0, [session(1)])

    class Cold:
        def get_object(self, **arguments: Any) -> Any:
            if arguments["Key"] == name:
                raise ClientError({"Error": {"Code": "InvalidObjectState", "Message": "."}}, "GetObject")
            return shelf.objects.get_object(**arguments)

        def __getattr__(self, operation: str) -> Any:
            return getattr(shelf.objects, operation)

    shelf.client = Cold()
    survey, _ = restore(shelf, engine)
    assert "expected an object that can be read at once" in survey.named[0].reason
