"""A job whose processes encrypt what they say to each other."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from deadlines import PATIENCE, eventually
from small_job import NEVER, assert_exact, records, running, small_job

from pipeline import JobHandle, RestartStrategy
from pipeline.cli import main
from pipeline.testing import TestingSink, TestingSource


def test_its_output_is_exact_over_a_kill_and_a_rescale_and_commands_reach_it(
    tmp_path: Path, unique_name: Callable[[str], str], spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    pause = TestingSource.PAUSE()
    elements = [*records(0, 50), pause, *records(50, 100), pause, *records(100, 150)]
    source, sink = TestingSource(elements, directory=tmp_path / "source"), TestingSink(tmp_path / "sink")
    restart = RestartStrategy.fixed_delay(attempts=3, delay=0)
    name = unique_name("job")
    job = small_job(name, tmp_path / "checkpoints", source, sink, restart=restart, encrypt=True, **NEVER)

    def committed(n: int) -> bool:
        handle.checkpoint(PATIENCE)
        return len(sink.records) == n

    def told(*command: str) -> str:
        result = CliRunner().invoke(main, [*command])
        assert result.exit_code == 0, result.output
        return result.stdout

    with running(job, spark) as handle:
        eventually(lambda: handle.running_since is not None)
        eventually(lambda: committed(50))
        _kill(handle, "count → out[0]")
        eventually(lambda: handle.restarts == 1 and handle.status == "running")
        source.release()
        eventually(lambda: committed(100))
        assert "count" in told("rescale", name, "2", "--step", "count")
        assert json.loads(told("status", name, "--json"))["restarts"] == 1
        assert "encrypted:   yes" in told("status", name)
        source.release()
        handle.wait(PATIENCE)
    assert_exact(sink, records(0, 150))
    assert "PRIVATE KEY" not in caplog.text


def _kill(handle: JobHandle, subtask: str) -> None:
    process = psutil.Process(handle.processes()[subtask])
    os.kill(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)
