"""Errors that users of a pipeline see."""

from __future__ import annotations


class PipelineError(ValueError):
    """The pipeline as written can't run; the message says which step and what to do."""


class JobFailed(RuntimeError):
    """The job has ended with a failure; the message carries the first cause, with the user's own traceback."""


class JobCancelled(RuntimeError):
    """The job was cancelled."""


class NotEnoughSlots(RuntimeError):
    """Spark has fewer slots than the job has subtasks, all of which must run at once."""
