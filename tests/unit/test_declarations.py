"""A declaration is checked when it is made, and the error says where, what was expected and what came."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest

import framework
from framework import (
    Aggregation,
    AllTime,
    App,
    Average,
    ConfigurationError,
    Count,
    Daily,
    DeclarationError,
    Index,
    Max,
    Min,
    Monthly,
    Sum,
    Table,
    at_least,
    attr,
)
from framework.app import load_app

music = Table("MusicLibrary", pk="songID", sk="SK")
expiring = Table("Totals", pk="key", ttl="expires")


def declare(**fields: Any) -> type[Aggregation]:
    good = {
        "name": "downloads",
        "source": music,
        "group_by": "songID",
        "window": Monthly("Timestamp"),
        "DownloadCount": Count(),
    }
    return type("Downloads", (Aggregation,), {k: v for k, v in {**good, **fields}.items() if v is not ...})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ...}, "Downloads.name: expected lower-case letters, digits and hyphens, at most 63, letter first, came nothing"),
        ({"name": "Down Loads"}, "came 'Down Loads'"),
        ({"name": 5}, "Downloads.name: .* came 5"),
        ({"source": ...}, "Downloads.source: expected a Table, came nothing"),
        ({"source": "MusicLibrary"}, "Downloads.source: expected a Table, came 'MusicLibrary'"),
        ({"target": "x"}, "Downloads.target: expected a Table or None, came 'x'"),
        ({"target": Table("Other", pk="p", sk="s", sk_type="N")}, "Downloads.target: expected a table whose sort key is text"),
        ({"target": Table("Other", pk="p", pk_type="B", sk="s")}, "Downloads.target: expected a table whose partition key is text"),
        ({"target": Table("Other", pk="p", pk_type="N")}, "Downloads.target: expected a table whose partition key is text"),
        ({"target": Table("Other", pk="p", pk_type="N", sk="s"), "group_by": ("a", "b")}, "Downloads.target: "),
        ({"where": lambda item: True}, r"Downloads.where: expected a condition made with attr\(...\), came <function"),
        ({"group_by": ...}, "Downloads.group_by: expected an attribute, a tuple of attributes, or a static method"),
        ({"group_by": ()}, r"Downloads.group_by: .* came \(\)"),
        ({"group_by": ["songID"]}, r"Downloads.group_by: .* came \['songID'\]"),
        ({"group_by": ("songID", 5)}, "Downloads.group_by: expected an attribute name, came 5"),
        ({"group_by": "a..b"}, "Downloads.group_by: path: "),
        ({"group_by": lambda self, item: 1}, r"Downloads.group_by: .* came def <lambda>\(self, item\)"),
        ({"group_by": lambda *, item: 1}, r"Downloads.group_by: .* came def <lambda>\(\*, item\)"),
        ({"group_by": lambda **item: 1}, r"Downloads.group_by: .* came def <lambda>\(\*\*item\)"),
        ({"on_expire": "retract"}, r"Downloads.on_expire: expected a field that an aggregation has \(did you mean 'on_expiry'\?\), came 'retract'"),
        ({"groupby": "songID"}, r"Downloads.groupby: expected a field that an aggregation has \(did you mean 'group_by'\?\), came 'songID'"),
        ({"were": attr("SK").exists()}, r"Downloads.were: expected a field that an aggregation has \(did you mean 'where'\?\), came"),
        ({"Plays": Count}, r"Downloads.Plays: expected a measure such as Count\(...\), came the class Count"),
        ({"group": Count()}, "Downloads.group: expected another name"),
        ({"sk_prefix": "\ud800"}, "Downloads.sk_prefix: expected text of at most 900 bytes"),
        ({"target": Table("Totals", pk="key", ttl="DownloadCount")}, "Downloads.DownloadCount: expected an attribute that is not the target's time to live"),
        ({"window": ...}, r"Downloads.window: expected a window such as Monthly\('Timestamp'\), came nothing"),
        ({"window": "Timestamp"}, "Downloads.window: .* came 'Timestamp'"),
        ({"DownloadCount": ...}, r"Downloads.measures: expected at least one, such as DownloadCount = Count\(\), came none"),
        ({"top": Count()}, "Downloads.top: expected another name"),
        ({"SK": Count()}, "Downloads.SK: expected an attribute that is not a key of the target already, came 'SK'"),
        ({"sf~x": Count()}, "Downloads.sf~x: expected a name that does not begin with 'sf~', came 'sf~x'"),
        ({"A": Average("x"), "ASum": Sum("x")}, "Downloads.ASum: expected an attribute that is not kept by a measure"),
        ({"T": Sum("a[")}, "Downloads.T: path: "),
        ({"index": "ByMonth"}, "Downloads.index: expected an Index or None, came 'ByMonth'"),
        ({"index": Index("ByMonth", pk="Month", sk="Nothing")}, r"Downloads.index: expected a sort key that a measure keeps \('DownloadCount'\)"),
        ({"index": Index("ByMonth", pk="SK", sk="DownloadCount")}, "Downloads.index: expected an attribute that is not a key of the target"),
        ({"index": Index("ByMonth", pk="DownloadCount", sk="SK")}, "Downloads.index: expected an attribute that is not kept by a measure"),
        ({"index": Index("ByMonth", pk="Month", sk="DownloadCount", when=at_least("Downloads", 5))}, r"Downloads.index: expected when: at_least of a Count or a Sum \('DownloadCount'\), came at_least\('Downloads', 5\)"),
        ({"A": Average("x"), "index": Index("ByMonth", pk="Month", sk="DownloadCount", when=at_least("ASum", 5))}, "Downloads.index: expected when: at_least of a Count or a Sum"),
        ({"M": Max("x"), "changes": "inserts", "index": Index("ByMonth", pk="Month", sk="M", when=at_least("M", 5))}, "Downloads.index: expected when: at_least of a Count or a Sum"),
        ({"partitions": 2, "index": Index("ByMonth", pk="Month", sk="DownloadCount", when=at_least("DownloadCount", 5))}, "Downloads.index: expected no when beside partitions, since none of an aggregate's items knows its total, came at_least"),
        ({"partitions": 0}, "Downloads.partitions: expected a whole number from 1 to 100, came 0"),
        ({"partitions": True}, "Downloads.partitions: .* came True"),
        ({"partitions": 2.0}, "Downloads.partitions: .* came 2.0"),
        ({"on_expiry": "drop"}, "Downloads.on_expiry: expected 'keep' or 'retract', came 'drop'"),
        ({"changes": "edits"}, "Downloads.changes: expected 'all' or 'inserts', came 'edits'"),
        ({"retention": 30}, "Downloads.retention: expected a timedelta or None, came 30"),
        ({"retention": timedelta(0), "target": expiring}, r"Downloads.retention: expected a positive timedelta of whole seconds, came datetime.timedelta\(0\)"),
        ({"retention": timedelta(days=-1), "target": expiring}, "Downloads.retention: expected a positive timedelta"),
        ({"retention": timedelta(seconds=1.5), "target": expiring}, "Downloads.retention: expected a positive timedelta of whole seconds"),
        ({"retention": timedelta(days=30)}, r"Downloads.retention: expected a target with a ttl to keep it in, came Table\("),
        ({"retention": timedelta(days=30), "target": expiring, "window": AllTime()}, "Downloads.retention: expected None for a window that never ends, came datetime.timedelta"),
        ({"late": "drop", "retention": timedelta(days=30), "target": expiring}, "Downloads.late: expected 'ignore' or 'set-aside', came 'drop'"),
        ({"late": "set-aside"}, "Downloads.late: expected 'ignore' where no retention is declared, came 'set-aside'"),
        ({"retention": timedelta(days=30), "target": expiring, "expires": Count()}, "Downloads.expires: expected an attribute that is not the target's time to live already"),
        ({"retention": timedelta(days=30), "target": expiring, "index": Index("ByMonth", pk="expires", sk="DownloadCount")}, "Downloads.index: expected an attribute that is not the target's time to live already"),
        ({"sk_prefix": 5}, "Downloads.sk_prefix: expected text of at most 900 bytes, came 5"),
        ({"Most": Max("x")}, "Downloads.Most: expected changes = 'inserts' beside Min and Max, since an extreme cannot be taken back, came 'all'"),
        ({"Least": Min("x")}, "Downloads.Least: expected changes = 'inserts'"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_says_class_field_expected_and_given(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        declare(**fields)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Table("x", pk="p"), r"Table\('x'\): name: expected 3 to 255 of the characters"),
        (lambda: Table("a b c", pk="p"), "name: expected"),
        (lambda: Table("abc", pk="\ud800"), "pk: expected an attribute name"),
        (lambda: App("app", None), "App 'app': handlers: expected a list, came None"),  # type: ignore[arg-type]
        (lambda: attr("a") & attr("b").exists(), "expected a condition such as"),
        (lambda: ~attr("a"), "expected a condition such as"),
        (lambda: attr("b").exists() | attr("a"), "expected a condition"),
        (lambda: Table(None, pk="p"), "came None"),  # type: ignore[arg-type]
        (lambda: Table("Music", pk=""), r"Table\('Music'\): pk: expected an attribute name of 1 to 255 bytes, came ''"),
        (lambda: Table("Music", pk="p", sk="p"), "sk: expected another attribute than the partition key, came 'p'"),
        (lambda: Table("Music", pk="p", pk_type="X"), "pk_type: expected 'S', 'N' or 'B', came 'X'"),  # type: ignore[arg-type]
        (lambda: Table("Music", pk="p", ttl="p"), "ttl: expected an attribute that is no key, came 'p'"),
        (lambda: Table("Music", pk="p", home="Ireland"), r"Table\('Music'\): home: expected a Region such as 'eu-west-1', came 'Ireland'"),
        (lambda: Table("Music", pk="p", home="eu-west-1a"), "home: expected a Region such as 'eu-west-1', came 'eu-west-1a'"),
        (lambda: Table("Music", pk="p", home=5), "home: expected a Region .* came 5"),  # type: ignore[arg-type]
        (lambda: Index("I", pk="Month", sk="Count"), r"Index\('I'\): name: expected 3 to 255"),
        (lambda: Index("ByMonth", pk="Month", sk="Month"), "sk: expected another attribute"),
        (lambda: Index("ByMonth", pk="Month", sk="Count", prefix=5), r"Index\('ByMonth'\): prefix: expected text of at most 900 bytes, came 5"),  # type: ignore[arg-type]
        (lambda: Index("ByMonth", pk="Month", sk="Count", prefix="x" * 901), "prefix: expected text of at most 900 bytes"),
        (lambda: Index("ByMonth", pk="Month", sk="Count", when=100), r"Index\('ByMonth'\): when: expected at_least\(...\) or None, came 100"),  # type: ignore[arg-type]
        (lambda: Index("ByMonth", pk="Month", sk="Count", shards=0), "shards: expected a whole number from 1 to 100, came 0"),
        (lambda: Index("ByMonth", pk="Month", sk="Count", shards=101), "shards: expected a whole number from 1 to 100, came 101"),
        (lambda: Index("ByMonth", pk="Month", sk="Count", shards=True), "shards: expected a whole number from 1 to 100, came True"),
        (lambda: at_least("Count", 0.5), r"at_least\('Count'\): limit: expected an int or a Decimal, came 0.5"),  # type: ignore[arg-type]
        (lambda: at_least("Count", 10**38 + 1), "limit: expected a number of at most 38 significant digits"),
        (lambda: at_least(5, 5), "at_least: measure: expected a measure's name, came 5"),  # type: ignore[arg-type]
        (lambda: Sum(5), "Sum: of: expected an attribute name, came 5"),  # type: ignore[arg-type]
        (lambda: App("", [declare()]), "App: name: expected lower-case letters, digits and hyphens, at most 63, letter first, came ''"),
        (lambda: App("a", []), "App 'a': handlers: expected at least one, came none"),
        (lambda: App("a", [5]), "App 'a': handlers: expected subclasses of Aggregation, SparseIndex, TtlArchive, came 5"),  # type: ignore[list-item]
    ],
)  # fmt: skip
def test_a_wrong_value_says_where_expected_and_given(make: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        make()


def test_an_aggregates_time_is_its_windows_end_and_the_retention() -> None:
    retained = declare(target=expiring, retention=timedelta(days=30, seconds=1))._declaration
    assert retained.expiry("2018-01") == 1_517_443_200 + 30 * 86_400 + 1
    assert declare(target=expiring)._declaration.expiry("2018-01") is None


@pytest.mark.parametrize("home", ["eu-west-1", "us-gov-east-1", "ap-southeast-4", "eusc-de-east-1"])
def test_a_home_is_a_region(home: str) -> None:
    assert Table("Music", pk="p", home=home).home == home


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({}, "App 'a': Downloads: expected a name of its own, came 'downloads' as in Downloads"),
        (
            {"name": "two"},
            r"expected a sk_prefix of its own, came \('MusicLibrary', '', 'month'\) as in Downloads",
        ),
        (
            {"name": "two", "sk_prefix": "x#", "index": Index("ByMonth", pk="Month", sk="DownloadCount")},
            r"index 'ByMonth': expected a prefix such that neither begins the other \('' of Downloads\), came ''",
        ),
        (
            {"name": "two", "window": Daily("t"), "index": Index("ByMonth", pk="Day", sk="DownloadCount")},
            r"index 'ByMonth': expected the keys \('Month', 'DownloadCount'\) that it has elsewhere",
        ),
        (
            {"name": "two", "source": Table("MusicLibrary", pk="songID"), "window": AllTime()},
            "table 'MusicLibrary': expected one declaration",
        ),
    ],
)
def test_aggregations_that_would_mix_are_refused(second: dict[str, Any], message: str) -> None:
    first = declare(index=Index("ByMonth", pk="Month", sk="DownloadCount"))
    with pytest.raises(DeclarationError, match=message):
        App("a", [first, declare(**second)])


SHARED = {"pk": "Entry", "sk": "DownloadCount"}


@pytest.mark.parametrize(
    ("first", "second", "window", "apart"),
    [
        ("", "", Daily("t"), True),
        ("", "", Monthly("t"), False),
        ("a#", "b#", Monthly("t"), True),
        ("a#", "a#", Daily("t"), True),
        ("a#", "a#", Monthly("t"), False),
        ("a", "ab", Daily("t"), False),
        ("ab", "a", Daily("t"), False),
        ("", "b#", Daily("t"), False),
    ],
)
def test_an_index_is_shared_by_prefixes_of_which_none_begins_the_other(
    first: str, second: str, window: Any, apart: bool
) -> None:
    one = declare(index=Index("Shared", prefix=first, **SHARED))
    other = declare(name="two", sk_prefix="two#", window=window, index=Index("Shared", prefix=second, **SHARED))
    if apart:
        assert len(App("a", [one, other]).aggregations) == 2
    else:
        with pytest.raises(DeclarationError, match="expected a prefix such that neither begins the other"):
            App("a", [one, other])


def test_no_measure_has_the_name_of_anothers_index_key_in_the_same_table() -> None:
    first = declare(index=Index("ByMonth", pk="Month", sk="DownloadCount"))
    second = declare(name="two", sk_prefix="two#", DownloadCount=..., Month=Count())
    message = "expected a measure with another name than the partition key of index 'ByMonth', came 'Month'"
    for order in ([first, second], [second, first]):
        with pytest.raises(DeclarationError, match=message):
            App("a", order)


def test_no_aggregate_is_in_the_index_of_another_by_its_attributes() -> None:
    def two(**fields: Any) -> Any:
        return declare(name="two", sk_prefix="two#", Plays=Count(), **fields)

    first = declare(index=Index("ByMonth", pk="Month", sk="DownloadCount"))
    mixed = two(index=Index("ByPlays", pk="Month", sk="Plays"))
    same = two(index=Index("Again", pk="Month", sk="DownloadCount"))
    for other in (mixed, same):
        for order in ([first, other], [other, first]):
            with pytest.raises(DeclarationError, match="expected another partition key than 'Month', or the index"):
                App("a", order)
    for other in (
        two(index=Index("ByPlays", pk="PlayMonth", sk="Plays")),
        two(index=Index("ByPlays", pk="Month", sk="Plays"), DownloadCount=...),
        two(index=Index("ByMonth", pk="Month", sk="DownloadCount", prefix="two#")),
        two(),
    ):
        prefixed = declare(index=Index("ByMonth", pk="Month", sk="DownloadCount", prefix="one#"))
        assert len(App("a", [prefixed, other]).aggregations) == 2


@pytest.mark.parametrize(
    ("shards", "prefix", "group", "key"),
    [
        (1, "", "blue", "2018-01"),
        (1, "songs#", "blue", "songs#2018-01"),
        # For ever, and in every process: what these say is where entries are.
        (8, "", "blue", "2018-01#4"),
        (8, "", "red", "2018-01#7"),
        (8, "", "grün", "2018-01#5"),
        (100, "songs#", "a#b", "songs#2018-01#32"),
    ],
)
def test_an_entrys_key_is_prefix_label_and_the_shard_of_its_group(
    shards: int, prefix: str, group: str, key: str
) -> None:
    index = Index("ByMonth", pk="Month", sk="DownloadCount", shards=shards, prefix=prefix)
    assert index.key(group, "2018-01") == key
    assert key in index.keys("2018-01")


@pytest.mark.parametrize("former", [1, 2, 7, 8])
def test_where_shards_were_raised_the_former_keys_are_among_those_that_are_read(former: int) -> None:
    before, after = (Index("ByMonth", pk="Month", sk="DownloadCount", shards=n) for n in (former, 8))
    assert set(before.keys("2018-01")) <= set(after.keys("2018-01"))


def test_aggregations_of_one_table_live_together_under_a_prefix_or_another_window() -> None:
    app = App("a", [declare(), declare(name="two", sk_prefix="two#"), declare(name="three", window=Daily("t"))])
    assert [d.name for d in app.sourced_from("MusicLibrary")] == ["downloads", "two", "three"]
    assert app.tables == (music,)


def test_a_base_class_shares_fields_and_measures() -> None:
    class Base(Aggregation, abstract=True):
        source = music
        window = AllTime()
        Downloads = Count()

    class Two(Base):
        name = "two"
        group_by = ("songID", "SK")
        Total = Sum("size")

    assert [slot.attribute for slot in Two._declaration.slots] == ["Downloads", "Total"]
    with pytest.raises(DeclarationError, match="App 'a': handlers: expected subclasses"):
        App("a", [Base])


@pytest.mark.parametrize(
    ("group_by", "values", "text"),
    [
        ("songID", ("a#b%",), "a#b%"),
        ("songID", (5,), "5"),
        (("a", "b"), ("x#y", "z"), "x%23y#z"),
        (("a", "b"), ("x", "y#z"), "x#y%23z"),
        (("a", "b"), ("%23", "#"), "%2523#%23"),
        (("a", "b"), ("", ""), "#"),
        (("a", "b"), (True, 1), "true#1"),
    ],
)
def test_groups_make_keys_that_never_meet(group_by: Any, values: tuple[Any, ...], text: str) -> None:
    declaration = declare(group_by=group_by)._declaration
    assert declaration.group_key(*values) == text
    group, label = declaration.group_of(declaration.key(text, "2018-01", 0))
    texts = tuple("true" if v is True else str(v) for v in values)
    assert (group, label) == (texts if len(values) > 1 else texts[0], "2018-01")


@pytest.mark.parametrize("sk", ["SK", None])
@pytest.mark.parametrize("partitions", [1, 12])
@pytest.mark.parametrize("prefix", ["", "p#"])
def test_a_key_is_read_back_as_the_group_and_window_that_made_it(sk: str | None, partitions: int, prefix: str) -> None:
    target = Table("Other", pk="key", sk=sk)
    declaration = declare(target=target, partitions=partitions, sk_prefix=prefix)._declaration
    key = declaration.key("song#1", "2018-01", partitions - 1)
    assert set(key) == set(target.keys)
    assert declaration.group_of(key) == ("song#1", "2018-01")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("handlers.app", "expected MODULE:VARIABLE such as 'handlers.app:app', came 'handlers.app'"),
        (
            "nowhere.at_all:app",
            "expected a module that can be imported, came ModuleNotFoundError: No module named 'nowhere'",
        ),
        ("handlers.app:nothing", "expected 'nothing' to be an App, came None"),
        ("handlers.app:App", "expected 'App' to be an App, came <class"),
    ],
)
def test_an_app_that_is_not_there_is_one_sentence(path: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        load_app(path)


def test_the_app_of_the_handlers_loads() -> None:
    app = load_app("handlers.app:app")
    assert app.aggregation("monthly-downloads").name == "monthly-downloads"
    with pytest.raises(ConfigurationError, match=r"expected an aggregation .'monthly-downloads'., came 'x'"):
        app.aggregation("x")
    with pytest.raises(ConfigurationError, match=r"expected a source table .'MusicLibrary'., came 'Other'"):
        app.sourced_from("Other")


def test_the_public_names_are_what_is_visible() -> None:
    visible = {name for name, value in vars(framework).items() if not name.startswith("_")}
    modules = {name for name in visible if isinstance(getattr(framework, name), ModuleType)}
    assert visible - modules == set(framework.__all__)


def test_importing_framework_loads_neither_boto3_nor_the_cdk_nor_powertools() -> None:
    code = "import framework, sys; print({m.split('.')[0] for m in sys.modules} & {'boto3', 'botocore', 'aws_cdk', 'aws_lambda_powertools'})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_condition_reads_like_its_declaration() -> None:
    assert "download-" in repr(attr("SK").begins_with("download-"))
