"""Compact: merge the small objects of an archive's partitions into few large ones, each item read once at any moment.

For a group of objects of one partition:

1. *make* the merged object's lines, in memory: those of its sources, one after the other;
2. *begin*: note in the partition's manifest, on condition that it is as seen, what is about to be merged, and under
   which name: `merged-N`, N being the manifest's revision, which nobody else can have;
3. *put* it, if there is none of that name, and read it back: its lines have to have the digest that was noted;
4. *switch*: on condition that the manifest is still as we wrote it, list the merged object instead of what it was made
   of. This is the one moment at which readers change over (`archive_manifest.py` says what they read);
5. *delete* what it was made of.

*Invariant.* (1) Each item of the partition is in exactly one object that is read: a manifest lists a merged object and
its sources in one write, and nobody writes over it but on condition of having seen it. (2) A merged object that is
listed is there and whole: it was read back before, under a name that no other content ever gets (a revision is written
once, and begins one object at most). (3) What is deleted is not read: a source only once the manifest has it, by name
and content; a merged object only if the manifest neither lists nor begins it, and is beyond the revision that began it.
Whoever began that one can switch no more, for the manifest is not as it was.

So it may be broken off or killed anywhere. Whoever comes next finds, in this order: sources that are merged and still
there, and merged objects that nobody can list any more: it deletes them; what is begun: if the object is there and
whole, it switches, else it takes the note back, and begins anew. Of two at once in one partition, one finds that the
manifest is not as it was, deletes what it put if that is not listed, and leaves the partition to the other.

*Which.* An object's name has to stay taken for as long as somebody may still want to put it (`archive_lane.py`): a
process that claimed before, for a quarter of an hour; and whoever claims anew while a claim stands that was never
committed. That is over once the lane has gone on, as a later object of the lane shows; or once it is at its end, as it
is after two days: records live for one, and a shard takes new ones for some hours. Only objects of the standard class
are merged: others are cold, and were paid to stay there for some time.

Athena, which knows nothing of a manifest, reads items twice from 3 to 5: for about a second, or, after a crash, until
the next run. It never misses any.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from framework.archive_lines import Content, Problem, Stored, ended
from framework.archive_manifest import (
    Former,
    Merged,
    Merges,
    Source,
    is_merged,
    lane_and_place,
    manifest_name,
    merged_name,
)
from framework.archive_objects import ArchiveObjects, Partition
from framework.errors import ConfigurationError
from framework.patience import ahead

__all__ = ["Compacted", "Compaction", "Limits", "plan"]

_LEVEL = 6  # of compression, as the consumer's
_HOUR = 3600
_MOST_DELETED = 1000  # at once (S3 API reference, DeleteObjects)
_AT_ONCE = 2  # partitions; each holds an object in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Which objects are merged.

    Attributes:
        below: Those of fewer bytes.
        older_than: Those that were put longer ago, in seconds.
        most: Into objects of as many bytes at most, about.

    Raises:
        ConfigurationError: Objects that are too young to be taken away.
    """

    below: int = 8 * 2**20
    older_than: float = 48 * _HOUR
    most: int = 64 * 2**20

    def __post_init__(self) -> None:
        if not self.older_than >= _HOUR:
            expected = "expected an hour or more, for a consumer may still want to put an object of that name"
            raise ConfigurationError(f"compact: older than: {expected}, came {self.older_than:g} s")


@dataclass(slots=True)
class Compacted:
    """What became of a partition.

    Attributes:
        partition: The partition.
        before: How many objects were merged; in a dry run, would be.
        after: Into how many.
        bytes: The bytes of what was merged.
        deleted: How many objects were deleted; what another run left behind is among them.
        problems: What could not be merged, and stays as it is.
        left: Whether another compacts it at the same time, so that it was left to that one.
    """

    partition: str
    before: int = 0
    after: int = 0
    bytes: int = 0
    deleted: int = 0
    problems: list[Problem] = field(default_factory=list)
    left: bool = False


class _LostError(Exception):
    """Another has written the manifest."""


def plan(partition: Partition, limits: Limits, now: float) -> list[list[Stored]]:
    """The groups of a partition's objects that are to be merged, each into one.

    Args:
        partition: The partition.
        limits: Which objects.
        now: The time in epoch seconds.
    """
    latest: dict[str, int] = {}
    for each in partition.objects:
        if each.merged is None:
            lane, place, redriven = lane_and_place(each.name)
            if not redriven and each.at <= now - _HOUR:
                latest[lane] = max(place, latest.get(lane, 0))

    def is_free(each: Stored) -> bool:
        if each.merged is not None or each.at <= now - 48 * _HOUR:
            return True
        lane, place, redriven = lane_and_place(each.name)
        return redriven or place < latest.get(lane, 0)

    groups: list[list[Stored]] = [[]]
    size = 0
    for each in partition.objects:
        old = each.merged is not None or each.at <= now - limits.older_than
        if each.size < limits.below and old and each.storage == "STANDARD" and is_free(each):
            if size + each.size > limits.most:
                groups.append([])
                size = 0
            groups[-1].append(each)
            size += each.size
    return [group for group in groups if len(group) > 1]


class Compaction:
    """Merges an archive's small objects.

    Args:
        objects: The archive.
        limits: Which objects.
        now: The time in epoch seconds.
    """

    def __init__(self, objects: ArchiveObjects, limits: Limits, *, now: Callable[[], float] = time.time) -> None:
        self._objects = objects
        self._limits = limits
        self._now = now

    def run(self) -> Iterator[Compacted]:
        """Merge, partition by partition, several at once; yields what became of each.

        Raises:
            ClientError: S3 refuses a request. It may be run again at any time.
        """
        return ahead(self.compact, self._objects.partitions(), workers=_AT_ONCE)

    def compact(self, partition: Partition) -> Compacted:
        """Merge the small objects of a partition, as it was seen."""
        done = Compacted(partition.name, problems=[*partition.problems])
        if partition.unsure:
            return done
        manifest = _Manifest(self._objects, partition)
        try:
            if partition.left or manifest.merges.begun is not None:
                self._finish(manifest, partition, done)
                partition = self._objects.partition(partition.name)
                manifest = _Manifest(self._objects, partition)
                if manifest.merges.begun is not None or partition.unsure:
                    raise _LostError
            for group in plan(partition, self._limits, self._now()):
                self._merge(manifest, group, done)
        except _LostError:
            done.left = True
        return done

    def _finish(self, manifest: _Manifest, partition: Partition, done: Compacted) -> None:
        """Finish what another run has left."""
        begun, there = manifest.merges.begun, {each.name for each in partition.left}
        if begun is not None:
            if begun.name in there and self._is_whole(partition.name, begun):
                manifest.write(_switched(manifest.merges, begun))
            else:
                manifest.write(Merges(manifest.merges.revision + 1, manifest.merges.merged))
        merges = manifest.merges
        gone = [each.name for each in partition.left if not is_merged(each.name)]
        # Those under the names of what was read until now, too.
        names = {each.name: each.etag for each in partition.objects if each.merged is None}
        gone += [source.name for source in (begun.sources if begun else ()) if names.get(source.name) == source.etag]
        gone = [name for name in gone if merges.source(name) is not None]
        if gone and not all(self._is_whole(partition.name, each) for each in _holding(merges, gone)):
            done.problems.append(
                Problem(manifest.name, "expected the merged objects that it lists, came none: nothing is deleted")
            )
            return
        orphans = [name for name in there if is_merged(name)]
        orphans += [each.name for each in partition.objects if each.merged is not None]
        self._delete(partition.name, [*gone, *(name for name in orphans if merges.listed(name) is None)], done)

    def _merge(self, manifest: _Manifest, group: Sequence[Stored], done: Compacted) -> None:
        name = merged_name(manifest.merges.revision + 1)
        merged, content, gone = self._made(name, group, done)
        if len(gone) < 2:
            return
        partition = group[0].partition
        before = manifest.merges
        manifest.write(Merges(before.revision + 1, before.merged, merged))
        where = self._objects.where(partition, name)
        metadata = {"items": str(merged.items)}
        self._objects.put(where, content, ContentType="application/gzip", Metadata=metadata, IfNoneMatch="*")
        try:
            if not self._is_whole(partition, merged):
                done.problems.append(Problem(where, "expected what was put, came something else"))
                manifest.write(Merges(before.revision + 2, before.merged))
                return
            manifest.write(_switched(manifest.merges, merged))
        except _LostError:
            if manifest.knows_not(name):
                self._delete(partition, [name], done)
            raise
        done.before, done.after = done.before + len(gone), done.after + 1
        done.bytes += sum(each.size for each in gone)
        self._delete(partition, [each.name for each in gone], done)

    def _made(self, name: str, group: Sequence[Stored], done: Compacted) -> tuple[Merged, bytes, list[Stored]]:
        """An object of all those of a group that are as they should be, its content, and these."""
        fit: list[Stored] = []
        sources: list[Source] = []
        former: list[Former] = []
        digest, buffer, items = hashlib.sha256(), io.BytesIO(), 0
        with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=_LEVEL, mtime=0) as packed:
            for content in self._objects.read(group):
                if isinstance(content, Problem):
                    done.problems.append(content)
                    continue
                reason = _unfit(content)
                if reason:
                    where = self._objects.where(content.stored.partition, content.stored.name)
                    done.problems.append(Problem(where, reason))
                    continue
                fit.append(content.stored)
                if (was := content.stored.merged) is not None:
                    former.append(Former(was.name, items, was.items))
                    former += [Former(each.name, items + each.start, each.items) for each in was.former]
                sources += content.sources
                for _, _, text in content.lines():
                    items += 1
                    line = ended(text)
                    digest.update(line)
                    packed.write(line)
        made = buffer.getvalue()
        merged = Merged(name, tuple(sources), tuple(former), digest.hexdigest(), len(made), int(self._now()))
        return merged, made, fit

    def _is_whole(self, partition: str, merged: Merged) -> bool:
        """Whether a merged object is there, readable, and what it should be."""
        found = self._objects.fetch(Stored(partition, merged.name, merged.size, merged.at, "", merged=merged))
        if isinstance(found, Problem):
            return False
        try:
            return found.digest() == merged.digest
        finally:
            found.close()

    def _delete(self, partition: str, names: Sequence[str], done: Compacted) -> None:
        for start in range(0, len(names), _MOST_DELETED):
            keys = [{"Key": self._objects.where(partition, name)} for name in names[start : start + _MOST_DELETED]]
            reply = self._objects.call("delete_objects", Delete={"Objects": keys, "Quiet": True})
            failed = reply.get("Errors", ())
            done.problems += [Problem(each["Key"], f"expected to delete it, came {each['Code']}") for each in failed]
            done.deleted += len(keys) - len(failed)


class _Manifest:
    """A partition's manifest, written only as long as nobody else writes it."""

    def __init__(self, objects: ArchiveObjects, partition: Partition) -> None:
        self.name = manifest_name(objects.folder, partition.name)
        self.merges = partition.merges
        self._objects = objects
        self._partition = partition.name
        self._etag = partition.etag

    def write(self, merges: Merges) -> None:
        """Put it in the place of what was seen.

        Raises:
            _LostError: That is not there any more.
        """
        condition = {"IfNoneMatch": "*"} if self._etag is None else {"IfMatch": self._etag}
        text = merges.text()
        etag = self._objects.put(self.name, text.encode(), ContentType="application/json", **condition)
        if etag is None:
            # Our own write may have gone through, and its answer got lost.
            found, etag = self._objects.manifest(self._partition)
            if found.text() != text or etag is None:
                raise _LostError
        self.merges, self._etag = merges, etag

    def knows_not(self, name: str) -> bool:
        """Whether the manifest, as it is now, neither lists nor begins an object: then it never will."""
        found, _ = self._objects.manifest(self._partition)
        begun = found.begun is not None and found.begun.name == name
        return found.listed(name) is None and not begun


def _switched(merges: Merges, merged: Merged) -> Merges:
    former = {each.name for each in merged.former}
    return Merges(merges.revision + 1, (*(each for each in merges.merged if each.name not in former), merged))


def _holding(merges: Merges, names: Sequence[str]) -> list[Merged]:
    return [merged for merged in merges.merged if not {source.name for source in merged.sources}.isdisjoint(names)]


def _unfit(content: Content) -> str:
    """Why an object cannot be merged; empty if it can."""
    if content.remark:
        return content.remark
    count, said = content.count(), sum(source.items for source in content.sources)
    return "" if count == said else f"expected {said} lines, as it says, came {count}"
