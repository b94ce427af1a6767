"""Windows: from the time in an attribute to the label of an hour, day, week, month or year."""

from __future__ import annotations

import dataclasses
import re
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from framework.errors import BadRecordError, DeclarationError, ReadError
from framework.windows import AllTime, Daily, Hourly, Monthly, Weekly, Window, Yearly

BERLIN = "Europe/Berlin"


def label(window: Window, value: dict[str, Any]) -> str:
    return window.compile()({"t": value})


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Hourly("t"), "2018-01-31T05"),
        (Daily("t"), "2018-01-31"),
        (Weekly("t"), "2018-W05"),
        (Monthly("t"), "2018-01"),
        (Yearly("t"), "2018"),
        (AllTime(), "all"),
    ],
)
@pytest.mark.parametrize(
    "value",
    [
        {"S": "2018-01-31T05:06:07Z"},
        {"S": "2018-01-31T05:06:07"},
        {"S": "2018-01-31 05:06"},
        {"S": "2018-01-31t05"},
        {"S": "2018-01-31T05:06:07.123456789Z"},
        {"S": "2018-01-31T05:06:07,5"},
        {"S": "2018-01-31T05:06:07+00:00"},
        {"S": "2018-01-31T05:06:07.5-00:00"},
        {"S": "2018-01-31T10:51:07+05:45"},
        {"S": "2018-01-30T23:06:07-0600"},
        {"S": "2018-02-01T04:06:07+23"},
        {"S": "20180131T050607Z"},
        {"S": "2018-W05-3T05:06"},
        {"S": "2018W053T0506"},
        {"N": "1517375167"},
        {"N": "1517375167.5"},
        {"N": "1.517375167E+9"},
    ],
)
def test_every_way_to_write_a_moment_has_the_label_of_its_window(
    window: Window, expected: str, value: dict[str, Any]
) -> None:
    assert label(window, value) == expected


@pytest.mark.parametrize(
    ("text", "day", "week", "month"),
    [
        ("2018-01-31T23:59:59.999999999Z", "2018-01-31", "2018-W05", "2018-01"),
        ("2018-02-01T00:00:00Z", "2018-02-01", "2018-W05", "2018-02"),
        ("2018-02-28T23:59:59Z", "2018-02-28", "2018-W09", "2018-02"),
        ("2018-04-30", "2018-04-30", "2018-W18", "2018-04"),
        ("2020-02-29T12:00:00Z", "2020-02-29", "2020-W09", "2020-02"),
        ("2000-02-29T00:00Z", "2000-02-29", "2000-W09", "2000-02"),
        # An ISO week belongs to the year that its Thursday is in.
        ("2018-12-31", "2018-12-31", "2019-W01", "2018-12"),
        ("2017-01-01", "2017-01-01", "2016-W52", "2017-01"),
        ("2020-12-31", "2020-12-31", "2020-W53", "2020-12"),
        ("2021-01-03T23:59:59Z", "2021-01-03", "2020-W53", "2021-01"),
        ("2021-01-04T00:00:00Z", "2021-01-04", "2021-W01", "2021-01"),
        ("2009-12-31", "2009-12-31", "2009-W53", "2009-12"),
        # The ends of the calendar.
        ("0001-01-01T00:00:00Z", "0001-01-01", "0001-W01", "0001-01"),
        ("0999-12-31", "0999-12-31", "1000-W01", "0999-12"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31", "9999-W52", "9999-12"),
        # Offsets that move the day, one of them by a second.
        ("2018-03-01T00:59:59+01:00", "2018-02-28", "2018-W09", "2018-02"),
        ("2018-01-31T23:30:00-00:30", "2018-02-01", "2018-W05", "2018-02"),
        ("2018-02-01T00:00:00+00:00:01", "2018-01-31", "2018-W05", "2018-01"),
    ],
)
def test_text_in_utc_is_in_its_day_week_and_month(text: str, day: str, week: str, month: str) -> None:
    value = {"S": text}
    found = (label(Daily("t"), value), label(Weekly("t"), value), label(Monthly("t"), value))
    assert found == (day, week, month)
    assert label(Yearly("t"), value) == month[:4]


@pytest.mark.parametrize(
    ("unit", "number", "expected"),
    [
        ("s", "0", "1970-01-01T00"),
        ("s", "-0", "1970-01-01T00"),
        ("s", "0.999999999999", "1970-01-01T00"),
        ("s", "-1", "1969-12-31T23"),
        ("s", "-0.000000001", "1969-12-31T23"),
        ("s", "-3600", "1969-12-31T23"),
        ("s", "-3600.5", "1969-12-31T22"),
        ("s", "-1E-130", "1969-12-31T23"),
        ("s", "1517443199", "2018-01-31T23"),
        ("s", "1517443199.9999999999999999999999999999", "2018-01-31T23"),  # a float would round it up
        ("s", "1517443200", "2018-02-01T00"),
        ("s", "1517443200.0", "2018-02-01T00"),
        ("s", "1.5174432E+9", "2018-02-01T00"),
        ("s", "951825599", "2000-02-29T11"),
        ("s", "-62135596800", "0001-01-01T00"),
        ("s", "253402300799.9", "9999-12-31T23"),
        ("ms", "1517443199999", "2018-01-31T23"),
        ("ms", "1517443199999.9999", "2018-01-31T23"),
        ("ms", "1517443200000", "2018-02-01T00"),
        ("ms", "-1", "1969-12-31T23"),
        ("ms", "-0.001", "1969-12-31T23"),
        ("ms", "1517443200", "1970-01-18T13"),  # seconds, but nothing is guessed
        ("ms", "-62135596800000", "0001-01-01T00"),
        ("ms", "253402300799999", "9999-12-31T23"),
    ],
)
def test_a_number_counts_from_1970_and_is_rounded_down_exactly(unit: Any, number: str, expected: str) -> None:
    value = {"N": number}
    assert label(Hourly("t", unit=unit), value) == expected
    assert label(Daily("t", unit=unit), value) == expected[:10]
    assert label(Monthly("t", unit=unit), value) == expected[:7]


@pytest.mark.parametrize(
    ("tz", "text", "hour"),
    [
        (BERLIN, "2018-01-31T23:30:00Z", "2018-02-01T00"),
        (BERLIN, "2018-07-31T22:30:00Z", "2018-08-01T00"),
        (BERLIN, "2018-01-31T23:30:00", "2018-01-31T23"),  # no offset: it is Berlin's clock
        (BERLIN, "2018-02-01", "2018-02-01T00"),
        ("Asia/Kathmandu", "2018-01-31T18:14:59Z", "2018-01-31T23"),  # 5:45 ahead
        ("Asia/Kathmandu", "2018-01-31T18:15:00Z", "2018-02-01T00"),
        ("Asia/Kathmandu", "2018-01-31T12:00:00-05:00", "2018-01-31T22"),
        ("Africa/Monrovia", "1970-01-01T00:44:29Z", "1969-12-31T23"),  # 0:44:30 behind until 1972
        ("Africa/Monrovia", "1970-01-01T00:44:30Z", "1970-01-01T00"),
        ("Pacific/Kiritimati", "2018-01-31T10:00:00Z", "2018-02-01T00"),
        # A gap: the clock in Berlin went from 2 to 3.
        (BERLIN, "2018-03-25T00:59:59Z", "2018-03-25T01"),
        (BERLIN, "2018-03-25T01:00:00Z", "2018-03-25T03"),
        (BERLIN, "2018-03-25T02:30:00", "2018-03-25T03"),
        (BERLIN, "2018-03-25T03:30:00", "2018-03-25T03"),
        # A gap at midnight, and one of a whole day.
        ("America/Sao_Paulo", "2018-11-04", "2018-11-04T01"),
        ("Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T23"),
        ("Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-31T00"),
        ("Pacific/Apia", "2011-12-30T12:00:00", "2011-12-31T12"),
        # Half an hour's gap within an hour, and its hour is not the worse for it.
        ("Australia/Lord_Howe", "2018-10-06T15:29:59Z", "2018-10-07T01"),
        ("Australia/Lord_Howe", "2018-10-06T15:30:00Z", "2018-10-07T02"),
        # A fold: the clock in Berlin went from 3 to 2.
        (BERLIN, "2018-10-28T00:59:59Z", "2018-10-28T02"),
        (BERLIN, "2018-10-28T01:00:00Z", "2018-10-28T02B"),
        (BERLIN, "2018-10-28T01:59:59Z", "2018-10-28T02B"),
        (BERLIN, "2018-10-28T02:00:00Z", "2018-10-28T03"),
        (BERLIN, "2018-10-28T02:30:00", "2018-10-28T02"),
        (BERLIN, "2018-10-28T02:30:00+01:00", "2018-10-28T02B"),
        ("America/New_York", "2018-11-04T05:30:00Z", "2018-11-04T01"),
        ("America/New_York", "2018-11-04T06:30:00Z", "2018-11-04T01B"),
        ("America/New_York", "2018-11-04T07:00:00Z", "2018-11-04T02"),
        # A fold of half an hour, from 2:00 to 1:30.
        ("Australia/Lord_Howe", "2018-03-31T14:59:59Z", "2018-04-01T01"),
        ("Australia/Lord_Howe", "2018-03-31T15:00:00Z", "2018-04-01T01B"),
        ("Australia/Lord_Howe", "2018-03-31T15:30:00Z", "2018-04-01T02"),
        # A fold of two hours, from 3 to 1.
        ("Antarctica/Troll", "2018-10-27T23:30:00Z", "2018-10-28T01"),
        ("Antarctica/Troll", "2018-10-28T00:30:00Z", "2018-10-28T02"),
        ("Antarctica/Troll", "2018-10-28T01:30:00Z", "2018-10-28T02B"),
        ("Antarctica/Troll", "2018-10-28T02:30:00Z", "2018-10-28T02C"),
        ("Antarctica/Troll", "2018-10-28T03:00:00Z", "2018-10-28T03"),
        # A fold within one hour, from 0:30 to 0:00.
        ("Asia/Colombo", "2006-04-14T18:45:00Z", "2006-04-15T00"),
        ("Asia/Colombo", "2006-04-14T19:00:00Z", "2006-04-15T00B"),
        ("Asia/Colombo", "2006-04-14T19:30:00Z", "2006-04-15T01"),
        # A fold across midnight, from 0:01 to 23:01.
        ("America/St_Johns", "2006-10-29T02:29:59Z", "2006-10-28T23"),
        ("America/St_Johns", "2006-10-29T02:30:00Z", "2006-10-29T00"),
        ("America/St_Johns", "2006-10-29T03:29:59Z", "2006-10-29T00"),
        ("America/St_Johns", "2006-10-29T03:30:00Z", "2006-10-29T00B"),
        ("America/St_Johns", "2006-10-29T04:30:00Z", "2006-10-29T01"),
        # The end of the calendar in a zone behind UTC, by its own clock.
        ("America/New_York", "9999-12-31T23:59:59", "9999-12-31T23"),
        ("Asia/Tokyo", "0001-01-01T00:00:00", "0001-01-01T00"),
    ],
)
def test_a_zones_own_clock_tells_the_hour(tz: str, text: str, hour: str) -> None:
    window = Hourly("t", tz=tz)
    assert label(window, {"S": text}) == hour
    assert window.label(hour) == hour


@pytest.mark.parametrize(
    ("tz", "text", "hour"),
    [
        # Clocks that were put forward at a minute past the hour, to where the next hour had begun.
        ("Antarctica/Casey", "2020-10-04T03:30:00+11:00", "2020-10-04T03"),  # from 0:01 to 3:01
        ("America/St_Johns", "1987-04-05T04:00:00Z", "1987-04-05T01"),  # from 0:01 to 1:01
        ("Asia/Gaza", "2010-03-26T22:30:00Z", "2010-03-27T01"),  # from 0:01 to 1:01
    ],
)
def test_an_hour_that_began_late_may_be_read_by_its_label(tz: str, text: str, hour: str) -> None:
    window = Hourly("t", tz=tz)
    assert label(window, {"S": text}) == hour
    assert window.label(hour) == hour


@pytest.mark.parametrize(
    ("tz", "text", "day"),
    [
        (BERLIN, "2018-01-31T23:30:00Z", "2018-02-01"),
        (BERLIN, "2018-10-28T22:59:59Z", "2018-10-28"),  # a day of 25 hours
        (BERLIN, "2018-10-28T23:00:00Z", "2018-10-29"),
        ("America/New_York", "2018-02-01T04:59:59Z", "2018-01-31"),
        ("Pacific/Apia", "2011-12-30T12:00:00", "2011-12-31"),
        ("Africa/Monrovia", "1970-01-01T00:44:29Z", "1969-12-31"),
        ("America/St_Johns", "2006-10-29T03:00:00Z", "2006-10-28"),
    ],
)
def test_a_zones_own_calendar_tells_day_week_month_and_year(tz: str, text: str, day: str) -> None:
    year, week, _ = date.fromisoformat(day).isocalendar()
    value = {"S": text}
    assert label(Daily("t", tz=tz), value) == day
    assert label(Weekly("t", tz=tz), value) == f"{year}-W{week:02}"
    assert label(Monthly("t", tz=tz), value) == day[:7]
    assert label(Yearly("t", tz=tz), value) == day[:4]


@pytest.mark.parametrize("window", [Monthly("t"), Hourly("t"), Daily("t", tz=BERLIN)], ids=repr)
@pytest.mark.parametrize(
    "value",
    [
        {"S": ""},
        {"S": "2018"},
        {"S": "2018-01"},
        {"S": "2018-02-30"},
        {"S": "2018-02-29T00:00:00Z"},
        {"S": "1900-02-29"},
        {"S": "2018-13-01"},
        {"S": "0000-01-01"},
        {"S": "2018-W53-1"},
        {"S": "2018-W05"},
        {"S": "2018W05T05:06"},
        {"S": "2018-02-30T05:06:07Z"},
        {"S": "2018-01-31T24:00:01Z"},
        {"S": "2018-01-31T25:00:00Z"},
        {"S": "2018-01-31T05:60:00Z"},
        {"S": "2018-01-31T23:59:60Z"},
        {"S": "2018-01-garbage"},
        {"S": "2018-01-31garbage"},
        {"S": "2018-01-31T05:06:07garbage"},
        {"S": "2018-01-31T05:06:07Zgarbage"},
        # All of these are dates to `datetime.fromisoformat` in some version of Python.
        {"S": "2018-01-31x05:06:07"},
        {"S": "2018-01-31-05:00"},
        {"S": "2018-01-31+00:00"},
        {"S": "2018-01-05:06:07Z"},
        {"S": "2018-01-31T05:06:07xyzZ"},
        {"S": "2018-01-31T05:06:075Z"},
        {"S": "2018-01-31T05:06:07.123456xyz+02:00"},
        {"S": "2018-01-31T05:06:07\x00"},
        {"S": "2018-01-31T05:06:07Z\x00garbage"},
        {"S": "2018-01-31T05:06:07Z+00:00"},
        {"S": "2018-01-31T05:06.5"},
        {"S": "2018-01-31T05:00+05:75"},
        {"S": "2018-01-31T05:00:00+00:99"},
        {"S": "2018-01-31T05:00:00+24:00"},
        {"S": "2018-01-31T05:00:00-00:00:00.5"},
        {"S": "1512123112345"},
        {"S": "2018-01-31T05:06:07Z\n"},
        {"S": " 2018-01-31"},
        {"S": "२०१८-०१-३१"},
        {"S": "2018-01-31T05:06:0७Z"},
        {"S": "\ud8002018-01-31"},
        {"S": 20180131},
        {"N": "NaN"},
        {"N": "Infinity"},
        {"N": "1_517_375_167"},
        {"N": " 1517375167"},
        {"N": "१५१७३७५१६७"},
        {"N": ""},
        {"N": "2018-01-31"},
        {"N": 1517375167},
        {"BOOL": True},
        {"NULL": True},
        {"SS": ["2018-01-31"]},
        {},
    ],
)
def test_what_is_not_a_time_has_no_label(window: Window, value: dict[str, Any]) -> None:
    expected = re.escape("attribute 't': expected ISO-8601 text or epoch seconds, came {")
    with pytest.raises(BadRecordError, match=f"^{expected}"):
        label(window, value)


@pytest.mark.parametrize(
    ("window", "value", "hint"),
    [
        (Monthly("t"), {"N": "1517374800000"}, "looks like milliseconds: unit='ms'?"),
        (Monthly("t"), {"N": "253402300800"}, "looks like milliseconds: unit='ms'?"),
        (Hourly("t", tz=BERLIN), {"N": "-62135596801"}, "looks like milliseconds: unit='ms'?"),
        (Monthly("t"), {"N": "1517374800000000"}, "outside the years 1 to 9999"),
        (Monthly("t"), {"N": "9.9E+125"}, "outside the years 1 to 9999"),
        (Monthly("t", unit="ms"), {"N": "253402300800000"}, "outside the years 1 to 9999"),
        (Monthly("t", unit="ms"), {"N": "-62135596800001"}, "outside the years 1 to 9999"),
        (Monthly("t"), {"S": "0001-01-01T00:00:00+00:01"}, "outside the years 1 to 9999"),
        (Monthly("t"), {"S": "9999-12-31T23:59:59-00:01"}, "outside the years 1 to 9999"),
        (Hourly("t", tz="Asia/Tokyo"), {"S": "9999-12-31T23:59:59Z"}, "outside the years 1 to 9999"),
        (Daily("t", tz="America/New_York"), {"S": "0001-01-01T00:00Z"}, "outside the years 1 to 9999"),
    ],
)
def test_a_time_outside_the_calendar_is_refused_with_a_hint(window: Window, value: dict[str, Any], hint: str) -> None:
    with pytest.raises(BadRecordError, match=rf"came {re.escape(repr(value))} \({re.escape(hint)}\)$"):
        label(window, value)


def test_a_message_names_attribute_unit_and_a_short_form_of_what_came() -> None:
    with pytest.raises(BadRecordError) as caught:
        label(Daily("t", unit="ms"), {"S": "x" * 1000})
    assert str(caught.value) == (
        f"attribute 't': expected ISO-8601 text or epoch milliseconds, came {{'S': '{'x' * 52}…"
    )


@pytest.mark.parametrize(
    ("path", "image"),
    [
        ("t", {"other": {"S": "2018-01-31"}}),
        ("a.t", {"a": {"M": {}}}),
        ("a.t", {"a": {"S": "2018-01-31"}}),
        ("a[1]", {"a": {"L": [{"S": "2018-01-31"}]}}),
    ],
)
@pytest.mark.parametrize("kind", [Hourly, Daily])
def test_a_missing_attribute_is_named(path: str, image: dict[str, Any], kind: Any) -> None:
    with pytest.raises(BadRecordError, match=rf"^attribute '{re.escape(path)}' is missing$"):
        kind(path).compile()(image)


@pytest.mark.parametrize(
    ("path", "image"),
    [
        ("a.t", {"a": {"M": {"t": {"S": "2018-01-31"}}}}),
        ("a[1].t", {"a": {"L": [{"NULL": True}, {"M": {"t": {"N": "1517375167"}}}]}}),
        (r"a\.t", {"a.t": {"S": "2018-01-31"}}),
    ],
)
def test_the_time_may_lie_deep_in_an_item(path: str, image: dict[str, Any]) -> None:
    assert Daily(path).compile()(image) == "2018-01-31"


@pytest.mark.parametrize(
    ("window", "moment", "expected"),
    [
        (Monthly("t"), datetime(2018, 1, 31, 23, 59), "2018-01"),
        (Monthly("t"), date(2018, 1, 31), "2018-01"),
        (Monthly("t"), "2018-01", "2018-01"),
        (Monthly("t", tz=BERLIN), datetime(2018, 1, 31, 23, 30), "2018-01"),
        (Monthly("t", tz=BERLIN), datetime(2018, 1, 31, 23, 30, tzinfo=UTC), "2018-02"),
        (Monthly("t"), datetime(2018, 2, 1, tzinfo=timezone(timedelta(hours=1))), "2018-01"),
        (Weekly("t"), date(2018, 12, 31), "2019-W01"),
        (Weekly("t"), "2020-W53", "2020-W53"),
        (Daily("t"), "2020-02-29", "2020-02-29"),
        (Daily("t", tz=BERLIN), date(2018, 3, 25), "2018-03-25"),
        (Yearly("t"), "0001", "0001"),
        (Yearly("t", tz="America/New_York"), "9999", "9999"),
        (Yearly("t", tz="Asia/Tokyo"), "0001", "0001"),
        (Hourly("t"), date(2018, 1, 31), "2018-01-31T00"),
        (Hourly("t"), "2018-01-31T23", "2018-01-31T23"),
        (Hourly("t", tz=BERLIN), datetime(2018, 10, 28, 2, 30), "2018-10-28T02"),
        (Hourly("t", tz=BERLIN), datetime(2018, 10, 28, 2, 30, fold=1), "2018-10-28T02B"),
        (Hourly("t", tz=BERLIN), datetime(2018, 6, 1, 2, 30, fold=1), "2018-06-01T02"),
        (Hourly("t", tz=BERLIN), datetime(2018, 3, 25, 2, 30), "2018-03-25T03"),
        (Hourly("t", tz=BERLIN), datetime(2018, 3, 25, 2, 30, tzinfo=ZoneInfo(BERLIN)), "2018-03-25T03"),
        (AllTime(), "all", "all"),
        (AllTime(), date(2018, 1, 31), "all"),
    ],
)
def test_a_read_may_name_a_window_by_a_moment_in_it_or_by_its_label(window: Window, moment: Any, expected: str) -> None:
    assert window.label(moment) == expected


@pytest.mark.parametrize(
    ("window", "wrong"),
    [
        (Monthly("t"), "2018-13"),
        (Monthly("t"), "2018-1"),
        (Monthly("t"), "2018"),
        (Monthly("t"), "2018-01-31"),
        (Monthly("t"), "201801"),
        (Monthly("t"), ""),
        (Monthly("t"), 201801),
        (Monthly("t"), None),
        (Daily("t"), "2018-02-30"),
        (Daily("t"), "20180131"),
        (Daily("t"), "2018-01-31T05"),
        (Daily("t", tz="Pacific/Apia"), "2011-12-30"),
        (Weekly("t"), "2018-W53"),
        (Weekly("t"), "2018W05"),
        (Weekly("t"), "2018-W00"),
        (Yearly("t"), "18"),
        (Yearly("t"), "0000"),
        (Hourly("t"), "2018-01-31T24"),
        (Hourly("t"), "2018-01-31"),
        (Hourly("t"), "2018-01-31T05:00"),
        (Hourly("t"), "2018-10-28T02B"),
        (Hourly("t", tz=BERLIN), "2018-10-28T02A"),
        (Hourly("t", tz=BERLIN), "2018-10-28T02C"),
        (Hourly("t", tz=BERLIN), "2018-10-28T03B"),
        (Hourly("t", tz=BERLIN), "2018-03-25T02"),
        (AllTime(), "2018"),
        (AllTime(), None),
    ],
)
def test_a_label_that_a_window_does_not_have_is_refused(window: Window, wrong: Any) -> None:
    expected = f"{window!r}: expected a datetime, a date or "
    with pytest.raises(ReadError, match=f"^{re.escape(expected)}.*came {re.escape(repr(wrong))}$"):
        window.label(wrong)


def test_a_refusal_shows_a_label_of_the_right_form() -> None:
    with pytest.raises(ReadError, match="such as '2018-01-31T05'"):
        Hourly("t", tz=BERLIN).label("tomorrow")


@pytest.mark.parametrize("kind", [Hourly, Daily, Weekly, Monthly, Yearly])
@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("",), {}, "attribute: path: expected names and indexes"),
        ((5,), {}, "attribute: path: expected names and indexes"),
        ((None,), {}, "attribute: path: expected names and indexes"),
        (("a..b",), {}, "attribute: path: expected names and indexes"),
        (("t",), {"tz": "Mars/Olympus"}, "tz: expected a time zone such as 'Europe/Berlin', came 'Mars/Oly"),
        (("t",), {"tz": "Europe"}, "tz: expected a time zone such as 'Europe/Berlin', came 'Europe'"),
        (("t",), {"tz": "../etc/passwd"}, "tz: expected a time zone"),
        (("t",), {"tz": ""}, "tz: expected a time zone"),
        (("t",), {"tz": None}, "tz: expected a time zone"),
        (("t",), {"unit": "us"}, "unit: expected 's' or 'ms', came 'us'"),
        (("t",), {"unit": []}, "unit: expected 's' or 'ms', came []"),
    ],
)
def test_a_wrong_declaration_is_refused_when_it_is_made(kind: Any, arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=f"^{kind.__name__}.*{re.escape(message)}"):
        kind(*arguments, **options)


@pytest.mark.parametrize(
    ("window", "name", "end"),
    [
        (Hourly("t"), "2018-01-31T23", "2018-02-01T00:00:00Z"),
        (Hourly("t", tz="Asia/Kathmandu"), "2018-01-31T23", "2018-01-31T18:15:00Z"),
        # the hour that comes twice, and the one behind the one that is skipped
        (Hourly("t", tz=BERLIN), "2018-10-28T02", "2018-10-28T01:00:00Z"),
        (Hourly("t", tz=BERLIN), "2018-10-28T02B", "2018-10-28T02:00:00Z"),
        (Hourly("t", tz=BERLIN), "2018-10-28T03", "2018-10-28T03:00:00Z"),
        (Hourly("t", tz=BERLIN), "2018-03-25T01", "2018-03-25T01:00:00Z"),
        # cut short by half an hour
        (Hourly("t", tz="Australia/Lord_Howe"), "2018-10-07T02", "2018-10-06T16:30:00Z"),
        (Daily("t"), "2018-12-31", "2019-01-01T00:00:00Z"),
        (Daily("t", unit="ms"), "2018-12-31", "2019-01-01T00:00:00Z"),
        # of 23 and of 25 hours
        (Daily("t", tz=BERLIN), "2018-03-25", "2018-03-25T22:00:00Z"),
        (Daily("t", tz=BERLIN), "2018-10-28", "2018-10-28T23:00:00Z"),
        # midnight comes twice; midnight is skipped; a whole day is
        (Daily("t", tz="America/Havana"), "2018-11-03", "2018-11-04T05:00:00Z"),
        (Daily("t", tz="America/Havana"), "2018-03-10", "2018-03-11T05:00:00Z"),
        (Daily("t", tz="Pacific/Apia"), "2011-12-29", "2011-12-30T10:00:00Z"),
        (Weekly("t"), "2018-W52", "2018-12-31T00:00:00Z"),
        (Weekly("t"), "2020-W53", "2021-01-04T00:00:00Z"),
        (Weekly("t", tz=BERLIN), "2018-W43", "2018-10-28T23:00:00Z"),
        (Monthly("t"), "2018-01", "2018-02-01T00:00:00Z"),
        (Monthly("t"), "2018-02", "2018-03-01T00:00:00Z"),
        (Monthly("t"), "2020-02", "2020-03-01T00:00:00Z"),
        (Monthly("t"), "2018-12", "2019-01-01T00:00:00Z"),
        (Monthly("t", tz=BERLIN), "2018-03", "2018-03-31T22:00:00Z"),
        (Yearly("t"), "2019", "2020-01-01T00:00:00Z"),
        (Yearly("t"), "2020", "2021-01-01T00:00:00Z"),
        (Yearly("t", tz="America/New_York"), "2018", "2019-01-01T05:00:00Z"),
        (Yearly("t"), "0001", "0002-01-01T00:00:00Z"),
    ],
)
def test_a_window_ends_where_the_next_one_begins_by_its_clock(window: Window, name: str, end: str) -> None:
    assert window.end(name) == (datetime.fromisoformat(end) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()


@pytest.mark.parametrize(
    "window", [Hourly("t"), Daily("t"), Weekly("t"), Monthly("t"), Yearly("t"), Daily("t", tz="Pacific/Apia")]
)
def test_the_last_window_of_the_calendar_ends_with_it(window: Window) -> None:
    end = window.end(window.label(date(9999, 12, 31) if window.form != "hour" else datetime(9999, 12, 31, 23)))
    assert end == 253_402_300_800


@pytest.mark.parametrize(
    ("window", "first", "last", "expected"),
    [
        (Monthly("at"), "2018-11", date(2019, 2, 3), ["2018-11", "2018-12", "2019-01", "2019-02"]),
        (Monthly("at"), "2018-11", "2018-11", ["2018-11"]),
        (Weekly("at"), "2020-W52", "2021-W01", ["2020-W52", "2020-W53", "2021-W01"]),
        (Yearly("at"), "9998", "9999", ["9998", "9999"]),
        (Daily("at", tz="Pacific/Apia"), "2011-12-29", "2011-12-31", ["2011-12-29", "2011-12-31"]),
        (Hourly("at", tz="Europe/Berlin"), "2018-10-28T01", "2018-10-28T03",
         ["2018-10-28T01", "2018-10-28T02", "2018-10-28T02B", "2018-10-28T03"]),
        (Hourly("at", tz="Europe/Berlin"), "2018-10-28T02B", "2018-10-28T03", ["2018-10-28T02B", "2018-10-28T03"]),
        (Hourly("at", tz="Europe/Berlin"), "2018-03-25T01", "2018-03-25T03", ["2018-03-25T01", "2018-03-25T03"]),
        (Hourly("at"), "9999-12-31T22", "9999-12-31T23", ["9999-12-31T22", "9999-12-31T23"]),
        (AllTime(), "all", "all", ["all"]),
    ],
)  # fmt: skip
def test_the_windows_between_two_come_in_order_both_included(
    window: Window, first: Any, last: Any, expected: list[str]
) -> None:
    assert list(window.between(first, last)) == expected


@pytest.mark.parametrize(("first", "last"), [("2018-02", "2018-01"), ("2018-1", "2018-02"), ("2018-01", "x")])
def test_windows_between_what_is_in_no_order_are_refused_at_once(first: str, last: str) -> None:
    with pytest.raises(ReadError, match=r"Monthly\(.*'at'.*\): expected a"):
        Monthly("at").between(first, last)


def test_all_time_never_ends() -> None:
    assert AllTime().end("all") is None


def test_windows_are_values() -> None:
    assert Monthly("t") == Monthly("t", tz="UTC", unit="s") != Daily("t")
    assert Monthly("t") != Monthly("t", tz=BERLIN)
    assert AllTime() == AllTime() != Yearly("t")
    assert len({Monthly("t"), Monthly("t"), AllTime(), AllTime()}) == 2
    assert repr(Monthly("t", tz=BERLIN)) == "Monthly(attribute='t', tz='Europe/Berlin', unit='s')"
    assert repr(AllTime()) == "AllTime()"
    with pytest.raises(dataclasses.FrozenInstanceError):
        Monthly("t").tz = BERLIN  # type: ignore[misc]


def test_every_window_has_a_stable_form() -> None:
    windows = [Hourly("t"), Daily("t"), Weekly("t"), Monthly("t"), Yearly("t"), AllTime()]
    assert [window.form for window in windows] == ["hour", "day", "week", "month", "year", "all"]
    assert AllTime().attribute is None


def test_utc_needs_no_time_zone_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ZoneInfo:
        raise KeyError(name)

    monkeypatch.setattr("zoneinfo.ZoneInfo", missing)
    assert label(Hourly("t"), {"S": "2018-01-31T06:00:00+01:00"}) == "2018-01-31T05"
    with pytest.raises(DeclarationError, match="install tzdata"):
        Hourly("t", tz=BERLIN)


def test_labels_stay_right_when_more_days_come_than_are_remembered() -> None:
    labels = Daily("t").compile()
    days = [(date(2000, 1, 1) + timedelta(days=n)).isoformat() for n in range(5000)]
    assert [labels({"t": {"S": day}}) for day in days + days[:10]] == days + days[:10]
