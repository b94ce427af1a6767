"""`streamfold demo`: real flights and the music library, counted exactly once and recounted."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

from framework.app import load_app
from framework.cli import show
from framework.cli.local import aggregate_items, drained
from framework.demo import flights
from framework.errors import ConfigurationError
from framework.local import Local

__all__ = ["add_to", "differences", "fold_flights"]

# The largest batch that Lambda delivers: the larger, the fewer writes.
_BATCH = 10_000
_MOST_SHOWN = 10

Totals = dict[tuple[str, str], dict[str, Decimal]]


def add_to(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("demo", help="count real flights on an embedded DynamoDB, exactly once")
    parser.add_argument("--json", action="store_true", help="one line of JSON with what came out")
    parser.set_defaults(run=run)


def run(options: Any) -> int:
    """Run the subcommand; 1 if a recount differs."""
    summary = fold_flights(flights.DATA, quiet=options.json)
    summary["music"] = _music(quiet=options.json)
    if options.json:
        print(json.dumps(summary))
    return 0 if summary["equal"] and summary["music"] != "wrong" else 1


def differences(found: Totals, expected: Totals) -> list[str]:
    """Every aggregate that is not as expected, as a line for people."""
    keys = sorted(found.keys() | expected.keys())
    return [
        f"{key}: expected {expected.get(key)}, came {found.get(key)}"
        for key in keys
        if found.get(key) != expected.get(key)
    ]


def fold_flights(path: Path, *, quiet: bool) -> dict[str, Any]:
    """Count a file of flights and recount it; returns what it took and whether both are equal."""
    with Local(flights.app, files={"Flights": path}, batch_size=_BATCH) as local:
        done = drained(local)
        found: Totals = {
            (item["route"]["S"], item["period"]["S"]): {
                name: Decimal(value["N"]) for name, value in item.items() if "N" in value
            }
            for item in aggregate_items(flights.app, local.client)
        }
        wrong = differences(found, flights.recount(path))
        if not quiet:
            top = flights.MonthlyFlights.top("2013-01", _MOST_SHOWN, client=local.client)
            show.chart("Flights of January 2013 by carrier and destination", top, "Flights")
            print(f"{done.records:,} records folded into {len(found):,} aggregates: "
                  f"{done.requests:,} requests, {done.wcu:,} write units")  # fmt: skip
            for line in wrong[:_MOST_SHOWN]:
                print(f"different: {line}")
            verdict = "all equal" if not wrong else f"{len(wrong):,} different"
            print(f"recounted from the source: {len(found):,} aggregates, {verdict}")
    return {
        "records": done.records,
        "aggregates": len(found),
        "requests": done.requests,
        "wcu": done.wcu,
        "equal": not wrong and done.records > 0,
    }


def _music(*, quiet: bool) -> str:
    """The music library on a live table: puts, an edit, a delete, and what the index then says."""
    try:
        app = load_app("handlers.app:app")
    except ConfigurationError:
        if not quiet:
            print("the music library lies in handlers/ of a checkout: run the demo there to see it")
        return "not here"
    songs = app.aggregation("monthly-downloads")
    with Local(app) as local:
        for song in range(1, 8):
            for number in range(song + 2):
                _download(local, song, number, "2018-01-15T10:00:00Z")
        local.drain()
        before = {one.group: one["DownloadCount"] for one in songs.all("2018-01", client=local.client)}
        _download(local, 7, 0, "2018-02-01T00:00:00Z")
        local.client.delete_item(TableName="MusicLibrary", Key={"songID": {"S": "song-2"}, "SK": {"S": "download-0"}})
        local.drain()
        after = {one.group: one["DownloadCount"] for one in songs.all("2018-01", client=local.client)}
        table = local.client.scan(TableName="MusicLibrary")["Items"]
        expected = Counter(
            item["songID"]["S"]
            for item in table
            if item["SK"]["S"].startswith("download-") and item["Timestamp"]["S"].startswith("2018-01")
        )
        if not quiet:
            top = songs.top("2018-01", _MOST_SHOWN, client=local.client)
            show.chart("Downloads of January 2018 by song", top, "DownloadCount")
            print(
                f"an edit moved one of song-7 to February: {before['song-7']}, then {after['song-7']}; "
                f"one of song-2 was deleted: {before['song-2']}, then {after['song-2']}"
            )
            verdict = "all equal" if after == expected else f"different: {after}"
            print(f"recounted from the table: {len(expected)} songs, {verdict}")
    return "equal" if after == expected else "wrong"


def _download(local: Local, song: int, number: int, at: str) -> None:
    item = {"songID": f"song-{song}", "SK": f"download-{number}", "Timestamp": at}
    local.client.put_item(TableName="MusicLibrary", Item={name: {"S": value} for name, value in item.items()})
