"""Whatever Lambda, DynamoDB and S3 do, every archive holds each item that expired once; a planted fault is found."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from framework import App, archive_fold, deliver_archive
from framework.aside import Aside
from framework.consumer import Consumer
from framework.deliver_archive import ArchiveDelivery
from framework.local.settings import Settings
from framework.testing import Faults, Simulation, assert_exactly_once, delete, expire, put
from handlers.expired_sessions import ExpiredSessions
from tests.simulation.archives import ARCHIVES, history_of

CHUNK = 500
HISTORIES = 2_500 if os.environ.get("CI") else 500
SEEDS = range(1200)


def session(number: int = 0, **more: Any) -> dict[str, Any]:
    return {"user": "ann", "id": f"session-{number}", "kind": "web", "began": "2018-01-31", "expires": 1, **more}


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_every_item_that_expires_is_archived_once(first: int) -> None:
    for place, app in enumerate(ARCHIVES):
        seeds = [seed for seed in range(first, first + CHUNK) if seed % len(ARCHIVES) == place]
        assert_exactly_once(app, history_of(app), seeds=seeds)


# What brings several writers to one place: late writes, and batches that are cut otherwise when they come again.
ROUGH = Faults(
    late=0.15,
    second_poller=0.3,
    deploy=0.25,
    duplicate=0.4,
    restart=0.1,
    throttle=0.02,
    lost_reply=0.02,
    slow=0.01,
    timeout=0.01,
    conflict=0,
    denied=0,
    internal_error=0,
)


def found() -> int | None:
    """The first seed whose run is wrong, or does not end."""
    for seed in SEEDS:
        app = ARCHIVES[1 + 2 * (seed % 2)]
        history = history_of(app, least=10, most=24)(Random(seed))
        try:
            if Simulation(app, seed=seed, faults=ROUGH, shards=1).run(history).wrong:
                return seed
        except AssertionError:
            return seed
    return None


def with_objects_overwritten(patch: pytest.MonkeyPatch) -> None:
    call = ArchiveDelivery._object

    def careless(self: Any, outcome: Any, terms: Any, operation: str, arguments: dict[str, Any]) -> Any:
        return call(self, outcome, terms, operation, {k: v for k, v in arguments.items() if k != "IfNoneMatch"})

    patch.setattr(ArchiveDelivery, "_object", careless)


def with_names_of_the_batch(patch: pytest.MonkeyPatch) -> None:
    """An object is named by what a batch begins with, instead of by where the lane stands."""
    put = ArchiveDelivery._put

    def careless(self: Any, name: str, lines: Any, first: Any, *others: Any) -> Any:
        start = name[: name.rindex("-")]
        return put(self, f"{start}-{first}.json.gz", lines, first, *others)

    patch.setattr(ArchiveDelivery, "_put", careless)


def with_the_lane_moved_before_the_objects(patch: pytest.MonkeyPatch) -> None:
    file = ArchiveDelivery._file

    def careless(self: Any, job: Any, lane: Any, left: Any, outcome: Any, terms: Any) -> Any:
        early = deliver_archive.committing(replace(lane, done=job.last), self._expires)
        if not self._update(job, early, outcome, terms):
            return None
        return file(self, job, replace(lane, number=lane.number + 1), left, outcome, terms)

    patch.setattr(ArchiveDelivery, "_file", careless)


def without_condition(operation: str) -> Callable[[pytest.MonkeyPatch], None]:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        made = getattr(deliver_archive, operation)

        def bare(*arguments: Any) -> dict[str, Any]:
            request = made(*arguments)
            del request["ConditionExpression"]
            request["ExpressionAttributeValues"].pop(":seen", None)
            return dict(request)

        patch.setattr(deliver_archive, operation, bare)

    mutate.__name__ = f"without_the_condition_of_{operation}"
    return mutate


def with_the_claims_of_others_forgotten(patch: pytest.MonkeyPatch) -> None:
    lane = ArchiveDelivery._lane
    patch.setattr(
        ArchiveDelivery, "_lane", lambda self, *arguments: replace(lane(self, *arguments), claimed=frozenset())
    )


def with_what_others_put_taken_for_ours(patch: pytest.MonkeyPatch) -> None:
    put = ArchiveDelivery._put

    def careless(self: Any, *arguments: Any) -> bool:
        put(self, *arguments)
        return True

    patch.setattr(ArchiveDelivery, "_put", careless)


def with_what_is_ahead_forgotten(patch: pytest.MonkeyPatch) -> None:
    made = deliver_archive.committing
    patch.setattr(deliver_archive, "committing", lambda lane, expires: made(replace(lane, ahead={}), expires))
    lane = ArchiveDelivery._lane
    patch.setattr(ArchiveDelivery, "_lane", lambda self, *arguments: replace(lane(self, *arguments), ahead={}))


def with_failures_passed_over(patch: pytest.MonkeyPatch) -> None:
    apply = ArchiveDelivery._apply

    def careless(self: Any, job: Any, outcome: Any, terms: Any) -> None:
        try:
            apply(self, job, outcome, terms)
        finally:
            outcome.failed_from = None

    patch.setattr(ArchiveDelivery, "_apply", careless)


def with_every_delete_taken_for_expiry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(archive_fold, "is_expiry", lambda *_: True)
    patch.setattr(Settings, "passes", lambda settings, record: True)


def with_aggregates_archived(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(archive_fold, "MARK", "never")
    patch.setattr(archive_fold, "is_expiry", lambda *_: False)
    patch.setattr(Settings, "passes", lambda settings, record: record["eventName"] == "REMOVE" or True)


def with_bad_records_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Left out of the quarantine, and of the archive: nobody has them."""
    patch.setattr(Aside, "_around", lambda self, folded, fold, owned: fold)


def with_filters_too_narrow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Settings, "passes", lambda settings, record: "userIdentity" in record)


def with_the_clock_s_day(patch: pytest.MonkeyPatch) -> None:
    """The day on which a record is folded, instead of the one on which it was made."""
    days = iter(range(10**9))
    patch.setattr(archive_fold, "_day", lambda record: f"day-{next(days)}")


def with_one_handler_s_objects_alone(patch: pytest.MonkeyPatch) -> None:
    jobs = Consumer._jobs
    patch.setattr(Consumer, "_jobs", lambda self, batch, folded, keeper: jobs(self, batch, folded, keeper)[:1])


MUTATIONS = [
    with_objects_overwritten,
    with_names_of_the_batch,
    with_the_lane_moved_before_the_objects,
    without_condition("claiming"),
    without_condition("committing"),
    with_the_claims_of_others_forgotten,
    with_what_others_put_taken_for_ours,
    with_what_is_ahead_forgotten,
    with_failures_passed_over,
    with_every_delete_taken_for_expiry,
    with_filters_too_narrow,
    with_the_clock_s_day,
    with_one_handler_s_objects_alone,
]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_a_planted_fault_is_found(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert found() is not None


def test_without_one_nothing_is_found() -> None:
    assert found() is None


def test_the_example_archives_each_session_once_and_without_its_token() -> None:
    source = ExpiredSessions.source
    items = [
        {"UserId": "ann", "SessionId": str(n), "BeganAt": f"2018-0{n}-15", "ExpiresAt": n, "Token": "secret"}
        for n in range(1, 5)
    ]
    history = [*(put(source, each) for each in items), *(expire(source, each) for each in items[:3])]
    app = App("example", [ExpiredSessions])
    assert_exactly_once(app, [*history, delete(source, items[3])])
    simulation = Simulation(app, seed=1, faults=Faults.none())
    assert simulation.run(history).archived == 3
    assert sorted(name.split("/")[1] for name in simulation.objects.objects) == [f"month=2018-0{n}" for n in (1, 2, 3)]
    assert not any(b"Token" in gzip.decompress(content) for content in simulation.objects.objects.values())
