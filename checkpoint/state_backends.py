"""Which backend keeps keyed state: the option `state_backend` of checkpoints and of steps."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from typing import Any, Final, Literal, TypeAlias

from checkpoint.options import is_number, named_options, nearest, one_of, whole_number

Preset: TypeAlias = Literal["default", "spinning_disk", "flash_high_mem"]

PRESETS: Final[tuple[Preset, ...]] = ("default", "spinning_disk", "flash_high_mem")
LEAST_MEMORY: Final = 16 << 20
_NOT_FREE: Final = frozenset({"allow_ingest_behind", "atomic_flush", "db_write_buffer_size", "error_if_exists"})
"""What the backend sets by itself, or can't work with."""


@named_options
@dataclass(frozen=True)
class RocksDb:
    """Keyed state in RocksDB, on a disk of the executor: it may be larger than memory.

        CheckpointConfig(uri, state_backend=RocksDb(memory=1 << 30))

    `"rocksdb"` is the same as `RocksDb()`.

    Args:
        memory: bytes, for all of a process: cached blocks, indexes and filters, what is not written to files yet, and
            the values that lie ready as Python objects. If backends of one process have different ones, the largest
            counts. At least 16 MiB. Default: 256 MiB.
        options: `"default"`, `"spinning_disk"` (large blocks, larger and fewer files, less at a time),
            `"flash_high_mem"` (more threads and larger files, no compression of what is new); or options of RocksDB by
            name, which change `"default"`: `{"max_background_jobs": 4, "block_size": 16384}`.
        folder: where each host has the files: an absolute path, which may be a `Path`. Default: where local copies of
            checkpoints go (`$WEIR_LOCAL_DIR`, or a folder of Spark's or YARN's, or the temporary directory). They are
            deleted at the end; those of a process that was killed, when the next one begins on the host.

    Raises:
        ValueError: an option has a value that it can't have; the message says which it may have.
    """

    memory: int = 256 << 20
    options: Preset | Mapping[str, float] = "default"
    folder: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.folder, PurePath):
            object.__setattr__(self, "folder", str(self.folder))
        if self.folder is not None and not (isinstance(self.folder, str) and os.path.isabs(self.folder)):
            raise ValueError(f"folder of RocksDb must be an absolute path or None, not {self.folder!r}")
        whole_number(self.memory, "memory of RocksDb", LEAST_MEMORY, unit="bytes")
        if isinstance(self.options, Mapping):
            object.__setattr__(self, "options", dict(self.options))
            for name, value in self.options.items():
                _check_free(name, value)
        else:
            one_of(self.options, "options of RocksDb", PRESETS)

    def __hash__(self) -> int:
        return hash((self.memory, self.folder))

    @property
    def preset(self) -> Preset:
        return "default" if isinstance(self.options, Mapping) else self.options

    @property
    def free(self) -> Mapping[str, float]:
        """Options by name."""
        return self.options if isinstance(self.options, Mapping) else {}


StateBackend: TypeAlias = Literal["heap", "rocksdb"] | RocksDb


def checked_state_backend(value: Any) -> StateBackend:
    """The option `state_backend`; the options of RocksDB may be given as a dict, as configuration files have them.

    Raises:
        ValueError: it is no backend, or an option is wrong; the message says which there are.
    """
    if isinstance(value, RocksDb):
        return value
    if isinstance(value, Mapping):
        try:
            return RocksDb(**value)
        except TypeError as error:
            raise ValueError(f"state_backend: {error}") from error
    one_of(value, "state_backend", ("heap", "rocksdb", "RocksDb(…)"))
    known: StateBackend = value
    return known


def rocksdb_of(value: StateBackend) -> RocksDb | None:
    """The options of RocksDB; `None`: state is on the heap."""
    if isinstance(value, RocksDb):
        return value
    return RocksDb() if value == "rocksdb" else None


@cache
def free_options() -> Mapping[str, Callable[[Any, Any], None]]:
    """The options of RocksDB that one number sets, and what sets them on `Options` or `BlockBasedOptions`."""
    from rocksdict import BlockBasedOptions, Options

    found: dict[str, Callable[[Any, Any], None]] = {}
    for cls, scratch in ((BlockBasedOptions, BlockBasedOptions()), (Options, Options(raw_mode=True))):
        for name in dir(cls):
            option = name.removeprefix("set_")
            if name != option and option not in _NOT_FREE and _takes_a_number(getattr(scratch, name)):
                found[option] = getattr(cls, name)
    return found


def _takes_a_number(setter: Callable[[Any], None]) -> bool:
    for value in (1, True):
        try:
            setter(value)
            return True
        except TypeError:
            continue  # it takes something else
    return False


def _check_free(name: Any, value: Any) -> None:
    known = free_options()
    if name not in known:
        hint = nearest(str(name), known) or "."
        raise ValueError(f"options of RocksDb: there is no {name!r}{hint} There are {', '.join(sorted(known))}")
    if not (isinstance(value, bool) or is_number(value)) or not math.isfinite(value):
        raise ValueError(f"options of RocksDb: {name} must be a number, True or False, not {value!r}")
    from rocksdict import BlockBasedOptions, Options

    target = BlockBasedOptions() if hasattr(BlockBasedOptions, f"set_{name}") else Options(raw_mode=True)
    try:
        known[name](target, value)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"options of RocksDb: {name} can't be {value!r}: {error}") from error
