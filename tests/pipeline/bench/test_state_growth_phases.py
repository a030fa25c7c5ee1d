"""`weir bench state-growth`: a small run with each backend, whose figures fit together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoint.codec import encode
from pipeline.bench.state_growth_phases import _value


@pytest.mark.sample(1 / 4)
def test_a_small_share_of_changes_is_a_small_checkpoint_with_each_backend(tmp_path: Path) -> None:
    target, folder = tmp_path / "result.json", tmp_path / "checkpoints"
    folder.mkdir()
    command = [sys.executable, "-c", "from pipeline.cli import main; main(prog_name='weir')", "bench", "state-growth"]
    arguments = ["--keys", "20000", "--touched", "0.01", "--folder", str(folder), "--json", str(target)]
    done = subprocess.run([*command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    results = json.loads(target.read_text())["results"]
    assert [(one["backend"], one["keys"]) for one in results] == [("heap", 20_000), ("rocksdb", 20_000)]
    for one in results:
        assert 0 < one["second"]["written"] < 0.2 * one["first"]["written"]  # a file has some bytes for each key group
        assert one["second"]["bytes"] == one["first"]["written"] + one["second"]["written"]
        assert min(one["beside"]["updates"], one["alone"]["updates"]) > 0
        assert one["loop"] > one["rmw_repeated"] > 0
    assert "read-modify-writes/s" in done.stdout
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("size", [20, 100, 1000])
def test_values_have_the_size_that_was_asked_for(size: int) -> None:
    assert abs(len(encode(_value(7, size))) - size) <= 3
