"""The option `state_backend`."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from checkpoint.config import CheckpointConfig
from checkpoint.state import make_backend
from checkpoint.state.heap.backend import HeapBackend
from checkpoint.state.rocksdb.backend import RocksDbBackend
from checkpoint.state_backends import PRESETS, RocksDb, free_options


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("heap", "heap"),
        ("rocksdb", "rocksdb"),
        (RocksDb(memory=1 << 30), RocksDb(memory=1 << 30)),
        ({"memory": 1 << 30, "options": "flash_high_mem"}, RocksDb(1 << 30, "flash_high_mem")),
        (RocksDb(folder=Path("/var/lib/weir")), RocksDb(folder="/var/lib/weir")),  # type: ignore[arg-type]
    ],
)
def test_a_backend_is_named_or_has_options(given: Any, expected: Any) -> None:
    config = CheckpointConfig("/checkpoints", state_backend=given)
    assert config.state_backend == expected
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": 1 << 20}, "memory of RocksDb must be a whole number of bytes, at least 16777216, not 1048576"),
        ({"memory": "256 MiB"}, "memory of RocksDb must be a whole number"),
        ({"options": "fast"}, "options of RocksDb must be one of default, spinning_disk, flash_high_mem, not 'fast'"),
        ({"options": {"blok_size": 1}}, "there is no 'blok_size'; did you mean 'block_size'? There are advise_random"),
        ({"options": {"env": 1}}, "there is no 'env'"),
        ({"options": {"block_size": -1}}, "options of RocksDb: block_size can't be -1"),
        ({"options": {"block_size": "1k"}}, "block_size must be a number, True or False, not '1k'"),
        ({"folder": "relative"}, "folder of RocksDb must be an absolute path or None, not 'relative'"),
    ],
)
def test_a_wrong_option_says_what_it_may_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="RocksDb") as caught:
        RocksDb(**options)
    assert message in str(caught.value)


def test_options_of_a_configuration_file_are_checked() -> None:
    with pytest.raises(ValueError, match="has no option 'memroy'; did you mean 'memory'"):
        CheckpointConfig("/checkpoints", state_backend={"memroy": 1 << 30})  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [*PRESETS, {"block_size": 16 << 10, "max_background_jobs": 1}])
def test_rocksdb_begins_with_every_kind_of_options(options: Any, tmp_path: Path) -> None:
    backend = make_backend(range(4), 4, state_backend=RocksDb(32 << 20, options, str(tmp_path)))
    assert isinstance(backend, RocksDbBackend)
    backend.set_current_key(b"k", 1)
    backend.event_timers.register(5)
    backend.freeze().release()
    assert backend.metrics()["rocksdbSizeBytes"] > 0
    backend.close()
    assert {"block_size", "write_buffer_size", "max_open_files"} <= set(free_options())


def test_without_a_word_state_is_on_the_heap() -> None:
    assert isinstance(make_backend(range(4), 4), HeapBackend)
    assert CheckpointConfig("/checkpoints").state_backend == "heap"
