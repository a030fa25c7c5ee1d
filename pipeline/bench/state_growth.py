"""Keyed state of one subtask as it grows, with each backend, and incremental checkpoints of it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from pipeline.bench.memory import MemoryMeter
from pipeline.bench.report import Figure, figure
from pipeline.bench.state import run_phase
from pipeline.bench.state_growth_phases import GrowthOptions
from pipeline.bench.state_phases import Loop

_MODULE: Final = "pipeline.bench.state_growth_phases"


@dataclass(frozen=True)
class GrowthResult:
    """What was measured for one backend and number of keys. Memory is resident, in bytes."""

    backend: str
    keys: int
    encoded_bytes: int
    """Keys and values."""
    new_keys_per_s: float
    """Values set, of keys that are new."""
    resident: int
    """Growth of the process after two checkpoints."""
    first: dict[str, Any]
    """The first checkpoint, of everything: `held_s`, in which the task thread stands still, `write_s`, `bytes` of all
    its files and `written`."""
    second: dict[str, Any]
    """The second one, after the share of keys has changed."""
    whole_s: float
    """A whole snapshot, as of a savepoint, beside a task thread that updates keys as fast as it can."""
    beside: Loop
    alone: Loop
    rmw_new: float
    """Read-modify-writes a second of one int a key: of keys that are new."""
    rmw_repeated: float
    """Of keys that repeat."""
    loop: float
    """The measuring loop without any state."""
    restore_s: float
    peak: int
    """Of all phases."""


@dataclass(frozen=True)
class GrowthReport:
    value_bytes: int
    touched: float
    memory: int
    results: list[GrowthResult]

    def settings(self) -> dict[str, Any]:
        points = [f"{result.backend} {result.keys}" for result in self.results]
        return {"points": points, "value_bytes": self.value_bytes, "touched": self.touched, "memory": self.memory}

    def figures(self) -> list[Figure | None]:
        return [
            figure(f"{result.backend}, {result.keys} keys, {what}", value, unit, "higher" if "/s" in unit else "lower")
            for result in self.results
            for what, value, unit in (
                ("resident", result.resident, "bytes"),
                ("new keys", result.new_keys_per_s, "keys/s"),
                ("read-modify-writes, new keys", result.rmw_new, "updates/s"),
                ("read-modify-writes, the same keys", result.rmw_repeated, "updates/s"),
                ("first checkpoint, task held", result.first["held_s"], "s"),
                ("first checkpoint, writing", result.first["write_s"], "s"),
                ("second checkpoint, task held", result.second["held_s"], "s"),
                ("second checkpoint, writing", result.second["write_s"], "s"),
                ("second checkpoint, written", result.second["written"], "bytes"),
                ("whole snapshot", result.whole_s, "s"),
                ("restore", result.restore_s, "s"),
                ("peak memory", result.peak, "bytes"),
            )
        ]

    def fields(self) -> dict[str, Any]:
        return {"results": [asdict(result) for result in self.results]}


def measure(
    backends: tuple[str, ...],
    keys: tuple[int, ...],
    value_bytes: int,
    touched: float,
    memory: int,
    folder: str | None,
    say: Callable[[str], None],
) -> GrowthReport:
    """
    Args:
        backends: `heap`, `rocksdb`.
        touched: share of the keys that change before the second checkpoint.
        memory: bytes, of RocksDB.
        folder: where the checkpoints go for the while; `None`: the temporary directory.

    Raises:
        BenchFailed: a phase did not end well, or what was restored isn't what was written.
    """
    results = []
    for backend in backends:
        for count in keys:
            say(f"{backend}, {count:,} keys")
            results.append(_measure(backend, count, value_bytes, touched, memory, folder))
    return GrowthReport(value_bytes, touched, memory, results)


def _measure(
    backend: str, count: int, value_bytes: int, touched: float, memory: int, folder: str | None
) -> GrowthResult:
    meter = MemoryMeter()
    with tempfile.TemporaryDirectory(prefix="weir-bench-", dir=folder) as root:
        options = asdict(GrowthOptions(root, backend, memory, count, value_bytes, touched))
        grown = run_phase(_MODULE, ["grow", json.dumps(options)], meter)
        files = grown["second"].pop("files")
        grown["first"].pop("files")
        restored = run_phase(_MODULE, ["read_back", json.dumps({**options, "files": files})], meter)
    return GrowthResult(
        backend=backend,
        keys=count,
        encoded_bytes=grown["encoded_bytes"],
        new_keys_per_s=count / grown["build_s"],
        resident=grown["resident"],
        first=grown["first"],
        second=grown["second"],
        whole_s=grown["whole_s"],
        beside=Loop(**grown["beside"]),
        alone=Loop(**grown["alone"]),
        rmw_new=grown["rmw_new"],
        rmw_repeated=grown["rmw_repeated"],
        loop=grown["loop"],
        restore_s=restored["restore_s"],
        peak=max(meter.peaks.values()),
    )
