"""The subtask's side of a control connection, over a real socket pair, from its first moment on."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from manual_system import ManualSystem
from messages import example_of

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.codec import encode
from checkpoint.errors import Explained, PermanentFailure
from checkpoint.state.errors import StateAccessError
from checkpoint.storage.errors import DamagedFile
from formats.errors import BadRecord
from pipeline.partitioners import KeySelector
from pipeline.runtime import error_text
from pipeline.runtime.liveness import Limits
from pipeline.runtime.message_connection import MessageConnection, ProtocolError
from pipeline.runtime.protocol import (
    TO_DRIVER,
    TO_SUBTASK,
    Cancel,
    Deploy,
    Failed,
    FailureKind,
    Job,
    Metrics,
    PhaseEntered,
    ToDriver,
    ToSubtask,
    Trigger,
)
from pipeline.runtime.subtask import driver_link as driver_link_module
from pipeline.runtime.subtask.driver_link import DriverLink
from pipeline.runtime.subtask.mail import Failure, Mail, Triggered
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.task import Cancelled
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from pipeline.runtime.wire import ConnectionLost, ControlConnection
from sinks.kafka.errors import RecordRefused

DriverEnd = MessageConnection[ToSubtask, ToDriver]
Ends = tuple[DriverEnd, DriverLink, Mailbox]


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ControlConnection, DriverLink, Mailbox]]:
    monkeypatch.setattr(driver_link_module, "_CANCEL_GRACE", 600.0)  # it would end this process
    a, b = socket.socketpair()
    mailbox = Mailbox()
    connection = ControlConnection(a)
    subtasks = MessageConnection[ToDriver, ToSubtask](ControlConnection(b), TO_SUBTASK)
    link = DriverLink(subtasks, mailbox, TaskMetrics(), "in partition 0", Limits(pace=0.05))
    link.start()
    yield connection, link, mailbox
    link.close()
    connection.close()


@pytest.fixture
def driver(control: tuple[ControlConnection, DriverLink, Mailbox]) -> Ends:
    connection, link, mailbox = control
    return MessageConnection(connection, TO_DRIVER), link, mailbox


def test_signs_of_life_come_before_there_is_a_deployment(driver: Ends) -> None:
    connection, _, _ = driver
    began = connection.heard_at
    for _ in range(int(PATIENCE / 0.05)):
        assert connection.receive(0.05) is None, "metrics have no name yet"
        if connection.heard_at > began:
            return
    pytest.fail("no sign of life")


def test_a_cancel_ends_the_wait_for_a_deployment(driver: Ends) -> None:
    connection, link, mailbox = driver
    connection.send(Cancel(job_over=True))
    with pytest.raises(Cancelled):
        link.await_deployment()
    assert link.job_over
    assert Cancel(job_over=True) in mailbox.mail


def test_a_driver_that_is_gone_ends_the_wait_for_a_deployment(
    driver: Ends,
) -> None:
    connection, link, _ = driver
    connection.close()
    with pytest.raises(Cancelled):
        link.await_deployment()
    assert not link.job_over


def test_a_message_that_cannot_be_read_is_an_error_in_the_subtask(
    control: tuple[ControlConnection, DriverLink, Mailbox],
) -> None:
    connection, link, mailbox = control
    connection.send("Deploy", deployment={})
    with pytest.raises(ProtocolError, match=r"'deployment\.subtask' is missing"):
        link.await_deployment()
    eventually(lambda: [type(one) for one in mailbox.mail] == [Failure])


def test_what_the_task_does_is_said_at_once(driver: Ends) -> None:
    connection, link, _ = driver
    link.entered("is in open() of 'totals'")
    assert connection.receive(PATIENCE) == PhaseEntered("is in open() of 'totals'")


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
    driver: Ends, monkeypatch: pytest.MonkeyPatch, fault: Callable[[], Any]
) -> None:
    monkeypatch.setattr(error_text, "_OWN", (*error_text._OWN, __file__))  # as if this were the runtime
    connection, link, _ = driver
    with pytest.raises(Explained) as caught:
        fault()
    link.failed(caught.value)
    told = connection.receive(PATIENCE)
    assert isinstance(told, Failed)
    assert told.traceback == ""
    assert told.message == f"{type(caught.value).__name__}: {caught.value}"


# -- without its thread -----------------------------------------------------------------------------------------------


class SilentDriver:
    """The subtask's end of a connection on which nothing comes but what a test puts there."""

    def __init__(self) -> None:
        self.heard_at = 0.0
        self.said: list[ToDriver] = []
        self.arrives: list[ToSubtask] = []
        self.broken = False

    def send(self, message: ToDriver) -> None:
        if self.broken:
            raise ConnectionLost("broken pipe")
        self.said.append(message)

    def send_sign_of_life(self) -> None: ...

    def receive(self, timeout: float | None = None) -> ToSubtask | None:
        return self.arrives.pop(0) if self.arrives else None

    def close(self) -> None: ...


class Subtask:
    def __init__(self) -> None:
        self.system = ManualSystem()
        self.connection = SilentDriver()
        self.connection.heard_at = self.system.now
        self.mailbox = Mailbox()
        self.link = DriverLink(
            self.connection, self.mailbox, TaskMetrics(), "in partition 0", Limits(), system=self.system
        )

    def look(self, seconds: float, heard: bool = True) -> None:
        self.system.now += seconds
        if heard:
            self.connection.heard_at = self.system.now
        self.link.look(self.system.now)


@pytest.fixture
def subtask() -> Subtask:
    return Subtask()


def test_the_age_of_a_checkpoint_counts_from_its_triggers_arrival(subtask: Subtask) -> None:
    trigger = Trigger(1, CheckpointKind.CHECKPOINT)
    subtask.link.deliver(trigger)
    assert list(subtask.mailbox.mail) == [Triggered(trigger, subtask.system.now)]


@pytest.mark.parametrize(("leaves", "exits"), [(True, []), (False, [1])])
def test_user_code_that_goes_on_after_a_cancel_ends_with_its_process(
    subtask: Subtask, monkeypatch: pytest.MonkeyPatch, leaves: bool, exits: list[int]
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(subtask.system, "exit", codes.append)
    monkeypatch.setattr(driver_link_module, "_CANCEL_GRACE", PATIENCE if leaves else 0.0)
    subtask.connection.arrives.append(Cancel())
    subtask.link.start()
    with pytest.raises(Cancelled):
        subtask.link.await_deployment()
    if not leaves:
        eventually(lambda: codes)
    subtask.link.close()
    assert codes == exits


def test_metrics_are_told_twice_a_second_once_there_is_a_subtask(subtask: Subtask) -> None:
    subtask.look(10.0)
    assert subtask.connection.said == []
    subtask.link.deliver(example_of(Deploy))
    for _ in range(10):
        subtask.look(0.1)
    assert [type(one) for one in subtask.connection.said] == [Metrics] * 2


def test_a_driver_that_says_nothing_is_given_up(subtask: Subtask) -> None:
    for _ in range(119):
        subtask.look(1.0, heard=False)
    subtask.look(0.5)
    for _ in range(119):
        subtask.look(1.0, heard=False)
    with pytest.raises(ConnectionLost, match="not heard of for 120 s"):
        subtask.look(1.0, heard=False)


def test_what_cannot_be_told_is_mail_for_the_task(subtask: Subtask) -> None:
    subtask.connection.broken = True
    subtask.link.entered("is closing")
    assert [(type(one), str(one.error)) for one in subtask.mailbox.mail] == [(Failure, "broken pipe")]


def test_only_the_first_failure_is_told(subtask: Subtask) -> None:
    subtask.link.failed(ValueError("first"))
    subtask.link.failed(ValueError("second"))
    assert [one.message for one in subtask.connection.said if isinstance(one, Failed)] == ["ValueError: first"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("no"), FailureKind.ERROR),
        (PermanentFailure("no"), FailureKind.PERMANENT),
        (DamagedFile("no"), FailureKind.DAMAGED),
        (ConnectionResetError("no"), FailureKind.PEER),
        (Cancelled("no"), FailureKind.CANCELLED),
    ],
)
def test_the_driver_learns_what_to_make_of_a_failure(subtask: Subtask, error: Exception, kind: FailureKind) -> None:
    subtask.link.failed(error)
    assert [one.kind for one in subtask.connection.said if isinstance(one, Failed)] == [kind]


def test_that_the_job_is_over_is_not_forgotten_when_the_driver_goes(subtask: Subtask) -> None:
    """Local copies are deleted then."""
    subtask.link.deliver(Cancel(job_over=True))
    subtask.link.deliver(Cancel())
    assert subtask.link.job_over


@pytest.mark.parametrize("kind", TO_SUBTASK.classes.values(), ids=TO_SUBTASK.classes)
def test_every_message_to_a_subtask_comes_to_its_task_but_those_before_there_is_one(
    subtask: Subtask, kind: type[Any]
) -> None:
    subtask.link.deliver(example_of(kind))
    assert len(subtask.mailbox.mail) == (0 if kind in (Job, Deploy) else 1)
    assert all(isinstance(one, Mail) for one in subtask.mailbox.mail)
