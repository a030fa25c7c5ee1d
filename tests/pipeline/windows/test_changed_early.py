"""`early` may be another one when a job goes on: what was due by the old one follows it."""

from __future__ import annotations

from typing import Any

import pytest
from window_oracle import TimedHarness, is_empty, operator, told

from pipeline import Session, Sliding, Tumbling
from pipeline.paged import directory

WINDOWS = {"tumbling": Tumbling(10), "sliding": Sliding(10, 5), "session": Session(10)}


class Changing:
    """A window operator that is restarted with another `early`, in milliseconds."""

    def __init__(self, window: str, early: int | None, backend: Any) -> None:
        self._window, self._backend = WINDOWS[window], backend
        self.harness = TimedHarness(operator(self._window, early=early), state_backend=backend)

    def restart(self, early: int | None) -> None:
        before = self.harness
        self.harness = TimedHarness.restore(
            operator(self._window, early=early), [before.snapshot()], clock=before.clock, state_backend=self._backend
        )
        before.close()

    def send(self, number: int, key: str = "ann", at: int = 1) -> None:
        self.harness.process(number, key=key, timestamp=at)

    def early(self) -> list[tuple[Any, ...]]:
        """The early results since the restart: key and records."""
        return sorted({(key, numbers) for key, _, _, final, numbers in told(self.harness.outputs) if not final})

    def end(self) -> None:
        self.harness.end_of_input()
        assert is_empty(self.harness)
        self.harness.close()


@pytest.fixture(params=["heap", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("most", [directory.MOST, 2])
@pytest.mark.parametrize("window", WINDOWS)
def test_without_early_none_comes_that_was_due(
    window: str, most: int, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "MOST", most)
    job = Changing(window, 2000, backend)
    for number in range(5):
        job.send(number, at=number * 25_000)
        job.send(number, key="bob")
    job.restart(None)
    job.harness.advance_time(60)
    job.send(5)
    assert job.early() == []
    job.end()


@pytest.mark.parametrize("window", WINDOWS)
def test_with_update_each_record_gives_one_and_the_clock_none(window: str, backend: Any) -> None:
    job = Changing(window, 2000, backend)
    job.send(0)
    job.restart(0)
    job.harness.advance_time(60)
    assert job.early() == []
    job.send(1)
    assert job.early() == [("ann", (0, 1))]
    job.end()


@pytest.mark.parametrize("before", [None, 0])
def test_where_none_came_by_the_clock_they_do_once_something_changes(before: int | None, backend: Any) -> None:
    job = Changing("tumbling", before, backend)
    job.send(0)
    job.restart(2000)
    job.harness.advance_time(60)
    assert job.early() == []
    job.send(1)
    job.harness.advance_time(2)
    assert job.early() == [("ann", (0, 1))]
    job.end()


def test_a_shorter_one_counts_at_once(backend: Any) -> None:
    job = Changing("tumbling", 3_600_000, backend)
    job.harness.advance_time(5)
    job.send(0)
    job.restart(2000)
    job.harness.advance_time(0)
    assert job.early() == [("ann", (0,))]  # it would have come at 2 s
    job.send(1, key="bob")
    job.harness.advance_time(1)
    assert job.early() == [("ann", (0,)), ("bob", (1,))]
    job.end()


def test_a_longer_one_counts_at_once(backend: Any) -> None:
    job = Changing("tumbling", 2000, backend)
    job.harness.advance_time(5)
    job.send(0)
    job.restart(60_000)
    job.harness.advance_time(54.999)
    assert job.early() == []
    job.harness.advance_time(0.001)
    assert job.early() == [("ann", (0,))]
    job.end()


def test_an_earlier_version_has_not_said_what_it_was(backend: Any) -> None:
    job = Changing("tumbling", 2000, backend)
    job.send(0)
    snapshot = job.harness.operator.snapshot
    job.harness.operator.snapshot = lambda id: {k: v for k, v in snapshot(id).items() if k != "early"}  # type: ignore[method-assign]
    job.restart(None)
    job.harness.advance_time(60)
    assert job.early() == []
    job.end()
