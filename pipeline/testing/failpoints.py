"""Crash, fail, stall or hold a job at a named step.

    with failpoints.crash("committer.before_commit", subtask=0, nth=2) as point:
        pipeline.run()
    assert point.fired

The steps are listed in `KNOWN`. A failpoint is armed for jobs that start after the call, and in this process; hits are
counted over all subtasks, processes and attempts (on one machine), so that a crash comes once and not again after the
restart. It stays armed until its `with` block ends, `disarm` or `clear`. Steps of the coordinator are reached in the
driver, so a crash there kills the process that called `start`.

One that is made with `asleep=True` goes out with the job, and counts and acts only from `wake` on: so a job that runs
can be struck at a time of the test's choosing.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from checkpoint import failpoints as mechanism
from checkpoint.counted import counted
from checkpoint.failpoints import KNOWN, Action, Failpoint, InjectedFailure, active
from pipeline.testing.jobs import await_in_job, jobs_here

__all__ = ["KNOWN", "Armed", "InjectedFailure", "active", "clear", "crash", "fail", "hold", "stall"]

_POLL_S: Final = 0.01
_armed: list[Armed] = []


class Armed:
    """An armed failpoint; a context manager that disarms it."""

    def __init__(self, point: Failpoint, *, own_directory: bool) -> None:
        self._point = point
        self._own_directory = own_directory
        self._final: int | None = None
        self._ended_before = weakref.WeakSet(job for job in jobs_here() if job.ended.is_set())

    def wake(self) -> None:
        """Arm it now, also in the jobs that run, if it was made asleep. Once only."""
        Path(self._point.directory).mkdir()

    @property
    def hits(self) -> int:
        """How often the step was reached while this was armed."""
        return self._point.hits if self._final is None else self._final

    @property
    def fired(self) -> bool:
        """Whether it has acted."""
        return self.hits >= self._point.nth

    def wait(self, timeout: float = 30.0) -> None:
        """Return once it has acted (for `hold`: once something is held).

        Args:
            timeout: seconds.

        Raises:
            JobEnded: all jobs of this process that ran since it was armed have ended; says how.
            TimeoutError: it has not.
        """
        await_in_job(
            lambda: self.fired,
            timeout,
            lambda: [job for job in jobs_here() if job not in self._ended_before],
            lambda when: (
                f"failpoint {self._point.name} was reached {counted(self.hits, 'time')}{when}, but acts at hit "
                f"{self._point.nth}"
            ),
        )

    def release(self) -> None:
        """Let what `hold` holds, now or later, go on."""
        if self._final is None and Path(self._point.directory).exists():
            self._point.release()

    def disarm(self) -> None:
        """Also in the jobs that run; what is held goes on. May be called twice."""
        if self._final is not None:
            return
        self.release()
        self._final = self._point.hits
        _armed.remove(self)
        _install()
        if self._own_directory and Path(self._point.directory).exists():
            # Moved away first: a hit in the meantime would put a file into a folder that is being removed.
            gone = Path(self._point.directory).rename(f"{self._point.directory}-disarmed")
            shutil.rmtree(gone)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disarm()


def crash(
    name: str,
    *,
    subtask: int | None = None,
    nth: int = 1,
    times: int = 1,
    asleep: bool = False,
    directory: Path | str | None = None,
) -> Armed:
    """SIGKILL the process at the `nth` hit.

    Args:
        name: one of `KNOWN`.
        subtask: only this subtask's hits; `None` = any's.
        nth: from 1.
        times: at how many hits, from the `nth` on.
        asleep: nothing is counted before `Armed.wake`.
        directory: keeps the count; given where several drivers, one after the other, shall share it.

    Raises:
        ValueError: no such failpoint, or numbers below 1.
    """
    return _arm(name, "crash", subtask, nth, times, directory, asleep=asleep)


def fail(
    name: str,
    *,
    subtask: int | None = None,
    nth: int = 1,
    times: int = 1,
    error: str | None = None,
    asleep: bool = False,
    directory: Path | str | None = None,
) -> Armed:
    """Raise `InjectedFailure(error)` at the `nth` hit (see `crash`)."""
    text = f"injected at {name}" if error is None else error
    return _arm(name, "fail", subtask, nth, times, directory, text=text, asleep=asleep)


def stall(
    name: str,
    seconds: float,
    *,
    subtask: int | None = None,
    nth: int = 1,
    times: int = 1,
    directory: Path | str | None = None,
) -> Armed:
    """Let the thread that comes there sleep for `seconds` at the `nth` hit (see `crash`)."""
    return _arm(name, "stall", subtask, nth, times, directory, seconds=seconds)


def hold(
    name: str,
    *,
    subtask: int | None = None,
    nth: int = 1,
    times: int = 1,
    timeout: float = 60.0,
    asleep: bool = False,
    directory: Path | str | None = None,
) -> Armed:
    """Let the thread that comes there wait at the `nth` hit, until `Armed.release` or `disarm` (see `crash`).

    Args:
        timeout: seconds after which what is held fails with `InjectedFailure`, so that no job hangs for good.
    """
    return _arm(name, "hold", subtask, nth, times, directory, seconds=timeout, asleep=asleep)


def clear() -> None:
    """Disarm all."""
    while _armed:
        _armed[-1].disarm()


def _arm(
    name: str,
    action: Action,
    subtask: int | None,
    nth: int,
    times: int,
    directory: Path | str | None,
    *,
    text: str = "",
    seconds: float = 0.0,
    asleep: bool = False,
) -> Armed:
    if name not in KNOWN:
        raise ValueError(f"there is no failpoint {name!r}; there are {', '.join(sorted(KNOWN))}")
    if nth < 1 or times < 1:
        raise ValueError(f"nth and times count from 1, not {nth} and {times}")
    if directory is None:
        folder = tempfile.mkdtemp(prefix="weir-failpoint-")
    else:
        folder = str(Path(directory).resolve())
        Path(folder).mkdir(parents=True, exist_ok=True)
    if asleep:
        Path(folder).rmdir()  # a failpoint without its folder is not armed
    point = Failpoint(name, action, subtask, nth, times, folder, text, seconds)
    armed = Armed(point, own_directory=directory is None)
    _armed.append(armed)
    _install()
    return armed


def _install() -> None:
    mechanism.install([armed._point.to_wire() for armed in _armed])
