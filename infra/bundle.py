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
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from importlib.util import resolve_name
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory

from framework.errors import StreamfoldError, shortened

__all__ = ["WHEELS", "BundleError", "build", "bundle", "closure", "digest", "fetch", "zipped"]

# Powertools and what it requires, less what Lambda's runtime has, and the time zones.
WHEELS = ("aws-lambda-powertools", "typing-extensions", "tzdata")

_ENTRY = "framework.runtime"
_PLATFORMS = {"arm64": "manylinux2014_aarch64", "x86_64": "manylinux2014_x86_64"}
# The first moment that a zip file can hold.
_TIME, _ZIP_TIME = 315532800, (1980, 1, 1, 0, 0, 0)
_FILE, _FOLDER = 0o644, 0o755
_DROPPED = {"__pycache__", "bin", "tests"}
_is_licence = re.compile(r"(licen[cs]e|notice|copying|authors)", re.IGNORECASE).match
_PIP_SECONDS = 600


class BundleError(StreamfoldError):
    """The bundle cannot be made from what is there."""


def bundle(root: Path, folder: Path, app: str) -> tuple[Path, bool]:
    """Make the bundle in a folder of its own, and see that the app can be loaded from it and nothing else.

    The folder is named by the digest and appears when it is whole, so that builds at the same time, and one that was
    cut short, do no harm.

    Args:
        root: The repository.
        folder: Where bundles are kept.
        app: The app, as `MODULE:VARIABLE`.

    Returns:
        The bundle, and whether its modules are compiled.

    Raises:
        BundleError: As `build` does; or the app needs what the bundle has not.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch, "bundle")
            compiled = build(root, made)
            _load(made, app)
            found = folder / digest(made)
            if found.exists() and digest(found) != found.name:
                shutil.rmtree(found)
            if not found.exists():
                made.rename(found)
    except OSError as error:
        raise BundleError(f"{folder}: expected a folder that can be written, came {error}") from error
    return found, compiled


def build(
    root: Path, target: Path, *, python: str = "3.13", architecture: str = "arm64", wheels: Path | None = None
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
    handlers = [path for path in _files(root / "handlers") if not _DROPPED.intersection(path.relative_to(root).parts)]
    if not any(path.suffix == ".py" for path in handlers):
        raise BundleError(f"{root / 'handlers'}: expected handlers, came no Python file")
    ours = [*closure(root, _ENTRY).values(), *handlers]
    found = fetch(root, python=python, architecture=architecture, wheels=wheels)
    platform = _platform(python, architecture)
    with TemporaryDirectory() as scratch:
        site = Path(scratch)
        _pip("install", "--isolated", "--no-index", "--no-compile", "--target", scratch, *platform, *map(str, found))
        theirs = [path for path in _files(site) if _is_kept(path.relative_to(site))]
        for base, paths in ((site, theirs), (root, ours)):
            _copy(base, paths, target)
    compiled = _compile(target, python)
    for path in (*target.rglob("*"), target):
        path.chmod(_FOLDER if path.is_dir() else _FILE)
        os.utime(path, (_TIME, _TIME))
    return compiled


def fetch(root: Path, *, python: str = "3.13", architecture: str = "arm64", wheels: Path | None = None) -> list[Path]:
    """The wheels of a bundle, for arguments as `build` has them; downloaded once, so that builds need no network.

    Raises:
        BundleError: A pin is missing, or pip fails.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = (wheels or caches / "streamfold") / f"{python}-{architecture}"
    return _wheels(_pins(root / "constraints.txt"), cache, _platform(python, architecture))


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


def _platform(python: str, architecture: str) -> list[str]:
    if architecture not in _PLATFORMS:
        raise BundleError(f"architecture: expected one of {', '.join(_PLATFORMS)}, came {architecture!r}")
    return ["--platform", _PLATFORMS[architecture], "--python-version", python, "--implementation", "cp"]


def _source(root: Path, module: str) -> Path | None:
    place = root.joinpath(*module.split("."))
    choices = (place / "__init__.py", place.with_name(f"{place.name}.py"))
    return next((path for path in choices if path.is_file()), None)


def _pins(constraints: Path) -> dict[str, str]:
    """The version of each wheel."""
    text = constraints.read_text() if constraints.is_file() else ""
    lines = re.findall(r"^([\w.-]+)==([^\s;#]+)", text, re.MULTILINE)
    pins = {name.lower().replace("_", "-"): version for name, version in lines}
    for name in WHEELS:
        if not pins.get(name):
            raise BundleError(f"{constraints}: expected a line {name}==VERSION, came none")
    return {name: pins[name] for name in WHEELS}


def _wheels(pins: dict[str, str], cache: Path, platform: Sequence[str]) -> list[Path]:
    """The wheels' files; those that the cache lacks are downloaded into it."""
    missing = [f"{name}=={version}" for name, version in pins.items() if not _cached(cache, name, version)]
    if missing:
        cache.mkdir(parents=True, exist_ok=True)
        # Moved when they are whole, so that a build at the same time, or after one cut short, finds no half a file.
        with TemporaryDirectory(dir=cache) as scratch:
            _pip("download", "--dest", scratch, *platform, *missing)
            for path in _files(Path(scratch)):
                path.replace(cache / path.name)
    found = [_cached(cache, name, version) for name, version in pins.items()]
    if None in found:
        raise BundleError(f"{cache}: expected wheels of {pins}, came none of some from pip")
    return [path for path in found if path]


def _cached(cache: Path, name: str, version: str) -> Path | None:
    return next(cache.glob(f"{name.replace('-', '_')}-{version}-*.whl"), None)


def _pip(verb: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", verb, "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--only-binary=:all:", "--no-deps", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BundleError(f"pip {verb}: expected it to end, came {shortened(error, 300)}") from error
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        errors = [line for line in lines if line.startswith("ERROR:")] or lines
        wanted = ", ".join(argument for argument in arguments if "==" in argument) or "the wheels to install"
        raise BundleError(f"pip {verb}: expected {wanted}, came {errors[-1].removeprefix('ERROR:').strip()[:300]}")


def _load(folder: Path, app: str) -> None:
    """Load the app with the bundle and the standard library on the path, and nothing else."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from framework.app import load_app; "
        "from framework.errors import StreamfoldError\n"
        "try: load_app(sys.argv[2])\n"
        "except StreamfoldError as error: sys.exit(str(error))"
    )
    command = [sys.executable, "-I", "-S", "-B", "-c", program, str(folder), app]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_SECONDS, check=False)
    if done.returncode:
        came = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise BundleError(f"bundle: expected an app that loads from handlers/ and framework alone, came {came}")


def _compile(target: Path, python: str) -> bool:
    interpreter = _interpreter(python)
    if interpreter is None:
        return False
    # Without a look at the source's time or content, which the function would pay for; paths as Lambda has them.
    options = ["-q", "--invalidation-mode", "unchecked-hash", "-s", str(target), "-p", "/var/task"]
    command = [interpreter, "-I", "-m", "compileall", *options, str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_SECONDS, check=False)
    if done.returncode:
        raise BundleError(f"{target}: expected modules that compile, came {shortened(done.stdout + done.stderr, 300)}")
    return True


def _interpreter(python: str) -> str | None:
    """A Python of a version; None where there is none that runs (pyenv's stand-in runs only what is selected)."""
    about = 'import sys; print("%d.%d" % sys.version_info[:2], sys.executable)'
    selected = {**os.environ, "PYENV_VERSION": python}
    for path in (sys.executable, shutil.which(f"python{python}")):
        if path is not None:
            command = [path, "-I", "-c", about]
            done = subprocess.run(command, env=selected, capture_output=True, text=True, timeout=60, check=False)
            version, _, found = done.stdout.strip().partition(" ")
            if version == python:
                return found
    return None


def _is_kept(path: PurePath) -> bool:
    """Whether a wheel's file goes into the bundle: of its metadata only the licences do, which nothing reads."""
    if _DROPPED.intersection(path.parts) or path.suffix == ".pyc":
        return False
    return not path.parts[0].endswith(".dist-info") or any(map(_is_licence, path.parts[1:]))


def _files(folder: Path) -> list[Path]:
    return sorted((path for path in folder.rglob("*") if path.is_file()), key=Path.as_posix)


def _copy(base: Path, paths: Iterable[Path], target: Path) -> None:
    for source in paths:
        path = target / source.relative_to(base)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.read_bytes())
