"""What goes wrong beside a redrive, and comes between, costs no count and stops nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from framework import App, Daily, Monthly, Table
from framework.failures import failure_of
from framework.local.memory import MemoryDynamoDB
from framework.local.provision import create_table_request
from framework.quarantine import place_of
from framework.redrive import Redriven
from tests.unit.stream import download, event
from tests.unit.test_quarantine import Broken, Downloads, Weights, app, consumer, entries, heavy, tables, total
from tests.unit.test_redrive import NOW, at, failed, mend, quarantine, redriven
from tests.unit.test_refused import Meanwhile, is_refusal, is_write_of_weights, weights


def count_of(engine: MemoryDynamoDB, song: str) -> int | None:
    found = Downloads.get(song, "all", client=engine)
    return None if found is None else found["Items"]


HUGE = "1" + "0" * 37  # with a fraction added, no number holds it


def test_an_edit_that_has_counted_is_a_duplicate_though_no_number_holds_its_difference() -> None:
    engine = tables()
    records = [at(1, new=heavy("a", HUGE)), at(2, old=heavy("a", HUGE), new=heavy("a", "0.001"))]
    assert consumer(engine)(event(*records))["batchItemFailures"] == []
    before = total(engine, "a")
    assert quarantine(engine).redrive_batch(failure_of("f", failed(*records)), None) == Redriven("f", True)
    assert entries(engine) == {}
    assert total(engine, "a") == before


def test_what_is_left_out_for_a_dropped_watermark_is_left_out_when_it_is_tried_again() -> None:
    engine = tables()
    old = 60 * 3600
    consumer(engine)(event(at(1, age=old, new=heavy("b", "1")), shardId="another"))
    moved = at(2, age=old, old=heavy("a", "2"), new=heavy("b", "2"))

    def made() -> None:
        consumer(engine)(event(at(9, new=heavy("a", "3")), at(10, new=heavy("a", "4")), shardId="third"))

    racing = Meanwhile(engine, made, is_refusal)
    quarantine(racing).redrive_batch(failure_of("f", failed(moved)), None)
    assert racing.happened
    assert total(engine, "b") == (1, 1)
    uncertain = {place_of(place) for place, entry in entries(engine).items() if "uncertain" in entry}
    assert ("weights", 2, "NewImage") in uncertain


def test_a_batch_whose_record_was_partly_set_aside_is_redriven_by_a_mended_handler() -> None:
    engine = tables()
    broken = at(2, old=heavy("a", "5"), new=download("a"))
    consumer(Broken(engine, "update_item", "Weights"))(event(broken))
    assert [place_of(place) for place in entries(engine)] == [("weights", 2, "NewImage")]
    consumer(engine)(event(at(9, new=heavy("a", "1", SK={"S": "download-9"}))))  # the lane moves on
    mended = failure_of("f", failed(at(2, old=heavy("a", "5"), new=heavy("a", "7"))))
    assert quarantine(engine).redrive_batch(mended, None).done
    assert quarantine(engine).redrive_batch(mended, None) == Redriven("f", True)
    found = {place_of(place): "uncertain" in entry for place, entry in entries(engine).items()}
    assert found["weights", 2, "NewImage"] is False
    assert found["weights", 2, "OldImage"] is True


def test_a_batch_is_redriven_by_the_protocol_that_delivered_it() -> None:
    engine = tables()
    given_up = at(1, new=heavy("a", "5"))
    assert consumer(Broken(engine, "update_item", "Downloads"))(event(given_up))["batchItemFailures"]
    there = quarantine(engine)
    there.switch("MusicLibrary", "ledger")
    assert there.redrive_batch(failure_of("f", failed(given_up)), None).done
    assert (total(engine, "a"), count_of(engine, "a")) == ((1, 5), 1)


def test_redrive_does_not_say_which_protocol_is_to_deliver() -> None:
    engine = tables()  # whose function could never load
    assert quarantine(engine).redrive_batch(failure_of("f", failed(at(1, new=heavy("a", "5")))), None).done
    assert consumer(engine, delivery="ledger")(event(at(2, new=heavy("a", "5"))))["batchItemFailures"] == []


def test_what_redrive_sets_aside_for_its_value_is_not_counted_by_who_began_before() -> None:
    engine = tables()
    huge, small = heavy("a", "9" + "0" * 37), heavy("a", "0.001", SK={"S": "download-2"})
    consumer(engine)(event(at(1, new=small)))
    records = [at(2, new=huge), at(3, old=huge)]
    failure = failure_of("f", failed(records[0]))

    def first() -> None:
        assert quarantine(engine).redrive_batch(failure, None) == Redriven("f", True, "1 set aside")

    racing = Meanwhile(engine, first, is_write_of_weights)
    assert consumer(racing)(event(*records))["batchItemFailures"] == []
    assert racing.happened
    assert total(engine, "a") is not None
    consumer(engine)(event(at(4, old=small)))  # what was in the way
    assert all(one.done for one in redriven(engine, uncertain=True))
    assert total(engine, "a") is None


def test_a_watermark_that_was_written_over_leaves_its_record_to_a_person_and_no_other() -> None:
    engine = tables()
    consumer(engine)(event(at(9, new=heavy("a", "5"))))
    (item,) = engine.scan(TableName="Weights")["Items"]
    (lane,) = (name for name in item if name.startswith("sf~") and name != "sf~")
    engine.put_item(TableName="Weights", Item={**item, lane: {"S": "mine"}})
    failure = failure_of("f", failed(at(2, new=heavy("a", "5")), at(3, new=heavy("b", "5"))))
    assert quarantine(engine).redrive_batch(failure, None).done
    uncertain = [place_of(place) for place, entry in entries(engine).items() if "uncertain" in entry]
    assert ("weights", 2, "NewImage") in uncertain
    assert (total(engine, "a"), total(engine, "b")) == ((1, 5), (1, 5))


class Denied:
    """A client without access to one table, or to one item of it."""

    def __init__(self, engine: MemoryDynamoDB, table: str, key: dict[str, Any] | None = None) -> None:
        self.engine, self.table, self.key = engine, table, key

    def __getattr__(self, operation: str) -> Any:
        def call(**arguments: Any) -> Any:
            actions = (found for action in arguments.get("TransactItems", ()) for found in action.values())
            for each in (arguments, *actions):
                if each.get("TableName") == self.table and self.key in (None, each.get("Key")):
                    raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, operation)
            return getattr(self.engine, operation)(**arguments)

        return call


def test_a_handler_whose_table_fails_stops_no_other_handlers_batch() -> None:
    engine = tables()
    failure = failure_of("f", failed(at(2, new=heavy("a", "5"))))
    one = quarantine(Denied(engine, "Weights")).redrive_batch(failure, None)
    assert not one.done
    assert "AccessDenied" in one.reason
    assert (total(engine, "a"), count_of(engine, "a")) == (None, 1)
    assert quarantine(engine).redrive_batch(failure, None).done
    assert (total(engine, "a"), count_of(engine, "a")) == ((1, 5), 1)


def test_an_aggregate_that_fails_stops_no_other_entry() -> None:
    engine = tables()
    consumer(engine)(event(at(2, new=download("a")), at(3, new=download("b"))))
    mend(engine, "5")
    there = quarantine(Denied(engine, "Weights", Weights._declaration.key("a", "all", 0)))
    assert [one.done for one in there.redrive_all([*there.open()])] == [False, True]
    assert (total(engine, "a"), total(engine, "b")) == (None, (1, 5))


def test_an_aggregate_whose_time_is_over_does_not_come_back() -> None:
    kept = weights(
        window=Daily("Timestamp"), retention=timedelta(days=1), target=Table("Weights", pk="key", ttl="expires")
    )
    app = App("weights", [kept])
    engine = tables(app)
    day = "2020-09-13"  # of `NOW`
    consumer(engine, an_app=app)(event(at(4, age=0, new=download("a", f"{day}T12:00:00Z"))))
    mend(engine, "5")
    there = quarantine(engine, app, now=NOW + 5 * 86_400)
    (item,) = there.open()
    expected = Redriven(item["sk"]["S"], True, "counts for nothing, or the time of its aggregate is over")
    assert there.redrive(item) == expected
    assert total(engine, "a", kept, day) is None


def test_an_uncertain_entry_of_a_handler_that_is_gone_can_be_discarded() -> None:
    engine = tables()
    consumer(engine)(event(at(1, new=heavy("b", "1"))))
    consumer(engine, version="2")(event(at(1, new=download("a"))))
    ((place, item),) = entries(engine).items()
    assert "uncertain" in item
    there = quarantine(engine, App("downloads", [Downloads]))
    assert there.discard(place)
    assert [*there.open()] == []


def test_an_entry_that_cannot_be_read_can_be_discarded() -> None:
    engine = tables()
    consumer(engine)(event(at(1, new=download("a"))))
    ((place, item),) = entries(engine).items()
    engine.put_item(TableName="control", Item={**item, "record": {"S": "{"}})
    assert quarantine(engine).discard(place)
    assert [*quarantine(engine).open()] == []


@pytest.mark.parametrize(
    "switches", [["ledger"], ["ledger", "ledger"], ["ledger", "lanes"], ["ledger", "lanes", "ledger"]]
)
def test_a_batch_is_redriven_by_the_protocol_of_its_time_however_often_that_was_changed(switches: list[str]) -> None:
    engine = tables()
    run = [at(1, age=7 * 86_400, new=heavy("a", "5")), at(2, age=7 * 86_400, new=heavy("a", "7"))]
    consumer(engine)(event(*run))
    for days, delivery in zip((5, 4, 3), switches, strict=False):
        quarantine(engine, now=NOW - days * 86_400).switch("MusicLibrary", delivery)
    assert quarantine(engine).redrive_batch(failure_of("f", failed(*run)), None).done
    assert total(engine, "a") == (2, 12)
    assert entries(engine) == {}


@pytest.mark.parametrize("delivery", ["lanes", "ledger", "redrive"])
def test_a_target_with_other_keys_sets_its_records_aside_and_lets_others_count(delivery: str) -> None:
    engine = tables()
    engine.delete_table(TableName="Weights")
    request = create_table_request(app, app.aggregations[0]._declaration.target)
    engine.create_table(**{**request, "AttributeDefinitions": [{"AttributeName": "key", "AttributeType": "N"}]})
    run = [at(1, new=heavy("a", "5")), at(2, new=heavy("b", "5"))]
    if delivery == "redrive":
        assert quarantine(engine).redrive_batch(failure_of("f", failed(*run)), None).done
    else:
        assert consumer(engine, delivery=delivery)(event(*run))["batchItemFailures"] == []
    assert len(entries(engine)) == 2
    assert len(engine.scan(TableName="Downloads")["Items"]) == 2


def test_an_item_that_only_a_watermark_makes_expires_with_its_aggregate() -> None:
    kept = weights(
        window=Monthly("at"),
        target=Table("Weights", pk="key", ttl="exp"),
        retention=timedelta(days=30),
        partitions=8,
    )
    an_app = App("w", [kept])
    engine = tables(an_app)
    image = {"at": {"S": "2020-09-01T00:00:00Z"}}
    huge = {**heavy("a", "1" * 38), **image}
    consumer(engine, an_app=an_app)(event(at(1, new=huge), shardId="shardId-00000001514764800000-fffffff1"))
    consumer(engine, an_app=an_app)(event(at(5, old=huge, new={**heavy("a", "0.5"), **image})))
    items = engine.scan(TableName="Weights")["Items"]
    assert len(items) == 2
    assert len({item["exp"]["N"] for item in items}) == 1
