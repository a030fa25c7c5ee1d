"""Waiting for what other threads and processes do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

PATIENCE = float(os.environ.get("WEIR_TEST_PATIENCE", "240"))
"""Seconds after which what didn't happen is taken for what never will. A busy machine needs some of them."""


def eventually(condition: Callable[[], bool], timeout: float = PATIENCE) -> None:
    """Return once it holds.

    Raises:
        AssertionError: it doesn't within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:g} s"
        time.sleep(0.02)
