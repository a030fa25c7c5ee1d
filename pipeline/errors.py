"""Errors that users of a pipeline see."""

from __future__ import annotations


class PipelineError(ValueError):
    """The pipeline as written can't run; the message says which step and what to do."""


class JobFailed(RuntimeError):
    """The job has ended with a failure; the message carries the first cause, with the user's own traceback."""


class JobCancelled(RuntimeError):
    """The job was cancelled."""


class Interrupted(JobCancelled, SystemExit):
    """A signal cancelled the job. Where nobody catches it, it ends the process without a traceback, with the status
    that shells give it: 128 and the signal's number."""

    def __init__(self, message: str, signal: int):
        super().__init__(message)
        self.code = 128 + signal


class NotEnoughSlots(RuntimeError):
    """Spark has fewer slots than the job has subtasks, all of which must run at once."""
