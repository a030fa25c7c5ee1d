"""A sink for looking at a stream."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from checkpoint.options import named_options
from checkpoint.shown import shown
from sinks.sink import Sink, SinkBatch, SinkWriter, WriterContext


@named_options
class PrintSink(Sink):
    """Writes each record to standard output, one a line, in the subtask's process. After a restart lines repeat.

    Args:
        prefix: written in front of every line.
    """

    def __init__(self, prefix: str = "") -> None:
        if not isinstance(prefix, str):
            raise ValueError(f"prefix must be a str, not {prefix!r}")
        self.prefix = prefix

    def create_writer(self, ctx: WriterContext) -> SinkWriter:
        return _PrintWriter(self.prefix)


class _PrintWriter(SinkWriter):
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def write_batch(self, batch: SinkBatch) -> None:
        # One write, so that the lines of several subtasks don't mix.
        try:
            text = "".join(f"{self._prefix}{value}\n" for value in batch.values)
        except Exception:  # a value has no str: an int of more than 4,300 digits, or one of the user's classes
            text = "".join(f"{self._prefix}{_text(value)}\n" for value in batch.values)
        encoding = sys.stdout.encoding or "utf-8"
        # What the terminal can't show is shown as an escape; it is no reason to fail.
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()

    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        return []


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:
        return shown(value)
