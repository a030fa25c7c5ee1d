"""One subtask's keyed state on the heap: built, written to a checkpoint storage beside a busy task thread, restored.

`python -m pipeline.bench.state_phases PHASE OPTIONS` does one of `build`, `snapshot`, `restore` in this process, as a
subtask's process would. It prints JSON, one object a line: `{"doing": …}` before each part, `{"result": …}` in the end.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import IO, Any, Final, Literal

from checkpoint.codec import encode_key
from checkpoint.key_groups import key_group
from checkpoint.state import DeclaresState, ValueState, WholeSnapshot, bind, make_backend
from checkpoint.state.files import load_keyed_state
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.naming import CheckpointRef, private_path, subtask_name
from checkpoint.storage.storage import CheckpointStorage
from pipeline.bench.errors import BenchFailed
from pipeline.runtime.subtask.gc_pauses import ShortCollections
from pipeline.runtime.subtask.process import SWITCH_INTERVAL

Compression = Literal["lz4", "zstd", "none"]

KEY_GROUPS: Final = 128
REF: Final = CheckpointRef(1, 1)
LONG_STOP: Final = 0.05
"""Seconds."""
_WINDOW: Final = 0.005
"""Seconds of the loop for which waiting is looked up."""
_PATH: Final = private_path(REF, subtask_name("profile", 0), "state")
_OPERATOR: Final = "Profiles"
_FIXED: Final = 86
"""Bytes of an encoded value without its note."""
_KEY_BYTES: Final = 17
_TEXT: Final = random.Random(1).randbytes(1 << 16).hex()


@dataclass(frozen=True)
class PhaseOptions:
    uri: str
    """Root folder of the checkpoint storage."""
    keys: int
    value_bytes: int
    """Size of an encoded value."""
    compression: Compression


class Profiles(DeclaresState):
    """What a job might keep of each of its customers."""

    profile = ValueState[Any]()


def keys_of(mib: int, value_bytes: int) -> int:
    """How many keys have `mib` MiB together, as encoded keys and values."""
    return (mib << 20) // (value_bytes + _KEY_BYTES)


def _value(i: int, note: int) -> dict[str, Any]:
    start = i * 7919 % (len(_TEXT) - note)
    return {
        "visits": i % 1000 + 256,
        "spent": i * 0.25,
        "last": 1_700_000_000_000 + i,
        "name": f"customer {i:010}",
        "recent": [i % 100, i % 101, i % 103],
        "note": _TEXT[start : start + note],
    }


class Subtask:
    """An operator with its backend."""

    def __init__(self) -> None:
        self.backend = make_backend(range(KEY_GROUPS), KEY_GROUPS)
        self._operator = Profiles()
        bind(self._operator, self.backend)

    def build(self, keys: int, value_bytes: int) -> None:
        note = value_bytes - _FIXED
        for i in range(keys):
            self._at(i)
            self._operator.profile.value = _value(i, note)

    def update(self, i: int) -> None:
        """What a record of key `i` does, in place."""
        self._at(i)
        value = self._operator.profile.value
        value["visits"] += 1
        value["recent"] = [*value["recent"][1:], i % 100]

    def check(self, keys: int) -> None:
        """
        Raises:
            BenchFailed: the state isn't what was written.
        """
        found = 0
        for i in range(0, keys, max(1, keys // 1000)):
            self._at(i)
            value = self._operator.profile.value
            if value is None or value["name"] != f"customer {i:010}":
                raise BenchFailed(f"key {i} has {value!r} after the restore")
            found += 1
        assert found

    def _at(self, i: int) -> None:
        key = encode_key(f"key-{i:012}")
        self.backend.set_current_key(key, key_group(key, KEY_GROUPS))


class CpuWait:
    """How long threads of this process have waited for a CPU, which other processes had. Linux tells; elsewhere 0."""

    def __init__(self) -> None:
        self._files: list[IO[bytes]] = []

    def add_current_thread(self) -> None:
        with suppress(FileNotFoundError):
            self._files.append(open(f"/proc/self/task/{threading.get_native_id()}/schedstat", "rb", buffering=0))  # noqa: SIM115

    def seconds(self) -> float:
        waited = 0
        for file in self._files:
            file.seek(0)
            waited += int(file.read().split()[1])
        return waited / 1e9

    def close(self) -> None:
        for file in self._files:
            file.close()


@dataclass
class Loop:
    """What the task thread got done: an update at a time, and how long it was kept from the next one."""

    updates: int = 0
    seconds: float = 0.0
    longest_stop: float = 0.0
    """Seconds from one update to the next."""
    longest_held: float = 0.0
    """The same, without the time in which a thread of the process waited for a CPU around that stop: what the process
    itself is to blame for, about."""
    long_stops: int = 0
    """Stops of more than `LONG_STOP`, without that time."""

    def run(
        self, update: Callable[[int], None], order: Iterator[int], going_on: Callable[[], bool], wait: CpuWait
    ) -> None:
        """`update`: what a record of key i does."""
        began = last = time.perf_counter()
        window_ends, waited, longest = began + _WINDOW, wait.seconds(), 0.0
        while going_on():
            update(next(order))
            now = time.perf_counter()
            stop, last = now - last, now
            if stop > longest:
                longest = stop
            if now >= window_ends:
                before, waited = waited, wait.seconds()
                self._note(longest, waited - before)
                window_ends, longest = now + _WINDOW, 0.0
            self.updates += 1
        self._note(longest, wait.seconds() - waited)
        self.seconds += last - began

    def _note(self, stop: float, waited: float) -> None:
        held = max(0.0, stop - waited)
        self.longest_stop = max(self.longest_stop, stop)
        self.longest_held = max(self.longest_held, held)
        self.long_stops += held > LONG_STOP


def _order(keys: int) -> Iterator[int]:
    """Keys far from each other, all of them in turn."""
    step = keys * 618_034 // 1_000_000 | 1
    i = 0
    while True:
        i = (i + step) % keys
        yield i


def build(options: PhaseOptions) -> dict[str, Any]:
    subtask = Subtask()
    began = time.perf_counter()
    subtask.build(options.keys, options.value_bytes)
    return {"build_s": time.perf_counter() - began}


def snapshot(options: PhaseOptions) -> dict[str, Any]:
    subtask = Subtask()
    subtask.build(options.keys, options.value_bytes)
    storage = CheckpointStorage(options.uri, "bench")
    storage.prepare()
    order = _order(options.keys)
    beside, alone, wait = Loop(), Loop(), CpuWait()
    wait.add_current_thread()
    _doing("snapshot")
    with ThreadPoolExecutor(1, thread_name_prefix="weir-snapshot") as pool:
        pool.submit(wait.add_current_thread).result()
        began = time.perf_counter()
        frozen = subtask.backend.freeze()
        freeze = time.perf_counter() - began
        began = time.perf_counter()
        writing = pool.submit(_write, storage, frozen, options.compression)
        del frozen
        beside.run(subtask.update, order, lambda: not writing.done(), wait)
        took = time.perf_counter() - began
        handle = writing.result()
        until = time.perf_counter() + took
        alone.run(subtask.update, order, lambda: time.perf_counter() < until, wait)
    wait.close()
    return {
        "freeze_s": freeze,
        "write_s": took,
        "file_bytes": handle.size,
        "handle": handle.to_wire(),
        "beside": asdict(beside),
        "alone": asdict(alone),
    }


def _write(storage: CheckpointStorage, frozen: WholeSnapshot, compression: Compression) -> FileHandle:
    file = storage.create(_PATH)
    try:
        frozen.write(file.write, compression)
        return file.close()
    except BaseException:
        file.abort()
        raise


def restore(options: PhaseOptions, handle: FileHandle) -> dict[str, Any]:
    subtask = Subtask()
    storage = CheckpointStorage(options.uri, "bench")
    began = time.perf_counter()
    subtask.backend.restore(load_keyed_state(storage, [StateFile(handle)]))
    took = time.perf_counter() - began
    subtask.check(options.keys)
    return {"restore_s": took}


def _doing(what: str) -> None:
    print(json.dumps({"doing": what}), flush=True)


def main(arguments: list[str]) -> None:
    phase, given = arguments[0], json.loads(arguments[1])
    handle = given.pop("handle", None)
    options = PhaseOptions(**given)
    sys.setswitchinterval(SWITCH_INTERVAL)
    ShortCollections().start()
    _doing(phase if phase != "snapshot" else "build")
    match phase:
        case "build":
            result = build(options)
        case "snapshot":
            result = snapshot(options)
        case "restore":
            result = restore(options, FileHandle.from_wire(handle))
        case other:
            raise SystemExit(f"there is no phase {other}")
    print(json.dumps({"result": result}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
