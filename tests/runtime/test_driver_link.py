"""The subtask's side of a control connection, over a real socket pair, from its first moment on."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from checkpoint.codec import encode
from checkpoint.errors import Explained
from checkpoint.state.errors import StateAccessError
from pipeline.partitioners import KeySelector
from pipeline.runtime import error_text
from pipeline.runtime.liveness import Limits
from pipeline.runtime.subtask import driver_link as driver_link_module
from pipeline.runtime.subtask import mail
from pipeline.runtime.subtask.driver_link import DriverLink
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.task import Cancelled
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from pipeline.runtime.typed_values import Misfit
from pipeline.runtime.wire import ControlConnection
from sinks.kafka.errors import RecordRefused
from sources.kafka.errors import BadRecord

WAIT = 30.0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ControlConnection, DriverLink, Mailbox]]:
    monkeypatch.setattr(driver_link_module, "_CANCEL_GRACE", 600.0)  # it would end this process
    a, b = socket.socketpair()
    mailbox = Mailbox()
    connection = ControlConnection(a)
    link = DriverLink(ControlConnection(b), mailbox, TaskMetrics(), "in partition 0", Limits(pace=0.05))
    link.start()
    yield connection, link, mailbox
    link.close()
    connection.close()


def test_signs_of_life_come_before_there_is_a_deployment(driver: tuple[ControlConnection, DriverLink, Mailbox]) -> None:
    connection, _, _ = driver
    began = connection.heard_at
    for _ in range(int(WAIT / 0.05)):
        assert connection.receive(0.05) is None, "metrics have no name yet"
        if connection.heard_at > began:
            return
    pytest.fail("no sign of life")


def test_a_cancel_ends_the_wait_for_a_deployment(driver: tuple[ControlConnection, DriverLink, Mailbox]) -> None:
    connection, link, mailbox = driver
    connection.send("cancel", job_over=True)
    with pytest.raises(Cancelled):
        link.await_deployment()
    assert link.job_over
    assert mail.Cancel() in mailbox.mail


def test_a_driver_that_is_gone_ends_the_wait_for_a_deployment(
    driver: tuple[ControlConnection, DriverLink, Mailbox],
) -> None:
    connection, link, _ = driver
    connection.close()
    with pytest.raises(Cancelled):
        link.await_deployment()
    assert not link.job_over


def test_a_deployment_that_cannot_be_read_is_an_error(driver: tuple[ControlConnection, DriverLink, Mailbox]) -> None:
    connection, link, _ = driver
    connection.send("deploy", deployment={})
    with pytest.raises(Misfit, match="'subtask' is missing"):
        link.await_deployment()


def test_what_the_task_does_is_said_at_once(driver: tuple[ControlConnection, DriverLink, Mailbox]) -> None:
    connection, link, _ = driver
    link.entered("is in open() of 'totals'")
    assert connection.receive(WAIT) == {"type": "phase", "phase": "is in open() of 'totals'"}


def bad_record() -> None:
    try:
        int("none")
    except ValueError as cause:
        raise BadRecord("orders[1] offset 3: the value is not json") from cause


def refuse(error: BaseException) -> None:
    raise error


USERS_FAULTS: dict[str, Callable[[], Any]] = {
    "no key": lambda: KeySelector("user").compile()({"usr": "x"}),
    "no value": lambda: encode(object()),
    "bad record": bad_record,
    "refused record": lambda: refuse(RecordRefused("topic 'totals': the record is too large")),
    "state": lambda: refuse(StateAccessError("state 'total' of T is a state; write self.total.value += …")),
}


@pytest.mark.parametrize("fault", USERS_FAULTS.values(), ids=USERS_FAULTS)
def test_errors_that_say_what_to_do_bring_no_frames_of_weirs(
    driver: tuple[ControlConnection, DriverLink, Mailbox], monkeypatch: pytest.MonkeyPatch, fault: Callable[[], Any]
) -> None:
    monkeypatch.setattr(error_text, "_OWN", (*error_text._OWN, __file__))  # as if this were the runtime
    connection, link, _ = driver
    with pytest.raises(Explained) as caught:
        fault()
    link.failed(caught.value)
    told = connection.receive(WAIT)
    assert told is not None
    assert told["traceback"] == ""
    assert told["message"] == f"{type(caught.value).__name__}: {caught.value}"
