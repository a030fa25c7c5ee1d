"""RocksDB in memory: it syncs to disk whenever it is opened, which tests do thousands of times."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

from checkpoint.state.paging import lists, maps, rows

_MEMORY = "/dev/shm"


@pytest.fixture(scope="session", autouse=True)
def folders_in_memory() -> Iterator[None]:
    with (
        tempfile.TemporaryDirectory(dir=_MEMORY if os.path.isdir(_MEMORY) else None) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("WEIR_LOCAL_DIR", folder)
        yield


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two entries are too many for a row, and for a page."""
    monkeypatch.setattr(rows, "MOST", 1)
    monkeypatch.setattr(maps, "PAGE", 1)
    monkeypatch.setattr(lists, "PAGE", 1)
