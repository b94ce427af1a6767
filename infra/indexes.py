"""Indexes of deployed tables: CloudFormation makes or removes one a table and update, so more go in waves.

`deployed-indexes.json`, committed, remembers which indexes each stack's tables have:

    {"music-prod": {"MusicLibrary": {"MonthDownloadsIndex": {...}}}}

A table that is not in it is new, and gets all its indexes at once. It remembers shards, too: entries may be in all that
there were, and reads cover no more than are declared, so that fewer are refused. After a deployment, `make deployed`
brings the file up to date from the stacks that were synthesized last.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from framework.errors import ConfigurationError, shortened
from framework.manifest import IndexManifest
from infra.settings import Settings

__all__ = ["SNAPSHOT", "indexes_now", "main"]

SNAPSHOT = "deployed-indexes.json"
_STACK = "aws:cloudformation:stack"
_Indexes = dict[str, IndexManifest]


def indexes_now(root: Path, settings: Settings, app: str, table: str, wanted: Mapping[str, IndexManifest]) -> _Indexes:
    """The indexes that a table has after this deployment.

    Args:
        root: The checkout.
        settings: The deployment; `next_index` says to make the first of the pending changes.
        app: The app's name.
        table: The table's declared name.
        wanted: The indexes of the manifest.

    Raises:
        ConfigurationError: Several changes are pending, and not asked for one by one. The message lists the waves. Or
            an index has fewer shards than it had.
    """
    deployed = _snapshot(root).get(settings.stack(app), {}).get(table)
    if deployed is None:
        return dict(wanted)
    _refuse_fewer_shards(table, deployed, wanted)
    # An index cannot be altered: a changed one goes and comes.
    same = {name for name in deployed.keys() & wanted.keys() if _shape(deployed[name]) == _shape(wanted[name])}
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


def _shape(index: IndexManifest) -> dict[str, Any]:
    """What DynamoDB knows of an index."""
    return {field: value for field, value in index.items() if field != "shards"}


def _refuse_fewer_shards(table: str, deployed: _Indexes, wanted: Mapping[str, IndexManifest]) -> None:
    for name in deployed.keys() & wanted.keys():
        for aggregation, shards in deployed[name].get("shards", {}).items():
            came = wanted[name].get("shards", {}).get(aggregation, 1)
            if came < shards:
                raise ConfigurationError(
                    f"table {table!r}: index {name!r}: expected {shards} shards or more for {aggregation!r}, since its "
                    f"entries may be in all of them, came {came}"
                )


def _snapshot(root: Path) -> dict[str, dict[str, _Indexes]]:
    path = root / SNAPSHOT
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise ConfigurationError(f"{SNAPSHOT}: expected JSON as `make deployed` writes it, came {error}") from None
    try:
        good = all(map(_is_index, (index for of in found.values() for one in of.values() for index in one.values())))
    except (AttributeError, TypeError):
        good = False
    if not good:
        raise ConfigurationError(f"{SNAPSHOT}: expected indexes by stack and table, came {shortened(found)}")
    return dict(found)


def _is_index(came: dict[str, Any]) -> bool:
    attributes = came.get("include")
    return (
        {*came, "shards"} == {"pk", "sk", "include", "shards"}
        and all(set(key) == {"name", "type"} and key["type"] in ("S", "N", "B") for key in (came["pk"], came["sk"]))
        and all(type(shards) is int for shards in came.get("shards", {}).values())
        and isinstance(attributes, list)
        and all(isinstance(name, str) for name in (came["pk"]["name"], came["sk"]["name"], *attributes))
    )


def main(root: Path, assembly: Path) -> int:
    """Bring the snapshot up to date from the stacks of a cloud assembly; returns the exit code."""
    try:
        snapshot = _snapshot(root) | _synthesized(assembly)
    except ConfigurationError as error:
        print(f"streamfold: {error}", file=sys.stderr)
        return 1
    (root / SNAPSHOT).write_text(json.dumps(snapshot, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return 0


def _synthesized(assembly: Path) -> dict[str, dict[str, _Indexes]]:
    """The tables and indexes of each stack that the last synth made; templates of earlier ones may lie beside them."""
    try:
        artifacts = _read(assembly / "manifest.json")["artifacts"].values()
        files = [each["properties"]["templateFile"] for each in artifacts if each["type"] == _STACK]
        found = [_read(assembly / file).get("Metadata", {}).get("streamfold") for file in files]
        stacks = {each["stack"]: each["indexes"] for each in found if each}
    except (OSError, ValueError, KeyError, TypeError):
        stacks = {}
    if not stacks:
        raise ConfigurationError(f"{assembly}: expected a synthesized stack, came none: run `make synth` first")
    return stacks


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(Path.cwd(), Path("cdk.out")))
