"""What a hostile look at sparse indexes, their walk and charts found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from framework import (
    Aggregation,
    AllTime,
    App,
    ConfigurationError,
    Count,
    DeclarationError,
    Hourly,
    Index,
    ReadError,
    SparseIndex,
    Sum,
    Table,
    attr,
)
from framework.apply import Apply
from framework.codec import decode_item, encode, encode_item
from framework.consumer import Consumer
from framework.control import Control
from framework.local.memory import MemoryDynamoDB
from framework.local.world import CONTROL, CONTROL_REQUEST, table_requests
from framework.ranking import _page
from framework.testing import event, inserted, modified
from framework.walker import Pace, Places, Walker

things = Table("Things", pk="id")


class Award(StrEnum):
    CHAMP = "Champ"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise TypeError("no text")


def deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(3000):
        found = [found]
    return found


def indexed(entry: Callable[[Any], Any] | None = None, **declared: Any) -> Any:
    fields: dict[str, Any] = {"name": "s", "source": things, "index": Index("Idx", pk="P", sk="id")}
    if entry is not None:
        declared["entry"] = staticmethod(entry)
    return type("Indexed", (SparseIndex,), {**fields, **declared})


def engine_of(app: App) -> MemoryDynamoDB:
    engine = MemoryDynamoDB()
    for request in (*table_requests(app), CONTROL_REQUEST):
        engine.create_table(**request)
    return engine


def raises(item: Any) -> Any:
    raise Unspeakable


@pytest.mark.parametrize("came", [lambda item: {"Q": 10**5000}, raises, lambda item: {"P": deep()}])
def test_what_a_function_returns_or_raises_and_cannot_be_shown_is_one_bad_record(came: Callable[[Any], Any]) -> None:
    def entry(item: Any) -> Any:
        return came(item) if item["id"] == "1" else {"P": "x"}

    app = App("app", [indexed(entry)])
    engine = engine_of(app)
    items = [{"id": str(number)} for number in range(4)]
    for item in items:
        engine.put_item(TableName="Things", Item=encode_item(item))
    response = Consumer(app, "Things", engine, connections=1)(event(*(inserted(things, item) for item in items)))
    assert response["streamfold"]["badRecords"] == 1
    assert len(engine.scan(TableName="Things", IndexName="Idx")["Items"]) == 3


@pytest.mark.parametrize("delivery", ["lanes", "ledger"])
def test_a_share_beyond_the_range_of_numbers_is_set_aside(delivery: str) -> None:
    class Sums(Aggregation):
        """A sum."""

        name = "sums"
        source = things
        target = Table("Sums", pk="of")
        group_by = "g"
        window = AllTime()
        V = Sum("v")

    app = App("app", [Sums])
    engine = engine_of(app)
    control = Control(engine, CONTROL, lambda name, content: None, connections=1)
    consumer = Consumer(app, "Things", engine, control=control, delivery=delivery, connections=1)
    huge = Decimal("9.9E125")
    old, new = ({"id": "1", "g": "g", "v": value} for value in (huge, -huge))
    consumer(event(inserted(things, old)))
    assert consumer(event(modified(things, old, new)))["batchItemFailures"] == []
    kept = engine.scan(TableName=CONTROL)["Items"]
    assert sum(item["pk"] == {"S": "quarantine"} for item in kept) == 2


def test_segments_that_share_a_pace_take_no_more_than_it_gives() -> None:
    clock = [0.0]
    pace = Pace(100.0, clock=lambda: clock[0], sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    at = []
    for _ in range(5):  # each asks before any other has paid
        pace.take(100.0)
        at.append(clock[0])
    assert at == pytest.approx([0.0, 0.0, 1.0, 2.0, 3.0], abs=0.01)
    for _ in range(5):
        pace.spend(10.0, taken=100.0)
    pace.take(100.0)
    assert clock[0] == pytest.approx(3.0, abs=0.01)


def test_a_walk_that_is_refused_for_long_goes_on() -> None:
    cls = indexed(key="x")
    engine = engine_of(App("app", [cls]))
    engine.put_item(TableName="Things", Item={"id": {"S": "1"}})

    class Busy:
        """Throttled for half an hour."""

        tries = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(engine, name)

        def update_item(self, **arguments: Any) -> Any:
            self.tries += 1
            if self.tries <= 1500:
                code = "ProvisionedThroughputExceededException"
                raise ClientError({"Error": {"Code": code, "Message": "no"}}, "UpdateItem")
            return engine.update_item(**arguments)

    done = Apply(cls._declaration, Busy(), segments=1, sleep=lambda seconds: None).run()
    assert done.entered == 1


def test_a_walk_is_taken_up_only_for_its_declaration_and_its_table(tmp_path: Path) -> None:
    first, mended = indexed(when=attr("a").exists(), key="x"), indexed(when=attr("b").exists(), key="x")
    engine = engine_of(App("app", [first]))
    path = tmp_path / "places.json"

    def walk(cls: Any, client: Any) -> None:
        Apply(cls._declaration, client, places=path)

    Apply(first._declaration, engine, places=path)._walker._places.done(0, {"id": {"S": "1"}}, 1)
    walk(first, engine)
    with pytest.raises(ConfigurationError, match="expected a walk to"):
        walk(mended, engine)

    class Elsewhere:
        """A table of the same name in another Region."""

        def __getattr__(self, name: str) -> Any:
            return getattr(engine, name)

        def describe_table(self, **arguments: Any) -> Any:
            table = {**engine.describe_table(**arguments)["Table"], "TableArn": "arn:aws:dynamodb:eu-west-1:1:table/T"}
            return {"Table": table}

    with pytest.raises(ConfigurationError, match="expected a walk to"):
        walk(first, Elsewhere())


def test_two_functions_with_different_code_are_two_declarations(tmp_path: Path) -> None:
    first, mended = indexed(lambda item: {"P": "x"}), indexed(lambda item: {"P": "y"})
    engine = engine_of(App("app", [first]))
    path = tmp_path / "places.json"
    Apply(first._declaration, engine, places=path)._walker._places.done(0, {"id": {"S": "1"}}, 1)
    with pytest.raises(ConfigurationError, match="expected a walk to"):
        Apply(mended._declaration, engine, places=path)


@pytest.mark.parametrize(
    "text",
    [
        '{"walk": "w", "segments": 4, "items": 1e999, "last": {}}',
        '{"walk": "w", "segments": 1e999, "items": 0, "last": {}}',
        '{"walk": "w", "segments": 4, "items": 0, "last": {"0": false}}',
        "[" * 100_000,
    ],
)
def test_a_file_that_holds_no_place_of_a_walk_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "places.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="expected where a walk stands, came"):
        Places("w", 4, path)


def test_a_table_with_other_keys_is_told() -> None:
    cls = indexed(key="x")
    engine = MemoryDynamoDB()
    engine.create_table(
        TableName="Things",
        KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    engine.put_item(TableName="Things", Item={"k": {"S": "1"}})
    with pytest.raises(ConfigurationError, match=r"s: expected a table with the keys \('id',\), came \['k'\]"):
        Apply(cls._declaration, engine).run()


class Charted(Aggregation):
    """Aggregates in the table of the items that they count."""

    name = "charted"
    source = things
    group_by = "g"
    window = AllTime()
    Plays = Count()
    index = Index("Chart", pk="Chart", sk="Plays")


@pytest.mark.parametrize("name", ["Chart", "Plays"])
def test_a_sparse_index_is_not_keyed_by_what_aggregates_have(name: str) -> None:
    cls = indexed(key="x", index=Index("Idx", pk=name, sk="id"))
    with pytest.raises(DeclarationError, match=f"expected keys of its index that no aggregate has, came '{name}'"):
        App("app", [Charted, cls])


@pytest.mark.parametrize("include", [tuple(f"a{n}" for n in range(21)), ("sf~",)])
def test_an_index_does_not_include_more_than_it_may(include: tuple[str, ...]) -> None:
    with pytest.raises(DeclarationError, match="include: expected"):
        indexed(key="x", include=include)


@pytest.mark.parametrize("made", [lambda: indexed(key=10**5000), lambda: Index(10**5000, pk="a", sk="b")])  # type: ignore
def test_a_value_that_cannot_be_shown_is_refused_in_a_sentence(made: Callable[[], Any]) -> None:
    with pytest.raises(DeclarationError, match=r"expected .*, came a int"):
        made()


def test_an_enumeration_is_its_text() -> None:
    assert json.dumps(encode(Award.CHAMP)) == '{"S": "Champ"}'
    assert type(encode(Award.CHAMP)["S"]) is str


def test_windows_end_with_the_year_9999() -> None:
    window = Hourly("at", tz="America/New_York")
    assert "9999-12-31T22" in {*window.between("9999-12-31T22", "9999-12-31T23")}


def test_a_page_asks_for_no_more_than_a_request_can_say() -> None:
    assert max(_page(wanted, keys) for wanted in (10, 10**9) for keys in (1, 8)) <= 10_000
    with pytest.raises(ReadError, match="n: expected a whole number from 1 to 1,000,000,000, came"):
        Charted.top("all", 10**38, client=engine_of(App("app", [Charted])))


def test_a_scan_keeps_to_its_rate_though_its_segments_begin_at_once() -> None:
    engine = engine_of(App("app", [indexed(key="x")]))
    for number in range(600):
        engine.put_item(TableName="Things", Item={"id": {"S": str(number)}, "f": {"S": "x" * 4000}})
    now, units = [0.0], [0.0]

    class Metered:
        """A client that notes what is read."""

        def __getattr__(self, name: str) -> Any:
            return getattr(engine, name)

        def scan(self, **arguments: Any) -> Any:
            page = engine.scan(**arguments)
            units[0] += page["ConsumedCapacity"]["CapacityUnits"]
            assert units[0] <= 100 * (now[0] + 2) + 100
            return page

    def sleep(seconds: float) -> None:
        now[0] += seconds

    walker = Walker(Metered(), "Things", Places("w", 1), rate=100, clock=lambda: now[0], sleep=sleep)
    walker.walk(lambda items: None)
    assert units[0] > 300


def test_functions_that_look_at_each_others_attributes_see_none_and_settle() -> None:
    one = indexed(lambda item: None if "Q" in item else {"P": "x"})
    two = indexed(lambda item: {"Q": "x"} if "P" in item else None, name="t", index=Index("Jdx", pk="Q", sk="id"))
    app = App("app", [one, two])
    engine, item = engine_of(app), {"id": "1", "Q": "y"}
    engine.put_item(TableName="Things", Item=encode_item(item))
    consumer, former = Consumer(app, "Things", engine, connections=1), item
    for _ in range(5):
        consumer(event(modified(things, former, item)))
        (raw,) = engine.scan(TableName="Things")["Items"]
        former, item = item, decode_item(raw)
    assert item == former == {"id": "1", "P": "x"}
    (alone,) = (engine_of(App("app", [cls])) for cls in [one])
    alone.put_item(TableName="Things", Item=encode_item({"id": "1", "Q": "y"}))
    assert Apply(App("app", [one]).declaration_of(one), alone).run().right == 1
    assert Apply(app.declaration_of(one), alone).run().entered == 1


def test_a_walk_is_not_taken_up_beside_another_sparse_index(tmp_path: Path) -> None:
    cls = indexed(lambda item: {"P": "x"})
    other = indexed(key="x", name="t", index=Index("Jdx", pk="Q", sk="id"))
    index = Index("Idx", pk="P", sk="id", prefix="a")
    one = indexed(key="x", index=index)
    two, three = (indexed(key=key, name="t", index=replace(index, prefix="b")) for key in "xy")
    engine, path = engine_of(App("app", [cls])), tmp_path / "places.json"
    Apply(App("app", [cls]).declaration_of(cls), engine, places=path)._walker._places.done(0, {"id": {"S": "1"}}, 1)
    with pytest.raises(ConfigurationError, match="expected a walk to"):
        Apply(App("app", [cls, other]).declaration_of(cls), engine, places=path)
    path.unlink()
    Apply(App("app", [one, two]).declaration_of(one), engine, places=path)._walker._places.done(0, {}, 1)
    Apply(App("app", [one, two]).declaration_of(one), engine, places=path)
    with pytest.raises(ConfigurationError, match="expected a walk to"):
        Apply(App("app", [one, three]).declaration_of(one), engine, places=path)
