"""Windows: the stretch of event time that an item counts in, and its label.

    raw value  --moment_of-->  moment  --localizer-->  local moment  --name-->  label

A label is text that sorts in time order, for it is the sort key of an aggregate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from typing import ClassVar, TypeAlias

from framework.codec import AttributeValue, Image
from framework.errors import BadRecordError, BadValueError, DeclarationError, ReadError, shortened
from framework.moments import UTC_FORMS, ZEROS, Unit, epoch_of, localizer, moment_of, zone_of
from framework.paths import getter, parse, top_level

__all__ = ["AllTime", "Daily", "Hourly", "Labeller", "Monthly", "Unit", "Weekly", "Window", "Yearly"]

Labeller: TypeAlias = Callable[[Image], str]
_Namer: TypeAlias = Callable[[datetime], str]

_IN_WORDS: dict[Unit, str] = {"s": "seconds", "ms": "milliseconds"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_HOUR = timedelta(hours=1)
_LAST = timedelta(minutes=59, seconds=59)
_HOURS = tuple(f"T{hour:02}" for hour in range(24))
_EXAMPLE = datetime(2018, 1, 31, 5)
_MOST_DAYS = 4096  # eleven years of labels, about half a megabyte


@dataclass(frozen=True, slots=True)
class Window(ABC):
    """In which stretch of time an item counts.

    Attributes:
        attribute: The attribute, or the path to it, with the event's time; None if time does not matter. It
            holds text in a form of ISO-8601 (without an offset, it is what the clock of `tz` showed; a date
            alone is its first moment) or a number.
        tz: The IANA name of the zone whose calendar and clock count.
        unit: What a number in the attribute counts since 1970: seconds or milliseconds.
        form: The form of the labels: "hour", "day", "week", "month", "year" or "all".
    """

    attribute: str | None
    tz: str = field(default="UTC", kw_only=True)
    unit: Unit = field(default="s", kw_only=True)
    form: ClassVar[str]

    @abstractmethod
    def compile(self) -> Labeller:
        """Compile to a function from a raw image to its label.

        The function raises `BadRecordError` if the attribute is missing or does not hold a time.
        """

    @abstractmethod
    def label(self, moment: date | str) -> str:
        """The label of a window, for a read.

        Args:
            moment: A datetime (without a zone, what the clock of `tz` shows), a date, or a label, which is
                checked.

        Raises:
            ReadError: It is none of these, or a label that this window does not have.
        """

    @abstractmethod
    def end(self, label: str) -> int | None:
        """When a window is over, in epoch seconds: all its moments are before that; None if it never is.

        An hour that a clock cuts short is over after a whole one, and a day with the second of two midnights.

        Args:
            label: The window's label, as `compile` gives it.
        """

    def between(self, first: date | str, last: date | str) -> Iterator[str]:
        """The labels of all windows from one to another, both included, in the order of time.

        Raises:
            ReadError: As `label` does, or the last comes before the first.
        """
        begin, end = self.label(first), self.label(last)
        if end < begin:
            raise ReadError(f"{self!r}: expected a last window that is not before the first, {begin!r}, came {end!r}")
        # Labels sort in the order of time.
        return takewhile(lambda label: label <= end, _until_the_end(begin, self._from(begin)))

    @abstractmethod
    def _from(self, label: str) -> Iterator[str]:
        """The labels of a window and of those after it, each once, up to the end of time."""


def _until_the_end(begin: str, labels: Iterator[str]) -> Iterator[str]:
    yield begin
    with suppress(OverflowError):  # after the year 9999
        yield from (label for label in labels if label != begin)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class AllTime(Window):
    """All items count in one window, `"all"`."""

    form = "all"

    def __init__(self) -> None:
        Window.__init__(self, None)

    def compile(self) -> Labeller:
        """See `Window.compile`."""
        return lambda image: "all"

    def label(self, moment: date | str = "all") -> str:
        """See `Window.label`."""
        if isinstance(moment, date) or moment == "all":
            return "all"
        raise ReadError(f"{self!r}: expected a datetime, a date or the label 'all', came {shortened(moment)}")

    def end(self, label: str) -> None:
        """See `Window.end`."""

    def _from(self, label: str) -> Iterator[str]:
        yield label

    def __repr__(self) -> str:
        return "AllTime()"


@dataclass(frozen=True, slots=True)
class _Calendar(Window):
    """A window of a zone's calendar."""

    attribute: str
    rest: ClassVar[str]  # what makes the label of a window the ISO text of its first day or hour

    def __post_init__(self) -> None:
        kind = type(self).__name__
        try:
            parse(self.attribute)
        except DeclarationError as error:
            raise DeclarationError(f"{kind}: attribute: {error}") from None
        if self.unit not in ("s", "ms"):
            raise DeclarationError(
                f"{kind}({self.attribute!r}): unit: expected 's' or 'ms', came {shortened(self.unit)}"
            )
        try:
            zone_of(self.tz)
        # All that zoneinfo raises: for an unknown name, a path, a folder, a value that is not text.
        except (KeyError, ValueError, OSError, TypeError, AttributeError):
            raise DeclarationError(
                f"{kind}({self.attribute!r}): tz: expected a time zone such as 'Europe/Berlin', came "
                f"{shortened(self.tz)} (where the system has no time zone database, install tzdata)"
            ) from None

    @abstractmethod
    def _namer(self) -> _Namer:
        """A function from a local moment to its label."""

    def compile(self) -> Labeller:
        """See `Window.compile`."""
        get, label_of = getter(self.attribute), self._label_of()
        return lambda image: label_of(get(image))

    def _label_of(self) -> Callable[[AttributeValue | None], str]:
        """A function from the attribute's raw value to the label."""
        name, local, unit = self._namer(), localizer(zone_of(self.tz)), self.unit
        where = f"attribute {self.attribute!r}"

        def label_of(value: AttributeValue | None) -> str:
            if value is None:
                raise BadRecordError(f"{where} is missing")
            try:
                return name(local(moment_of(value, unit)))
            except OverflowError:
                hint = f" ({_out_of_range(value, unit)})"
            except (ValueError, AttributeError, BadValueError):
                hint = ""
            expected = f"expected ISO-8601 text or epoch {_IN_WORDS[unit]}"
            raise BadRecordError(f"{where}: {expected}, came {shortened(value)}{hint}")

        return label_of

    def label(self, moment: date | str) -> str:
        """See `Window.label`."""
        name, local = self._namer(), localizer(zone_of(self.tz))
        with suppress(ValueError, OverflowError, TypeError):
            if isinstance(moment, datetime):
                return name(local(moment))
            if isinstance(moment, date):
                return name(local(datetime(moment.year, moment.month, moment.day)))
            # A label is right if it is what the first moment of its window is called; or the last of an hour that
            # a clock put forward has cut short.
            start = self._start(moment)
            if moment in (name(local(start)), name(local(start + _LAST))):
                return moment
        expected = f"expected a datetime, a date or a label such as {name(local(_EXAMPLE))!r}"
        raise ReadError(f"{self!r}: {expected}, came {shortened(moment)}")

    def _start(self, label: str) -> datetime:
        """The first moment of the window with a label, by the local clock."""
        return datetime.fromisoformat(label + self.rest)


@dataclass(frozen=True, slots=True)
class _Days(_Calendar):
    """A window of whole days of the calendar."""

    digits: ClassVar[int] = 0  # of a day's ISO text that are its label; 0 where the label is no part of it
    most: ClassVar[int]  # days that it has

    @staticmethod
    @abstractmethod
    def _of(day: date) -> str:
        """The label of the window that a day lies in."""

    def _namer(self) -> _Namer:
        labels = _Labels(self._of)
        return lambda local: labels[local.date()]

    def end(self, label: str) -> int:
        """See `Window.end`."""
        zone = zone_of(self.tz)
        try:
            next_one = self._start(self._of(self._start(label).date() + timedelta(days=self.most)))
        except OverflowError:
            return epoch_of(datetime.max, UTC) + 1
        return max(epoch_of(next_one.replace(fold=fold), zone) for fold in (0, 1))

    def _from(self, label: str) -> Iterator[str]:
        name, local = self._namer(), localizer(zone_of(self.tz))
        with suppress(OverflowError):
            while True:
                start = self._start(label)
                # Not a day that a zone skipped when it changed sides of the date line.
                if name(local(start)) == label:
                    yield label
                label = self._of(start.date() + timedelta(days=self.most))

    def compile(self) -> Labeller:
        """See `Window.compile`."""
        name = top_level(self.attribute)
        if self.tz != "UTC" or name is None:
            return _Calendar.compile(self)
        # The hot path of the product: text in UTC, at the top of the item. No call in Python is made for it.
        label_of, labels, digits = self._label_of(), _Labels(self._of), self.digits
        forms, zeros, parsed, utc = UTC_FORMS, ZEROS, datetime.fromisoformat, UTC

        def label(image: Image) -> str:
            try:
                text: str = image[name]["S"]
                if text.encode().translate(zeros) in forms:
                    moment = parsed(text)
                    zone = moment.tzinfo
                    if zone is None or zone is utc:
                        return text[:digits] if digits else labels[moment.date()]
            except (KeyError, AttributeError, ValueError):
                pass  # what is wrong with it, the careful way says
            return label_of(image.get(name))

        return label


class Hourly(_Calendar):
    """Hours of a zone's clock, `"2018-01-31T05"`.

    When the clock is put back, hours go on being counted under the name of the one that it had reached: in
    Berlin the hour from 2 to 3 comes twice on 2018-10-28, as `"2018-10-28T02"` and then as `"2018-10-28T02B"`
    (as German law tells 2A and 2B apart), and `"2018-10-28T03"` follows. So no two hours share a label and
    labels sort in time order in every zone, be it put back by half an hour (Lord Howe) or two (Troll: `T02`,
    `T02B`, `T02C`, `T03`). An offset in the label would not do: "+01:00" comes after "+02:00" but sorts
    before it.
    """

    __slots__ = ()
    form = "hour"
    rest = ""

    def _namer(self) -> _Namer:
        zone, days = zone_of(self.tz), _Labels(date.isoformat)

        def plain(hour: datetime) -> str:
            return days[hour.date()] + _HOURS[hour.hour]

        def name(local: datetime) -> str:
            # Reached first, since fold is 0, and as local time has it.
            hour = datetime(local.year, local.month, local.day, local.hour, tzinfo=zone)
            if not local.fold and hour.utcoffset() == local.utcoffset():
                return plain(local)
            moment = local.astimezone(UTC)
            while (hour + _HOUR).astimezone(UTC) <= moment:
                hour += _HOUR
            again = (moment - hour.astimezone(UTC)) // _HOUR
            return plain(hour) + (chr(ord("A") + again) if again > 0 else "")

        return plain if zone is UTC else name

    def end(self, label: str) -> int:
        """See `Window.end`."""
        return epoch_of(self._start(label), zone_of(self.tz)) + 3600

    def _from(self, label: str) -> Iterator[str]:
        name, local = self._namer(), localizer(zone_of(self.tz))
        moment = _EPOCH + epoch_of(self._start(label), zone_of(self.tz)) * _SECOND

        def is_later(seconds: int) -> bool:
            return name(local(moment + seconds * _SECOND)) > label

        with suppress(OverflowError):
            while True:
                label = name(local(moment))
                yield label
                # No hour is longer than one; where a clock was changed it may be shorter, by seconds as well.
                seconds = 3600 if not is_later(3599) else 1 + bisect_left(range(1, 3600), True, key=is_later)
                moment += seconds * _SECOND

    def _start(self, label: str) -> datetime:
        hour = datetime.fromisoformat(label[:13])
        if len(label) != 14:
            return hour
        return hour.replace(tzinfo=zone_of(self.tz)).astimezone(UTC) + (ord(label[13]) - ord("A")) * _HOUR


class Daily(_Days):
    """Days of a zone's calendar, `"2018-01-31"`."""

    __slots__ = ()
    form = "day"
    most = 1
    rest = ""
    digits = 10

    @staticmethod
    def _of(day: date) -> str:
        return day.isoformat()


class Weekly(_Days):
    """ISO weeks, Monday to Sunday, `"2018-W05"`: the year is the one that the week's Thursday lies in."""

    __slots__ = ()
    form = "week"
    most = 7
    rest = "-1"

    @staticmethod
    def _of(day: date) -> str:
        year, week, _ = day.isocalendar()
        return f"{year:04}-W{week:02}"


class Monthly(_Days):
    """Months of a zone's calendar, `"2018-01"`."""

    __slots__ = ()
    form = "month"
    most = 31
    rest = "-01"
    digits = 7

    @staticmethod
    def _of(day: date) -> str:
        return day.isoformat()[:7]


class Yearly(_Days):
    """Years of a zone's calendar, `"2018"`."""

    __slots__ = ()
    form = "year"
    most = 366
    rest = "-01-01"
    digits = 4

    @staticmethod
    def _of(day: date) -> str:
        return day.isoformat()[:4]


class _Labels(dict[date, str]):
    """The label of each day seen: finding one takes a quarter of the time of making it."""

    __slots__ = ("_of",)

    def __init__(self, of: Callable[[date], str]) -> None:
        self._of = of

    def __missing__(self, day: date) -> str:
        if len(self) >= _MOST_DAYS:
            self.clear()
        label = self[day] = self._of(day)
        return label


def _out_of_range(value: AttributeValue, unit: Unit) -> str:
    """What to say of a time outside the years 1 to 9999."""
    if unit == "s" and "N" in value:
        with suppress(OverflowError):
            moment_of(value, "ms")
            return "looks like milliseconds: unit='ms'?"
    return "outside the years 1 to 9999"
