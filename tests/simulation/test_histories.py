"""Whatever Lambda and DynamoDB do, every aggregate counts every change once: 50,000 simulated histories in CI."""

from __future__ import annotations

import os
from itertools import product

import pytest

from framework.testing import assert_exactly_once, delete, put
from handlers.app import app as example
from handlers.music_library import MonthlyDownloads
from tests.simulation.apps import APPS, app_of, delivery_of, history_of

# A chunk takes some seconds, so that two processes end at about the same time.
CHUNK = 500
HISTORIES = 50_000 if os.environ.get("CI") else 2_500


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_every_aggregate_counts_every_change_exactly_once(first: int) -> None:
    for app, delivery in product(APPS, ("lanes", "ledger")):
        seeds = [s for s in range(first, first + CHUNK) if app_of(s) is app and delivery_of(s) == delivery]
        assert_exactly_once(app, history_of(app), seeds=seeds, delivery=delivery)


def test_the_example_counts_every_download_exactly_once() -> None:
    music = MonthlyDownloads.source
    items = [
        {"songID": f"song-{n % 2}", "SK": f"download-{n}", "Timestamp": f"2018-0{n % 2 + 1}-15T10:00:00Z"}
        for n in range(6)
    ]
    assert_exactly_once(example, [*(put(music, item) for item in items), delete(music, items[0])])
