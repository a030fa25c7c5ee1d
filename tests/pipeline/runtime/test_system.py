"""Threads and processes as the runtime makes them."""

from __future__ import annotations

import os

from pipeline.runtime.system import SYSTEM


def test_no_thread_of_the_runtime_keeps_a_process_alive() -> None:
    thread = SYSTEM.thread(lambda: None, "weir-test")
    assert (thread.daemon, thread.name, thread.is_alive()) == (True, "weir-test", False)


def test_an_exit_ends_the_process_with_its_code_whatever_else_runs() -> None:
    child = os.fork()
    if child == 0:
        try:
            SYSTEM.exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
