"""What is waited for, since when."""

from __future__ import annotations

from checkpoint.waiting import Waiting


def test_each_wait_is_told_with_the_seconds_since_it_began() -> None:
    now = 10.0
    waiting = Waiting(lambda: now)
    assert not waiting
    waiting.begin("brokers")
    waiting.begin("storage", since=4.0)
    now = 13.0
    waiting.begin("brokers")  # which begins nothing anew
    waiting.begin("storage", since=12.0)
    assert waiting
    assert waiting.report() == [("brokers", 3.0, "other"), ("storage", 9.0, "other")]
    waiting.end("brokers")
    waiting.end("nobody")
    assert waiting.report() == [("storage", 9.0, "other")]
    waiting.begin("brokers")
    assert waiting.report() == [("storage", 9.0, "other"), ("brokers", 0.0, "other")]


def test_a_wait_that_began_by_another_clock_is_never_told_as_negative() -> None:
    waiting = Waiting(lambda: 10.0)
    waiting.begin("brokers", since=10.5)
    assert waiting.report() == [("brokers", 0.0, "other")]
