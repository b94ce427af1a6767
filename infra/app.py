"""What `cdk` runs: the app's manifest and the context's settings become a stack."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from jsii.errors import JavaScriptError

from framework.app import load_app
from framework.errors import StreamfoldError
from framework.manifest import manifest
from infra.bundle import bundle
from infra.checks import check
from infra.settings import read_settings
from infra.stack import ROOT, StreamfoldStack

__all__ = ["code", "main"]

_BUNDLES = ROOT / "build" / "bundles"


def code(app: str) -> tuple[lambda_.Code, str]:
    """The bundle of all functions, built on this machine, and its digest."""
    folder, compiled = bundle(ROOT, _BUNDLES, app)
    if not compiled:
        _tell(
            "no python3.13 on this machine, so the bundle goes uncompiled: a cold start is a quarter of a second longer"
        )
    asset = lambda_.Code.from_asset(str(folder), asset_hash=folder.name, asset_hash_type=cdk.AssetHashType.CUSTOM)
    return asset, folder.name


def main() -> int:
    """Synthesize; returns the exit code. What is wrong is told in one sentence, on standard error."""
    # It renames tables for those who read and write them; here the context does.
    os.environ.pop("STREAMFOLD_NAMES", None)
    app = cdk.App()
    try:
        settings = read_settings(app.node.try_get_context)
        found = manifest(load_app(settings.app))
        check(found, settings, ROOT)  # before the bundle, which takes a while
        _unstage(Path(app.outdir))
        bundled, digest = code(settings.app)
        StreamfoldStack(app, settings.stack(found["name"]), found, settings, code=bundled, digest=digest)
        app.synth()
    except StreamfoldError as error:
        return _tell(str(error))
    except RuntimeError as error:
        if not isinstance(error.__cause__, JavaScriptError):
            raise
        # What only the CDK refuses, such as more than 100 attributes in indexes; after the first line comes its stack.
        came = str(error).strip().splitlines()[0]
        return _tell(f"synth: expected a stack that the CDK can make, came {came}")
    return 0


def _unstage(assembly: Path) -> None:
    """Remove the copies of bundles that earlier synths made, which the CDK would take as they are."""
    for folder in assembly.glob("asset.*"):
        shutil.rmtree(folder, ignore_errors=True)


def _tell(sentence: str) -> int:
    print("streamfold:", " ".join(sentence.split()), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
