"""Moments: the time that a raw value says, exactly, and where the clocks of a zone stood then.

Nothing is guessed: not the unit of a number, and no time for a value that is not one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from math import floor
from typing import Literal, TypeAlias

from framework.codec import AttributeValue, number

__all__ = ["UTC_FORMS", "ZEROS", "Unit", "epoch_of", "localizer", "moment_of", "seconds_of", "zone_of"]

Unit: TypeAlias = Literal["s", "ms"]
"""What a number counts since 1970-01-01T00:00:00Z."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# `datetime.fromisoformat` knows which dates exist but lets through what is not ISO-8601, in 3.11 for instance
# any character between date and time, "2018-01-31T05:06:07xyzZ", text after a NUL, and "+05:75" as an offset
# (of the offset "-00:00:00.5" it drops the fraction), and takes a week for its Monday. So the form is checked
# as well.
_DATE = r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{8}|[0-9]{4}-W[0-9]{2}-[0-9]|[0-9]{4}W[0-9]{3})"
_CLOCK = r"[0-9]{2}(?::[0-5][0-9](?::[0-5][0-9](?:[.,][0-9]+)?)?|[0-5][0-9](?:[0-5][0-9](?:[.,][0-9]+)?)?)?"
_OFFSET = r"[+-][0-9]{2}(?::[0-5][0-9](?::[0-5][0-9])?|[0-5][0-9](?:[0-5][0-9])?)?"
_is_iso = re.compile(rf"{_DATE}(?:[Tt ]{_CLOCK}(?:Z|{_OFFSET})?)?").fullmatch

ZEROS = bytes.maketrans(b"123456789", b"000000000")
"""For `bytes.translate`: every digit becomes a zero, so that what is left is the form."""

_LOCAL_FORMS = frozenset(
    f"0000-00-00{separator}00:00{seconds}".encode()
    for separator in "T "
    for seconds in ("", ":00", *(f":00.{'0' * digits}" for digits in range(1, 10)))
)
_COMMON_FORMS = _LOCAL_FORMS | {form + b"Z" for form in _LOCAL_FORMS} | {b"0000-00-00"}
UTC_FORMS = _COMMON_FORMS | {form + offset for form in _LOCAL_FORMS for offset in (b"+00:00", b"-00:00")}
"""The forms nearly all text has: looking one up takes a third of the time of the regular expression.

Text with an offset is sound only if `fromisoformat` finds it to be in UTC: "+05:75" has such a form too.
"""


def zone_of(name: str) -> tzinfo:
    """The zone with an IANA name; "UTC" needs no time zone database."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # where no zone is named, a cold start is 3 ms shorter

    return ZoneInfo(name)


def moment_of(value: AttributeValue, unit: Unit) -> datetime:
    """The moment that a raw value says.

    Args:
        value: S with ISO-8601 text, in the forms that `datetime.fromisoformat` documents, or N since 1970,
            which may be negative and have a fraction.
        unit: What N counts.

    Returns:
        With a zone, to the second at least; without one for text that has no offset.

    Raises:
        ValueError: It is not a time.
        BadValueError: It is not a number.
        OverflowError: It is outside the years 1 to 9999.
    """
    text = value.get("S")
    if isinstance(text, str):
        if text.encode().translate(ZEROS) in _COMMON_FORMS or _is_iso(text):
            return datetime.fromisoformat(text)
        raise ValueError(text)
    text = value.get("N")
    if not isinstance(text, str):
        raise ValueError(value)
    return _EPOCH + timedelta(seconds=seconds_of(text, unit))


def seconds_of(text: str, unit: Unit) -> int:
    """The whole seconds since 1970 that a number says, rounded down (towards the past, also before 1970).

    Raises:
        BadValueError: It is not a number.
    """
    count = int(text) if text.isdigit() and text.isascii() else floor(number(text))
    return count if unit == "s" else count // 1000


def epoch_of(moment: datetime, zone: tzinfo) -> int:
    """The second since 1970 of a moment, or of what the clock of a zone showed: the first, if it showed that twice."""
    aware = moment.replace(tzinfo=zone) if moment.tzinfo is None else moment
    return (aware - _EPOCH) // timedelta(seconds=1)


def localizer(zone: tzinfo) -> Callable[[datetime], datetime]:
    """A function from any moment to what calendar and clock of a zone showed then.

    A moment without a zone is what they showed already. One that the clock skipped is read with the offset
    before the gap, and so becomes the time that it then showed; one that it showed twice is the first, unless
    `fold` says otherwise (PEP 495, as Python's own arithmetic has it). The function raises OverflowError if
    the zone's calendar is then outside the years 1 to 9999.
    """
    if zone is UTC:
        return lambda moment: moment if moment.tzinfo in (None, UTC) else moment.astimezone(UTC)

    def local(moment: datetime) -> datetime:
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        if moment.tzinfo is not zone:
            return moment.astimezone(zone)
        if moment.utcoffset() == moment.replace(fold=1 - moment.fold).utcoffset():
            return moment
        return moment.astimezone(UTC).astimezone(zone)

    return local
