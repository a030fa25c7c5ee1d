"""`weir top`: what it shows, in wide and narrow terminals."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from pipeline.cli import main
from pipeline.cli.operate_tables import facts
from pipeline.cli.top_screen import load_bar, screen


def status(**more: Any) -> dict[str, Any]:
    step = {
        "subtasks": 4,
        "recordsInPerSecond": 1200.0,
        "recordsOutPerSecond": 1100.0,
        "recordsLag": 5000,
        "inFlightBytes": 2048,
        "busyMsPerSecond": 950.0,
        "backPressuredMsPerSecond": 0.0,
        "recordsFailed": 0,
    }
    row = {
        "id": 7,
        "status": "completed",
        "trigger_time": 1000.0,
        "duration": 0.5,
        "start_delay": 0.1,
        "alignment": 0.2,
        "sync": 0.01,
        "async_": 0.3,
        "in_flight_records": 1234,
        "span_records": 999,
    }
    return {
        "name": "orders",
        "address": "127.0.0.1:4",
        "pid": 1,
        "host": "h",
        "status": "running",
        "rescaling": None,
        "rescales": [],
        "started": 900.0,
        "uptime": 60.0,
        "running_for": 50.0,
        "start": {"checks": 0.1},
        "restarts": 0,
        "failure": None,
        "waits": [],
        "checkpoints_completed": 1,
        "checkpoints_failed": 0,
        "vertices": {"orders": {**step, "busyMsPerSecond": 100.0, "backPressuredMsPerSecond": 800.0}, "totals": step},
        "checkpoints": [row, {**row, "id": 8, "status": "failed"}],
        **more,
    }


def shown(job: dict[str, Any], width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(screen(job, width, 1010.0))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_it_has_steps_checkpoints_and_troubles() -> None:
    wait = {"what": "broker b:1", "who": "orders[0]", "since": time.time() - 60}
    text = shown(status(waits=[wait], failure="boom"), 120)
    lines = text.splitlines()
    assert any(line.startswith("waits for:   broker b:1") for line in lines)
    assert any(line.startswith("failure:     boom") for line in lines)
    (orders,) = [line for line in lines if line.startswith("orders ")]
    assert "1,200" in orders
    assert "██▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒·· 10 % busy, 80 % backpressured" in orders
    rows = [line.split() for line in lines if line.split()[1:2] in (["failed"], ["completed"])]
    assert [row[0] for row in rows] == ["8", "7"], "the newest first"
    assert " ".join(rows[1][2:]) == "10 s 0.50 s 0.10 s 0.20 s 0.01 s 0.30 s 1,234 999"


def test_it_says_whether_connections_are_encrypted() -> None:
    assert [dict(facts(status(encrypted=one)))["encrypted"] for one in (True, False)] == ["yes", "no"]
    assert "encrypted" not in dict(facts(status())), "a job of an older version doesn't tell"


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_breaks_no_line_of_a_table(width: int) -> None:
    lines = shown(status(), width).splitlines()
    assert max(map(len, lines)) <= width
    (newest,) = [line.split() for line in lines if line.split()[:2] == ["7", "completed"]]
    assert newest[2:] == ["10", "s", "0.50", "s", "1,234", "999"]


def test_a_job_that_restarts_is_shown_too() -> None:
    text = shown(status(status="restarting", running_for=None, vertices={}, checkpoints=[]), 80)
    assert "restarting, starting: checks for 0.10 s" in text


@pytest.mark.parametrize(("busy", "held"), [(0, 0), (1000, 0), (0, 1000), (900, 900), (1004, 3)])
def test_a_bar_has_its_width_whatever_it_shows(busy: float, held: float) -> None:
    bar = load_bar(busy, held, 10).plain
    assert set(bar[:10]) <= set("█▒·")
    assert bar[10] == " "


def test_a_folder_of_jobs_that_can_not_be_read_is_one_sentence(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs").touch()
    monkeypatch.setenv("WEIR_STATE_DIR", str(tmp_path / "jobs"))
    found = CliRunner().invoke(main, ["top"])
    assert found.exit_code == 1
    assert "cannot read the folder of running jobs" in found.output


def test_it_says_that_there_is_no_job(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_STATE_DIR", str(tmp_path))
    found = CliRunner().invoke(main, ["top", "--once"])
    assert (found.exit_code, "no job of this user runs on this host" in found.output) == (2, True)
