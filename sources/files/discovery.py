"""Finding new files beside the task thread, since listing a folder may take long."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from sources.discovery_thread import DiscoveryThread
from sources.files.errors import FolderUnavailable
from sources.files.folder import Folder, FoundFile
from sources.files.ledger import Split

log = logging.getLogger(f"weir.{__name__}")

_STOP_TIMEOUT_S: Final = 3.0


class FileDiscovery(DiscoveryThread[Split]):
    """Hands over the splits that `unknown` picks from each listing. One split may be handed over several times.

    A folder that can't be listed is tried again after the interval.
    """

    def __init__(self, folder: Folder, interval: float, unknown: Callable[[Sequence[FoundFile]], list[Split]]) -> None:
        super().__init__("weir-file-discovery", interval)
        self._folder = folder
        self._unknown = unknown
        self._begin()

    def stop(self) -> None:
        """End the thread. One that is still listing after 3 seconds is left behind; it is a daemon."""
        super().stop()
        self._thread.join(_STOP_TIMEOUT_S)

    def _discover(self) -> None:
        while self._await_next():
            try:
                files = self._folder.files()
            except FolderUnavailable as error:
                log.warning("looking for new files failed, next try in %g s: %s", self._interval, error)
                continue
            if new := self._unknown(files):
                self._found.put(new)
