"""Keyed state on the heap of one subtask: what checkpoint and restore take, and what they cost the task thread."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any, Final

from pipeline.bench.errors import BenchFailed
from pipeline.bench.memory import MemoryMeter
from pipeline.bench.report import Figure, figure
from pipeline.bench.state_phases import LONG_STOP, Compression, Loop, PhaseOptions, keys_of

_SAMPLE_S: Final = 0.02
_MODULE: Final = "pipeline.bench.state_phases"


@dataclass(frozen=True)
class StateOptions:
    sizes_mib: tuple[int, ...] = (100,)
    value_bytes: int = 256
    compression: Compression = "lz4"
    folder: str | None = None
    """Where the checkpoints go for the while; `None`: the temporary directory."""


@dataclass(frozen=True)
class StateResult:
    """What was measured for one size of state.

    Each phase has a process of its own; memory is resident, in bytes, Python's own included.
    """

    mib: int
    """Encoded keys and values together."""
    keys: int
    value_bytes: int
    compression: Compression
    build_s: float
    freeze_s: float
    """The synchronous part: the task thread stands still."""
    write_s: float
    """The asynchronous part, until the file is durable, beside a task thread that updates keys as fast as it can."""
    file_bytes: int
    beside: Loop
    """The task thread during `write_s`, the first updates after the barrier included."""
    alone: Loop
    """The task thread for as long afterwards, without a snapshot."""
    restore_s: float
    peak_build: int
    peak_snapshot: int
    peak_restore: int


@dataclass(frozen=True)
class StateReport:
    long_stop_s: float
    results: list[StateResult]

    def settings(self) -> dict[str, Any]:
        sizes = [result.mib for result in self.results]
        first = self.results[0]
        return {"mib": sizes, "value_bytes": first.value_bytes, "compression": first.compression}

    def figures(self) -> list[Figure | None]:
        return [
            figure(f"{result.mib} MiB, {what}", value, unit, "higher" if unit == "updates/s" else "lower")
            for result in self.results
            for what, value, unit in (
                ("build", result.build_s, "s"),
                ("snapshot, synchronous", result.freeze_s, "s"),
                ("snapshot, asynchronous", result.write_s, "s"),
                ("on disk", result.file_bytes, "bytes"),
                ("longest stop beside it", result.beside.longest_held, "s"),
                ("updates beside it", result.beside.updates / result.beside.seconds, "updates/s"),
                ("restore", result.restore_s, "s"),
                ("peak memory, snapshot", result.peak_snapshot, "bytes"),
                ("peak memory, restore", result.peak_restore, "bytes"),
            )
        ]

    def fields(self) -> dict[str, Any]:
        return asdict(self)


def measure(options: StateOptions, say: Callable[[str], None]) -> StateReport:
    """
    Raises:
        BenchFailed: a phase did not end well, or what was restored isn't what was written.
    """
    return StateReport(LONG_STOP, [_measure(mib, options, say) for mib in options.sizes_mib])


def _measure(mib: int, o: StateOptions, say: Callable[[str], None]) -> StateResult:
    keys = keys_of(mib, o.value_bytes)
    with tempfile.TemporaryDirectory(prefix="weir-bench-", dir=o.folder) as folder:
        options = PhaseOptions(folder, keys, o.value_bytes, o.compression)
        meter = MemoryMeter()
        say(f"{mib:,} MiB, {keys:,} keys: building")
        built = run_phase(_MODULE, ["build", json.dumps(asdict(options))], meter)
        say(f"{mib:,} MiB: building and writing")
        written = run_phase(_MODULE, ["snapshot", json.dumps(asdict(options))], meter)
        say(f"{mib:,} MiB: restoring")
        restored = run_phase(_MODULE, ["restore", json.dumps({**asdict(options), "handle": written["handle"]})], meter)
    return StateResult(
        mib=mib,
        keys=keys,
        value_bytes=o.value_bytes,
        compression=o.compression,
        build_s=built["build_s"],
        freeze_s=written["freeze_s"],
        write_s=written["write_s"],
        file_bytes=written["file_bytes"],
        beside=Loop(**written["beside"]),
        alone=Loop(**written["alone"]),
        restore_s=restored["restore_s"],
        peak_build=meter.peaks["build"],
        peak_snapshot=meter.peaks["snapshot"],
        peak_restore=meter.peaks["restore"],
    )


def run_phase(module: str, arguments: Sequence[str], meter: MemoryMeter) -> dict[str, Any]:
    """A phase in a process of its own, whose memory is looked at all the while.

    Args:
        module: prints what it does, and its result (see `pipeline.bench.state_phases`).
        arguments: its command line; the first one is the phase.

    Raises:
        BenchFailed: it did not end well.
    """
    command = [sys.executable, "-m", module, *arguments]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        said = _Said(process.stdout)
        try:
            while process.poll() is None:
                if said.doing:
                    meter.sample({said.doing: [process.pid]})
                time.sleep(_SAMPLE_S)
        finally:
            process.kill()  # if it runs still, this one was interrupted
        said.join()
        if process.returncode != 0 or said.result is None:
            errors.seek(0)
            raise BenchFailed(f"the phase {arguments[0]} failed with {process.returncode}:\n{errors.read()}")
        return said.result


class _Said:
    """Reads what a phase prints."""

    def __init__(self, lines: IO[str]) -> None:
        self.doing = ""
        self.result: dict[str, Any] | None = None
        self._lines = lines
        self._thread = threading.Thread(target=self._read, name="weir-bench-phase", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._lines:
            said = json.loads(line)
            self.doing = said.get("doing", self.doing)
            self.result = said.get("result")

    def join(self) -> None:
        self._thread.join()
