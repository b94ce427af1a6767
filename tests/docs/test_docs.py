"""The docs check: what README.md and docs/ show works as shown.

Of every page, the blocks run in order, in one scratch directory that looks like the checkout:

- a ```python block runs in the page's one namespace;
- in a ```console or ```sh block, a `streamfold` command runs, and a `make` command names existing targets.

A shell block that needs AWS has the comment `<!-- docs: not run -->` on the line above it; the subcommands
that it names must exist all the same.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import textwrap
import traceback
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKED = [*PAGES, *sorted(path for path in ROOT.glob("*.md") if path not in PAGES)]
SCRIPTS = Path(sysconfig.get_path("scripts"))

NOT_RUN = "<!-- docs: not run -->"
SECONDS = 300  # for one command: far more than any needs, so that a hang is a failure and not a lost CI run

FENCE = re.compile(r"(?P<indent>\s*)(?P<fence>`{3,}|~{3,})\s*(?P<language>[\w-]*)")
LINK = re.compile(r"\]\((?P<inline>[^)\s]+)|^\[[^\]]+\]:\s*(?P<named>\S+)|(?:src|href)=\"(?P<html>[^\"]+)\"")
TARGET = re.compile(r"^([a-z][\w-]*):", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `line` is the number of its first line of code."""

    page: Path
    line: int
    language: str
    code: str
    runs: bool


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a shell block, with its continuation lines joined."""

    where: str
    text: str
    runs: bool


def shown(page: Path, line: int) -> str:
    return f"{page.relative_to(ROOT)}:{line}"


def fail(where: str, message: str) -> NoReturn:
    pytest.fail(f"{where}: {message}", pytrace=False)


def lines_of(page: Path) -> list[str]:
    if not page.exists():
        fail(str(page.relative_to(ROOT)), "this page does not exist")
    return page.read_text(encoding="utf-8").splitlines()


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page, from top to bottom."""
    lines = lines_of(page)
    position = 0
    while position < len(lines):
        opening = FENCE.match(lines[position])
        start = position = position + 1
        if opening is None:
            continue
        while position < len(lines) and lines[position].strip() != opening["fence"]:
            position += 1
        if position == len(lines):
            fail(shown(page, start), "this block is never closed")
        code = textwrap.dedent("\n".join(lines[start:position]))
        above = lines[start - 2].strip() if start > 1 else ""
        yield Block(page, start + 1, opening["language"], code, runs=above != NOT_RUN)
        position += 1


def commands(block: Block) -> Iterator[Command]:
    """Yield what a shell block tells the reader to type: in ```console only the lines after a `$`."""
    if block.language not in ("console", "sh"):
        return
    lines = iter(enumerate(block.code.splitlines(), block.line))
    for number, line in lines:
        prompt = line.startswith("$ ")
        if block.language == "console" and not prompt:
            continue
        text = line.removeprefix("$ ")
        while text.endswith("\\"):
            _, more = next(lines, (0, ""))
            text = text[:-1] + more.removeprefix("> ")
        yield Command(shown(block.page, number), text.strip(), block.runs)


def run_python(block: Block, namespace: dict[str, object]) -> None:
    """Execute a block; a failure names the line of the page, not the line of the block."""
    try:
        # Leading newlines give the code the page's line numbers, in tracebacks as in syntax errors.
        exec(compile("\n" * (block.line - 1) + block.code, str(block.page), "exec"), namespace)
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(block.page)]
        line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno
        told = "".join(traceback.format_exception(error, limit=-3))
        fail(shown(block.page, line or block.line), f"{error!r}\n\n{told}")


def run_command(command: Command, directory: Path) -> None:
    """Run a `streamfold` command as a reader's shell would; check the targets of a `make` command."""
    words = shlex.split(command.text, comments=True)
    if words[:1] == ["make"]:
        targets = [word for word in words[1:] if "=" not in word and not word.startswith("-")]
        unknown = sorted(set(targets) - make_targets())
        if unknown:
            fail(command.where, f"the Makefile has no target {unknown}")
    elif words[:1] == ["streamfold"]:
        if words[1:2] and not words[1].startswith("-") and words[1] not in subcommands():
            fail(command.where, f"expected one of the subcommands {sorted(subcommands())}, came {words[1]!r}")
        done = shell(command.text, directory) if command.runs else None
        if done and done.returncode:
            fail(command.where, f"{command.text!r} ended with {done.returncode}\n{done.stdout}{done.stderr}")


def shell(text: str, directory: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(SCRIPTS), os.environ.get("PATH", os.defpath)])
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", text],
        cwd=directory,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@cache
def make_targets() -> frozenset[str]:
    return frozenset(TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))


@cache
def subcommands() -> frozenset[str]:
    """Return the subcommands that `streamfold --help` lists as {a,b,c}."""
    done = shell("streamfold --help", ROOT)
    listed = re.search(r"\{([a-z,-]+)\}", done.stdout)
    if not listed:
        fail("streamfold --help", f"expected subcommands listed as {{a,b}}, came\n{done.stdout}{done.stderr}")
    return frozenset(listed[1].split(","))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A scratch directory that looks like the checkout, so that what an example writes goes nowhere else."""
    for entry in ROOT.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_a_page_runs(page: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout)
    monkeypatch.setattr(sys, "path", [*sys.path])
    module = types.ModuleType("page")  # a real one: classes look their module up by name
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in blocks(page):
        if block.language in ("python", "py"):
            run_python(block, module.__dict__)
        for command in commands(block):
            run_command(command, checkout)


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_of_a_page_exists(page: Path) -> None:
    inside = {
        number for block in blocks(page) for number in range(block.line, block.line + len(block.code.splitlines()))
    }
    broken = []
    for number, line in enumerate(lines_of(page), 1):
        for found in LINK.finditer(re.sub(r"`[^`]*`", "", line)):
            link = found["inline"] or found["named"] or found["html"]
            path = link.partition("#")[0]
            outside = re.match(r"[a-z][a-z+.-]*:", link)
            if number not in inside and path and not outside and not (page.parent / path).exists():
                broken.append(f"{shown(page, number)}: {link}")
    assert broken == []


def test_every_subcommand_is_told_of_in_the_docs() -> None:
    told = "\n".join("\n".join(lines_of(page)) for page in PAGES)
    missing = sorted(name for name in subcommands() if not re.search(rf"\bstreamfold {name}\b", told))
    assert missing == []
