"""Whether a process that a file tells of still runs: process ids are given again, and clocks are set."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import psutil

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_STARTED: Final = 19
"""Of what `/proc/PID/stat` says behind the process's name: when it started, in ticks since the boot."""
_CLOCK_STEP: Final = 5.0
"""Seconds that the clock may have been set since, where nothing else tells processes apart than its times."""


def identity(pid: int) -> str:
    """What no other process of this host has had or will have, whatever its clock is set to; empty where the system
    (not Linux) doesn't tell, or there is no such process."""
    try:
        boot = _BOOT.read_text(encoding="ascii").strip()
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return f"{boot}/{stat.rpartition(')')[2].split()[_STARTED]}"
    except (OSError, IndexError):
        return ""


def runs_still(pid: int, noted_at: float, noted: str) -> bool:
    """Whether the process that was noted as `pid` runs; one that nobody has waited for is dead.

    Args:
        noted_at: when, in seconds since 1970.
        noted: its `identity` then; empty: not known.
    """
    try:
        process = psutil.Process(pid)
        now = identity(pid) if noted else ""
        same = now == noted if now else process.create_time() <= noted_at + _CLOCK_STEP
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True
