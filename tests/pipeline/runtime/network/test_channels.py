"""Credit, order and wake-ups of channels, without sockets or threads."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.barriers.events import Barrier
from checkpoint.elements import BarrierElement, Data, EndOfInput, IdleStatus, Watermark
from pipeline.buffers import BufferConfig
from pipeline.runtime.network.debloat import INTERVAL, BufferBudget
from pipeline.runtime.network.frames import ChannelId, Credit, FrameError, Header, Kind
from pipeline.runtime.network.input_channels import InputChannels
from pipeline.runtime.network.output_channel import OutputChannel


def overtake(output, checkpoint_id):
    """Send an unaligned barrier; what it overtook, by checkpoint."""
    recorded = []
    output.overtake(BarrierElement(Barrier(checkpoint_id, alignment_timeout=0.0)), recorded.append)
    (captured,) = recorded
    return captured


def data(size, label=b""):
    return Data(label, size, rows=1)


class Link:
    """The wire between an output channel and input channels with one member, moved by hand."""

    def __init__(self, config=None, budget=None):
        config = config or BufferConfig(debloat=False, max_bytes=10_000, frame_bytes=2_048)
        self.to_send, self.credit_due = deque(), deque()
        self.room, self.input = [], []
        self.output = OutputChannel(ChannelId(0, 1, 2), config, self.to_send.append, lambda: self.room.append(1))
        self.inputs = InputChannels([self.output.id], config, self.credit_due.append, lambda: self.input.append(1))
        self.channel = self.inputs.channels[0]
        self.wire, self.credits = deque(), deque()
        if budget:
            self.channel._budget = budget
        self.largest = 0

    def open(self):
        self.credits.append(self.channel.credit())
        return self

    def pump(self):
        """What the sender's network thread does when it is told to look."""
        self.output.unschedule()
        while (taken := self.output.take()) is not None:
            self.wire.append(taken)
        if self.output.backlog():
            self.wire.append(None)

    def deliver_credit(self):
        self.output.grant(self.credits.popleft())
        self.pump()

    def receive(self):
        taken = self.wire.popleft()
        if taken is None:
            if self.channel.starve():
                self.credits.append(self.channel.credit())
            return
        element, sequence = taken
        size = element.size if isinstance(element, Data) else 0
        self.channel.receiving(Header(Kind.DATA if size else Kind.WATERMARK, 0, 1, size, sequence))
        self.inputs.put(self.channel, element)

    def send_credit(self):
        self.credits.append(self.credit_due.popleft().credit())

    def run(self):
        """Everything that happens without the task threads."""
        while self.to_send or self.credits or self.wire or self.credit_due:
            if self.to_send:
                self.to_send.popleft()
                self.pump()
            if self.credits:
                self.deliver_credit()
            if self.wire:
                self.receive()
            if self.credit_due:
                self.send_credit()

    def drain(self):
        """Poll until nothing comes any more."""
        polled = []
        self.run()
        while (one := self.inputs.poll()) is not None:
            polled.append(one[1])
            self.run()
        return polled


budgets = st.builds(BufferBudget, st.integers(1, 200), st.just(50))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 400)),
        st.tuples(st.just("mark"), st.just(0)),
        st.tuples(st.just("budget"), budgets),
        *(st.tuples(st.just(step), st.just(0)) for step in ("pump", "credit", "grant", "receive", "poll", "poll")),
    ),
    max_size=120,
)


@settings(max_examples=300)
@given(budgets, steps)
def test_whatever_the_timing_all_arrives_in_order_and_no_queue_exceeds_its_budget_by_more_than_a_lone_frame(
    budget, steps
):
    link = Link(budget=budget).open()
    sent, polled, largest_budget = [], [], budget.channel_bytes

    def check():
        queued = [e.size for e in link.channel._queue._queue if isinstance(e, Data)]
        assert sum(queued) == link.inputs.queued_bytes
        assert sum(queued) <= largest_budget or len(queued) == 1

    for step, value in steps:
        match step:
            case "send":
                sent.append(data(value))
                link.output.send(sent[-1])
            case "mark":
                sent.append(Watermark(len(sent)))
                link.output.send(sent[-1])
            case "budget":
                largest_budget = max(largest_budget, value.channel_bytes)
                link.channel.set_budget(value)
            case "pump" if link.to_send:
                link.to_send.popleft()
                link.pump()
            case "credit" if link.credit_due:
                link.send_credit()
            case "grant" if link.credits:
                link.deliver_credit()
            case "receive" if link.wire:
                link.receive()
            case "poll":
                one = link.inputs.poll()
                polled += [one[1]] if one else []
        check()
    link.run()
    check()
    polled += link.drain()

    assert polled == sent
    assert link.output.queued_bytes == link.inputs.queued_bytes == 0


def test_nothing_is_sent_before_the_receiver_knows_the_channel():
    link = Link()
    link.output.send(Watermark(1))
    overtake(link.output, 1)
    assert link.output.take() is None
    link.open().run()
    assert [type(link.inputs.poll()[1]) for _ in range(2)] == [BarrierElement, Watermark]


def test_frames_beyond_the_credit_wait_and_control_elements_behind_them_keep_their_place():
    link = Link(budget=BufferBudget(100, 50)).open()
    for element in (data(60), data(60), Watermark(7)):
        link.output.send(element)
    link.run()
    assert link.inputs.queued_bytes == 60
    assert link.output.queued_bytes == 60
    assert link.drain() == [data(60), data(60), Watermark(7)]


def test_control_elements_cost_no_credit():
    link = Link(budget=BufferBudget(100, 50)).open()
    link.output.send(data(100))
    link.output.send(Watermark(7))
    link.output.send(EndOfInput())
    link.run()
    assert link.output.finished
    assert link.drain() == [data(100), Watermark(7), EndOfInput()]


def test_an_empty_receiver_admits_one_frame_of_any_size_and_no_second_one():
    link = Link(budget=BufferBudget(100, 50)).open()
    for _ in range(3):
        link.output.send(data(5_000))
    link.run()
    assert link.inputs.queued_bytes == 5_000
    assert link.drain() == [data(5_000)] * 3


def test_a_large_frame_behind_small_ones_passes_once_they_are_consumed():
    link = Link(budget=BufferBudget(100, 50)).open()
    for size in (40, 5_000, 1):
        link.output.send(data(size))
    link.run()
    assert link.inputs.queued_bytes == 40
    assert [e.size for e in link.drain()] == [40, 5_000, 1]


def test_a_frame_is_the_receivers_from_its_header_on():
    link = Link(budget=BufferBudget(100, 50)).open()
    link.run()
    link.channel.receiving(Header(Kind.DATA, 0, 1, 80, 0))
    assert link.inputs.queued_bytes == 80
    assert link.inputs.poll() is None
    # neither is the receiver empty while a frame arrives, nor may another be sent into the space it takes
    assert not link.channel.starve()
    credit = link.channel.credit()
    assert (credit.limit_bytes, credit.consumed_frames) == (100, 0)


def test_a_frame_without_credit_is_a_violation():
    link = Link(budget=BufferBudget(100, 50)).open()
    link.channel.receiving(Header(Kind.DATA, 0, 1, 80, 0))
    with pytest.raises(FrameError, match="without credit"):
        link.channel.receiving(Header(Kind.DATA, 0, 1, 80, 1))


@pytest.mark.parametrize("sequence", [0, 2])
def test_a_missing_or_doubled_element_is_a_violation(sequence):
    link = Link().open()
    link.channel.receiving(Header(Kind.WATERMARK, 0, 0, 1, 0))
    with pytest.raises(FrameError, match="element 1 of channel"):
        link.channel.receiving(Header(Kind.WATERMARK, 0, 0, 1, sequence))


def test_credit_is_announced_in_steps_and_not_for_every_frame():
    link = Link(budget=BufferBudget(1_000, 50)).open()
    link.run()
    announced = 0
    for _ in range(100):
        link.output.send(data(10))
        link.run()
        link.inputs.poll()
        announced += len(link.credit_due)
        link.run()
    assert announced == 2


def test_a_smaller_budget_takes_back_nothing_and_holds_once_the_queue_has_drained():
    link = Link(budget=BufferBudget(1_000, 50)).open()
    link.run()
    link.channel.set_budget(BufferBudget(100, 20))
    for _ in range(30):
        link.output.send(data(90))
    link.run()
    assert link.inputs.queued_bytes == 990  # granted before
    while link.inputs.queued_bytes > 100:
        link.inputs.poll()
        link.run()
    for _ in range(5):
        link.inputs.poll()
        link.run()
        assert link.inputs.queued_bytes <= 100
    assert link.output.target_bytes == 20


def test_an_unaligned_barrier_overtakes_what_is_queued_and_records_it():
    link = Link(budget=BufferBudget(100, 50)).open()
    for element in (data(100), data(90), Watermark(3), data(80)):
        link.output.send(element)
    link.run()  # the first frame is on the wire: it is the receiver's
    assert overtake(link.output, 1) == {1: [data(90), Watermark(3), data(80)]}
    assert overtake(link.output, 2) == {2: [data(90), Watermark(3), data(80)]}
    assert [e if isinstance(e, Data | Watermark) else e.barrier.checkpoint_id for e in link.drain()] == [
        data(100),
        1,
        2,
        data(90),
        Watermark(3),
        data(80),
    ]


def test_a_barrier_that_leaves_is_reported_and_a_turned_one_leaves_first():
    link = Link(budget=BufferBudget(100, 50)).open()
    left, recorded = [], []
    link.output.on_barrier_left = left.append
    for element in (data(100), data(90), BarrierElement(Barrier(1, alignment_timeout=5.0)), data(80)):
        link.output.send(element)
    link.run()
    assert left == []
    link.output.make_unaligned(1, recorded.append)
    assert recorded == [{1: [data(90)]}]
    link.run()
    assert left == [1]
    assert [e if isinstance(e, Data) else e.barrier.unaligned for e in link.drain()] == [
        data(100),
        True,
        data(90),
        data(80),
    ]


def test_what_is_put_back_comes_first_again_and_costs_no_credit():
    link = Link(budget=BufferBudget(1_000, 500)).open()
    batch = Data(b"", 100, rows=4)
    link.output.send(batch)
    link.output.send(data(50))
    link.run()
    _, taken = link.inputs.poll()
    link.inputs.put_back(0, taken.from_row(3))
    assert link.inputs.queued_bytes == 50
    _, again = link.inputs.poll()
    assert (again.start, again.rest) == (3, 1)
    assert link.inputs.poll()[1] == data(50)
    assert link.inputs.queued_bytes == 0


def test_a_capture_closes_when_its_barrier_arrives_and_the_barrier_is_not_queued():
    link = Link().open()
    captured = []
    link.channel.on_captured = lambda n, elements: captured.append((n, elements))
    link.output.send(data(10))
    link.run()
    assert link.channel.capture(3) is None
    link.output.send(Watermark(5))
    link.run()
    assert captured == []
    overtake(link.output, 3)
    link.run()
    assert captured == [(3, [data(10), Watermark(5)])]
    assert link.drain() == [data(10), Watermark(5)]


def test_the_task_thread_is_woken_once_when_the_output_queue_has_half_emptied():
    link = Link(budget=BufferBudget(10_000, 2_048))
    assert link.output.has_room
    for _ in range(6):
        link.output.send(data(1_000))
    assert not link.output.has_room
    link.open()
    assert not link.room
    link.run()
    assert link.room == [1]
    assert link.output.has_room


def test_the_task_thread_is_woken_only_after_it_found_nothing():
    link = Link().open()
    link.output.send(data(10))
    link.run()
    assert not link.input
    assert link.inputs.poll() is not None
    assert link.inputs.poll() is None
    link.output.send(data(10))
    link.output.send(data(10))
    link.run()
    assert link.input == [1]


def test_the_network_thread_is_told_once_until_it_looks_and_not_while_credit_is_missing():
    link = Link(budget=BufferBudget(100, 50)).open()
    link.run()
    link.output.send(data(100))
    link.output.send(data(100))
    assert len(link.to_send) == 1
    link.run()
    link.output.send(data(10))
    assert not link.to_send
    overtake(link.output, 1)
    assert len(link.to_send) == 1


class Inputs:
    def __init__(self, n):
        self.wakes = []
        self.ids = [ChannelId(0, i, 9) for i in range(n)]
        self.inputs = InputChannels(self.ids, BufferConfig(), lambda _: None, lambda: self.wakes.append(1))

    def put(self, index, element):
        channel = self.inputs.channels[index]
        channel.credit()
        if isinstance(element, Data):
            channel.receiving(Header(Kind.DATA, 0, 1, element.size, channel._sequence))
        self.inputs.put(channel, element)

    def poll_all(self):
        polled = []
        while (one := self.inputs.poll()) is not None:
            polled.append(one)
        return polled


def test_channels_are_read_in_turn():
    inputs = Inputs(3)
    for index in (0, 0, 0, 1, 2, 2):
        inputs.put(index, IdleStatus(False))
    assert [index for index, _ in inputs.poll_all()] == [0, 1, 2, 0, 2, 0]


def test_a_blocked_channel_is_passed_over_and_keeps_what_it_has():
    inputs = Inputs(2)
    inputs.put(0, data(5))
    inputs.put(1, Watermark(1))
    inputs.inputs.block(0)
    assert inputs.poll_all() == [(1, Watermark(1))]
    inputs.put(0, data(6))
    assert not inputs.wakes  # nothing that could be read has come
    inputs.put(1, Watermark(2))
    assert inputs.wakes
    assert inputs.poll_all() == [(1, Watermark(2))]
    inputs.inputs.unblock(0)
    assert inputs.poll_all() == [(0, data(5)), (0, data(6))]


def test_a_barriers_age_includes_its_time_in_the_input_queue():
    inputs = Inputs(1)
    inputs.put(0, BarrierElement(Barrier(1, age=2.0), at=-1e9))  # received very long ago
    polled = inputs.poll_all()[0][1]
    assert polled.barrier.age > 1e9


def test_input_channels_without_members_never_have_anything():
    channels = InputChannels([], BufferConfig(), lambda _: None, lambda: None)
    assert channels.poll() is None
    channels.debloat(1.0, 0.2, 0.0, 0)
    assert channels.statistics().budget_bytes == 0


def test_budgets_follow_what_was_processed_and_not_what_was_polled():
    inputs = Inputs(2)
    channels, now, processed = inputs.inputs, 0.0, 0
    for index in (0, 1) * 50:
        inputs.put(index, data(100_000))
        inputs.inputs.poll()
        for _ in range(10):  # each frame takes two seconds
            now, processed = now + 0.2, processed + 10_000
            channels.debloat(now, now, 0.0, processed)
            channels.debloat(now + 0.01, now + 0.01, 0.0, processed)
    statistics = channels.statistics()
    assert statistics.rate == pytest.approx(50_000, rel=0.01)
    assert statistics.budget_bytes == pytest.approx(5_000, rel=0.3)
    inputs.put(0, data(20_000))
    assert channels.statistics().estimated_time_to_consume == pytest.approx(0.4, rel=0.01)
    assert channels.statistics().channels[0].records == 50


def test_several_elements_that_are_put_back_are_counted_once():
    link = Link(budget=BufferBudget(1_000, 500)).open()
    for size in (10, 20, 30):
        link.output.send(data(size))
    link.run()
    _, first = link.inputs.poll()
    _, second = link.inputs.poll()
    for element in (second, first):
        link.inputs.put_back(0, element)
    assert link.inputs.queued_bytes == 30
    assert [link.inputs.poll()[1].size for _ in range(3)] == [10, 20, 30]
    assert link.inputs.queued_bytes == 0
    assert link.channel.statistics().records == 3


def test_the_channel_whose_element_was_put_back_is_read_first_again():
    inputs = Inputs(3)
    for index in (0, 1, 2):
        inputs.put(index, data(10 + index))
    index, element = inputs.inputs.poll()
    assert index == 0
    inputs.inputs.put_back(0, element)
    assert [index for index, _ in inputs.poll_all()] == [0, 1, 2]


def test_a_sender_with_a_frame_that_is_too_large_hears_when_the_receiver_is_empty_and_not_before():
    link = Link(budget=BufferBudget(1_000, 500)).open()
    for _ in range(3):
        link.output.send(data(10))
    link.run()
    assert not link.channel.starve()
    for left in (2, 1):
        link.inputs.poll()
        assert (len(link.credit_due), len(link.channel._queue)) == (0, left)
    link.inputs.poll()
    assert len(link.credit_due) == 1
    link.run()
    # That was told. From now on credit is announced in steps again.
    link.output.send(data(10))
    link.run()
    link.inputs.poll()
    assert not link.credit_due


def test_only_an_empty_receiver_admits_a_frame_without_credit():
    link = Link(budget=BufferBudget(100, 50)).open()
    link.output.send(data(60))
    link.run()
    credit = link.channel.credit()  # for another reason, such as a new budget, with a frame still queued
    assert (credit.limit_bytes, credit.consumed_frames) == (100, 0)
    with pytest.raises(FrameError, match="without credit"):
        link.channel.receiving(Header(Kind.DATA, 0, 1, 5_000, 1))


def test_every_channel_hears_of_a_new_budget():
    due = []
    inputs = InputChannels([ChannelId(0, i, 9) for i in range(3)], BufferConfig(), due.append, lambda: None)
    for channel in inputs.channels:
        channel.credit()
        channel.receiving(Header(Kind.DATA, 0, 1, 10_000, 0))
        inputs.put(channel, data(10_000))
        inputs.poll()
    due.clear()
    for channel in inputs.channels:
        channel.credit()
    for tenth in range(1, 11):
        inputs.debloat(tenth, 0.2 * tenth, 0.0, 30_000)
    assert set(due) == set(inputs.channels)
    assert len({channel.credit().budget_bytes for channel in inputs.channels}) == 1


def test_budgets_are_observed_at_the_interval_and_only_the_time_since_the_last_look_counts():
    inputs = Inputs(1)
    for number in range(4):
        inputs.put(0, data(1_000))
        inputs.inputs.poll()
        inputs.inputs.debloat(
            INTERVAL * number, float(number + 1), 0.0, 1_000 * (number + 1)
        )  # at the interval to the dot
    assert inputs.inputs.statistics().rate == pytest.approx(1_000)


def test_what_batches_cost_counts_since_the_last_look_too():
    inputs = Inputs(4)
    for number in range(1, 60):
        channels, active = inputs.inputs, 0.2 * number
        inputs.put(0, data(1_000))
        channels.poll()
        channels.debloat(INTERVAL * number, active, active / 2 if number <= 30 else 3.0, 1_000 * number)
        if number == 30:
            assert channels.channels[0].credit().frame_bytes == 4_096
    assert channels.channels[0].credit().frame_bytes < 300


def test_a_queue_that_is_full_to_its_limit_has_no_room_and_one_byte_less_is_room():
    for size, room in ((4_095, True), (4_096, False)):
        link = Link()  # frames of 2,048 bytes, of which two fit
        link.output.send(data(size))
        assert (link.output.has_room, link.output.overdrawn_bytes) == (room, 0)
    link.output.send(data(3))
    assert link.output.overdrawn_bytes == 3


def test_a_frame_that_takes_all_that_is_left_of_the_credit_is_sent_and_one_byte_more_is_not():
    for size, arrived in ((60, [40, 60]), (61, [40])):
        link = Link(budget=BufferBudget(100, 50)).open()
        link.output.send(data(40))
        link.output.send(data(size))
        link.run()
        assert [element.size for element in link.channel._queue._queue] == arrived


def test_an_output_channel_is_finished_once_its_end_and_all_before_it_has_left():
    link = Link(budget=BufferBudget(100, 50)).open()
    assert not link.output.finished  # empty, and not at its end
    for element in (data(100), data(100), EndOfInput()):
        link.output.send(element)
    assert not link.output.finished
    link.run()
    assert not link.output.finished
    link.drain()
    assert link.output.finished


def test_a_lone_frame_of_half_a_budget_needs_no_backlog():
    for size, backlog in ((50, 0), (51, 1)):
        link = Link(budget=BufferBudget(100, 50)).open()
        for each in (60, size):
            link.output.send(data(each))
        link.deliver_credit()
        assert (link.wire.count(None), link.output.backlog()) == (backlog, False)  # once for a frame


def test_credit_that_was_given_for_another_reason_is_no_answer_to_a_sender_that_waits_for_an_empty_receiver():
    link = Link(budget=BufferBudget(1_000, 500)).open()
    link.output.send(data(10))
    link.run()
    assert not link.channel.starve()
    link.channel.credit()  # a new budget, say, while the frame is still queued
    link.inputs.poll()
    assert len(link.credit_due) == 1


def test_the_task_is_woken_once_half_of_the_queue_is_free() -> None:
    woken = []
    config = BufferConfig(debloat=False, max_bytes=10_000, frame_bytes=2_048)
    output = OutputChannel(ChannelId(0, 1, 2), config, lambda channel: None, lambda: woken.append(output.queued_bytes))
    output.grant(Credit(1 << 40, 0, 1 << 20, 2_048))
    for _ in range(4):
        output.send(data(1_024))
    assert not output.has_room
    while output.take() is not None:
        pass
    assert woken == [1_024]  # of 4,096
