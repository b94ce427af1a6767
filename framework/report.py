"""Report: Powertools' batch processing, with delivery once when the batch closes."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType
from aws_lambda_powertools.utilities.data_classes.dynamo_db_stream_event import DynamoDBRecord

from framework.decode import Record, by_number

__all__ = ["StreamProcessor"]

# What Powertools' loop gets for a folded record: its fate is known only when the batch closes.
_FOLDED: tuple[str, None, None] = ("folded", None, None)


class StreamProcessor(BatchProcessor):
    """Powertools' `BatchProcessor` for records that are folded one by one and delivered together.

    Powertools' own loop hands each record to the handler, here the fold; when its context closes, `close` delivers
    the batch and says from which sequence number on it has to come again. Only that lowest one is reported: Lambda
    takes it as the checkpoint (AWS facts: event source mapping). A batch that fails whole is reported from its first
    record, without an exception and its stack trace for every record.

    Args:
        close: Delivers what was folded; returns the lowest sequence number that is not done, or None.
    """

    def __init__(self, close: Callable[[], int | None]) -> None:
        super().__init__(event_type=EventType.DynamoDBStreams, raise_on_entire_batch_failure=False)
        self._close = close

    def _process_record(self, record: Record) -> Any:
        self.handler(record)
        return _FOLDED

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # After an error in the loop nothing may be written.
        if exception_type is None:
            super().__exit__(exception_type, exception_value, traceback)  # type: ignore[no-untyped-call]

    def _clean(self) -> None:
        failed_from = self._close()
        if failed_from is not None:
            self.fail_messages.append(DynamoDBRecord(self._at(failed_from)))
        super()._clean()  # type: ignore[no-untyped-call]

    def _at(self, sequence: int) -> Record:
        return by_number(self.records)[sequence]
