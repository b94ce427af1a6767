"""A file in place of a stream: its formats, its records, and what is said of a file that is broken."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import os
import tempfile
import zlib
from collections.abc import Callable
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framework import Table
from framework.codec import decode_item, encode_item, plain_json, to_event
from framework.decode import decode
from framework.errors import SourceError
from framework.local.formats import Format
from framework.local.sources import FileSource

MUSIC = Table("MusicLibrary", pk="songID", sk="SK")
USERS = Table("Users", pk="id")
READINGS = Table("Readings", pk="sensor", sk="at", pk_type="N", sk_type="B")

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "items"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def images(path: Path, table: Table = USERS) -> list[dict[str, Any]]:
    return [record["dynamodb"]["NewImage"] for record in FileSource(path, table).records()]


def read(source: FileSource) -> tuple[list[dict[str, Any]], str]:
    """The records, and what was raised after them."""
    found = []
    try:
        for record in source.records():
            found.append(record)
    except SourceError as error:
        return found, str(error)
    return found, ""


def stream_record(name: str, key: str, **change: Any) -> dict[str, Any]:
    return {"eventName": name, "dynamodb": {"Keys": {"id": {"S": key}}, **change}}


INSERT_A = stream_record("INSERT", "a", NewImage={"id": {"S": "a"}, "n": {"N": "1.50"}})
REMOVE_A = stream_record("REMOVE", "a", OldImage={"id": {"S": "a"}, "n": {"N": "1.50"}})
EXPIRY_A = {**REMOVE_A, "userIdentity": {"type": "Service", "principalId": "dynamodb.amazonaws.com"}}


def numbered(record: dict[str, Any], sequence: Any) -> dict[str, Any]:
    return {**record, "dynamodb": {**record["dynamodb"], "SequenceNumber": sequence}}


def json_lines(*documents: Any) -> str:
    return "".join(json.dumps(document) + "\n" for document in documents)


# The records


def test_records_are_shaped_as_those_of_a_lambda_event(write: Write) -> None:
    source = FileSource(write('{"songID": "1", "SK": "details", "n": 1}\n{"songID": "1", "SK": "details"}\n'), MUSIC)
    insert, modify = source.records()
    keys = {"songID": {"S": "1"}, "SK": {"S": "details"}}
    assert insert == {
        "eventID": insert["eventID"],
        "eventName": "INSERT",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "dynamodb": {
            "ApproximateCreationDateTime": 1577836800,
            "Keys": keys,
            "NewImage": {**keys, "n": {"N": "1"}},
            "SequenceNumber": "100000000000000010000",
            "SizeBytes": insert["dynamodb"]["SizeBytes"],
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventSourceARN": source.stream_arn,
    }
    assert modify["eventName"] == "MODIFY"
    assert modify["dynamodb"]["OldImage"] == insert["dynamodb"]["NewImage"]
    assert modify["dynamodb"]["NewImage"] == keys
    assert insert["eventID"] != modify["eventID"]
    assert 0 < modify["dynamodb"]["SizeBytes"] < 1000
    batch = decode({"Records": [insert, modify], "shardId": source.shard_id})
    assert batch.stream_arn.startswith("arn:aws:dynamodb:us-east-1:000000000000:table/MusicLibrary/stream/items-")


def test_a_key_that_comes_again_is_an_edit_and_an_equal_item_is_nothing(write: Write) -> None:
    path = write(json_lines({"id": "a", "n": 1}, {"id": "a", "n": 1.0}, {"id": "b"}, {"n": 2, "id": "a"}, {"id": "b"}))
    found = [
        (record["eventName"], record["dynamodb"]["SequenceNumber"][-6:], record["dynamodb"].get("OldImage"))
        for record in FileSource(path, USERS).records()
    ]
    assert found == [
        ("INSERT", "010000", None),
        ("INSERT", "030000", None),
        ("MODIFY", "040000", {"id": {"S": "a"}, "n": {"N": "1"}}),
    ]


def test_composite_keys_that_look_alike_when_joined_are_different_keys(write: Write) -> None:
    path = write("songID,SK\n1,2 x\n1 2, x\n12,x\n1,2x\n1 1,1\n1,1 1\n")
    assert {record["eventName"] for record in FileSource(path, MUSIC).records()} == {"INSERT"}


def test_records_up_to_after_are_left_out_but_their_items_are_known(write: Write) -> None:
    path = write(json_lines({"id": "a"}, {"id": "b"}, {"id": "a", "n": 1}, {"id": "c"}))
    source = FileSource(path, USERS)
    whole = list(source.records())
    for done in range(len(whole)):
        assert list(source.records(after=int(whole[done]["dynamodb"]["SequenceNumber"]))) == whole[done + 1 :]
    assert whole[2]["eventName"] == "MODIFY"


def test_a_file_of_the_same_name_is_the_same_lane_and_another_name_is_another(tmp_path: Path) -> None:
    paths = [tmp_path / "a.csv", tmp_path / "folder" / "a.csv", tmp_path / "b.csv", tmp_path / "ä b.csv"]
    paths[1].parent.mkdir()
    for path in paths:
        path.write_text("id\nx\n")
    lanes = [(source.shard_id, source.stream_arn) for source in (FileSource(path, USERS) for path in paths)]
    assert lanes[0] == lanes[1]
    assert len(set(lanes)) == 3
    assert all(text.isascii() and " " not in text for lane in lanes for text in lane)


def test_the_sequence_numbers_of_a_mended_and_longer_file_go_on_from_those_of_the_broken_one(
    write: Write,
) -> None:
    records, _ = read(FileSource(write('{"id": "a"}\n{"id": "b"}\n{"id": \n'), USERS))
    broken = [record["dynamodb"]["SequenceNumber"] for record in records]
    mended = FileSource(write('{"id": "a"}\n{"id": "b"}\n{"id": "c"}\n{"id": "d"}'), USERS)
    assert [int(s) for s in broken] == [10**20 + 10_000, 10**20 + 20_000]
    rest = [record["dynamodb"]["Keys"]["id"]["S"] for record in mended.records(after=int(broken[-1]))]
    assert rest == ["c", "d"]


@pytest.mark.parametrize("packed", [False, True])
def test_progress_goes_from_nothing_to_all_by_the_bytes_that_were_read(write: Write, packed: bool) -> None:
    content = "id,x\n" + "".join(f"{n},{os.urandom(20).hex()}\n" for n in range(5000))
    source = FileSource(write(gzip.compress(content.encode()) if packed else content), USERS)
    seen = [source.progress()]
    for count, _ in enumerate(source.records()):
        if count % 1000 == 0:
            seen.append(source.progress())
    assert seen[0] == 0.0
    assert seen == sorted(seen)
    assert 0.3 < seen[3] < 0.7
    assert source.progress() == 1.0


def test_records_are_read_as_they_are_asked_for(write: Write) -> None:
    source = FileSource(write(json_lines(*({"id": str(n)} for n in range(10_000)), 5)), USERS)
    assert len(list(islice(source.records(), 100))) == 100
    assert source.progress() < 0.1


# The formats

SAME_ITEM = {"id": {"S": "a"}, "n": {"N": "1.5"}}
FORMATS = [
    pytest.param('{"id": "a", "n": 1.50}\n', Format.JSON, id="plain"),
    pytest.param('{"id": {"S": "a"}, "n": {"N": "1.50"}}\n', Format.DYNAMODB_JSON, id="typed"),
    pytest.param('{"Item": {"id": {"S": "a"}, "n": {"N": "1.50"}}}\n', Format.DYNAMODB_JSON, id="exported"),
    pytest.param("id,n\na,1.50\n", Format.CSV, id="csv"),
    pytest.param('"n","id"\r\n"1.50","a"\r\n', Format.CSV, id="csv quoted"),
]
DISGUISES: list[Any] = [
    pytest.param(lambda text: text, id="as it is"),
    pytest.param(lambda text: b"\xef\xbb\xbf" + text, id="byte order mark"),
    pytest.param(lambda text: text.replace(b"\r", b"").replace(b"\n", b"\r\n"), id="CRLF"),
    pytest.param(lambda text: text.rstrip(), id="no newline at the end"),
    pytest.param(lambda text: b"\n\r\n" + text.replace(b"\n", b"\n\n") + b"  \n", id="blank lines"),
    pytest.param(lambda text: gzip.compress(b"\xef\xbb\xbf" + text), id="gzip"),
    pytest.param(lambda text: gzip.compress(text[:9]) + gzip.compress(text[9:]), id="gzip of two members"),
]


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize(("content", "form"), FORMATS)
def test_a_format_is_recognised_from_the_first_line_whatever_the_bytes_around_it(
    write: Write, content: str, form: Format, disguise: Callable[[bytes], bytes]
) -> None:
    path = write(disguise(content.encode()))
    assert FileSource(path, USERS).format is form
    assert images(path) == [SAME_ITEM]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0), b"id,n\n"])
def test_an_empty_file_has_no_records(write: Write, content: bytes) -> None:
    source = FileSource(write(content), USERS)
    assert list(source.records()) == []
    assert source.progress() == 1.0


PLAIN = [
    ("9" * 38, {"N": "9" * 38}),
    ("-0.0", {"N": "0"}),
    ("0.1", {"N": "0.1"}),
    ("1E+2", {"N": "100"}),
    ("12345678901234567890.123456789012345678", {"N": "12345678901234567890.123456789012345678"}),
    ('"007"', {"S": "007"}),
    ('""', {"S": ""}),
    ('"\\u00e4"', {"S": "ä"}),
    ("null", {"NULL": True}),
    ("true", {"BOOL": True}),
    ('[1, "x", []]', {"L": [{"N": "1"}, {"S": "x"}, {"L": []}]}),
    ('{"S": "x"}', {"M": {"S": {"S": "x"}}}),
    ("{}", {"M": {}}),
    ('[1], "Records": []', {"L": [{"N": "1"}]}),
]


@pytest.mark.parametrize(("text", "raw"), PLAIN)
def test_plain_json_values_are_what_they_naturally_are_and_numbers_are_exact(
    write: Write, text: str, raw: dict[str, Any]
) -> None:
    (image,) = images(write(f'{{"id": "a", "v": {text}}}'))
    assert (image["id"], image["v"]) == ({"S": "a"}, raw)


TYPED = [
    ({"N": "1.50"}, {"N": "1.5"}),
    ({"N": "1E2"}, {"N": "100"}),
    ({"B": "AP8="}, {"B": "AP8="}),
    ({"BS": ["AQ==", ""]}, {"BS": ["", "AQ=="]}),
    ({"NS": ["2.0", "1"]}, {"NS": ["1", "2"]}),
    ({"NULL": True}, {"NULL": True}),
    ({"S": "ä"}, {"S": "ä"}),
    ({"M": {"a": {"L": [{"B": "AQ=="}, {"N": "-0"}]}}}, {"M": {"a": {"L": [{"B": "AQ=="}, {"N": "0"}]}}}),
]


@pytest.mark.parametrize(("came", "raw"), TYPED)
def test_typed_values_come_out_as_the_service_would_give_them_back(
    write: Write, came: dict[str, Any], raw: dict[str, Any]
) -> None:
    assert images(write(json_lines({"id": {"S": "a"}, "v": came}))) == [{"id": {"S": "a"}, "v": raw}]


CELLS = [
    ("v", "5", {"N": "5"}),
    ("v", "-1.50", {"N": "-1.5"}),
    ("v", "0", {"N": "0"}),
    ("v", "-0", {"N": "0"}),
    ("v", "1e-7", {"N": "0.0000001"}),
    ("v", "9" * 38, {"N": "9" * 38}),
    ("v", "007", {"S": "007"}),
    ("v", "+5", {"S": "+5"}),
    ("v", ".5", {"S": ".5"}),
    ("v", "5.", {"S": "5."}),
    ("v", " 5", {"S": " 5"}),
    ("v", "1_000", {"S": "1_000"}),
    ("v", "٣", {"S": "٣"}),
    ("v", "NaN", {"S": "NaN"}),
    ("v", "true", {"S": "true"}),
    ("v", "2013-01-01T05:15:00", {"S": "2013-01-01T05:15:00"}),
    ("v", '"a ""b"", c"', {"S": 'a "b", c'}),
    ("v", '"two\r\nlines"', {"S": "two\r\nlines"}),
    ("v", '"{""a"": 1}"', {"S": '{"a": 1}'}),
    ("v", "{not json}", {"S": "{not json}"}),
    ("v", "x" * 300_000, {"S": "x" * 300_000}),
    ("v:S", "10001", {"S": "10001"}),
    ("v:N", "007", {"N": "7"}),
    ("v:N", "+5", {"N": "5"}),
    ("v:B", "AP8=", {"B": "AP8="}),
]


@pytest.mark.parametrize(("title", "cell", "raw"), CELLS)
def test_a_csv_cell_is_a_number_if_json_writes_it_so_and_a_header_can_settle_the_type(
    write: Write, title: str, cell: str, raw: dict[str, Any]
) -> None:
    assert images(write(f"{title},id\n{cell},a\n")) == [{"v": raw, "id": {"S": "a"}}]


def test_an_empty_csv_cell_is_an_absent_attribute(write: Write) -> None:
    assert images(write('id,n,m\na,,""\n')) == [{"id": {"S": "a"}}]


def test_a_colon_in_a_header_is_part_of_the_name_unless_a_type_follows(write: Write) -> None:
    assert images(write("id,dc:title,x:S:S\na,b,5\n")) == [
        {"id": {"S": "a"}, "dc:title": {"S": "b"}, "x:S": {"S": "5"}}
    ]


KEYS_BY_TYPE = [
    "sensor,at\n0012.0,AP8=\n",
    "sensor:N,at:B\n12,AP8=\n",
    '{"sensor": 12, "at": "AP8="}',
    '{"sensor": {"N": "12.0"}, "at": {"B": "AP8="}}',
]


@pytest.mark.parametrize("content", KEYS_BY_TYPE)
def test_a_key_has_its_declared_type(write: Write, content: str) -> None:
    assert images(write(content), READINGS) == [{"sensor": {"N": "12"}, "at": {"B": "AP8="}}]


def test_a_text_key_that_looks_like_a_number_stays_text(write: Write) -> None:
    assert images(write("id\n007\n1.50\n")) == [{"id": {"S": "007"}}, {"id": {"S": "1.50"}}]


AMBIGUOUS = [
    ("Item", '{"Item": "a"}', {"S": "a"}),
    ("Item", '{"Item": {"S": "a"}}', {"S": "a"}),
    ("Item", '{"Item": {"Item": {"S": "a"}}}', {"S": "a"}),
    ("S", '{"Item": {"S": {"S": "a"}}}', {"S": "a"}),
    ("Records", '{"Records": "a"}', {"S": "a"}),
    ("Records", '{"Records": {"S": "a"}}', {"S": "a"}),
    ("dynamodb", '{"dynamodb": "a", "eventName": "INSERT"}', {"S": "a"}),
]


@pytest.mark.parametrize(("pk", "content", "key"), AMBIGUOUS)
def test_a_key_attribute_named_as_a_part_of_a_format_is_still_a_key(
    write: Write, pk: str, content: str, key: dict[str, Any]
) -> None:
    (record,) = FileSource(write(content), Table("Odd", pk=pk)).records()
    assert record["dynamodb"]["Keys"] == {pk: key}


# Stream records


@pytest.mark.parametrize("event", [False, True])
def test_lines_of_stream_records_and_of_whole_events_are_replayed(write: Write, event: bool) -> None:
    lines = [INSERT_A, EXPIRY_A, INSERT_A, REMOVE_A]
    path = write(
        json_lines({"Records": lines[:3]}, {"Records": []}, {"Records": lines[3:]}) if event else json_lines(*lines)
    )
    source = FileSource(path, USERS)
    found = list(source.records())
    assert source.format is Format.RECORDS
    assert [record["eventName"] for record in found] == ["INSERT", "REMOVE", "INSERT", "REMOVE"]
    assert [record["dynamodb"].get("OldImage") for record in found[:2]] == [
        None,
        REMOVE_A["dynamodb"]["OldImage"],
    ]
    assert found[1]["userIdentity"] == EXPIRY_A["userIdentity"]
    sequences = [int(record["dynamodb"]["SequenceNumber"]) for record in found]
    assert sequences == sorted(set(sequences))
    assert min(sequences) >= 10**20
    assert len({record["eventID"] for record in found}) == 4
    assert decode({"Records": found, "shardId": source.shard_id}).records == found
    assert list(source.records(after=sequences[1])) == found[2:]


def test_a_stream_record_that_is_whole_is_taken_as_it_is(write: Write) -> None:
    (made,) = FileSource(write('{"id": "a"}'), USERS).records()
    own = {
        **numbered(made, "111"),
        "eventID": "1",
        "awsRegion": "eu-west-1",
        "eventSourceARN": "arn:aws:dynamodb:eu-west-1:123456789012:table/Users/stream/2018",
    }
    own["dynamodb"] |= {"ApproximateCreationDateTime": 1479499740.5, "SizeBytes": 7}
    (found,) = FileSource(write(json_lines(own)), USERS).records()
    assert found == {**own, "eventSourceARN": made["eventSourceARN"]}
    assert type(found["dynamodb"]["ApproximateCreationDateTime"]) is float


def test_stream_records_keep_their_own_sequence_numbers(write: Write) -> None:
    path = write(json_lines(numbered(INSERT_A, "99"), numbered(REMOVE_A, "00100"), numbered(INSERT_A, "9" * 40)))
    found = [record["dynamodb"]["SequenceNumber"] for record in FileSource(path, USERS).records(after=99)]
    assert found == ["100", "9" * 40]


# Broken files

GOOD = {
    "plain": b'{"id": "a"}\n',
    "typed": b'{"id": {"S": "a"}}\n',
    "csv": b"id,n\n",
    "records": json_lines(numbered(INSERT_A, "7")).encode(),
}
BROKEN: list[tuple[str, str | bytes, str]] = [
    (
        "plain",
        '{"id": "b"',
        "expected one JSON object, came '{\"id\": \"b\"' (Expecting ',' delimiter at column 11)",
    ),
    ("plain", '{"id": "b"} {"id": "c"}', "(Extra data at column 13)"),
    ("plain", "[1]", "expected one JSON object, came '[1]'"),
    ("plain", "5", "expected one JSON object, came '5'"),
    ("plain", "b,5", "expected one JSON object, came 'b,5'"),
    ("plain", '{"id": "b", "n": NaN}', "expected a finite number, came NaN"),
    ("plain", '{"id": "b", "n": -Infinity}', "expected a finite number, came -Infinity"),
    ("plain", '{"id": "b", "n": 1, "n": 2}', "expected each name once in a JSON object, came 'n' twice"),
    ("plain", '{"id": "b", "m": {"n": 1, "n": 1}}', "came 'n' twice"),
    ("plain", '{"n": 1}', "key attribute 'id': expected a value of type S, came none"),
    ("plain", "{}", "key attribute 'id': expected a value of type S, came none"),
    ("plain", '{"id": 5}', "key attribute 'id': expected a value of type S, came {'N': '5'}"),
    ("plain", '{"id": null}', "key attribute 'id': expected a value of type S, came {'NULL': True}"),
    ("plain", '{"id": ""}', "key attribute 'id': expected 1 to 2,048 bytes, came 0"),
    ("plain", json.dumps({"id": "ä" * 1025}), "key attribute 'id': expected 1 to 2,048 bytes, came 2,050"),
    ("plain", '{"id": "b", "n": 1e126}', "expected a number of a magnitude from 1E-130 to 9.99E+125"),
    ("plain", '{"id": "b", "n": 1e9999999999999999999999}', "expected a number as text"),
    ("plain", f'{{"id": "b", "n": 1{"0" * 5000}}}', "expected a number of a magnitude"),
    ("plain", f'{{"id": "b", "n": {"9" * 39}}}', "at most 38 significant digits"),
    ("plain", '{"id": "b", "": 1}', "expected an attribute name of 1 to 65,535 bytes, came ''"),
    ("plain", '{"id": "b", "s": "\\ud800"}', "at 's': expected text that UTF-8 can hold"),
    ("plain", f'{{"id": "b", "l": {"[" * 40}{"]" * 40}}}', "expected at most 32 levels of nesting"),
    ("plain", f'{{"id": "b", "l": {"[" * 99_999}', "expected at most 32 levels of nesting"),
    ("plain", GOOD["typed"], "expected plain JSON as in the first line, came DynamoDB JSON"),
    ("plain", '{"Item": {"id": {"S": "b"}}}', "expected plain JSON as in the first line, came DynamoDB JSON"),
    ("plain", GOOD["records"], "expected plain JSON as in the first line, came stream records"),
    ("plain", b'{"id": "\xff"}', "expected UTF-8 text, came b'\\xff' at byte 9 of the line"),
    ("plain", b'\xef\xbb\xbf{"id": "b"}', "expected one JSON object"),
    ("typed", GOOD["plain"], "expected DynamoDB JSON as in the first line, came plain JSON"),
    ("typed", '{"id": {"S": "b"}, "n": 5}', "at 'n': expected DynamoDB JSON with one type"),
    ("typed", '{"id": {"S": "b"}, "n": {"N": 5}}', "at 'n': expected a number as text"),
    ("typed", '{"id": {"S": "b"}, "n": {"X": "5"}}', "at 'n': expected one of the types"),
    ("typed", '{"id": {"S": "b"}, "s": {"SS": []}}', "at 's': expected a set of at least one member"),
    ("typed", '{"id": {"N": "5"}}', "key attribute 'id': expected a value of type S, came {'N': '5'}"),
    ("typed", '{"Item": {"n": {"N": "5"}}}', "key attribute 'id': expected a value of type S, came none"),
    ("typed", '{"Item": 5}', "expected DynamoDB JSON as in the first line, came plain JSON"),
    ("csv", "b", "expected 2 cells as in the header, came 1"),
    ("csv", "b,1,", "expected 2 cells as in the header, came 3"),
    ("csv", ",1", "key attribute 'id': expected a value of type S, came none"),
    ("csv", '{"id": "b", "n": 1}', "expected CSV as in the first line, came a JSON object"),
    ("csv", 'b,"x', "expected a row of CSV (RFC 4180), came an error: unexpected end of data"),
    ("csv", 'b,"x"y', "expected a row of CSV (RFC 4180), came an error: "),
    ("csv", 'b,"x\n\n\n', "expected a row of CSV (RFC 4180), came an error: "),
    ("csv", f'b,"{"x" * 500_000}"', "expected a row of CSV (RFC 4180), came an error: field larger"),
    ("csv", b"b,\xff", "expected UTF-8 text, came b'\\xff' at byte 3 of the line"),
    (
        "csv",
        "b," + "9" * 39,
        f"column 'n': expected a number of at most 38 significant digits, came Decimal('{'9' * 39}'); "
        "'n:S' in the header keeps it as text",
    ),
    (
        "records",
        json.dumps(numbered(INSERT_A, "7")),
        "SequenceNumber: expected one above 7, the last before it, came 7",
    ),
    (
        "records",
        json.dumps(numbered(INSERT_A, 8)),
        "SequenceNumber: expected up to 40 decimal digits as text, came 8",
    ),
    ("records", json.dumps(numbered(INSERT_A, "x")), "SequenceNumber: expected up to 40 decimal digits"),
    ("records", json.dumps(numbered(INSERT_A, "9" * 41)), "SequenceNumber: expected up to 40 decimal digits"),
    (
        "records",
        json.dumps({**INSERT_A, "eventName": "UPSERT"}),
        "eventName: expected INSERT, MODIFY or REMOVE",
    ),
    (
        "records",
        json.dumps(stream_record("MODIFY", "a", NewImage={})),
        "OldImage: expected an item in a MODIFY record",
    ),
    (
        "records",
        json.dumps(stream_record("INSERT", "a", NewImage={"id": {"S": 5}})),
        "NewImage: at 'id': expected text",
    ),
    (
        "records",
        json.dumps(stream_record("INSERT", "")),
        "Keys: key attribute 'id': expected 1 to 2,048 bytes, came 0",
    ),
    ("records", json.dumps({"Records": [INSERT_A, 5]}), "expected a stream record, came 5"),
    ("records", json.dumps({"Records": [INSERT_A] * 10_001}), "expected at most 10,000 records, came 10,001"),
    ("records", GOOD["plain"], "expected stream records as in the first line, came plain JSON"),
    ("records", GOOD["typed"], "expected stream records as in the first line, came DynamoDB JSON"),
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("form", "line", "reason"), BROKEN)
def test_a_broken_line_is_named_and_nothing_after_it_is_read(
    write: Write, form: str, line: str | bytes, reason: str, packed: bool
) -> None:
    before, after = {"csv": (b"a,1\n", b"c,1\n")}.get(form, (b"", GOOD[form]))
    line = line.encode() if isinstance(line, str) else line
    rest = b"\n" + after if not (form == "csv" and b'"x' in line and b'"y' not in line) else b""
    content = GOOD[form] + before + b"\n" + line + rest
    path = write(gzip.compress(content) if packed else content)
    found, error = read(FileSource(path, USERS))
    assert error.startswith(f"{path}: line {4 if form == 'csv' else 3}: ")
    assert reason in error
    assert "\n" not in error
    assert [record["dynamodb"]["Keys"]["id"]["S"] for record in found] == ["a"]


HEADERS = [
    ("n,m\n1,2\n", "line 1: expected JSON, or a CSV header with the key attribute 'id', came 'n,m'"),
    ("just text\n", "line 1: expected JSON, or a CSV header with the key attribute 'id', came 'just text'"),
    ("\n\nid,n,n\n", "line 3: expected each name once in the header, came 'n' twice"),
    ("id,n,n:S\n", "line 1: expected each name once in the header, came 'n' twice"),
    ("id,,n\n", "line 1: expected a name in each cell of the header, came ['id', '', 'n']"),
    ("id,:S\n", "line 1: expected a name in each cell of the header"),
    ("id:N\n", "line 1: column 'id': expected the key's declared type S, came N"),
    ("id,n:BOOL\n", "line 1: column 'n': expected one of the types S, N and B, came BOOL"),
    ("[\n", "line 1: expected one JSON object, came '['"),
    ('[{"id": "a"}]', 'line 1: expected one JSON object, came \'[{"id": "a"}]\''),
    ('id,n:N\na,"5\n6"\n', "line 2: column 'n': expected a number as text"),
    ('id,n\na,"5\n6"\n\nb\n', "line 5: expected 2 cells as in the header, came 1"),
    ("id,b:B\na,?\n", "line 2: column 'b': expected binary as bytes or base64 text, came '?'"),
]


@pytest.mark.parametrize(("content", "reason"), HEADERS)
def test_a_wrong_header_or_a_wrong_row_is_named_with_the_line_it_begins_in(
    write: Write, content: str, reason: str
) -> None:
    with pytest.raises(SourceError) as caught:
        list(FileSource(write(content), USERS).records())
    assert reason in str(caught.value)


def test_stream_records_without_sequence_numbers_cannot_follow_higher_ones(write: Write) -> None:
    path = write(json_lines(numbered(INSERT_A, "9" * 30), REMOVE_A))
    with pytest.raises(SourceError, match=r"line 2: SequenceNumber: expected one above 9{30}"):
        list(FileSource(path, USERS).records())


def cut_off(text: bytes) -> bytes:
    return gzip.compress(text)[:-1]


def halved(text: bytes) -> bytes:
    data = gzip.compress(text)
    return data[: len(data) // 2]


def with_another_checksum(text: bytes) -> bytes:
    return gzip.compress(text)[:-8] + b"\0" * 8


def with_an_impossible_block(text: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(text) + packer.flush(zlib.Z_FULL_FLUSH) + b"\xff" * 8


def with_more_behind(text: bytes) -> bytes:
    return gzip.compress(text) + b"more"


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (cut_off, "expected the rest of a gzip file, came its end"),
        (halved, "expected the rest of a gzip file, came its end"),
        (with_another_checksum, "expected data that can be read, came an error: CRC check failed"),
        (with_an_impossible_block, "expected data that can be read, came an error: Error -3"),
        (with_more_behind, "expected data that can be read, came an error: Not a gzipped file"),
    ],
)
def test_a_damaged_gzip_is_named_with_the_line_where_it_breaks(
    write: Write, damaged: Callable[[bytes], bytes], reason: str
) -> None:
    content = "".join(f'{{"id": "{n}", "x": "{os.urandom(20).hex()}"}}\n' for n in range(2000))
    found, error = read(FileSource(write(damaged(content.encode())), USERS))
    assert f"line {len(found) + 1}: {reason}" in error
    assert len(found) > 10


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(write: Write) -> None:
    source = FileSource(write(gzip.compress(b"[" + b" " * 20_000_000)), USERS)
    with pytest.raises(SourceError, match="line 1: expected lines of at most 16,777,216 bytes, came a longer one"):
        list(source.records())


def test_a_path_that_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="missing: expected a file, came none of this name"):
        FileSource(tmp_path / "missing", USERS)
    with pytest.raises(SourceError, match="expected a file, came a directory"):
        FileSource(tmp_path, USERS)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="expected a file, came a pipe or a device"):
        FileSource(tmp_path / "pipe", USERS)


# Round trips

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBERS = st.one_of(
    st.integers(-(10**37), 10**37).map(Decimal),
    st.decimals(-1000, 1000, places=3, allow_nan=False),
    st.just(Decimal("1E-130")),
)
PLAIN_VALUES = st.recursive(
    st.one_of(TEXT, NUMBERS, st.booleans(), st.none()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT.filter(bool), inner, max_size=3),
    max_leaves=5,
)
TYPED_VALUES = PLAIN_VALUES | st.binary(max_size=5) | st.frozensets(NUMBERS, min_size=1, max_size=3)


def items(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    item = st.fixed_dictionaries({"id": TEXT.filter(bool)}, optional={"n": values, "ä.[0]": values, "x y": values})
    return st.lists(item, max_size=5)


def replayed(content: bytes) -> list[tuple[Any, Any]]:
    """The images, old and new, of a file's records."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "items"
        path.write_bytes(content)
        changes = [record["dynamodb"] for record in FileSource(path, USERS).records()]
    return [(change.get("OldImage"), change["NewImage"]) for change in changes]


def put(written: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    """The images, old and new, as the service would give them."""
    table: dict[str, Any] = {}
    changes = []
    for item in written:
        old, new = table.get(item["id"]), to_event(encode_item(item))
        table[item["id"]] = new
        if old != new:
            changes.append((old, new))
    return changes


@settings(max_examples=60)
@given(items(PLAIN_VALUES))
def test_items_written_as_plain_json_come_back_as_they_were(written: list[dict[str, Any]]) -> None:
    lines = [plain_json(encode_item(item)) for item in written]
    assert replayed("\n".join(lines).encode()) == put(written)


@settings(max_examples=60)
@given(items(TYPED_VALUES), st.booleans())
def test_items_written_as_dynamodb_json_come_back_as_they_were(written: list[dict[str, Any]], exported: bool) -> None:
    raw = [to_event(encode_item(item)) for item in written]
    content = json_lines(*({"Item": item} for item in raw) if exported else raw)
    assert replayed(content.encode()) == put(written)


@settings(max_examples=60)
@given(items(TEXT.filter(bool) | NUMBERS))
def test_items_written_as_csv_come_back_as_they_were(written: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryFile("w+", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        names = ["id", "n", "ä.[0]", "x y"]
        kinds = {name: {type(item[name]) for item in written if name in item} for name in names}
        written = [item for item in written if all(len(kinds[name]) < 2 for name in item)]
        writer.writerow([f"{name}:N" if kinds[name] == {Decimal} else f"{name}:S" for name in names])
        for item in written:
            writer.writerow([item.get(name, "") for name in names])
        file.seek(0)
        content = file.read()
    assert replayed(content.encode()) == put(written)


def test_the_flights_of_the_demo_are_read_whole() -> None:
    path = Path(__file__).parents[2] / "framework" / "demo" / "flights-2013.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        expected = list(csv.DictReader(file))
    source = FileSource(path, Table("Flights", pk="flightID", sk="departure"))
    numbers = {"dep_delay", "arr_delay", "distance"}
    records = list(source.records())
    assert len(records) == len(expected) == 27_004
    assert {record["eventName"] for record in records} == {"INSERT"}
    for record, row in list(zip(records, expected, strict=True))[::50]:
        values = {name: Decimal(text) if name in numbers else text for name, text in row.items() if text}
        assert decode_item(record["dynamodb"]["NewImage"]) == values


def test_base64_of_a_key_is_in_one_form_so_that_equal_keys_are_one_item(write: Write) -> None:
    assert base64.b64decode("QR==") == base64.b64decode("QQ==")
    path = write('{"sensor": {"N": "1"}, "at": {"B": "QQ=="}}\n{"sensor": {"N": "1.0"}, "at": {"B": "QR=="}}\n')
    assert len(images(path, READINGS)) == 1
