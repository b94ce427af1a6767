"""A shard's turn: what holds none is named, and who shares one sees it pass as a whole."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest

from framework import App, ConfigurationError, EventError
from framework.control import Control
from framework.decode import decode
from framework.quarantine import Entry
from framework.turns import Turn, turn_key
from framework.writer import Terms
from tests.unit.stream import ARN, download, event
from tests.unit.test_quarantine import PLACE, Weights, consumer, entries, heavy, no_object, tables
from tests.unit.test_redrive import at, quarantine
from tests.unit.test_refused import weights


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize(
    "broken",
    [
        {"until": None},
        {"until": {"S": "x"}},
        {"turn": {"S": "x"}},
        {"turn": None},
        {"since": {"S": "x"}},
        {"entries": {"S": "x"}},
        {"version": {"S": "0"}, "until": None},
    ],
    ids=str,
)
def test_an_item_that_holds_no_turn_is_named(broken: dict[str, Any], version: str) -> None:
    engine = tables()
    consumer(engine)(event(at(1, new=heavy("a", "5"))))
    item = {**engine.get_item(TableName="control", Key=turn_key(PLACE))["Item"], **broken}
    engine.put_item(TableName="control", Item={name: value for name, value in item.items() if value is not None})
    with pytest.raises(ConfigurationError, match=f"turn of {PLACE}: expected a turn, came "):
        consumer(engine, version=version)(event(at(2, new=heavy("a", "5"))))


def entry(record: dict[str, Any]) -> Entry:
    return Entry(
        handler="weights",
        image="NewImage",
        stream_arn=ARN,
        shard_id=event()["shardId"],
        sequence_number=int(record["dynamodb"]["SequenceNumber"]),
        record=record,
        reason="bad",
        at=5,
    )


def test_no_thread_takes_an_entry_for_certain_while_another_sees_the_turn_pass() -> None:
    engine = tables()
    bad = [at(1, new=download("a")), at(2, new=download("b"))]
    control = Control(engine, "control", no_object, version="1")

    def keep(record: dict[str, Any]) -> None:
        control.keep(Weights._declaration, turn, [entry(record)], Terms(deadline=time.monotonic() + 20))

    class Shared(Turn):
        """A turn of which another thread writes an entry between any two stores."""

        __slots__ = ()

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name in ("number", "since"):
                self.__class__ = Turn  # type: ignore[assignment]
                keep(bad[1])

    turn, _ = control.begin(decode(event(*bad)), 1)
    control.take(turn)
    consumer(engine, version="2")(event(at(1, new=heavy("a", "5")), at(2, new=heavy("b", "5"))))
    turn.__class__ = Shared
    keep(bad[0])
    found = entries(engine).values()
    assert ["uncertain" in item for item in found] == [True, True]


def test_large_records_are_set_aside_in_transactions_that_hold_them() -> None:
    engine = tables()
    random = Random(1)

    def large(number: int) -> dict[str, Any]:
        text = "".join(map(chr, random.choices(range(0x4E00, 0x9FA5), k=60_000)))
        return download("a", SK={"S": str(number)}, text={"S": text})

    bad = [at(n, old=large(n), new=large(n)) for n in range(1, 10)]
    good = [at(n, new=heavy("b", "1")) for n in range(10, 20)]
    assert consumer(engine)(event(*bad, *good))["batchItemFailures"] == []
    assert len([*quarantine(engine).open()]) == 18


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
@pytest.mark.parametrize("number", [None, "x"])
def test_the_sequence_number_of_a_record_that_counts_nowhere_is_looked_at(delivery: str, number: str | None) -> None:
    app = App("weights", [weights(changes="inserts")])
    edit = at(2, old=heavy("a", "1"), new=heavy("a", "2"))
    edit["dynamodb"]["SequenceNumber"] = number
    with pytest.raises(EventError, match=r"Records\[1\]: SequenceNumber: expected 1 to 40 decimal digits as text"):
        consumer(tables(app), delivery=delivery, an_app=app)(event(at(1, new=heavy("a", "1")), edit))
