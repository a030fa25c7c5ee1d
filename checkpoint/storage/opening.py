"""Which files a URI leads to."""

from __future__ import annotations

import posixpath
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from pyarrow import fs

from checkpoint.storage.arrow_files import ArrowFiles, s3_filesystem
from checkpoint.storage.filesystem import Files
from checkpoint.storage.local_files import LocalFiles


def open_filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """pyarrow's file system at a URI or absolute local path, and the path there. Requests to S3 are bounded.

    Raises:
        OSError | pyarrow.ArrowException: no such kind of file system, or it can't be reached.
    """
    if uri.startswith("/"):
        return fs.LocalFileSystem(), posixpath.normpath(uri)
    if without_credentials(uri) != uri:
        raise OSError(
            "credentials don't belong into a URI, which is logged and written to files. Set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY on driver and workers, or use a profile or role"
        )
    filesystem, path = fs.FileSystem.from_uri(uri)
    if isinstance(filesystem, fs.LocalFileSystem):
        return filesystem, posixpath.normpath(path)
    if filesystem.type_name == "s3":
        filesystem = s3_filesystem(uri, filesystem.region)
    return filesystem, path.rstrip("/")


def without_credentials(uri: str) -> str:
    """A URI as messages may show it."""
    if uri.startswith("/"):
        return uri
    parts = urlsplit(uri)
    if not (parts.password or (parts.scheme == "s3" and parts.username)):
        return uri  # elsewhere a user alone, or a container, is part of the address
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


IN_PROCESS: Final[dict[str, Files]] = {}
"""Files that this process brings itself, by the scheme and host of their URIs, such as `virtual://job`."""


def open_files(uri: str) -> tuple[Files, str]:
    """The files at a URI or absolute local path, and the path there.

    Raises:
        OSError | pyarrow.ArrowException: no such kind of file system, or it can't be reached.
    """
    if IN_PROCESS:
        parts = urlsplit(uri)
        if (files := IN_PROCESS.get(f"{parts.scheme}://{parts.netloc}")) is not None:
            return files, posixpath.normpath(parts.path)
    filesystem, path = open_filesystem(uri)
    return (LocalFiles() if isinstance(filesystem, fs.LocalFileSystem) else ArrowFiles(filesystem)), path
