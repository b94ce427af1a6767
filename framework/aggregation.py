"""`Aggregation`: the class a user subclasses, checked when the subclass is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any, ClassVar

from framework import reading
from framework.checker import Checker, Text
from framework.codec import is_text
from framework.conditions import Condition
from framework.declaration import Changes, Declaration, GroupBy, Late, OnExpiry
from framework.lanes import LANE_PREFIX
from framework.measures import Count, Max, Measure, Min, Number, Sum
from framework.reading import Aggregate, Page, Ranking, Series
from framework.tables import AtLeast, Index, Table
from framework.windows import Window

__all__ = ["Aggregation"]


class Aggregation:
    """A count, sum or average per group and window, kept exact from a table's stream.

    Subclass it, set the fields below and at least one measure, and list the class in an `App`. A wrong
    declaration raises `DeclarationError` when the class is made. A base class that only shares fields says
    `class Base(Aggregation, abstract=True)`.

    Attributes:
        name: Lower-case words with hyphens. Stable: what each item has absorbed is remembered under it.
        source: The table whose changes are counted. Items that Streamfold itself wrote never count.
        target: The table that holds the aggregates; `source` if not set.
        where: Which items count, as a condition made with `attr(...)`; all if not set.
        group_by: One attribute, several as a tuple, or a static method that takes an item (a `dict` of Python
            values) and returns the group's value, a tuple of several, or None to leave the item out.
        window: `Hourly`, `Daily`, `Weekly`, `Monthly`, `Yearly` over an attribute with the event's time, or
            `AllTime()`.
        index: A sparse index that holds the aggregates, or with `when` some of them, in order.
        partitions: Over how many items to spread one aggregate that many shards feed (1 to 100). Reads add
            them up. Changing it, like changing the group or the window, calls for a new name.
        on_expiry: `"keep"` what an item added when its time to live removes it, or `"retract"` it.
        changes: `"all"`, so that edits move and deletes take back, or `"inserts"` only.
        most_bad: The share of a batch that may be set aside, 0 to 1, once it is ten records or more. Beyond it, a bad
            deployment is likelier than bad data: the batch fails and comes again.
        sk_prefix: Text before the window's label in the aggregate's key, where two aggregations share a table.
        retention: How long after its window's end an aggregate is kept, in the target's `ttl`; for ever if not set.
        late: What becomes of a change to an aggregate whose time was over when the change was made: `"ignore"` it,
            which is counted, or `"set-aside"` the record as a bad one.
    """

    name: ClassVar[str]
    source: ClassVar[Table]
    target: ClassVar[Table | None] = None
    where: ClassVar[Condition | None] = None
    group_by: ClassVar[str | tuple[str, ...] | Callable[..., Any]]
    window: ClassVar[Window]
    index: ClassVar[Index | None] = None
    partitions: ClassVar[int] = 1
    on_expiry: ClassVar[OnExpiry] = "keep"
    changes: ClassVar[Changes] = "all"
    most_bad: ClassVar[float] = 0.5
    sk_prefix: ClassVar[str] = ""
    retention: ClassVar[timedelta | None] = None
    late: ClassVar[Late] = "ignore"

    # As declared, and with the tables' names in the account (`load_app`).
    _declared: ClassVar[Declaration]
    _declaration: ClassVar[Declaration]

    def __init_subclass__(cls, *, abstract: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not abstract:
            cls._declared = cls._declaration = _Checker(cls).declaration()

    @classmethod
    def get(cls, group: object, window: str | date, *, client: Any = None) -> Aggregate | None:
        """The aggregate of one group in one window, or None where nothing counts (as a Count or an Average tells).

        Args:
            group: The group's value, or a tuple with one value for each of several attributes.
            window: The window's label (`"2018-01"`), or a date or datetime in it.
            client: A boto3 DynamoDB client; the default one if not given.

        Raises:
            ReadError: A label that this window does not have, or a wrong number of group values.
        """
        return reading.get(cls._declaration, group, window, client)

    @classmethod
    def top(
        cls,
        window: str | date,
        n: int = 10,
        *,
        at_least: Number | None = None,
        at_most: Number | None = None,
        start: int = 1,
        token: str | None = None,
        client: Any = None,
    ) -> Page:
        """The `n` aggregates of a window with the greatest indexed measure, greatest first.

        Equal ones come by the group's key, whatever the index's shards. Reads the index, so it may lag behind the last
        write by moments, and with `when` it holds only what reaches the threshold.

        Args:
            window: The window's label, or a date or datetime in it.
            n: How many.
            at_least: The least value of the indexed measure to read (an `int` or a `Decimal`); None for no such bound.
                What lies outside the bounds is not read, unless the aggregation has `partitions`.
            at_most: The greatest one, likewise.
            start: The rank of the first among those within the bounds; what stands before it is read, too.
            token: The `token` of an earlier page with the same bounds, to go on after it.
            client: A boto3 DynamoDB client; the default one if not given.

        Raises:
            ReadError: The aggregation has no index, or the label, a number or the token is wrong.
        """
        return reading.page(
            cls._declaration, window, n, client, at_least=at_least, at_most=at_most, start=start, token=token
        )

    @classmethod
    def bottom(
        cls,
        window: str | date,
        n: int = 10,
        *,
        at_least: Number | None = None,
        at_most: Number | None = None,
        start: int = 1,
        token: str | None = None,
        client: Any = None,
    ) -> Page:
        """The `n` aggregates of a window with the least indexed measure, least first; otherwise as `top`."""
        return reading.page(
            cls._declaration,
            window,
            n,
            client,
            least_first=True,
            at_least=at_least,
            at_most=at_most,
            start=start,
            token=token,
        )

    @classmethod
    def all(
        cls,
        window: str | date,
        *,
        at_least: Number | None = None,
        at_most: Number | None = None,
        token: str | None = None,
        client: Any = None,
    ) -> Ranking:
        """Every aggregate of a window, or those within bounds, in the order of `top`, a page at a time as it is read.

        Returns:
            An iterator; its `read_units` are what it has cost so far, its `token` is where another one goes on.

        Raises:
            ReadError: The aggregation has no index, or the label, a bound or the token is wrong.
        """
        return reading.Ranking(cls._declaration, window, client, at_least=at_least, at_most=at_most, token=token)

    @classmethod
    def series(cls, group: object, first: str | date, last: str | date, *, client: Any = None) -> Series:
        """The aggregates of one group in every window from one to another, and what they come to together.

        Reads consistently, and needs no index.

        Args:
            group: As `get` takes it.
            first: The first window's label, or a date or datetime in it.
            last: The last one's.
            client: A boto3 DynamoDB client; the default one if not given.

        Raises:
            ReadError: As by `get`, or the last window comes before the first.
        """
        return reading.series(cls._declaration, group, first, last, client)


class _Checker(Checker):
    """Checks one subclass, field by field, and resolves it."""

    cls: type[Aggregation]
    root = Aggregation
    kind = "an aggregation"

    def declaration(self) -> Declaration:
        source = self.field("source", Table, "a Table")
        target = self.field("target", Table, "a Table or None", optional=True) or source
        index = self.field("index", Index, "an Index or None", optional=True)
        self.refuse_unknown_fields()
        measures = self.measures()
        slots = tuple(slot for name, measure in measures.items() for slot in measure.slots(name))
        declaration = Declaration(
            name=self.name(),
            source=source,
            target=target,
            where=self.field("where", Condition, "a condition made with attr(...)", optional=True),
            group_by=self.group_by(),
            window=self.field("window", Window, "a window such as Monthly('Timestamp')"),
            measures=measures,
            slots=slots,
            index=index,
            partitions=self.partitions(),
            on_expiry=self.choice("on_expiry", ("keep", "retract")),
            changes=self.choice("changes", ("all", "inserts")),
            most_bad=self.most_bad(),
            sk_prefix=self.sk_prefix(),
            retention=self.field("retention", timedelta, "a timedelta or None", optional=True),
            late=self.choice("late", ("ignore", "set-aside")),
        )
        self.check_target(declaration)
        self.check_attributes(declaration)
        self.check_extremes(declaration)
        self.check_retention(declaration)
        return declaration

    def partitions(self) -> int:
        count = self.cls.partitions
        if type(count) is not int or not 1 <= count <= 100:
            raise self.wrong("partitions", "a whole number from 1 to 100", count)
        return count

    def sk_prefix(self) -> str:
        prefix = self.cls.sk_prefix
        # A sort key has at most 1,024 bytes; a label and a partition need some of them.
        if not is_text(prefix, 0, 900):
            raise self.wrong("sk_prefix", "text of at most 900 bytes", prefix)
        return prefix

    def group_by(self) -> GroupBy:
        expected = "an attribute, a tuple of attributes, or a static method that takes an item"
        found = self.function("group_by", expected)
        if inspect.isfunction(found):
            return found
        paths = (found,) if isinstance(found, str) else found
        if not isinstance(paths, tuple) or not paths:
            raise self.wrong("group_by", expected, found)
        for path in paths:
            self.check_path("group_by", path)
        return paths

    def measures(self) -> dict[str, Measure]:
        values = {name: getattr(self.cls, name, None) for name in self.names()}
        found = {name: value for name, value in values.items() if isinstance(value, Measure)}
        if not found:
            raise self.wrong("measures", "at least one, such as DownloadCount = Count()", Text("none"))
        for name, measure in found.items():
            if hasattr(Aggregation, name) or name in ("group", "values"):
                raise self.wrong(
                    name, "another name, since every aggregation or aggregate has a member of this one", measure
                )
            for slot in measure.slots(name):
                if slot.of is not None:
                    self.check_path(name, slot.of)
        return found

    def check_target(self, declaration: Declaration) -> None:
        target = declaration.target
        if target.sk is not None and target.sk_type != "S":
            raise self.wrong("target", "a table whose sort key is text, for labels such as '2018-01'", target)
        several = declaration.several or callable(declaration.group_by)
        if target.pk_type != "S" and (target.sk is None or several or target.pk_type == "B"):
            raise self.wrong("target", "a table whose partition key is text, for this group_by", target)

    def check_attributes(self, declaration: Declaration) -> None:
        """No attribute of an aggregate item may be written for two reasons."""
        taken: dict[str, str] = dict.fromkeys(declaration.target.keys, "a key of the target")
        if declaration.target.ttl is not None:
            taken[declaration.target.ttl] = "the target's time to live"
        for slot in declaration.slots:
            self.take(taken, slot.attribute, "kept by a measure", slot.attribute)
        index = declaration.index
        if index is None:
            return
        self.take(taken, index.pk, "the index's partition key", "index")
        if taken.get(index.sk) != "kept by a measure":
            names = ", ".join(repr(slot.attribute) for slot in declaration.slots)
            raise self.wrong("index", f"a sort key that a measure keeps ({names})", index)
        if index.pk_type not in (None, "S") or index.sk_type not in (None, "N"):
            raise self.wrong("index", "a partition key that is text and a sort key that is a number", index)
        if index.when is not None:
            self.check_threshold(declaration, index.when)

    def check_threshold(self, declaration: Declaration, when: AtLeast) -> None:
        summed = [name for name, measure in declaration.measures.items() if isinstance(measure, Count | Sum)]
        if when.measure not in summed:
            names = ", ".join(map(repr, summed)) or "none here"
            raise self.wrong("index", f"when: at_least of a Count or a Sum ({names})", when)
        if declaration.partitions > 1:
            raise self.wrong(
                "index", "no when beside partitions, since none of an aggregate's items knows its total", when
            )

    def take(self, taken: dict[str, str], attribute: str, purpose: str, field: str) -> None:
        if attribute in taken:
            raise self.wrong(field, f"an attribute that is not {taken[attribute]} already", attribute)
        if attribute.startswith(LANE_PREFIX):
            raise self.wrong(field, f"a name that does not begin with {LANE_PREFIX!r}", attribute)
        taken[attribute] = purpose

    def check_extremes(self, declaration: Declaration) -> None:
        for name, measure in declaration.measures.items():
            if isinstance(measure, Min | Max) and declaration.changes != "inserts":
                raise self.wrong(
                    name,
                    "changes = 'inserts' beside Min and Max, since an extreme cannot be taken back",
                    declaration.changes,
                )

    def check_retention(self, declaration: Declaration) -> None:
        retention = declaration.retention
        if retention is None:
            if declaration.late != "ignore":
                raise self.wrong("late", "'ignore' where no retention is declared", declaration.late)
            return
        if retention <= timedelta(0) or retention.microseconds:
            raise self.wrong("retention", "a positive timedelta of whole seconds", retention)
        if declaration.window.attribute is None:
            raise self.wrong("retention", "None for a window that never ends", retention)
        if declaration.target.ttl is None:
            raise self.wrong("retention", "a target with a ttl to keep it in", declaration.target)
