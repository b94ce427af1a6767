"""What was taken back from nothing is taken back with what it takes back, once, whenever that comes to count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from framework import Aggregation, AllTime, App, Count, Max, Min, Sum, Table
from framework.failures import failure_of
from framework.local.memory import MemoryDynamoDB
from tests.unit.stream import ARN, event
from tests.unit.test_quarantine import consumer, entries, heavy, music, tables, total
from tests.unit.test_redrive import Failing, at, failed, mend, quarantine, redriven


def weights(**declared: Any) -> type[Aggregation]:
    """`Weights`, declared otherwise; a field that is None is not there."""
    declarations = {
        "name": "weights",
        "source": music,
        "target": Table("Weights", pk="key"),
        "group_by": "songID",
        "window": AllTime(),
        "Items": Count(),
        "Weight": Sum("weight"),
        **declared,
    }
    return type("Weights", (Aggregation,), {k: v for k, v in declarations.items() if v is not None})


class Meanwhile:
    """A client with which something happens once, before the first request that is meant."""

    def __init__(
        self, engine: MemoryDynamoDB, happens: Callable[[], object], before: Callable[[str, dict[str, Any]], bool]
    ) -> None:
        self.engine, self.happens, self.before, self.happened = engine, happens, before, False

    def __getattr__(self, operation: str) -> Any:
        def call(**arguments: Any) -> Any:
            if not self.happened and self.before(operation, arguments):
                self.happened = True
                self.happens()
            return getattr(self.engine, operation)(**arguments)

        return call


def is_write_of_weights(operation: str, arguments: dict[str, Any]) -> bool:
    return operation == "update_item" and arguments["TableName"] == "Weights"


def is_refusal(operation: str, arguments: dict[str, Any]) -> bool:
    return any("ConditionCheck" in action for action in arguments.get("TransactItems", ()))


def test_an_aggregate_that_is_made_for_what_is_taken_back_first_has_no_extremes() -> None:
    extremes = weights(changes="inserts", Items=None, Weight=None, Least=Min("weight"), Most=Max("weight"))
    app = App("weights", [extremes])
    engine = tables(app)
    bad = heavy("a", "5")
    del bad["weight"]
    consumer(engine, an_app=app)(event(at(1, new=bad)))
    mend(engine, "5")
    assert [one.done for one in redriven(engine, app)] == [True]
    found = extremes.get("a", "all", client=engine)
    assert found is not None
    assert found.values == {"Least": 5, "Most": 5}


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
@pytest.mark.parametrize("after", range(3, 6))  # the first two are the handlers of the batch
def test_a_chain_of_refused_edits_goes_on_where_it_was_cut_short(delivery: str, after: int) -> None:
    engine = tables()
    chain = [at(n, old=heavy("a", str(n)), new=heavy("a", str(n + 1))) for n in (2, 3)]
    consumer(engine, delivery=delivery)(event(*chain[:1]))
    consumer(engine, delivery=delivery)(event(*chain[1:]))
    failure = failure_of("f", failed(at(1, new=heavy("a", "2"))))
    quarantine(engine).switch("MusicLibrary", delivery)
    quarantine(Failing(engine, after=after)).redrive_batch(failure, None)
    assert quarantine(engine).redrive_batch(failure, None).done
    assert total(engine, "a") == (1, 4)


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
@pytest.mark.parametrize("weight", ["123456789012345678901234567890.5", "12345678901234567890123456789012345678"])
def test_a_number_of_many_digits_is_found_again(delivery: str, weight: str) -> None:
    engine = tables()
    consumer(engine, delivery=delivery)(event(at(2, old=heavy("a", weight))))
    quarantine(engine).switch("MusicLibrary", delivery)
    assert quarantine(engine).redrive_batch(failure_of("f", failed(at(1, new=heavy("a", weight)))), None).done
    assert total(engine, "a") is None


LONG = "k" * 1010
ITEM = heavy("a", "5")
REVERSED = {"Keys": dict(reversed([(name, ITEM[name]) for name in ("songID", "SK")]))}
FORMER = ARN.replace("2018", "2017")


@pytest.mark.parametrize(
    ("change", "taken", "stream", "expected"),
    [
        pytest.param(REVERSED, ITEM, ARN, None, id="its key in another order"),
        pytest.param({}, heavy("a", "5", SK={"S": f"{LONG}y"}), ARN, (1, 5), id="a key that begins alike"),
        pytest.param({}, ITEM, FORMER, (1, 5), id="another stream"),
    ],
)
def test_what_takes_an_item_back_is_told_by_stream_and_whole_key(
    change: dict[str, Any], taken: dict[str, Any], stream: str, expected: object
) -> None:
    engine = tables()
    added = at(1, new=heavy("a", "5", SK={"S": f"{LONG}x"}) if LONG in str(taken) else ITEM)
    added["dynamodb"] |= change
    gone = {**at(2, old=taken), "eventSourceARN": stream}
    assert consumer(engine)(event(gone, eventSourceARN=stream))["streamfold"]["refusedTakeBacks"] == 2
    assert quarantine(engine).redrive_batch(failure_of("f", failed(added)), None).done
    assert total(engine, "a") == expected


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_nothing_is_refused_once_a_batch_has_counted_in_another_partition(delivery: str) -> None:
    parted = weights(partitions=8)
    app = App("weights", [parted])
    engine = tables(app)
    there = quarantine(engine, app)
    there.switch("MusicLibrary", delivery)
    failure = failure_of("f", failed({**at(1, new=heavy("a", "5")), "eventID": "e7"}))
    racing = Meanwhile(engine, lambda: there.redrive_batch(failure, None), is_refusal)
    consumer(racing, delivery=delivery, an_app=app)(event(at(2, old=heavy("a", "5"))))
    assert racing.happened
    assert total(engine, "a", parted) is None


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_what_follows_an_edit_that_adds_nothing_is_not_taken_back(delivery: str) -> None:
    engine = tables()
    before, after = heavy("a", "5"), heavy("a", "5", note={"S": "n"})  # it was there before the stream
    consumer(engine, delivery=delivery)(event(at(2, old=after)))
    consumer(engine, delivery=delivery)(event(at(3, new=heavy("a", "9", SK={"S": "download-2"}))))
    quarantine(engine).switch("MusicLibrary", delivery)
    assert quarantine(engine).redrive_batch(failure_of("f", failed(at(1, old=before, new=after))), None).done
    assert total(engine, "a") == (1, 9)


def test_who_began_before_a_take_back_was_refused_does_not_take_it_back_again() -> None:
    engine = tables()
    gone = event(at(2, old=heavy("a", "5")))
    failure = failure_of("f", failed(at(1, new=heavy("a", "5"))))

    def first() -> None:
        assert consumer(engine)(gone)["streamfold"]["refusedTakeBacks"] == 2
        assert quarantine(engine).redrive_batch(failure, None).done

    racing = Meanwhile(engine, first, is_write_of_weights)
    assert consumer(racing)(gone)["batchItemFailures"] == []
    assert racing.happened
    (left,) = engine.scan(TableName="Weights")["Items"]
    assert (left["Items"], left["Weight"]) == ({"N": "0"}, {"N": "0"})


def test_a_refused_entry_that_cannot_be_read_stops_its_own_handler_alone() -> None:
    engine = tables()
    bad = heavy("a", "5")
    del bad["weight"]
    consumer(engine)(event(at(3, old=heavy("z", "3")), at(4, new=bad)))
    for place, item in entries(engine, refused=True).items():
        if "downloads" in place:
            engine.put_item(TableName="control", Item={**item, "record": {"S": "{"}})
    mend(engine, "5")
    assert [(one.done, one.reason) for one in redriven(engine)] == [(True, "")]
    assert total(engine, "a") == (1, 5)
