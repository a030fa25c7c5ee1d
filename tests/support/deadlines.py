"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(condition: Callable[[], bool], timeout: float = 240.0) -> None:
    """Return once it holds.

    Raises:
        AssertionError: it doesn't within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:g} s"
        time.sleep(0.02)
