"""Deliver the objects of archives: claimed, put where there is none, committed (`archive_lane.py`)."""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from framework.archive import ArchiveDeclaration
from framework.archive_fold import Line
from framework.archive_lane import AGAIN, ALONE, Lane, claiming, committing, lane_key, lane_of, object_name
from framework.archive_manifest import Merges, lane_and_place, manifest_name
from framework.errors import ReadError, shortened
from framework.quarantine import MEMORY_SECONDS
from framework.writer import NotDoneError, Outcome, Terms, Writer

__all__ = ["ArchiveDelivery", "Bucket", "Filing", "packed"]

_LEVEL = 6  # of compression: the highest take several times as long, for some hundredths


class _NoObjectError(Exception):
    """There is no object of that name."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Where archives are.

    Attributes:
        client: Makes a boto3 S3 client, or gives the one that there is.
        name: The bucket's name.
    """

    client: Callable[[], Any]
    name: str


@dataclass(frozen=True, slots=True)
class Filing:
    """What has to be filed of a batch in one archive.

    Attributes:
        declaration: The archive.
        prefix: The shard's, as `quarantine.lane_prefix` gives it.
        first: The sequence number of the batch's first record.
        last: That of its last record.
        lines: The items, in the order of their records.
    """

    declaration: ArchiveDeclaration
    prefix: str
    first: int
    last: int
    lines: Sequence[Line] = field(repr=False)


class ArchiveDelivery(Writer[Filing]):
    """Puts what is archived into objects, each item into one.

    Args:
        client: A boto3 DynamoDB client, for the control table.
        control: The control table's name.
        bucket: Where the archives are.
        options: As for `Writer`.
    """

    def __init__(self, client: Any, control: str, bucket: Bucket, **options: Any) -> None:
        super().__init__(client, **options)
        self._control = control
        self._bucket = bucket

    def _apply(self, job: Filing, outcome: Outcome, terms: Terms) -> None:
        outcome.failed_from = job.first
        lane: Lane | None = None
        tries = 0
        while True:
            if lane is None:
                lane = self._lane(job, outcome, terms)
            if terms.through:
                self._file_again(job, lane, outcome, terms)
            left = [line for line in job.lines if line.number > lane.of(line.partition)]
            if not left:
                outcome.duplicates += len(job.lines) - outcome.absorbed
                outcome.failed_from = None
                return
            lane = self._file(job, lane, left, outcome, terms)
            if lane is None:
                tries += 1
                self._pause(tries, terms, f"{_where(job)}: another writes to it at the same time")

    def _file_again(self, job: Filing, lane: Lane, outcome: Outcome, terms: Terms) -> None:
        """File what is in no object of a batch that Lambda gave up on, up to where the lane stands without it.

        Such a record is in an object only if an invocation put that before Lambda gave up, or somebody redrove the
        batch; and an object says from which record on it holds what belongs into it, and through which.
        """
        behind = [line for line in job.lines if line.number <= lane.of(line.partition)]
        for partition, lines in _by_partition(behind).items():
            held = [*self._held(job, partition, outcome, terms)]
            left = [line for line in lines if not any(line.number in numbers for numbers in held)]
            if left:
                first, through = left[0].number, min(job.last, lane.of(partition))
                name = object_name(job.declaration.prefix, partition, job.prefix, first - 1, AGAIN)
                if not self._put(name, left, first, through, outcome, terms):
                    raise NotDoneError(f"{_where(job)}: another brings the batch again at the same time")
                outcome.absorbed += len(left)

    def file_alone(self, job: Filing, outcome: Outcome, terms: Terms) -> None:
        """File one record that was set aside; it does no harm to do that again.

        Raises:
            NotDoneError: It could not be.
        """
        (line,) = job.lines
        name = object_name(job.declaration.prefix, line.partition, job.prefix, job.first - 1, ALONE)
        if self._merges(job, line.partition, outcome, terms).source(name) is not None:
            return
        self._put(name, job.lines, job.first, job.last, outcome, terms)

    def _held(self, job: Filing, partition: str, outcome: Outcome, terms: Terms) -> Iterator[range]:
        """The sequence numbers that the lane's objects in a partition hold, as far as they matter for a batch."""
        last = object_name(job.declaration.prefix, partition, job.prefix, job.last)
        request: dict[str, Any] = {"Bucket": self._bucket.name, "Prefix": last[: last.rindex("-") + 1]}
        names: dict[str, str] = {}
        while True:
            page = self._object(outcome, terms, "list_objects_v2", request)
            names |= {each["Key"]: each["ETag"] for each in page.get("Contents", ()) if each["Key"] < last}
            if not page.get("IsTruncated"):
                break
            request["ContinuationToken"] = page["NextContinuationToken"]
        # What is merged by now may be gone, and its range is in the manifest.
        merges = self._merges(job, partition, outcome, terms)
        lane = lane_and_place(last.rpartition("/")[2])[0]
        yield from (source.numbers for source in merges.sources if source.lane == lane)
        earlier = False
        for name in sorted(names, reverse=True):
            if merges.has(name, names[name]):
                continue
            redriven = name.endswith((f"{AGAIN}.json.gz", f"{ALONE}.json.gz"))
            if redriven or not earlier:
                found = self._range(name, outcome, terms)
                # Of those that came in order, one whose name is lower ends earlier.
                earlier = earlier or (not redriven and found.stop <= job.first)
                yield found

    def _merges(self, job: Filing, partition: str, outcome: Outcome, terms: Terms) -> Merges:
        """Which objects of a partition were merged."""
        name = manifest_name(job.declaration.prefix, partition)
        try:
            found = self._object(outcome, terms, "get_object", {"Bucket": self._bucket.name, "Key": name})
            return Merges.parse(found["Body"].read())
        except _NoObjectError:
            return Merges()
        except (ReadError, BotoCoreError) as error:
            raise NotDoneError(f"archive: bucket {self._bucket.name!r}: {name}: {error}") from None

    def _lane(self, job: Filing, outcome: Outcome, terms: Terms) -> Lane:
        arguments = {"TableName": self._control, "Key": self._key(job), "ConsistentRead": True}
        item = self._ask(outcome, terms, "get_item", arguments).get("Item")
        try:
            lane = lane_of(item)
        except (KeyError, TypeError, ValueError):
            raise NotDoneError(f"{_where(job)}: expected a lane's state, came {shortened(item, 300)}") from None
        if lane.number and lane.layout != job.declaration.layout:
            raise NotDoneError(
                f"{_where(job)}: expected prefix and partition as they were ({lane.layout}), came "
                f"{job.declaration.layout}: what is divided otherwise needs an archive of another name"
            )
        return replace(lane, layout=job.declaration.layout)

    def _file(self, job: Filing, lane: Lane, left: Sequence[Line], outcome: Outcome, terms: Terms) -> Lane | None:
        """Claim, put, commit; the lane as it is then, or None where another was faster."""
        lines = _by_partition(left)
        partitions = lane.claimed | lines.keys()
        if not self._update(job, claiming(lane, partitions, self._expires), outcome, terms):
            return None
        lane = replace(lane, number=lane.number + 1)
        absorbed = 0
        through = {}
        for partition in sorted(partitions):
            name = object_name(job.declaration.prefix, partition, job.prefix, lane.done)
            ours = lines.get(partition, [])
            # Long after, an object that was put under a claim, which then was never committed, may be merged.
            merged = self._merges(job, partition, outcome, terms).source(name) if terms.through else None
            if merged is not None:
                through[partition] = merged.through
            elif self._put(name, ours, max(job.first, lane.of(partition) + 1), job.last, outcome, terms):
                through[partition] = job.last
                absorbed += len(ours)
            else:
                through[partition] = self._range(name, outcome, terms).stop - 1
        # Up to where every object that holds some of the batch goes.
        short = [through[partition] for partition, of in lines.items() if of[-1].number > through[partition]]
        done = max(lane.done, min([job.last, *short]))
        ahead = {partition: max(lane.of(partition), through.get(partition, 0)) for partition in {*lane.ahead, *through}}
        after = replace(lane, done=done, ahead={name: number for name, number in ahead.items() if number > done})
        outcome.absorbed += absorbed
        if not self._update(job, committing(after, self._expires), outcome, terms):
            return None
        return replace(after, claimed=frozenset(), number=after.number + 1)

    def _put(self, name: str, lines: Sequence[Line], first: int, through: int, outcome: Outcome, terms: Terms) -> bool:
        """Put an object with what belongs into it of a range of records; whether there was none of that name."""
        arguments = {
            "Bucket": self._bucket.name,
            "Key": name,
            "Body": packed([line.text for line in lines]),
            "ContentType": "application/gzip",
            "Metadata": {"first": str(first), "through": str(through), "items": str(len(lines))},
            "IfNoneMatch": "*",
        }
        return self._object(outcome, terms, "put_object", arguments) is not None

    def _range(self, name: str, outcome: Outcome, terms: Terms) -> range:
        """From which record on an object holds what belongs into it, and through which."""
        found = self._object(outcome, terms, "head_object", {"Bucket": self._bucket.name, "Key": name})
        try:
            return range(int(found["Metadata"]["first"]), int(found["Metadata"]["through"]) + 1)
        except (KeyError, TypeError, ValueError):
            raise NotDoneError(f"archive: {name}: expected an object of an archive, came another") from None

    def _object(self, outcome: Outcome, terms: Terms, operation: str, arguments: dict[str, Any]) -> Any:
        """The answer to a request to S3; None where its condition failed."""
        try:
            return self._call(outcome, terms, operation, arguments, client=self._bucket.client())
        except ClientError as error:
            if error.response["Error"]["Code"] == "PreconditionFailed":
                return None
            reason = str(error)
        except NotDoneError as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and cause.response["Error"]["Code"] == "NoSuchKey":
                raise _NoObjectError from None
            reason = str(error)
        where = arguments.get("Key") or arguments.get("Prefix")
        raise NotDoneError(f"archive: bucket {self._bucket.name!r}: {where}: {reason}")

    def _update(self, job: Filing, arguments: dict[str, Any], outcome: Outcome, terms: Terms) -> bool:
        arguments = {"TableName": self._control, "Key": self._key(job), **arguments}
        try:
            self._call(outcome, terms, "update_item", arguments)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise NotDoneError(f"{_where(job)}: {error}") from error
            outcome.conflicts += 1
            return False
        return True

    def _ask(self, outcome: Outcome, terms: Terms, operation: str, arguments: dict[str, Any]) -> Any:
        try:
            return self._call(outcome, terms, operation, arguments)
        except ClientError as error:
            raise NotDoneError(str(error)) from error

    def _key(self, job: Filing) -> Any:
        return lane_key(job.declaration.name, job.prefix)

    @property
    def _expires(self) -> int:
        return int(self._now()) + MEMORY_SECONDS


def _by_partition(lines: Sequence[Line]) -> dict[str, list[Line]]:
    found: defaultdict[str, list[Line]] = defaultdict(list)
    for line in lines:
        found[line.partition].append(line)
    return found


def packed(lines: Sequence[str]) -> bytes:
    """Lines as an object holds them: compressed, and the same bytes for the same lines."""
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), _LEVEL, mtime=0)


def _where(job: Filing) -> str:
    return f"archive {job.declaration.name}: lane {job.prefix}"
