"""One subtask's keyed state as it grows: what keys, changes, checkpoints and a restore cost, with any backend.

`python -m pipeline.bench.state_growth_phases PHASE OPTIONS` does `grow` or `read_back` in this process, as a subtask's
process would. It prints JSON as `pipeline.bench.state_phases` does.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from typing import Any, Final

import psutil

from checkpoint.codec import encode, encode_key
from checkpoint.key_groups import key_group
from checkpoint.state import DeclaresState, KeyedSnapshot, ValueState, bind, make_backend
from checkpoint.state.changelog.snapshot import LogFolder, LoggedState
from checkpoint.state.files import load_keyed_state
from checkpoint.state_backends import RocksDb, StateBackend
from checkpoint.storage.handles import StateFile
from checkpoint.storage.naming import shared_path
from checkpoint.storage.storage import CheckpointStorage
from pipeline.bench.errors import BenchFailed
from pipeline.bench.state_phases import CpuWait, Loop
from pipeline.runtime.subtask.gc_pauses import ShortCollections
from pipeline.runtime.subtask.process import SWITCH_INTERVAL

_KEY_GROUPS: Final = 128
_HOT: Final = 50_000
"""Keys that are changed again and again."""
_DIGITS: Final = 12
_TEXT: Final = random.Random(1).randbytes(1 << 17).hex()
_SECONDS: Final = 2.0
"""How long a rate is measured for."""


@dataclass(frozen=True)
class GrowthOptions:
    uri: str
    """Root folder of the checkpoint storage."""
    backend: str
    """`heap` or `rocksdb`."""
    memory: int
    """Bytes, of RocksDB."""
    keys: int
    value_bytes: int
    """Size of an encoded value."""
    touched: float
    """Share of the keys that change before the second checkpoint."""


class Notes(DeclaresState):
    note = ValueState[Any]()


class Counts(DeclaresState):
    count = ValueState(default=0)


class Subtask:
    """An operator with its backend and log."""

    def __init__(self, options: GrowthOptions, cls: type = Notes) -> None:
        self.options = options
        self.storage = CheckpointStorage(options.uri, "bench")
        self.storage.prepare()
        kind: StateBackend = "heap" if options.backend == "heap" else RocksDb(memory=options.memory)
        self.backend = make_backend(range(_KEY_GROUPS), _KEY_GROUPS, True, kind)
        self.operator: Any = cls()
        bind(self.operator, self.backend)
        self.merges = ThreadPoolExecutor(1, "weir-merge")
        folder = LogFolder(self.storage, lambda: self.storage.create(shared_path(1, "state")), "lz4")
        self.log = LoggedState("Notes", range(_KEY_GROUPS), _KEY_GROUPS, folder, self.merges)

    def at(self, i: int) -> Any:
        key = encode_key(f"key-{i:012}")
        self.backend.set_current_key(key, key_group(key, _KEY_GROUPS))
        return self.operator

    def update(self, i: int) -> None:
        """What a record of the key does."""
        self.at(i).note.value = _value(i + 1, self.options.value_bytes)

    def checkpoint(self) -> dict[str, Any]:
        self.backend.clear_current_key()
        began = time.perf_counter()
        snapshot = self.log.barrier(self.backend.freeze_changes())
        held = time.perf_counter() - began
        began = time.perf_counter()
        files = snapshot.files(_no_file)
        took = time.perf_counter() - began
        size = sum(listed.file.size for listed in files)
        return {
            "held_s": held,
            "write_s": took,
            "bytes": size,
            "written": size - snapshot.reused_bytes,
            "files": [listed.to_wire() for listed in files],
        }

    def close(self) -> None:
        self.log.close()
        self.merges.shutdown()
        self.backend.close()


def _no_file(name: str) -> Any:
    raise AssertionError(f"changes are not in a file {name} of one checkpoint")


def _value(i: int, size: int) -> str:
    """A string whose encoding has about `size` bytes, and which hardly compresses."""
    rest = size - _DIGITS - len(encode("")) - 1
    start = i * 7919 % (len(_TEXT) - rest)
    return f"{i:0{_DIGITS}}{_TEXT[start : start + rest]}"


def grow(options: GrowthOptions) -> dict[str, Any]:
    subtask = Subtask(options)
    before = psutil.Process().memory_info().rss
    _doing("grow")
    began = time.perf_counter()
    for i in range(options.keys):
        subtask.at(i).note.value = _value(i, options.value_bytes)
    built = time.perf_counter() - began
    _doing("checkpoints")
    first = subtask.checkpoint()
    step = max(1, round(1 / options.touched))
    for i in range(0, options.keys, step):
        subtask.update(i)
    second = subtask.checkpoint()
    resident = psutil.Process().memory_info().rss - before
    _doing("whole")
    beside, alone, wrote = _beside(subtask, subtask.backend.freeze())
    subtask.close()
    return {
        "build_s": built,
        "encoded_bytes": options.keys * (options.value_bytes + len(encode_key(f"key-{0:012}"))),
        "resident": resident,
        "first": first,
        "second": second,
        "whole_s": wrote,
        "beside": asdict(beside),
        "alone": asdict(alone),
        **_repeated(options),
    }


def _beside(subtask: Subtask, whole: Any) -> tuple[Loop, Loop, float]:
    """Updates beside a whole snapshot and alone, and what the snapshot took."""
    order: Iterator[int] = cycle(range(0, subtask.options.keys, 7))
    beside, alone, wait = Loop(), Loop(), CpuWait()
    wait.add_current_thread()
    with ThreadPoolExecutor(1, "weir-snapshot") as pool:
        pool.submit(wait.add_current_thread).result()
        began = time.perf_counter()
        writing = pool.submit(_write, subtask.storage, whole)
        beside.run(subtask.update, order, lambda: not writing.done(), wait)
        took = time.perf_counter() - began
        writing.result()
        until = time.perf_counter() + max(took, _SECONDS)
        alone.run(subtask.update, order, lambda: time.perf_counter() < until, wait)
    wait.close()
    return beside, alone, took


def _write(storage: CheckpointStorage, whole: KeyedSnapshot) -> None:
    try:
        whole.files(lambda name: storage.create(f"chk-1-1/notes-0-{name}.arrow"))
    finally:
        whole.release()


def _repeated(options: GrowthOptions) -> dict[str, float]:
    """Read-modify-writes a second: of keys that repeat, of keys that are new; and the same loop without any state."""
    subtask = Subtask(options, Counts)
    count, current = subtask.operator.count, subtask.backend.set_current_key
    keys = [(key, key_group(key, _KEY_GROUPS)) for key in (encode_key(f"key-{i:012}") for i in range(_HOT))]

    def add() -> None:
        for key, group in keys:
            current(key, group)
            count.value += 1

    def nothing() -> None:
        for _key, _group in keys:
            pass

    began = time.perf_counter()
    add()
    new = _HOT / (time.perf_counter() - began)
    rates = {"rmw_new": new, "rmw_repeated": _rate(add), "loop": _rate(nothing)}
    subtask.close()
    return rates


def _rate(run: Callable[[], None]) -> float:
    """Of the quickest round."""
    until, best = time.perf_counter() + _SECONDS, 0.0
    while time.perf_counter() < until:
        began = time.perf_counter()
        run()
        best = max(best, _HOT / (time.perf_counter() - began))
    return best


def read_back(options: GrowthOptions, files: list[Any]) -> dict[str, Any]:
    """Restore, and check."""
    subtask = Subtask(options)
    _doing("restore")
    began = time.perf_counter()
    subtask.backend.restore(load_keyed_state(subtask.storage, [StateFile.from_wire(listed) for listed in files]))
    subtask.backend.settle(changed=False)
    took = time.perf_counter() - began
    step = max(1, round(1 / options.touched))
    for i in islice(range(0, options.keys, max(1, options.keys // 1000)), 1000):
        found = subtask.at(i).note.value
        if found != _value(i + (i % step == 0), options.value_bytes):
            raise BenchFailed(f"key {i} has {found!r} after the restore")
    subtask.close()
    return {"restore_s": took}


def _doing(what: str) -> None:
    print(json.dumps({"doing": what}), flush=True)


def main(arguments: list[str]) -> None:
    phase, given = arguments[0], json.loads(arguments[1])
    files = given.pop("files", [])
    options = GrowthOptions(**given)
    sys.setswitchinterval(SWITCH_INTERVAL)
    ShortCollections().start()
    result = grow(options) if phase == "grow" else read_back(options, files)
    print(json.dumps({"result": result}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
