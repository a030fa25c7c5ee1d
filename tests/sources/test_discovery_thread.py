"""What a thread that looks for splits hands over."""

from __future__ import annotations

import threading

import pytest
from deadlines import eventually

from sources.discovery_thread import DiscoveryThread


class Numbers(DiscoveryThread[int]):
    """Finds 1 and 2 at its first look, 3 at its second, and fails later on if it is told to."""

    def __init__(self) -> None:
        super().__init__("numbers", 0.001)
        self.may_fail = threading.Event()
        self.ended = threading.Event()
        self._begin()

    def _discover(self) -> None:
        new = [[1, 2], [3]]
        try:
            while self._await_next():
                if new:
                    self._found.put(new.pop(0))
                elif self.may_fail.is_set():
                    raise OSError("no listing")
        finally:
            self.ended.set()


def test_all_that_was_found_is_handed_over_once_in_order_and_then_the_error() -> None:
    numbers, found = Numbers(), []

    def looked() -> bool:
        found.extend(numbers.found())
        return len(found) == 3

    eventually(looked)
    assert found == [1, 2, 3]
    assert numbers.found() == []
    numbers.may_fail.set()

    def failed() -> bool:
        try:
            numbers.found()
        except OSError:
            return True
        return False

    eventually(failed)
    with pytest.raises(OSError, match="no listing"):
        numbers.found()


def test_a_thread_that_is_stopped_looks_no_more_and_is_no_failure() -> None:
    numbers = Numbers()
    assert next(thread for thread in threading.enumerate() if thread.name == "numbers").daemon
    numbers.stop()
    assert numbers.ended.wait(30)
    numbers.found()
