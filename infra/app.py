"""What `cdk` runs: the app's manifest and the context's settings become a stack."""

from __future__ import annotations

import sys

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from jsii.errors import JavaScriptError

from framework.app import load_app
from framework.errors import StreamfoldError
from framework.manifest import manifest
from infra.bundle import build, digest
from infra.checks import check
from infra.settings import read_settings
from infra.stack import ROOT, StreamfoldStack

__all__ = ["code", "main"]

_BUNDLE = ROOT / "build" / "function"


def code() -> lambda_.Code:
    """The bundle of all functions, built on this machine."""
    if not build(ROOT, _BUNDLE):
        _tell("no python3.13 on this machine, so the bundle goes uncompiled: a cold start is about 0.1 s longer")
    return lambda_.Code.from_asset(str(_BUNDLE), asset_hash=digest(_BUNDLE), asset_hash_type=cdk.AssetHashType.CUSTOM)


def main() -> int:
    """Synthesize; returns the exit code. What is wrong is told in one sentence, on standard error."""
    app = cdk.App()
    try:
        settings = read_settings(app.node.try_get_context)
        found = manifest(load_app(settings.app))
        check(found, settings, ROOT)  # before the bundle, which takes a while
        name = f"{found['name']}-{settings.stage}"
        StreamfoldStack(app, name, found, settings, code=code())
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


def _tell(sentence: str) -> int:
    print("streamfold:", " ".join(sentence.split()), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
