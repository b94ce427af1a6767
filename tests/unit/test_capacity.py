import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from framework.local.capacity import IndexShape, item_size, most_changes, read_units, write_units

KB = 1024


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"S": ""}, 0),
        ({"S": "abc"}, 3),
        ({"S": "é€😀"}, 2 + 3 + 4),  # bytes of UTF-8
        ({"N": "0"}, 1),
        ({"N": "7"}, 2),
        ({"N": "27"}, 2),
        ({"N": "-27"}, 2),
        ({"N": "127"}, 3),
        ({"N": "1200"}, 2),  # zeros at the ends are not significant
        ({"N": "0.0012"}, 2),
        ({"N": "1.2E-3"}, 2),
        ({"N": "9" * 38}, 20),
        ({"B": b"\x00\x01\x02"}, 3),
        ({"B": b64encode(b"\x00\x01\x02\x03").decode()}, 4),  # as in a Lambda event
        ({"BOOL": False}, 1),
        ({"NULL": True}, 1),
        ({"SS": ["ab", "é"]}, 4),
        ({"NS": ["1", "100", "-2.5"]}, 6),
        ({"BS": [b"\x00", b"\x01\x02"]}, 3),
        ({"L": []}, 3),
        ({"L": [{"S": "ab"}, {"NULL": True}]}, 3 + 1 + 2 + 1 + 1),
        ({"M": {}}, 3),
        ({"M": {"key": {"S": "ab"}}}, 3 + 1 + 3 + 2),
        ({"M": {"a": {"L": [{"M": {}}]}}}, 3 + 1 + 1 + 3 + 1 + 3),
    ],
)
def test_a_value_weighs_what_the_developer_guide_says(value: Any, size: int) -> None:
    assert item_size({"": value}) == size


def test_an_item_weighs_its_names_and_its_values() -> None:
    assert item_size({"pk": {"S": "song"}, "Zähler": {"N": "12"}}) == 2 + 4 + 7 + 2


def sized(size: int, **more: Any) -> dict[str, Any]:
    """An item of exactly so many bytes."""
    item = {"pk": {"S": "x"}, **more, "fill": {"S": ""}}
    return {**item, "fill": {"S": "f" * (size - item_size(item))}}


BY_MONTH = IndexShape(("Month", "Count"), frozenset({"pk", "Month", "Count", "shown"}))
WHOLE = IndexShape(("Month",))


def entry(month: str | None, count: int | None, **more: Any) -> dict[str, Any]:
    keys = {"Month": month and {"S": month}, "Count": count and {"N": str(count)}}
    return {"pk": {"S": "x"}, **{name: value for name, value in keys.items() if value}, **more}


@pytest.mark.parametrize(
    ("before", "after", "units"),
    [
        (None, sized(1), 1),
        (None, sized(KB), 1),
        (None, sized(KB + 1), 2),
        (sized(3 * KB), sized(20), 3),  # the larger of the two
        (sized(20), sized(3 * KB), 3),
        (sized(3 * KB), None, 3),
        (None, None, 1),  # deleting what is not there
    ],
)
def test_a_write_costs_a_unit_a_kilobyte_of_the_larger_image(before: Any, after: Any, units: int) -> None:
    assert write_units(before, after) == units
    assert write_units(before, after, transaction=True) == 2 * units


@pytest.mark.parametrize(
    ("before", "after", "units"),
    [
        (None, entry("2018-01", 1), 1),  # added
        (entry("2018-01", 1), None, 1),  # removed
        (entry("2018-01", 1), entry("2018-01", None), 1),  # left, as half a key is none
        (entry("2018-01", 1), entry("2018-01", 2), 2),  # moved
        (entry("2018-01", 1), entry("2018-01", 1, shown={"S": "x"}), 1),  # changed
        (entry("2018-01", 1), entry("2018-01", 1, hidden={"S": "x"}), 0),  # not projected
        (entry("2018-01", 1), entry("2018-01", 1), 0),
        (entry("2018-01", None), entry("2018-02", None), 0),  # never in
        (entry(None, 1), entry("2018-01", 1), 1),
        (None, None, 0),
        # By the entry's size, and only its own: what is not projected weighs nothing.
        (None, entry("2018-01", 1, shown={"S": "x" * 3 * KB}), 4),
        (None, entry("2018-01", 1, hidden={"S": "x" * 3 * KB}), 1),
        (entry("2018-01", 1, shown={"S": "x" * 3 * KB}), entry("2018-01", 2, shown={"S": "x"}), 4 + 1),
        (entry("2018-01", 1, shown={"S": "x" * 3 * KB}), entry("2018-01", 1, shown={"S": "x"}), 4),
    ],
)
def test_an_index_costs_by_what_happens_to_its_entry(before: Any, after: Any, units: int) -> None:
    table = write_units(before, after)
    assert write_units(before, after, [BY_MONTH]) - table == units
    # The index follows the table outside of the transaction.
    assert write_units(before, after, [BY_MONTH], transaction=True) - 2 * table == units


def test_every_index_costs_by_itself() -> None:
    assert write_units(entry("2018-01", 1), entry("2018-01", 2), [BY_MONTH, WHOLE]) == 1 + 2 + 1


def test_counting_in_an_index_sort_key_costs_three_units() -> None:
    assert write_units(entry("2018-01", 41), entry("2018-01", 42), [BY_MONTH]) == 3


@pytest.mark.parametrize(
    ("size", "consistent", "units"),
    [(0, False, 0.5), (0, True, 1), (4 * KB, False, 0.5), (4 * KB + 1, False, 1), (9 * KB, True, 3)],
)
def test_a_read_costs_a_unit_for_four_kilobytes_and_half_when_eventual(
    size: int, consistent: bool, units: float
) -> None:
    assert read_units(size, consistent=consistent) == units


@pytest.mark.parametrize(
    ("shards", "seconds", "each", "changes"),
    [
        (1, 0, 1, 500),  # 1,000 units a second, two a move
        (8, 0, 1, 4000),
        (1, 1, 10, 5000),  # ten changes of one in each batch
        (1, 30, 1 / 60, 500),  # nothing to gather
        (8, 30, 0.1, 12_000),
    ],
)
def test_an_index_takes_what_its_keys_take_times_what_a_batch_gathers(
    shards: int, seconds: int, each: float, changes: int
) -> None:
    assert most_changes(shards, seconds, each=each) == changes


def test_the_table_in_the_docs_is_what_the_rules_come_to() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "indexes.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| \d+ \| [\d,]+ \|", line)]
    assert [int(row[0]) for row in rows] == [1, 2, 4, 8, 16]
    for shards, *changes in rows:
        expected = [most_changes(int(shards), seconds) for seconds in (0, 1, 5, 30)]
        assert changes == [f"{each:,.0f}" for each in expected]
