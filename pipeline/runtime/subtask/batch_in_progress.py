"""The batch that a record loop is working on. Between two records it can be left, and what is left of it put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from checkpoint.edge_format import DecodedRows, EdgeFormat
from checkpoint.elements import ChannelName, Data
from checkpoint.state import KeyedBackend
from pipeline.runtime.subtask.event_time.domains import TimeDomain
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.record_in_progress import RecordInProgress

Origin: TypeAlias = int | ChannelName
"""Index of the input channel that the batch was taken from; for restored data, the channel it was captured on."""


class BatchInProgress:
    """Rows of one batch, from the one to be processed next. Empty at first."""

    def __init__(self, record: RecordInProgress, mailbox: Mailbox, backend: KeyedBackend | None) -> None:
        self._record = record
        self._mailbox = mailbox
        self._backend = backend
        self._element = Data(b"", 0, 0)
        self._rows = DecodedRows([], None, None, None)
        self._row = 0
        self._push: Callable[[Any], None] = _nothing
        self._ahead: TimeDomain | None = None
        self.origin: Origin = 0

    def __bool__(self) -> bool:
        return self._row < len(self._rows.values)

    def take(
        self,
        element: Data,
        origin: Origin,
        edge_format: EdgeFormat,
        push: Callable[[Any], None],
        inside: TimeDomain | None = None,
    ) -> None:
        """Begin with a batch.

        Args:
            edge_format: of the edge that it was on.
            push: where its records enter the chain.
            inside: `None` = `push` leads to the head: to the keyed operator, if there is one. Else it leads to a step
                that is chained now, in this domain, and the records are older than the watermark that holds there.
        """
        if element.unpacked is None:
            element.unpacked = edge_format.rows(edge_format.from_frame(element.payload))
        self._element = element
        self._rows = element.unpacked
        self._row = element.start
        self._push = push
        self._ahead = inside
        self.origin = origin

    def release(self) -> Data:
        """Let go of what is not processed; the caller puts it back."""
        rest = self._element.from_row(self._row)
        self._drop()
        return rest

    @property
    def inside(self) -> bool:
        """Whether its records enter behind the head."""
        return self._ahead is not None

    @property
    def bytes(self) -> int:
        """Share of the batch's bytes that is not processed."""
        element = self._element
        return element.size * (element.rows - self._row) // element.rows if element.rows else 0

    def process(self) -> int:
        """Push records until none is left or something asks for attention. Returns how many.

        A record that raises counts as processed: the attempt is over.
        """
        values, timestamps, keys, groups = self._rows
        record, mailbox, push, ahead = self._record, self._mailbox, self._push, self._ahead
        first = row = self._row
        last = len(values)
        if ahead is not None:
            ahead.show(None)
        record.leave()
        try:
            if keys is not None and ahead is None and self._backend is not None:
                assert groups is not None
                # What `set_current_key` does for each, without a call.
                self._backend.check_groups(groups)
                current, first_group = self._backend.current_key, self._backend.key_groups.start
                while row < last and not mailbox.interrupt:
                    record.key_bytes = current.key = keys[row]
                    group = record.key_group = groups[row]
                    current.index = group - first_group
                    record.timestamp = None if timestamps is None else timestamps[row]
                    push(values[row])
                    row += 1
                self._backend.clear_current_key()
            elif keys is not None:
                assert groups is not None
                while row < last and not mailbox.interrupt:
                    record.key_bytes = keys[row]
                    record.key_group = groups[row]
                    if timestamps is not None:
                        record.timestamp = timestamps[row]
                    push(values[row])
                    row += 1
            else:
                while row < last and not mailbox.interrupt:
                    if timestamps is not None:
                        record.timestamp = timestamps[row]
                    push(values[row])
                    row += 1
        finally:
            self._row = row
            record.key_bytes = None
            if ahead is not None:
                ahead.show(ahead.watermark)
        if row == last:
            self._drop()
        return row - first

    def _drop(self) -> None:
        self._element = Data(b"", 0, 0)
        self._rows = DecodedRows([], None, None, None)
        self._row = 0


def _nothing(value: Any) -> None:
    raise AssertionError("no batch in progress")
