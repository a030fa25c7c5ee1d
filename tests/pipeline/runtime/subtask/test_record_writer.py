"""From a chain's last step into the channels: partitioned, batched, sealed, in order with control elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from checkpoint.barriers.events import Barrier
from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.codec import EncodingError, decode_key, encode_key
from checkpoint.edge_format import DecodedRows
from checkpoint.elements import BarrierElement, ChannelName, Data, EdgeName, EndOfInput
from checkpoint.key_groups import key_group, subtask_of
from checkpoint.row_format import row_format
from pipeline import BufferConfig
from pipeline.partitioners import (
    BROADCAST,
    FORWARD,
    REBALANCE,
    RESCALE,
    Distribution,
    KeyMissing,
    KeySelector,
    Partitioner,
)
from pipeline.plan import PlannedEdge
from pipeline.runtime.network.frames import ChannelId, Credit
from pipeline.runtime.network.output_channel import OutputChannel
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.record_writer import RecordWriter

MAX_PARALLELISM = 128
BARRIER = BarrierElement(Barrier(1, CheckpointKind.CHECKPOINT))


def decoded(element: Data, keyed: bool) -> DecodedRows:
    edge_format = row_format(keyed)
    return edge_format.rows(edge_format.from_frame(element.payload))


class Edge:
    """A writer with its channels, and what has been sent on them."""

    def __init__(
        self, partitioner: Partitioner, channels: int, subtask: int = 0, parallelism: int = 1, keyed: bool = False
    ) -> None:
        self.keyed = keyed or partitioner.distribution is Distribution.KEYED
        self.record = RecordInProgress()
        self.mailbox = Mailbox()
        self.channels = [
            OutputChannel(ChannelId(0, subtask, i), BufferConfig(), lambda channel: None, self.mailbox.wake)
            for i in range(channels)
        ]
        names = [ChannelName(EdgeName("up", "down", "0.0"), subtask, i) for i in range(channels)]
        edge = PlannedEdge(
            index=0,
            upstream=0,
            downstream=1,
            partitioner=partitioner,
            tag=None,
            name=EdgeName("up", "down", "0.0"),
            input=0,
            carries_keys=self.keyed,
        )
        self.writer = RecordWriter(edge, self.channels, names, self.record, self.mailbox)
        self.emit = self.writer.emitter(subtask, parallelism, MAX_PARALLELISM)

    def set_target(self, frame_bytes: int) -> None:
        for channel in self.channels:
            channel.grant(Credit(1 << 40, 0, 1 << 20, frame_bytes))

    def elements(self, index: int) -> list[Any]:
        """What was sent on a channel: a list of values for a batch, else the element."""
        channel = self.channels[index]
        channel.grant(Credit(1 << 40, 0, 1 << 20, channel.target_bytes))
        found: list[Any] = []
        while (taken := channel.take()) is not None:
            element = taken[0]
            if isinstance(element, Data):
                batch = decoded(element, self.keyed)
                assert element.rows == len(batch.values)
                found.append(batch.values)
            else:
                found.append(element)
        return found

    def batch(self) -> DecodedRows:
        """The one batch of the first channel."""
        self.writer.flush()
        channel = self.channels[0]
        channel.grant(Credit(1 << 40, 0, 1 << 20, channel.target_bytes))
        taken = channel.take()
        assert taken is not None
        assert isinstance(taken[0], Data)
        return decoded(taken[0], self.keyed)

    def values(self) -> list[list[Any]]:
        """All values by channel."""
        self.writer.flush()
        return [[value for batch in self.elements(i) for value in batch] for i in range(len(self.channels))]


def emit_all(edge: Edge, values: Sequence[Any]) -> None:
    for value in values:
        edge.emit(value)


# -- where a record goes --------------------------------------------------------------------------------------


def test_forward_has_one_channel() -> None:
    edge = Edge(FORWARD, 1)
    emit_all(edge, [1, 2, 3])
    assert edge.values() == [[1, 2, 3]]


@pytest.mark.parametrize("subtask", [0, 1, 2, 5])
def test_rebalance_goes_round_and_each_upstream_subtask_begins_elsewhere(subtask: int) -> None:
    edge = Edge(REBALANCE, 3, subtask, 6)
    emit_all(edge, range(6))
    values = edge.values()
    assert [values[(subtask + i) % 3] for i in range(3)] == [[0, 3], [1, 4], [2, 5]]


def test_rebalance_spreads_evenly() -> None:
    edge = Edge(REBALANCE, 4, 1, 2)
    emit_all(edge, range(10))
    assert edge.values() == [[3, 7], [0, 4, 8], [1, 5, 9], [2, 6]]


def test_rescale_goes_round_its_own_share() -> None:
    edge = Edge(RESCALE, 2, 1, 2)
    emit_all(edge, range(4))
    assert edge.values() == [[0, 2], [1, 3]]


def test_broadcast_goes_to_all() -> None:
    edge = Edge(BROADCAST, 3)
    emit_all(edge, [1, 2])
    assert edge.values() == [[1, 2], [1, 2], [1, 2]]
    assert edge.writer.records == 6


def test_custom_asks_the_function_with_the_number_of_subtasks() -> None:
    asked = []

    def last(value: int, n: int) -> int:
        asked.append(n)
        return n - 1

    edge = Edge(Partitioner(Distribution.CUSTOM, function=last), 3)
    emit_all(edge, [7, 8])
    assert edge.values() == [[], [], [7, 8]]
    assert asked == [3, 3]


@pytest.mark.parametrize("chosen", [3, -1, 1.0, True, None, "0"])
def test_a_custom_choice_that_is_no_subtask_is_refused(chosen: Any) -> None:
    edge = Edge(Partitioner(Distribution.CUSTOM, function=lambda value, n: chosen), 3)
    with pytest.raises(ValueError, match="must choose a whole number from 0 to 2") as caught:
        edge.emit("x")
    assert f"the partitioner before 'down' chose subtask {chosen!r}" in str(caught.value)


def test_all_records_of_a_key_go_where_its_key_group_belongs() -> None:
    edge = Edge(Partitioner(Distribution.KEYED, key=KeySelector(0)), 5)
    keys = ["ann", "bob", 1, 2, ("a", 1), None, b"x"]
    for _ in range(2):
        emit_all(edge, [[key, "value"] for key in keys])
    for index, values in enumerate(edge.values()):
        for key, _ in values:
            group = key_group(encode_key(key), MAX_PARALLELISM)
            assert subtask_of(group, 5, MAX_PARALLELISM) == index


def test_equal_keys_of_different_types_stay_different_keys() -> None:
    """A dict would take 1, 1.0 and True for one key, and its state would be mixed."""
    edge = Edge(Partitioner(Distribution.KEYED, key=KeySelector("k")), 1)
    keys = [1, 1.0, True, "1", 1, 1.0, True, "1"]
    emit_all(edge, [{"k": key} for key in keys])
    batch = edge.batch()
    assert batch.keys is not None
    assert [(type(decode_key(key)), decode_key(key)) for key in batch.keys] == [(type(key), key) for key in keys]
    assert batch.key_groups == [key_group(key, MAX_PARALLELISM) for key in batch.keys]
    assert len(set(batch.keys)) == 4


def test_a_key_that_is_no_key_is_refused_before_anything_of_the_record_is_written() -> None:
    edge = Edge(Partitioner(Distribution.KEYED, key=KeySelector("k")), 1)
    for record, error in (({"k": {}}, EncodingError), ({}, KeyMissing), ({"k": 1, "v": 1j}, EncodingError)):
        with pytest.raises(error):
            edge.emit(record)
    assert not edge.writer.unsent


@pytest.mark.parametrize(
    "partitioner", [FORWARD, REBALANCE, BROADCAST, Partitioner(Distribution.CUSTOM, function=lambda v, n: 0)]
)
def test_a_value_that_cannot_travel_is_refused_with_the_path_to_it(partitioner: Partitioner) -> None:
    edge = Edge(partitioner, 2)
    with pytest.raises(EncodingError, match="can't encode complex at value\\['tags'\\]"):
        edge.emit({"tags": 1j})


def test_each_record_carries_the_timestamp_of_the_record_in_progress() -> None:
    edge = Edge(FORWARD, 1)
    for timestamp in (5, None, 7):
        edge.record.timestamp = timestamp
        edge.emit("x")
    assert edge.batch().timestamps == [5, None, 7]


# -- keys on forward edges ------------------------------------------------------------------------------------


def test_a_forward_edge_that_carries_keys_takes_them_from_the_record_in_progress() -> None:
    """Rows in flight there go by their key group when they are restored at another parallelism."""
    edge = Edge(FORWARD, 1, keyed=True)
    for key, group in ((b"\xa1a", 3), (b"\xa1b", 127)):
        edge.record.key_bytes, edge.record.key_group = key, group
        emit_all(edge, ["x", "y"])
    batch = edge.batch()
    assert batch.values == ["x", "y", "x", "y"]
    assert batch.keys == [b"\xa1a", b"\xa1a", b"\xa1b", b"\xa1b"]
    assert batch.key_groups == [3, 3, 127, 127]


def test_records_without_a_key_stay_together_on_an_edge_that_carries_keys() -> None:
    """Such as what a keyed operator emits for a broadcast stream. Behind the edge `ctx.key` is `None`, too."""
    edge = Edge(FORWARD, 1, subtask=1, parallelism=4, keyed=True)
    emit_all(edge, ["x", "y"])
    batch = edge.batch()
    assert batch.keys is not None
    assert [decode_key(key) for key in batch.keys] == [None, None]
    assert batch.key_groups == [32, 32]


# -- batches --------------------------------------------------------------------------------------------------


def test_a_batch_waits_until_it_is_flushed() -> None:
    edge = Edge(FORWARD, 1)
    assert not edge.writer.unsent
    emit_all(edge, [1, 2])
    assert edge.writer.unsent
    assert edge.elements(0) == []
    assert edge.writer.sent_bytes == 0
    edge.writer.flush()
    assert not edge.writer.unsent
    assert edge.writer.sent_bytes == edge.writer.queued_bytes > 0
    assert edge.elements(0) == [[1, 2]]
    assert edge.writer.records == 2


def test_flushing_without_rows_sends_nothing() -> None:
    edge = Edge(REBALANCE, 2)
    edge.emit("only the first")
    edge.writer.flush()
    edge.writer.flush()
    assert [edge.elements(i) for i in range(2)] == [[["only the first"]], []]


@pytest.mark.parametrize(
    "partitioner",
    [
        FORWARD,
        REBALANCE,
        BROADCAST,
        Partitioner(Distribution.KEYED, key=KeySelector(lambda value: "one")),
        Partitioner(Distribution.CUSTOM, function=lambda value, n: 0),
    ],
)
def test_a_batch_is_sealed_at_the_size_that_the_receiver_wishes(partitioner: Partitioner) -> None:
    edge = Edge(partitioner, 1)
    edge.set_target(2048)
    emit_all(edge, [b"x" * 500] * 10)
    assert [len(batch) for batch in edge.elements(0)] == [4, 4]
    assert edge.writer.unsent


def test_a_full_queue_interrupts_the_record_loop_but_takes_what_the_record_still_emits() -> None:
    edge = Edge(FORWARD, 1)
    edge.set_target(2048)
    while edge.writer.has_room:
        assert not edge.mailbox.interrupt
        edge.emit(b"x" * 500)
    assert edge.mailbox.interrupt
    emit_all(edge, [b"overdrawn"] * 5)
    edge.writer.flush()
    assert edge.writer.queued_bytes > 2 * 2048
    assert edge.elements(0)[-1] == [b"overdrawn"] * 5
    assert edge.writer.has_room
    edge.mailbox.wait(60)  # woken by the room


def test_there_is_room_only_if_every_channel_has_it() -> None:
    edge = Edge(Partitioner(Distribution.CUSTOM, function=lambda value, n: 1), 2)
    edge.set_target(2048)
    emit_all(edge, [b"x" * 500] * 20)
    assert edge.channels[0].has_room
    assert not edge.writer.has_room


def test_a_control_element_goes_on_every_channel_behind_all_that_was_written() -> None:
    """A half-built batch that stayed behind its barrier would be in neither checkpoint."""
    edge = Edge(REBALANCE, 3)
    emit_all(edge, [1, 2])
    edge.writer.broadcast(BARRIER)
    emit_all(edge, [3])
    edge.writer.broadcast(EndOfInput())
    assert [edge.elements(i) for i in range(3)] == [
        [[1], BARRIER, EndOfInput()],
        [[2], BARRIER, EndOfInput()],
        [BARRIER, [3], EndOfInput()],
    ]


def _changed_partitioner(value: list[int], subtasks: int) -> int:
    value.append(0)
    return 0


def _changed_key(value: list[int]) -> int:
    value.append(0)
    return 1


@pytest.mark.parametrize(
    "partitioner",
    [
        Partitioner(Distribution.CUSTOM, function=_changed_partitioner),
        Partitioner(Distribution.KEYED, key=KeySelector(_changed_key)),
    ],
)
def test_a_users_function_gets_a_copy_of_a_record_that_others_get_too(partitioner: Partitioner) -> None:
    edge = Edge(partitioner, 1)
    value = [1]
    edge.writer.emitter(0, 1, MAX_PARALLELISM, shared=True)(value)
    assert value == [1]
