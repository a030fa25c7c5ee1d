"""Looks for new files beside the task thread, since listing a folder may take long."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Final

from .errors import FolderUnavailable
from .folder import Folder, FoundFile
from .ledger import Split

log = logging.getLogger(__name__)

_STOP_TIMEOUT_S: Final = 3.0


class FolderWatch:
    """Hands over the splits that `unknown` picks from each listing."""

    def __init__(self, folder: Folder, interval: float, unknown: Callable[[Sequence[FoundFile]], list[Split]]) -> None:
        self._folder = folder
        self._interval = interval
        self._unknown = unknown
        self._found: queue.SimpleQueue[list[Split]] = queue.SimpleQueue()
        self._failure: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="weir-folder-watch", daemon=True)
        self._thread.start()

    def found(self) -> list[Split]:
        """What was found since the last call, perhaps several times; never waits.

        Raises:
            Exception: what ended the thread, other than a folder that can't be listed, which is tried again.
        """
        if self._failure is not None:
            raise self._failure
        splits: list[Split] = []
        while not self._found.empty():
            splits += self._found.get_nowait()
        return splits

    def stop(self) -> None:
        """End the thread; one that is listing is a daemon, and left behind after a while."""
        self._stop.set()
        self._thread.join(_STOP_TIMEOUT_S)

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._interval):
                try:
                    files = self._folder.files()
                except FolderUnavailable as error:
                    log.warning("looking for new files failed, next try in %g s: %s", self._interval, error)
                    continue
                if new := self._unknown(files):
                    self._found.put(new)
        except Exception as error:
            self._failure = error
