"""`App`: the handlers that are deployed together, checked against each other."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar, overload

from framework.aggregation import Aggregation
from framework.checker import NAME, NAME_RULE
from framework.declaration import Declaration
from framework.errors import ConfigurationError, DeclarationError, StreamfoldError, shortened
from framework.paths import parse
from framework.sparse import MOST_READ, MOST_SHARING, Handler, SparseDeclaration
from framework.sparse_index import SparseIndex
from framework.tables import Table
from framework.ttl_archive import TtlArchive

__all__ = ["App", "load_app"]

AnyHandler: TypeAlias = Aggregation | SparseIndex | TtlArchive
AHandler = TypeVar("AHandler", Aggregation, SparseIndex, TtlArchive, AnyHandler)
_KINDS = (Aggregation, SparseIndex, TtlArchive)


class App:
    """Handlers that are deployed together.

    Args:
        name: The app's name: lower-case words with hyphens.
        handlers: The subclasses of `Aggregation`, `SparseIndex` and `TtlArchive`.

    Attributes:
        handlers: All of them, in the order of the list.
        aggregations: The aggregations among them.
        sparse_indexes: The sparse indexes among them.
        archives: The archives among them.

    Raises:
        DeclarationError: Two handlers with one name, two that would write the same items, attributes, index or
            objects, or two `Table` values that declare one table differently.
    """

    def __init__(self, name: str, handlers: Iterable[type[AnyHandler]]) -> None:
        self.name = name
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise DeclarationError(f"App: name: expected {NAME_RULE}, came {shortened(name)}")
        if not isinstance(handlers, Iterable):
            raise DeclarationError(f"App {name!r}: handlers: expected a list, came {shortened(handlers)}")
        self.handlers = tuple(handlers)
        if not self.handlers:
            raise DeclarationError(f"App {name!r}: handlers: expected at least one, came none")
        for cls in self.handlers:
            if not (isinstance(cls, type) and issubclass(cls, _KINDS) and hasattr(cls, "_declaration")):
                kinds = ", ".join(kind.__name__ for kind in _KINDS)
                raise DeclarationError(f"App {name!r}: handlers: expected subclasses of {kinds}, came {shortened(cls)}")
        self.aggregations = tuple(cls for cls in self.handlers if issubclass(cls, Aggregation))
        self.sparse_indexes = tuple(cls for cls in self.handlers if issubclass(cls, SparseIndex))
        self.archives = tuple(cls for cls in self.handlers if issubclass(cls, TtlArchive))
        self._check_tables()
        self._check_apart()
        self._check_sparse()
        self._check_archives()

    @property
    def declarations(self) -> tuple[Handler, ...]:
        """What each handler declares, in the order of the list: as `declaration_of` tells it."""
        return tuple(map(self.declaration_of, self.handlers))

    @overload
    def declaration_of(self, cls: type[Aggregation]) -> Declaration: ...

    @overload
    def declaration_of(self, cls: type[SparseIndex]) -> SparseDeclaration: ...

    @overload
    def declaration_of(self, cls: type[AnyHandler]) -> Handler: ...

    def declaration_of(self, cls: type[AnyHandler]) -> Handler:
        """What one of the handlers declares; of a sparse index, with what it has to know of the others of its table."""
        d = cls._declaration
        if not isinstance(d, SparseDeclaration):
            return d
        ours = [each._declaration for each in self.sparse_indexes if each._declaration.source.name == d.source.name]
        hidden = frozenset(name for each in ours for name in each.managed)
        sharing = (each for each in ours if each.index.name == d.index.name and each.name != d.name)
        return replace(d, hidden=hidden, siblings=tuple(replace(each, hidden=hidden) for each in sharing))

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every table that is read or written, each once."""
        return tuple({t.name: t for d in self.declarations for t in (d.source, d.target)}.values())

    def sourced_from(self, table: str) -> tuple[Handler, ...]:
        """The declarations that read the stream of a table.

        Raises:
            ConfigurationError: None does.
        """
        found = tuple(d for d in self.declarations if d.source.name == table)
        if not found:
            names = ", ".join(sorted({repr(d.source.name) for d in self.declarations}))
            raise ConfigurationError(f"app {self.name!r}: expected a source table ({names}), came {table!r}")
        return found

    def written_to(self, table: str) -> tuple[Handler, ...]:
        """The declarations of what writes to a table."""
        return tuple(d for d in self.declarations if d.target.name == table)

    def aggregation(self, name: str) -> type[Aggregation]:
        """The aggregation of a name.

        Raises:
            ConfigurationError: There is none.
        """
        return self._named(name, self.aggregations, "an aggregation")

    def sparse_index(self, name: str) -> type[SparseIndex]:
        """The sparse index of a name.

        Raises:
            ConfigurationError: There is none.
        """
        return self._named(name, self.sparse_indexes, "a sparse index")

    def archive(self, name: str) -> type[TtlArchive]:
        """The archive of a name.

        Raises:
            ConfigurationError: There is none.
        """
        return self._named(name, self.archives, "an archive")

    def handler(self, name: str) -> type[AnyHandler]:
        """The handler of a name, of any kind.

        Raises:
            ConfigurationError: There is none.
        """
        return self._named(name, self.handlers, "a handler")

    def _named(self, name: str, among: Iterable[type[AHandler]], expected: str) -> type[AHandler]:
        for cls in among:
            if cls.name == name:
                return cls
        names = ", ".join(repr(cls.name) for cls in among) or "it has none"
        raise ConfigurationError(f"app {self.name!r}: expected {expected} ({names}), came {name!r}")

    def _check_tables(self) -> None:
        seen: dict[str, Table] = {}
        for declaration in self.declarations:
            for table in (declaration.source, declaration.target):
                if seen.setdefault(table.name, table) != table:
                    raise DeclarationError(
                        f"App {self.name!r}: table {table.name!r}: expected one declaration, "
                        f"came {seen[table.name]!r} and {table!r}"
                    )

    def _check_apart(self) -> None:
        """No two handlers may have one name, and no two aggregations write the same items or mix in an index."""
        names: dict[object, type[Any]] = {}
        items: dict[object, type[Aggregation]] = {}
        for each in self.handlers:
            self._claim(names, each.name, each, "a name of its own")
        for place, cls in enumerate(self.aggregations):
            d = cls._declaration
            self._claim(items, (d.target.name, d.sk_prefix, d.window.form), cls, "a sk_prefix of its own")
            for other in self.aggregations:
                self._check_prefixes(cls, other)
                self._check_attributes(cls, other)
            for other in self.aggregations[:place]:
                self._check_entries(cls, other)

    def _check_entries(self, cls: type[Aggregation], other: type[Aggregation]) -> None:
        """Where two share an index, no entry's key of one may be a key of the other.

        A key is prefix, label and perhaps a shard. Were one text a key of both, both prefixes would be its beginning,
        so the shorter would be the beginning of the longer: it is enough that none begins the other. Under one prefix
        it is enough that the windows have labels of two forms, for these never equal, and `"#"`, which stands before
        a shard, is in none.
        """
        d, o = cls._declaration, other._declaration
        if d.index is None or o.index is None or (d.target.name, d.index.name) != (o.target.name, o.index.name):
            return
        where = f"App {self.name!r}: {cls.__qualname__}: index {d.index.name!r}"
        known, keys = (o.index.pk, o.index.sk), (d.index.pk, d.index.sk)
        if known != keys:
            raise DeclarationError(f"{where}: expected the keys {known} that it has elsewhere, came {keys}")
        ours, theirs = d.index.prefix, o.index.prefix
        apart = d.window.form != o.window.form if ours == theirs else not _one_begins_the_other(ours, theirs)
        if not apart:
            raise DeclarationError(
                f"{where}: expected a prefix such that neither begins the other ({theirs!r} of {other.__qualname__}), "
                f"came {ours!r}"
            )

    def _check_attributes(self, cls: type[Aggregation], other: type[Aggregation]) -> None:
        """What one keeps may not bring its items into another's index of that table.

        Nor may it be a number where that index has a text.
        """
        d, o = cls._declaration, other._declaration
        if o.index is None or d.target.name != o.target.name:
            return
        where = f"App {self.name!r}: {cls.__qualname__}"
        measures = {slot.attribute for slot in d.slots}
        if o.index.pk in measures:
            raise DeclarationError(
                f"{where}: expected a measure with another name than the partition key of index {o.index.name!r}, came "
                f"{o.index.pk!r}"
            )
        if d.index is not None and d.index.name != o.index.name and d.index.pk == o.index.pk and o.index.sk in measures:
            raise DeclarationError(
                f"{where}: index {d.index.name!r}: expected another partition key than {o.index.pk!r}, or the index "
                f"{o.index.name!r} of {other.__qualname__} with a prefix: its aggregates have {o.index.sk!r} as well, "
                "and would be in both"
            )

    def _check_sparse(self) -> None:
        """Nothing is written for two reasons, no entry hangs on another's, and a key has one type."""
        writers: dict[object, type[Any]] = {}
        types: dict[tuple[str, str], str] = {}
        for cls in self.aggregations:
            if (index := cls._declaration.index) is not None:
                target = cls._declaration.target.name
                types |= {(target, index.pk): "S", (target, index.sk): "N"}
        for place, each in enumerate(self.sparse_indexes):
            d = each._declaration
            for aggregation in self.aggregations:
                self._check_shared(each, aggregation)
                self._check_kept(each, aggregation)
            for earlier in self.sparse_indexes[:place]:
                self._check_shared(each, earlier)
            self._check_together(each)
            for name, (kind, _) in d.managed.items():
                former = writers.get((d.source.name, name))
                if former is None or former.index.name != d.index.name:
                    self._claim(writers, (d.source.name, name), each, "attributes of its own as its index's keys")
                if types.setdefault((d.source.name, name), kind) != kind:
                    raise DeclarationError(
                        f"App {self.name!r}: {each.__qualname__}: {name!r}: expected the type "
                        f"{types[d.source.name, name]!r} that it has in another index, came {kind!r}"
                    )
        for each in self.sparse_indexes:
            d = each._declaration
            for path in d.paths:
                writer = writers.get((d.source.name, parse(path)[0]))
                if writer is not None:
                    raise DeclarationError(
                        f"App {self.name!r}: {each.__qualname__}: expected attributes that no sparse index writes, "
                        f"came {path!r} of {writer.__qualname__}"
                    )

    def _check_kept(self, cls: type[SparseIndex], other: type[Aggregation]) -> None:
        """No aggregate may have what an index of its table's own items is keyed by, or it would be in it."""
        d, o = cls._declaration, other._declaration
        if d.source.name != o.target.name or (o.index is not None and o.index.name == d.index.name):
            return
        kept = {slot.attribute for slot in o.slots} | ({o.index.pk} if o.index is not None else set())
        for name in d.managed:
            if name in kept:
                raise DeclarationError(
                    f"App {self.name!r}: {cls.__qualname__}: expected keys of its index that no aggregate has, came "
                    f"{name!r} of {other.__qualname__}"
                )

    def _check_shared(self, cls: type[SparseIndex], other: type[Aggregation] | type[SparseIndex]) -> None:
        """A sparse index may share its index by a prefix, with aggregations and with other sparse indexes."""
        d, o = cls._declaration, other._declaration
        if o.index is None or (d.source.name, d.index.name) != (o.target.name, o.index.name):
            return
        where = f"App {self.name!r}: {cls.__qualname__}: index {d.index.name!r}"
        keys = d.key_types
        known = o.key_types if isinstance(o, SparseDeclaration) else {o.index.pk: "S", o.index.sk: "N"}
        if [*known.items()] != [*keys.items()]:
            raise DeclarationError(f"{where}: expected the keys {known} that it has elsewhere, came {keys}")
        if _one_begins_the_other(d.index.prefix, o.index.prefix):
            raise DeclarationError(
                f"{where}: expected a prefix such that neither begins the other ({o.index.prefix!r} of "
                f"{other.__qualname__}), came {d.index.prefix!r}"
            )

    def _check_archives(self) -> None:
        """No two archives may have objects in one folder, nor in a folder of the other's."""
        for place, cls in enumerate(self.archives):
            ours = f"{cls._declaration.prefix}/"
            for other in self.archives[:place]:
                if _one_begins_the_other(ours, theirs := f"{other._declaration.prefix}/"):
                    raise DeclarationError(
                        f"App {self.name!r}: {cls.__qualname__}.prefix: expected one that is not in that of "
                        f"{other.__qualname__} ({theirs!r}), nor the other way round, came {ours!r}"
                    )

    def _check_together(self, cls: type[SparseIndex]) -> None:
        """What those that share an index come to has to find room in the condition of one write."""
        d = self.declaration_of(cls)
        where, several = f"App {self.name!r}: index {d.index.name!r}", 1 + len(d.siblings)
        if several > MOST_SHARING:
            raise DeclarationError(
                f"{where}: expected at most {MOST_SHARING} sparse indexes that share it, came {several}"
            )
        read = {parse(path)[0] for each in (d, *d.siblings) for path in each.paths}
        if len(read) > MOST_READ:
            raise DeclarationError(
                f"{where}: expected all that share it to look at {MOST_READ} attributes at most, came {len(read)}"
            )

    def _check_prefixes(self, cls: type[Aggregation], other: type[Aggregation]) -> None:
        """Where prefix, group and label make up one key, prefix and group run together."""
        d, o = cls._declaration, other._declaration
        together = d.target.sk is None and (d.target.name, d.window.form) == (o.target.name, o.window.form)
        if cls is not other and together and d.sk_prefix.startswith(o.sk_prefix):
            raise DeclarationError(
                f"App {self.name!r}: {cls.__qualname__}.sk_prefix: expected one that does not begin with that of "
                f"{other.__qualname__} ({o.sk_prefix!r}), since {d.target.name!r} has no sort key, came {d.sk_prefix!r}"
            )

    def _claim(self, taken: dict[object, type[Any]], claim: object, cls: type[Any], expected: str) -> None:
        if claim in taken:
            other = taken[claim].__qualname__
            raise DeclarationError(
                f"App {self.name!r}: {cls.__qualname__}: expected {expected}, came {claim!r} as in {other}"
            )
        taken[claim] = cls


def _one_begins_the_other(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def load_app(path: str) -> App:
    """The app that a text such as `"handlers.app:app"` names: a module, a colon and a variable in it.

    Where the environment has `STREAMFOLD_NAMES`, a JSON object from declared table names to those in the account, the
    app's handlers read and write these.

    Raises:
        ConfigurationError: There is no such module or variable, or it is no `App`; or the names are no JSON object.
        DeclarationError: The module declares something wrongly.
    """
    module_name, colon, variable = path.partition(":")
    if not (module_name and colon and variable):
        raise ConfigurationError(f"app: expected MODULE:VARIABLE such as 'handlers.app:app', came {path!r}")
    try:
        module = importlib.import_module(module_name)
    except StreamfoldError:
        raise
    except (Exception, SystemExit) as error:  # a module may do anything when it is imported
        came = f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"app {path!r}: expected a module that can be imported, came {came}") from error
    app = getattr(module, variable, None)
    if not isinstance(app, App):
        raise ConfigurationError(f"app {path!r}: expected {variable!r} to be an App, came {shortened(app)}")
    names = _names(os.environ.get("STREAMFOLD_NAMES") or "{}")
    for cls in app.handlers:
        cls._declaration = cls._declared.named(names)
    return app


def _names(text: str) -> dict[str, str]:
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ConfigurationError(
            f"environment: STREAMFOLD_NAMES: expected a JSON object of table names, came {shortened(text)}"
        )
    return names
