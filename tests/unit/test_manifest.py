"""The manifest is plain data, and says what each consumer may do."""

from __future__ import annotations

import json

import pytest

from framework import Aggregation, AllTime, App, ConfigurationError, Count, Daily, Index, Sum, Table, at_least, attr
from framework.app import load_app
from framework.manifest import manifest
from handlers.app import app as music
from handlers.music_library import MonthlyDownloads

orders = Table("Orders", pk="id", pk_type="N", ttl="expires", home="eu-west-1")
totals = Table("Totals", pk="key", sk="label")


class Daily_(Aggregation):
    name = "daily-orders"
    source = orders
    target = totals
    where = attr("status").equals("paid")
    group_by = "shop"
    window = Daily("at")
    Orders = Count()
    Revenue = Sum("amount")
    index = Index("ByDay", pk="Day", sk="Revenue")


class Ever(Aggregation):
    name = "orders-ever"
    source = orders
    target = totals
    group_by = "shop"
    window = AllTime()
    partitions = 4
    Orders = Count()


class Labels(Aggregation):
    name = "labels"
    source = totals
    target = Table("Labels", pk="key")
    group_by = "label"
    window = AllTime()
    Totals = Count()


shop = App("shop", [Daily_, Ever, Labels])


@pytest.mark.parametrize("app", [music, shop])
def test_a_manifest_is_values_of_json_only(app: App) -> None:
    assert json.loads(json.dumps(manifest(app))) == manifest(app)


def test_tables_have_their_keys_streams_and_indexes() -> None:
    found = manifest(shop)["tables"]
    assert list(found) == ["Orders", "Totals", "Labels"]
    assert found["Orders"] == {
        "pk": {"name": "id", "type": "N"},
        "sk": None,
        "ttl": "expires",
        "home": "eu-west-1",
        "stream": True,
        "indexes": {},
        "shards": {},
    }
    assert found["Totals"] == {
        "pk": {"name": "key", "type": "S"},
        "sk": {"name": "label", "type": "S"},
        "ttl": None,
        "home": None,
        "stream": True,
        "indexes": {
            "ByDay": {
                "pk": {"name": "Day", "type": "S"},
                "sk": {"name": "Revenue", "type": "N"},
                "include": ["Orders"],
            }
        },
        "shards": {"daily-orders": {"Day": 1}},
    }
    assert not found["Labels"]["stream"]


def test_an_index_that_several_share_is_one_with_what_all_of_them_keep() -> None:
    class Ranked(Daily_):
        name = "ranked"
        index = Index("Shared", pk="Entry", sk="Revenue", prefix="day#", shards=4, when=at_least("Orders", 3))

    class Spent(Ever):
        name = "spent"
        Revenue = Sum("amount")
        Least = Sum("least")
        index = Index("Shared", pk="Entry", sk="Revenue", prefix="ever#")

    for order in ([Ranked, Spent], [Spent, Ranked]):
        found = manifest(App("shop", order))
        assert found["tables"]["Totals"]["indexes"] == {
            "Shared": {
                "pk": {"name": "Entry", "type": "S"},
                "sk": {"name": "Revenue", "type": "N"},
                "include": ["Least", "Orders"],
            }
        }
        assert found["tables"]["Totals"]["shards"] == {"ranked": {"Entry": 4}, "spent": {"Entry": 1}}
        grants = manifest(shop)["consumers"]["Orders"]["grants"]["Totals"]
        assert sorted(found["consumers"]["Orders"]["grants"]["Totals"]) == sorted(grants)


def test_a_consumer_has_its_handlers_and_only_what_they_need() -> None:
    found = manifest(shop)["consumers"]
    assert {name: consumer["handlers"] for name, consumer in found.items()} == {
        "Orders": ["daily-orders", "orders-ever"],
        "Totals": ["labels"],
    }
    needed = ["UpdateItem", "GetItem", "ConditionCheckItem"]
    assert found["Orders"]["grants"] == {"Totals": needed}
    assert found["Totals"]["grants"] == {"Labels": needed}
    assert all(json.loads(text) for consumer in found.values() for text in consumer["filters"])


def test_tables_may_have_other_names_in_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = MonthlyDownloads._declaration
    monkeypatch.setenv("STREAMFOLD_NAMES", '{"MusicLibrary": "music-dev", "music-dev": "x"}')
    monkeypatch.setattr(MonthlyDownloads, "_declaration", declared)
    for _ in range(2):
        (found,) = load_app("handlers.app:app").declarations
    assert (found.source.name, found.target.name) == ("music-dev", "music-dev")
    assert found.source.pk == declared.source.pk


@pytest.mark.parametrize("text", ["x", "[]", '{"MusicLibrary": 5}'])
def test_names_that_are_no_json_object_are_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMFOLD_NAMES", text)
    with pytest.raises(ConfigurationError, match="STREAMFOLD_NAMES: expected a JSON object of table names, came"):
        load_app("handlers.app:app")
