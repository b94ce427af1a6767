"""Settings: what the CDK context says of a deployment, checked. Everything has a safe default.

    npx cdk deploy --all -c stage=dev -c region=eu-central-1

A key may stand in `cdk.json` under `context`, under `context.stages.<stage>` for one stage, or on the command line with
`-c key=value`, which wins; objects are given there as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from framework.errors import ConfigurationError, shortened
from framework.ledger import DELIVERIES
from framework.tables import NAME_RULE

__all__ = ["ArchiveSettings", "Capacity", "ConsumerSettings", "Settings", "TableSettings", "read_settings"]

_STREAM_ARN = re.compile(r"arn:[\w-]+:dynamodb:[\w-]+:\d{12}:table/([\w.-]+)/stream/[\w:.-]+", re.ASCII)
_TOPIC_ARN = re.compile(r"arn:[\w-]+:sns:[\w-]+:\d{12}:[\w-]+", re.ASCII)
_TABLE_NAME = re.compile(r"[\w.-]{3,255}", re.ASCII)
_ACCOUNT = re.compile(r"\d{12}", re.ASCII)
_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d", re.ASCII)
_STAGE = re.compile(r"[a-z][a-z0-9-]{0,30}")
_LABEL = re.compile(r"\d{4}(-\d{2}(-\d{2})?)?", re.ASCII)
_STAGE_RULE = "lower-case letters, digits and hyphens, at most 31, letter first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Provisioned capacity units that scale between two bounds at 70 % use.

    Attributes:
        least: Units that are always there.
        most: Units it may grow to.
    """

    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """How one table is deployed.

    Attributes:
        name: Its name in the account; the declared one if not set.
        existing: Whether it is there already: it is then only referred to, and nothing about it is changed.
        stream_arn: An existing table's stream.
        readers: Functions and other readers that an existing table's stream has already.
        read: Provisioned read capacity; on demand if not set.
        write: Provisioned write capacity; on demand if not set.
    """

    name: str | None = None
    existing: bool = False
    stream_arn: str | None = None
    readers: int = 0
    read: Capacity | None = None
    write: Capacity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How the consumer of one table's stream runs. The bounds are Lambda's.

    Attributes:
        batch_size: Most records of an invocation (1 to 10,000): the more, the fewer writes.
        batching_window: Seconds that Lambda waits for a full batch (0 to 300).
        delivery: The protocol: `lanes`, or `ledger`, which costs more and takes any parallelization.
        parallelization: Batches of one shard at once (1 to 10); more than one needs the ledger.
        memory: Megabytes (128 to 10,240); CPU comes with it.
        timeout: Seconds of an invocation (3 to 900).
        retries: Before Lambda gives a batch up (-1 for as long as the records live, up to 10,000).
        log_days: How long its log is kept, one of the numbers that CloudWatch Logs takes.
    """

    batch_size: int = 1000
    batching_window: int = 1
    delivery: str = "lanes"
    parallelization: int = 1
    memory: int = 512
    timeout: int = 120
    retries: int = -1
    log_days: int = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings:
    """In which partitions Athena looks for what an archive holds. Each is a label such as `2018-01`.

    Attributes:
        since: The first; if not set, one that is early enough for most (`infra/archive.py`).
        until: The last; if not set, one that moves on with the time.
    """

    since: str | None = None
    until: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A deployment.

    Attributes:
        app: The app, as `MODULE:VARIABLE`.
        stage: Its stage; part of every name that is made here.
        account: The account; the command's own if not set.
        region: The Region; the command's own if not set.
        retain: Whether tables and buckets outlive the stack and are protected from deletion.
        alarm_topic: The ARN of an SNS topic that alarms go to.
        next_index: Whether to make only the first of each table's pending index changes; see `infra/indexes.py`.
        tables: By declared name.
        consumers: By the source table's declared name.
        archives: By name.
    """

    app: str = "handlers.app:app"
    stage: str = "prod"
    account: str | None = None
    region: str | None = None
    retain: bool = True
    alarm_topic: str | None = None
    next_index: bool = False
    tables: Mapping[str, TableSettings] = field(default_factory=dict)
    consumers: Mapping[str, ConsumerSettings] = field(default_factory=dict)
    archives: Mapping[str, ArchiveSettings] = field(default_factory=dict)

    def table(self, name: str) -> TableSettings:
        """The settings of a table."""
        return self.tables.get(name, TableSettings())

    def consumer(self, name: str) -> ConsumerSettings:
        """The settings of a table's consumer."""
        return self.consumers.get(name, ConsumerSettings())

    def archive(self, name: str) -> ArchiveSettings:
        """The settings of an archive."""
        return self.archives.get(name, ArchiveSettings())

    def stack(self, app: str) -> str:
        """The name of an app's stack."""
        return f"{app}-{self.stage}"

    def physical(self, name: str) -> str:
        """The name in the account of a declared table."""
        return self.table(name).name or name


def read_settings(context: Callable[[str], Any]) -> Settings:
    """Read the settings.

    Args:
        context: Gives the context's value of a key, or None.

    Raises:
        ConfigurationError: Names the key, what was expected and what came.
    """
    stage = _text("stage", context("stage") or "prod", _STAGE, _STAGE_RULE)
    stages = _object("stages", context("stages") or {})
    of_stage = _object(f"stages.{stage}", stages.get(stage, {}))

    def found(key: str) -> Any:
        value = context(key)
        return of_stage.get(key) if value is None else value

    unknown = of_stage.keys() - _KEYS
    if unknown:
        raise _wrong(f"stages.{stage}", f"keys among {', '.join(sorted(_KEYS))}", sorted(unknown))
    topic = found("alarmTopic")
    return Settings(
        app=str(found("app") or "handlers.app:app"),
        stage=stage,
        account=_optional("account", found("account"), _ACCOUNT, "12 digits as text"),
        region=_optional("region", found("region"), _REGION, "a Region such as eu-central-1"),
        # Only a stage that says so is thrown away with its data.
        retain=_choice("removal", found("removal") or "retain", ("retain", "destroy")) == "retain",
        alarm_topic=_optional("alarmTopic", topic, _TOPIC_ARN, "the ARN of an SNS topic"),
        next_index=_choice("indexes", found("indexes") or "all", ("all", "next")) == "next",
        tables={n: _table(n, t) for n, t in _object("tables", found("tables") or {}).items()},
        consumers={n: _consumer(n, c) for n, c in _object("consumers", found("consumers") or {}).items()},
        archives={n: _archive(n, a) for n, a in _object("archives", found("archives") or {}).items()},
    )


_KEYS = {"app", "account", "region", "removal", "alarmTopic", "indexes", "tables", "consumers", "archives"}


def _table(name: str, value: Any) -> TableSettings:
    where = f"tables.{name}"
    found = _object(where, value, {"name", "existing", "streamArn", "readers", "read", "write"})
    stream = _optional(f"{where}.streamArn", found.get("streamArn"), _STREAM_ARN, "the ARN of a DynamoDB stream")
    physical = _optional(f"{where}.name", found.get("name"), _TABLE_NAME, NAME_RULE)
    if stream is not None:
        of = str(re.sub(_STREAM_ARN, r"\1", stream))
        if of != (physical or name):
            raise _wrong(f"{where}.streamArn", f"a stream of table {physical or name!r}", stream)
    existing = found.get("existing", stream is not None)
    if not isinstance(existing, bool) or (stream is not None and not existing):
        raise _wrong(f"{where}.existing", "true beside a streamArn, else true or false", existing)
    if existing and ("read" in found or "write" in found):
        raise _wrong(where, "no capacity for an existing table, since nothing about it is changed", found)
    return TableSettings(
        name=physical,
        existing=existing,
        stream_arn=stream,
        readers=_whole(f"{where}.readers", found.get("readers", 0), 0, 10),
        read=_capacity(f"{where}.read", found.get("read")),
        write=_capacity(f"{where}.write", found.get("write")),
    )


def _capacity(where: str, value: Any) -> Capacity | None:
    if value is None:
        return None
    found = _object(where, value, {"least", "most"})
    least = _whole(f"{where}.least", found.get("least"), 1, 40_000)
    return Capacity(least=least, most=_whole(f"{where}.most", found.get("most"), least, 40_000))


# Lambda developer guide: quotas, and the parameters of an event source mapping for DynamoDB streams.
_BOUNDS = {
    "batchSize": ("batch_size", 1, 10_000),
    "batchingWindow": ("batching_window", 0, 300),
    "parallelization": ("parallelization", 1, 10),
    "memory": ("memory", 128, 10_240),
    "timeout": ("timeout", 3, 900),
    "retries": ("retries", -1, 10_000),
    "logDays": ("log_days", 1, 3653),
}
# CloudWatch Logs API reference, PutRetentionPolicy.
_LOG_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653)


def _consumer(name: str, value: Any) -> ConsumerSettings:
    where = f"consumers.{name}"
    found = _object(where, value, {*_BOUNDS, "delivery"})
    checked = ConsumerSettings(
        delivery=_choice(f"{where}.delivery", found.get("delivery", "lanes"), DELIVERIES),
        **{
            field_name: _whole(f"{where}.{key}", found[key], low, high)
            for key, (field_name, low, high) in _BOUNDS.items()
            if key in found
        },
    )
    if checked.log_days not in _LOG_DAYS:
        raise _wrong(f"{where}.logDays", f"one of {', '.join(map(str, _LOG_DAYS))}", checked.log_days)
    return checked


def _archive(name: str, value: Any) -> ArchiveSettings:
    where, expected = f"archives.{name}", "the label of a partition such as 2018-01"
    found = _object(where, value, {"since", "until"})
    labels = {key: _optional(f"{where}.{key}", label, _LABEL, expected) for key, label in found.items()}
    return ArchiveSettings(**labels)


def _object(where: str, value: Any, keys: set[str] | None = None) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise _wrong(where, "an object, on the command line as JSON", value) from None
    if not isinstance(value, dict):
        raise _wrong(where, "an object", value)
    if keys is not None and not keys.issuperset(value):
        raise _wrong(where, f"keys among {', '.join(sorted(keys))}", sorted(value.keys() - keys))
    return value


def _text(where: str, value: Any, form: re.Pattern[str], expected: str) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise _wrong(where, expected, value)
    return value


def _optional(where: str, value: Any, form: re.Pattern[str], expected: str) -> str | None:
    return None if value in (None, "") else _text(where, value, form, expected)


def _choice(where: str, value: Any, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise _wrong(where, " or ".join(choices), value)
    return str(value)


def _whole(where: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,6}", value, re.ASCII):
        value = int(value)
    if type(value) is not int or not low <= value <= high:
        raise _wrong(where, f"a whole number from {low:,} to {high:,}", value)
    return value


def _wrong(where: str, expected: str, came: object) -> ConfigurationError:
    return ConfigurationError(f"context: {where}: expected {expected}, came {shortened(came)}")
