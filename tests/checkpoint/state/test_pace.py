"""Work beside a busy thread gets its share of the interpreter and no more; beside one that waits, nearly all of it."""

from __future__ import annotations

import pytest

from checkpoint.state.pace import Pace


class Interpreter:
    """A clock, and another thread that keeps the interpreter for a while once it has it."""

    def __init__(self, keeps: float) -> None:
        self.keeps = keeps
        self.now = 100.0
        self.given = 0.0
        """Seconds that the other thread could run."""

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + self.keeps
        self.given += seconds + self.keeps


def work(interpreter: Interpreter, seconds: float, piece: float) -> float:
    """Do so much work. Returns how long it took."""
    began = interpreter.now
    pace = Pace(interpreter.clock, interpreter.sleep)
    for _ in range(round(seconds / piece)):
        interpreter.now += piece
        pace.give_way()
    return interpreter.now - began


@pytest.mark.parametrize("piece", [1e-5, 1e-4, 3e-4])
def test_a_busy_thread_beside_it_has_more_than_three_quarters(piece: float) -> None:
    interpreter = Interpreter(keeps=1e-3)
    took = work(interpreter, 1.0, piece)
    assert interpreter.given / took > 0.77
    assert took < 8, "the work gets a share, too"


@pytest.mark.parametrize("piece", [1e-5, 1e-4, 3e-4])
def test_beside_a_thread_that_waits_it_goes_on(piece: float) -> None:
    assert work(Interpreter(keeps=0.0), 1.0, piece) < 1.2


@pytest.mark.parametrize("piece", [1e-5, 1e-4, 3e-4])
def test_what_is_done_soon_waits_for_nobody_for_long(piece: float) -> None:
    interpreter = Interpreter(keeps=1e-3)
    assert work(interpreter, 9e-3, piece) < 9e-3 + 12 * 1.2e-3


@pytest.mark.parametrize("piece", [1e-5, 1e-4, 3e-4])
def test_what_takes_next_to_no_time_has_no_pause(piece: float) -> None:
    interpreter = Interpreter(keeps=1e-3)
    work(interpreter, 2.9e-3, piece)
    assert interpreter.given == 0
    work(interpreter, 4e-3, piece)
    assert interpreter.given > 0


def test_where_pauses_take_long_it_does_more_between_them() -> None:
    assert work(Interpreter(keeps=0.1), 1.0, 1e-4) < 7.5


def test_it_is_quick_again_once_the_other_thread_waits() -> None:
    interpreter = Interpreter(keeps=1e-3)
    pace = Pace(interpreter.clock, interpreter.sleep)

    def slice_() -> float:
        before = interpreter.given
        while interpreter.given == before:
            interpreter.now += 1e-4
            pace.give_way()
        return interpreter.given - before

    for _ in range(13):  # beyond 10 ms of work
        slice_()
    assert slice_() > 4e-3
    interpreter.keeps = 0.0
    slice_()  # is still long, and finds that nobody took the time
    assert slice_() < 2e-4
