"""What the runtime has of its process: clocks, threads, and what threads wait with. A simulation has others."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final


class System:
    """The real ones."""

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def event(self) -> threading.Event:
        return threading.Event()

    def condition(self) -> threading.Condition:
        return threading.Condition()

    def queue(self) -> queue.SimpleQueue[Any]:
        return queue.SimpleQueue()

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """A daemon that is not started yet."""
        return threading.Thread(target=target, name=name, daemon=True)

    def executor(self, workers: int, name: str) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(workers, thread_name_prefix=name)

    def wait(self, futures: Iterable[Future[Any]], timeout: float) -> set[Future[Any]]:
        """Those that are not done after `timeout` seconds."""
        return wait(futures, timeout).not_done

    def exit(self, code: int) -> None:
        """End the process at once."""
        os._exit(code)


SYSTEM: Final = System()
