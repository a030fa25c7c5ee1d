"""One broker for all workers of a test run: the first that needs it starts it, and stops it once nobody uses it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import psutil

from pipeline.testing import KafkaBroker

_RUNNING = "WEIR_KAFKA_BOOTSTRAP"
_POLL_S = 0.1
_NEVER_DEAD = {"broker_session_timeout_ms": 600_000}
"""It is never killed. With the three seconds of others, a busy machine lets it be taken for dead, and then all topics
are without a leader for a while."""


class SharedBroker:
    """This process's way to the broker; `leave` at the end. The folder is one that all workers of the run have."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._address = folder / "kafka-address"
        self._user = folder / f"kafka-user-{os.getpid()}"
        self._stack = ExitStack()
        self._owner = False

    def join(self) -> KafkaBroker:
        """The run's broker, started if there is none yet."""
        with self._locked():
            self._user.touch()
            if self._address.exists():
                with patch.dict(os.environ, {_RUNNING: self._address.read_text()}):
                    return self._stack.enter_context(KafkaBroker.start(kind="running"))
            broker = self._stack.enter_context(KafkaBroker.start(kind="native", **_NEVER_DEAD))
            self._owner = True
            self._address.write_text(broker.bootstrap_servers)
            return broker

    def leave(self) -> None:
        """Whoever has started the broker waits for the others and stops it."""
        self._user.unlink(missing_ok=True)
        while self._owner:
            with self._locked():
                if not self._others():
                    self._address.unlink()
                    self._owner = False
            time.sleep(_POLL_S)
        self._stack.close()

    def _others(self) -> bool:
        users = [int(path.name.rpartition("-")[2]) for path in self._folder.glob("kafka-user-*")]
        return any(psutil.pid_exists(pid) for pid in users)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._folder / "kafka-lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
