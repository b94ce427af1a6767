"""Indexes of deployed tables: CloudFormation makes or removes one a table and update, so more go in waves.

`deployed-indexes.json`, committed, remembers which indexes each stack's tables have:

    {"music-prod": {"MusicLibrary": {"MonthDownloadsIndex": {...}}}}

A table that is not in it is new, and gets all its indexes at once. Under `shards` it remembers how many shards the
entries of each aggregation ever had, by stack, table, aggregation and the attribute with the entries' keys, of imported
tables too:

    {"shards": {"music-prod": {"MusicLibrary": {"monthly-downloads": {"Month": 8}}}}}

Entries may be in all that there were, whatever index they are read by, and reads cover no more than are declared: so
fewer are refused. After a deployment, `make deployed` brings the file up to date from the stacks that were synthesized
last.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framework.errors import ConfigurationError, shortened
from framework.manifest import IndexManifest
from infra.settings import Settings

__all__ = ["SNAPSHOT", "indexes_now", "main", "refuse_fewer_shards"]

SNAPSHOT = "deployed-indexes.json"
_STACK = "aws:cloudformation:stack"
_SHARDS = "shards"  # no stack's name, for these have a stage after a hyphen
_Indexes = dict[str, IndexManifest]
# By aggregation, and by the attribute that holds the keys of its entries.
_Shards = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What the file remembers, by stack and table."""

    indexes: dict[str, dict[str, _Indexes]]
    shards: dict[str, dict[str, _Shards]]


def indexes_now(root: Path, settings: Settings, app: str, table: str, wanted: Mapping[str, IndexManifest]) -> _Indexes:
    """The indexes that a table has after this deployment.

    Args:
        root: The checkout.
        settings: The deployment; `next_index` says to make the first of the pending changes.
        app: The app's name.
        table: The table's declared name.
        wanted: The indexes of the manifest.

    Raises:
        ConfigurationError: Several changes are pending, and not asked for one by one. The message lists the waves.
    """
    deployed = _snapshot(root).indexes.get(settings.stack(app), {}).get(table)
    if deployed is None:
        return dict(wanted)
    # An index cannot be altered: a changed one goes and comes.
    same = {name for name in deployed.keys() & wanted.keys() if deployed[name] == wanted[name]}
    changes = [("remove", name) for name in deployed if name not in same]
    changes += [("add", name) for name in wanted if name not in same]
    if len(changes) > 1 and not settings.next_index:
        waves = ", then ".join(f"{what} {name!r}" for what, name in changes)
        raise ConfigurationError(
            f"table {table!r}: expected at most one index to make or remove in one update, came {len(changes)} "
            f"({waves}): deploy each with -c indexes=next, and run `make deployed` after each"
        )
    now: _Indexes = {name: wanted[name] if name in same else index for name, index in deployed.items()}
    for what, name in changes[:1]:
        if what == "remove":
            del now[name]
        else:
            now[name] = wanted[name]
    return now


def refuse_fewer_shards(root: Path, stack: str, table: str, wanted: _Shards) -> None:
    """See that no aggregation of a table has fewer shards than its entries were ever spread over.

    Args:
        root: The checkout.
        stack: The stack's name.
        table: The table's declared name.
        wanted: The shards of the manifest.

    Raises:
        ConfigurationError: One has.
    """
    for aggregation, by_key in _snapshot(root).shards.get(stack, {}).get(table, {}).items():
        for key, shards in by_key.items():
            came = wanted.get(aggregation, {}).get(key, shards)
            if came < shards:
                raise ConfigurationError(
                    f"table {table!r}: expected {shards} shards or more for {aggregation!r} by {key!r}, since its "
                    f"entries may be in all of them, came {came}"
                )


def _snapshot(root: Path) -> _Snapshot:
    path = root / SNAPSHOT
    if not path.exists():
        return _Snapshot({}, {})
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise ConfigurationError(f"{SNAPSHOT}: expected JSON as `make deployed` writes it, came {error}") from None
    try:
        indexes = {stack: tables for stack, tables in found.items() if stack != _SHARDS}
        shards = {stack: dict(tables) for stack, tables in found.get(_SHARDS, {}).items()}
        good = all(map(_is_index, (index for of in indexes.values() for one in of.values() for index in one.values())))
        good &= all(map(_are_shards, (one for of in shards.values() for one in of.values())))
    except (AttributeError, TypeError, ValueError):
        good = False
    if not good:
        raise ConfigurationError(f"{SNAPSHOT}: expected indexes by stack and table, came {shortened(found)}")
    return _Snapshot(indexes, shards)


def _is_index(came: dict[str, Any]) -> bool:
    attributes = came.get("include")
    return (
        {*came} == {"pk", "sk", "include"}
        and all(set(key) == {"name", "type"} and key["type"] in ("S", "N", "B") for key in (came["pk"], came["sk"]))
        and isinstance(attributes, list)
        and all(isinstance(name, str) for name in (came["pk"]["name"], came["sk"]["name"], *attributes))
    )


def _are_shards(came: dict[str, Any]) -> bool:
    return all(type(shards) is int for by_key in came.values() for shards in by_key.values())


def main(root: Path, assembly: Path) -> int:
    """Bring the snapshot up to date from the stacks of a cloud assembly; returns the exit code."""
    try:
        former, latest = _snapshot(root), _synthesized(assembly)
    except ConfigurationError as error:
        print(f"streamfold: {error}", file=sys.stderr)
        return 1
    shards = {
        stack: _most(former.shards.get(stack, {}), latest.shards.get(stack, {}))
        for stack in {**former.shards, **latest.shards}
    }
    found: dict[str, Any] = former.indexes | latest.indexes
    found |= {_SHARDS: shards} if any(shards.values()) else {}
    (root / SNAPSHOT).write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return 0


def _most(former: Mapping[str, _Shards], latest: Mapping[str, _Shards]) -> dict[str, _Shards]:
    """The most shards that there ever were; one is what there is without a word."""
    found: dict[str, _Shards] = {}
    for tables in (former, latest):
        for table, aggregations in tables.items():
            for aggregation, by_key in aggregations.items():
                for key, shards in by_key.items():
                    if shards > 1:
                        ours = found.setdefault(table, {}).setdefault(aggregation, {})
                        ours[key] = max(shards, ours.get(key, 1))
    return found


def _synthesized(assembly: Path) -> _Snapshot:
    """The tables of each stack that the last synth made; templates of earlier ones may lie beside them."""
    try:
        artifacts = _read(assembly / "manifest.json")["artifacts"].values()
        files = [each["properties"]["templateFile"] for each in artifacts if each["type"] == _STACK]
        found = [_read(assembly / file).get("Metadata", {}).get("streamfold") for file in files]
        indexes = {each["stack"]: each["indexes"] for each in found if each}
        shards = {each["stack"]: each["shards"] for each in found if each}
    except (OSError, ValueError, KeyError, TypeError):
        indexes = {}
    if not indexes:
        raise ConfigurationError(f"{assembly}: expected a synthesized stack, came none: run `make synth` first")
    return _Snapshot(indexes, shards)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(Path.cwd(), Path("cdk.out")))
