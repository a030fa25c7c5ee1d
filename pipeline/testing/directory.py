"""A folder by which a testing source or sink on the driver and its copies in the subtasks know of each other."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path


def shared_directory(owner: object, directory: Path | str | None, prefix: str) -> Path:
    """The directory given, made if need be, or a temporary one that is removed with `owner` (not with its copies)."""
    if directory is not None:
        if not isinstance(directory, str | Path):
            raise ValueError(f"directory must be a path, not {directory!r}")
        path = Path(directory).resolve()
        path.mkdir(parents=True, exist_ok=True)
        return path
    path = Path(tempfile.mkdtemp(prefix=prefix))
    weakref.finalize(owner, _remove, path, os.getpid())
    return path


def _remove(path: Path, pid: int) -> None:
    if os.getpid() == pid:  # not in a fork
        shutil.rmtree(path, ignore_errors=True)
