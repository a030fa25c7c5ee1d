"""Weir's log: everything goes through the logger `weir`, of the standard library's `logging`.

A process that has set `logging` up decides what becomes of it. In any other one a job tells of itself on standard
error.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from pipeline.errors import PipelineError

LOGGER: Final = "weir"
LEVEL_VARIABLE: Final = "WEIR_LOG_LEVEL"
FORMAT: Final = "%(asctime)s %(levelname)-7s %(message)s"
_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


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
        PipelineError: WEIR_LOG_LEVEL names no level.
    """
    wanted = level(default)
    logger = logging.getLogger(LOGGER)
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(FORMAT))
    logger.addHandler(handler)
    logger.propagate = False
    if logger.level == logging.NOTSET:
        logger.setLevel(wanted)


def log_everything(default: str) -> None:
    """For a process of Weir's own: its log and others' warnings go to standard error, unless logging has been set up.

    Raises:
        PipelineError: WEIR_LOG_LEVEL names no level.
    """
    wanted = level(default)
    if logging.getLogger().hasHandlers():
        return
    # What libraries say at lower levels is theirs, and may show what is nobody else's to see.
    logging.basicConfig(level=max(wanted, logging.WARNING), format=FORMAT)
    logging.getLogger(LOGGER).setLevel(wanted)
