"""The task thread's mailbox: nothing is lost between a look and a wait."""

from __future__ import annotations

import threading

from pipeline.runtime.subtask.letters import Cancel, Failure, Finish
from pipeline.runtime.subtask.mailbox import Mailbox


def test_letters_come_in_order_and_interrupt() -> None:
    mailbox = Mailbox()
    assert not mailbox.interrupt
    mailbox.post(Cancel())
    mailbox.post(Finish())
    assert mailbox.interrupt
    assert list(mailbox.letters) == [Cancel(), Finish()]


def test_another_threads_failure_is_a_letter() -> None:
    mailbox, error = Mailbox(), ValueError("broken")
    mailbox.post_failure(error)
    assert mailbox.letters.popleft() == Failure(error)
    assert mailbox.interrupt


def test_a_letter_or_wake_up_before_the_wait_is_not_lost() -> None:
    mailbox = Mailbox()
    mailbox.post(Cancel())
    mailbox.wait(60)
    mailbox.wake()
    mailbox.wait(60)


def test_a_wake_up_does_not_interrupt_the_record_loop() -> None:
    mailbox = Mailbox()
    mailbox.wake()
    assert not mailbox.interrupt


def test_a_tick_interrupts_without_a_letter_and_without_ending_a_wait() -> None:
    mailbox = Mailbox()
    mailbox.tick()
    assert mailbox.interrupt
    assert not mailbox.letters
    mailbox.wait(0.01)  # returns by its timeout


def test_a_waiting_thread_is_woken_from_another_one() -> None:
    mailbox, woken = Mailbox(), threading.Event()

    def wait() -> None:
        mailbox.wait(60)
        woken.set()

    threading.Thread(target=wait, daemon=True).start()
    mailbox.post(Cancel())
    assert woken.wait(10)


def test_each_wait_needs_a_wake_up_of_its_own() -> None:
    mailbox, turns = Mailbox(), threading.Semaphore(0)

    def wait_twice() -> None:
        for _ in range(2):
            mailbox.wait(60)
            turns.release()

    threading.Thread(target=wait_twice, daemon=True).start()
    mailbox.wake()
    assert turns.acquire(timeout=10)
    assert not turns.acquire(blocking=False)
    mailbox.wake()
    assert turns.acquire(timeout=10)
