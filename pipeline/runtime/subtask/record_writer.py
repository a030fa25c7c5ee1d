"""From a chain's last step into the channels: partition, encode, batch, seal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from checkpoint.codec import copied, encode, encode_key
from checkpoint.edge_format import NO_KEY, BatchBuilder
from checkpoint.elements import BarrierElement, ChannelName, Data
from checkpoint.in_flight.output_queue import Captured
from checkpoint.key_groups import key_group, range_of, subtask_of
from pipeline.partitioners import Distribution, Partitioner
from pipeline.plan import PlannedEdge
from pipeline.runtime.network.output_channel import OutputChannel
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.record_in_progress import RecordInProgress

_CACHED_KEYS = 100_000


class RecordWriter:
    """Writes one edge: a half-built batch for each channel, sealed at the target size or by `flush`.

    Never blocks: what one record emits may overdraw the output queues. `Mailbox.interrupt` is set once a queue is
    full, so that the record loop stops before the next record.
    """

    def __init__(
        self,
        edge: PlannedEdge,
        channels: Sequence[OutputChannel],
        names: Sequence[ChannelName],
        record: RecordInProgress,
        mailbox: Mailbox,
    ):
        """`names`: those of `channels`, in the same order."""
        self.edge = edge
        self.channels = channels
        self.names = names
        self.records = 0
        """Records sealed so far."""
        self.sent_bytes = 0
        self.overdraft_bytes = 0
        """The most by which a record's outputs have exceeded the limit of an output queue."""
        self._record = record
        self._mailbox = mailbox
        self._to_frame = edge.format.to_frame
        self._builders = [edge.format.builder() for _ in channels]

    def seal(self, index: int) -> None:
        """Send the half-built batch of a channel, if it has rows."""
        builder = self._builders[index]
        if builder.rows:
            channel = self.channels[index]
            rows = builder.rows
            frame = self._to_frame(builder.seal())
            self.records += rows
            self.sent_bytes += frame.size
            channel.send(Data(frame, frame.size, rows))
            if not channel.has_room:
                self._mailbox.interrupt = True
                self.overdraft_bytes = max(self.overdraft_bytes, channel.overdrawn_bytes)

    def flush(self) -> None:
        """Seal every half-built batch."""
        for index in range(len(self._builders)):
            self.seal(index)

    @property
    def has_room(self) -> bool:
        return all(channel.has_room for channel in self.channels)

    @property
    def unsent(self) -> bool:
        """Whether there is a half-built batch."""
        return any(builder.rows for builder in self._builders)

    @property
    def queued_bytes(self) -> int:
        return sum(channel.queued_bytes for channel in self.channels)

    def broadcast(self, element: Any) -> None:
        """Send a control element on every channel, behind all that was written."""
        self.flush()
        for channel in self.channels:
            channel.send(element)

    def overtake(self, barrier: BarrierElement, record: Callable[[ChannelName, Captured], None]) -> None:
        """Send an unaligned barrier on every channel, in front of all that was written; half-built batches count as
        written. `record` as for `OutputChannel.overtake`."""
        self.flush()
        for channel, name in zip(self.channels, self.names, strict=True):
            channel.overtake(barrier, partial(record, name))

    def make_unaligned(self, checkpoint_id: int, record: Callable[[ChannelName, Captured], None]) -> None:
        """Let the aligned barriers up to this id overtake what is queued."""
        for channel, name in zip(self.channels, self.names, strict=True):
            channel.make_unaligned(checkpoint_id, partial(record, name))

    def emitter(
        self, subtask: int, parallelism: int, max_parallelism: int, shared: bool = False
    ) -> Callable[[Any], None]:
        """The function that writes one record of this edge, compiled for its partitioner.

        Args:
            subtask, parallelism: those of the upstream vertex.
            shared: others get the record, too, so that the user's function must not change it.
        """
        emit = self._emitter(subtask, parallelism, max_parallelism)
        partitioner = self.edge.partitioner
        runs_user_code = partitioner.function or (partitioner.key and callable(partitioner.key.field))
        return (lambda value: emit(copied(value))) if shared and runs_user_code else emit

    def _emitter(self, subtask: int, parallelism: int, max_parallelism: int) -> Callable[[Any], None]:
        partitioner, downstreams = self.edge.partitioner, len(self.channels)
        match partitioner.distribution:
            case Distribution.KEYED:
                return self._keyed(partitioner, downstreams, max_parallelism)
            case Distribution.FORWARD:
                if not self.edge.carries_keys:
                    return self._round_robin([0])
                return self._forward_keyed(range_of(subtask, parallelism, max_parallelism).start)
            case Distribution.REBALANCE:
                # Each upstream subtask begins elsewhere, so that few records still spread evenly.
                return self._round_robin([(subtask + i) % downstreams for i in range(downstreams)])
            case Distribution.RESCALE:
                return self._round_robin(list(range(downstreams)))
            case Distribution.CUSTOM:
                return self._custom(partitioner, downstreams)
            case Distribution.BROADCAST:
                return self._to_all()

    def _keyed(self, partitioner: Partitioner, downstreams: int, max_parallelism: int) -> Callable[[Any], None]:
        assert partitioner.key is not None
        key_of, record, builders, seal = partitioner.key.compile(), self._record, self._builders, self.seal
        channel_of = [subtask_of(group, downstreams, max_parallelism) for group in range(max_parallelism)]
        channels = self.channels
        # Only strings are cached by themselves: 1, 1.0 and True are equal in a dict and different keys here.
        cache: dict[str, tuple[bytes, int, int, BatchBuilder, OutputChannel]] = {}

        def emit(value: Any) -> None:
            key = key_of(value)
            known = cache.get(key) if type(key) is str else None
            if known is None:
                encoded = encode_key(key)
                group = key_group(encoded, max_parallelism)
                index = channel_of[group]
                known = (encoded, group, index, builders[index], channels[index])
                if type(key) is str:
                    if len(cache) >= _CACHED_KEYS:
                        cache.clear()
                    cache[key] = known
            encoded, group, index, builder, channel = known
            builder.append_keyed(encode(value), record.timestamp, encoded, group)
            if builder.size >= channel.target_bytes:
                seal(index)

        return emit

    def _round_robin(self, order: list[int]) -> Callable[[Any], None]:
        record, builders, seal, channels = self._record, self._builders, self.seal, self.channels
        if len(order) == 1:
            only = order[0]
            builder, channel = builders[only], channels[only]

            def emit_one(value: Any) -> None:
                builder.append(encode(value), record.timestamp)
                if builder.size >= channel.target_bytes:
                    seal(only)

            return emit_one
        place = 0

        def emit(value: Any) -> None:
            nonlocal place
            index = order[place]
            place = (place + 1) % len(order)
            builder = builders[index]
            builder.append(encode(value), record.timestamp)
            if builder.size >= channels[index].target_bytes:
                seal(index)

        return emit

    def _forward_keyed(self, own_group: int) -> Callable[[Any], None]:
        record, builder, channel, seal = self._record, self._builders[0], self.channels[0], self.seal

        def emit(value: Any) -> None:
            key = record.key_bytes
            if key is None:  # it came from a broadcast stream, say
                builder.append_keyed(encode(value), record.timestamp, NO_KEY, own_group)
            else:
                builder.append_keyed(encode(value), record.timestamp, key, record.key_group)
            if builder.size >= channel.target_bytes:
                seal(0)

        return emit

    def _to_all(self) -> Callable[[Any], None]:
        record, seal = self._record, self.seal
        targets = list(enumerate(zip(self._builders, self.channels, strict=True)))

        def emit(value: Any) -> None:
            encoded, timestamp = encode(value), record.timestamp
            for index, (builder, channel) in targets:
                builder.append(encoded, timestamp)
                if builder.size >= channel.target_bytes:
                    seal(index)

        return emit

    def _custom(self, partitioner: Partitioner, downstreams: int) -> Callable[[Any], None]:
        assert partitioner.function is not None
        choose, record, builders, seal = partitioner.function, self._record, self._builders, self.seal
        channels, step = self.channels, self.edge.downstream_step

        def emit(value: Any) -> None:
            index = choose(value, downstreams)
            if type(index) is not int or not 0 <= index < downstreams:
                raise ValueError(
                    f"the partitioner before {step!r} chose subtask {index!r}; it must choose a whole number from 0 to "
                    f"{downstreams - 1}"
                )
            builder = builders[index]
            builder.append(encode(value), record.timestamp)
            if builder.size >= channels[index].target_bytes:
                seal(index)

        return emit
