"""A clock for sources that keep to a rate."""

from __future__ import annotations

from types import ModuleType

import pytest

from sources import SourceBatch, SourceReader, rate_limit


class StoppedClock:
    """In place of `time` in modules: it goes on when a test says so, and no sleep takes time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
        """`module`: of the reader, which goes by the clock from then on."""
        self._now = 1000.0
        for each in (module, rate_limit):
            monkeypatch.setattr(each, "time", self)

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        pass

    def records_after(self, seconds: float, reader: SourceReader) -> int:
        """How many records one poll brings when so much time has passed."""
        self._now += seconds
        polled = reader.poll(10_000, 0.0)
        return len(polled) if isinstance(polled, SourceBatch) else 0
