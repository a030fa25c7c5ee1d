"""RocksDB in memory: it syncs to disk whenever it is opened, which tests do thousands of times."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

_MEMORY = "/dev/shm"


@pytest.fixture(scope="session", autouse=True)
def folders_in_memory() -> Iterator[None]:
    with (
        tempfile.TemporaryDirectory(dir=_MEMORY if os.path.isdir(_MEMORY) else None) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("WEIR_LOCAL_DIR", folder)
        yield
