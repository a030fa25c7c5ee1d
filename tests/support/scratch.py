"""Where tests write. A disk that others keep busy lets one fsync take twenty seconds, and a broker that waits for it is
taken for dead; so it is memory where there is enough."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import psutil

_MEMORY = Path("/dev/shm")
_NAME = "weir-"
_LEAST_FREE = 6 << 30
"""Bytes. A run of all tests uses about one GiB."""


def use_memory() -> Path | None:
    """Let all temporary files of this process, and of those that it starts, be in memory.

    Returns:
        The folder, which is whoever called's to remove; `None` if there is too little memory, or none of this kind.
    """
    if not _MEMORY.is_dir() or min(shutil.disk_usage(_MEMORY).free, psutil.virtual_memory().available) < _LEAST_FREE:
        return None
    for left in _MEMORY.glob(f"{_NAME}[0-9]*"):
        if not psutil.pid_exists(int(left.name.removeprefix(_NAME))):
            shutil.rmtree(left, ignore_errors=True)
    folder = _MEMORY / f"{_NAME}{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o1777)  # as /tmp: a server may run as another user
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return folder
