"""A job whose log is JSON: each line that it, its JVM and its workers write to standard error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE

JOB = """
from pipeline import Pipeline
from sinks import PrintSink
from sources import SequenceSource

p = Pipeline("quotients")
numbers = p.source("numbers", SequenceSource(6))
quotients = numbers.map(lambda n: 12 // (n["id"] - 3), id="quotient", on_error="{on_error}")
quotients.filter(lambda n: n > 12, id="none").sink("out", PrintSink())
"""
"""Nothing is printed, which would be among the lines of the log."""


@pytest.mark.slow
@pytest.mark.parametrize(("on_error", "status", "end"), [("skip", 0, "finished"), ("fail", 1, "failed")])
def test_every_line_is_an_object_with_the_same_names(tmp_path: Path, on_error: str, status: int, end: str) -> None:
    (tmp_path / "quotients.py").write_text(JOB.format(on_error=on_error))
    done = subprocess.run(
        [sys.executable, "-c", "from pipeline.cli import main; main()", "run", "quotients.py", "--log-format", "json"],
        cwd=tmp_path,
        env={**os.environ, "WEIR_SPARK_LOG_LEVEL": "INFO", "WEIR_STATE_DIR": str(tmp_path / "state")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == status, done.stderr
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stderr.splitlines()]
    names = ["ts", "level", "job", "step", "subtask", "attempt", "logger", "message", "exception"]
    assert {tuple(line) for line in lines} == {tuple(names)}
    assert {line["level"] for line in lines} <= {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}
    assert any(line["logger"].startswith("org.apache.spark") for line in lines), "the JVM's"
    assert any(line["job"] == "quotients" and line["subtask"] is None for line in lines), "the driver's"
    assert any(line["subtask"] == 0 for line in lines) == (on_error == "skip"), "the worker's"
    assert f"job 'quotients' {end}: " in lines[-1]["message"]
