"""The task thread's mailbox: nothing is lost between a look and a wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pipeline.runtime.protocol import Cancel, Finish
from pipeline.runtime.subtask.mail import Failure
from pipeline.runtime.subtask.mailbox import Mailbox


def test_mail_comes_in_order_and_interrupts() -> None:
    mailbox = Mailbox()
    assert not mailbox.interrupt
    mailbox.post(Cancel())
    mailbox.post(Finish())
    assert mailbox.interrupt
    assert list(mailbox.mail) == [Cancel(), Finish()]


def test_another_threads_failure_is_mail() -> None:
    mailbox, error = Mailbox(), ValueError("broken")
    mailbox.post_failure(error)
    assert mailbox.mail.popleft() == Failure(error)
    assert mailbox.interrupt


def waits(mailbox: Mailbox, times: int = 1) -> threading.Semaphore:
    """A thread that waits so often; gives a permit behind each wait."""
    turns = threading.Semaphore(0)

    def wait() -> None:
        for _ in range(times):
            mailbox.wait(60)
            turns.release()

    threading.Thread(target=wait, daemon=True).start()
    return turns


@pytest.mark.parametrize("told", [lambda mailbox: mailbox.post(Cancel()), Mailbox.wake], ids=["mail", "wake-up"])
def test_mail_or_a_wake_up_before_the_wait_is_not_lost(told: Callable[[Mailbox], None]) -> None:
    mailbox = Mailbox()
    told(mailbox)
    assert waits(mailbox).acquire(timeout=60)


def test_a_wake_up_does_not_interrupt_the_record_loop() -> None:
    mailbox = Mailbox()
    mailbox.wake()
    assert not mailbox.interrupt


def test_a_tick_interrupts_without_mail_and_without_ending_a_wait() -> None:
    mailbox = Mailbox()
    mailbox.tick()
    assert mailbox.interrupt
    assert not mailbox.mail
    assert not waits(mailbox).acquire(timeout=0.1)


def test_a_waiting_thread_is_woken_from_another_one() -> None:
    mailbox = Mailbox()
    turns = waits(mailbox)
    mailbox.post(Cancel())
    assert turns.acquire(timeout=60)


def test_each_wait_needs_a_wake_up_of_its_own() -> None:
    mailbox = Mailbox()
    turns = waits(mailbox, times=2)
    mailbox.wake()
    assert turns.acquire(timeout=60)
    assert not turns.acquire(blocking=False)
    mailbox.wake()
    assert turns.acquire(timeout=60)
