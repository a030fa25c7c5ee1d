"""Weir's log: everything goes through the logger `weir`, of the standard library's `logging`.

A process that has set `logging` up decides what becomes of it. In any other one a job tells of itself on standard
error, as text or with one JSON object a line.
"""

from __future__ import annotations

import json
import logging
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pipeline.errors import PipelineError

LOGGER: Final = "weir"
LEVEL_VARIABLE: Final = "WEIR_LOG_LEVEL"
FORMAT_VARIABLE: Final = "WEIR_LOG_FORMAT"
FORMATS: Final = ("text", "json")
_TEXT: Final = "%(asctime)s %(levelname)-7s %(message)s"
_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_OF_A_JOB: Final = re.compile(r"job '?%s")
"""How messages begin that are about a job, whose name is their first argument."""


@dataclass(frozen=True)
class WorkerSubtask:
    """The subtask that a worker's process is."""

    job: str
    vertex: str
    """Names of its steps."""
    subtask: int
    """From 0."""
    attempt: int
    """Number of the owner: grows over all attempts and starts."""


_place: WorkerSubtask | None = None
_attempts: dict[str, int] = {}
"""Of the jobs that this process drives: the attempt that is under way, by name."""


def is_subtask(place: WorkerSubtask) -> None:
    """What this process logs from now on, is said by this subtask."""
    global _place
    _place = place


def attempt_begins(job: str, attempt: int) -> None:
    """What this process logs of the job from now on, is of this attempt."""
    _attempts[job] = attempt


class _Text(logging.Formatter):
    """A subtask's lines name job and subtask. Those of a driver say themselves which job they are about."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        place = _place
        if place is not None:
            record.message = f"job {place.job}, {place.vertex}[{place.subtask}]: {record.message}"
        return super().formatMessage(record)


class _Json(logging.Formatter):
    """One object a line: `ts`, `level`, `job`, `step`, `subtask`, `attempt`, `logger`, `message`, `exception`. What a
    line is not about is null."""

    def format(self, record: logging.LogRecord) -> str:
        place = _place
        job = place.job if place is not None else _job_of(record)
        exception = self.formatException(record.exc_info) if record.exc_info else None
        line = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "job": job,
            "step": place.vertex if place is not None else None,
            "subtask": place.subtask if place is not None else None,
            "attempt": place.attempt if place is not None else _attempts.get(job or ""),
            "logger": record.name,
            "message": record.getMessage(),
            "exception": exception,
        }
        return json.dumps(line, ensure_ascii=False)


def _job_of(record: logging.LogRecord) -> str | None:
    args = record.args
    if isinstance(args, tuple) and args and isinstance(record.msg, str) and _OF_A_JOB.match(record.msg):
        return str(args[0])
    return None


def log_format() -> str:
    """`text` or `json`: that of WEIR_LOG_FORMAT; text if it isn't set.

    Raises:
        PipelineError: the variable names no format.
    """
    name = (os.environ.get(FORMAT_VARIABLE) or FORMATS[0]).strip().lower()
    if name not in FORMATS:
        raise PipelineError(f"{FORMAT_VARIABLE} must be one of {', '.join(FORMATS)}, not {name!r}")
    return name


def _handler() -> logging.Handler:
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if log_format() == "json" else _Text())
    return handler


def level(default: str) -> int:
    """That of WEIR_LOG_LEVEL, or else `default`, as `logging` counts.

    Raises:
        PipelineError: the variable names no level.
    """
    name = (os.environ.get(LEVEL_VARIABLE) or default).strip().upper()
    if name not in _LEVELS:
        raise PipelineError(f"{LEVEL_VARIABLE} must be one of {', '.join(_LEVELS)}, not {name!r}")
    return int(getattr(logging, name))


def log_by_default(default: str = "INFO") -> None:
    """Let Weir's log go to standard error, unless logging has been set up. Others' warnings stay as they are.

    Raises:
        PipelineError: WEIR_LOG_LEVEL names no level, or WEIR_LOG_FORMAT no format.
    """
    wanted, handler = level(default), _handler()
    logger = logging.getLogger(LOGGER)
    if logger.hasHandlers():
        return
    logger.addHandler(handler)
    logger.propagate = False
    if logger.level == logging.NOTSET:
        logger.setLevel(wanted)


def log_everything(default: str) -> None:
    """For a process of Weir's own: its log and others' warnings go to standard error, unless logging has been set up.

    Raises:
        PipelineError: WEIR_LOG_LEVEL names no level, or WEIR_LOG_FORMAT no format.
    """
    wanted, handler = level(default), _handler()
    if logging.getLogger().hasHandlers():
        return
    # What libraries say at lower levels is theirs, and may show what is nobody else's to see.
    logging.basicConfig(level=max(wanted, logging.WARNING), handlers=[handler])
    logging.getLogger(LOGGER).setLevel(wanted)
