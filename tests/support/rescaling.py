"""Jobs that are restored at one parallelism after the other, from checkpoints that hold records in flight.

Every hop checks each record and notes where it was, so that a validator can tell from the output what happened to
every one of them. A record is named by its source and its id; all records of a source with one key are read by one
subtask, with growing ids.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deadlines import PATIENCE
from rescaling_steps import PacedSink, Phase, magic_of
from rescaling_topologies import Edge, Topology
from small_job import NEVER, running, storage_of

from checkpoint.in_flight import channel_state
from checkpoint.in_flight.captured import Part
from checkpoint.storage.metadata import CheckpointMetadata
from pipeline import (
    BufferConfig,
    CheckpointConfig,
    JobFailed,
    JobHandle,
    Pipeline,
    RestartStrategy,
)


def build(name: str, topology: Topology, phase: Phase, max_parallelism: int = 128, **checkpoints: Any) -> Pipeline:
    config = CheckpointConfig(
        (phase.folder / "checkpoints").as_uri(), **{**NEVER, "alignment": "unaligned", **checkpoints}
    )
    p = Pipeline(
        name,
        parallelism=phase.parallelism,
        max_parallelism=max_parallelism,
        checkpoints=config,
        restart=RestartStrategy.none(),
        buffers=BufferConfig(max_bytes=16 * 1024, frame_bytes=4 * 1024, debloat=False),
    )
    topology.build(p, phase).sink("out", PacedSink(phase))
    return p


# -- phases ---------------------------------------------------------------------------------------------------------


def newest(pipeline: Pipeline) -> CheckpointMetadata:
    storage = storage_of(pipeline)
    return storage.load(storage.list_checkpoints()[-1])


def rows_between(metadata: CheckpointMetadata) -> dict[Edge, int]:
    """Rows in flight by the steps that an edge joins."""
    rows: Counter[Edge] = Counter()
    for edge, count in metadata.in_flight_rows().items():
        rows[edge.upstream, edge.downstream] += count
    return dict(rows)


def captured(pipeline: Pipeline, metadata: CheckpointMetadata) -> dict[Part, set[Edge]]:
    """The edges that have rows in each part of the channel state."""
    storage = storage_of(pipeline)
    edges: dict[Part, set[Edge]] = {part: set() for part in Part}
    for vertex in metadata.vertices.values():
        for index, subtask in enumerate(vertex.subtasks):
            for handle in subtask.channel_state:
                for part, _, (edge, *_) in (run.origin for run in channel_state.load(storage, handle, index)):
                    edges[part].add((edge.upstream, edge.downstream))
    return edges


def checkpoint_with(pipeline: Pipeline, handle: JobHandle, edges: Iterable[Edge]) -> CheckpointMetadata:
    """Take checkpoints until the drain is over and one finds the buffers full: on each of these edges there are records
    both at the inputs and, overtaken by the barrier, in the output queues."""
    deadline = time.monotonic() + PATIENCE
    wanted = set(edges)
    while True:
        handle.checkpoint(PATIENCE)
        metadata = newest(pipeline)
        if not metadata.replaying:
            found = captured(pipeline, metadata)
            if wanted <= found[Part.INPUT] & found[Part.OUTPUT] & set(rows_between(metadata)):
                return metadata
        assert time.monotonic() < deadline, f"in flight: {rows_between(metadata)}, replaying: {metadata.replaying}"


def crash(handle: JobHandle, phase: Phase) -> None:
    phase.crash.touch()
    with pytest.raises(JobFailed, match="the sink was told to fail"):
        handle.wait(PATIENCE)


@dataclass
class Tour:
    """A job that is restored at one parallelism after the other."""

    name: str
    topology: Topology
    folder: Path
    spark: Any
    slow: str = "sink"
    """`sink`: full buffers; `source`: almost nothing in flight."""
    phases: list[Phase] = field(default_factory=list)

    def phase(self, parallelism: int, last: bool = False) -> Phase:
        source_pause = 0.01 if self.slow == "source" else 0.0
        sink_pause = 0.004 if self.slow == "sink" and not last else 0.0
        one = Phase(len(self.phases), parallelism, self.folder, source_pause, sink_pause)
        self.phases.append(one)
        return one

    @contextmanager
    def running(
        self, parallelism: int, last: bool = False, start: Mapping[str, Any] | None = None, **options: Any
    ) -> Iterator[tuple[Phase, Pipeline, JobHandle]]:
        """A started phase, cancelled at the end unless it has ended.

        Args:
            last: the sink takes its time no more.
            start: options of `Pipeline.start`.
            options: of `build`.
        """
        phase = self.phase(parallelism, last)
        pipeline = build(self.name, self.topology, phase, **options)
        with running(pipeline, self.spark, **(start or {})) as handle:
            yield phase, pipeline, handle

    def until_full(self, parallelism: int, fail: bool = False, **options: Any) -> CheckpointMetadata:
        """Run, drained from what was restored, until an unaligned checkpoint finds all buffers full; then leave."""
        with self.running(parallelism, **options) as (phase, pipeline, handle):
            # Checkpoints that begin aligned, and the gate that goes with them, may leave the buffers empty.
            full = self.slow == "sink" and options.get("alignment", "unaligned") == "unaligned"
            edges = self.topology.wanted(phase) if full else ()
            metadata = checkpoint_with(pipeline, handle, edges)
            if fail:
                crash(handle, phase)
        return metadata

    def first_checkpoint(self, parallelism: int, fail: bool = False, **options: Any) -> CheckpointMetadata:
        """Run until one checkpoint is complete, triggered as soon as the job runs; then leave."""
        with self.running(parallelism, **options) as (phase, pipeline, handle):
            handle.checkpoint(PATIENCE)
            metadata = newest(pipeline)
            if fail:
                crash(handle, phase)
        return metadata

    def finish(self, parallelism: int, **options: Any) -> list[dict[str, Any]]:
        """Run to the end; returns the output."""
        phase = self.phase(parallelism, last=True)
        phase.end.touch()
        build(self.name, self.topology, phase, **options).run(spark=self.spark, timeout=PATIENCE)
        return PacedSink(phase).records

    def seen(self, step: str) -> int:
        """Records that a hop had counted in its state when the job ended."""
        files = self.folder.glob(f"seen-{self.phases[-1].number}-{step}-*")
        return sum(int(path.read_text()) for path in files)


# -- what came of it ------------------------------------------------------------------------------------------------


def findings(tour: Tour, output: list[dict[str, Any]]) -> list[str]:
    """What is wrong with the output; an invariant over all records."""
    topology, wrong = tour.topology, []
    rules = [record for record in output if "rule" in record]
    records = [record for record in output if "rule" not in record and record["source"] != "timer"]
    wrong += [f"corrupted {record}" for record in output if record.get("magic") != magic_of(record)]
    emitted = {
        (name, int(k)): int(path.read_text())
        for path in tour.folder.glob("emitted-*")
        for name, k in [path.name.removeprefix("emitted-").rsplit("-", 1)]
    }
    expected = Counter({(n, k, i): 1 for (n, k), count in emitted.items() if n != "rules" for i in range(count)})
    if topology.copies:
        wrong += _of_copies(tour, records)
        records = [record for record in records if record["copy"][1] == 0]
    found = Counter((record["source"], record["partition"], record["id"]) for record in records)
    wrong += [f"lost {record}" for record in expected - found]
    wrong += [f"duplicated {record} ({n} more)" for record, n in (found - expected).items()]
    for step in topology.keyed:
        wrong += _of_step(step, [record for record in records if step in record["trace"]], step in topology.ordered)
    for hop in topology.hops:
        passed = sum(hop in record["trace"] for record in output)
        if tour.seen(hop) != passed:
            wrong.append(f"{hop} counted {tour.seen(hop)} records, and {passed} came out of it")
    if topology.output_ordered:
        wrong += _out_of_order("the output", records)
    wrong += _of_rules(tour, rules, sum(count for (name, _), count in emitted.items() if name == "rules"))
    return wrong


def _of_step(step: str, records: list[dict[str, Any]], ordered: bool) -> list[str]:
    wrong = []
    by_key: dict[str, list[dict[str, Any]]] = defaultdict(list)
    places: dict[tuple[int, str], set[int]] = defaultdict(set)
    for record in records:
        phase, subtask, _ = record["trace"][step]
        by_key[record["key"]].append(record)
        places[phase, record["key"]].add(subtask)
    wrong += [
        f"{step}: key {k} was in subtasks {at} in phase {phase}" for (phase, k), at in places.items() if at - {min(at)}
    ]
    for key, of_key in by_key.items():
        of_key.sort(key=lambda record: record["trace"][step][2])
        numbers = [record["trace"][step][2] for record in of_key]
        if numbers != list(range(1, len(numbers) + 1)):
            wrong.append(f"{step}: records of key {key} are numbered {numbers}")
        if ordered:
            wrong += _out_of_order(step, of_key)
    return wrong


def _out_of_order(where: str, records: list[dict[str, Any]]) -> list[str]:
    last: dict[tuple[str, str], int] = {}
    wrong = []
    for record in records:
        name = record["source"], record["key"]
        if record["id"] < last.get(name, -1):
            wrong.append(f"{where}: {name} {record['id']} comes behind {last[name]}: {record['trace']}")
        last[name] = record["id"]
    return wrong


def _of_copies(tour: Tour, records: list[dict[str, Any]]) -> list[str]:
    """Each record was seen once by every subtask of one phase."""
    seen: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
    for record in records:
        seen[record["partition"], record["id"]].append(record["copy"])
    return [
        f"record {name} came to (phase, subtask) {sorted(copies)}"
        for name, copies in seen.items()
        if sorted(copies) != [[copies[0][0], i] for i in range(tour.phases[copies[0][0]].parallelism)]
    ]


def _of_rules(tour: Tour, rules: list[dict[str, Any]], emitted: int) -> list[str]:
    """Each rule was seen once by every subtask of one phase, as the next one."""
    seen: dict[tuple[int, int], list[list[int]]] = {}
    for rule in rules:
        seen.setdefault((rule["partition"], rule["id"]), []).append(rule["rule"])
    wrong = []
    numbers = []
    for name, places in seen.items():
        phase = tour.phases[places[0][0]]
        number = places[0][2]
        numbers.append(number)
        if sorted(places) != [[phase.number, subtask, number] for subtask in range(phase.parallelism)]:
            wrong.append(f"rule {name} came to (phase, subtask, number) {sorted(places)}")
    if sorted(numbers) != list(range(1, emitted + 1)):
        wrong.append(f"rules are numbered {sorted(numbers)}, and {emitted} were emitted")
    return wrong
