"""Task-local recovery: second copies of a subtask's files in a folder of its executor's own.

    <root>/weir-local/<job>/chk-<n>-<attempt>/…           named as in the job's folder (see `checkpoint.storage.naming`)
    <root>/weir-local/<job>/shared/…                      files of a log of changes that no complete checkpoint lists
    <root>/weir-local/<job>/chk-<n>-<attempt>/shared/…    hard links to those that a checkpoint lists

A copy saves a restore the way to the checkpoint storage; no checkpoint depends on one. It gets its name only once the
file itself is durable, it is used only if it has the size and checksum of the file, and an error in writing it is
logged and costs nothing but the copy. It is not synced to disk: what a crash of the host leaves of it fails the
checksum.

A file of a log of changes belongs to any number of checkpoints, of several subtasks after rescaling. Each has a link to
its copy, so the copy goes with the last one, and nobody counts.

All subtasks of a job on one host usually have one folder.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import pyarrow as pa
import xxhash

from checkpoint.storage.file_io import OpenedFile, StagedFile
from checkpoint.storage.filesystem import Data
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.metadata import OperatorSnapshot
from checkpoint.storage.naming import SHARED, TEMPORARY, CheckpointRef, encode, shared_attempt
from checkpoint.storage.storage import CheckpointStorage

_LOG = logging.getLogger(f"weir.{__name__}")
_FOLDER: Final = "weir-local"
_PIECE: Final = 1 << 20

Copy = tuple[int, int, str]
"""Checkpoint id, owner attempt, and the subtask (`naming.subtask_name`) whose files are copied. Of a file of a log of
changes 0, the attempt that wrote it, and its name."""


def copy_of(path: str) -> Copy | None:
    """Where the copy of a file belongs, by the file's path in the job's folder, if it has one; `None`: it has none."""
    folder, _, name = path.partition("/")
    if name.startswith(TEMPORARY) or "/" in name:
        return None
    if folder == SHARED:
        attempt = shared_attempt(path)
        return None if attempt is None else (0, attempt, name)
    ref = CheckpointRef.parse(folder)
    return None if ref is None else (ref.id, ref.attempt, name.rpartition("-")[0])


def local_root(environ: Mapping[str, str]) -> str:
    """The folder of this executor that copies go to, which survives the executor where the cluster has such a folder:

    `$WEIR_LOCAL_DIR`; the first of those that a standalone worker gives an application; the first of those that YARN
    does; else one in the temporary directory.
    """
    if chosen := environ.get("WEIR_LOCAL_DIR"):
        return os.path.abspath(chosen)
    if given := environ.get("SPARK_EXECUTOR_DIRS"):
        return given.split(os.pathsep)[0]
    if "CONTAINER_ID" in environ and (given := environ.get("LOCAL_DIRS")):
        return given.split(",")[0]
    return _own_temporary()


def _own_temporary() -> str:
    return os.path.join(tempfile.gettempdir(), f"weir-{os.getuid()}")


class LocalCopies:
    """The copies of one job in one folder. Thread-safe; no method raises `OSError`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._complained = False
        self._lock = threading.Lock()
        self._listed: dict[str, int] = {}
        """Names of files of logs, and the last checkpoint that this process knows to list them."""

    @classmethod
    def open(cls, environ: Mapping[str, str], job: CheckpointStorage) -> LocalCopies | None:
        """The copies of a job. Its folder tells it from jobs of its name with other roots. `None`, with a warning, if
        no folder for copies can be made."""
        root = local_root(environ)
        digest = xxhash.xxh3_128(job.location.encode()).hexdigest()
        try:
            make_root(root)
        except OSError as error:
            _LOG.warning("no local copies of checkpoints are written: %s", error)
            return None
        return cls(os.path.join(root, _FOLDER, f"{encode(job.pipeline or 'job')}-{digest}"))

    # -- writing ----------------------------------------------------------------------------------------------

    def create(self, path: str) -> _CopyInTheMaking:
        """A copy to be written beside the file at `path` in the job's folder."""
        return _CopyInTheMaking(self, os.path.join(self.folder, path))

    def list_log(self, ref: CheckpointRef, names: Iterable[str]) -> None:
        """A checkpoint that is not complete yet lists these files of a log of changes, by their names below `shared/`.
        Not for the task thread."""
        folder = os.path.join(self.folder, ref.path, SHARED)
        for name in names:
            with self._lock:
                self._listed[name] = max(ref.id, self._listed.get(name, 0))
            try:
                os.makedirs(folder, mode=0o700, exist_ok=True)
                self._link(name, os.path.join(folder, name))
            except OSError as error:
                self.complain("link", error)

    def _link(self, name: str, target: str) -> None:
        for place in self._places(f"{SHARED}/{name}"):
            try:
                os.link(place, target)
            except FileNotFoundError:
                continue  # it was written elsewhere, or just goes with an older checkpoint
            except FileExistsError:
                pass  # by another subtask
            return

    def complain(self, doing: str, error: OSError) -> None:
        """Log an error; the first only, since a full disk stays full."""
        level = logging.DEBUG if self._complained else logging.WARNING
        self._complained = True
        _LOG.log(level, "cannot %s local copies of checkpoints in %s, go on without: %s", doing, self.folder, error)

    # -- reading ----------------------------------------------------------------------------------------------

    def read(self, handle: FileHandle) -> bytes | None:
        """The content of a file's copy; `None` if there is none that is whole."""
        file = self.open_copy(handle)
        if file is None:
            return None
        try:
            with file:
                content: bytes = file.read()
        except OSError as error:
            _LOG.warning("the local copy of %s is of no use: %s", handle.path, error)
            return None
        return content

    def open_copy(self, handle: FileHandle) -> pa.OSFile | None:
        """A file's copy, opened, with its checksum verified; `None` if there is none that is whole."""
        if copy_of(handle.path) is None:
            return None
        for path in self._places(handle.path):
            file = self._open(path, handle)
            if file is not None:
                return file
        return None

    def _places(self, path: str) -> Iterator[str]:
        """Where the copy of a file may lie; checkpoints are listed only if it isn't in the first place."""
        yield os.path.join(self.folder, path)
        if path.startswith(f"{SHARED}/"):
            yield from (os.path.join(self.folder, ref.path, path) for ref in sorted(self._refs(), reverse=True))

    def _open(self, path: str, handle: FileHandle) -> pa.OSFile | None:
        try:
            file = pa.OSFile(path)
            try:
                if self._is_whole(file, handle):
                    return file
            except BaseException:
                file.close()
                raise
            file.close()
            _LOG.warning("the local copy %s is damaged, and of no use", path)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            _LOG.warning("the local copy %s is of no use: %s", path, error)
        return None

    @staticmethod
    def _is_whole(file: pa.OSFile, handle: FileHandle) -> bool:
        if file.size() != handle.size:
            return False
        digest = xxhash.xxh3_128()
        while piece := file.read(_PIECE):
            digest.update(piece)
        file.seek(0)
        return bool(digest.hexdigest() == handle.checksum)

    def held(self) -> list[Copy]:
        """What there are copies of."""
        paths = [f"{SHARED}/{name}" for name in self._list(os.path.join(self.folder, SHARED))]
        for ref in self._refs():
            names = self._list(os.path.join(self.folder, ref.path))
            paths += [f"{ref.path}/{name}" for name in names if name != SHARED]
            if SHARED in names:
                paths += [f"{SHARED}/{name}" for name in self._list(os.path.join(self.folder, ref.path, SHARED))]
        return sorted({copy for path in paths if (copy := copy_of(path))})

    # -- deleting ---------------------------------------------------------------------------------------------

    def completed(self, ref: CheckpointRef) -> None:
        """A checkpoint is complete: nobody needs older copies, or what earlier owners left. Not for the task thread.

        Args:
            ref: `attempt` is of the caller's owner.
        """
        for other in self._refs():
            if (other.attempt, other.id) < (ref.attempt, ref.id):
                self._delete(os.path.join(self.folder, other.path))
        linked = set(self._list(os.path.join(self.folder, ref.path, SHARED)))
        for name in self._list(os.path.join(self.folder, SHARED)):
            if name in linked or self._is_left(name, ref):
                self._unlink(os.path.join(self.folder, SHARED, name))
        with self._lock:
            self._listed = {name: id for name, id in self._listed.items() if id >= ref.id}

    def _is_left(self, name: str, ref: CheckpointRef) -> bool:
        """Whether no checkpoint from `ref` on lists a file that lies below `shared/`."""
        with self._lock:
            last = self._listed.get(name)
        attempt = shared_attempt(name)
        return last < ref.id if last is not None else attempt is not None and attempt < ref.attempt

    def aborted(self, ref: CheckpointRef) -> None:
        """A checkpoint will never be complete. Not for the task thread."""
        self._delete(os.path.join(self.folder, ref.path))

    def remove(self) -> None:
        """The job has ended."""
        self._delete(self.folder)

    def _refs(self) -> list[CheckpointRef]:
        return [ref for name in self._list(self.folder) if (ref := CheckpointRef.parse(name))]

    def _list(self, folder: str) -> list[str]:
        try:
            return os.listdir(folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            self.complain("list", error)
            return []

    def _unlink(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass  # another subtask was quicker
        except OSError as error:
            self.complain("delete", error)

    def _delete(self, folder: str) -> None:
        def note(_: Callable[..., Any], __: str, info: Any) -> None:
            # Other subtasks delete in the same folder at the same time, and may add to it.
            if not isinstance(info[1], FileNotFoundError):
                self.complain("delete", info[1])

        shutil.rmtree(folder, onerror=note)


class _CopyInTheMaking:
    """Not for several threads at once. An error ends the copy and is the end of it."""

    def __init__(self, copies: LocalCopies, path: str) -> None:
        self._copies = copies
        self._path = path
        folder, name = os.path.split(path)
        self._temporary = os.path.join(folder, f"{TEMPORARY}{uuid.uuid4().hex}-{name}")
        self._file: Any = None
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._file = open(self._temporary, "xb")  # noqa: SIM115  # closed by keep or drop
        except OSError as error:
            copies.complain("write", error)

    def write(self, data: Data) -> None:
        if self._file is not None:
            try:
                self._file.write(data)
            except OSError as error:
                self._give_up(error)

    def keep(self) -> None:
        """The file itself is durable."""
        if self._file is not None:
            try:
                self._file.close()
                os.rename(self._temporary, self._path)
                self._file = None
            except OSError as error:
                self._give_up(error)

    def drop(self) -> None:
        """Leave nothing behind. Does nothing after `keep` or a first call."""
        if self._file is not None:
            file, self._file = self._file, None
            with suppress(OSError):  # a full disk fails the flush
                file.close()
            with suppress(OSError):  # whatever stays goes with the folder
                os.unlink(self._temporary)

    def _give_up(self, error: OSError) -> None:
        self._copies.complain("write", error)
        self.drop()


class _CopiedFile(StagedFile):
    """A file of which a copy is written at the same time."""

    def __init__(self, storage: CheckpointStorage, path: str, copies: LocalCopies) -> None:
        super().__init__(storage, path)
        self._copy = copies.create(path)

    def write(self, data: Data) -> None:
        super().write(data)
        self._copy.write(data)

    def close(self) -> FileHandle:
        handle = super().close()  # or `abort`
        self._copy.keep()
        return handle

    def abort(self) -> None:
        self._copy.drop()
        super().abort()


class StorageWithCopies(CheckpointStorage):
    """A job's folder whose files are copied when they are written, and read from copies where there are good ones."""

    def __init__(
        self, storage: CheckpointStorage, copies: LocalCopies, on_local: Callable[[int], None], of_log: bool = False
    ) -> None:
        """
        Args:
            storage: the job's folder.
            on_local: a file of so many bytes was read from a copy.
            of_log: what is written under `shared/` are files of a log of changes, which have copies.
        """
        super().__init__(storage.uri, storage.pipeline)
        self._primary = storage
        self._copies = copies
        self._on_local = on_local
        self._of_log = of_log

    def __reduce__(self) -> Any:
        return self._primary.__reduce__()

    def create(self, path: str) -> StagedFile:
        copied = copy_of(path) is not None and (self._of_log or not path.startswith(f"{SHARED}/"))
        return _CopiedFile(self, path, self._copies) if copied else super().create(path)

    def spill(self, snapshot: OperatorSnapshot, path: str) -> OperatorSnapshot:
        """Without a copy: the driver reads it, and hands it to every subtask."""
        return self._primary.spill(snapshot, path)

    def read_file(self, handle: FileHandle) -> bytes:
        if handle.inline:
            return super().read_file(handle)
        data = self._copies.read(handle)
        self._note(handle, data is not None)
        return super().read_file(handle) if data is None else data

    @contextmanager
    def open_file(self, handle: FileHandle) -> Iterator[OpenedFile]:
        file = None if handle.inline else self._copies.open_copy(handle)
        if not handle.inline:
            self._note(handle, file is not None)
        if file is None:
            with super().open_file(handle) as opened:
                yield opened
        else:
            with file:
                yield OpenedFile(self, handle.path, file)

    def _note(self, handle: FileHandle, local: bool) -> None:
        if local:
            self._on_local(handle.size)
        _LOG.info("%s is read from %s", handle.path, self._copies.folder if local else self.location)


def make_root(root: str) -> None:
    """
    Raises:
        OSError: it can't be made, or is a trap: anyone may make any name in the temporary directory.
    """
    os.makedirs(root, mode=0o700, exist_ok=True)
    if root == _own_temporary():
        found = os.lstat(root)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(f"{root} is not this user's own folder; delete it, or set WEIR_LOCAL_DIR")
