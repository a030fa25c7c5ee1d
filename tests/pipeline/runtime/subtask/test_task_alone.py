"""How long a task waits, what mail means to it, and how it ends; without a job."""

from __future__ import annotations

import pytest
from lone_tasks import CHANNELS, Operator, Sink

from checkpoint.barriers.handler import BarrierHandler
from checkpoint.checkpoint_kind import CheckpointKind
from pipeline.runtime import protocol
from pipeline.runtime.subtask import mail
from pipeline.runtime.subtask.operator_task import OperatorTask


def test_a_half_built_batch_is_sent_when_its_linger_time_is_over_and_waited_for_no_longer() -> None:
    rig = Operator().ready()
    began = rig.system.now
    rig.task._look_around()
    assert rig.edge.flushes == 1
    rig.edge.unsent = True
    rig.task._wait_for_work()
    assert rig.mailbox.waits == [0.05]
    assert rig.task.metrics.idle_s == pytest.approx(0.025)
    rig.system.now = began + 0.049
    rig.task._look_around()
    assert rig.edge.flushes == 1
    rig.system.now = began + 0.05
    rig.task._look_around()
    assert rig.edge.flushes == 2
    rig.system.now += 1.0
    rig.task._wait_for_work()
    assert rig.mailbox.waits[-1] == 0.0


def test_a_task_waits_no_longer_than_until_event_time_has_something_to_do() -> None:
    rig = Operator().ready()
    rig.times.next = 0.02
    rig.task._wait_for_work()
    rig.times.next = 9.0
    rig.task._wait_for_work()
    rig.task._wait_for_mail()
    assert rig.mailbox.waits == [0.02, 0.2, 0.2]
    assert rig.task.metrics.idle_s == pytest.approx(0.21)


def test_gauges_are_told_four_times_a_second_and_looks_noted() -> None:
    rig = Operator().ready()
    rig.task._look_around()
    rig.sinks["late"] = Sink(rig.log)
    rig.sinks["late"].records = 5
    rig.system.now += 0.24
    rig.task._look_around()
    assert rig.task.metrics.report()["recordsToSinks"] == 0
    rig.system.now += 0.01
    rig.task._look_around()
    assert rig.task.metrics.report()["recordsToSinks"] == 5
    rig.system.now += 3.0
    assert rig.task.metrics.report()["heldMs"] == 3000


# -- mail, and the end ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CheckpointKind.CHECKPOINT, CheckpointKind.SAVEPOINT])
@pytest.mark.parametrize("commits", [False, True])
def test_what_a_complete_checkpoint_means_depends_on_its_kind(kind: CheckpointKind, commits: bool) -> None:
    rig = Operator(sinks=2)
    rig.task._read(protocol.Completed(3, kind, commits))
    copies = [] if kind is CheckpointKind.SAVEPOINT else [("copies", 3)]
    assert rig.said() == [*copies, *([("commit", 3)] * 2 if commits else [])]


def test_a_peer_that_leaves_first_at_the_end_of_the_job_is_no_failure() -> None:
    rig = Operator()
    with pytest.raises(ConnectionError):
        rig.task._read(mail.Failure(ConnectionResetError("gone")))
    rig.task._read(protocol.Quiesce())
    rig.task._read(mail.Failure(ConnectionResetError("gone")))
    with pytest.raises(OSError, match="disk"):
        rig.task._read(mail.Failure(OSError("disk")))
    assert rig.said() == [protocol.Quiet()]


def test_all_is_closed_though_something_fails_and_the_first_failure_is_raised() -> None:
    rig = Operator(sinks=3)
    rig.sinks["out0"].fails = OSError("first")
    rig.sinks["out1"].fails = OSError("second")
    with pytest.raises(OSError, match="first"):
        rig.task._close()
    assert rig.said() == ["sink closed"] * 3
    assert rig.checkpoints.closed


def test_a_failure_is_told_before_the_task_closes() -> None:
    rig = Operator(sinks=1)
    rig.mailbox.post(mail.Failure(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        rig.task.run()
    assert rig.said() == ["times open", ("failed", "disk"), "sink closed"]


def test_output_that_waits_for_a_checkpoint_is_told_once_and_no_other_output() -> None:
    rig = Operator(sinks=2)
    rig.sinks["out1"].hides_output = True
    task = OperatorTask(inputs=rig.inputs, channels=CHANNELS, barriers=BarrierHandler(2, rig.system.now), **rig.common)
    told = []
    for sink in ("out0", "out1", "out1"):
        rig.sinks[sink].records += 1
        task._leave_records()
        told.append(rig.said())
    assert told == [[], [protocol.OutputBegan()], []]
