"""Labels of any moment: right by other means of reckoning, in time order, and never shared by two hours.

The oracles share nothing with the code: days are counted by hand, ISO weeks by their Thursday, and zones are
read by dateutil, which has its own reader of the time zone database.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate, pairwise
from math import floor
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from dateutil import tz as dateutil_tz
from dateutil.parser import isoparse
from hypothesis import assume, given
from hypothesis import strategies as st

from framework.errors import BadRecordError
from framework.windows import Daily, Hourly, Monthly, Weekly, Window, Yearly

DAY = 86_400
FIRST, LAST = -62_135_596_800, 253_402_300_799  # 0001-01-01T00:00:00Z, 9999-12-31T23:59:59Z
KINDS = [Hourly, Daily, Weekly, Monthly, Yearly]
# A moment when the clock of each zone was put back: by whole and half hours, by two, across midnight, within
# an hour, by seconds, by most of a day; then one when it was put forward, and zones that never change.
TURNS = {
    "Europe/Berlin": 1_540_688_400,
    "America/New_York": 1_541_311_200,
    "Australia/Lord_Howe": 1_522_508_400,
    "Antarctica/Troll": 1_540_688_400,
    "America/St_Johns": 1_162_089_060,
    "America/Havana": 1_541_307_600,
    "Asia/Colombo": 1_145_039_400,
    "America/Denver": -2_717_643_600,
    "Pacific/Kwajalein": -7_988_400,
    "Pacific/Apia": 1_325_239_200,
    "Asia/Kathmandu": 0,
    "UTC": 0,
}
ZONES = sorted(available_timezones())

CHARACTERS = "0123456789-:TZzWt ,.+\0xé\n"

moments = st.integers(FIRST, LAST)


@st.composite
def around_turns(draw: st.DrawFn) -> tuple[str, int]:
    """A zone, and a second within two days of a moment when its clock was changed."""
    zone = draw(st.sampled_from(sorted(TURNS)))
    return zone, TURNS[zone] + draw(st.integers(-2 * DAY, 2 * DAY))


def civil(day: int) -> tuple[int, int, int]:
    """Year, month and day of a count of days since 1970, in years of 400 that begin in March."""
    era, rest = divmod(day + 719_468, 146_097)
    year = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
    of_year = rest - (365 * year + year // 4 - year // 100)
    starts = list(accumulate([0, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31]))
    index = max(i for i, start in enumerate(starts) if start <= of_year)
    month = (index + 2) % 12 + 1
    return 400 * era + year + (month <= 2), month, of_year - starts[index] + 1


def by_hand(window: Window, second: int) -> str:
    """The label of a second in UTC."""
    day, of_day = divmod(second, DAY)
    year, month, of_month = civil(day)
    if isinstance(window, Weekly):
        thursday = day - (day + 3) % 7 + 3  # 1970-01-01 was a Thursday
        its_year = civil(thursday)[0]
        first = next(d for d in range(thursday - 366, thursday + 1) if civil(d)[0] == its_year)
        return f"{its_year:04}-W{(thursday - first) // 7 + 1:02}"
    label = f"{year:04}-{month:02}-{of_month:02}T{of_day // 3600:02}"
    return label[: {Hourly: 13, Daily: 10, Monthly: 7, Yearly: 4}[type(window)]]


def label(window: Window, value: dict[str, Any]) -> str:
    return window.compile()({"t": value})


def in_utc(second: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


@pytest.mark.parametrize("kind", KINDS)
@given(second=moments, fraction=st.integers(0, 999_999))
def test_text_in_utc_has_the_label_that_counting_days_by_hand_gives(kind: Any, second: int, fraction: int) -> None:
    moment = in_utc(second) + timedelta(microseconds=fraction)
    expected = by_hand(kind("t"), second)
    for text in (
        moment.isoformat(),
        moment.isoformat(" ", "milliseconds"),
        moment.replace(tzinfo=None).isoformat() + "Z",
        moment.replace(tzinfo=None).isoformat(),
        f"{moment:%Y%m%dT%H%M%S}Z".rjust(16, "0"),
    ):
        assert label(kind("t"), {"S": text}) == expected


@pytest.mark.parametrize("kind", KINDS)
@given(
    # Seconds and a fraction, so that the whole stays within 38 digits.
    second=moments.filter(lambda second: second < LAST),
    fraction=st.integers(0, 10**20 - 1),
    unit=st.sampled_from(["s", "ms"]),
)
def test_a_number_has_the_label_of_the_second_that_it_lies_in(kind: Any, second: int, fraction: int, unit: Any) -> None:
    exact = second + Fraction(fraction, 10**20)
    scaled = exact * (1000 if unit == "ms" else 1)
    digits = scaled.numerator * (10**20 // scaled.denominator)
    number = f"{Decimal((digits < 0, tuple(map(int, str(abs(digits)))), -20)):f}"
    assert label(kind("t", unit=unit), {"N": number}) == by_hand(kind("t"), floor(exact))


@pytest.mark.parametrize("kind", KINDS)
@given(second=moments, minutes=st.integers(-1439, 1439))
def test_an_offset_does_not_change_the_moment(kind: Any, second: int, minutes: int) -> None:
    try:
        text = in_utc(second).astimezone(timezone(timedelta(minutes=minutes))).isoformat()
    except OverflowError:
        return
    assert label(kind("t"), {"S": text}) == by_hand(kind("t"), second)


@pytest.mark.parametrize("kind", [Daily, Weekly, Monthly, Yearly])
@given(where=around_turns() | st.tuples(st.sampled_from(sorted(TURNS)), st.integers(0, 2_145_000_000)))
def test_a_zones_calendar_agrees_with_another_reader_of_the_time_zone_database(
    kind: Any, where: tuple[str, int]
) -> None:
    name, second = where
    # dateutil reads the part of the database that begins in 1901.
    if second < -2_140_000_000:
        return
    offset = in_utc(second).astimezone(dateutil_tz.gettz(name)).utcoffset()
    assert offset is not None
    expected = by_hand(kind("t"), second + int(offset.total_seconds()))
    assert label(kind("t", tz=name), {"N": str(second)}) == expected
    assert label(kind("t", tz=name), {"S": in_utc(second).isoformat()}) == expected


@given(around_turns() | st.tuples(st.sampled_from(sorted(TURNS)), st.integers(0, 2_145_000_000)))
def test_an_hour_is_named_as_the_clock_shows_it_unless_it_is_one_that_came_again(
    where: tuple[str, int],
) -> None:
    name, second = where
    if second < -2_140_000_000:
        return
    local = in_utc(second).astimezone(dateutil_tz.gettz(name))
    found = label(Hourly("t", tz=name), {"N": str(second)})
    shown = f"{local:%Y-%m-%dT%H}"
    # What is left of an hour that was interrupted (in Colombo and St. John's) may be called "B" as well.
    assert found[:13] == shown or (local.fold and found > shown)
    if name in ("Europe/Berlin", "America/New_York", "America/Havana"):
        assert found == shown + "B" * local.fold


@given(around_turns(), st.integers(0, 4 * DAY))
def test_labels_of_hours_sort_in_time_order_and_no_two_hours_share_one(where: tuple[str, int], later: int) -> None:
    name, second = where
    labels = Hourly("t", tz=name).compile()
    early, late = (labels({"t": {"N": str(second + passed)}}) for passed in (0, later))
    assert early <= late
    if later >= 3600:
        assert early < late


@st.composite
def zones_at_turns(draw: st.DrawFn) -> tuple[str, int]:
    """Any zone, and a second near the last of its clock's changes in a random year, if there was one."""
    name = draw(st.sampled_from(ZONES))
    zone = ZoneInfo(name)
    start = (draw(st.integers(1860, 2037)) - 1970) * 31_556_952
    offsets = [in_utc(start + day * DAY).astimezone(zone).utcoffset() for day in range(366)]
    turns = [day for day, (old, new) in enumerate(pairwise(offsets)) if old != new]
    low, high = start, start + DAY
    if turns:
        low, high = start + turns[-1] * DAY, start + (turns[-1] + 1) * DAY
        old = offsets[turns[-1]]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if in_utc(middle).astimezone(zone).utcoffset() == old else (low, middle)
    return name, high


@given(zones_at_turns(), st.integers(0, 599))
def test_hours_of_any_zone_sort_in_time_order_are_never_shared_and_may_be_read(
    where: tuple[str, int], shift: int
) -> None:
    name, turn = where
    window = Hourly("t", tz=name)
    labels = window.compile()
    started: dict[str, int] = {}
    before = ""
    for second in [*range(turn - 4 * 3600 - shift, turn + 6 * 3600, 600)]:
        found = labels({"t": {"N": str(second)}})
        assert before <= found
        assert second - started.setdefault(found, second) < 3600
        before = found
        assert window.label(in_utc(second)) == found
    for found, second in started.items():
        assert window.label(found) == found, second


@pytest.mark.parametrize("kind", KINDS)
@given(a=moments, b=moments)
def test_labels_sort_in_time_order_over_all_years(kind: Any, a: int, b: int) -> None:
    labels = kind("t").compile()
    early, late = (labels({"t": {"N": str(second)}}) for second in sorted((a, b)))
    assert early <= late


@pytest.mark.parametrize("kind", KINDS)
@given(where=around_turns())
def test_a_read_by_moment_or_by_label_finds_the_label_that_was_written(kind: Any, where: tuple[str, int]) -> None:
    name, second = where
    window = kind("t", tz=name)
    written = label(window, {"N": str(second)})
    assert window.label(in_utc(second)) == written
    assert window.label(written) == written


@given(
    st.sampled_from(
        [
            "2018-01-31T05:06:07Z",
            "2018-01-31",
            "2018-01-31 05:06:07.123456+02:00",
            "20180131T050607,5-0530",
            "2018-W05-3T05:06-07:00",
        ]
    ),
    st.lists(st.tuples(st.integers(0, 32), st.integers(0, 2), st.text(CHARACTERS, max_size=2)), max_size=2),
)
def test_text_that_is_almost_a_time_has_a_label_only_if_another_strict_reader_reads_it_so(
    text: str, edits: list[tuple[int, int, str]]
) -> None:
    for at, cut, put in edits:
        text = text[:at] + put + text[at + cut :]
    try:
        found = label(Daily("t"), {"S": text})
    except BadRecordError:
        return
    # dateutil knows no offsets with seconds, such as "+01:02:03": those are left to the tables of cases.
    assume(not re.search(r"[+-]\d\d:?\d\d:?\d\d$", text[10:]))
    moment = isoparse(text)
    assert not set(text) & set("xé\0\n")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    assert found == by_hand(Daily("t"), (moment - in_utc(0)) // timedelta(seconds=1))


# Days of the longest window of a kind, with what a clock may be put back by.
LONGEST = {Hourly: 2, Daily: 2, Weekly: 8, Monthly: 32, Yearly: 367}


@pytest.mark.parametrize("kind", KINDS)
@given(place=around_turns() | st.tuples(st.sampled_from(ZONES), st.integers(FIRST // 2, LAST // 2)))
def test_a_window_is_over_when_none_of_its_moments_is_to_come_and_soon_then(kind: Any, place: tuple[str, int]) -> None:
    zone, second = place
    window = kind("t", tz=zone)
    name = label(window, {"N": str(second)})
    end = window.end(name)
    assert second < end <= second + LONGEST[kind] * DAY
    for later in (end, end + 1, end + 1800, end + 3600, end + DAY):
        assert label(window, {"N": str(later)}) > name


@pytest.mark.parametrize("zone", sorted(TURNS))
@pytest.mark.parametrize(
    ("kind", "step", "around"),
    [(Hourly, 1, 3 * 3600), (Daily, 3600, 40 * DAY), (Weekly, 3600, 60 * DAY),
     (Monthly, 6 * 3600, 500 * DAY), (Yearly, DAY, 3000 * DAY)],
)  # fmt: skip
def test_the_windows_between_two_are_those_that_the_moments_between_lie_in(
    kind: type[Window], step: int, around: int, zone: str
) -> None:
    window = kind("at", tz=zone)  # type: ignore[call-arg]
    label = window.compile()
    moments = range(TURNS[zone] - around, TURNS[zone] + around, step)
    expected = list(dict.fromkeys(label({"at": {"N": str(moment)}}) for moment in moments))
    assert list(window.between(expected[0], expected[-1])) == expected
    middle = expected[len(expected) // 2]
    assert list(window.between(middle, expected[-1])) == expected[len(expected) // 2 :]
