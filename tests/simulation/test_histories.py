"""Whatever Lambda and DynamoDB do, every aggregate counts every change once: 50,000 simulated histories in CI."""

from __future__ import annotations

import os

import pytest

from framework.testing import assert_exactly_once
from tests.simulation.apps import APPS, app_of, history_of

# A chunk takes some seconds, so that two processes end at about the same time.
CHUNK = 500
HISTORIES = 50_000 if os.environ.get("CI") else 2_500


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_every_aggregate_counts_every_change_exactly_once(first: int) -> None:
    for app in APPS:
        seeds = [seed for seed in range(first, first + CHUNK) if app_of(seed) is app]
        assert_exactly_once(app, history_of(app), seeds=seeds)
