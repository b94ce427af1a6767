"""The command `streamfold`."""

from __future__ import annotations

import argparse
import io
import os
import sys
from importlib.metadata import version

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from framework.errors import StreamfoldError

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: The arguments; the process's own if not given.

    Returns:
        The exit code: 0; 1 for an error, told in one sentence; 3 where records could not be counted; 130 when
        interrupted. Wrong usage ends in 2, by argparse.
    """
    try:
        from framework.cli import archive, demo, index, local, quarantine, redrive, show, sparse, top
    except ModuleNotFoundError as error:  # the function in Lambda has neither moto nor rich
        print(
            f"streamfold: expected the extra 'local' (pip install 'streamfold[local]'), came: {error}", file=sys.stderr
        )
        return 1
    parser = argparse.ArgumentParser(
        prog="streamfold",
        description="Derived data kept right, exactly once.",
        epilog="Exit codes: 0; 1 error; 2 wrong usage; 3 some records could not be counted; 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"streamfold {version('streamfold')}")
    commands = parser.add_subparsers(dest="command", required=True)
    for module in (demo, local, top, index, sparse, archive, quarantine, redrive):
        module.add_to(commands)
    options = parser.parse_args(argv)
    # An app lies where its user stands, as with any server that takes MODULE:APP.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    _make_output_safe(json=getattr(options, "json", False))
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except (StreamfoldError, BotoCoreError, ClientError, ResponseParserError) as error:
        show.complain(f"streamfold: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read the output has seen enough; without this the interpreter complains at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # Such as a full disk. What could not be written must not be tried again at the interpreter's end.
        show.complain(f"streamfold: expected an output that can be written, came an error: {error}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _make_output_safe(*, json: bool) -> None:
    """JSON is UTF-8; for people a character that their terminal lacks is no reason to stop; closed is as /dev/null."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8" if json else None, errors="strict" if json else "replace")
