"""`App`: the aggregations that are deployed together, checked against each other."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterable

from framework.aggregation import NAME, NAME_RULE, Aggregation
from framework.declaration import Declaration
from framework.errors import ConfigurationError, DeclarationError, StreamfoldError, shortened
from framework.tables import Table

__all__ = ["App", "load_app"]


class App:
    """Aggregations that are deployed together.

    Args:
        name: The app's name: lower-case words with hyphens.
        aggregations: The `Aggregation` subclasses.

    Raises:
        DeclarationError: Two aggregations with one name, two that would write the same items or share an index, or
            two `Table` values that declare one table differently.
    """

    def __init__(self, name: str, aggregations: Iterable[type[Aggregation]]) -> None:
        self.name = name
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise DeclarationError(f"App: name: expected {NAME_RULE}, came {shortened(name)}")
        if not isinstance(aggregations, Iterable):
            raise DeclarationError(f"App {name!r}: aggregations: expected a list, came {shortened(aggregations)}")
        self.aggregations = tuple(aggregations)
        if not self.aggregations:
            raise DeclarationError(f"App {name!r}: aggregations: expected at least one, came none")
        for cls in self.aggregations:
            if not (isinstance(cls, type) and issubclass(cls, Aggregation) and hasattr(cls, "_declaration")):
                raise DeclarationError(
                    f"App {name!r}: aggregations: expected subclasses of Aggregation, came {shortened(cls)}"
                )
        self._check_tables()
        self._check_apart()

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """What each aggregation declares, in the order of the list."""
        return tuple(cls._declaration for cls in self.aggregations)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every table that is read or written, each once."""
        return tuple({t.name: t for d in self.declarations for t in (d.source, d.target)}.values())

    def sourced_from(self, table: str) -> tuple[Declaration, ...]:
        """The declarations that read the stream of a table.

        Raises:
            ConfigurationError: None does.
        """
        found = tuple(d for d in self.declarations if d.source.name == table)
        if not found:
            names = ", ".join(sorted({repr(d.source.name) for d in self.declarations}))
            raise ConfigurationError(f"app {self.name!r}: expected a source table ({names}), came {table!r}")
        return found

    def written_to(self, table: str) -> tuple[Declaration, ...]:
        """The declarations whose aggregates a table holds."""
        return tuple(d for d in self.declarations if d.target.name == table)

    def aggregation(self, name: str) -> type[Aggregation]:
        """The aggregation of a name.

        Raises:
            ConfigurationError: There is none.
        """
        for cls in self.aggregations:
            if cls.name == name:
                return cls
        names = ", ".join(repr(cls.name) for cls in self.aggregations)
        raise ConfigurationError(f"app {self.name!r}: expected an aggregation ({names}), came {name!r}")

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
        """No two aggregations may have one name, write the same items, or mix their entries in an index."""
        names: dict[object, type[Aggregation]] = {}
        items: dict[object, type[Aggregation]] = {}
        for place, cls in enumerate(self.aggregations):
            d = cls._declaration
            self._claim(names, d.name, cls, "a name of its own")
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
        """What one keeps as a number may not be the text by which another's items are in an index of that table."""
        d, o = cls._declaration, other._declaration
        if o.index is not None and d.target.name == o.target.name:
            for slot in d.slots:
                if slot.attribute == o.index.pk:
                    raise DeclarationError(
                        f"App {self.name!r}: {cls.__qualname__}: expected a measure with another name than the "
                        f"partition key of index {o.index.name!r}, came {slot.attribute!r}"
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

    def _claim(
        self, taken: dict[object, type[Aggregation]], claim: object, cls: type[Aggregation], expected: str
    ) -> None:
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
    app's aggregations read and write these.

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
    for cls in app.aggregations:
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
