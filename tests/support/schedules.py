"""A pipeline in a harness under a random schedule: parallelisms, interleavings, and restarts at any record."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from time_oracles import Run
from timed_input import Arrival

from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.state.files import load_keyed_state
from checkpoint.state_backends import StateBackend
from pipeline import CheckpointConfig, Pipeline, PipelineError
from pipeline.testing import PipelineHarness, PipelineSnapshot, TestingSink, TestingSource
from sinks import Sink
from sources import Source

MOST: Final = 7
"""Subtasks of a step."""


class Ends(NamedTuple):
    """Where a pipeline begins and ends: makes a source or a sink of a name."""

    source: Callable[[str], Source]
    sink: Callable[[str], Sink]


IN_HARNESS: Final = Ends(lambda name: TestingSource(), lambda name: TestingSink())
Some: TypeAlias = Callable[[], int]
Build: TypeAlias = Callable[[Pipeline, Some, Some], None]
"""Adds steps with parallelisms that it is given, the second ones for sources. The `assign_timestamps` of a source is
called `time of` it."""


class Schedule:
    """One run of a pipeline over all of its input."""

    def __init__(
        self,
        seed: int,
        build: Build,
        arrivals: Sequence[Arrival],
        partitions: int,
        readers: int = MOST,
        checkpoints: CheckpointConfig | Callable[[], CheckpointConfig] | None = None,
        settled: bool = False,
    ) -> None:
        """
        Args:
            checkpoints: where state is, and whether checkpoints are incremental; asked anew at each restart, if it is a
                function. Then there are many of them, of which some fail.
            settled: no record is on its way while the clock goes on, so that `sent` tells when each was processed.
            partitions: of each source.
            readers: subtasks of a source, at most. Those without partitions are idle.
        """
        self._rng = random.Random(seed)
        self._build = build
        self._arrivals = arrivals
        self._partitions = dict.fromkeys(sorted({one.source for one in arrivals}), partitions)
        self._readers = readers
        self._checkpoints = checkpoints
        self._settled = settled
        self.sent: dict[int, int] = {}
        """By id when the clock said that a record was read, in milliseconds."""
        self._reached: dict[tuple[str, int], int | None] = {}
        """By source and partition the highest watermark of the subtask that reads it."""
        self._bounds: dict[int, int | None] = {}
        self._outputs: dict[str, list[Any]] = {}
        self.in_flight = 0
        """Records in flight in all snapshots that were restored."""
        self.aborted = 0
        """Checkpoints that failed."""

    def run(self, sinks: Sequence[str], idles: bool, frees: bool = True) -> Run:
        """
        Args:
            idles: sources may fall idle. Then a record may come late behind any watermark, that of the end included:
                others go on while it waits in a channel that counts as idle.
            frees: once all input has ended nothing may be kept of any key.
        """
        rng = self._rng
        self._outputs = {sink: [] for sink in sinks}
        harness = PipelineHarness(self._pipeline(), seed=self._seed(), partitions=self._partitions)
        cuts = sorted(rng.sample(range(len(self._arrivals)), rng.choice((0, 1, 2, 3, 5))))
        for number, one in enumerate(self._arrivals):
            if number in cuts:
                harness = self._restart(harness, self._arrivals[number : number + rng.randint(0, 30)])
            self._send(harness, one)
            if self._checkpoints is not None and rng.random() < 0.1:
                self._checkpoint(harness)
        sources = [vertex.head.id for vertex in harness.plan.vertices if vertex.is_source]
        for source in rng.sample(sources, len(sources)):
            harness.end_of_input(source)
            if rng.random() < 0.3:
                harness = self._restart(harness, ())
        harness.deliver()
        self._take(harness)
        left = state_left(harness.snapshot()) if frees else []
        assert not left, f"state is left: {left[:5]}"
        bounds = dict.fromkeys(self._bounds, MAX_WATERMARK) if idles else self._bounds
        return Run(self._arrivals, bounds, self._outputs)

    def _pipeline(self) -> Pipeline:
        checkpoints = self._checkpoints() if callable(self._checkpoints) else self._checkpoints
        p = Pipeline("any schedule", max_parallelism=16, checkpoints=checkpoints)
        self._build(p, lambda: self._rng.randint(1, MOST), lambda: self._rng.randint(1, self._readers))
        return p

    def _send(self, harness: PipelineHarness, one: Arrival) -> None:
        if one.wait:
            self._advance(harness, one.wait)
        self.sent[one.id] = int(harness.clock() * 1000)
        harness.send(one.source, one.value, partition=one.partition)
        # What is behind this record in its channels can't have been overtaken by a later watermark.
        watermarks, place = harness.watermarks(f"time of {one.source}"), (one.source, one.partition)
        told = [watermarks[one.partition % len(watermarks)], self._reached.get(place)]
        self._bounds[one.id] = self._reached[place] = max((at for at in told if at is not None), default=None)

    def _advance(self, harness: PipelineHarness, seconds: float) -> None:
        if self._settled:
            harness.deliver()
        harness.advance_time(seconds)

    def _checkpoint(self, harness: PipelineHarness) -> None:
        """One that nobody restores. Of some a file can't be written, and others go on without having it all."""
        rng, files = self._rng, harness._files
        if rng.random() < 0.5:
            harness.snapshot(aligned=rng.random() < 0.3)
            return
        left = rng.randint(0, 5)

        def create(path: str) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError("no space left")
            return type(files).create(files, path)

        files.create = create  # type: ignore[method-assign]
        try:
            harness.snapshot(aligned=rng.random() < 0.3)
        except PipelineError:
            self.aborted += 1
        finally:
            del files.create

    def _restart(self, harness: PipelineHarness, lost: Sequence[Arrival]) -> PipelineHarness:
        """From a snapshot of now, at other parallelisms. `lost`: what the old attempt goes on with, to no avail."""
        rng = self._rng
        if rng.random() < 0.5:
            self._advance(harness, rng.choice((0.01, 0.3)))
        snapshot = harness.snapshot(aligned=rng.random() < 0.3)
        self.in_flight += snapshot.in_flight_records
        self._take(harness)
        reached = self._reached.copy()
        for one in lost:
            self._send(harness, one)
        self._reached = reached
        return PipelineHarness.restore(self._pipeline(), snapshot, seed=self._seed())

    def _seed(self) -> int | None:
        return self._rng.choice((None, self._rng.randrange(2**32), self._rng.randrange(2**32)))

    def _take(self, harness: PipelineHarness) -> None:
        for sink, outputs in self._outputs.items():
            outputs += harness.take(sink)


def state_left(snapshot: PipelineSnapshot) -> list[Any]:
    """What is kept of keys: steps, states and keys."""
    left = []
    for vertex in snapshot.metadata.vertices.values():
        for subtask in vertex.subtasks:
            for step, operator in subtask.operators.items():
                if operator.keyed_state:
                    left += [(step, batch) for batch in load_keyed_state(snapshot.storage, operator.keyed_state)]
    return left


def incremental(rng: random.Random) -> CheckpointConfig:
    """Of which nothing is written anywhere: a harness keeps its files in memory."""
    backend: StateBackend = rng.choice(("heap", "heap", "rocksdb"))
    return CheckpointConfig("file:///nowhere", incremental=True, state_backend=backend)


OneSchedule: TypeAlias = Callable[[int], tuple[int, int]]
"""Runs the schedule of a seed and checks what comes out; two counts of what it had, such as how many records were late,
and in flight in snapshots."""


def in_schedules(what: str, seeds: Iterable[int], one_schedule: OneSchedule) -> tuple[int, int]:
    """What all of them had. A failure names the seed."""
    late = in_flight = 0
    for seed in seeds:
        try:
            some, overtaken = one_schedule(seed)
        except BaseException as error:
            error.add_note(f"{what}, seed {seed}")
            raise
        late, in_flight = late + some, in_flight + overtaken
    return late, in_flight


def thousands() -> range:
    """The seeds of a long run."""
    first = random.randrange(10**9)
    return range(first, first + 2000)
