"""What stops a file source."""

from __future__ import annotations

from checkpoint.errors import Explained, PermanentFailure


class FolderUnavailable(Explained, RuntimeError):
    """The folder, or a file in it, can't be read."""


class FileChanged(Explained, RuntimeError):
    """A file is not what it was when the source began to read it."""


class FileGone(PermanentFailure):
    """A file that was to be read is not there any more."""
