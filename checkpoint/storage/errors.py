"""What goes wrong in the checkpoint storage."""

from __future__ import annotations

from checkpoint.errors import PermanentFailure


class StorageError(Exception):
    """The checkpoint storage can't do what was asked; the message says where, why and what to do."""


class DamagedFile(StorageError):
    """A file of a checkpoint is missing, truncated or altered; the message names it."""


class UnknownFormat(StorageError, PermanentFailure):
    """A file of a checkpoint is whole and has a format that this version of Weir can't read."""
