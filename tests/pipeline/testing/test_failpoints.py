"""Failpoints: named steps at which a test lets a process crash, fail or wait."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import ormsgpack
import pytest

from checkpoint.failpoints import KNOWN, InjectedFailure, hit, install
from pipeline.testing import failpoints

STEP = "committer.before_commit"
ROOT = Path(__file__).parents[3]


def test_without_an_armed_failpoint_a_hit_does_nothing() -> None:
    hit(STEP, subtask=0)
    assert failpoints.active() == []


def test_a_failure_comes_at_the_nth_hit_and_only_once() -> None:
    with failpoints.fail(STEP, nth=2, error="boom") as point:
        hit(STEP)
        assert not point.fired
        with pytest.raises(InjectedFailure, match="boom"):
            hit(STEP)
        hit(STEP)
        assert point.fired
    assert point.hits == 3


def test_it_may_come_at_several_hits() -> None:
    with failpoints.fail(STEP, nth=1, times=2):
        for _ in range(2):
            with pytest.raises(InjectedFailure):
                hit(STEP)
        hit(STEP)


def test_only_the_subtask_asked_for_is_hit() -> None:
    with failpoints.fail(STEP, subtask=1) as point:
        hit(STEP, subtask=0)
        assert point.hits == 0
        with pytest.raises(InjectedFailure):
            hit(STEP, subtask=1)


def test_other_steps_are_not_hit() -> None:
    with failpoints.fail(STEP):
        hit("committer.after_commit")


def test_an_unknown_name_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"no failpoint 'commiter.before'.*committer\.before_commit"):
        failpoints.crash("commiter.before")


def test_counts_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="count from 1"):
        failpoints.crash(STEP, nth=0)


def test_the_block_disarms() -> None:
    with failpoints.fail(STEP):
        pass
    hit(STEP)


def test_clear_disarms_all() -> None:
    failpoints.fail(STEP)
    failpoints.crash("committer.after_commit")
    failpoints.clear()
    assert failpoints.active() == []
    hit(STEP)
    hit("committer.after_commit")


def test_a_disarmed_failpoint_does_nothing_where_it_is_still_installed() -> None:
    with failpoints.fail(STEP):
        shipped = failpoints.active()
    install(shipped)
    hit(STEP)
    install([])


def test_what_is_active_survives_msgpack_and_acts_where_it_is_installed() -> None:
    with failpoints.fail(STEP, subtask=3, nth=2, error="shipped"):
        shipped = ormsgpack.unpackb(ormsgpack.packb(failpoints.active()))
        install([])
        install(shipped)
        hit(STEP, subtask=3)
        with pytest.raises(InjectedFailure, match="shipped"):
            hit(STEP, subtask=3)


def test_a_crash_is_a_sigkill_counted_over_processes_and_comes_once() -> None:
    with failpoints.crash(STEP, nth=2) as point:
        statuses = [_run_hit(failpoints.active()) for _ in range(3)]
        assert statuses == [0, -signal.SIGKILL, 0]
        assert point.hits == 3


def test_the_count_can_outlive_the_driver(tmp_path: Path) -> None:
    for expected in (0, -signal.SIGKILL, 0):
        with failpoints.crash(STEP, nth=2, directory=tmp_path / "count"):
            assert _run_hit(failpoints.active()) == expected


def test_what_is_held_goes_on_when_released() -> None:
    passed = threading.Event()

    def reach() -> None:
        hit(STEP)
        passed.set()

    with failpoints.hold(STEP) as point:
        thread = threading.Thread(target=reach)
        thread.start()
        point.wait(60)
        assert not passed.is_set()
        point.release()
        thread.join(60)
        assert passed.is_set()


def test_what_is_held_goes_on_when_the_block_ends() -> None:
    with failpoints.hold(STEP) as point:
        thread = threading.Thread(target=hit, args=(STEP,))
        thread.start()
        point.wait(60)
    thread.join(60)
    assert not thread.is_alive()


def test_nothing_is_held_for_good() -> None:
    with failpoints.hold(STEP, timeout=0.05), pytest.raises(InjectedFailure, match="not released"):
        hit(STEP)


def test_one_that_sleeps_counts_and_acts_only_once_it_is_woken() -> None:
    with failpoints.fail(STEP, asleep=True) as point:
        hit(STEP)
        assert not point.fired
        point.wake()
        with pytest.raises(InjectedFailure):
            hit(STEP)
    assert point.hits == 1
    with failpoints.fail(STEP, asleep=True) as never_woken:
        hit(STEP)
    assert never_woken.hits == 0


def test_a_stall_goes_on_by_itself() -> None:
    with failpoints.stall(STEP, seconds=0.01) as point:
        hit(STEP)
        assert point.fired


def test_waiting_for_a_step_that_never_comes_says_how_far_it_came() -> None:
    with failpoints.fail(STEP, nth=3) as point:
        hit(STEP)
        with pytest.raises(TimeoutError, match=r"reached 1 time .* acts at hit 3"):
            point.wait(0.01)


def test_every_failpoint_in_the_code_is_documented_and_the_other_way_round() -> None:
    """A step is named by a literal where it is hit, directly or through a method `_hit`."""
    found: set[str] = set()
    for package in ("checkpoint", "formats", "sources", "sinks", "pipeline"):
        for path in (ROOT / package).rglob("*.py"):
            found |= {name for node in ast.walk(ast.parse(path.read_text())) if (name := _step(node))}
    assert found == set(KNOWN)


def _step(node: ast.AST) -> str | None:
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("hit", "_hit"):
        match node.args:
            case [ast.Constant(value=str(name)), *_]:
                return name
    return None


def _run_hit(active: list[list[object]]) -> int:
    code = f"from checkpoint.failpoints import install, hit; install({active!r}); hit({STEP!r}, 0)"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ).returncode
