"""Reading an archive: its partitions, the objects in each that count, and their lines.

What is merged is read once, also while it is merged: a partition is listed first, and then its manifest is read, so
that whatever was taken away before the one is in the other; and an object that is gone when it is to be read is read
from where the manifest says that its lines are then (`archive_manifest.py`).

AWS facts: S3 API reference, ListObjectsV2 (a thousand names a page, in order), GetObject (`NoSuchKey`, and
`InvalidObjectState` for what has to be restored from a colder class first).
"""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import IO, Any

from botocore.exceptions import ClientError

from framework.archive import ArchiveDeclaration
from framework.archive_lines import Content, Problem, Stored, unpacked
from framework.archive_manifest import (
    Merges,
    Source,
    is_merged,
    is_object,
    lane_and_place,
    manifest_name,
    revision_of,
)
from framework.deliver_archive import Bucket
from framework.errors import ReadError, shortened
from framework.patience import ahead, patiently

__all__ = ["ArchiveObjects", "Partition"]

_READ_AHEAD = 4  # objects that are fetched before their turn
_MOST_MOVES = 8  # an object may be merged, and that again, while it is looked for


@dataclass(frozen=True, slots=True)
class Partition:
    """The objects of one partition.

    Attributes:
        name: The partition, such as `date=2018-01-31`.
        objects: Those that are read, in the order of their names.
        left: Those that are not: sources that were merged, and merged ones that are not listed.
        merges: The manifest.
        etag: What S3 calls its content; None if there is none.
        problems: What is wrong with the partition as a whole.
        unsure: Whether the manifest is not there as it was, so that what was merged cannot be told.
    """

    name: str
    objects: tuple[Stored, ...]
    left: tuple[Stored, ...] = ()
    merges: Merges = field(default_factory=Merges)
    etag: str | None = None
    problems: tuple[Problem, ...] = ()
    unsure: bool = False

    @property
    def label(self) -> str:
        """The partition's date, month or year."""
        return self.name.partition("=")[2]


class ArchiveObjects:
    """The objects of one archive in its bucket.

    Args:
        bucket: The bucket.
        declaration: The archive.
        sleep: Waits for some seconds.

    Attributes:
        folder: What the names of all objects begin with, without the slash.
    """

    def __init__(
        self, bucket: Bucket, declaration: ArchiveDeclaration, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.declaration = declaration
        self.folder = declaration.prefix
        self._bucket = bucket
        self._sleep = sleep

    def where(self, partition: str, name: str) -> str:
        """An object's name in the bucket."""
        return "/".join(part for part in (self.folder, partition, name) if part)

    def partitions(self, since: str | None = None, until: str | None = None) -> Iterator[Partition]:
        """The partitions, in the order of time.

        Args:
            since: A date, a month or a year: the first partition is the one that it is in; None for all.
            until: The same for the last one.

        Raises:
            ClientError: S3 refuses to be read.
        """
        begin = "" if since is None else f"{self.folder}/{self.declaration.partition_key}={since}"
        found = self._listed(f"{self.folder}/", begin)
        for name, objects in groupby(found, key=lambda each: each.partition):
            label = name.partition("=")[2]
            if until is not None and label[: len(until)] > until[: len(label)]:
                return
            yield self._partition(name, [*objects])

    def partition(self, name: str) -> Partition:
        """One partition, as it is now."""
        return self._partition(name, [*self._listed(f"{self.folder}/{name}/", "")])

    def about(self, stored: Stored) -> Source:
        """What an object that was not merged says of itself, without its lines.

        Raises:
            ReadError: It says nothing, or is gone.
        """
        try:
            reply = self.call("head_object", Key=self.where(stored.partition, stored.name))
        except ClientError as error:
            if error.response["Error"]["Code"] in ("404", "NoSuchKey"):
                raise ReadError(f"{self.where(stored.partition, stored.name)}: is gone") from None
            raise
        return _source(stored, reply.get("Metadata", {}))

    def read(self, objects: Iterable[Stored]) -> Iterator[Content | Problem]:
        """What objects hold, in their order; some are fetched before their turn.

        A content is closed when the next one is asked for.

        Raises:
            ClientError: S3 refuses to be read.
        """
        for found in ahead(self.fetch, objects, workers=_READ_AHEAD):
            try:
                yield found
            finally:
                if isinstance(found, Content):
                    found.close()

    def fetch(self, stored: Stored) -> Content | Problem:
        """What an object holds, from where it is now."""
        name, lines = stored.name, None
        for _ in range(_MOST_MOVES):
            where = self.where(stored.partition, name)
            try:
                reply, file = self._get(where)
            except ClientError as error:
                code = error.response["Error"]["Code"]
                if code == "InvalidObjectState":
                    return Problem(where, f"expected an object that can be read at once, came one in {stored.storage}")
                if code != "NoSuchKey":
                    raise
                try:
                    merges, _ = self.manifest(stored.partition)
                except ReadError as damaged:
                    return Problem(where, str(damaged))
                moved = ((each.name, each.lines_of(stored.name)) for each in merges.merged)
                name, lines = next(((new, of) for new, of in moved if of is not None), (name, None))
                if lines is None:
                    return Problem(where, "expected an object, came none of that name")
                continue
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                return Problem(where, f"expected lines compressed with gzip, came {error}")
            remark = ""
            if stored.merged is not None:
                sources = stored.merged.sources
            elif lines is not None:
                sources = tuple(each for each in merges.sources if each.name == stored.name)
            else:
                source, remark = self._said(stored, reply)
                sources = (source,)
            return Content(stored, sources, file, lines, remark)
        return Problem(self.where(stored.partition, stored.name), "expected an object, came one that moves on and on")

    def manifest(self, partition: str) -> tuple[Merges, str | None]:
        """A partition's manifest, and what S3 calls its content; None if there is none.

        Raises:
            ReadError: There is something else.
        """
        name = manifest_name(self.folder, partition)

        def get() -> tuple[bytes, str]:
            reply = self._bucket.client().get_object(Bucket=self._bucket.name, Key=name)
            return reply["Body"].read(), reply["ETag"]

        try:
            text, etag = patiently(get, self._sleep)
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchKey":
                raise
            return Merges(), None
        try:
            return Merges.parse(text), etag
        except ReadError as error:
            raise ReadError(f"{name}: {error}") from None

    def manifests(self) -> Iterator[str]:
        """The partitions of which there is a manifest."""
        begin = manifest_name(self.folder, "").removesuffix(".json")
        return (each["Key"].removeprefix(begin).removesuffix(".json") for each in self._names(begin))

    def put(self, name: str, content: bytes, **arguments: Any) -> str | None:
        """Put an object on a condition; what S3 calls its content, or None where the condition does not hold."""
        try:
            return str(self.call("put_object", Key=name, Body=content, **arguments)["ETag"])
        except ClientError as error:
            # A name that is to be replaced and is gone is "NoSuchKey".
            if error.response["Error"]["Code"] not in ("PreconditionFailed", "NoSuchKey"):
                raise
            return None

    def call(self, operation: str, **arguments: Any) -> Any:
        """The answer to a request to the bucket, made again as long as its failure may pass.

        Raises:
            ClientError: It is refused.
        """
        request = getattr(self._bucket.client(), operation)
        return patiently(lambda: request(Bucket=self._bucket.name, **arguments), self._sleep)

    def _listed(self, prefix: str, after: str) -> Iterator[Stored]:
        for each in self._names(prefix, after):
            partition, slash, name = each["Key"].removeprefix(f"{self.folder}/").partition("/")
            if not slash:
                partition, name = "", partition
            at, storage = int(each["LastModified"].timestamp()), each.get("StorageClass", "STANDARD")
            yield Stored(partition, name, int(each["Size"]), at, each["ETag"], storage)

    def _names(self, prefix: str, after: str = "") -> Iterator[Any]:
        request: dict[str, Any] = {"Prefix": prefix, **({"StartAfter": after} if after else {})}
        while True:
            page = self.call("list_objects_v2", **request)
            # What ends in a slash is what a console shows as an empty folder.
            yield from (each for each in page.get("Contents", ()) if not each["Key"].endswith("/"))
            if not page.get("IsTruncated"):
                return
            request = {"Prefix": prefix, "ContinuationToken": page["NextContinuationToken"]}

    def _partition(self, name: str, found: list[Stored]) -> Partition:
        problems = [
            Problem(self.where(name, each.name), "expected an object of an archive, came another")
            for each in found
            if not is_object(each.name) or not name.startswith(f"{self.declaration.partition_key}=")
        ]
        if len(problems) == len(found):
            return Partition(name, (), (), problems=tuple(problems))
        try:
            merges, etag = self.manifest(name)
        except ReadError as error:
            # It hides what was merged: without it, some would be read twice.
            where = manifest_name(self.folder, name)
            return Partition(name, (), tuple(found), problems=(*problems, Problem(where, str(error))), unsure=True)
        unsure = False
        there = {each.name: each for each in found if is_object(each.name)}
        objects: list[Stored] = []
        left: list[Stored] = []
        for each in there.values():
            if is_merged(each.name):
                if merges.listed(each.name) is None:
                    left.append(each)
                    if revision_of(each.name) > merges.revision:
                        unsure = True
                        expected = "expected a manifest of merged objects that knows it"
                        problems.append(
                            Problem(self.where(name, each.name), f"{expected}, came revision {merges.revision}")
                        )
            else:
                (left if merges.has(each.name, each.etag) else objects).append(each)
        for merged in merges.merged:
            storage = there[merged.name].storage if merged.name in there else "STANDARD"
            objects.append(Stored(name, merged.name, merged.size, merged.at, "", storage, merged))
        objects.sort(key=lambda each: each.name)
        return Partition(name, tuple(objects), tuple(left), merges, etag, tuple(problems), unsure)

    def _get(self, where: str) -> tuple[Any, IO[bytes]]:
        def get() -> tuple[Any, IO[bytes]]:
            reply = self._bucket.client().get_object(Bucket=self._bucket.name, Key=where)
            return reply, unpacked(reply["Body"])

        return patiently(get, self._sleep)

    @staticmethod
    def _said(stored: Stored, reply: Any) -> tuple[Source, str]:
        try:
            return _source(stored, reply.get("Metadata", {})), ""
        except ReadError as error:
            # Its name tells enough to put it in order.
            _, place, _ = lane_and_place(stored.name)
            return Source(stored.name, place + 1, place + 1, 0, stored.at, stored.etag), str(error)


def _source(stored: Stored, said: Any) -> Source:
    try:
        first, through, items = (int(said[name]) for name in ("first", "through", "items"))
    except (KeyError, ValueError):
        expected = "expected metadata first, through and items"
        raise ReadError(f"{stored.name}: {expected}, came {shortened(said)}") from None
    return Source(stored.name, first, through, items, stored.at, stored.etag)
