"""Of real processes: which one a note of it means, also after the clock was set."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from checkpoint.process_identity import identity, runs_still


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until its input ends."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_each_process_has_its_own(other: subprocess.Popen[bytes]) -> None:
    assert identity(os.getpid()) == identity(os.getpid()) != ""
    assert identity(other.pid) not in ("", identity(os.getpid()))


def test_one_that_is_gone_has_none_and_runs_no_more(other: subprocess.Popen[bytes]) -> None:
    noted, at = identity(other.pid), time.time()
    assert runs_still(other.pid, at, noted)
    other.kill()
    other.wait()
    assert identity(other.pid) == ""
    assert not runs_still(other.pid, at, noted)


def test_one_that_nobody_has_waited_for_is_dead(other: subprocess.Popen[bytes]) -> None:
    noted = identity(other.pid)
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert not runs_still(other.pid, time.time(), noted)


@pytest.mark.parametrize("clock", [-7 * 86_400.0, 7 * 86_400.0])
def test_it_runs_still_after_the_clock_was_set(clock: float) -> None:
    """Times of processes are made from the clock's, so a process seems to be younger than the note of it."""
    assert runs_still(os.getpid(), time.time() - clock, identity(os.getpid()))


def test_another_one_under_the_same_number_is_another(other: subprocess.Popen[bytes]) -> None:
    assert not runs_still(os.getpid(), time.time(), identity(other.pid))


def test_without_an_identity_a_younger_process_is_another() -> None:
    assert runs_still(os.getpid(), time.time(), "")
    assert not runs_still(os.getpid(), 0.0, "")
