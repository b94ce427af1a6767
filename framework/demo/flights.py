"""The flights that left New York City in January 2013, per carrier and destination, by month and by day.

`recount` counts the same from the file with nothing of ours: the demo compares the two.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from framework import Aggregation, App, Average, Count, Daily, Index, Max, Min, Monthly, Sum, Table, attr

__all__ = ["DATA", "DailyFlights", "MonthlyFlights", "app", "recount"]

DATA = Path(__file__).with_name("flights-2013.csv.gz")

flights = Table("Flights", pk="flightID", sk="departure")
totals = Table("FlightTotals", pk="route", sk="period")


class _Flights(Aggregation, abstract=True):
    """Flights that arrived, with sums and extremes of their delay in minutes and distance in miles."""

    source = flights
    target = totals
    where = attr("arr_delay").exists()
    group_by = ("carrier", "dest")
    changes = "inserts"
    Flights = Count()
    Delay = Average("arr_delay")
    WorstDelay = Max("arr_delay")
    BestDelay = Min("arr_delay")
    Distance = Sum("distance")
    Longest = Max("distance")
    Shortest = Min("distance")


class MonthlyFlights(_Flights):
    """By month, ranked by the number of flights."""

    name = "monthly-flights"
    window = Monthly("departure")
    index = Index("FlightsByMonth", pk="month", sk="Flights")


class DailyFlights(_Flights):
    """By day."""

    name = "daily-flights"
    window = Daily("departure")


app = App("flights", [MonthlyFlights, DailyFlights])

Totals = dict[str, Decimal]


def recount(path: Path = DATA) -> dict[tuple[str, str], Totals]:
    """Every aggregate by its key, from the file alone: no window, fold or number of the framework takes part."""
    found: dict[tuple[str, str], Totals] = {}
    for carrier, dest, departure, delay, distance in _rows(path):
        for period in (departure[:7], departure[:10]):
            key = (f"{carrier}#{dest}", period)
            new = {
                "Flights": Decimal(1),
                "DelaySum": delay,
                "DelayCount": Decimal(1),
                "WorstDelay": delay,
                "BestDelay": delay,
                "Distance": distance,
                "Longest": distance,
                "Shortest": distance,
            }
            old = found.get(key)
            if old is not None:
                for name in ("Flights", "DelaySum", "DelayCount", "Distance"):
                    new[name] += old[name]
                for name in ("WorstDelay", "Longest"):
                    new[name] = max(new[name], old[name])
                for name in ("BestDelay", "Shortest"):
                    new[name] = min(new[name], old[name])
            found[key] = new
    return found


def _rows(path: Path) -> Iterator[tuple[str, str, str, Decimal, Decimal]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if row["arr_delay"]:
                yield (
                    row["carrier"],
                    row["dest"],
                    row["departure"],
                    Decimal(row["arr_delay"]),
                    Decimal(row["distance"]),
                )
