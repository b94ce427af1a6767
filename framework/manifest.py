"""The manifest: what an app needs in an account, as plain data made from its declarations. Pure.

Infrastructure and the engine on a developer's machine are both made from it, so that they cannot differ.
"""

from __future__ import annotations

from typing import TypedDict

from framework.app import App
from framework.archive import ArchiveDeclaration
from framework.declaration import Declaration
from framework.filters import compile_filters
from framework.sparse import Handler, SparseDeclaration
from framework.tables import Table

__all__ = ["ArchiveManifest", "ConsumerManifest", "IndexManifest", "Key", "Manifest", "TableManifest", "manifest"]


class Key(TypedDict):
    """A key attribute and its type: `"S"`, `"N"` or `"B"`."""

    name: str
    type: str


class IndexManifest(TypedDict):
    """A global secondary index: its keys, and the attributes that it holds beside the keys."""

    pk: Key
    sk: Key
    include: list[str]


class TableManifest(TypedDict):
    """A table: its keys, time to live, home Region, whether a consumer reads its stream, and its indexes by name.

    And by aggregation and the attribute that holds its entries' keys, over how many shards these are spread.
    """

    pk: Key
    sk: Key | None
    ttl: str | None
    home: str | None
    stream: bool
    indexes: dict[str, IndexManifest]
    shards: dict[str, dict[str, int]]


class ConsumerManifest(TypedDict):
    """The consumer of one table's stream.

    Its handlers by name; the mapping's filter patterns, as text; in which way they let through more than is needed;
    and for each table that it writes to, the API actions.
    """

    handlers: list[str]
    filters: list[str]
    warnings: list[str]
    grants: dict[str, list[str]]


class ArchiveManifest(TypedDict):
    """An archive: its table, its folder, and how that is divided: by `"date"`, `"month"` or `"year"`.

    Whether that is when an item was deleted, or a time that it has as an attribute. After how many days its objects
    move to a colder storage class, by class, and are deleted.
    """

    table: str
    folder: str
    partition: str
    by_deletion: bool
    storage: dict[str, int]
    delete_after: int | None


class Manifest(TypedDict):
    """An app: its tables and its consumers, each by the table's name, and its archives by theirs."""

    name: str
    tables: dict[str, TableManifest]
    consumers: dict[str, ConsumerManifest]
    archives: dict[str, ArchiveManifest]


def manifest(app: App) -> Manifest:
    """The manifest of an app: values of JSON only, in the order of the declarations.

    Raises:
        DeclarationError: A condition that no item can meet.
    """
    sources = dict.fromkeys(declaration.source.name for declaration in app.declarations)
    return {
        "name": app.name,
        "tables": {table.name: _table(app, table) for table in app.tables},
        "consumers": {name: _consumer(app.sourced_from(name)) for name in sources},
        "archives": {cls.name: _archive(cls._declaration) for cls in app.archives},
    }


def _table(app: App, table: Table) -> TableManifest:
    return {
        "pk": {"name": table.pk, "type": table.pk_type},
        "sk": None if table.sk is None else {"name": table.sk, "type": table.sk_type},
        "ttl": table.ttl,
        "home": table.home,
        "stream": any(declaration.source.name == table.name for declaration in app.declarations),
        "indexes": _indexes(app, table),
        "shards": {
            d.name: {d.index.pk: d.index.shards}
            for d in app.written_to(table.name)
            if isinstance(d, Declaration) and d.index is not None
        },
    }


def _indexes(app: App, table: Table) -> dict[str, IndexManifest]:
    """A table's indexes. An aggregation's holds the measures, never the watermarks, which would weigh on every write.

    AWS facts: DynamoDB developer guide, "Using global secondary indexes", projections.
    """
    found: dict[str, IndexManifest] = {}
    for declaration in app.written_to(table.name):
        if isinstance(declaration, ArchiveDeclaration):
            continue
        if isinstance(declaration, SparseDeclaration):
            keys = [Key(name=name, type=kind) for name, kind in declaration.key_types.items()]
            shared = found.setdefault(declaration.index.name, {"pk": keys[0], "sk": keys[1], "include": []})["include"]
            shared.extend(name for name in declaration.include if name not in shared)
            shared.sort()
        elif (index := declaration.index) is not None:
            pk, sk = Key(name=index.pk, type="S"), Key(name=index.sk, type="N")
            one = found.setdefault(index.name, {"pk": pk, "sk": sk, "include": []})
            kept = one["include"]
            attributes = (slot.attribute for slot in declaration.slots)
            kept.extend(name for name in attributes if name != index.sk and name not in kept)
            kept.sort()  # an index is the same in whichever order its aggregations are listed
    return found


def _consumer(declarations: tuple[Handler, ...]) -> ConsumerManifest:
    filters = compile_filters(declarations)
    grants: dict[str, list[str]] = {}
    for declaration in declarations:
        if isinstance(declaration, ArchiveDeclaration):
            continue  # it writes to no table
        actions = grants.setdefault(declaration.target.name, [])
        needed = ["UpdateItem"]
        if isinstance(declaration, Declaration):
            # Looks at what it sets aside, and sees in its transaction that an aggregate is not there (`deliver.py`).
            needed += ["GetItem"] + ["ConditionCheckItem"] * (declaration.changes == "all")
        actions.extend(action for action in needed if action not in actions)
    return {
        "handlers": [declaration.name for declaration in declarations],
        "filters": list(filters.texts),
        "warnings": list(filters.warnings),
        "grants": grants,
    }


def _archive(declaration: ArchiveDeclaration) -> ArchiveManifest:
    return {
        "table": declaration.source.name,
        "folder": declaration.prefix,
        "partition": declaration.partition_key,
        "by_deletion": declaration.partition is None,
        "storage": dict(declaration.storage),
        "delete_after": declaration.delete_after,
    }
