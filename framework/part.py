"""Part: what a batch comes to for one handler, of either kind, as far as the consumer has to know it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from framework.decode import Record
from framework.sparse import Handler

__all__ = ["BadRecord", "Fold", "Part"]

# Fewer bad records than these say nothing about a deployment.
_FEW = 10

Fold: TypeAlias = Callable[[Record], None]
"""Folds one record into a part."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that a handler can make nothing of as it is.

    Attributes:
        handler: The handler's name.
        key: The item's key, as text.
        sequence_number: The record's sequence number.
        reason: What was expected and what came.
        images: Which of the record's images do not count for that, though they should.
        record: The record.
        uncertain: Whether they may have been counted already.
    """

    handler: str
    key: str
    sequence_number: str
    reason: str
    images: tuple[str, ...]
    record: Record = field(repr=False, compare=False)
    uncertain: bool = False


class Part(ABC):
    """One handler's part of a batch, filled record by record.

    Attributes:
        declaration: The handler.
        late: How many records came to an aggregate whose time was over.
    """

    __slots__ = ()

    declaration: Handler
    late: int

    @property
    @abstractmethod
    def bad(self) -> Sequence[BadRecord]:
        """The records that the handler can make nothing of."""

    @property
    @abstractmethod
    def contributions(self) -> int:
        """How much there is to write."""

    @property
    @abstractmethod
    def _bad_and_all(self) -> tuple[int, int]:
        """Of what tells whether the deployment is bad, how much is bad and how much there is."""

    @property
    def complaint(self) -> str:
        """That most of it is bad, as a sentence."""
        bad, total = self._bad_and_all
        return (
            f"{self.declaration.name}: expected at most {self.declaration.most_bad:.0%} of a batch to be bad records, "
            f"came {bad} of {total}: {self.bad[0].reason.partition(', came ')[0]}"
        )

    @property
    def mostly_bad(self) -> bool:
        """Whether so much of it is bad that a bad deployment is likelier than bad data."""
        bad, total = self._bad_and_all
        return bad >= _FEW and bad > self.declaration.most_bad * total
