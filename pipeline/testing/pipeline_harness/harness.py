"""`PipelineHarness`: a pipeline, run as in a job, without one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Unpack

from checkpoint.counted import counted
from checkpoint.options import named_options, nearest
from pipeline.graph import StepKind
from pipeline.job import Pipeline
from pipeline.plan import Vertex
from pipeline.runtime.topology_changes import edge_shapes
from pipeline.testing.clock import ManualClock
from pipeline.testing.pipeline_harness.async_subtask import AsyncHarnessSubtask
from pipeline.testing.pipeline_harness.harness_context import HarnessContext
from pipeline.testing.pipeline_harness.memory_files import MemoryFiles
from pipeline.testing.pipeline_harness.snapshot import PipelineSnapshot, make_metadata, restored_parts
from pipeline.testing.pipeline_harness.stubs import pickled_code
from pipeline.testing.pipeline_harness.subtask import HarnessSubtask
from pipeline.testing.source_record import SourceFields, SourceRecord, check_source_fields

_PACES: Final = (0.5, 0.9, 0.98, 0.995)
"""By seed: the chance that one more step is taken before the next call returns."""
_LOOKS: Final = 100
"""How often at most the subtasks look at the clock while it is advanced."""


@named_options
class PipelineHarness:
    """Runs all subtasks of a pipeline in this process, record by record, with no Spark and no Kafka.

    Records are encoded, partitioned and put into channels as in a job, watermarks are combined from channels, state and
    what is in flight are restored and rescaled by the same code. Sources are not read: the test gives the records.
    Sinks don't write: what comes to them is kept.

        p = Pipeline("totals", parallelism=3)
        p.source("orders", KafkaSource(…)).key_by("user").process("totals", RunningTotal()).sink("out", KafkaSink(…))
        harness = PipelineHarness(p)
        harness.send("orders", {"user": "ann", "amount": 2.5})
        assert harness.outputs("out") == [{"user": "ann", "total": 2.5}]

    A step that nobody reads counts as a sink, so a pipeline needs none: `harness.outputs("totals")`. Every subtask has
    functions and operators of its own, as in a job: a list of the test that a function appends to stays empty.

    An error in a step is raised as it is, with a note of the step and the subtask.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        seed: int | None = None,
        partitions: Mapping[str, int] | None = None,
        clock: ManualClock | None = None,
    ):
        """
        Args:
            pipeline: the one to run.
            seed: records and watermarks wait in their channels, and the seed chooses which subtask goes on with which,
                and how often: one of the interleavings that a job may have. Then outputs come later, at the latest with
                `deliver`. `None` = whatever is sent goes through everything at once.
            partitions: of each source, by its id; 1 for those that are left out. Partition *k* is read by subtask *k*
                modulo the source's parallelism.
            clock: the host's clock, in seconds since the epoch; without one it begins at 0.

        Raises:
            PipelineError: the pipeline can't run as written.
        """
        self._prepare(pipeline, seed, partitions or {}, clock or ManualClock(), None)

    @classmethod
    def restore(
        cls,
        pipeline: Pipeline,
        snapshot: PipelineSnapshot,
        *,
        seed: int | None = None,
        partitions: Mapping[str, int] | None = None,
        clock: ManualClock | None = None,
    ) -> PipelineHarness:
        """A harness that goes on from a snapshot, perhaps with other parallelisms. `outputs` begins empty: what had
        come out before is part of the snapshot.

        Args:
            pipeline: as the snapshot's, or changed as a job may be between two runs.
            partitions: `None` = as they were.
            clock: without one it stands where it stood.

        Raises:
            PipelineError: the pipeline can't run as written, or the snapshot doesn't fit it.
        """
        harness = cls.__new__(cls)
        clock = clock or ManualClock(snapshot.time)
        harness._prepare(pipeline, seed, snapshot.partitions if partitions is None else partitions, clock, snapshot)
        return harness

    def _prepare(
        self,
        pipeline: Pipeline,
        seed: int | None,
        partitions: Mapping[str, int],
        clock: ManualClock,
        snapshot: PipelineSnapshot | None,
    ) -> None:
        self.plan = pipeline.plan()
        self.clock = clock
        """The clock of all subtasks' hosts."""
        self._name = pipeline.name
        self._max_parallelism = pipeline.max_parallelism
        self._sources = {vertex.head.id: vertex for vertex in self.plan.vertices if vertex.is_source}
        for id in partitions:
            self._source(id)
        self._rng = None if seed is None else random.Random(seed)
        self._pace = 0.0 if self._rng is None else self._rng.choice(_PACES)
        checkpoints = pipeline.checkpoints
        self._files = MemoryFiles() if snapshot is None else snapshot.files.copy()
        self._storage = self._files.storage(self._name)
        self._world = HarnessContext(
            self.plan,
            edge_shapes(self.plan),
            pickled_code(self.plan),
            self._max_parallelism,
            clock,
            "heap" if checkpoints is None else checkpoints.state_backend,
            self._storage if checkpoints is not None and checkpoints.incremental else None,
            {id: partitions.get(id, 1) for id in self._sources},
        )
        parts = None if snapshot is None else restored_parts(snapshot, self.plan, self._max_parallelism)
        self._subtasks = [
            (AsyncHarnessSubtask if vertex.head.kind is StepKind.MAP_ASYNC else HarnessSubtask)(
                self._world, vertex, index, None if parts is None else parts[vertex.first_subtask + index]
            )
            for vertex in self.plan.vertices
            for index in range(vertex.parallelism)
        ]
        self._checkpoint = 0 if snapshot is None else snapshot.metadata.id
        self._ended: set[str] = set()
        for subtask in reversed(self._subtasks):
            subtask.open()
        if snapshot is not None:
            for id in snapshot.ended & self._sources.keys():
                self._end(id)
        self._go_on()

    # -- what goes in -------------------------------------------------------------------------------------------

    def send(self, source: str, value: Any, timestamp: int | None = None, **fields: Unpack[SourceFields]) -> None:
        """A source reads a record.

        Args:
            source: its step's id.
            timestamp: what the source itself tells, in milliseconds since the epoch, as Kafka does.
            fields: the rest of what `ctx` tells of the record in steps that are chained to the source: partition (0 if
                it isn't given), topic, offset, headers and kafka_key.

        Raises:
            EncodingError: the record, a key or an output couldn't travel in a channel.
            Exception: a step has failed; a note says which.
        """
        if timestamp is not None and type(timestamp) is not int:
            raise TypeError(f"a timestamp is an int, in milliseconds since the epoch, or None, not {timestamp!r}")
        check_source_fields(fields)
        partition = fields.setdefault("partition", 0)
        vertex = self._source(source)
        number = self._world.partitions[source]
        if type(partition) is not int or not 0 <= partition < number:
            raise ValueError(
                f"source {source!r} has {counted(number, 'partition')} here, of which {partition!r} is none: "
                f"PipelineHarness(…, partitions={{{source!r}: …}})"
            )
        if source in self._ended:
            raise ValueError(f"source {source!r} has ended")
        subtask = self._subtasks[vertex.subtasks[partition % vertex.parallelism]]
        self._finish(subtask)
        subtask.read(value, timestamp, partition, SourceRecord(fields))
        self._go_on()

    def watermark(self, source: str, timestamp: int) -> None:
        """The watermark that leaves a source comes to `timestamp`, in milliseconds since the epoch, as if all its
        partitions had had records up to there. One that is not ahead of the last one does nothing.

        Usually it isn't needed: `assign_timestamps` sends a watermark as soon as a record moves it.

        Raises:
            TypeError: it is no int.
            ValueError: it is the end of event time, or beyond what 64 bits can hold.
        """
        if type(timestamp) is not int:
            raise TypeError(f"a watermark is an int, in milliseconds since the epoch, not {timestamp!r}")
        if not -(2**62) <= timestamp <= 2**62:
            raise ValueError(f"a watermark at {timestamp} is no time of a record; event time ends with end_of_input()")
        for number in self._source(source).subtasks:
            self._finish(self._subtasks[number])
            self._subtasks[number].reach(timestamp)
        self._go_on()

    def advance_time(self, seconds: float) -> None:
        """Let the clock of all hosts go on: processing timers fire, partitions without records become idle or quiet."""
        end = self.clock() + seconds
        least = seconds / _LOOKS
        while (now := self.clock()) < end:
            next_ = min((subtask.seconds_to_next(now) for subtask in self._subtasks), default=seconds)
            # Rounding must not leave the clock where it is.
            self.clock.advance_to(min(end, max(now + max(next_, least), now + 1e-6)))
            for subtask in self._subtasks:
                subtask.on_clock()
            self._go_on()

    def run_async(self, seconds: float = 3600.0) -> None:
        """Let the clock go on until all requests of `map_async` steps have been answered and what came of them has gone
        on. Functions may wait with `asyncio.sleep`, which takes no time of the test's, or for `FakeService.ask`.

        Args:
            seconds: so far at most, by the harness's clock.
        """
        self.deliver()
        end = self.clock() + seconds
        while any(subtask.requests_in_flight for subtask in self._subtasks):
            now = self.clock()
            next_ = min(subtask.seconds_to_next(now) for subtask in self._subtasks)
            if now + next_ > end:
                return
            self.advance_time(max(next_, 1e-6))
            self.deliver()

    def end_of_input(self, *sources: str) -> None:
        """Sources end, or all: event time ends where nobody else has something to say."""
        for source in sources or tuple(self._sources):
            self._source(source)
            self._end(source)
        self._go_on()

    def _end(self, source: str) -> None:
        self._ended.add(source)
        for number in self._sources[source].subtasks:
            self._subtasks[number].end()

    def deliver(self) -> None:
        """Have all that waits in channels processed. Without a seed nothing ever waits."""
        for _ in self._steps():
            pass

    # -- what comes out -----------------------------------------------------------------------------------------

    def outputs(self, step: str) -> list[Any]:
        """All that has come to a sink so far, or out of a step that nobody reads, in order.

        Raises:
            ValueError: there is no such step, or another one reads it.
        """
        if step not in self._world.outputs:
            known = ", ".join(map(repr, self._world.outputs)) or "none"
            hint = nearest(step, self._world.outputs)
            raise ValueError(
                f"outputs are kept of sinks and of steps that nobody reads, {known}; not of {step!r}{hint}"
            )
        return self._world.outputs[step]

    def take(self, step: str) -> list[Any]:
        """What `outputs` has, which is empty afterwards."""
        kept = self.outputs(step)
        taken = kept.copy()
        kept.clear()
        return taken

    def watermarks(self, step: str) -> list[int | None]:
        """How far event time is behind a step, in each of its subtasks: what it tells downstream. `None` = there is no
        watermark yet."""
        for vertex in self.plan.vertices:
            if any(one.id == step for one in vertex.steps):
                return [self._subtasks[number].chain.time.of[step].watermark for number in vertex.subtasks]
        raise ValueError(f"there is no step {step!r}")

    # -- checkpoints --------------------------------------------------------------------------------------------

    def snapshot(self, aligned: bool = False) -> PipelineSnapshot:
        """Take a checkpoint, and tell the operators that it is complete.

        Args:
            aligned: all that waits in channels is processed first. Else it is part of the snapshot, as where a barrier
                overtakes it, save for what comes from broadcast streams.

        Raises:
            PipelineError: the state can't be kept; says why.
        """
        if aligned:
            self.deliver()
        for subtask in self._subtasks:  # upstream ones first
            subtask.hold()
        self._checkpoint += 1
        if self._world.log_folder is None:
            self._files = MemoryFiles()
            self._storage = self._files.storage(self._name)
        taken = [subtask.snapshot(self._checkpoint, self._storage) for subtask in self._subtasks]
        metadata = make_metadata(
            self._checkpoint,
            self._name,
            self.plan,
            self._max_parallelism,
            taken,
            self.clock(),
            self._replaying,
            all(subtask.input_ended for subtask in self._subtasks),
        )
        for subtask in self._subtasks:
            subtask.chain.notify(self._checkpoint, completed=True)
        files = self._files.copy()
        return PipelineSnapshot(
            metadata,
            files.storage(self._name),
            files,
            self.clock(),
            dict(self._world.partitions),
            frozenset(self._ended),
        )

    def close(self) -> None:
        """Close the operators."""
        for subtask in self._subtasks:
            subtask.close()

    # -- inside -------------------------------------------------------------------------------------------------

    def _source(self, id: str) -> Vertex:
        if id not in self._sources:
            known = ", ".join(map(repr, self._sources))
            raise ValueError(f"there is no source {id!r} but {known}{nearest(id, self._sources)}")
        return self._sources[id]

    @property
    def _replaying(self) -> bool:
        return not all(subtask.replayed for subtask in self._subtasks)

    def _finish(self, subtask: HarnessSubtask) -> None:
        """Before a source reads on: what was in flight has gone through the job where it must, and what the source has
        to say of time is said."""
        if self._replaying:
            for _ in self._steps():
                if not self._replaying:
                    break
        while choices := subtask.choices():
            subtask.step(choices[0], None)

    def _go_on(self) -> None:
        """Do all there is to do; with a seed, some of it."""
        rng = self._rng
        if rng is None:
            self.deliver()
            return
        steps = self._steps()
        while rng.random() < self._pace:
            if not next(steps, False):
                return

    def _steps(self) -> Iterator[bool]:
        """Takes steps until there is none left; gives true after each."""
        rng = self._rng
        if rng is None:
            for subtask in self._subtasks:  # upstream ones first, so that nothing comes to those that are done
                while choices := subtask.choices():
                    subtask.step(choices[0], None)
                    yield True
            return
        while found := self._chosen(rng):
            subtask, choice = found
            subtask.step(choice, 1)
            yield True

    def _chosen(self, rng: random.Random) -> tuple[HarnessSubtask, Callable[[], None]] | None:
        number = len(self._subtasks)
        first = rng.randrange(number)
        for i in range(first, first + number):
            subtask = self._subtasks[i % number]
            if choices := subtask.choices():
                return subtask, choices[0] if len(choices) == 1 else rng.choice(choices)
        return None
