"""CPU time of the processes that take part in a measurement."""

from __future__ import annotations

from collections.abc import Iterable

import psutil


class CpuMeter:
    """CPU seconds of processes since each was first seen. Read it now and then: what a process uses after the last
    reading isn't counted."""

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}

    def sample(self, pids: Iterable[int]) -> None:
        for pid in {*pids, *self._processes}:
            try:
                process = self._processes.get(pid) or psutil.Process(pid)
                times = process.cpu_times()
            except psutil.Error:
                continue  # has ended; its last reading stands
            self._processes[pid] = process
            self._last[pid] = times.user + times.system
            self._first.setdefault(pid, self._last[pid])

    @property
    def seconds(self) -> float:
        return sum(self._last.values()) - sum(self._first.values())
