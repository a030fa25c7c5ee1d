"""Files on whatever `pyarrow.fs` reaches: one put where that is atomic, a temporary file and a move where it isn't."""

from __future__ import annotations

import ctypes
import posixpath
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
from pyarrow import fs

from checkpoint.storage.filesystem import Data, Entry, Files, OutputFile, temporary_path

_PUT_WHOLE: Final = frozenset({"s3", "gcs", "abfs"})
"""Object stores show a new object when it is closed, and have no rename."""
_ONE_REQUEST: Final = 8 * 1024 * 1024
"""Bytes of an object that is put in one request; pyarrow uploads more than 10 MiB in parts."""

_S3_QUERY: Final = frozenset({"region", "scheme", "endpoint_override", "tls_ca_file_path"})
_S3_CONNECT_TIMEOUT: Final = 3.0
_S3_STALL_TIMEOUT: Final = 5.0
"""Seconds without a byte."""
_S3_ATTEMPTS: Final = 3
"""Tries of each request. With pyarrow's own strategy for URIs, a server that hangs would be waited for 100 s."""


def s3_filesystem(uri: str, region: str) -> fs.S3FileSystem:
    """As `from_uri` makes it, with bounds on how long an operation may take."""
    parts = urlsplit(uri)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    unknown = sorted(query.keys() - _S3_QUERY)
    if unknown:
        raise OSError(f"of an S3 URI's options Weir knows {', '.join(sorted(_S3_QUERY))}, not {', '.join(unknown)}")
    return fs.S3FileSystem(
        **{**query, "region": region},
        connect_timeout=_S3_CONNECT_TIMEOUT,
        request_timeout=_S3_STALL_TIMEOUT,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_S3_ATTEMPTS),
        allow_delayed_open=True,
    )


class _MovedFile:
    """Written under a temporary name and moved."""

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self._path = path
        self._file = _StreamedFile(filesystem, temporary_path(path))
        self._filesystem = filesystem

    def write(self, data: Data) -> None:
        self._file.write(data)

    def commit(self) -> None:
        self._file.close()
        self._filesystem.move(self._file.path, self._path)
        self._file.done = True

    def discard(self) -> None:
        self._file.discard()


class _StreamedFile:
    """Written under its own name.

    pyarrow completes the upload of a stream that is forgotten, and at the interpreter's exit it waits forever for one.
    So a reference is held until the stream is closed, beyond what the interpreter knows of.
    """

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self.path = path
        self.done = False
        self._filesystem = filesystem
        self._stream: Any = filesystem.open_output_stream(path)
        self._held = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._stream))

    def write(self, data: Data) -> None:
        self._stream.write(data)

    def close(self) -> None:
        self._stream.close()
        self._let_go()

    def discard(self) -> None:
        if self.done:
            return
        self.done = True
        try:
            self._stream.close()  # the only way to end an upload; it completes what was uploaded
        except (OSError, pa.ArrowException):
            # As the writing did. Whether something is there all the same is seen next.
            pass
        self._let_go()
        if self._filesystem.get_file_info(self.path).type == fs.FileType.File:
            self._filesystem.delete_file(self.path)

    def _let_go(self) -> None:
        if self._held:
            self._held = False
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(self._stream))


class _Object:
    """An object in a store that has no rename: one request puts it, unless it is large."""

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self._filesystem = filesystem
        self._path = path
        self._start = bytearray()
        self._large: _StreamedFile | None = None

    def write(self, data: Data) -> None:
        view = memoryview(data).cast("B")
        if self._large is None:
            if len(self._start) + view.nbytes <= _ONE_REQUEST:
                self._start += view
                return
            self._large = _StreamedFile(self._filesystem, self._path)
            self._large.write(self._start)
            self._start = bytearray()
        self._large.write(view)

    def commit(self) -> None:
        if self._large is None:
            self._large = _StreamedFile(self._filesystem, self._path)
            self._large.write(self._start)
        self._large.close()
        self._large.done = True

    def discard(self) -> None:
        if self._large is not None:
            self._large.discard()


class ArrowFiles(Files):
    """Any `pyarrow.fs.FileSystem`: one put where that is atomic, a temporary file and a move where it isn't."""

    def __init__(self, filesystem: fs.FileSystem) -> None:
        self._filesystem = filesystem
        self._put_whole = filesystem.type_name in _PUT_WHOLE

    def same_as(self, other: Files) -> bool:
        return isinstance(other, ArrowFiles) and bool(self._filesystem.equals(other._filesystem))

    def make_folder(self, path: str) -> None:
        if not self._put_whole:  # object stores have no folders
            self._filesystem.create_dir(path, recursive=True)

    def create(self, path: str) -> OutputFile:
        self.make_folder(posixpath.dirname(path))
        return _Object(self._filesystem, path) if self._put_whole else _MovedFile(self._filesystem, path)

    def read(self, path: str) -> bytes:
        with self._filesystem.open_input_file(path) as file:
            content: bytes = file.read()
        return content

    def open(self, path: str) -> pa.NativeFile:
        return self._filesystem.open_input_file(path)

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        infos = self._filesystem.get_file_info(list(paths)) if paths else []
        return [info.size if info.type == fs.FileType.File else None for info in infos]

    def entries(self, folder: str) -> list[Entry]:
        infos = self._filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        return [Entry(info.base_name, info.size if info.type == fs.FileType.File else None) for info in infos]

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                self._filesystem.delete_file(path)
            except FileNotFoundError:
                continue

    def delete_folder(self, path: str) -> None:
        try:
            self._filesystem.delete_dir(path)
        except FileNotFoundError:
            return

    def sync_folder(self, path: str) -> None:
        """Nothing to do: a put or move that has returned is durable."""

    def create_whole(self, path: str, size: int) -> OutputFile:
        # A large object is uploaded in parts, and those that have arrived become the object if it is discarded.
        return _MovedFile(self._filesystem, path) if size > _ONE_REQUEST else self.create(path)
