"""The Lambda function's bundle, made without Docker: our code and pinned wheels, the same bytes every time.

Three parts, and nothing else:

1. of `framework` the modules that the runtime entry can import, found in their source text;
2. the `handlers`, with what files they have beside them, tests left out;
3. Powertools and what it needs, and the time zones, as wheels for Lambda's platform at the versions of
   `constraints.txt`. Nothing says that Lambda's runtime has a time zone database, and the one for .NET had none.

boto3 is left out, and with it jmespath: Lambda's runtime has them (Lambda developer guide, "Working with .zip file
archives for Python"). Lambda cannot keep compiled modules beside ours, so they are compiled here, where there is a
Python of the function's version: it takes a third off a cold start.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import re
import shutil
import sys
import time
import zipfile
from collections.abc import Iterable
from importlib.util import resolve_name
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory

from framework.errors import shortened
from infra.wheels import BundleError, fetch, install, run

__all__ = ["BundleError", "build", "bundle", "closure", "digest", "zipped"]

_ENTRY, _PYTHON = "framework.runtime", "3.13"
# The first moment that a zip file can hold.
_TIME, _ZIP_TIME = 315532800, (1980, 1, 1, 0, 0, 0)
_LAMBDA = "/var/task"
_FILE, _FOLDER = 0o644, 0o755
_DROPPED = {"__pycache__", "tests"}
_is_licence = re.compile(r"(licen[cs]e|notice|copying|authors)", re.IGNORECASE).match
_is_bundle = re.compile(r"[0-9a-f]{64}").fullmatch
_MOST_KEPT = 5
_ABANDONED_SECONDS = 3600
_PROBE_SECONDS = 10.0


def bundle(root: Path, folder: Path, app: str, *, python: str = _PYTHON) -> tuple[Path, bool]:
    """Make the bundle in a folder of its own, and see that the app can be loaded from it and nothing else.

    The folder is named by the digest and appears when it is whole, so that builds at the same time, and one that was
    cut short, do no harm. Of the bundles that are there, the last five are kept.

    Args:
        root: The repository.
        folder: Where bundles are kept.
        app: The app, as `MODULE:VARIABLE`.
        python: The version of Lambda's Python.

    Returns:
        The bundle, and whether its modules are compiled.

    Raises:
        BundleError: As `build` does; or the app needs what the bundle has not.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch, "bundle")
            compiled = build(root, made, python=python)
            _load(made, app, _interpreter(python) or sys.executable)
            found = folder / digest(made)
            _place(made, found)
        os.utime(found)  # it is the last one now
        _tidy(folder)
    except OSError as error:
        raise BundleError(f"{folder}: expected a folder that can be written, came {error}") from error
    return found, compiled


def build(
    root: Path, target: Path, *, python: str = _PYTHON, architecture: str = "arm64", wheels: Path | None = None
) -> bool:
    """Make the bundle in a folder.

    Args:
        root: The repository, with `framework`, `handlers` and `constraints.txt`.
        target: An empty folder, or one to be made.
        python: The version of Lambda's Python.
        architecture: The function's, as Lambda calls it: `arm64` or `x86_64`.
        wheels: Where wheels are kept for builds without a network; by default `$XDG_CACHE_HOME/streamfold`.

    Returns:
        Whether the modules are compiled: this machine has a Python of that version.

    Raises:
        BundleError: A source or a pin is missing, pip fails, or the target has files.
    """
    there = next(target.iterdir(), None) if target.exists() else None
    if there:
        raise BundleError(f"{target}: expected an empty folder, came one with {there.name!r}")
    handlers = _handlers(root)
    if not any(path.suffix == ".py" for path in handlers):
        raise BundleError(f"{root / 'handlers'}: expected handlers, came no Python file")
    ours = [*closure(root, _ENTRY).values(), *handlers]
    found = fetch(root, python=python, architecture=architecture, wheels=wheels)
    with TemporaryDirectory() as scratch:
        site = Path(scratch)
        install(site, found, python=python, architecture=architecture)
        theirs = [path for path in _files(site) if _is_kept(path.relative_to(site))]
        for base, paths in ((site, theirs), (root, ours)):
            _copy(base, paths, target)
    compiled = _compile(target, python)
    for path in (*target.rglob("*"), target):
        path.chmod(_FOLDER if path.is_dir() else _FILE)
        os.utime(path, (_TIME, _TIME))
    return compiled


def closure(root: Path, start: str) -> dict[str, Path]:
    """The modules of a package that can be imported, directly or not, once one of them is.

    Found in the source text, so imports inside of functions count, and those for type checkers only do not.

    Args:
        root: The folder that the package is in.
        start: The module's full name.

    Returns:
        Each module's file by its name.

    Raises:
        BundleError: A module is missing or is no Python.
    """
    package = start.partition(".")[0]
    found: dict[str, Path] = {}
    todo = [(start, "bundle")]
    while todo:
        name, wanted_by = todo.pop()
        if name in found or name.partition(".")[0] != package:
            continue
        path = _source(root, name)
        if path is None:
            raise BundleError(f"{wanted_by}: expected a module {name!r} in {root}, came none")
        found[name] = path
        imports = _Imports(path, name if path.stem == "__init__" else name.rpartition(".")[0])
        where = str(path.relative_to(root))
        # Importing a module runs the packages above it first.
        todo.append((name.rpartition(".")[0] or package, where))
        todo.extend((wanted, where) for wanted in imports.modules)
        todo.extend((member, where) for member in imports.members if _source(root, member))
    return dict(sorted(found.items()))


def digest(folder: Path) -> str:
    """SHA-256 over the relative paths and the contents of a folder's files.

    Of compiled modules only the paths: their contents follow from the others, but not to the byte.
    """
    total = hashlib.sha256()
    for path in _files(folder):
        content = b"" if path.suffix == ".pyc" else path.read_bytes()
        for part in (path.relative_to(folder).as_posix().encode(), content):
            # With its length first, so that no two folders run together to the same bytes.
            total.update(len(part).to_bytes(8, "big") + part)
    return total.hexdigest()


def zipped(folder: Path) -> bytes:
    """A folder's files as a zip file that depends on their paths and contents only."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in _files(folder):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _ZIP_TIME)
            entry.create_system = 3  # Unix, whose modes the next line is about
            entry.external_attr = (0o100000 | _FILE) << 16
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED, compresslevel=9)
    return buffer.getvalue()


class _Imports(ast.NodeVisitor):
    """What a module imports.

    Attributes:
        modules: Full names of modules.
        members: Full names of what is imported out of modules: modules too, or something in them.
    """

    def __init__(self, path: Path, package: str) -> None:
        self.modules: list[str] = []
        self.members: list[str] = []
        self._package = package
        try:
            tree = ast.parse(path.read_bytes(), str(path))
        except (SyntaxError, ValueError) as error:
            raise BundleError(f"{path}: expected Python, came {error}") from error
        self.visit(tree)

    def visit_Import(self, node: ast.Import) -> None:
        self.modules.extend(alias.name for alias in node.names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            module = resolve_name("." * node.level + module, self._package)
        self.modules.append(module)
        self.members.extend(f"{module}.{alias.name}" for alias in node.names)

    def visit_If(self, node: ast.If) -> None:
        unseen = node.body if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING") else []
        for child in ast.iter_child_nodes(node):
            if child not in unseen:
                self.visit(child)


def _source(root: Path, module: str) -> Path | None:
    place = root.joinpath(*module.split("."))
    choices = (place / "__init__.py", place.with_name(f"{place.name}.py"))
    return next((path for path in choices if path.is_file()), None)


def _handlers(root: Path) -> list[Path]:
    """The handlers and what files they have beside them."""
    found = []
    for path in sorted((root / "handlers").rglob("*"), key=Path.as_posix):
        name = path.relative_to(root)
        if _DROPPED.intersection(name.parts):
            continue
        try:
            str(name).encode()
        except UnicodeEncodeError:
            raise BundleError(f"handlers: expected file names in UTF-8, came {shortened(str(name))}") from None
        if path.is_symlink() and path.is_dir():
            raise BundleError(f"{name}: expected a folder in its place, came a link to one")
        if path.is_file():
            found.append(path)
    return found


def _tidy(folder: Path) -> None:
    """Remove what builds that were killed left, and all but the last bundles."""
    before = time.time() - _ABANDONED_SECONDS
    left = [path for path in folder.glob("tmp*") if _changed(path) < before]
    bundles = sorted((path for path in folder.iterdir() if _is_bundle(path.name)), key=_changed)
    for path in (*left, *bundles[:-_MOST_KEPT]):
        shutil.rmtree(path, ignore_errors=True)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # another build removed it
        return 0.0


def _place(made: Path, found: Path) -> None:
    """Give a bundle its name; what has it already stays if it is the same to the byte, else it makes room."""
    if _contents(found) == _contents(made):
        return
    try:
        if os.path.lexists(found):
            found.rename(made.with_name("damaged"))
        made.rename(found)
    except OSError:
        if digest(found) != found.name:  # else another build was first
            raise


def _contents(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """The mode, which tells files, folders and links apart, and the bytes of all that is in a folder."""
    return {
        path.relative_to(folder): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


def _load(folder: Path, app: str, python: str) -> None:
    """Load the app with the bundle and the standard library on the path, and nothing else."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from framework.app import load_app; "
        "from framework.errors import StreamfoldError\n"
        "try: load_app(sys.argv[2])\n"
        "except StreamfoldError as error: sys.exit(' '.join(str(error).split()))"
    )
    done = run("bundle: the app", [python, "-I", "-S", "-B", "-c", program, str(folder), app])
    if done.returncode:
        came = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise BundleError(f"bundle: expected an app that loads from handlers/ and framework alone, came {came}")


def _compile(target: Path, python: str) -> bool:
    interpreter = _interpreter(python)
    if interpreter is None:
        return False
    # Without a look at the source's time or content, which the function would pay for; paths as Lambda has them.
    options = ["-q", "--invalidation-mode", "unchecked-hash", "-s", str(target), "-p", _LAMBDA]
    done = run("bundle: the modules", [interpreter, "-I", "-m", "compileall", *options, str(target)])
    if done.returncode:
        came = " ".join((done.stdout + done.stderr).replace(f"{target}/", "").replace(f"{_LAMBDA}/", "").split())
        raise BundleError(f"bundle: expected modules that compile, came {came.lstrip('* ')[:300]}")
    return True


def _interpreter(python: str) -> str | None:
    """A Python of a version; None where there is none that runs (pyenv's stand-in runs only what is selected)."""
    about = 'import sys; print("%d.%d" % sys.version_info[:2], sys.executable)'
    selected = {**os.environ, "PYENV_VERSION": python}
    for path in (sys.executable, shutil.which(f"python{python}")):
        if path is None:
            continue
        try:
            done = run("python", [path, "-I", "-c", about], seconds=_PROBE_SECONDS, environment=selected)
        except BundleError:
            continue
        version, _, found = done.stdout.strip().partition(" ")
        if version == python:
            return found
    return None


def _is_kept(path: PurePath) -> bool:
    """Whether a wheel's file goes into the bundle: of its metadata only the licences do, which nothing reads."""
    if (_DROPPED | {"bin"}).intersection(path.parts) or path.suffix == ".pyc":
        return False
    return not path.parts[0].endswith(".dist-info") or any(map(_is_licence, path.parts[1:]))


def _files(folder: Path) -> list[Path]:
    return sorted((path for path in folder.rglob("*") if path.is_file()), key=Path.as_posix)


def _copy(base: Path, paths: Iterable[Path], target: Path) -> None:
    for source in paths:
        path = target / source.relative_to(base)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.read_bytes())
