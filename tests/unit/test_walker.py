"""The walker reads every item, keeps to its rate, waits where it is throttled, and can be taken up again."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from framework import ConfigurationError
from framework.local.clock import Clock
from framework.local.memory import MemoryDynamoDB
from framework.walker import MOST_SEGMENTS, Pace, Places, Walker

KEY = {"pk": {"B": b"\x00\xff"}, "sk": {"N": "5"}}


def table(items: int) -> MemoryDynamoDB:
    engine = MemoryDynamoDB()
    engine.create_table(
        TableName="Table",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "B"},
            {"AttributeName": "sk", "AttributeType": "N"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    for n in range(items):
        engine.put_item(TableName="Table", Item={"pk": {"B": bytes([n % 7])}, "sk": {"N": str(n)}})
    return engine


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "Scan")


class Small:
    """A client with pages of few items, that fails as told: by turns, an error or None."""

    def __init__(self, engine: Any, page: int = 3, errors: Sequence[Exception | None] = ()) -> None:
        self._engine, self._page, self._errors = engine, page, list(errors)
        self.limits: list[int] = []
        self.reads: Counter[bool] = Counter()
        self._lock = threading.Lock()

    def scan(self, **request: Any) -> Any:
        with self._lock:
            error = self._errors.pop(0) if self._errors else None
            self.reads[request["ConsistentRead"]] += 1
        if error is not None:
            raise error
        self.limits.append(request.get("Limit", 0))
        return self._engine.scan(**{**request, "Limit": min(request.get("Limit", self._page), self._page)})

    def describe_table(self, **request: Any) -> Any:
        return self._engine.describe_table(**request)


class Visits:
    """What was given to be worked on, by item."""

    def __init__(self, most: int | None = None) -> None:
        self.seen: Counter[str] = Counter()
        self._most = most
        self._lock = threading.Lock()

    def __call__(self, items: Sequence[Any]) -> None:
        with self._lock:
            for item in items:
                if self._most is not None and self.seen.total() >= self._most:
                    raise RuntimeError("killed")
                self.seen[item["sk"]["N"]] += 1


@pytest.mark.parametrize("segments", [1, 4, MOST_SEGMENTS])
@pytest.mark.parametrize("items", [0, 1, 50])
def test_every_item_is_visited_once(items: int, segments: int) -> None:
    visits, progress = Visits(), list[tuple[int, int | None]]()
    walker = Walker(Small(table(items)), "Table", Places("look", segments))
    walker.walk(visits, lambda done, of: progress.append((done, of)))
    assert visits.seen == Counter(map(str, range(items)))
    assert max(progress) == (items, items or None)


@pytest.mark.parametrize("seed", range(20))
def test_a_walk_that_is_killed_anywhere_and_taken_up_again_skips_no_item(seed: int, tmp_path: Path) -> None:
    random, engine, path = Random(seed), table(40), tmp_path / "walk.json"
    seen: Counter[str] = Counter()
    runs = 0
    while True:
        visits = Visits(random.choice((1, 5, 9, 20, None)))
        places = Places("look", random.randint(1, 5), path)
        runs += 1
        try:
            Walker(Small(engine), "Table", places).walk(visits)
        except RuntimeError:
            seen += visits.seen
            continue
        seen += visits.seen
        break
    assert seen.keys() == set(map(str, range(40)))
    assert not path.exists()
    # Twice at most what a run had read of a page for each of its segments, and not done.
    assert seen.total() <= 40 + runs * 5 * 3


def test_places_outlive_the_process_with_keys_of_any_type(tmp_path: Path) -> None:
    path = tmp_path / "walk.json"
    places = Places("look", 3, path)
    assert places.done(0, KEY, 5) == 5
    assert places.done(2, None, 2) == 7
    again = Places("look", 9, path)
    assert (again.segments, again.items) == (3, 7)
    assert [again.start(n) for n in range(3)] == [(False, KEY), (False, None), (True, None)]
    assert [file.name for file in tmp_path.iterdir()] == ["walk.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected where a walk stands, came JSONDecodeError"),
        ("[]", "expected where a walk stands, came TypeError"),
        ('{"walk": "look", "segments": 0, "items": 0, "last": {}}', "expected where a walk stands, came ValueError"),
        ('{"walk": "look", "segments": 2, "items": 0, "last": {"2": null}}', "expected where a walk stands"),
        ('{"walk": "look", "segments": 2, "items": 0, "last": {"1": {"pk": {"B": "?"}}}}', "expected where a walk"),
        ('{"walk": "other", "segments": 2, "items": 0, "last": {}}', "expected a walk to 'look', came one to 'other'"),
    ],
)
def test_a_file_of_no_walk_or_of_another_one_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "walk.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        Places("look", 2, path)


@pytest.mark.parametrize("segments", [0, MOST_SEGMENTS + 1])
def test_a_number_of_segments_that_is_none_is_refused(segments: int) -> None:
    with pytest.raises(ConfigurationError, match="segments: expected 1 to 16"):
        Places("look", segments)


def test_where_it_is_throttled_it_slows_down_however_long_that_takes() -> None:
    clock, visits = Clock(0.0), Visits()
    errors = [refused("ProvisionedThroughputExceededException")] * 50 + [refused("InternalServerError")] * 5
    errors += [EndpointConnectionError(endpoint_url="x")] * 2
    client = Small(table(10), errors=errors)
    pauses: list[float] = []
    walker = Walker(
        client,
        "Table",
        Places("look", 1),
        clock=lambda: clock.now,
        sleep=lambda s: (pauses.append(s), clock.sleep(s))[0],
        jitter=lambda low, high: high,
    )
    walker.walk(visits)
    assert visits.seen.total() == 10
    assert pauses[:4] == [0.2, 0.4, 0.8, 1.6]
    assert max(pauses) == 20.0


@pytest.mark.parametrize(
    "error", [refused("AccessDeniedException"), refused("ResourceNotFoundException"), refused("ValidationException")]
)
def test_what_will_not_pass_stops_all_segments_and_the_file_tells_where(error: ClientError, tmp_path: Path) -> None:
    path, visits = tmp_path / "walk.json", Visits()
    client = Small(table(60), errors=[None] * 8 + [error])
    with pytest.raises(ClientError, match=error.response["Error"]["Code"]):
        Walker(client, "Table", Places("look", 4, path)).walk(visits)
    assert json.loads(path.read_text())["items"] <= visits.seen.total() < 60
    Walker(Small(table(60)), "Table", Places("look", 4, path)).walk(visits)
    assert visits.seen.keys() == set(map(str, range(60)))


@pytest.mark.parametrize("rate", [1.0, 10.0, 1000.0])
def test_reads_keep_to_the_rate(rate: float) -> None:
    clock, engine, visits = Clock(0.0), table(400), Visits()
    walker = Walker(
        Small(engine, page=100), "Table", Places("look", 1), rate=rate, clock=lambda: clock.now, sleep=clock.sleep
    )
    before = engine.rcu
    walker.walk(visits)
    assert visits.seen.total() == 400
    # A second's units are there at the beginning, and the last page is paid for by nobody.
    assert engine.rcu - before <= rate * (clock.now + 2) + 1


def test_a_page_at_a_rate_is_what_a_second_allows() -> None:
    clock, engine = Clock(0.0), table(0)
    for n in range(100):
        item = {"pk": {"B": b"x"}, "sk": {"N": str(n)}, "text": {"S": "x" * 8000}}
        engine.put_item(TableName="Table", Item=item)
    client = Small(engine, page=1000)
    Walker(client, "Table", Places("look", 1), rate=10, clock=lambda: clock.now, sleep=clock.sleep).walk(Visits())
    assert client.limits[:3] == [25, 5, 5]


def test_several_threads_share_a_pace() -> None:
    pace = Pace(1000.0)
    began = pace._clock()

    def work() -> None:
        for _ in range(50):
            pace.take(5)
            pace.spend(5, taken=5)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # 1,500 units: a thousand at once, and each thread one request that is paid for later.
    assert pace._clock() - began >= 0.4


@pytest.mark.parametrize("consistent", [True, False])
def test_reads_are_as_consistent_as_asked_for(consistent: bool) -> None:
    client = Small(table(3))
    Walker(client, "Table", Places("look", 1), consistent=consistent).walk(Visits())
    assert client.reads.keys() == {consistent}
