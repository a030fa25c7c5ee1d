"""One task whose chain begins with `map_async`, step by step and without a job: what comes first, and what it tells."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from captures import data, shown
from chains import chain_of
from lone_tasks import CHAINED, CHANNELS, PLAIN, Times
from manual_system import ManualSystem

from checkpoint.barriers.events import Barrier
from checkpoint.barriers.handler import BarrierHandler
from checkpoint.elements import BarrierElement, EndOfInput, IdleStatus, Watermark
from checkpoint.in_flight.restored_input import RestoredInput
from pipeline.async_calls.requests import RequestResult, Requests
from pipeline.buffers import BufferConfig
from pipeline.runtime import protocol
from pipeline.runtime.network.frames import ChannelId
from pipeline.runtime.network.input_channels import InputChannels
from pipeline.runtime.subtask import mail
from pipeline.runtime.subtask.async_task import AsyncTask
from pipeline.runtime.subtask.batch_in_progress import BatchInProgress
from pipeline.runtime.subtask.chain import ChainEntry
from pipeline.runtime.subtask.event_time.domains import TimeDomain
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.point_queries import PointQueries
from pipeline.runtime.subtask.steps.async_calls import InFrontOf
from pipeline.runtime.subtask.task_metrics import TaskMetrics


async def never_called(value: Any) -> Any:
    raise AssertionError("the loop that would call it is a stand-in")


class Service:
    """In place of the event loop: answers come when a test says so."""

    def __init__(self, task: Rig, options: Any) -> None:
        self.requests = Requests(options, lambda answer: None)
        self.asked: dict[Any, Any] = {}
        self.flushes = 0
        self._came: deque[RequestResult] = deque()
        self._rig = task

    def open(self) -> None: ...

    def close(self) -> None: ...

    def ask(self, token: Any, value: Any, encoded: bytes) -> None:
        self.asked[value] = token

    def flush(self) -> None:
        self.flushes += 1

    def answers(self) -> deque[RequestResult]:
        return self._came

    def answer(self, *values: Any) -> None:
        self._came += [RequestResult(self.asked[value], value, None, 1) for value in values]
        self._rig.task._calls.wake()


class Driver:
    def __init__(self, log: list[Any]) -> None:
        self._log = log

    def report(self, message: Any) -> None:
        if not isinstance(message, protocol.Running):
            self._log.append(type(message).__name__)


class Checkpoints:
    next_deadline = None

    def __init__(self, rig: Rig) -> None:
        self.captured: list[Any] = []
        self._rig = rig

    def take(self, *parts: Any) -> None:
        before_all = InFrontOf(self._rig.task._calls, self._rig.restored, lambda edge: PLAIN)
        self.captured = [(name, *shown([element])) for name, element in before_all.rest()]

    def input_captured(self, name: Any, checkpoint_id: int, elements: Any) -> None:
        self.captured += [(name, *shown([element])) for element in elements]


class Waits(Mailbox):
    """Notes that it was asked to wait, and doesn't."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0
        self.woken = 0

    def wait(self, timeout: float) -> None:
        self.waits += 1

    def wake(self) -> None:
        self.woken += 1


class Rig:
    """A task with two input channels; `log` has what comes out and what is told, in order."""

    def __init__(self, restored: Any = (), paced: float = 0.0, **options: Any) -> None:
        self.log: list[Any] = []
        self.system = ManualSystem()
        clock = self.system.monotonic
        self.mailbox = Waits()
        ids = [ChannelId(0, i, 2) for i in (0, 1)]
        self.inputs = InputChannels(ids, BufferConfig(), lambda one: None, lambda: None)
        options = {"capacity": 3, "ordered": True, **options}
        chain, record = chain_of(
            lambda stream: stream.map_async(never_called, "ask", **options),
            {("ask", None): [lambda value: self.log.append((value, record.timestamp))]},
            vertex=1,
            clock=clock,
            interrupt=self.mailbox.tick,
        )
        assert chain.calls is not None
        self.service = chain.calls.loop = Service(self, chain.calls.options)
        self.times, self.checkpoints = Times(self.log), Checkpoints(self)
        self.restored = RestoredInput(restored)
        unused: Any = Driver(self.log)
        self.batch = BatchInProgress(record, self.mailbox, None)
        behind = ChainEntry(lambda value: self.log.append(("behind", value)), PLAIN, TimeDomain("ask"))
        parts: dict[str, Any] = {"checkpoints": self.checkpoints, "event_time": self.times}
        self.task = AsyncTask(
            inputs=self.inputs,
            channels=CHANNELS,
            barriers=BarrierHandler(2, clock()),
            name="ask[0]",
            chain=chain,
            writers=[],
            sinks={},
            batch=self.batch,
            restored=self.restored,
            entries={CHANNELS[0].edge: ChainEntry(chain.push, PLAIN), CHAINED.edge: behind},
            replay=False,
            queries=PointQueries(None, lambda message: None, clock),
            mailbox=self.mailbox,
            driver=unused,
            metrics=TaskMetrics(clock),
            linger=0.05,
            clock=clock,
            pacers=[Pacer(paced)],
            **parts,
        )

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.mailbox.interrupt = False
            self.task._step()

    def ready(self) -> Rig:
        """Nothing restored is left."""
        self.step()
        assert self.log == ["all restored"]
        self.log.clear()
        return self

    def put(self, upstream: int, *elements: Any) -> None:
        for element in elements:
            self.inputs.channels[upstream].put(element)

    def barrier(self, upstream: int) -> None:
        self.put(upstream, BarrierElement(Barrier(1, alignment_timeout=0.0)))

    @property
    def waits(self) -> list[str]:
        self.task._on_clock(self.system.now)
        return [what for what, *_ in self.task.metrics.report()["waits"]]


class Pacer:
    what = "its turn"

    def __init__(self, left: float) -> None:
        self.left = left

    def seconds_left(self, now: float) -> float:
        return self.left

    def waits_since(self, now: float) -> float | None:
        return None


# -- what comes first ---------------------------------------------------------------------------------------------


def test_records_are_asked_until_there_is_no_room_and_the_rest_waits() -> None:
    rig = Rig(capacity=2).ready()
    rig.put(0, data(["a", "b", "c"]))
    rig.step(5)
    assert list(rig.service.asked) == ["a", "b"]
    assert rig.mailbox.waits > 0
    rig.service.answer("a")
    assert rig.mailbox.woken == 1
    rig.step(3)
    assert rig.log == [("a", None)]
    assert list(rig.service.asked) == ["a", "b", "c"]


def test_a_record_of_behind_the_step_goes_on_before_all_that_waits_in_front_of_it() -> None:
    """Where two vertices are one now, what was in flight between them is older than what was in front of both."""
    rig = Rig([(CHANNELS[0], data(["a"])), (CHAINED, data(["b"]))])
    rig.step(2)
    rig.step()
    rig.times.due = True
    rig.service.answer("a")
    rig.step()
    assert rig.log == [("behind", "b")]
    rig.step(2)
    assert rig.log == [("behind", "b"), "fired", ("a", None)]


def test_what_is_due_by_event_time_is_done_before_the_next_result() -> None:
    rig = Rig().ready()
    rig.put(0, data(["a"]))
    rig.step(2)
    rig.service.answer("a")
    rig.times.due = True
    rig.step(2)
    assert rig.log == ["fired", ("a", None)]


def test_results_go_on_before_more_is_asked() -> None:
    rig = Rig().ready()
    rig.put(0, data(["a"]), data(["b"]))
    rig.step(3)
    assert list(rig.service.asked) == ["a"], "the next batch is taken, and not asked yet"
    rig.service.answer("a")
    rig.step()
    assert (rig.log, list(rig.service.asked)) == ([("a", None)], ["a"])


def test_without_room_downstream_nothing_goes_on() -> None:
    rig = Rig(paced=1.0)
    rig.task._restoring = False
    rig.put(0, data(["a"]))
    rig.step(3)
    assert (rig.log, rig.service.asked, rig.mailbox.waits) == ([], {}, 3)


def test_while_all_room_is_taken_nothing_restored_is_taken_either() -> None:
    rig = Rig([(CHANNELS[0], data([value])) for value in "abc"], capacity=2)
    rig.step(8)
    assert list(rig.service.asked) == ["a", "b"]
    assert len(rig.restored) == 1


@pytest.mark.parametrize("capacity", [2, 3])
def test_a_batch_that_is_not_full_is_asked_once_there_is_no_room_for_more(capacity: int) -> None:
    rig = Rig(capacity=capacity, batch_size=2).ready()
    rig.put(0, data(["a"]), data(["b"]))
    rig.step(2)
    assert rig.service.flushes == 0
    rig.step(2)
    assert rig.service.flushes == (1 if capacity == 2 else 0)


def test_a_barrier_goes_through_while_the_step_has_no_room() -> None:
    rig = Rig(capacity=1).ready()
    rig.put(0, data(["a"]))
    rig.step(3)
    rig.barrier(1)
    rig.step()
    assert rig.checkpoints.captured == [(CHANNELS[0], "a")]
    rig.put(0, data(["b"]))
    rig.step(3)
    assert list(rig.service.asked) == ["a"], "only what needs no room"


def test_no_barrier_is_taken_in_front_of_which_the_rest_of_a_batch_belongs() -> None:
    """The batch would be put back behind it."""
    rig = Rig(capacity=1).ready()
    rig.put(0, data(["a", "b"]))
    rig.barrier(0)
    rig.step(4)
    assert rig.checkpoints.captured == []
    rig.service.answer("a")
    rig.step(2)
    rig.service.answer("b")
    rig.step(3)
    assert rig.log == [("a", None), ("b", None)]
    assert rig.task._barriers.pending is None


def test_a_barrier_is_taken_while_the_rest_of_a_restored_batch_waits() -> None:
    """It was in front of all channels."""
    rig = Rig([(CHANNELS[1], data(["a", "b"]))], capacity=1)
    rig.step(2)
    rig.barrier(0)
    rig.step()
    assert rig.checkpoints.captured == [(CHANNELS[1], "a"), (CHANNELS[1], "b")]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("batch_size", [None, 64])
def test_the_snapshot_waits_for_none_of_a_thousand_requests(ordered: bool, batch_size: int | None) -> None:
    """The service never answers. What is asked for is in the snapshot, and so is the rest of the batch."""
    rig = Rig(capacity=1000, ordered=ordered, batch_size=batch_size).ready()
    rig.put(0, data(range(1500)))
    rig.put(1, data(range(1500, 1700)))
    rig.step(4)
    assert len(rig.service.asked) == 1000
    rig.task._read(mail.BarrierSeen(1, BarrierElement(Barrier(1, alignment_timeout=0.0))))
    assert [number for _, *numbers in rig.checkpoints.captured for number in numbers] == list(range(1000))
    for upstream in (0, 1):
        rig.barrier(upstream)
    in_flight = [number for _, *numbers in rig.checkpoints.captured for number in numbers]
    assert in_flight == list(range(1700))
    assert rig.log == []


# -- the ends -----------------------------------------------------------------------------------------------------


def test_the_end_of_input_waits_for_the_last_result_and_the_end_of_output_comes_once() -> None:
    rig = Rig().ready()
    rig.put(0, data(["a"]), EndOfInput())
    rig.put(1, EndOfInput())
    rig.step(6)
    assert rig.log == []
    rig.service.answer("a")
    rig.step(8)
    assert rig.log == [("a", None), ("end", 1), ("end", 0), "input ended", "InputEnded"] or rig.log == [
        ("a", None),
        ("end", 0),
        ("end", 1),
        "input ended",
        "InputEnded",
    ]


def test_the_end_of_what_was_restored_waits_for_its_last_result() -> None:
    rig = Rig([(CHANNELS[0], data(["a"])), (CHANNELS[0], Watermark(7))])
    rig.step(4)
    assert rig.log == []
    rig.put(0, data(["b"]))
    rig.step(2)
    rig.service.answer("a", "b")
    rig.step(4)
    assert rig.log == [("a", None), ("watermark", 0, 7, True), "all restored", ("b", None)]


# -- controls, and what is captured ---------------------------------------------------------------------------------


def test_watermarks_and_idle_statuses_wait_for_the_records_in_front_of_them_and_no_longer() -> None:
    rig = Rig().ready()
    rig.put(0, Watermark(1))
    rig.step()
    assert rig.log == [("watermark", 0, 1, False)]
    rig.put(0, data(["a"], timestamp=5), Watermark(5), IdleStatus(True))
    rig.step(4)
    assert len(rig.log) == 1
    rig.service.answer("a")
    rig.step(4)
    assert rig.log[1:] == [("a", 5), ("watermark", 0, 5, False), ("idle", 0, True, False)]


def test_a_control_in_the_line_has_the_batch_asked_that_is_not_full() -> None:
    rig = Rig(batch_size=3).ready()
    rig.put(0, data(["a"]))
    rig.step(2)
    assert rig.service.flushes == 0
    rig.put(0, Watermark(5))
    rig.step()
    assert rig.service.flushes == 1


def test_what_is_in_the_line_is_captured_on_the_channels_that_it_came_from_in_order() -> None:
    rig = Rig(capacity=9).ready()
    rig.put(0, data(["a", "b"], timestamp=5), Watermark(5), IdleStatus(True))
    rig.step(4)
    rig.put(1, data(["c"]), data(["d"]), Watermark(6))
    rig.step(5)
    rig.put(0, IdleStatus(False), data(["e"]))
    rig.step(3)
    rig.put(1, EndOfInput())
    rig.step()
    rig.barrier(0)
    rig.step()
    zero, one = CHANNELS
    assert rig.checkpoints.captured == [
        (zero, "a", "b"),
        (zero, ("watermark", 5)),
        (zero, "idle"),
        (one, "c", "d"),
        (one, ("watermark", 6)),
        (zero, "active"),
        (zero, "e"),
    ]


def test_a_result_that_is_out_is_not_captured() -> None:
    rig = Rig(ordered=False).ready()
    rig.put(0, data(["a", "b"]))
    rig.step(2)
    rig.service.answer("b")
    rig.step()
    rig.barrier(1)
    rig.step()
    assert (rig.log, rig.checkpoints.captured) == ([("b", None)], [(CHANNELS[0], "a")])


# -- what it tells --------------------------------------------------------------------------------------------------


WAIT = "answers to the requests of step 'ask'"


@pytest.mark.parametrize("held", ["full", "control", "nothing"])
def test_it_waits_for_answers_when_none_has_come_for_a_second_and_something_is_held_up(held: str) -> None:
    rig = Rig(capacity=1 if held == "full" else 3).ready()
    rig.system.now += 100.0
    rig.put(0, data(["a"]))
    rig.step(2)
    if held == "control":
        rig.put(0, Watermark(1))
        rig.step()
    rig.system.now += 0.9
    assert rig.waits == []
    rig.system.now += 0.1
    assert rig.waits == ([] if held == "nothing" else [WAIT])
    rig.service.answer("a")
    rig.step(2)
    assert rig.waits == []


def test_the_second_without_an_answer_begins_with_the_last_one() -> None:
    rig = Rig(capacity=2, ordered=False).ready()
    rig.put(0, data(["a", "b", "c"]))
    rig.step(2)
    rig.system.now += 0.9
    rig.service.answer("a")
    rig.step(2)
    rig.system.now += 0.9
    assert rig.waits == []
    rig.system.now += 0.1
    rig.step(2)
    assert rig.waits == [WAIT]


def test_its_gauges_are_those_of_the_requests() -> None:
    rig = Rig().ready()
    rig.put(0, data(["a", "b"]))
    rig.step(2)
    rig.task._set_gauges()
    empty = rig.task.metrics.report()
    assert (empty["requestsInFlight"], empty["requestMsP50"], empty["requestMsP95"]) == (2, None, None)
    requests = rig.service.requests
    requests.asked, requests.retries, requests.timeouts, requests.answered = 9, 8, 7, 6
    requests.seconds = 1.5
    requests.latencies.extend(n / 1000 for n in range(100, -1, -1))
    rig.task._set_gauges()
    told = rig.task.metrics.report()
    names = ("requests", "requestRetries", "requestTimeouts", "requestsAnswered", "requestMs")
    assert [told[name] for name in names] == [9, 8, 7, 6, 1500]
    assert (told["requestMsP50"], told["requestMsP95"]) == (50, 95)
