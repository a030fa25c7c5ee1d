"""The commands of docs/state-tables.md, as they stand there."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from state_tables import make_savepoint, raw_rows, timers_at

from pipeline.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "state-tables.md"


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    state = {("totals", "total"): {"ann": 3, "bob": 4}}
    make_savepoint(tmp_path / "monday", state, {"totals": timers_at(("ann", 1000))})
    commands = [line.strip() for line in PAGE.read_text().splitlines() if line.startswith("    weir ")]
    assert len(commands) > 4
    outputs = []
    for command in commands:
        arguments = shlex.split(command.replace("/backups", str(tmp_path)), comments=True)[1:]
        result = CliRunner().invoke(main, arguments)
        if "orders, which runs" in command.replace('"', ""):
            assert "orders" in result.output
            assert result.exit_code == 1, f"{command}: {result.output}"  # here it doesn't
            continue
        assert result.exit_code == 0, f"{command}: {result.output}"
        outputs.append(result.stdout)
    assert outputs[0] == "3\n"
    assert '"key":"bob"' in next(text for text in outputs if '"change"' in text)
    assert raw_rows(str(tmp_path / "first")) == raw_rows(str(tmp_path / "monday"))
