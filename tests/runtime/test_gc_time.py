"""The time of Python's garbage collector."""

from __future__ import annotations

import gc

from pipeline.runtime.subtask.gc_time import GcTime


def test_counts_collections_between_start_and_stop_only() -> None:
    ticks = iter(range(100))
    time = GcTime(lambda: float(next(ticks)))
    gc.disable()  # no collection but the ones asked for
    try:
        gc.collect()
        time.start()
        gc.collect()
        gc.collect()
        time.stop()
        gc.collect()
    finally:
        gc.enable()
    assert time.seconds == 2
