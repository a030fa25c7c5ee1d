"""`weir bench state`: a small run, and what makes it void."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoint.codec import encode
from checkpoint.state.snapshot_reader import read_batches
from pipeline.bench import state
from pipeline.bench.errors import BenchFailed
from pipeline.bench.memory import MemoryMeter
from pipeline.bench.state_phases import CpuWait, Loop, Subtask, keys_of


@pytest.mark.sample(1 / 4)
def test_each_size_is_built_written_and_restored(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    command = [sys.executable, "-c", "from pipeline.cli import main; main(prog_name='weir')", "bench", "state"]
    arguments = ["--mib", "1", "--mib", "3", "--folder", str(checkpoints), "--json", str(target)]
    done = subprocess.run([*command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    small, large = json.loads(target.read_text())["results"]
    assert (small["mib"], large["mib"]) == (1, 3)
    assert small["keys"] == keys_of(1, 256)
    assert large["keys"] == pytest.approx(3 * small["keys"], abs=3)
    assert 0 < small["file_bytes"] < large["file_bytes"] < 4 << 20
    for result in (small, large):
        assert min(result["beside"]["updates"], result["alone"]["updates"]) > 0
        assert min(result["peak_build"], result["peak_snapshot"], result["peak_restore"]) > 10 << 20
    assert [line.split("│")[1].strip() for line in done.stdout.splitlines() if "restore" in line] == [
        "restore",
        "peak memory: restore",
    ]
    assert list(checkpoints.iterdir()) == []


@pytest.mark.parametrize("value_bytes", [128, 256, 5000])
def test_values_have_the_size_that_was_asked_for(value_bytes: int) -> None:
    subtask = Subtask()
    subtask.build(300, value_bytes)
    snapshot = io.BytesIO()
    subtask.backend.freeze().write(snapshot.write)
    values = [value for batch in read_batches(snapshot.getvalue()) for value in batch.values]
    assert len(values) == 300
    assert {len(encode(value)) for value in values} <= set(range(value_bytes - 5, value_bytes + 5))


def test_the_loop_counts_updates_and_the_stops_between_them() -> None:
    subtask = Subtask()
    subtask.build(10, 128)
    loop = Loop()
    rounds = iter(range(8))
    loop.run(subtask.update, iter(range(10)), lambda: next(rounds) < 7, CpuWait())
    assert loop.updates == 7
    assert 0 < loop.longest_held == loop.longest_stop <= loop.seconds


def test_state_that_comes_back_otherwise_makes_it_void(tmp_path: Path) -> None:
    subtask = Subtask()
    subtask.build(10, 128)
    subtask.check(10)
    with pytest.raises(BenchFailed, match="key 10 has None after the restore"):
        subtask.check(11)


def test_a_phase_that_fails_makes_it_void_with_what_it_said() -> None:
    options = '{"uri": "/", "keys": 1, "value_bytes": 128, "compression": "lz4"}'
    with pytest.raises(BenchFailed, match=r"(?s)the phase nothing failed with 1:.*there is no phase nothing"):
        state.run_phase("pipeline.bench.state_phases", ["nothing", options], MemoryMeter())


def test_waiting_for_a_cpu_is_no_stop_of_the_process() -> None:
    class Waited(CpuWait):
        looks = iter([0.0, 1e9])

        def seconds(self) -> float:
            return next(self.looks)

    subtask = Subtask()
    subtask.build(10, 128)
    loop = Loop()
    rounds = iter(range(8))
    loop.run(subtask.update, iter(range(10)), lambda: next(rounds) < 1, Waited())
    assert loop.longest_held == 0 < loop.longest_stop
    assert loop.long_stops == 0


def test_the_wait_of_a_busy_thread_only_grows() -> None:
    wait = CpuWait()
    wait.add_current_thread()
    before = wait.seconds()
    sum(range(1_000_000))
    assert 0 <= before <= wait.seconds()
    wait.close()
