"""The files of RocksDB go with their backend, or with the next one that begins on the host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from keyed_backend_contract import MAX, Running, check, fill

from checkpoint.state.errors import StateStorageError
from checkpoint.state.rocksdb.backend import RocksDbBackend
from checkpoint.state_backends import RocksDb

_PROCESS = """
import sys, time
from pathlib import Path
from checkpoint.state.rocksdb.folder import ScratchFolder
folder = ScratchFolder(sys.argv[1])
Path(folder.path, "rows").write_text("…")
print(folder.path, flush=True)
time.sleep(600)
"""


def made(folder: Path) -> RocksDbBackend:
    return RocksDbBackend(range(MAX), MAX, RocksDb(folder=str(folder)))


def running(backend: RocksDbBackend) -> Running:
    return Running(lambda groups, most: backend)  # type: ignore[arg-type, return-value]


def folders(root: Path) -> set[str]:
    return {path.name for path in root.glob("weir-rocksdb/*")}


def test_there_is_no_folder_before_something_is_written(tmp_path: Path) -> None:
    one = running(made(tmp_path))
    assert one.at(1).total.value == 0
    one.snapshot()
    assert folders(tmp_path) == set()


def test_the_folder_is_deleted_at_the_end(tmp_path: Path) -> None:
    one = running(made(tmp_path))
    fill(one, [1])
    one.snapshot()
    assert len(folders(tmp_path)) == 2
    check(one, 1)
    one.backend.close()
    one.backend.close()
    assert folders(tmp_path) == set()


def test_the_folder_is_deleted_when_nobody_uses_the_state_any_more(tmp_path: Path) -> None:
    one = running(made(tmp_path))
    fill(one, [1])
    one.snapshot()
    operator = one.op
    del one
    assert len(folders(tmp_path)) == 2
    assert operator.total.store is not None
    del operator
    assert folders(tmp_path) == set()


def test_what_a_killed_process_has_left_goes_when_the_next_one_begins(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", _PROCESS, str(tmp_path)]
    processes = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        paths = [Path(process.stdout.readline().strip()) for process in processes if process.stdout is not None]
        assert all(path.joinpath("rows").exists() for path in paths)
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait()
        one = running(made(tmp_path))
        fill(one, [1])
        one.snapshot()
        assert [path.exists() for path in paths] == [False, True]
        assert len(folders(tmp_path)) == 4
        one.backend.close()
        assert folders(tmp_path) == {paths[1].name, f"{paths[1].name}.lock"}
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_a_process_that_was_forked_leaves_its_parents_state_alone(tmp_path: Path) -> None:
    one = running(made(tmp_path))
    fill(one, [1])
    one.snapshot()
    child = os.fork()
    if child == 0:
        one.backend.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(folders(tmp_path)) == 2
    check(one, 1)


def test_a_folder_that_cant_be_made_is_an_error(tmp_path: Path) -> None:
    tmp_path.joinpath("file").write_text("")
    one = running(made(tmp_path / "file"))
    one.at(1).total.value = 5
    with pytest.raises(StateStorageError, match=r"Not a directory: .*file"):
        one.backend.freeze()
