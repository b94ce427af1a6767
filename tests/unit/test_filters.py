"""Which pattern a condition makes, what happens at the limits, and what Lambda's filter language means."""

from __future__ import annotations

import json
from decimal import Decimal as D
from typing import Any

import pytest

from framework import Aggregation, AllTime, Count, DeclarationError, Max, Table, attr
from framework.conditions import Condition
from framework.declaration import Declaration
from framework.filters import MOST_CHARACTERS, Filters, compile_filters
from framework.local.filtering import matches, passes
from handlers.music_library import MonthlyDownloads
from tests.unit.stream import download, record

music = Table("MusicLibrary", pk="songID", sk="SK")

GONE = [{"exists": False}]
THERE = [{"exists": True}]
UNMARKED = {"sf~": {"S": GONE}}


def declare(where: Condition | None, **fields: Any) -> Declaration:
    good = {"name": "plays", "source": music, "group_by": "songID", "window": AllTime(), "Plays": Count()}
    return type("Plays", (Aggregation,), {**good, "where": where, **fields})._declaration  # type: ignore[attr-defined, no-any-return]


def inserts(*conditions: Condition | None, **options: Any) -> Filters:
    return compile_filters(
        [declare(each, name=f"plays{n}", changes="inserts") for n, each in enumerate(conditions)], **options
    )


def images(filters: Filters, side: str = "NewImage") -> list[dict[str, Any]]:
    """What the patterns ask of an image, beside the mark."""
    found = [pattern["dynamodb"][side] for pattern in filters.patterns if side in pattern["dynamodb"]]
    assert all(image["sf~"] == UNMARKED["sf~"] for image in found)
    return [{name: image[name] for name in image if name != "sf~"} for image in found]


def test_an_aggregation_has_a_pattern_for_new_images_and_one_for_old_ones() -> None:
    filters = compile_filters([MonthlyDownloads._declaration])
    image = {"SK": {"S": [{"prefix": "download-"}]}, **UNMARKED}
    assert filters == Filters(
        (
            {"eventName": ["INSERT", "MODIFY"], "dynamodb": {"NewImage": image}},
            {"eventName": ["MODIFY", "REMOVE"], "dynamodb": {"OldImage": image}},
        ),
        (),
    )
    assert filters.texts[0] == (
        '{"dynamodb":{"NewImage":{"SK":{"S":[{"prefix":"download-"}]},"sf~":{"S":[{"exists":false}]}}},"eventName":["INSERT","MODIFY"]}'
    )
    with pytest.raises(AttributeError):
        filters.patterns = ()  # type: ignore[misc]


def test_an_aggregation_of_inserts_has_a_pattern_for_inserts_only() -> None:
    filters = compile_filters([declare(None, changes="inserts", Longest=Max("length"))])
    assert filters.patterns == ({"eventName": ["INSERT"], "dynamodb": {"NewImage": UNMARKED}},)


a, b, c = attr("a"), attr("b"), attr("c")

EXACT = [
    (a.equals("x"), {"a": {"S": ["x"]}}),
    (a.equals(""), {"a": {"S": [""]}}),
    (a.any_of("y", "x"), {"a": {"S": ["x", "y"]}}),
    (a.begins_with("x-"), {"a": {"S": [{"prefix": "x-"}]}}),
    (a.begins_with(""), {"a": {"S": THERE}}),
    (a.not_equals("x"), {"a": {"S": [{"anything-but": ["x"]}, *GONE]}}),
    (~a.any_of("y", "x"), {"a": {"S": [{"anything-but": ["x", "y"]}, *GONE]}}),
    (a.equals(True), {"a": {"BOOL": [True]}}),
    (a.any_of(True, False), {"a": {"BOOL": [False, True]}}),
    (a.equals(None), {"a": {"NULL": [True]}}),
    (a.equals(b"abc"), {"a": {"B": ["YWJj"]}}),
    (a.begins_with(b"abc"), {"a": {"B": [{"prefix": "YWJj"}]}}),
    (a.equals(5), {"a": {"N": ["5"]}}),
    (a.equals(D("-5.0")), {"a": {"N": ["-5"]}}),
    (a.equals(10**14), {"a": {"N": ["100000000000000"]}}),
    (attr("m.n.o").equals("x"), {"m": {"M": {"n": {"M": {"o": {"S": ["x"]}}}}}}),
    # Both, either, neither.
    (a.equals("x") & b.equals(5), {"a": {"S": ["x"]}, "b": {"N": ["5"]}}),
    (a.equals("x") | a.begins_with("y") | a.equals("yes"), {"a": {"S": ["x", {"prefix": "y"}]}}),
    (a.any_of("x", "y") & a.any_of("y", "z"), {"a": {"S": ["y"]}}),
    (a.begins_with("x") & a.begins_with("xy"), {"a": {"S": [{"prefix": "xy"}]}}),
    (a.begins_with("x") & a.any_of("xy", "z"), {"a": {"S": ["xy"]}}),
    (a.begins_with("x") & a.not_equals("y"), {"a": {"S": [{"prefix": "x"}]}}),
    (a.any_of("x", "y") & a.not_equals("y"), {"a": {"S": ["x"]}}),
    (a.not_equals("x") & a.not_equals("y"), {"a": {"S": [{"anything-but": ["x", "y"]}, *GONE]}}),
    (~(a.equals("x") | a.equals("y")), {"a": {"S": [{"anything-but": ["x", "y"]}, *GONE]}}),
    (a.not_equals("x") | a.equals("x"), {}),
    (~a.any_of("x", "y") | ~a.any_of("y", "z"), {"a": {"S": [{"anything-but": ["y"]}, *GONE]}}),
    (~~a.equals("x"), {"a": {"S": ["x"]}}),
    ((a.equals("x") | a.equals("y")) & b.equals("z"), {"a": {"S": ["x", "y"]}, "b": {"S": ["z"]}}),
    (a.equals("x") | (a.equals("x") & b.equals("z")), {"a": {"S": ["x"]}}),
    (a.equals("x") & (a.equals("y") | b.equals("z")), {"a": {"S": ["x"]}, "b": {"S": ["z"]}}),
    (a.equals("x") & (a.equals(5) | b.equals("z")), {"a": {"S": ["x"]}, "b": {"S": ["z"]}}),
    (
        attr("m.n").equals("x") & (attr("m").equals("y") | b.equals("z")),
        {"m": {"M": {"n": {"S": ["x"]}}}, "b": {"S": ["z"]}},
    ),
]

WIDER = [
    (a.exists(), {}, "a exists, so the filter lets every item pass"),
    (
        a.not_exists(),
        {"a": dict.fromkeys(["S", "N", "B", "BOOL", "NULL"], GONE)},
        "not (a exists), so the filter lets sets, lists and maps pass",
    ),
    (a.gt("x"), {"a": {"S": THERE}}, 'a > "x", so the filter asks for any S'),
    (a.le(5), {"a": {"N": THERE}}, "a <= 5, so the filter asks for any N"),
    (a.between(b"a", b"b"), {"a": {"B": THERE}}, "so the filter asks for any B"),
    (a.equals(D("0.5")), {"a": {"N": THERE}}, "a = 0.5, so the filter asks for any N"),
    (a.equals(10**15), {"a": {"N": THERE}}, "a = 1000000000000000, so the filter asks for any N"),
    (a.any_of(1, D("0.5")), {"a": {"N": THERE}}, "a in (1, 0.5), so the filter asks for any N"),
    (a.begins_with(b"abcd"), {"a": {"B": [{"prefix": "YWJj"}]}}, "so the filter looks at whole groups of 3 bytes"),
    (a.begins_with(b"ab"), {"a": {"B": THERE}}, "so the filter looks at whole groups of 3 bytes"),
    (a.not_equals(5), {}, "not (a = 5), so the filter lets every item pass"),
    (a.not_equals(True), {}, "not (a = true), so the filter lets every item pass"),
    (~a.begins_with("x"), {}, 'not (a begins with "x"), so the filter lets every item pass'),
    (~a.lt(5), {}, "not (a < 5), so the filter lets every item pass"),
    (~a.any_of("x", 5), {}, 'not (a in ("x", 5)), so the filter lets every item pass'),
    (attr("tags[0]").equals("x"), {}, 'tags[0] = "x", so the filter lets every item pass'),
    (attr(r"a\.b").equals("x"), {}, "so the filter lets every item pass"),
    (attr("$or").equals("x"), {}, '$or = "x", so the filter lets every item pass'),
    (a.equals("x") & b.exists(), {"a": {"S": ["x"]}}, "b exists"),
    (
        a.begins_with("x") & a.not_equals("xy"),
        {"a": {"S": [{"prefix": "x"}]}},
        "exceptions from a prefix of a, so the filter makes none",
    ),
]


@pytest.mark.parametrize(("where", "image"), EXACT, ids=lambda each: each.text() if isinstance(each, Condition) else "")
def test_what_a_pattern_can_express_it_expresses_exactly(where: Condition, image: dict[str, Any]) -> None:
    filters = inserts(where)
    assert images(filters) == [image]
    assert filters.warnings == ()


@pytest.mark.parametrize(
    ("where", "image", "warning"), WIDER, ids=lambda each: each.text() if isinstance(each, Condition) else ""
)
def test_what_a_pattern_cannot_express_is_widened_and_said(
    where: Condition, image: dict[str, Any], warning: str
) -> None:
    filters = inserts(where)
    assert images(filters) == [image]
    (said,) = filters.warnings
    assert said.startswith("plays0: no pattern can express ")
    assert warning in said
    assert said.endswith(".")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (
            a.any_of("x", 5, True, None),
            [{"a": {"BOOL": [True]}}, {"a": {"N": ["5"]}}, {"a": {"NULL": [True]}}, {"a": {"S": ["x"]}}],
        ),
        (a.equals("x") | b.equals("y"), [{"a": {"S": ["x"]}}, {"b": {"S": ["y"]}}]),
        (
            ~(a.equals("x") & b.equals("y")),
            [{"a": {"S": [{"anything-but": ["x"]}, *GONE]}}, {"b": {"S": [{"anything-but": ["y"]}, *GONE]}}],
        ),
        (
            (a.equals("x") | b.equals("y")) & c.equals("z"),
            [{"a": {"S": ["x"]}, "c": {"S": ["z"]}}, {"b": {"S": ["y"]}, "c": {"S": ["z"]}}],
        ),
    ],
    ids=str,
)
def test_alternatives_that_no_object_can_hold_are_patterns_of_their_own(where: Condition, expected: list[Any]) -> None:
    filters = inserts(where)
    assert sorted(images(filters), key=str) == expected
    assert filters.warnings == ()


@pytest.mark.parametrize(
    "where",
    [
        a.equals("x") & a.equals("y"),
        a.equals("x") & a.equals(5),
        a.begins_with("x") & a.begins_with("y"),
        a.equals("x") & ~a.equals("x"),
        a.equals("x") & a.not_exists(),
        attr("m").equals("x") & attr("m.n").equals("y"),
        attr("sf~").equals("plays"),
    ],
    ids=str,
)
def test_a_condition_that_no_item_can_fulfil_is_refused(where: Condition) -> None:
    with pytest.raises(DeclarationError, match="filter: expected a condition that an item can fulfil, came"):
        inserts(where)
    filters = inserts(where, b.equals("z"))
    assert images(filters) == [{"b": {"S": ["z"]}}]
    assert "plays0: no item can fulfil its condition, so no pattern is about it." in filters.warnings


def test_nothing_to_filter_for_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"filter: expected .* came 'no handler'"):
        compile_filters([])


@pytest.mark.parametrize("limit", [0, 11, True, 2.0])
def test_a_limit_that_no_account_has_is_refused(limit: Any) -> None:
    with pytest.raises(DeclarationError, match=f"limit: expected a whole number from 1 to 10, came {limit}"):
        inserts(None, limit=limit)


# --- several aggregations, and limits ---


@pytest.mark.parametrize(
    ("declarations", "expected"),
    [
        ([declare(a.equals("x")), declare(a.equals("y"))], [(["INSERT", "MODIFY"], {"a": {"S": ["x", "y"]}}), (["MODIFY", "REMOVE"], {"a": {"S": ["x", "y"]}})]),
        ([declare(a.equals("x")), declare(None)], [(["INSERT", "MODIFY"], {}), (["MODIFY", "REMOVE"], {})]),
        ([declare(a.equals("x")), declare(a.equals("x"), changes="inserts")], [(["INSERT", "MODIFY"], {"a": {"S": ["x"]}}), (["MODIFY", "REMOVE"], {"a": {"S": ["x"]}})]),
        # Two leaves apart: merged, an update of "x" would pass.
        (
            [declare(a.equals("x"), changes="inserts"), declare(a.equals("y"))],
            [(["INSERT"], {"a": {"S": ["x"]}}), (["INSERT", "MODIFY"], {"a": {"S": ["y"]}}), (["MODIFY", "REMOVE"], {"a": {"S": ["y"]}})],
        ),
    ],
)  # fmt: skip
def test_aggregations_share_patterns_where_nothing_is_lost_by_it(
    declarations: list[Declaration], expected: list[tuple[list[str], dict[str, Any]]]
) -> None:
    filters = compile_filters(declarations)
    found = [
        (p["eventName"], {**p["dynamodb"].get("NewImage", p["dynamodb"].get("OldImage"))}) for p in filters.patterns
    ]
    assert found == [(events, {**image, **UNMARKED}) for events, image in expected]
    assert filters.warnings == ()


def test_beyond_the_limit_those_merge_that_have_most_in_common() -> None:
    near = [a.equals("x") & b.equals("1") & c.equals("1"), a.equals("x") & b.equals("2") & c.equals("2")]
    far = [attr(name).equals("1") for name in "defg"]
    assert inserts(*near, *far, limit=6).warnings == ()
    filters = inserts(*near, *far)
    assert images(filters) == [*({name: {"S": ["1"]}} for name in "defg"), {"a": {"S": ["x"]}, "b": {"S": ["1", "2"]}, "c": {"S": ["1", "2"]}}]  # fmt: skip
    assert filters.warnings == ("plays0, plays1: the mapping has at most 5 patterns, so it asks less of b, c.",)
    # One pattern for all of them can only keep Streamfold's own writes out.
    (pattern,) = inserts(*near, *far, limit=1).patterns
    assert pattern == {"eventName": ["INSERT"], "dynamodb": {"NewImage": UNMARKED}}


def test_a_limit_of_one_leaves_no_choice_between_new_and_old_images() -> None:
    filters = compile_filters([declare(a.equals("x"))], limit=1)
    assert filters.patterns == ({"eventName": ["INSERT", "MODIFY", "REMOVE"]},)
    (warning,) = filters.warnings
    assert warning == "plays: one pattern is either about new images or about old ones, so every record passes."


def test_many_alternatives_are_widened_before_they_explode() -> None:
    where: Condition = a.exists()
    for n in range(12):
        where &= attr(f"b{n}").equals("x") & attr(f"c{n}").equals("y") | attr(f"d{n}").equals("z")
    filters = inserts(where)
    assert len(filters.patterns) <= 5
    assert any("more than 16 alternatives" in warning for warning in filters.warnings)
    everything = {f"{letter}{n}": {"S": value} for letter, value in zip("bcd", "xyz", strict=True) for n in range(12)}
    assert passes(filters.patterns, record(1, new={**everything, "a": {"S": ""}}))


SONGS = [f"song-{n:04d}" for n in range(500)]


@pytest.mark.parametrize(
    ("where", "options", "expected"),
    [
        # 500 of them are about 6,000 characters: two patterns hold them all.
        (a.any_of(SONGS), {}, None),
        (a.any_of(SONGS), {"limit": 1}, [{"a": {"S": [{"prefix": "song-0"}]}}]),
        (a.any_of([*SONGS, "x"]) & b.equals("y"), {"limit": 1}, [{"a": {"S": THERE}, "b": {"S": ["y"]}}]),
        (a.equals("é" * 1000), {}, [{"a": {"S": [{"prefix": "é" * 256}]}}]),
        (~a.any_of(SONGS) & b.equals("y"), {}, [{"b": {"S": ["y"]}}]),
        (attr("a" * 5000).equals("x") & b.equals("y"), {}, [{"b": {"S": ["y"]}}]),
        (a.begins_with("x" * 5000), {}, [{"a": {"S": [{"prefix": "x" * 256}]}}]),
    ],
    ids=lambda each: each.text()[:20] if isinstance(each, Condition) else "",
)
def test_a_pattern_keeps_to_4096_characters(where: Condition, options: Any, expected: list[Any] | None) -> None:
    filters = inserts(where, **options)
    assert all(len(text) <= MOST_CHARACTERS for text in filters.texts)
    assert all(json.loads(text) == pattern for text, pattern in zip(filters.texts, filters.patterns, strict=True))
    if expected is None:
        assert filters.warnings == ()
        assert sorted(song for image in images(filters) for song in image["a"]["S"]) == SONGS
        assert len(filters.patterns) == 2
    else:
        assert images(filters) == expected
        assert "plays0: a pattern has at most 4,096 characters, so it asks less of " in filters.warnings[-1]


OWN = {"songID": {"S": "a"}, "SK": {"S": "download-2018-01"}, "sf~": {"S": "monthly-downloads"}}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (record(1, new=download()), True),
        (record(1, old=download()), True),
        (record(1, old=download(), new=OWN), True),
        (record(1, old=OWN, new=download()), True),
        (record(1, old={"SK": {"S": "x"}}, new=download()), True),
        (record(1, old=download(), new={"SK": {"S": "x"}}), True),
        (record(1, new={"SK": {"S": "upload-1"}}), False),
        (record(1, old={"SK": {"S": "x"}}, new={"SK": {"S": "y"}}), False),
        (record(1, new=OWN), False),
        (record(1, old=OWN, new=OWN), False),
        (record(1, old=OWN), False),
        # What cannot be counted passes all the same, to be reported.
        (record(1, new={"SK": {"S": "download-1"}}), True),
    ],
)
def test_the_example_lets_downloads_pass_and_its_own_aggregates_not(change: dict[str, Any], expected: bool) -> None:
    assert passes(compile_filters([MonthlyDownloads._declaration]).patterns, change) is expected


# --- the filter language ---

RECORD = {"s": "abc", "n": 5, "d": 2.5, "t": True, "f": False, "z": None, "o": {"p": "q"}, "l": ["a", 1], "e": [], "v": {}, "r": [{"x": "1", "y": "2"}, {"x": "3"}]}  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ({"s": ["abc"]}, True),
        ({"s": ["x", "abc"]}, True),
        ({"s": ["ABC"]}, False),
        ({"s": ["abc"], "n": [6]}, False),
        ({"s": [{"prefix": "ab"}]}, True),
        ({"s": [{"prefix": ""}]}, True),
        ({"s": [{"prefix": "b"}]}, False),
        ({"n": [{"prefix": "5"}]}, False),
        ({"s": [{"suffix": "bc"}]}, True),
        ({"s": [{"suffix": "ab"}]}, False),
        ({"s": [{"anything-but": "x"}]}, True),
        ({"s": [{"anything-but": ["x", "abc"]}]}, False),
        ({"n": [{"anything-but": [5]}]}, False),
        ({"n": [{"anything-but": ["5"]}]}, True),
        ({"missing": [{"anything-but": ["x"]}]}, False),
        ({"l": [{"anything-but": ["a"]}]}, True),
        ({"n": ["5"]}, False),
        ({"n": [5.0]}, True),
        ({"t": [True]}, True),
        ({"t": [1]}, False),
        ({"n": [True]}, False),
        ({"f": [None]}, False),
        ({"z": [None]}, True),
        ({"z": [{"exists": True}]}, True),
        ({"missing": [None]}, False),
        ({"missing": [{"exists": False}]}, True),
        ({"missing": {"deep": {"er": [{"exists": False}]}}}, True),
        ({"missing": {"deep": [{"exists": True}]}}, False),
        ({"s": {"below": [{"exists": False}]}}, True),
        # Only leaves exist.
        ({"o": [{"exists": True}]}, False),
        ({"o": [{"exists": False}]}, True),
        ({"o": {"p": [{"exists": True}]}}, True),
        ({"e": [{"exists": False}]}, True),
        ({"v": [{"exists": False}]}, True),
        # One element of an array is enough, but one for all that is asked.
        ({"l": ["a"]}, True),
        ({"l": [1]}, True),
        ({"l": ["b"]}, False),
        ({"r": {"x": ["1"], "y": ["2"]}}, True),
        ({"r": {"x": ["3"], "y": ["2"]}}, False),
        ({"n": [{"numeric": [">", 0, "<=", 5]}]}, True),
        ({"n": [{"numeric": ["<", 5]}]}, False),
        ({"d": [{"numeric": ["=", 2.5]}]}, True),
        ({"n": [{"numeric": [">=", 5]}]}, True),
        ({"s": [{"numeric": [">", 0]}]}, False),
        ({"t": [{"numeric": [">", 0]}]}, False),
        ({"s": [{"exists": False}, {"prefix": "a"}]}, True),
    ],
    ids=str,
)
def test_a_pattern_means_what_the_guide_says(pattern: dict[str, Any], expected: bool) -> None:
    assert matches(pattern, RECORD) is expected


@pytest.mark.parametrize(
    "pattern",
    [
        {},
        {"s": {}},
        {"s": []},
        {"s": "abc"},
        {"s": ["abc", ["abc"]]},
        {"s": ["abc", {}]},
        {"s": ["abc", {"wildcard": "a*"}]},
        {"s": ["abc", {"equals-ignore-case": "ABC"}]},
        {"s": ["abc", {"prefix": "a", "suffix": "c"}]},
        {"s": ["abc", {"prefix": {"equals-ignore-case": "A"}}]},
        {"s": ["abc", {"anything-but": {"prefix": "a"}}]},
        {"s": ["abc", {"anything-but": []}]},
        {"s": ["abc", {"anything-but": ["x", 1]}]},
        {"s": ["abc", {"exists": "true"}]},
        {"s": ["abc", {"numeric": [">"]}]},
        {"s": ["abc", {"numeric": ["<>", 1]}]},
        {"s": ["abc", {"numeric": [">", "1"]}]},
        {"s": ["abc", {"cidr": "10.0.0.0/8"}]},
        {"$or": [{"s": ["abc"]}, {"n": [5]}]},
        {"n": [6], "s": [{"wildcard": "*"}]},
    ],
    ids=str,
)
def test_a_pattern_that_is_wrong_or_unknown_is_refused_whatever_the_record(pattern: dict[str, Any]) -> None:
    for one in (RECORD, {}):
        with pytest.raises(ValueError, match=r"^pattern"):
            matches(pattern, one)


def test_a_mapping_without_patterns_sends_every_record() -> None:
    assert passes([], RECORD)
    assert passes([{"s": ["x"]}, {"s": ["abc"]}], RECORD)
    assert not passes([{"s": ["x"]}], RECORD)
