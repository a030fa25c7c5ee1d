"""A file system of its own for a test: it can be filled up and made read-only."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_BALLAST = "ballast"


class SmallDisk:
    """A mounted tmpfs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def full(self, left: int = 0) -> Iterator[None]:
        """Filled up meanwhile.

        Args:
            left: bytes of room, in whole pages.
        """
        self.fill(left)
        try:
            yield
        finally:
            self.make_room()

    def fill(self, left: int = 0) -> None:
        with (self.folder / _BALLAST).open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            file.truncate(max(0, os.fstat(file.fileno()).st_size - left))

    def make_room(self) -> None:
        (self.folder / _BALLAST).unlink()

    def set_writable(self, writable: bool) -> None:
        subprocess.run(["mount", "-o", f"remount,{'rw' if writable else 'ro'}", self.folder], check=True)


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[SmallDisk]:
    """Mounted at a new folder; the test is skipped, with the reason, where that is not possible."""
    folder.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "weir-test", str(folder)]
    mounted = subprocess.run(options, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
