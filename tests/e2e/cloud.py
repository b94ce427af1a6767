"""A checkout that the CDK's command deploys into an emulated account, and what is deployed there, driven as by Lambda."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from framework.decode import Record
from framework.live import LiveShard, live_shards
from framework.local.filtering import passes
from framework.local.poller import Poller, Response
from tests.e2e.emulator import ROOT, fetched
from tests.infra.runtime_api import Function

__all__ = ["ACCOUNT", "REGION", "Checkout", "Cloud", "Consumer", "Deployed", "MappedShard", "running"]

ACCOUNT, REGION = "123456789012", "us-east-1"

_COMMAND_SECONDS = 120.0
_CONFIG = Config(connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 2}, proxies={})
_STATE_SECONDS = 10.0
_COPIED = ("framework", "handlers", "infra", "cdk.json", "constraints.txt", "package.json")


class Cloud:
    """An account in the emulator.

    Args:
        endpoint: The emulator's URL.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def client(self, service: str, credentials: dict[str, str] | None = None) -> Any:
        """A boto3 client of the account's root, or with the credentials of a role."""
        keys = credentials or {"AWS_ACCESS_KEY_ID": ACCOUNT, "AWS_SECRET_ACCESS_KEY": "fake"}
        session = boto3.session.Session(
            keys["AWS_ACCESS_KEY_ID"], keys["AWS_SECRET_ACCESS_KEY"], keys.get("AWS_SESSION_TOKEN"), region_name=REGION
        )
        return session.client(service, endpoint_url=self.endpoint, config=_CONFIG)

    def credentials(self, role: str) -> dict[str, str]:
        """A role's credentials, as environment variables."""
        found = self.client("sts").assume_role(RoleArn=role, RoleSessionName="e2e")["Credentials"]
        return {
            "AWS_ACCESS_KEY_ID": found["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": found["SecretAccessKey"],
            "AWS_SESSION_TOKEN": found["SessionToken"],
        }


class Checkout:
    """A copy of what a deployment needs of the checkout, to change and to deploy.

    Args:
        folder: Where to make it.
        cloud: Where it is deployed to.
        deadline: When the last command has to be over, on the monotonic clock.
    """

    def __init__(self, folder: Path, cloud: Cloud, deadline: float) -> None:
        cdk = ROOT / "node_modules" / ".bin" / "cdk"
        assert cdk.exists(), f"expected the CDK's command at {cdk}, came none: `make e2e` installs it"
        assert shutil.which("node"), "expected Node.js on the PATH, which the CDK's command is run by, came none"
        self.folder = folder
        self._cloud, self._deadline = cloud, deadline
        folder.mkdir()
        for name in _COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(ROOT / name, folder / name)
        (folder / "node_modules").symlink_to(ROOT / "node_modules")

    def bootstrap(self) -> None:
        """Prepare the account for the CDK. In an empty folder, as it would synthesize an app that it finds, in vain."""
        folder = self.folder.with_name("empty")
        folder.mkdir()
        self._run(folder, "bootstrap", f"aws://{ACCOUNT}/{REGION}")

    def cdk(self, *arguments: str, context: dict[str, str]) -> None:
        """Run the CDK's command in the checkout.

        Raises:
            AssertionError: It failed or did not end. The message has the end of its output.
        """
        app = ["--app", f"{shlex.quote(sys.executable)} -m infra.app"]
        self._run(self.folder, *arguments, *app, *(part for key in context for part in ("-c", f"{key}={context[key]}")))

    def _run(self, folder: Path, *arguments: str) -> None:
        output = self.folder.with_name(f"cdk-{arguments[0]}.log")
        began = time.monotonic()
        with output.open("wb") as out:
            process = subprocess.Popen(
                [str(self.folder / "node_modules" / ".bin" / "cdk"), *arguments, "--no-notices", "--no-color"],
                cwd=folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group of its own, so that what it starts can be ended with it
            )
            try:
                code: int | str = process.wait(max(0.0, min(_COMMAND_SECONDS, self._deadline - began)))
            except subprocess.TimeoutExpired:
                code = "no end"
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        seconds = time.monotonic() - began
        end = output.read_text(errors="replace")[-4000:]
        assert code == 0, f"cdk {arguments[0]}: expected exit code 0, came {code} after {seconds:.0f} s: {end}"
        print(f"cdk {arguments[0]}: {seconds:.1f} s")

    def _environment(self) -> dict[str, str]:
        ours = ("AWS_", "CDK_", "STREAMFOLD_")
        theirs = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return {
            **theirs,
            "AWS_ACCESS_KEY_ID": ACCOUNT,  # ministack takes 12 digits for the account
            "AWS_SECRET_ACCESS_KEY": "fake",
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self._cloud.endpoint,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "CDK_HOME": str(self.folder.with_name("cdk-home")),
            "CDK_DISABLE_CLI_TELEMETRY": "1",
            "CDK_DISABLE_VERSION_CHECK": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "PYTHONDONTWRITEBYTECODE": "1",
        }


class Deployed:
    """A deployed consumer, as the account's own APIs tell of it. The emulator's mapping is switched off.

    Args:
        cloud: The account.
        stack: The stack's name.
        folder: Where its code is unpacked.

    Attributes:
        function: The function's configuration.
        mapping: The event source mapping's.
        tumbling_window: The mapping's, in seconds.
        credentials: Those of the function's role, as environment variables.
    """

    def __init__(self, cloud: Cloud, stack: str, folder: Path) -> None:
        cloudformation, lambda_ = cloud.client("cloudformation"), cloud.client("lambda")
        self._cloud, self._lambda, self.folder = cloud, lambda_, folder
        resources = cloudformation.describe_stack_resources(StackName=stack)["StackResources"]
        (function,) = [r for r in resources if r["ResourceType"] == "AWS::Lambda::Function"]
        (mapping,) = [r for r in resources if r["ResourceType"] == "AWS::Lambda::EventSourceMapping"]
        found = lambda_.get_function(FunctionName=function["PhysicalResourceId"])
        self.function: dict[str, Any] = found["Configuration"]
        self.mapping = self._switched_off(mapping["PhysicalResourceId"])
        # ministack drops it from mappings, whether they are made by template or by API.
        template = cloudformation.get_template(StackName=stack)["TemplateBody"]
        template = json.loads(template) if isinstance(template, str) else template
        properties = template["Resources"][mapping["LogicalResourceId"]]["Properties"]
        self.tumbling_window = int(properties["TumblingWindowInSeconds"])
        self.credentials = cloud.credentials(self.function["Role"])
        self._unpack(fetched(found["Code"]["Location"]))

    @property
    def table(self) -> str:
        """The source table's name, as the function knows it."""
        return str(self.function["Environment"]["Variables"]["STREAMFOLD_TABLE"])

    def _switched_off(self, mapping: str) -> dict[str, Any]:
        """The mapping, disabled: ministack's ignores reported failures, and retries others for ever."""
        self._lambda.update_event_source_mapping(UUID=mapping, Enabled=False)
        end = time.monotonic() + _STATE_SECONDS
        while time.monotonic() < end:
            found: dict[str, Any] = self._lambda.get_event_source_mapping(UUID=mapping)
            if found["State"] == "Disabled":
                return found
            time.sleep(0.1)
        raise AssertionError(f"mapping: expected to be disabled in {_STATE_SECONDS:g} s, came {found['State']}")

    def _unpack(self, code: bytes) -> None:
        came = base64.b64encode(hashlib.sha256(code).digest()).decode()
        assert came == self.function["CodeSha256"]
        with zipfile.ZipFile(io.BytesIO(code)) as archive:
            archive.extractall(self.folder)

    def environment(self) -> dict[str, str]:
        """The function's environment variables: its own, and what Lambda adds."""
        return {
            **self.function["Environment"]["Variables"],
            **self.credentials,
            "AWS_LAMBDA_FUNCTION_NAME": self.function["FunctionName"],
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self.function["MemorySize"]),
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": self._cloud.endpoint,
            "NO_PROXY": "127.0.0.1,localhost",
        }

    def shards(self) -> list[MappedShard]:
        """The shards of the mapping's stream, behind the mapping's filter."""
        patterns = [json.loads(each["Pattern"]) for each in self.mapping["FilterCriteria"]["Filters"]]
        # With root's credentials: ministack does not see which stream is read, so that it denies a role
        # that may read just one.
        streams = self._cloud.client("dynamodbstreams")
        return [MappedShard(shard, patterns) for shard in live_shards(streams, self.mapping["EventSourceArn"])]


class MappedShard:
    """A shard as a mapping reads it: through its filter.

    Args:
        shard: The shard.
        patterns: The filter's patterns.

    Attributes:
        passed: The records that passed, by sequence number.
        dropped: Those that did not.
    """

    def __init__(self, shard: LiveShard, patterns: list[dict[str, Any]]) -> None:
        self._shard, self._patterns = shard, patterns
        self.stream_arn, self.shard_id = shard.stream_arn, shard.shard_id
        self.passed: dict[int, Record] = {}
        self.dropped: dict[int, Record] = {}

    def records(self, after: int = 0) -> Iterator[Record]:
        """The records above a sequence number that pass the filter."""
        # Always from the horizon on: ministack's numbers have leading zeros, which those of AWS have not and a
        # checkpoint does not keep, and it looks for one by its text.
        for record in self._shard.records():
            number = int(record["dynamodb"]["SequenceNumber"])
            if number <= after:
                continue
            if passes(self._patterns, record):
                self.passed[number] = record
                yield record
            else:
                self.dropped[number] = record


class Consumer:
    """The deployed function, running in a process of its own, and a poller for each shard of its stream.

    Args:
        deployed: What is deployed.
        function: Its function.
        checkpoints: Where to begin, by shard; at the horizon where a shard is not in it.
    """

    def __init__(self, deployed: Deployed, function: Function, checkpoints: dict[str, int] | None = None) -> None:
        self.shards = deployed.shards()
        self._pollers = {
            shard.shard_id: Poller(
                deployed.table,
                shard,
                function.invoke,
                batch_size=deployed.mapping["BatchSize"],
                now=time.time,
            )
            for shard in self.shards
        }
        for shard_id, checkpoint in (checkpoints or {}).items():
            self._pollers[shard_id].checkpoint = checkpoint

    @property
    def checkpoints(self) -> dict[str, int]:
        return {shard_id: poller.checkpoint for shard_id, poller in self._pollers.items()}

    def deliver(self) -> list[Response]:
        """Deliver what the stream holds until nothing is left, then end the windows; gives every response."""
        responses: list[Response] = []
        while found := [response for poller in self._pollers.values() for response in poller.poll()]:
            responses += found
        for poller in self._pollers.values():
            responses += poller.close_window()
        return responses


@contextmanager
def running(deployed: Deployed) -> Iterator[Function]:
    """The deployed function, with nothing on its path but its bundle and what Lambda's runtime has."""
    configuration = deployed.function
    with Function(
        deployed.folder,
        deployed.environment(),
        handler=configuration["Handler"],
        remaining=float(configuration["Timeout"]),
    ) as function:
        yield function
