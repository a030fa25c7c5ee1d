"""The process that Spark's Python workers are forked from, started beside the JVM.

Spark would start it for the first task only, when everything else waits for it: it imports for more than a second.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any, Final

import psutil

from pipeline.runtime.driver.spark.allocators import SETTINGS
from pyspark_weir.daemon import VARIABLE

MODULE: Final = "pyspark_weir.daemon"
"""What Spark starts as its daemon, and what takes its place; see there."""
_END_SECONDS: Final = 5.0
_SPARKS_ENVIRONMENT: Final = {
    # As Spark sets them for its daemon; Python and numpy look when they start.
    "PYTHONUNBUFFERED": "YES",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
}
_SOCKET: Final = "socket"
_LONGEST_PATH: Final = 103
"""Bytes of a socket's path; Linux takes 107."""
_all: weakref.WeakSet[DaemonProcess] = weakref.WeakSet()


def _new_folder() -> Path:
    """In the system's folder for such where that of `TMPDIR` has too long a path for a socket."""
    folder = tempfile.mkdtemp(prefix="weir-daemon-")
    if len(os.fsencode(os.path.join(folder, _SOCKET))) > _LONGEST_PATH:
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="weir-daemon-", dir="/tmp")
    return Path(folder)


class DaemonProcess:
    """One, of one session."""

    def __init__(self) -> None:
        """
        Raises:
            OSError: it can't be started.
        """
        self.path = _new_folder() / _SOCKET
        """In a folder that is nobody else's: who connects is this user."""
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(self.path))
            listening.listen()
            listens = listening.fileno()
            # It ends with this process, whose end of the pipe it waits at, or with the JVM, once that has it.
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, str(listens), str(self.path)],
                stdin=subprocess.PIPE,
                pass_fds=[listens],
                process_group=0,  # signals of a terminal are this process's, as for the JVM
                env={**_SPARKS_ENVIRONMENT, **SETTINGS, **os.environ, "PYTHONSAFEPATH": "1"},
            )
        _all.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def serve(self, context: Any) -> None:
        """Workers of this `SparkContext` are forked from it."""
        context.environment[VARIABLE] = str(self.path)

    def release(self) -> None:
        """It ends unless Spark has it."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self) -> None:
        """Its session has ended, or never began."""
        self.release()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.path.parent, ignore_errors=True)  # left where it was killed


def start_daemon() -> DaemonProcess | None:
    """
    Returns:
        `None` where workers may have other code or another Spark.

    Raises:
        OSError: it can't be started.
    """
    import pyspark

    same_python = os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable
    home = Path(pyspark.__file__).parent
    same_spark = Path(os.environ.get("SPARK_HOME", home)).resolve() == home.resolve()
    return DaemonProcess() if same_python and same_spark else None


def release_daemons() -> None:
    """This process is about to exit: those that Spark hasn't asked for end, too."""
    for one in list(_all):
        one.release()


def remove_folders() -> None:
    """Of daemons that were killed, which leave them."""
    for one in list(_all):
        shutil.rmtree(one.path.parent, ignore_errors=True)


def daemons() -> list[psutil.Process]:
    """Those that live, and the workers that were forked from them."""
    found: list[psutil.Process] = []
    for one in list(_all):
        try:
            process = psutil.Process(one.pid)
            found += [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            pass
    return found
