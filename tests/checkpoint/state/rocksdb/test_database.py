from __future__ import annotations

from pathlib import Path

import pytest

from checkpoint.errors import NotOfTheRecord
from checkpoint.state.errors import StateStorageError
from checkpoint.state.rocksdb.database import Database
from checkpoint.state_backends import RocksDb


def test_a_disk_that_fails_is_no_records_fault(tmp_path: Path) -> None:
    """Steps with `on_error` would leave out one record after the other."""
    (tmp_path / "file").touch()
    database = Database(RocksDb(folder=str(tmp_path / "file")))
    with pytest.raises(StateStorageError, match="can't write state") as caught:
        database.write(iter([(b"key", b"row")]))
    assert isinstance(caught.value, NotOfTheRecord)
