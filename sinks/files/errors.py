"""What goes wrong in a file sink, said so that the reader knows what to do."""

from __future__ import annotations

from checkpoint.errors import Explained, PermanentFailure


class FileSinkError(Explained):
    """A file sink can't go on."""


class RecordRefused(FileSinkError):
    """One record can't be written; the message shows it."""


class TargetUnavailable(FileSinkError):
    """The target folder can't be reached, read or written."""


class OutputAhead(FileSinkError, PermanentFailure):
    """The visible output is ahead of the checkpoint that is being restored."""


class EarlierOutput(FileSinkError, PermanentFailure):
    """A start without restore, or of a fork, under a name that has visible output already."""


class MarkerLost(FileSinkError, PermanentFailure):
    """What says how far the output is visible is recorded in the checkpoint, but not (or no longer) in the target."""
