"""`weir bench due-keys`: a small run with each backend."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from pipeline.cli import main


def test_all_windows_close_and_barriers_come_in_between(tmp_path: Path) -> None:
    target = tmp_path / "due.json"
    done = CliRunner().invoke(main, ["bench", "due-keys", "--keys", "20000", "--json", str(target)])
    assert done.exit_code == 0, done.output
    found = json.loads(target.read_text())
    assert [(one["backend"], one["keys"]) for one in found["results"]] == [("heap", 20000), ("rocksdb", 20000)]
    for one in found["results"]:
        assert one["barriers"] > 0
        assert 0 < one["p50"] <= one["p99"] <= one["longest"] < one["close_s"]
