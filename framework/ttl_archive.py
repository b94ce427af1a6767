"""`TtlArchive`: the class a user subclasses, checked when the subclass is made."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from framework.archive import ArchiveDeclaration
from framework.checker import Checker, Text
from framework.codec import is_text
from framework.conditions import Condition
from framework.tables import Table
from framework.windows import Daily, Monthly, Window, Yearly

__all__ = ["TtlArchive"]

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=-]*(/[A-Za-z0-9][A-Za-z0-9_.=-]*)*")
_MOST_PREFIX = 200
# From warm to cold, each with the days after which S3 takes an object at the earliest (S3 user guide, "Transitioning
# objects using Amazon S3 Lifecycle"). Of the last two, an object has to be restored before it can be read.
_CLASSES = {"STANDARD_IA": 30, "ONEZONE_IA": 30, "GLACIER_IR": 0, "GLACIER": 0, "DEEP_ARCHIVE": 0}


class TtlArchive:
    """An archive of the items that a table's time to live removes, kept from the table's stream.

    Subclass it, set the fields below, and list the class in an `App`. Each item is in the archive once for each time
    that it expired: a line of DynamoDB JSON with its types as they were, in a compressed object that DynamoDB can
    import and Athena can read. Aggregates, which Streamfold itself wrote, are not archived. A wrong declaration raises
    `DeclarationError` when the class is made. A base class that only shares fields says
    `class Base(TtlArchive, abstract=True)`.

    Attributes:
        name: Lower-case words with hyphens. The archive's state hangs on it: another `prefix` or `partition` needs
            another name, since what is in the archive is filed by the former ones.
        source: The table. It has a time to live, unless `also_deletes`.
        where: Which items are archived, as a condition made with `attr(...)`; all if not set.
        also_deletes: Whether items that somebody deletes are archived as well.
        only: The attributes that are kept, beside the keys; all if not set.
        without: Attributes that are not kept, instead of `only`.
        prefix: What the names of the objects begin with; the archive's name if not set.
        partition: How the archive is divided: `Daily`, `Monthly` or `Yearly` of an attribute, as
            `Monthly("createdAt")`; by the day on which an item was deleted if not set.
        storage: After how many days objects move to a colder storage class, as `{"GLACIER_IR": 90}`.
        delete_after: After how many days objects are deleted; never if not set.
        most_bad: The share of a batch that may be set aside, 0 to 1, once it is ten records or more. Beyond it, a bad
            deployment is likelier than bad data: the batch fails and comes again.
    """

    name: ClassVar[str]
    source: ClassVar[Table]
    where: ClassVar[Condition | None] = None
    also_deletes: ClassVar[bool] = False
    only: ClassVar[tuple[str, ...] | None] = None
    without: ClassVar[tuple[str, ...]] = ()
    prefix: ClassVar[str | None] = None
    partition: ClassVar[Window | None] = None
    storage: ClassVar[dict[str, int] | None] = None
    delete_after: ClassVar[int | None] = None
    most_bad: ClassVar[float] = 0.5

    # As declared, and with the tables' names in the account (`load_app`).
    _declared: ClassVar[ArchiveDeclaration]
    _declaration: ClassVar[ArchiveDeclaration]

    def __init_subclass__(cls, *, abstract: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not abstract:
            cls._declared = cls._declaration = _Checker(cls).declaration()


class _Checker(Checker):
    """Checks one subclass, field by field, and resolves it."""

    cls: type[TtlArchive]
    root = TtlArchive
    kind = "an archive"

    def declaration(self) -> ArchiveDeclaration:
        source = self.field("source", Table, "a Table")
        self.refuse_unknown_fields()
        also_deletes: Any = self.cls.also_deletes
        if not isinstance(also_deletes, bool):
            raise self.wrong("also_deletes", "True or False", also_deletes)
        if source.ttl is None and not also_deletes:
            raise self.wrong("source", "a Table with a time to live (ttl=...), or also_deletes = True", source)
        only, without = self.kept(source)
        name = self.name()
        storage, delete_after = self.lifecycle()
        return ArchiveDeclaration(
            name=name,
            source=source,
            where=self.field("where", Condition, "a condition made with attr(...)", optional=True),
            also_deletes=also_deletes,
            only=only,
            without=without,
            prefix=self.prefix(name),
            partition=self.partition(),
            storage=storage,
            delete_after=delete_after,
            most_bad=self.most_bad(),
        )

    def kept(self, source: Table) -> tuple[frozenset[str] | None, frozenset[str]]:
        """Which attributes are kept, beside the keys, and which are not."""
        only: Any = self.cls.only
        without: Any = self.cls.without
        for field, found in (("only", () if only is None else only), ("without", without)):
            if not isinstance(found, tuple) or not all(is_text(name, 1, 65_535) for name in found):
                raise self.wrong(field, "a tuple of attribute names", found)
        if only is not None and without:
            raise self.wrong("without", "none beside only", without)
        for name in without:
            if name in source.keys:
                raise self.wrong("without", "no key of the table, by which an item is restored", name)
        return None if only is None else frozenset(only) | {*source.keys}, frozenset(without)

    def prefix(self, name: str) -> str:
        found: Any = name if self.cls.prefix is None else self.cls.prefix
        if not isinstance(found, str) or len(found) > _MOST_PREFIX or not _PREFIX.fullmatch(found):
            expected = f"names of letters, digits and _ . = - with slashes between, at most {_MOST_PREFIX} characters"
            raise self.wrong("prefix", expected, found)
        return found

    def partition(self) -> Window | None:
        found: Any = self.cls.partition
        if found is not None and not isinstance(found, Daily | Monthly | Yearly):
            raise self.wrong("partition", "Daily(...), Monthly(...) or Yearly(...) of an attribute", found)
        return found

    def lifecycle(self) -> tuple[dict[str, int], int | None]:
        storage: Any = {} if self.cls.storage is None else self.cls.storage
        last = 0
        classes = [*_CLASSES]
        if not isinstance(storage, dict) or any(name not in _CLASSES for name in storage):
            raise self.wrong("storage", f"days by storage class ({', '.join(classes)})", storage)
        if [*storage] != sorted(storage, key=classes.index):
            raise self.wrong(
                "storage", f"colder classes after warmer ones ({', '.join(classes)})", Text(", ".join(storage))
            )
        for name, days in storage.items():
            least = max(_CLASSES[name], last + 30 if last else 0, 1)
            if type(days) is not int or days < least:
                raise self.wrong("storage", f"a whole number of days for {name}, {least} or more", days)
            last = days
        after: Any = self.cls.delete_after
        if after is not None and (type(after) is not int or after <= last):
            raise self.wrong("delete_after", f"a whole number of days above {last}", after)
        return dict(storage), after
