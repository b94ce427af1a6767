"""The bundle: what is in it, that it is the same every time, and that it needs nothing else."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import grimp
import pytest

import infra.bundle
from infra.bundle import BundleError, _interpreter, _place, build, closure, digest, zipped
from infra.bundle import bundle as bundle_in
from infra.wheels import WHEELS, fetch, run
from tests.infra.runtime_api import BOTO3, site

ROOT = Path(__file__).resolve().parents[2]
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
_IMPORTED = (
    "import json, sys; sys.path[:0] = json.loads(sys.argv[1]); import framework.runtime, handlers.app; "
    "print(json.dumps({name: getattr(module, '__file__', None) for name, module in sys.modules.items()}))"
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("bundle")
    build(ROOT, target)
    return target


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The sources of a bundle, to be changed."""
    root = tmp_path / "checkout"
    for name in ("framework", "handlers"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "constraints.txt", root)
    return root


def files(folder: Path) -> list[str]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return sorted(path.relative_to(folder).as_posix() for path in found)


def modules(folder: Path, package: str) -> set[str]:
    found = (name.removesuffix(".py").removesuffix("/__init__") for name in files(folder) if name.endswith(".py"))
    return {name.replace("/", ".") for name in found if name.split("/")[0] == package}


def test_the_bundle_holds_our_code_and_the_wheels_and_nothing_else(bundle: Path) -> None:
    top = {path.name for path in bundle.iterdir() if not path.name.endswith(".dist-info")}
    assert top - {"__pycache__"} == {"framework", "handlers", "aws_lambda_powertools", "typing_extensions.py", "tzdata"}
    assert modules(bundle, "handlers") == modules(ROOT, "handlers")
    for name in files(bundle):
        unwanted = {
            "boto3",
            "botocore",
            "aws_cdk",
            "tests",
            "moto",
            "rich",
            "local",
            "cli",
            "demo",
            "bin",
        }
        assert not unwanted & set(Path(name).parts), name


def test_of_framework_the_bundle_holds_what_the_runtime_imports(bundle: Path) -> None:
    # grimp reads the imports too, for the architecture's contracts.
    graph = grimp.build_graph("framework", exclude_type_checking_imports=True, cache_dir=None)
    starts = {"framework", "framework.runtime"}
    assert modules(bundle, "framework") == starts.union(*(graph.find_upstream_modules(start) for start in starts))
    assert {"framework.decode", "framework.fold", "framework.plan", "framework.deliver"} <= modules(bundle, "framework")


def test_the_wheels_keep_their_licences_and_no_other_metadata(bundle: Path) -> None:
    kept = [name for name in files(bundle) if ".dist-info/" in name]
    assert all(re.search(r"licen[cs]e", name.partition("/")[2], re.IGNORECASE) for name in kept)
    assert {name.partition("-")[0] for name in kept} == {name.replace("-", "_") for name in WHEELS}


def test_the_wheels_are_powertools_with_what_lambda_lacks_and_the_time_zones() -> None:
    wanted, required = ["aws-lambda-powertools"], set()
    while wanted:
        name = wanted.pop()
        required.add(name)
        lines = [line for line in importlib.metadata.requires(name) or [] if "extra ==" not in line]
        wanted.extend({re.split(r"[^\w.-]", line)[0] for line in lines} - required)
    assert required - {"jmespath"} | {"tzdata"} == set(WHEELS)


def test_the_bundle_is_small(bundle: Path) -> None:
    assert len(zipped(bundle)) <= 3_000_000


def test_the_same_input_gives_the_same_bytes(bundle: Path, tmp_path: Path) -> None:
    umask = os.umask(0o077)  # neither the builder's habits nor the time show
    try:
        build(ROOT, tmp_path / "again")
    finally:
        os.umask(umask)
    assert digest(tmp_path / "again") == digest(bundle)
    assert zipped(tmp_path / "again") == zipped(bundle)
    with zipfile.ZipFile(io.BytesIO(zipped(bundle))) as archive:
        assert [e.filename for e in archive.infolist() if not e.filename.endswith(".pyc")] == files(bundle)
        assert {(e.date_time, e.external_attr >> 16) for e in archive.infolist()} == {((1980, 1, 1, 0, 0, 0), 0o100644)}
    for folder in (bundle, tmp_path / "again"):
        for path in (folder, *folder.rglob("*")):
            assert (path.stat().st_mode & 0o7777, path.stat().st_mtime) == (
                0o755 if path.is_dir() else 0o644,
                315532800,
            )


def test_modules_are_compiled_where_there_is_a_python_of_that_version(bundle: Path, tmp_path: Path) -> None:
    assert build(ROOT, tmp_path / "own", python=OWN)
    assert list((tmp_path / "own" / "framework" / "__pycache__").glob("runtime.*.pyc"))
    assert digest(tmp_path / "own") != digest(bundle), "a slower bundle is another one"
    assert len(zipped(tmp_path / "own")) <= 3_000_000
    assert not build(ROOT, tmp_path / "none", python="3.99")
    assert not list((tmp_path / "none").rglob("*.pyc"))


def test_a_changed_handler_changes_the_digest_and_a_changed_test_does_not(bundle: Path, checkout: Path) -> None:
    (checkout / "framework" / "local" / "rows.py").write_text("")
    build(checkout, checkout.parent / "same")
    assert digest(checkout.parent / "same") == digest(bundle)
    with (checkout / "handlers" / "music_library.py").open("a") as handler:
        handler.write("# changed\n")
    build(checkout, checkout.parent / "other")
    assert digest(checkout.parent / "other") != digest(bundle)


def test_bundles_stand_under_their_digests_and_a_damaged_one_is_made_anew(checkout: Path) -> None:
    made, compiled = bundle_in(checkout, checkout / "build", "handlers.app:app", python=OWN)
    assert (made.name, made.parent) == (digest(made), checkout / "build")
    assert compiled is bool(list(made.rglob("*.pyc")))
    before = contents(made)
    next(made.rglob("*.pyc")).write_bytes(b"")
    assert kept_bundle(checkout) == made
    assert contents(made) == before
    assert [path.name for path in (checkout / "build").iterdir()] == [made.name]


def kept_bundle(checkout: Path) -> Path:
    return bundle_in(checkout, checkout / "build", "handlers.app:app", python=OWN)[0]


def contents(folder: Path) -> dict[Path, tuple[int, bytes]]:
    found = folder.rglob("*")
    return {
        path.relative_to(folder): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"") for path in found
    }


@pytest.mark.parametrize(
    "damage",
    [
        lambda found: (found / "x" / "a.pyc").write_text("b"),
        lambda found: (found / "x" / "empty").mkdir(),
        lambda found: (found / "x" / "link").symlink_to("a.pyc"),
        lambda found: (found / "x" / "a.pyc").chmod(0o600),
        lambda found: (shutil.rmtree(found), found.touch()),
        lambda found: (shutil.rmtree(found), found.symlink_to("nothing")),
        shutil.rmtree,
    ],
    ids=["compiled module", "empty folder", "link", "mode", "file", "dangling link", "nothing"],
)
def test_whatever_is_damaged_makes_room(damage: Callable[[Path], object], tmp_path: Path) -> None:
    made, found = tmp_path / "scratch" / "made", tmp_path / "found"
    for folder in (made, found):
        (folder / "x").mkdir(parents=True)
        (folder / "x" / "a.pyc").write_text("a")
    damage(found)
    before = contents(made)
    _place(made, found)
    assert contents(found) == before
    assert not made.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"scratch", "found"}


def test_of_two_builds_at_once_the_second_takes_what_the_first_made(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def as_second(self: Path, target: Path) -> Path:
        shutil.copytree(self, target)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", as_second)
    made = kept_bundle(checkout)
    assert made.name == digest(made)
    assert [path.name for path in (checkout / "build").iterdir()] == [made.name]


def test_the_last_five_bundles_are_kept_and_nothing_of_a_build_that_was_killed(checkout: Path) -> None:
    folder = checkout / "build"
    hour, old = 3600.0, [f"{n:064x}" for n in range(8)]
    for age, name in enumerate((*old, "tmpnew", "tmpold", "mine"), 1):
        (folder / name).mkdir(parents=True)
        seconds = time.time() - age * hour * (name != "tmpnew")
        os.utime(folder / name, (seconds, seconds))
    made = kept_bundle(checkout)
    assert {path.name for path in folder.iterdir()} == {made.name, *old[:4], "tmpnew", "mine"}


def test_files_beside_handlers_go_with_them_and_tests_do_not(checkout: Path) -> None:
    (checkout / "handlers" / "countries.json").write_text("{}")
    for folder, name in (("bin", "rates.csv"), ("tests", "test_x.py")):
        (checkout / "handlers" / folder).mkdir()
        (checkout / "handlers" / folder / name).touch()
    build(checkout, checkout / "target")
    assert {"handlers/countries.json", "handlers/bin/rates.csv"} <= set(files(checkout / "target"))
    assert "handlers/tests/test_x.py" not in files(checkout / "target")


def test_what_would_be_left_out_unseen_is_one_sentence(checkout: Path) -> None:
    (checkout / "handlers" / "shared").symlink_to("../framework")
    with pytest.raises(BundleError, match=r"^handlers/shared: expected a folder in its place, came a link to one$"):
        build(checkout, checkout / "target")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_name_that_is_no_text_is_one_sentence(checkout: Path) -> None:
    (checkout / "handlers" / os.fsdecode(b"\xff.txt")).touch()
    with pytest.raises(BundleError, match=r"^handlers: expected file names in UTF-8, came 'handlers/\\udcff.txt'$"):
        build(checkout, checkout / "target")


def test_a_handler_that_does_not_compile_is_named(checkout: Path) -> None:
    (checkout / "handlers" / "broken.py").write_text("def {{name}}")
    message = (
        r"^bundle: expected modules that compile, came Error compiling 'handlers/broken.py'[^\n\\]*invalid syntax$"
    )
    with pytest.raises(BundleError, match=message):
        build(checkout, checkout / "target", python=OWN)


@pytest.mark.parametrize(
    ("text", "app", "came"),
    [
        ("", "elsewhere.app:app", "ModuleNotFoundError: No module named 'elsewhere'"),
        ("import boto3", "handlers.app:app", "ModuleNotFoundError: No module named 'boto3'"),
        ("from framework.demo.flights import app", "handlers.app:app", "ModuleNotFoundError: No module named 'framework.demo'"),
        ("open('/nowhere')", "handlers.app:app", "FileNotFoundError: "),
    ],
)  # fmt: skip
def test_an_app_that_does_not_load_from_the_bundle_is_one_sentence(
    text: str, app: str, came: str, checkout: Path
) -> None:
    with (checkout / "handlers" / "app.py").open("a") as handler:
        handler.write(text + "\n")
    with pytest.raises(BundleError, match="expected an app that loads from handlers/ and framework alone") as raised:
        bundle_in(checkout, checkout / "build", app)
    assert came in str(raised.value)
    assert list((checkout / "build").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_sentence(checkout: Path) -> None:
    (checkout / "build").touch()
    with pytest.raises(BundleError, match="build: expected a folder that can be written, came"):
        bundle_in(checkout, checkout / "build", "handlers.app:app")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": "b"}, {"ab": ""}),
        ({"a": "b", "c": "d"}, {"a": "bcd"}),
        ({"a": "b"}, {"a": "c"}),
        ({"a": ""}, {"x/a": ""}),
    ],
)
def test_different_folders_have_different_digests(one: dict[str, str], other: dict[str, str], tmp_path: Path) -> None:
    for folder, contents in (("one", one), ("other", other)):
        for name, text in contents.items():
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / name).write_text(text)
    assert digest(tmp_path / "one") != digest(tmp_path / "other")


def test_a_second_build_needs_no_network(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_network(monkeypatch)
    build(ROOT, tmp_path / "again")
    assert digest(tmp_path / "again") == digest(bundle)


def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")


def test_a_download_that_fails_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_network(monkeypatch)
    with pytest.raises(
        BundleError,
        match=r"^pip download: expected aws-lambda-powertools==[^\n]* takes a network the first time, came No match[^\n]*$",
    ):
        build(ROOT, tmp_path / "target", wheels=tmp_path / "wheels")
    assert not (tmp_path / "target").exists()
    assert not files(tmp_path / "wheels")


def half(wheel: Path) -> None:
    wheel.write_bytes(wheel.read_bytes()[: wheel.stat().st_size // 2])


def changed_on_the_disk(wheel: Path) -> None:
    content = bytearray(wheel.read_bytes())
    content[100] ^= 0xFF  # in the first file
    wheel.write_bytes(content)


@pytest.mark.parametrize("damage", [half, lambda wheel: wheel.write_bytes(b""), changed_on_the_disk])
def test_a_damaged_wheel_is_fetched_again(
    damage: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, cache = tmp_path / "index", tmp_path / "cache" / "3.13-arm64"
    for folder in (index, cache):
        folder.mkdir(parents=True)
        for wheel in fetch(ROOT):
            shutil.copy(wheel, folder)
    no_network(monkeypatch)
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    for wheel in cache.iterdir():
        damage(wheel)
    assert [path.read_bytes() for path in fetch(ROOT, wheels=tmp_path / "cache")] == [
        (index / path.name).read_bytes() for path in fetch(ROOT)
    ]


def test_a_cache_that_is_no_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "3.13-arm64").touch()
    with pytest.raises(BundleError, match=rf"^{tmp_path}/3.13-arm64: expected a folder that can be written, came "):
        build(ROOT, tmp_path / "target", wheels=tmp_path)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["/nowhere/python"], r"^it: expected it to start, came .*No such file or directory: '/nowhere/python'$"),
        ([sys.executable, "-c", "while True: pass"], "^it: expected it to end, came no end in 0.5 s$"),
    ],
)
def test_a_program_that_does_not_run_is_one_sentence(command: list[str], message: str) -> None:
    with pytest.raises(BundleError, match=message):
        run("it", command, seconds=0.5)


def test_a_wheel_that_pip_refuses_is_one_sentence(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_network(monkeypatch)
    folder = tmp_path / "3.13-arm64"
    folder.mkdir()
    for name in WHEELS:
        version = importlib.metadata.version(name)
        with zipfile.ZipFile(folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl", "w") as archive:
            archive.writestr("no_wheel.py", "")
    with pytest.raises(BundleError, match=r"^pip install: expected the wheels to install, came [^\n]*invalid[^\n]*$"):
        build(ROOT, tmp_path / "target", wheels=tmp_path)


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("constraints.txt", "jmespath==1.1.0\n", "expected a line aws-lambda-powertools==VERSION, came none"),
        (
            "framework/plan.py",
            "import framework.gone",
            "framework/plan.py: expected a module 'framework.gone' in .*, came none",
        ),
        ("framework/plan.py", "def", "plan.py: expected Python, came invalid syntax"),
        ("target/old.py", "", "target: expected an empty folder, came one with 'old.py'"),
    ],
)
def test_a_source_that_is_not_right_is_one_sentence(path: str, text: str, message: str, checkout: Path) -> None:
    (checkout / path).parent.mkdir(exist_ok=True)
    (checkout / path).write_text(text)
    with pytest.raises(BundleError, match=message):
        build(checkout, checkout / "target")


def test_what_is_not_there_is_one_sentence(checkout: Path) -> None:
    with pytest.raises(BundleError, match=r"architecture: expected one of arm64, x86_64, came 'sparc'"):
        build(checkout, checkout / "target", architecture="sparc")
    shutil.rmtree(checkout / "handlers")
    with pytest.raises(BundleError, match=r"handlers: expected handlers, came no Python file"):
        build(checkout, checkout / "target")
    (checkout / "framework" / "runtime.py").unlink()
    (checkout / "handlers").mkdir()
    (checkout / "handlers" / "app.py").touch()
    with pytest.raises(BundleError, match=r"bundle: expected a module 'framework.runtime' in .*, came none"):
        build(checkout, checkout / "target")


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("import p.a", {"p.a"}),
        ("import p.a as b, os.path", {"p.a"}),
        ("from p import a, VALUE", {"p.a"}),
        ("from p.q import b", {"p.q", "p.q.b"}),
        ("import p.q.b", {"p.q", "p.q.b"}),
        ("from .q import b", {"p.q", "p.q.b"}),
        ("from . import a", {"p.a"}),
        ("import p.q.c", {"p.q", "p.q.c", "p.a"}),  # that one says `from ..a import x`
        ("def late():\n    from p import a", {"p.a"}),
        ("try:\n    import p.a\nexcept ImportError:\n    pass", {"p.a"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.a\nelse:\n    import p.q", {"p.q"}),
        ("import typing\nif typing.TYPE_CHECKING:\n    import p.a", set()),
        ("import past.p.a, pp", set()),
    ],
)
def test_every_way_to_import_is_followed(text: str, more: set[str], tmp_path: Path) -> None:
    (tmp_path / "p" / "q").mkdir(parents=True)
    for name in ("__init__", "a", "unused", "q/__init__", "q/b"):
        (tmp_path / "p" / f"{name}.py").touch()
    (tmp_path / "p" / "q" / "c.py").write_text("from ..a import x")
    (tmp_path / "p" / "start.py").write_text(text)
    assert set(closure(tmp_path, "p.start")) == {"p", "p.start"} | more


def test_beside_the_bundle_only_the_sdk_is_needed(bundle: Path, tmp_path: Path) -> None:
    path = [str(bundle), str(site(tmp_path / "sdk", BOTO3))]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", _IMPORTED, json.dumps(path)],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env={},
        text=True,
    )
    assert done.returncode == 0, done.stderr
    loaded: dict[str, str | None] = json.loads(done.stdout)
    ours = {name for name, file in loaded.items() if file and file.startswith(path[0])}
    assert {name for name in loaded if name.split(".")[0] in ("framework", "handlers")} <= ours
    assert {"aws_lambda_powertools.utilities.batch", "typing_extensions"} <= ours
    standard = tuple(os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
    for name, file in loaded.items():
        assert not file or file.startswith(tuple(path)) or os.path.realpath(file).startswith(standard), (name, file)
        assert not file or "site-packages" not in file, (name, file)


def test_the_app_is_loaded_with_the_functions_python(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/said\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(infra.bundle, "_interpreter", lambda version: str(python))
    kept_bundle(checkout)
    assert (tmp_path / "said").read_text().rstrip().endswith("handlers.app:app")


@pytest.mark.parametrize("text", ["no program", "#!/bin/sh\nexec sleep 60\n"])
def test_a_python_that_does_not_run_is_none(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "python3.99"
    broken.write_text(text)
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(infra.bundle, "_PROBE_SECONDS", 1.0)
    assert _interpreter("3.99") is None


def test_a_python_that_pyenv_stands_in_for_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = tmp_path / "python3.99"
    stand_in.write_text('#!/bin/sh\n[ "$PYENV_VERSION" = 3.99 ] || exit 127\necho 3.99 /opt/python/3.99\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert _interpreter("3.99") == "/opt/python/3.99"
    assert _interpreter("3.98") is None
