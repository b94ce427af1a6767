"""What each kind of change adds to which aggregate, as one table."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal as D
from typing import Any

import pytest

from framework import (
    Aggregation,
    AllTime,
    Average,
    BadRecordError,
    ConfigurationError,
    Count,
    EventError,
    Max,
    Monthly,
    Sum,
    Table,
    attr,
)
from framework.fold import Folded, compile_fold, compile_half
from handlers.music_library import MonthlyDownloads
from tests.unit.stream import EXPIRY, download, record

music = Table("MusicLibrary", pk="songID", sk="SK")
JAN, FEB = "2018-01-31T23:59:59Z", "2018-02-01T00:00:00Z"
upload = {**download(), "SK": {"S": "upload-1"}}
BAD = {**download(), "Timestamp": {"BOOL": True}}


class Sizes(Aggregation):
    """Sums and averages, several groups, expiry taken back."""

    name = "sizes"
    source = music
    group_by = ("songID", "meta.region")
    window = AllTime()
    on_expiry = "retract"
    Size = Sum("size")
    Mean = Average("meta.time")


class Largest(Aggregation):
    """Inserts only."""

    name = "largest"
    source = music
    where = attr("SK").begins_with("download-")
    group_by = "songID"
    window = Monthly("Timestamp")
    changes = "inserts"
    Largest = Max("size")


class Initials(Aggregation):
    """A group that attributes can't say."""

    name = "initials"
    source = music
    window = AllTime()
    Songs = Count()

    @staticmethod
    def group_by(item: dict[str, Any]) -> object:
        return item["initial"]


def fold(aggregation: type[Aggregation], *records: dict[str, Any]) -> Folded:
    folded, fold_record = compile_fold(aggregation._declaration)()
    for one in records:
        fold_record(one)
    return folded


def sized(size: str, region: str = "eu", time: str = "1", **more: Any) -> Any:
    return download(size={"N": size}, meta={"M": {"region": {"S": region}, "time": {"N": time}}}, **more)


@pytest.mark.parametrize(
    ("aggregation", "change", "buckets"),
    [
        # an insert adds
        (MonthlyDownloads, record(1, new=download()), {("a", "2018-01"): [("1", True, (1,))]}),
        (MonthlyDownloads, record(1, new=upload), {}),
        # a delete takes back
        (MonthlyDownloads, record(1, old=download()), {("a", "2018-01"): [("1", False, (-1,))]}),
        (MonthlyDownloads, record(1, old=upload), {}),
        # an edit moves
        (
            MonthlyDownloads,
            record(1, old=download(at=JAN), new=download(at=FEB)),
            {("a", "2018-01"): [("1", False, (-1,))], ("a", "2018-02"): [("1", True, (1,))]},
        ),
        # an edit into and out of the condition
        (MonthlyDownloads, record(1, old=upload, new=download()), {("a", "2018-01"): [("1", True, (1,))]}),
        (MonthlyDownloads, record(1, old=download(), new=upload), {("a", "2018-01"): [("1", False, (-1,))]}),
        # an unrelated edit does nothing
        (MonthlyDownloads, record(1, old=download(), new=download(note={"S": "x"})), {}),
        (MonthlyDownloads, record(1, old=download(at=FEB), new=download(at="2018-02-28")), {}),
        # expiry is kept, unless it is to be taken back
        (MonthlyDownloads, record(1, old=download(), userIdentity=EXPIRY), {}),
        (
            MonthlyDownloads,
            record(1, old=download(), userIdentity={"type": "User", "principalId": "x"}),
            {("a", "2018-01"): [("1", False, (-1,))]},
        ),
        (
            Sizes,
            record(1, old=sized("5"), userIdentity=EXPIRY),
            {("a#eu", "all"): [("1", False, (D(-5), D(-1), -1))]},
        ),
        # values: exact, also beyond 28 digits
        (Sizes, record(1, new=sized("5", time="0.5")), {("a#eu", "all"): [("1", True, (D(5), D("0.5"), 1))]}),
        (
            Sizes,
            record(1, old=sized("1E-30"), new=sized("1")),
            {("a#eu", "all"): [("1", False, (D("0." + "9" * 30), D(0), 0))]},
        ),
        (
            Sizes,
            record(1, old=sized("-12345678901234567890123456789012345678")),
            {("a#eu", "all"): [("1", False, (D("12345678901234567890123456789012345678"), D(-1), -1))]},
        ),
        (Sizes, record(1, old=sized("1"), new=sized("1.0")), {}),
        (
            Sizes,
            record(1, old=sized("1"), new=sized("2", region="us#1")),
            {
                ("a#eu", "all"): [("1", False, (D(-1), D(-1), -1))],
                ("a#us%231", "all"): [("1", True, (D(2), D(1), 1))],
            },
        ),
        # inserts only
        (Largest, record(1, new=sized("5")), {("a", "2018-01"): [("1", True, (D(5),))]}),
        (Largest, record(1, old=sized("5"), new=sized("7")), {}),
        (Largest, record(1, old=sized("5")), {}),
        # a method for the group
        (Initials, record(1, new=download(initial={"S": "A"})), {("A", "all"): [("1", True, (1,))]}),
        (Initials, record(1, new=download(initial={"N": "1.50"})), {("1.5", "all"): [("1", True, (1,))]}),
        (Initials, record(1, new=download(initial={"BOOL": True})), {("true", "all"): [("1", True, (1,))]}),
        (Initials, record(1, new=download(initial={"NULL": True})), {}),
    ],
)
def test_a_change_adds_what_its_new_image_counts_for_less_its_old_one(
    aggregation: type[Aggregation], change: dict[str, Any], buckets: dict[Any, Any]
) -> None:
    folded = fold(aggregation, change)
    assert dict(folded.buckets) == buckets
    assert folded.bad == []


class Worldwide(MonthlyDownloads):
    """Of a global table whose items expire."""

    name = "worldwide"
    source = Table("MusicLibrary", pk="songID", sk="SK", ttl="expires", home="us-east-1")


def at(created: object, change: dict[str, Any]) -> dict[str, Any]:
    change["dynamodb"]["ApproximateCreationDateTime"] = created
    return change


def expiring(ttl: Any, created: object = 1000, **more: Any) -> dict[str, Any]:
    change = record(1, old=download(**({} if ttl is None else {"expires": ttl})), **more)
    return change if created is None else at(created, change)


@pytest.mark.parametrize(
    ("change", "expired"),
    [
        # the Region that expired the item says so, whatever the item holds
        (expiring(None, None, userIdentity=EXPIRY), True),
        (expiring({"N": "2000"}, userIdentity=EXPIRY), True),
        # another one does not: the item's time was over when it was removed
        (expiring({"N": "1000"}), True),
        (expiring({"N": "1000"}, userIdentity=None), True),
        (expiring({"N": "999.5"}), True),
        (expiring({"N": "-1"}), True),
        (expiring({"N": "1000.5"}, 1000.5), True),
        (expiring({"N": "9.99E2"}, 1000.0), True),
        (expiring({"N": "1001"}), False),
        (expiring({"N": "1000.5"}), False),
        (expiring({"N": "1E125"}), False),
        (expiring({"N": "999"}, None), False),
        # a user or another service deleted it
        (expiring({"N": "999"}, userIdentity={"type": "User", "principalId": "x"}), False),
        (expiring({"N": "999"}, userIdentity={"type": "Service", "principalId": "replicator.amazonaws.com"}), False),
        # no time to live, or no time
        (expiring(None), False),
        (expiring({"S": "999"}), False),
        (expiring({"NULL": True}), False),
        (expiring({"N": "soon"}), False),
        (expiring({"N": 999}), False),
        (expiring({"N": []}), False),
        (expiring({"N": "999"}, "1000"), False),
        (expiring({"N": "999"}, True), False),
        (expiring({"N": "999"}, float("nan")), False),
        (expiring({"N": "999"}, float("inf")), False),
        (expiring({"N": "999"}, 10**400), False),
        (expiring({"N": "999"}, 1_700_000_000_000), False),
    ],
)
def test_an_expiry_in_another_region_is_told_by_the_items_time(change: dict[str, Any], expired: bool) -> None:
    folded = fold(Worldwide, change)
    assert folded.bad == []
    assert dict(folded.buckets) == ({} if expired else {("a", "2018-01"): [("1", False, (-1,))]})


@pytest.mark.parametrize(
    "source", [Table("MusicLibrary", pk="songID", sk="SK", ttl="expires"), replace(Worldwide.source, ttl=None)]
)
def test_elsewhere_a_plain_delete_of_an_item_whose_time_is_over_is_a_delete(source: Table) -> None:
    aggregation = type("One", (MonthlyDownloads,), {"name": "one", "source": source})
    assert sum(map(len, fold(aggregation, expiring({"N": "1"})).buckets.values())) == 1
    assert not fold(aggregation, expiring({"N": "1"}, userIdentity=EXPIRY)).buckets


def test_an_edit_or_an_expiry_to_be_taken_back_is_no_matter_of_the_items_time() -> None:
    edit = at(1000, record(1, old=download(expires={"N": "1"}), new=download(at=FEB)))
    assert len(fold(Worldwide, edit).buckets) == 2
    retracting = type("Retracting", (Worldwide,), {"name": "retracting", "on_expiry": "retract"})
    assert len(fold(retracting, expiring({"N": "1"})).buckets) == 1


class Retained(MonthlyDownloads):
    """Kept for a day after the month's end."""

    name = "retained"
    target = Table("Totals", pk="key", ttl="expires")
    retention = timedelta(days=1)


class SetAside(Retained):
    """Likewise, and what comes late is a bad record."""

    name = "set-aside"
    late = "set-aside"


OVER = 1_517_529_600  # 2018-02-02, for January
LATE_JANUARY = (
    "window '2018-01': expected a change before its retention of 1 day, 0:00:00 was over, came one 0 s after that"
)


@pytest.mark.parametrize("aggregation", [Retained, SetAside])
@pytest.mark.parametrize(
    ("change", "buckets", "late"),
    [
        # by the record's time, to the second; a record without one is not late
        (at(OVER - 1, record(1, new=download(at=JAN))), {("a", "2018-01"): [("1", True, (1,))]}, False),
        (at(OVER, record(1, new=download(at=JAN))), {}, True),
        (at(float(OVER), record(1, new=download(at=JAN))), {}, True),
        (record(1, new=download(at=JAN)), {("a", "2018-01"): [("1", True, (1,))]}, False),
        (at("2018-02-02", record(1, new=download(at=JAN))), {("a", "2018-01"): [("1", True, (1,))]}, False),
        # take-backs alike
        (at(OVER - 1, record(1, old=download(at=JAN))), {("a", "2018-01"): [("1", False, (-1,))]}, False),
        (at(OVER, record(1, old=download(at=JAN))), {}, True),
        # image by image
        (at(OVER, record(1, old=download(at=JAN), new=download(at=FEB))), {("a", "2018-02"): [("1", True, (1,))]}, True),
        (at(OVER, record(1, old=download(at=FEB), new=download(at=JAN))), {("a", "2018-02"): [("1", False, (-1,))]}, True),
        (at(OVER, record(1, old=download(at=FEB), new=download("b", at=FEB))), {("a", "2018-02"): [("1", False, (-1,))], ("b", "2018-02"): [("1", True, (1,))]}, False),
        # what adds nothing is not late
        (at(OVER, record(1, old=download(at=JAN), new=download(at=JAN, note={"S": "x"}))), {}, False),
        (at(OVER, record(1, new=upload)), {}, False),
        (at(OVER, record(1, old=download(at=JAN), userIdentity=EXPIRY)), {}, False),
        (at(OVER, record(1, new=download(at=JAN, **{"sf~": {"S": "x"}}))), {}, False),
    ],
)  # fmt: skip
def test_what_is_late_for_its_aggregate_adds_nothing(
    aggregation: type[Aggregation], change: dict[str, Any], buckets: dict[Any, Any], late: bool
) -> None:
    folded = fold(aggregation, change)
    assert dict(folded.buckets) == buckets
    if aggregation is Retained:
        assert (folded.late, folded.bad) == (int(late), [])
    else:
        assert (folded.late, [bad.reason for bad in folded.bad]) == (int(late), [LATE_JANUARY] * late)


def test_a_record_that_is_late_for_two_aggregates_or_bad_besides_is_one_record() -> None:
    twice = at(OVER, record(1, old=download(at=JAN), new=download("b", at=JAN)))
    assert fold(Retained, twice).late == 1
    (bad,) = fold(SetAside, twice).bad
    assert bad.reason == f"{LATE_JANUARY}; {LATE_JANUARY}"
    mixed = at(OVER, record(2, old=download(at=JAN), new=BAD))
    before = at(OVER, record(1, new=BAD))
    first, second = fold(SetAside, before, mixed).bad
    assert (first.sequence_number, second.sequence_number) == ("1", "2")
    assert second.reason.startswith("attribute 'Timestamp': expected")
    assert second.reason.count("Timestamp") == 1
    assert second.reason.endswith(f"; {LATE_JANUARY}")
    assert (second.handler, second.key) == ("set-aside", "songID='a', SK='download-1'")


@pytest.mark.parametrize(
    ("change", "images"),
    [
        (record(1, new=download(at=JAN)), ("NewImage",)),
        (record(1, old=download(at=JAN)), ("OldImage",)),
        (record(1, old=download(at=JAN), new=download(at=FEB)), ("OldImage",)),
        (record(1, old=download(at=FEB), new=download(at=JAN)), ("NewImage",)),
        (record(1, old=download(at=JAN), new=upload), ("OldImage",)),
        (record(1, old=download(at=JAN), new=download("b", at=JAN)), ("NewImage", "OldImage")),
        (record(1, old=download(at=JAN), new=BAD), ("NewImage", "OldImage")),
    ],
)
def test_a_late_record_is_set_aside_for_the_images_that_are_and_each_is_late_by_itself(
    change: dict[str, Any], images: tuple[str, ...]
) -> None:
    change = at(OVER, change)
    (bad,) = fold(SetAside, change).bad
    assert bad.images == images
    aside, ignoring = (compile_half(one._declaration) for one in (SetAside, Retained))
    for image in images:
        if change["dynamodb"][image] is not BAD:
            with pytest.raises(BadRecordError, match="window '2018-01': expected a change before its retention"):
                aside(change, image)
            assert ignoring(change, image) is None
    assert aside(at(OVER - 1, record(1, new=download(at=JAN))), "NewImage") is not None


def test_an_image_by_itself_is_that_of_an_expiry_by_the_same_rule() -> None:
    half = compile_half(Worldwide._declaration)
    assert half(expiring({"N": "1000"}), "OldImage") is None
    assert half(expiring({"N": "1001"}), "OldImage") is not None


def test_with_inserts_only_nothing_else_is_late() -> None:
    inserts = type("Inserts", (Retained,), {"name": "inserts", "changes": "inserts"})
    edit = at(OVER, record(1, old=download(at=JAN), new=download("b", at=JAN)))
    assert fold(inserts, edit, at(OVER, record(2, old=download(at=JAN)))).late == 0
    assert fold(inserts, {"eventName": "MODIFY"}).late == 0, "nothing in it is looked at"
    assert fold(inserts, at(OVER, record(3, new=download(at=JAN)))).late == 1


@pytest.mark.parametrize(
    ("aggregation", "change", "reason"),
    [
        (MonthlyDownloads, record(7, new={k: v for k, v in download().items() if k != "Timestamp"}), "attribute 'Timestamp' is missing"),
        (MonthlyDownloads, record(7, new=download(at="2018-02-30")), "attribute 'Timestamp': expected ISO-8601 text or epoch seconds, came {'S': '2018-02-30'}"),
        (MonthlyDownloads, record(7, new=download(song="")), "group: expected text of 1 byte or more, came ''"),
        (MonthlyDownloads, record(7, new=download(song="ü" * 1025)), "group: expected at most 2048 bytes, came 2050"),
        (MonthlyDownloads, record(7, new={**download(), "songID": {"L": []}}), "attribute 'songID': expected text, a number or a boolean, came {'L': []}"),
        (Sizes, record(7, new=download()), "attribute 'meta.region' is missing"),
        (Sizes, record(7, new={**sized("1"), "size": {"S": "1"}}), "attribute 'size': expected a number, came {'S': '1'}"),
        (Sizes, record(7, new={k: v for k, v in sized("1").items() if k != "size"}), "attribute 'size' is missing"),
        (Initials, record(7, new=download()), "group_by: expected a group, came KeyError: 'initial'"),
        (Initials, record(7, new=download(initial={"L": []})), "group: expected text, a number or a boolean, came []"),
    ],
)  # fmt: skip
def test_a_record_that_cannot_count_is_named_with_its_reason_and_nothing_of_it_counts(
    aggregation: type[Aggregation], change: dict[str, Any], reason: str
) -> None:
    folded = fold(aggregation, change, record(8, new=sized("1", initial={"S": "A"})))
    assert sum(map(len, folded.buckets.values())) == 1, "the batch goes on"
    (bad,) = folded.bad
    assert (bad.handler, bad.sequence_number) == (aggregation.name, "7")
    assert bad.key.startswith("songID=")
    assert reason in bad.reason


@pytest.mark.parametrize(
    ("change", "opens", "added", "reason"),
    [
        (record(7, old=download(), new=BAD), False, -1, "attribute 'Timestamp': expected"),
        (record(7, old=BAD, new=download()), True, 1, "old image: attribute 'Timestamp': expected"),
        (record(7, old=BAD), None, 0, "old image: attribute 'Timestamp': expected"),
        (record(7, old=BAD, new={**BAD, "note": {"S": "x"}}), None, 0, "old image: attribute 'Timestamp': expected"),
    ],
)
def test_an_image_that_cannot_count_counts_for_nothing_and_the_other_one_counts(
    change: dict[str, Any], opens: bool | None, added: int, reason: str
) -> None:
    folded = fold(MonthlyDownloads, change)
    contributions = [] if opens is None else [("7", opens, (added,))]
    assert [one for bucket in folded.buckets.values() for one in bucket] == contributions
    (bad,) = folded.bad
    assert bad.reason.startswith(reason)


def test_own_writes_never_count_even_where_the_condition_lets_them_through() -> None:
    own = {**download(), "DownloadCount": {"N": "5"}, "sf~": {"S": "anything"}}
    lookalike = {**download(), "DownloadCount": {"N": "5"}}
    assert not fold(MonthlyDownloads, record(1, new=own), record(2, old=own)).buckets
    assert len(fold(MonthlyDownloads, record(1, new=lookalike)).buckets) == 1


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"NewImage": None}, ConfigurationError, "NewImage: expected in a INSERT record, came none: the stream needs the view type NEW_AND_OLD_IMAGES"),
        ({"NewImage": "text"}, EventError, r"Records\[0\]: NewImage: expected an item, came 'text'"),
        ({"NewImage": {"SK": "download-1"}}, EventError, r"Records\[0\]: NewImage: .*'SK'"),
        ({"SequenceNumber": None}, EventError, "SequenceNumber: expected 1 to 40 decimal digits as text, came None"),
    ],
)  # fmt: skip
def test_a_malformed_record_is_an_error_of_the_event(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    good = record(1, new=download())
    changed = {**good["dynamodb"], **change}
    bad = {**good, "dynamodb": {name: value for name, value in changed.items() if value is not None}}
    with pytest.raises(error, match=message):
        fold(MonthlyDownloads, bad)
