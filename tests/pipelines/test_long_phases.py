"""Whatever a subtask does may take longer than silence may last: nobody takes it for dead, and status says what it is.

The limits are small here, and what takes long takes longer than any of them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from small_job import NEVER, records, running, small_job

from pipeline import KeyedOperator, RestartStrategy, ValueState
from pipeline.runtime.driver import attempt, attempt_context
from pipeline.runtime.liveness import Limits
from pipeline.testing import TestingSink, TestingSource

Name = Callable[[str], str]


LIMITS = Limits(pace=0.2, vanished=4.0, silent=4.0, start=20.0, told=0.5)
LONG = 7.0
"""Seconds; longer than any silence may last."""


class Long:
    """What takes long in one phase, in the subtask that comes first, once in each attempt that gets there."""

    def __init__(self, folder: Path, phase: str, take: Callable[[], Any] = lambda: time.sleep(LONG)):
        self._folder = folder
        self._phase = phase
        self._take = take

    def __call__(self, phase: str) -> None:
        if phase == self._phase:
            try:
                (self._folder / phase).mkdir()
            except FileExistsError:
                return
            self._take()
            (self._folder / "taken").touch()

    @property
    def taken(self) -> bool:
        return (self._folder / "taken").exists()


class Operator(KeyedOperator):
    count = ValueState(default=0)

    def __init__(self, long: Long) -> None:
        self._long = long

    def open(self, ctx: Any) -> None:
        self._long("open")

    def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        self._long("process")
        self.count.value += 1
        yield value

    def snapshot(self, checkpoint_id: int) -> Any:
        self._long("snapshot")
        return {"kept": 1}

    def restore(self, state: Any) -> None:
        self._long("restore")

    def close(self) -> None:
        self._long("close")


class Source(TestingSource):
    def __init__(self, long: Long, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._long = long

    def create_reader(self, ctx: Any) -> Any:
        self._long("create_reader")
        return super().create_reader(ctx)


class Sink(TestingSink):
    """Its first commit behind a stop fails."""

    def __init__(self, long: Long, folder: Path, fails: bool) -> None:
        super().__init__()
        self._long = long
        self._failed = folder / "commit failed"
        self._fails = fails

    def create_writer(self, ctx: Any) -> Any:
        self._long("create_writer")
        return super().create_writer(ctx)

    def create_committer(self, ctx: Any) -> Any:
        self._long("create_committer")
        committer = super().create_committer(ctx)
        commit = committer.commit

        def slow_commit(checkpoint_id: int, committables: Any) -> None:
            if committables and self._fails:
                if not self._failed.exists():
                    self._failed.touch()
                    raise RuntimeError("the first commit fails")
                self._long("commit only")
            self._long("commit")
            commit(checkpoint_id, committables)

        committer.commit = slow_commit
        return committer


PHASES = {
    "open": "is in open() of 'count'",
    "create_reader": "is being set up",
    "create_writer": "is being set up",
    "create_committer": "is opening the committers of 'out'",
    "process": None,
    "snapshot": None,
    "commit": None,
    "close": "is closing",
}
"""What status says; `None`: nothing, as it may take long at any time, and metrics tell."""


def waits(handle: Any) -> list[str]:
    return [wait["what"] for wait in handle.metrics()["waits"]]


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_context, "LIMITS", LIMITS)


@pytest.mark.parametrize(
    "phase",
    [pytest.param(one, marks=[] if one == "open" else pytest.mark.full) for one in PHASES],
)
def test_a_phase_that_takes_longer_than_silence_may_last(
    phase: str, unique_name: Name, tmp_path: Path, spark: Any
) -> None:
    long = Long(tmp_path, phase)
    sink = Sink(long, tmp_path, fails=False)
    job = small_job(
        unique_name("long"),
        tmp_path / "checkpoints",
        Source(long, records(0, 30)),
        sink,
        operator=Operator(long),
        parallelism=2,
    )
    with running(job, spark) as handle:
        said = PHASES[phase]
        if said is not None:
            eventually(lambda: any(said in wait for wait in waits(handle)))
        handle.wait(PATIENCE)
        assert (handle.restarts, handle.failure) == (0, None)
    assert long.taken
    assert len(sink.records) == 30


@pytest.mark.full
def test_a_restore_that_takes_longer_than_silence_may_last(unique_name: Name, tmp_path: Path, spark: Any) -> None:
    long = Long(tmp_path, "restore")
    sink = Sink(long, tmp_path, fails=False)
    source = Source(long, [*records(0, 30), TestingSource.PAUSE(), *records(30, 60)])
    job = small_job(unique_name("long"), tmp_path / "checkpoints", source, sink, operator=Operator(long), parallelism=2)
    with running(job, spark) as handle:
        handle.checkpoint(PATIENCE)
        handle.cancel()
    source.release()
    with running(job, spark) as handle:
        eventually(lambda: any("is restoring state" in wait for wait in waits(handle)))
        handle.wait(PATIENCE)
        assert (handle.restarts, handle.failure) == (0, None)
    assert long.taken


def test_a_commit_of_a_stopped_job_that_takes_longer_than_silence_may_last(
    unique_name: Name, tmp_path: Path, spark: Any
) -> None:
    long = Long(tmp_path, "commit only")
    sink = Sink(long, tmp_path, fails=True)
    source = Source(long, [*records(0, 30), TestingSource.PAUSE(), *records(30, 60)])
    restart = RestartStrategy.fixed_delay(1, 0)
    job = small_job(
        unique_name("long"),
        tmp_path / "checkpoints",
        source,
        sink,
        operator=Operator(long),
        **NEVER,
        restart=restart,
    )
    with running(job, spark) as handle:
        source.wait_until_paused(PATIENCE)
        handle.stop(timeout=PATIENCE)
        assert (handle.status, handle.restarts) == ("finished", 1)
    assert long.taken
    assert len(sink.records) == 30


def test_a_deployment_that_takes_longer_than_silence_may_last(
    unique_name: Name, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = attempt.deployments

    def slowly(*args: Any, **options: Any) -> Any:
        time.sleep(LONG)
        return plan(*args, **options)

    monkeypatch.setattr(attempt, "deployments", slowly)
    sink = TestingSink()
    job = small_job(unique_name("long"), tmp_path / "checkpoints", TestingSource(records(0, 30)), sink, parallelism=2)
    with running(job, spark) as handle:
        handle.wait(PATIENCE)
        assert (handle.restarts, handle.failure) == (0, None)
    assert len(sink.records) == 30


def hold_pythons_lock() -> None:
    """A call of C code that lets no other thread run, for some seconds."""
    until = time.monotonic() + LIMITS.told + 3.0
    while time.monotonic() < until:
        sum(range(200_000_000))


@pytest.mark.full
def test_code_that_holds_pythons_lock_is_told(
    unique_name: Name, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_context, "LIMITS", Limits(pace=0.2, told=0.5))
    long = Long(tmp_path, "open", hold_pythons_lock)
    sink = Sink(long, tmp_path, fails=False)
    job = small_job(
        unique_name("long"), tmp_path / "c", Source(long, records(0, 30)), sink, operator=Operator(long), parallelism=2
    )
    with running(job, spark) as handle:
        eventually(
            lambda: any("holds Python's lock" in wait and "in open()" in wait for wait in waits(handle)), PATIENCE
        )
        handle.wait(PATIENCE)
        assert (handle.restarts, handle.failure) == (0, None)
    assert len(sink.records) == 30


def test_a_process_that_is_stopped_is_given_up(unique_name: Name, tmp_path: Path, spark: Any) -> None:
    source = TestingSource([*records(0, 30), TestingSource.PAUSE(), *records(30, 60)])
    sink = TestingSink()
    restart = RestartStrategy.fixed_delay(1, 0)
    job = small_job(unique_name("long"), tmp_path / "c", source, sink, restart=restart)
    with running(job, spark) as handle:
        source.wait_until_paused(PATIENCE)
        os.kill(next(pid for name, pid in handle.processes().items() if name.startswith("count")), signal.SIGSTOP)
        eventually(lambda: handle.restarts == 1)
        assert "not heard of for 4 s" in str(handle.failure)
        source.release()
        handle.wait(PATIENCE)
    assert len(sink.records) == 60
