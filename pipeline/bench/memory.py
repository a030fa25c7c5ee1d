"""Resident memory of the processes that take part in a measurement."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

import psutil


def shared_out(pids: Iterable[int]) -> dict[int, int]:
    """Bytes of memory of each process; of a page that several share each has its part (PSS, of Linux). Those that have
    ended are left out."""
    found = {}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found[pid] = int(psutil.Process(pid).memory_full_info().pss)
    return found


class MemoryMeter:
    """Peaks of resident memory in bytes, by group of processes. Pages that processes share count for each of them."""

    def __init__(self) -> None:
        self.peaks: dict[str, int] = {}
        """The largest process of each group."""
        self.peak_total = 0
        """The most that all had at one time."""

    def sample(self, processes: Mapping[str, list[int]]) -> int:
        """Look at the processes of each group; what all of them have now."""
        total = 0
        for group, pids in processes.items():
            for pid in pids:
                try:
                    resident = int(psutil.Process(pid).memory_info().rss)
                except psutil.Error:
                    continue  # has ended
                total += resident
                self.peaks[group] = max(self.peaks.get(group, 0), resident)
        self.peak_total = max(self.peak_total, total)
        return total
