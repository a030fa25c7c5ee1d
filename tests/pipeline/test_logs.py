"""What log lines say beside their message: as text, and as JSON."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Any

import pytest

from pipeline import PipelineError, logs

SAY = """
import logging, sys
from pipeline import logs
logs.log_everything("INFO")
{before}
log = logging.getLogger("weir.pipeline.x")
log.info("job %s: running from %s", "orders", "nothing")
log.warning("waiting for slots")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("two\\nlines")
"""
WORKER = "logs.is_subtask(logs.WorkerSubtask('orders', 'totals → out', 1, 7))"


def said(before: str, log_format: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SAY.format(before=before)],
        env={"PATH": "", "PYTHONIOENCODING": "utf-8", "WEIR_LOG_FORMAT": log_format},
        capture_output=True,
        check=True,
        timeout=300,
    )
    return done.stderr.decode().splitlines()


def test_a_line_of_json_has_all_that_is_known_of_it() -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in said("logs.attempt_begins('orders', 3)", "json")]
    assert len(lines) == 3
    assert list(lines[0]) == ["ts", "level", "job", "step", "subtask", "attempt", "logger", "message", "exception"]
    first, second, third = lines
    assert (first["job"], first["attempt"], first["step"], first["subtask"]) == ("orders", 3, None, None)
    assert (first["level"], first["logger"], first["exception"]) == ("INFO", "weir.pipeline.x", None)
    assert first["message"] == "job orders: running from nothing"
    assert first["ts"].endswith("+00:00")
    assert (second["job"], second["attempt"]) == (None, None)
    assert third["message"] == "two\nlines"
    assert third["exception"].startswith("Traceback")
    assert third["exception"].endswith("ZeroDivisionError: division by zero")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_subtasks_lines_name_job_and_subtask(log_format: str) -> None:
    lines = said(WORKER, log_format)
    if log_format == "text":
        assert lines[1].split(maxsplit=2)[2] == "WARNING job orders, totals → out[1]: waiting for slots"
        return
    line = json.loads(lines[1])
    assert [line[name] for name in ("job", "step", "subtask", "attempt")] == ["orders", "totals → out", 1, 7]


def test_a_format_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_LOG_FORMAT", "xml")
    with pytest.raises(PipelineError, match="WEIR_LOG_FORMAT must be one of text, json, not 'xml'"):
        logs.log_format()
    assert not logging.getLogger("weir.nobody").handlers
