"""SIGINT and SIGTERM to real processes, at every moment: the job stops behind a last checkpoint, nothing is left."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from deadlines import PATIENCE, eventually

pytestmark = pytest.mark.timeout(900)
JOB = """
import sys, time
from pipeline import CheckpointConfig, Interrupted, Pipeline
from sinks import PrintSink
from sources import SequenceSource

p = Pipeline("endless", checkpoints=CheckpointConfig(sys.argv[1], interval=3600), stop_grace=300)
p.source("numbers", SequenceSource(None, rate=50)).sink("out", PrintSink())
if __name__ == "__main__":
"""
WAITS = "    h = p.start()\n    h.wait()\n    print('ended:', h.status)\n"
RUNS = "    print('ended:', p.run().status)\n"
SLEEPS = "    h = p.start()\n    while h.status != 'finished': time.sleep(0.1)\n"
LEAVES = "    h = p.start()\n    while not h.running_since: time.sleep(0.1)\n"
SLOWLY = "    from pipeline.testing import failpoints\n    failpoints.stall('snapshot.async_write', 10.0)\n"
"""The last checkpoint takes its time, so that a second signal comes before the end."""
BESIDE = "    import threading\n    t = threading.Thread(target=p.run)\n    t.start()\n    t.join()\n"


class Script:
    """A script in a process group of its own, as a terminal starts one; its output goes to a file."""

    def __init__(self, folder: Path, body: str):
        self.mark = uuid.uuid4().hex
        self._log = folder / f"log-{self.mark}"
        (folder / "job.py").write_text(JOB + body)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(folder / "job.py"), str(folder / "checkpoints")],
                env={**os.environ, "WEIR_TEST_SCRIPT": self.mark, "WEIR_STATE_DIR": str(folder / "state")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def ids(self) -> list[int]:
        return [ast.literal_eval(line)["id"] for line in self.output.splitlines() if line.startswith("{'id'")]

    def await_moment(self, moment: str) -> None:
        try:
            eventually(lambda: self._reached(moment) or self.process.poll() is not None)
        except AssertionError as error:
            raise AssertionError(f"{moment}: {self.output}") from error
        assert self.process.poll() is None, self.output

    def await_or_end(self, moment: str) -> None:
        """It may end before it gets so far."""
        eventually(lambda: self.process.poll() is not None or not moment or self._reached(moment))

    def _reached(self, moment: str) -> bool:
        if moment == "starting Spark":
            return any("java" in child.name() for child in psutil.Process(self.process.pid).children())
        return {"running": "'id': 3", "stopping": "stopping job", "cancelling": "cancelling job"}[moment] in self.output

    def send(self, sign: signal.Signals) -> None:
        """Unless it has ended."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, sign)

    def end(self) -> int:
        """Its exit status; nothing of it may be left when it has ended."""
        status = self.process.wait(PATIENCE)
        assert self.left() == [], self.output
        return status

    def left(self) -> list[Any]:
        found = []
        for process in psutil.process_iter():
            try:
                mine = process.environ().get("WEIR_TEST_SCRIPT") == self.mark
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.cmdline()[:3])
            except psutil.Error:
                continue
        return found


@contextmanager
def script(folder: Path, body: str) -> Iterator[Script]:
    one = Script(folder, body)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def completed(folder: Path) -> int:
    return len(list(folder.glob("checkpoints/endless/chk-*/_metadata")))


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_the_next_run_goes_on_where_a_stopped_one_has_ended(tmp_path: Path) -> None:
    seen: list[int] = []
    for body, sign in ((WAITS, signal.SIGINT), (RUNS, signal.SIGTERM)):
        with script(tmp_path, body) as run:
            eventually(lambda run=run: len(run.ids) > 20, PATIENCE)  # type: ignore[misc]
            run.send(sign)
            assert run.end() == 0, run.output
            assert "stopping job 'endless' behind a last checkpoint, within 300 s" in run.output
            assert "ended: finished" in run.output
            assert "Traceback" not in run.output
            seen += run.ids
    assert seen == list(range(len(seen)))  # none is read again, none is left out
    assert completed(tmp_path) == 1


_ROWS = [
    ("starting Spark", WAITS, [signal.SIGINT], 0),
    ("running", RUNS, [signal.SIGINT, signal.SIGINT], 130),
    ("running", SLEEPS, [signal.SIGTERM], 143),
    *(
        pytest.param(moment, body, signs, status, marks=pytest.mark.stress)
        for moment in ("starting Spark", "running")
        for body in (WAITS, RUNS)
        for signs, status in (
            ([signal.SIGTERM], 0),
            ([signal.SIGTERM, signal.SIGINT], 130),
            ([signal.SIGINT, signal.SIGTERM], 143),
            ([signal.SIGTERM] * 3, 143),
        )
    ),
    pytest.param("running", BESIDE, [signal.SIGTERM], -signal.SIGTERM, marks=pytest.mark.stress),
]


@pytest.mark.sample(1 / 5)
@pytest.mark.slow
@pytest.mark.parametrize(("moment", "body", "signs", "status"), _ROWS)
def test_no_way_out_leaves_a_trace_or_a_process(
    tmp_path: Path, moment: str, body: str, signs: list[signal.Signals], status: int
) -> None:
    with script(tmp_path, body if len(signs) == 1 else SLOWLY + body) as run:
        run.await_moment(moment)
        for sign, then in zip(signs, ("stopping", "cancelling", ""), strict=False):
            run.send(sign)
            run.await_or_end(then)
            time.sleep(0.4)  # else the next signal would be one with it
        if status < 0:
            eventually(lambda: run.process.poll() is not None and run.left() == [])
            assert run.process.returncode == status
            return
        assert run.end() == status, run.output
    assert "Traceback" not in run.output
    assert "Py4J" not in run.output
    if len(signs) == 1:
        unbegun = moment == "starting Spark" and "stopped before it began" in run.output
        assert completed(tmp_path) == (0 if unbegun else 1)


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_a_script_that_ends_before_its_job_stops_it(tmp_path: Path) -> None:
    with script(tmp_path, LEAVES) as run:
        assert run.end() == 0, run.output
    assert "the script has ended: stopping job 'endless'" in run.output
    assert "Traceback" not in run.output
    assert completed(tmp_path) == 1


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
def test_signals_while_the_process_ends_only_end_it_sooner(tmp_path: Path) -> None:
    """What is left then is the end of Spark's JVM, which the exit waits for."""
    body = "    p.start().stop()\n    print('ended', flush=True)\n"
    with script(tmp_path, body) as run:
        eventually(lambda: "\nended" in run.output)
        while run.process.poll() is None:
            run.send(signal.SIGTERM)
            run.send(signal.SIGINT)
            time.sleep(0.01)
        assert run.left() == [], run.output
    assert "Exception ignored" not in run.output


@pytest.mark.slow
def test_a_killed_jvm_is_named(tmp_path: Path) -> None:
    """And not what talking to it ends with, here or there."""
    with script(tmp_path, RUNS) as run:
        run.await_moment("running")
        (jvm,) = [child for child in psutil.Process(run.process.pid).children() if "java" in child.name()]
        jvm.kill()
        assert run.process.wait(PATIENCE) == 1
        # Spark's daemon ends by itself once it sees that its JVM has, which may be after the script.
        eventually(lambda: run.left() == [])
    told = run.output[run.output.index("pipeline.errors.JobFailed: ") :]
    assert told.startswith(f"pipeline.errors.JobFailed: Spark's JVM, process {jvm.pid}, is gone: SIGKILL ended it")
    assert "goes on from its newest checkpoint" in told
    assert "restarting" not in run.output  # which would need the JVM
    assert "Py4J" not in run.output


@pytest.mark.stress
def test_signals_at_any_moment(tmp_path: Path) -> None:
    """Whatever the moment, once the job has been started: no trace, no process."""
    for i in range(16):
        with script(tmp_path, WAITS) as run:
            eventually(lambda run=run: any((tmp_path / "state").glob("*")), PATIENCE)  # type: ignore[misc]
            time.sleep(i * 0.4)
            run.send(signal.SIGINT)
            status = run.end()
        if "checking the pipeline" not in run.output:  # there is no job yet: it ends as any script does
            assert status in (0, -signal.SIGINT), run.output
            continue
        assert status == 0, run.output
        assert "Traceback" not in run.output, run.output
