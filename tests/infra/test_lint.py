"""What others' rules say of the templates: cfn-lint, and cdk-nag's AwsSolutions with a reason for what is left."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from cdk_nag import AwsSolutionsChecks

from tests.infra.stacks import CAPACITY, CHINA, DEV, SHOP, TOPIC, deploy, synthesize

ROOT = Path(__file__).resolve().parents[2]
STACKS: dict[str, tuple[str, dict[str, Any]]] = {
    "music": ("music", {}),
    "music to be destroyed": ("music", DEV),
    "music with provisioned capacity": ("music", {"tables": {"MusicLibrary": CAPACITY}}),
    "shop": ("shop", {**SHOP, "alarmTopic": TOPIC}),
    "shop in China": ("shop", CHINA),
    "archives": ("kept", {"archives": {"expired-sessions": {"since": "2018-01"}}}),
    "archives to be destroyed": ("kept", DEV),
}


def test_cfn_lint_has_nothing_to_say(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name.replace(' ', '-')}.template.json" for name in STACKS]
    for path, (app, context) in zip(paths, STACKS.values(), strict=True):
        path.write_text(json.dumps(deploy(app, **context).data))
    command = [str(Path(sys.executable).with_name("cfn-lint")), *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_cfn_lint_looks_at_the_templates(tmp_path: Path) -> None:
    template = deploy("music").data
    table = deploy("music").id_of("DynamoDB::Table", TableName="MusicLibrary")
    broken = {**template["Resources"], table: {"Type": "AWS::DynamoDB::Table", "Properties": {"KeySchema": []}}}
    (tmp_path / "broken.template.json").write_text(json.dumps({**template, "Resources": broken}))
    command = [str(Path(sys.executable).with_name("cfn-lint")), str(tmp_path / "broken.template.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0
    assert "E3639 'ProvisionedThroughput' is a required property" in done.stdout


def nag(name: str, root: Path) -> dict[str, Any]:
    """What cdk-nag says of a stack."""
    made = cdk.App(outdir=str(root / "cdk.out"))
    cdk.Validations.of(made).add_plugins(AwsSolutionsChecks(made))
    # With a finding the CDK raises; which ones there are stands in its report.
    with suppress(RuntimeError):
        synthesize(*STACKS[name], root=root, made=made)
    report = json.loads((root / "cdk.out" / "validation-report.json").read_text())
    (found,) = (each for each in report["pluginReports"] if each["pluginName"] == "AwsSolutions")
    return dict(found)


@pytest.mark.parametrize("name", STACKS)
def test_cdk_nag_finds_nothing_that_has_no_reason(name: str, tmp_path: Path) -> None:
    found = nag(name, tmp_path)
    assert [each["ruleName"] for each in found.get("violations", [])] == []
    assert found["conclusion"] == "success"
    # A reason that nothing needs any more has to go.
    explained = [(each["ruleName"].partition("[")[0], each["reason"]) for each in found["suppressedViolations"]]
    consumers, archives = {"music": (1, 0), "shop": (2, 0), "archives": (4, 3)}[name.split()[0]]
    assert Counter(rule for rule, _ in explained) == {
        "AwsSolutions-S1": 2 if archives else 1,
        "AwsSolutions-L1": consumers,
        "AwsSolutions-IAM5": 2 * consumers + archives,
    }
    assert all(len(reason) > 40 for _, reason in explained)


def test_cdk_nag_looks_at_the_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.stack.explain", lambda *_: None)
    found = nag("music", tmp_path)
    assert found["conclusion"] == "failure"
    rules = {each["ruleName"].partition("[")[0] for each in found["violations"]}
    assert rules == {"AwsSolutions-S1", "AwsSolutions-L1", "AwsSolutions-IAM5"}


def test_a_deployment_does_not_need_cdk_nag() -> None:
    program = "import sys; sys.modules['cdk_nag'] = None; import infra.app; print(infra.app.cdk.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, cdk.__name__), done.stderr
