"""`streamfold quarantine`: what could not be counted: list, look at, discard."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from framework.cli import show
from framework.cli.control import add_control, quarantine_of
from framework.codec import Image, json_line

__all__ = ["add_to", "moment"]


def add_to(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("quarantine", help="list, show or discard records that could not be counted")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, about in (
        ("list", "list what is open"),
        ("show", "show an entry"),
        ("discard", "settle without counting"),
    ):
        sub = verbs.add_parser(verb, help=about)
        add_control(sub)
        sub.add_argument("--json", action="store_true", help="one line of JSON for each entry")
        if verb != "list":
            sub.add_argument("entry", nargs=1 if verb == "show" else "+", metavar="ENTRY", help="as `list` names it")
        else:
            sub.add_argument("--handler", metavar="NAME", help="those of one aggregation")
            sub.add_argument(
                "--since", type=moment, default=0.0, metavar="TIME", help="those set aside since, in ISO 8601"
            )
        sub.set_defaults(run={"list": _list, "show": _show, "discard": _discard}[verb])


def moment(text: str) -> float:
    """A time in ISO 8601, in UTC if it does not say, as epoch seconds."""
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _list(options: Any) -> int:
    count = 0
    rows = []
    for item in quarantine_of(options).open(handler=options.handler, since=options.since):
        count += 1
        if options.json:
            print(json_line(_about(item)))
        else:
            about = _about(item)
            rows.append((about["entry"], about["at"], about["key"], about["reason"]))
    if rows:
        show.table(("entry", "set aside", "item", "reason"), rows)
    if not options.json:
        print(f"{count:,} open" if count else "nothing is in quarantine")
    return 0


def _show(options: Any) -> int:
    (place,) = options.entry
    entry = quarantine_of(options).entry(place)
    if entry is None:
        show.complain(f"quarantine: expected an open entry, came {place!r}")
        return 1
    about = {
        "entry": place,
        "handler": entry.handler,
        "image": entry.image,
        "reason": entry.reason,
        "at": _iso(entry.at),
        "uncertain": entry.uncertain,
        "record": entry.record,
    }
    print(json_line(about) if options.json else json.dumps(about, indent=2, ensure_ascii=False))
    return 0


def _discard(options: Any) -> int:
    quarantine, missing = quarantine_of(options), 0
    for place in options.entry:
        if quarantine.discard(place):
            print(json_line({"entry": place, "discarded": True}) if options.json else f"discarded {place}")
        else:
            missing += 1
            show.complain(f"quarantine: expected an open entry, came {place!r}")
    return 1 if missing else 0


def _about(item: Image) -> dict[str, Any]:
    def text(name: str, kind: str = "S") -> str:
        return str(item.get(name, {}).get(kind, ""))

    return {
        "entry": text("sk"),
        "handler": text("handler"),
        "image": text("image"),
        "sequenceNumber": text("sequence"),
        "key": text("key"),
        "at": _iso(text("at", "N")),
        "uncertain": "uncertain" in item,
        "reason": text("reason"),
    }


def _iso(seconds: object) -> str:
    try:
        return datetime.fromtimestamp(int(str(seconds)), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(seconds)  # somebody wrote over it
