"""`SparseIndex`: the class a user subclasses, checked when the subclass is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from framework.checker import Checker, Text
from framework.codec import AttributeValue, encode, is_text
from framework.conditions import Attribute, Condition
from framework.errors import BadValueError
from framework.lanes import LANE_PREFIX, MARK
from framework.paths import parse
from framework.sparse import MOST_READ, SparseDeclaration, managed_keys, wrong_key
from framework.tables import Index, Table

__all__ = ["SparseIndex"]

# DynamoDB developer guide, quotas: attributes that an index projects beside keys.
_MOST_INCLUDED = 20


class SparseIndex:
    """An index that holds some of a table's items, kept right from the table's stream.

    Subclass it, set the fields below, and list the class in an `App`. An item is in the index as long as it has an
    *entry*: values for those of the index's keys that are none of the table's own. Streamfold sets them on the item
    when it gets an entry or another one, and removes them when it has none any more; it writes nothing else, and
    nobody else may write these attributes. A wrong declaration raises `DeclarationError` when the class is made. A
    base class that only shares fields says `class Base(SparseIndex, abstract=True)`.

    Attributes:
        name: Lower-case words with hyphens.
        source: The table whose items are indexed. Items that Streamfold itself wrote are in no sparse index.
        index: The index. Its keys may be keys of the table, but not both of them. Several share one, each by a prefix.
        when: Which items have an entry, as a condition made with `attr(...)`; all if not set.
        key: What the index's partition key holds, where it is none of the table's: `attr("placed")` for a copy of
            that attribute, or a value that is always the same.
        sort: What the index's sort key holds, likewise.
        entry: Instead of `key` and `sort`, a static method that takes an item (a read-only mapping of Python values,
            without the attributes that the app's sparse indexes of the table write) and returns its entry, a `dict` of
            exactly the entry's attributes, or None if it has none. It has to come to the same for the same item,
            whenever it is called.
        include: Attributes that the index holds beside the keys of index and table.
        most_bad: The share of a batch that may be set aside, 0 to 1, once it is ten records or more. Beyond it, a bad
            deployment is likelier than bad data: the batch fails and comes again.
    """

    name: ClassVar[str]
    source: ClassVar[Table]
    index: ClassVar[Index]
    when: ClassVar[Condition | None] = None
    key: ClassVar[object] = None
    sort: ClassVar[object] = None
    entry: ClassVar[Callable[..., Any] | None] = None
    include: ClassVar[tuple[str, ...]] = ()
    most_bad: ClassVar[float] = 0.5

    # As declared, and with the tables' names in the account (`load_app`).
    _declared: ClassVar[SparseDeclaration]
    _declaration: ClassVar[SparseDeclaration]

    def __init_subclass__(cls, *, abstract: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not abstract:
            cls._declared = cls._declaration = _Checker(cls).declaration()


class _Checker(Checker):
    """Checks one subclass, field by field, and resolves it."""

    cls: type[SparseIndex]
    root = SparseIndex
    kind = "a sparse index"

    def declaration(self) -> SparseDeclaration:
        source = self.field("source", Table, "a Table")
        index = self.field("index", Index, "an Index")
        self.refuse_unknown_fields()
        self.check_index(source, index)
        entry, holds = self.entry(source, index)
        when = self.field("when", Condition, "a condition made with attr(...)", optional=True)
        declaration = SparseDeclaration(
            name=self.name(),
            source=source,
            index=index,
            when=when,
            entry=entry,
            holds=holds,
            include=self.include(source, index),
            most_bad=self.most_bad(),
        )
        self.check_reads(declaration)
        return declaration

    def check_index(self, source: Table, index: Index) -> None:
        managed = managed_keys(source, index)
        if not managed:
            raise self.wrong("index", "a key that is none of the table's, for an item to be in it or not", index)
        if index.when is not None or index.shards != 1:
            raise self.wrong("index", "neither when nor shards, which are for aggregates", index)
        if index.prefix and (index.pk not in managed or managed[index.pk][0] != "S"):
            raise self.wrong("index", "a prefix only before a partition key that is text and not the table's", index)
        for name in managed:
            if name == source.ttl:
                raise self.wrong("index", "keys other than the table's time to live", name)
            if name.startswith(LANE_PREFIX):
                raise self.wrong("index", f"names that do not begin with {LANE_PREFIX!r}", name)
        for name, declared in ((index.pk, index.pk_type), (index.sk, index.sk_type)):
            of_table = source.key_types.get(name)
            if of_table is not None and declared not in (None, of_table):
                raise self.wrong("index", f"the type {of_table!r} that the table's key {name!r} has", declared)

    def entry(self, source: Table, index: Index) -> tuple[Callable[[Any], Any] | None, dict[str, Any] | None]:
        """The function, or what each attribute of the entry holds."""
        expected = "a static method that takes an item"
        found = self.function("entry", expected)
        declared = {"key": index.pk, "sort": index.sk}
        given = {field: getattr(self.cls, field) for field in declared if getattr(self.cls, field) is not None}
        if found is not None:
            if not inspect.isfunction(found):
                raise self.wrong("entry", expected, found)
            for field in given:
                raise self.wrong(field, "none beside entry", given[field])
            return found, None
        managed = managed_keys(source, index)
        for field, name in declared.items():
            if name in managed and field not in given:
                raise self.wrong(field, f"what {name!r} holds, since half a key is none", Text("nothing"))
            if name not in managed and field in given:
                raise self.wrong(field, f"none, since {name!r} is the table's own key", given[field])
        holds = {declared[field]: self.held(field, given[field], managed[declared[field]]) for field in given}
        key = holds.get(index.pk)
        if isinstance(key, dict) and index.prefix and wrong_key({"S": index.prefix + key["S"]}, managed[index.pk]):
            raise self.wrong("key", "a value that fits into the index's key with its prefix", given["key"])
        return None, holds

    def held(self, field: str, came: object, key: Any) -> Attribute | AttributeValue:
        if isinstance(came, Attribute):
            return came
        try:
            value = encode(came)
        except BadValueError as error:
            raise self.wrong(field, f"attr(...) or a value ({error})", came) from None
        reason = wrong_key(value, key)
        if reason is not None:
            raise self.wrong(field, f"attr(...) or a value that the index's key can have ({reason})", came)
        return value

    def include(self, source: Table, index: Index) -> tuple[str, ...]:
        found: Any = self.cls.include
        taken = (*source.keys, index.pk, index.sk)
        if not isinstance(found, tuple) or not all(is_text(name, 1, 255) for name in found):
            raise self.wrong("include", "a tuple of attribute names of 1 to 255 bytes", found)
        if len(found) > _MOST_INCLUDED:
            raise self.wrong("include", f"{_MOST_INCLUDED} attributes at most", found)
        for name in found:
            if name == MARK or name in taken or found.count(name) > 1:
                raise self.wrong("include", "each attribute once, and no key, which an index holds anyway", name)
        return tuple(sorted(found))

    def check_reads(self, declaration: SparseDeclaration) -> None:
        """An entry may not hang on itself, nor on more than a condition can hold."""
        for path in declaration.paths:
            if parse(path)[0] in declaration.managed:
                field = "when" if declaration.when is not None and path in declaration.when.paths() else "key or sort"
                raise self.wrong(field, "an attribute that is none of the entry's", path)
        read = {parse(path)[0] for path in declaration.paths}
        if len(read) > MOST_READ:
            raise self.wrong("when", f"at most {MOST_READ} attributes", Text(str(len(read))))
