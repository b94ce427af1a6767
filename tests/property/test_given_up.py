"""Batches that Lambda gave up on in the middle, with the lane gone on: redrive counts each record once or asks."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from botocore.exceptions import ClientError

from framework import ledger
from framework.failures import failure_of
from tests.unit.stream import event
from tests.unit.test_quarantine import Weights, consumer, heavy, tables
from tests.unit.test_redrive import at, failed, quarantine

SONGS = "abc"


class Faulty:
    """A client whose calls fail at a rate: refused, or done with the reply lost."""

    def __init__(self, engine: Any, random: Random, rate: float) -> None:
        self.engine, self.random, self.rate = engine, random, rate

    def __getattr__(self, operation: str) -> Any:
        def call(**arguments: Any) -> Any:
            fails = self.random.random() < self.rate
            if fails and self.random.random() < 0.5:
                raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, operation)
            answer = getattr(self.engine, operation)(**arguments)
            if fails:
                raise Stopped
            return answer

        return call


class Stopped(BaseException):
    """The process is gone."""


def deliver(client: Any, records: list[dict[str, Any]], delivery: str) -> None:
    try:
        consumer(client, delivery=delivery)(event(*records))
    except (Stopped, Exception):
        pass  # the batch would come again


def counted(engine: Any) -> str:
    """For each record, from the last to the first, how often it is in the sums: weights are powers of ten."""
    found = (Weights.get(song, "all", client=engine) for song in SONGS)
    return f"{sum(int(one['Weight']) for one in found if one is not None):012d}"


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
@pytest.mark.parametrize("chunk", range(4))
def test_each_record_is_counted_once_or_left_to_a_person(
    delivery: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_MOST_ACTIONS", 5)  # so that a batch takes several transactions
    asked = settled = 0
    for seed in range(chunk * 60, chunk * 60 + 60):
        random = Random(seed)
        engine = tables()
        records = [at(n + 1, new=heavy(random.choice(SONGS), str(10**n))) for n in range(12)]
        first, last = sorted(random.sample(range(1, 12), 2))
        consumer(engine, delivery=delivery)(event(*records[:first]))
        for _ in range(random.randrange(4)):  # tries of the batch that is given up on, each from the same record
            deliver(Faulty(engine, random, 0.3), records[first:last], delivery)
        if random.random() < 0.7:
            consumer(engine, delivery=delivery)(event(*records[last:]))
        there = quarantine(engine)
        failure = failure_of("f", failed(*records[first:last]))
        for _ in range(30):
            try:
                done = quarantine(Faulty(engine, random, 0.2)).redrive_batch(failure, None).done
            except Stopped:
                continue
            if done:
                break
        assert there.redrive_batch(failure, None).done, seed
        consumer(engine, delivery=delivery)(event(*records))  # a late duplicate of everything
        digits = counted(engine)[::-1]
        open_entries = list(there.open(handler="weights"))
        uncertain = {int(item["sequence"]["S"]) - 1 for item in open_entries}
        assert all("uncertain" in item for item in open_entries)
        assert [digits[n] for n in range(12) if n not in uncertain] == ["1"] * (12 - len(uncertain)), seed
        assert {digits[n] for n in uncertain} <= {"0", "1"}, seed
        for item in open_entries:
            place = item["sk"]["S"]
            if digits[int(item["sequence"]["S"]) - 1] == "1":
                assert there.discard(place)
            else:
                assert there.redrive(item, uncertain=True).done
        assert counted(engine) == "1" * 12, seed
        asked += len(uncertain)
        settled += 12 - len(uncertain)
    assert settled > asked
    assert (asked > 0) is (delivery == "lanes")
