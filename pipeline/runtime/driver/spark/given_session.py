"""The workers of a job in a local session that isn't Weir's own are forked from a process of Weir's, too.

Spark has a daemon, which it forks workers from, for each Python and environment that functions are to run with. Those
of a job get a script in Python's place, which Spark starts as a daemon of their own; the session's other functions
keep theirs.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyspark_weir
from pipeline.runtime.driver.spark.allocators import SETTINGS, not_set
from pipeline.runtime.driver.spark.daemon_process import DaemonProcess, start_daemon
from pyspark_weir.daemon import VARIABLE

_LOG = logging.getLogger(f"weir.{__name__}")
_SCRIPT: Final = Path(pyspark_weir.__file__).with_name("python.sh")
_PYTHON: Final = "WEIR_SPARK_PYTHON"
"""The Python that the script starts."""
_lock = threading.Lock()
_daemons: weakref.WeakKeyDictionary[Any, DaemonProcess] = weakref.WeakKeyDictionary()
"""By session, for as long as it runs."""


def begin_workers(context: Any) -> None:
    """Start the process that workers of this `SparkContext` will be forked from, unless it has one; returns at once."""
    with _lock:
        for one, daemon in list(_daemons.items()):
            if one._jsc is None or daemon.ended:
                _daemons.pop(one).end()
        settings = dict(context.getConf().getAll())
        if context in _daemons or not may_replace_daemon(context.master, settings, context.pythonExec):
            return
        if not os.access(_SCRIPT, os.X_OK):
            _LOG.warning("each of Spark's workers imports everything itself: %s isn't executable", _SCRIPT)
            return
        try:
            if (started := start_daemon()) is not None:
                _daemons[context] = started
        except OSError as error:
            _LOG.warning("each of Spark's workers imports everything itself: no process to fork them from (%s)", error)


def may_replace_daemon(master: str, settings: Mapping[str, str], python: str) -> bool:
    """Whether a session's workers are on this machine, and run this Python, in the way that Spark has by default.

    Args:
        python: `SparkContext.pythonExec`. It is Spark's guess where `PYSPARK_PYTHON` isn't set, and isn't used then.
    """
    return (
        re.fullmatch(r"local(\[.+\])?", master) is not None
        and "spark.python.daemon.module" not in settings
        and settings.get("spark.python.use.daemon", "true") == "true"
        and ("PYSPARK_PYTHON" not in os.environ or python == sys.executable)
    )


def run_in_workers(context: Any, rdd: Any) -> None:
    """The function of this RDD of the session runs in workers that are forked from its process, if there is one."""
    if (daemon := _daemons.get(context)) is not None:
        own = {VARIABLE: str(daemon.path), _PYTHON: sys.executable}
        rdd.ctx = _Context(context, str(_SCRIPT), {**not_set(SETTINGS, os.environ), **context.environment, **own})


class _Context:
    """A `SparkContext`, but for the Python and the environment that functions run with."""

    def __init__(self, context: Any, python: str, environment: dict[str, str]):
        self._context = context
        self.pythonExec = python
        self.environment = environment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
