"""A simulation leaves cycles of some hundred objects behind; looking for them every thousand takes a fifth of its time."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def look_for_garbage_rarely() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(100_000, 20, 100)
    yield
    gc.set_threshold(*before)
