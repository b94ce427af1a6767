from typing import Any

import pytest

from framework.local.expressions import condition, filled, projection, update
from framework.local.values import RefusedError, normal_item

KIND = "ConditionExpression"

ITEM = normal_item(
    {
        "pk": {"S": "p"},
        "title": {"S": "hello"},
        "blank": {"S": ""},
        "five": {"N": "5.0"},
        "big": {"N": "12345678901234567890123456789012345678"},
        "below": {"N": "-3"},
        "packed": {"B": b"\x00\xff"},
        "yes": {"BOOL": True},
        "nothing": {"NULL": True},
        "words": {"SS": ["b", "a"]},
        "digits": {"NS": ["2", "10.0"]},
        "series": {"L": [{"N": "1"}, {"S": "x"}, {"NS": ["1", "2"]}]},
        "tree": {"M": {"in": {"M": {"deep": {"N": "7"}}}, "series": {"L": [{"S": "first"}]}}},
        "dotted.name": {"S": "literal"},
    }
)

NAMES = {"#t": "title", "#d": "dotted.name", "#m": "tree", "#in": "in", "#l": "series", "#none": "absent"}
VALUES = {
    ":hello": {"S": "hello"},
    ":he": {"S": "he"},
    ":lo": {"S": "lo"},
    ":a": {"S": "a"},
    ":z": {"S": "zzz"},
    ":five": {"N": "5"},
    ":four": {"N": "4"},
    ":nine": {"N": "9"},
    ":ten": {"N": "1e1"},
    ":big": {"N": "1.2345678901234567890123456789012345678E37"},
    ":three": {"N": "3"},
    ":five_text": {"S": "5"},
    ":ff": {"B": b"\xff"},
    ":00": {"B": b"\x00"},
    ":yes": {"BOOL": True},
    ":ab": {"SS": ["a", "b"]},
    ":12": {"NS": ["2.0", "1"]},
    ":N": {"S": "N"},
    ":SS": {"S": "SS"},
}


def ask(text: str, item: Any = ITEM) -> bool:
    """Answers with just the placeholders that the title uses."""
    compiled = condition(KIND, text)
    names = {name: NAMES[name] for name in compiled.names}
    values = filled([compiled], names or None, {name: VALUES[name] for name in compiled.values} or None)
    return compiled(item, names, values)


@pytest.mark.parametrize(
    "text",
    [
        "#t = :hello",
        "five = :five",
        "big = :big",
        "words = :ab",
        "yes = :yes",
        "title <> :he",
        "five <> :five_text",  # other types are unequal
        "below < :three",
        "five < :ten",  # by value: as text "5" > "10"
        "five <= :five",
        "five >= :five",
        "title > :he",
        "title < :z",
        "packed < :ff",
        "packed > :00",
        "five BETWEEN :four AND :ten",
        "five between :five and :five",
        ":five BETWEEN below AND :nine",
        "five IN (:four, :five)",
        "words in (:he, :ab)",
        "attribute_exists(title)",
        "attribute_exists(blank)",
        "attribute_exists(tree.#in.deep)",
        "attribute_exists(#m.#l[0])",
        "attribute_not_exists(absent)",
        "attribute_not_exists(tree.absent.deep)",
        "attribute_not_exists(#l[3])",
        "attribute_not_exists(title.deeper)",
        "attribute_not_exists(title[0])",
        "attribute_type(five, :N)",
        "attribute_type(words, :SS)",
        "begins_with(title, :he)",
        "begins_with(packed, :00)",
        "begins_with(:hello, :he)",
        "contains(title, :lo)",
        "contains(packed, :ff)",
        "contains(words, :a)",
        "contains(digits, :ten)",
        "contains(#l, :12)",
        "size(title) = :five",
        "size(words) < :three",
        "size(tree) <= size(words)",
        "size(packed) < :five",
        "tree.#in.deep > :five",
        "#d <> :he",
        "NOT five = :four",
        "NOT NOT five = :five",
        "not absent = :four",
        "five = :five OR five = :four AND five = :four",  # AND before OR
        "NOT five = :four AND title = :hello",  # NOT before AND
        "(five = :five OR five = :four) AND title = :hello",
        "((five = :five) OR five = :four) AND title = :hello",
        "absent <> neither",
        "absent <> five",
    ],
)
def test_a_condition_that_holds(text: str) -> None:
    assert ask(text)


@pytest.mark.parametrize(
    "text",
    [
        "#t = :he",
        "five = :five_text",
        "absent = :five",
        "absent = neither",
        "title <> :hello",
        "absent < :five",
        "absent >= :five",
        ":five > absent",
        "absent < neither",
        "absent BETWEEN :four AND :ten",
        "five BETWEEN absent AND :ten",
        "five BETWEEN :nine AND :ten",
        "title < :five",  # another type is false, not an error
        "yes < :five",
        "series < :five",
        "absent IN (:four, :five)",
        "five IN (:four, :five_text)",
        "absent IN (neither)",
        "attribute_exists(absent)",
        "attribute_exists(#none)",
        "attribute_exists(dotted.#in)",  # a dot in the text steps into a map
        "attribute_not_exists(title)",
        "attribute_type(title, :N)",
        "attribute_type(absent, :N)",
        "begins_with(title, :lo)",
        "begins_with(five, :he)",
        "begins_with(absent, :he)",
        "contains(title, :five)",
        "contains(five, :five)",
        "contains(words, :he)",
        "contains(digits, :five_text)",
        "size(five) = :five",
        "size(absent) < :five",
        "size(title) = :hello",
        "NOT five = :five",
        "NOT absent <> :five",
        "five = :four OR absent = :five",
        "five = :five AND absent = :five",
        "(five = :five OR five = :four) AND title = :he",
    ],
)
def test_a_condition_that_does_not_hold(text: str) -> None:
    assert not ask(text)


def test_a_condition_on_an_item_that_is_not_there_sees_no_attribute() -> None:
    assert ask("attribute_not_exists(#t) OR #t < :he", {})
    assert not ask("attribute_exists(title)", {})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "can not be empty"),
        ("five", "Syntax error"),
        ("five =", "Syntax error"),
        ("five = :five )", "Syntax error"),
        ("(five = :five", "Syntax error"),
        ("five == :five", "Syntax error"),
        ("five = 5", "Syntax error"),
        ("five = :five AND", "Syntax error"),
        ("five IN ()", "Syntax error"),
        ("five BETWEEN :four, :nine", "Syntax error"),
        ("_five = :five", "Syntax error"),
        ("series[:five] = :five", "Syntax error"),
        ("series[-1] = :five", "Syntax error"),
        ("five ? :five", 'token: "\\?"'),
        ("((five = :five))", "redundant parentheses"),
        ("status = :five", "reserved keyword: status"),
        ("tree.Count = :five", "reserved keyword: Count"),
        ("dog(five)", "function: dog"),
        ("size(five)", "not allowed to be used this way"),
        ("attribute_exists(five) = :yes", "not allowed to be used this way"),
        ("if_not_exists(five, five) = :five", "not allowed"),
        ("attribute_exists(:five)", "requires a document path"),
        ("attribute_type(five, title)", "requires a value"),
        ("begins_with(five)", "number of operands: 1"),
        ("size(five, five) = :five", "number of operands: 2"),
        ("five < :yes", "operand type: BOOL"),
        (":ab < five", "operand type: SS"),
        ("five BETWEEN :yes AND :five", "operand type: BOOL"),
        ("five BETWEEN :nine AND :four", "upper bound to be greater than or equal"),
        ("five BETWEEN :four AND :hello", "same data type"),
        ("begins_with(title, :five)", "operand type: N"),
        ("attribute_type(title, :hello)", "Invalid attribute type"),
        ("attribute_exists(five) OR five < :yes", "operand type: BOOL"),  # though it would not be reached
        (f"five IN ({','.join([':five'] * 100)})", "Too many operands"),
        (f"five = {':five' + ' ' * 4096}", "maximum allowed size"),
    ],
)
def test_a_condition_that_is_refused(text: str, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        ask(text)


@pytest.mark.parametrize(
    ("names", "values", "reason"),
    [
        (None, {":v": {"N": "1"}}, "name used in expression is not defined; attribute name: #a"),
        ({"#a": "a"}, None, "value used in expression is not defined; attribute value: :v"),
        ({"#a": "a", "#b": "b"}, {":v": {"N": "1"}}, "Names unused in expressions: keys: {#b}"),
        ({"#a": "a"}, {":v": {"N": "1"}, ":w": {"N": "1"}}, "Values unused in expressions: keys: {:w}"),
        ({"#a": "a"}, {":v": {"N": "dog"}}, "cannot be converted to a numeric value"),
        ({"#a": "a"}, {":v": {"N": "NaN"}}, "cannot be converted to a numeric value"),
        ({"#a": "a"}, {":v": {"N": " 1"}}, "cannot be converted to a numeric value"),
        ({"#a": "a"}, {":v": {"N": "1e126"}}, "overflow"),
        ({"#a": "a"}, {":v": {"N": "1e99999999999999999999"}}, "overflow"),
        ({"#a": "a"}, {":v": {"N": "-1e-131"}}, "underflow"),
        ({"#a": "a"}, {":v": {"N": "1" * 39}}, "38 significant digits"),
        ({"#a": "a"}, {":v": {"SS": []}}, "may not be empty"),
        ({"#a": "a"}, {":v": {"NS": ["1", "1.0"]}}, "duplicates"),
        ({"#a": "a"}, {":v": {"NULL": False}}, "must have the value of true"),
        ({"#a": "a"}, {":v": {"S": "x", "N": "1"}}, "exactly one"),
        ({"#a": "a"}, {":v": {"X": "x"}}, "unknown type"),
        ({"#a": "a"}, {":v": {"N": 1}}, "unknown type or content"),
        ({"#a": "a"}, {":v": {"B": "text"}}, "expected bytes"),
    ],
)
def test_placeholders_are_all_defined_and_used_and_hold_values(names: Any, values: Any, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        filled([condition(KIND, "#a = :v")], names, values)


def test_empty_placeholders_are_refused() -> None:
    with pytest.raises(RefusedError, match="ExpressionAttributeValues must not be empty"):
        filled([condition(KIND, "attribute_exists(a)")], None, {})


@pytest.mark.parametrize(
    ("came", "kept"),
    [
        ("1.50", "1.5"),
        ("+3", "3"),
        ("0001.23", "1.23"),
        (".123", "0.123"),
        ("-0", "0"),
        ("0e1000", "0"),
        ("1e+5", "100000"),
        ("1E-3", "0.001"),
        ("1" + "0" * 125, "1" + "0" * 125),
        ("1e-130", "0." + "0" * 129 + "1"),
        ("-9.9999999999999999999999999999999999999E+125", "-" + "9" * 38 + "0" * 88),
    ],
)
def test_a_number_has_one_text(came: str, kept: str) -> None:
    assert normal_item({"n": {"N": came}}) == {"n": {"N": kept}}


def nested(levels: int) -> Any:
    value: Any = {"S": "x"}
    for _ in range(levels):
        value = {"L": [value]}
    return value


def test_values_nest_32_levels_deep_and_no_deeper() -> None:
    normal_item({"a": nested(32)})
    with pytest.raises(RefusedError, match="Nesting Levels"):
        normal_item({"a": nested(33)})


def change(text: str, item: Any, **values: Any) -> dict[str, Any]:
    compiled = update(text)
    names = {name: name[1:] for name in compiled.names}
    given = filled([compiled], names or None, {f":{name}": value for name, value in values.items()} or None)
    return compiled.apply(normal_item(item), compiled.targets(names), names, given)


def n(*numbers: object) -> Any:
    return {"L": [{"N": str(number)} for number in numbers]}


@pytest.mark.parametrize(
    ("text", "before", "values", "after"),
    [
        ("SET a = :v", {}, {"v": {"S": "x"}}, {"a": {"S": "x"}}),
        ("set a = :v", {"a": {"N": "1"}}, {"v": {"S": "x"}}, {"a": {"S": "x"}}),
        ("SET a = b, b = a", {"a": {"N": "1"}, "b": {"N": "2"}}, {}, {"a": {"N": "2"}, "b": {"N": "1"}}),
        ("SET a = a + :v", {"a": {"N": "1.5"}}, {"v": {"N": "1.50"}}, {"a": {"N": "3"}}),
        ("SET a = :v - a", {"a": {"N": "1"}}, {"v": {"N": "1"}}, {"a": {"N": "0"}}),
        ("SET a = if_not_exists(a, :v) + :v", {}, {"v": {"N": "2"}}, {"a": {"N": "4"}}),
        ("SET a = if_not_exists(a, :v)", {"a": {"S": ""}}, {"v": {"N": "2"}}, {"a": {"S": ""}}),
        ("SET a = list_append(a, :v)", {"a": n(1)}, {"v": n(2)}, {"a": n(1, 2)}),
        ("SET a = list_append(:v, a)", {"a": n(1)}, {"v": n(2)}, {"a": n(2, 1)}),
        (
            "SET a = list_append(if_not_exists(a, :e), :v)",
            {},
            {"e": n(), "v": n(1)},
            {"a": n(1)},
        ),
        ("REMOVE a, b", {"a": {"N": "1"}, "c": {"N": "2"}}, {}, {"c": {"N": "2"}}),
        ("REMOVE a SET b = a", {"a": {"N": "1"}}, {}, {"b": {"N": "1"}}),
        ("ADD a :v", {}, {"v": {"N": "2"}}, {"a": {"N": "2"}}),
        ("ADD a :v", {"a": {"N": "-2"}}, {"v": {"N": "2"}}, {"a": {"N": "0"}}),
        ("ADD #a :v SET #b = :w", {}, {"v": {"N": "1"}, "w": {"S": "x"}}, {"a": {"N": "1"}, "b": {"S": "x"}}),
        ("ADD a :v", {}, {"v": {"SS": ["b", "a"]}}, {"a": {"SS": ["a", "b"]}}),
        (
            "ADD a :v",
            {"a": {"NS": ["10", "2"]}},
            {"v": {"NS": ["2.0", "1"]}},
            {"a": {"NS": ["1", "2", "10"]}},
        ),
        ("DELETE a :v", {"a": {"SS": ["a", "b"]}}, {"v": {"SS": ["b", "c"]}}, {"a": {"SS": ["a"]}}),
        ("DELETE a :v", {"a": {"SS": ["a"]}}, {"v": {"SS": ["a"]}}, {}),
        ("DELETE a :v", {}, {"v": {"SS": ["a"]}}, {}),
        ("SET a.b = :v", {"a": {"M": {}}}, {"v": {"N": "1"}}, {"a": {"M": {"b": {"N": "1"}}}}),
        ("ADD a.b :v", {"a": {"M": {"b": {"N": "1"}}}}, {"v": {"N": "1"}}, {"a": {"M": {"b": {"N": "2"}}}}),
        ("SET a[1] = :v", {"a": n(1, 2, 3)}, {"v": {"N": "9"}}, {"a": n(1, 9, 3)}),
        ("SET a[7] = :v", {"a": n(1)}, {"v": {"N": "9"}}, {"a": n(1, 9)}),
        (
            "SET a[84] = :u, a[37] = :v, a[17] = :w",
            {"a": n(1)},
            {"u": {"N": "84"}, "v": {"N": "37"}, "w": {"N": "17"}},
            {"a": n(1, 17, 37, 84)},
        ),
        ("REMOVE a[1] SET a[3] = :v", {"a": n(2, 3, 4, 5, 6)}, {"v": {"N": "17"}}, {"a": n(2, 4, 17, 6)}),
        ("REMOVE a[0], a[2], a[17]", {"a": n(0, 1, 2, 3)}, {}, {"a": n(1, 3)}),
        ("REMOVE a.b", {"a": {"M": {"b": {"N": "1"}}}}, {}, {"a": {"M": {}}}),
        ("REMOVE a[0]", {"a": n(1)}, {}, {"a": n()}),
        ("SET z = a[0].b", {"a": {"L": [{"M": {"b": {"N": "7"}}}]}}, {}, None),
    ],
)
def test_an_update_leaves_the_item_as_the_service_would(text: str, before: Any, values: Any, after: Any) -> None:
    if after is None:
        after = {**before, "z": {"N": "7"}}
    assert change(text, before, **values) == after


def test_an_update_leaves_the_item_that_it_started_from_alone() -> None:
    item = normal_item({"a": {"M": {"b": n(1, 2)}}, "c": {"SS": ["x"]}})
    compiled = update("REMOVE a.b[0] SET a.d = :v ADD c :w")
    values = filled([compiled], None, {":v": {"N": "1"}, ":w": {"SS": ["y"]}})
    compiled.apply(item, compiled.targets({}), {}, values)
    assert item == normal_item({"a": {"M": {"b": n(1, 2)}}, "c": {"SS": ["x"]}})


@pytest.mark.parametrize(
    ("text", "before", "values", "reason"),
    [
        ("SET a = b", {}, {}, "does not exist in the item"),
        ("SET a = a + :v", {}, {"v": {"N": "1"}}, "does not exist in the item"),
        ("SET a = a + :v", {"a": {"S": "1"}}, {"v": {"N": "1"}}, "incorrect data type"),
        ("SET a = :v + :v", {}, {"v": {"S": "1"}}, "operand type: S"),
        ("SET a = list_append(a, :v)", {"a": n(1)}, {"v": {"S": "1"}}, "operand type: S"),
        ("SET a = :v + :w", {}, {"v": {"N": "1e50"}, "w": {"N": "1"}}, "overflow"),
        ("SET a = :v + :v", {}, {"v": {"N": "9e125"}}, "overflow"),
        ("SET a = :v - :w", {}, {"v": {"N": "1.2e-130"}, "w": {"N": "1e-130"}}, "underflow"),
        ("ADD a :v", {"a": {"N": "1"}}, {"v": {"N": "1e-38"}}, "overflow"),
        ("ADD a :v", {}, {"v": {"S": "1"}}, "operand type: S"),
        ("ADD a :v", {}, {"v": n(1)}, "operand type: L"),
        ("ADD a :v", {"a": {"S": "1"}}, {"v": {"N": "1"}}, "incorrect data type"),
        ("ADD a :v", {"a": {"SS": ["1"]}}, {"v": {"NS": ["1"]}}, "incorrect data type"),
        ("DELETE a :v", {"a": {"N": "1"}}, {"v": {"SS": ["1"]}}, "incorrect data type"),
        ("DELETE a :v", {}, {"v": {"N": "1"}}, "operand type: N"),
        ("SET a.b = :v", {}, {"v": {"N": "1"}}, "document path"),
        ("SET a.b = :v", {"a": {"S": "x"}}, {"v": {"N": "1"}}, "document path"),
        ("SET a[0] = :v", {"a": {"M": {}}}, {"v": {"N": "1"}}, "document path"),
        ("REMOVE a.b", {}, {}, "document path"),
        ("REMOVE a[0]", {"a": {"S": "x"}}, {}, "document path"),
        ("SET a = :v, a = :v", {}, {"v": {"N": "1"}}, "overlap"),
        ("SET a = :v REMOVE a", {}, {"v": {"N": "1"}}, "overlap"),
        ("SET a = :v, #a = :v", {}, {"v": {"N": "1"}}, "overlap"),
        ("SET a = :v, a.b = :v", {}, {"v": {"N": "1"}}, "overlap"),
        ("SET a[1] = :v, a[1][2] = :v", {}, {"v": {"N": "1"}}, "overlap"),
        ("SET a.b = :v, a[1] = :v", {}, {"v": {"N": "1"}}, "conflict"),
        ("SET a = :v SET b = :v", {}, {"v": {"N": "1"}}, "only be used once"),
        ("SET a = :v + :v + :v", {}, {"v": {"N": "1"}}, "Syntax error"),
        ("SET a :v", {}, {"v": {"N": "1"}}, "Syntax error"),
        ("SET :v = a", {}, {"v": {"N": "1"}}, "Syntax error"),
        ("ADD a a", {}, {}, "Syntax error"),
        ("HELLO a", {}, {}, "Syntax error"),
        ("SET a = begins_with(a, :v)", {}, {"v": {"N": "1"}}, "not allowed"),
        ("SET a = if_not_exists(:v, :v)", {}, {"v": {"N": "1"}}, "requires a document path"),
        ("SET a = LIST_APPEND(a, :v)", {}, {"v": n(1)}, "Invalid function name"),
        ("SET Month = :v", {}, {"v": {"S": "x"}}, "reserved keyword: Month"),
    ],
)
def test_an_update_that_is_refused(text: str, before: Any, values: Any, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        change(text, before, **values)


@pytest.mark.parametrize(
    ("left", "right", "total"),
    [
        ("1", "10000000000000000000000", "10000000000000000000001"),
        ("99999999999999999999999999999999999998", "1", "9" * 38),
        ("0.1", "0.2", "0.3"),
        ("1e125", "-1e125", "0"),
        ("5e125", "4.9e125", "99" + "0" * 124),
        ("-1e-130", "3e-130", "0." + "0" * 129 + "2"),
    ],
)
def test_arithmetic_is_exact_in_38_digits(left: str, right: str, total: str) -> None:
    assert change("SET a = :l + :r", {}, l={"N": left}, r={"N": right}) == {"a": {"N": total}}


@pytest.mark.parametrize(
    ("text", "picked"),
    [
        ("title, absent", {"title": {"S": "hello"}}),
        ("#d", {"dotted.name": {"S": "literal"}}),
        ("#m.#in", {"tree": {"M": {"in": {"M": {"deep": {"N": "7"}}}}}}),
        ("#l[2], #l[0], #l[9]", {"series": {"L": [{"N": "1"}, {"NS": ["1", "2"]}]}}),
        ("#m.absent, #l[9], title[0]", {}),
    ],
)
def test_a_projection_picks_what_is_there_in_its_place(text: str, picked: Any) -> None:
    compiled = projection(text)
    assert compiled.apply(ITEM, {name: NAMES[name] for name in compiled.names}) == picked


def test_a_projection_whose_paths_overlap_is_refused() -> None:
    with pytest.raises(RefusedError, match="overlap"):
        projection("series, series[0]").apply(ITEM, {})
