"""RocksDB as a backend uses it: opened when it is needed first, within the memory that all of a process share."""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from checkpoint.state.errors import StateStorageError
from checkpoint.state.rocksdb.folder import ScratchFolder
from checkpoint.state_backends import RocksDb, free_options

_MIB: Final = 1 << 20
_BATCH_BYTES: Final = 4 * _MIB
_BLOOM_BITS: Final = 10
_VALUES: Final = 4
"""A share of one in so many of the memory is for values as Python objects."""
_BUFFERS: Final = 4
"""And for what is not written to files yet."""
_SIZES: Final = ("total-sst-files-size", "cur-size-all-mem-tables")
_STATISTICS: Final = re.compile(r"^(rocksdb\.[\w.]+) COUNT : (\d+)$", re.MULTILINE)


class MemoryBudget:
    """The memory of a process for all of its backends. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cache: Cache | None = None
        self._buffers: WriteBufferManager | None = None
        self._users: weakref.WeakSet[Database] = weakref.WeakSet()
        self.memory = 0

    def join(self, database: Database, memory: int) -> tuple[Cache, WriteBufferManager]:
        """Cache and write buffers for one more database."""
        with self._lock:
            if not self._users:
                self.memory = 0
            self._users.add(database)
            if self._cache is None or self._buffers is None:
                self._cache = Cache(memory)
                self._buffers = WriteBufferManager.new_write_buffer_manager_with_cache(memory, False, self._cache)
            if memory > self.memory:
                self.memory = memory
                self._cache.set_capacity(memory - memory // _VALUES)
                self._buffers.set_buffer_size(memory // _BUFFERS)
            return self._cache, self._buffers

    def leave(self, database: Database) -> None:
        with self._lock:
            self._users.discard(database)

    def values(self, memory: int) -> int:
        """Bytes that one backend may use for values."""
        return max(memory, self.memory) // _VALUES // max(1, len(self._users))

    def used(self) -> int:
        """Bytes of blocks, indexes, filters and write buffers."""
        return 0 if self._cache is None else self._cache.get_usage()


BUDGET: Final = MemoryBudget()
_OF_PARENTS: Final[list[Rdict]] = []
"""A process that was forked has none of the threads that the end of a database waits for."""


class Database:
    """The rows of one backend. Written by the task thread only; what `view` gives may be read by any one.

    Once it is closed, or a write has failed, it refuses to be asked, where an answer could be that there is nothing.
    """

    def __init__(self, options: RocksDb) -> None:
        self._settings = options
        self._shared = BUDGET.join(self, options.memory)
        self._db: Rdict | None = None
        self._options: Options | None = None
        self._ends: Callable[[], object] | None = None
        self._closed = False
        self._failure: BaseException | None = None
        """Why a write has failed."""
        self.reads = 0
        """Rows that were looked up."""

    # -- rows --------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        if self._db is None:
            self._check()
            return None
        self.reads += 1
        try:
            row: bytes | None = self._db.get(key)
        except Exception as error:
            raise StateStorageError(f"RocksDB can't read state: {error}") from error
        return row

    def has(self, key: bytes) -> bool:
        return self.get(key) is not None

    def write(self, changes: Iterator[tuple[bytes, bytes | None]]) -> None:
        """Put rows, or delete those that are `None`.

        Raises:
            StateStorageError: the files can't be written, or could not be before. What else was to be written may be
                lost then, so the database is of no use any more.
        """
        self._check()
        try:
            self._write_all(changes)
        except BaseException as error:
            self._failure = error
            raise

    def _write_all(self, changes: Iterator[tuple[bytes, bytes | None]]) -> None:
        batch, size = WriteBatch(raw_mode=True), 0
        for key, row in changes:
            if row is None:
                batch.delete(key)
                size += len(key)
            else:
                batch.put(key, row)
                size += len(key) + len(row)
            if size >= _BATCH_BYTES:
                self._write(batch)
                batch, size = WriteBatch(raw_mode=True), 0
        if len(batch):
            self._write(batch)

    def _write(self, batch: WriteBatch) -> None:
        try:
            self._opened().write(batch)
        except Exception as error:
            raise StateStorageError(f"RocksDB can't write state: {error}") from error

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The rows from `first` on, up to `end`, in order."""
        if self._db is None:
            self._check()
            return
        # Not by an upper bound in read options, of which rocksdict doesn't keep the memory.
        for key, row in self._db.items(from_key=first):
            if key >= end:  # type: ignore[operator]
                return
            yield key, row  # type: ignore[misc]

    def finder(self) -> Callable[[bytes], bytes | None] | None:
        """Finds rows as they are now, for any thread; `None`: there are none."""
        self._check()
        if self._db is None:
            return None
        found = self._db.iter()

        def find(key: bytes) -> bytes | None:
            found.seek(key)
            return found.value() if found.valid() and found.key() == key else None

        return find

    def delete_range(self, first: bytes, end: bytes) -> None:
        """Delete the rows from `first` on, up to `end`. Any thread may, where no other writes."""
        if self._db is not None:
            self._db.delete_range(first, end)

    def view(self) -> Iterator[tuple[bytes, bytes]] | None:
        """All rows as they are now, in order, for any thread; `None`: there are none.

        An iterator of RocksDB doesn't see later changes; that of rocksdict's `Snapshot` does.
        """
        self._check()
        if self._db is None:
            return None
        options = ReadOptions()
        options.fill_cache(False)  # type: ignore[call-arg]  # its stub lacks the argument
        return self._db.items(read_opt=options)  # type: ignore[return-value]

    # -- the process's memory, the files -----------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._db is not None

    def values_budget(self) -> int:
        """Bytes for values as Python objects."""
        return BUDGET.values(self._settings.memory)

    def metrics(self) -> dict[str, float]:
        """Of this database, except for the memory, which is that of the process (see `checkpoint.metrics`)."""
        db, options = self._db, self._options
        if db is None or options is None:
            return {}
        counts = {name: int(count) for name, count in _STATISTICS.findall(options.get_statistics() or "")}
        sizes = [
            db.property_int_value(f"rocksdb.{name}") or 0
            for name in ("total-sst-files-size", "cur-size-all-mem-tables")
        ]
        return {
            "rocksdbReads": self.reads,
            "rocksdbCacheHits": counts.get("rocksdb.block.cache.hit", 0),
            "rocksdbCacheMisses": counts.get("rocksdb.block.cache.miss", 0),
            "rocksdbStallMs": counts.get("rocksdb.stall.micros", 0) / 1000,
            "rocksdbCompactionBytes": counts.get("rocksdb.compact.write.bytes", 0),
            "rocksdbSizeBytes": sum(sizes),
            "rocksdbMemoryBytes": BUDGET.used(),
        }

    def close(self) -> None:
        """Delete the files. May be called again; also done when nobody uses the database any more."""
        self._closed = True
        BUDGET.leave(self)
        self._db = None
        if self._ends is not None:
            self._ends()

    def _check(self) -> None:
        """
        Raises:
            StateStorageError: its rows are not all there.
        """
        if self._closed:
            raise StateStorageError("the state is closed")
        if self._failure is not None:
            raise StateStorageError(f"the state is incomplete, since it could not be written: {self._failure}")

    def _opened(self) -> Rdict:
        if self._db is None:
            folder = ScratchFolder(self._settings.folder)
            self._options = self._new_options()
            self._db = Rdict(f"{folder.path}/db", self._options)
            self._ends = weakref.finalize(self, _end, self._db, folder, os.getpid())
            how = WriteOptions()
            how.disable_wal = True  # type: ignore[method-assign, assignment]  # its stub takes it for a method
            self._db.set_write_options(how)
        return self._db

    def _new_options(self) -> Options:
        cache, buffers = self._shared
        memory, preset = BUDGET.memory, self._settings.preset
        options, blocks = Options(raw_mode=True), BlockBasedOptions()
        options.create_if_missing(True)
        options.set_write_buffer_manager(buffers)
        options.enable_statistics()
        options.set_stats_dump_period_sec(0)
        options.set_keep_log_file_num(1)
        options.set_max_log_file_size(_MIB)
        options.set_level_compaction_dynamic_level_bytes(True)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_write_buffer_size(max(_MIB, min(64 * _MIB, memory // _BUFFERS // 2)))
        options.set_max_background_jobs(2)
        blocks.set_block_cache(cache)
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        blocks.set_bloom_filter(_BLOOM_BITS, False)
        if preset == "spinning_disk":
            blocks.set_block_size(64 << 10)
            options.set_target_file_size_base(256 * _MIB)
            options.set_max_bytes_for_level_base(1024 * _MIB)
            options.set_compaction_readahead_size(4 * _MIB)
        elif preset == "flash_high_mem":
            options.set_max_background_jobs(4)
            options.set_max_subcompactions(2)
            options.set_target_file_size_base(128 * _MIB)
            options.set_max_bytes_for_level_base(512 * _MIB)
            none, lz4 = DBCompressionType.none(), DBCompressionType.lz4()
            options.set_compression_per_level([none, none, *[lz4] * 5])
        self._set_free(options, blocks)
        options.set_block_based_table_factory(blocks)
        return options

    def _set_free(self, options: Options, blocks: BlockBasedOptions) -> None:
        known: Any = free_options() if self._settings.free else {}
        for name, value in self._settings.free.items():
            known[name](blocks if hasattr(blocks, f"set_{name}") else options, value)


def end_of(prefix: bytes) -> bytes:
    """Behind all rows that begin with it."""
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")


def _end(db: Rdict, folder: ScratchFolder, process: int) -> None:
    if os.getpid() != process:
        _OF_PARENTS.append(db)
        return
    db.cancel_all_background(True)  # `close` would write what is in memory to files first
    folder.remove()
