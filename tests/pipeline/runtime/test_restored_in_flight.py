"""In-flight data of a checkpoint on its way to the subtasks of a pipeline that may have changed: driver and subtask."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from captures import GROUPS, channel, data, shown
from checkpoint_folders import metadata_of
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.codec import decode, encode, encode_key
from checkpoint.edge_format import EdgeFormat
from checkpoint.elements import ChannelName, EdgeName, InFlight, Watermark
from checkpoint.event_time.bounds import MAX_WATERMARK
from checkpoint.in_flight import channel_state
from checkpoint.in_flight.captured import CapturedState
from checkpoint.key_groups import key_group, range_of
from checkpoint.storage.errors import DamagedFile
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.metadata import CheckpointMetadata, SubtaskSnapshot, VertexSnapshot
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.storage import CheckpointStorage
from pipeline import KeyedOperator, Operator, Pipeline, PipelineError, ValueState
from pipeline.plan import Plan
from pipeline.runtime.deployment import RestoredInFlight
from pipeline.runtime.driver.start.restore_plan import check_restorable
from pipeline.runtime.restored_in_flight import ask_custom_partitioners, in_flight_for, load_in_flight
from pipeline.runtime.topology_changes import edge_shapes, in_flight_misfits, must_replay, same_topology, snapshot_edges
from pipeline.testing import TestingSink, TestingSource


class Count(KeyedOperator):
    count = ValueState(default=0)

    def process(self, value: Any, ctx: Any) -> Any:
        yield value


class Same(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        yield value


Build = Callable[[Any], Any]
"""From the source's stream to that which the sink reads."""


def job(build: Build, source: int = 1, rest: int = 1) -> Plan:
    """in → (what a test builds) → out"""
    p = Pipeline("job", parallelism=rest, max_parallelism=GROUPS)
    build(p.source("in", TestingSource(), parallelism=source)).sink("out", TestingSink())
    return p.plan()


class Checkpointed:
    """A checkpoint on disk with what the subtasks of a plan captured."""

    def __init__(self, folder: Path, old: Plan) -> None:
        self.storage = CheckpointStorage(str(folder), "job")
        self.storage.prepare()
        self.old = old
        self.captured = {
            (vertex.name, i): CapturedState() for vertex in old.vertices for i in range(vertex.parallelism)
        }

    def edge(self, upstream: str, downstream: str) -> EdgeName:
        return EdgeName(upstream, downstream, "0.0")

    def at(self, name: ChannelName, elements: list[InFlight], output: bool = False) -> None:
        """Captured on the channel: at its downstream end, or in the output queue."""
        step, index = (name.edge.upstream, name.upstream) if output else (name.edge.downstream, name.downstream)
        (vertex,) = [v for v in self.old.vertices if any(s.id == step for s in v.steps)]
        state = self.captured[vertex.name, index]
        (state.outputs if output else state.inputs)[name] = elements

    def metadata(self, replaying: bool = False) -> CheckpointMetadata:
        shapes = edge_shapes(self.old)

        def format_of(edge: EdgeName) -> EdgeFormat:
            return shapes[edge].format

        def snapshot(name: str, index: int) -> SubtaskSnapshot:
            captured = self.captured[name, index]
            path = f"chk-5-1/{name.replace(' ', '')}-{index}-in.arrow"
            files: tuple[FileHandle, ...] = ()
            if captured:
                files = (channel_state.save(self.storage, path, captured, format_of, "lz4"),)
            return SubtaskSnapshot({}, files, captured.rows(), sum(captured.sizes().values()))

        vertices = {
            v.name: VertexSnapshot(tuple(snapshot(v.name, i) for i in range(v.parallelism))) for v in self.old.vertices
        }
        fields = {"max_parallelism": GROUPS, "vertices": vertices, "edges": snapshot_edges(self.old)}
        return metadata_of(CheckpointRef(5, 1), pipeline="job", replaying=replaying, **fields)

    def load(self, new: Plan, step: str) -> list[list[tuple[ChannelName, InFlight]]]:
        """The restored sequence of each subtask of the vertex with the step, as driver and subtasks work it out."""
        checkpoint = CheckpointMetadata.from_bytes(self.metadata().to_bytes())
        assert not list(in_flight_misfits(checkpoint, new))
        assigned = ask_custom_partitioners(checkpoint, new, self.storage)
        (vertex,) = [v for v in new.vertices if any(s.id == step for s in v.steps)]
        found = []
        for index in range(vertex.parallelism):
            mine = in_flight_for(vertex, index, checkpoint, new, GROUPS, assigned)
            sent = RestoredInFlight.from_wire(decode(encode(mine.to_wire())))
            assert sent == mine
            found.append(load_in_flight(sent, self.storage, new, vertex, index, GROUPS))
        return found


def contents(sequences: list[list[tuple[ChannelName, InFlight]]], keyed: bool = False) -> list[list[Any]]:
    return [shown((element for _, element in sequence), keyed) for sequence in sequences]


def test_in_flight_data_comes_from_the_files_of_both_ends(tmp_path: Path) -> None:
    build: Build = lambda s: s.rebalance().process("step", Same())  # noqa: E731
    c = Checkpointed(tmp_path, job(build, source=2, rest=2))
    edge = c.edge("in", "step")
    c.at(channel(0, 0, edge), [data(["queued at 0"])])
    c.at(channel(1, 1, edge), [data(["queued at 1"])])
    c.at(channel(1, 0, edge), [data(["sent to 0"])], output=True)
    assert contents(c.load(job(build, source=2, rest=2), "step")) == [["queued at 0", "sent to 0"], ["queued at 1"]]
    both = contents(c.load(job(build, source=2, rest=3), "step"))
    assert sorted(v for each in both for v in each) == ["queued at 0", "queued at 1", "sent to 0"]


def test_the_end_of_event_time_is_not_restored(tmp_path: Path) -> None:
    """A source that has ended says so again. One that was told to, since somebody drained the job, reads on."""
    build: Build = lambda s: s.rebalance().process("step", Same())  # noqa: E731
    c = Checkpointed(tmp_path, job(build))
    c.at(channel(0, 0, c.edge("in", "step")), [data(["a"]), Watermark(5), data(["b"]), Watermark(MAX_WATERMARK)])
    ((*kept,),) = c.load(job(build), "step")
    assert [element for _, element in kept if isinstance(element, Watermark)] == [Watermark(5)]
    assert contents([kept]) == [["a", ("watermark", 5), "b"]]


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(1, 5))
def test_keyed_in_flight_data_goes_where_the_keyed_state_goes(old: int, new: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        build: Build = lambda s: s.key_by(0).process("step", Count())  # noqa: E731
        c = Checkpointed(Path(folder), job(build, 2, old))
        edge = c.edge("in", "step")
        rows = [[key, key] for key in range(40)]
        for key, value in rows:
            group = key_group(encode_key(key), GROUPS)
            holder = group * old // GROUPS
            name = channel(key % 2, holder, edge)
            state = c.captured[next(n for n, _ in c.captured if n.startswith("step")), holder]
            state.inputs.setdefault(name, []).append(data([[key, value]], keyed=True))
        got = contents(c.load(job(build, 2, new), "step"), keyed=True)
        assert sorted(v for each in got for v in each) == rows
        for index, each in enumerate(got):
            mine = range_of(index, new, GROUPS)
            assert all(key_group(encode_key(key), GROUPS) in mine for key, _ in each)


def test_a_custom_partitioner_that_is_not_repeatable_loses_and_doubles_nothing(tmp_path: Path) -> None:
    asked: list[Any] = []

    def choose(value: Any, subtasks: int) -> int:
        asked.append(value)
        return len(asked) % subtasks

    build: Build = lambda s: s.partition_custom(choose).process("step", Same())  # noqa: E731
    c = Checkpointed(tmp_path, job(build, 1, 2))
    c.at(channel(0, 0, c.edge("in", "step")), [data(range(10))])
    got = contents(c.load(job(build, 1, 3), "step"))
    assert sorted(v for each in got for v in each) == list(range(10))
    assert len(asked) == 10


@pytest.mark.parametrize("chosen", [-1, 3, 7, True, "1"])
def test_a_custom_partitioner_that_chooses_nobody_is_refused(tmp_path: Path, chosen: Any) -> None:
    build: Build = lambda s: s.partition_custom(lambda value, n: chosen).process("step", Same())  # noqa: E731
    c = Checkpointed(tmp_path, job(build, 1, 2))
    c.at(channel(0, 0, c.edge("in", "step")), [data(["a"])])
    told = f"the partitioner before 'step' chose subtask {chosen!r}; it must choose a whole number from 0 to 2$"
    with pytest.raises(ValueError, match=told):
        c.load(job(build, 1, 3), "step")


def test_data_in_front_of_a_step_that_is_chained_now_enters_there_before_what_enters_at_the_head(
    tmp_path: Path,
) -> None:
    def build(stream: Any) -> Any:
        return stream.process("a", Same()).process("b", Same())

    # With another parallelism than the source's, "a" stands apart; then all three are one vertex.
    c = Checkpointed(tmp_path, job(lambda s: build(s.rebalance()).rebalance(), 1, 2))
    c.at(channel(0, 1, c.edge("in", "a")), [data(["before a"])])
    c.at(channel(1, 0, c.edge("b", "out")), [data(["before out"])])
    now = job(build, 1, 1)
    assert [step.id for step in now.vertices[0].steps] == ["in", "a", "b", "out"]
    (sequence,) = c.load(now, "in")
    assert [(name.edge.downstream, *shown([element])) for name, element in sequence] == [
        ("out", "before out"),
        ("a", "before a"),
    ]


def test_what_waited_in_front_of_a_chained_step_comes_to_it_when_it_stands_apart(tmp_path: Path) -> None:
    c = Checkpointed(tmp_path, job(lambda s: s.process("a", Same()), 2, 2))
    (vertex,) = c.old.vertices
    edge = c.edge("in", "a")
    c.captured[vertex.name, 1].restored.append((channel(0, 4, edge), data(["waited"])))
    new = job(lambda s: s.rebalance().process("a", Same()), 1, 2)
    got = contents(c.load(new, "a"))
    assert sorted(got) == [[], ["waited"]]
    assert contents(c.load(new, "in")) == [[]]


def test_a_damaged_file_of_channel_state_is_named(tmp_path: Path) -> None:
    build: Build = lambda s: s.rebalance().process("step", Same())  # noqa: E731
    c = Checkpointed(tmp_path, job(build, 1, 2))
    c.at(channel(0, 0, c.edge("in", "step")), [data(["a"])])
    checkpoint = c.metadata()
    (handle,) = checkpoint.all_files()
    (tmp_path / "job" / handle.path).write_bytes(b"x" * handle.size)
    vertex = c.old.vertices[1]
    mine = in_flight_for(vertex, 0, checkpoint, c.old, GROUPS, {})
    with pytest.raises(DamagedFile, match=handle.path):
        load_in_flight(mine, c.storage, c.old, vertex, 0, GROUPS)


def test_records_of_an_edge_that_is_gone_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    c = Checkpointed(tmp_path, job(lambda s: s.rebalance().process("step", Same()), 1, 2))
    c.at(channel(0, 0, c.edge("in", "step")), [data(["a", "b"])])
    new = job(lambda s: s.rebalance().process("renamed", Same()), 1, 2)
    with pytest.raises(
        PipelineError,
        match=r"checkpoint 5 has 2 records in flight from 'in' to 'step', an edge that.*bring the steps back.*"
        r"ignore_in_flight=5",
    ):
        check_restorable(c.metadata(), new, GROUPS, allow_unclaimed=True)
    check_restorable(c.metadata().without_in_flight(), new, GROUPS, allow_unclaimed=True)


def test_records_of_an_edge_that_has_become_a_broadcast_edge_are_an_error(tmp_path: Path) -> None:
    c = Checkpointed(tmp_path, job(lambda s: s.rebalance().process("step", Same()), 1, 2))
    c.at(channel(0, 0, c.edge("in", "step")), [data(["a"])])
    with pytest.raises(PipelineError, match=r"1 record in flight.*has become a broadcast edge.*ignore_in_flight=5"):
        check_restorable(c.metadata(), job(lambda s: s.broadcast().process("step", Same()), 1, 2), GROUPS, False)


# -- replay ---------------------------------------------------------------------------------------------------


def keyed_job(source: int = 2, rest: int = 2, key: int = 0) -> Plan:
    return job(lambda s: s.key_by(key).process("step", Count()), source, rest)


def test_a_restore_of_the_same_job_has_no_replay(tmp_path: Path) -> None:
    checkpoint = Checkpointed(tmp_path, keyed_job()).metadata()
    assert same_topology(checkpoint, keyed_job())
    assert not must_replay(checkpoint, keyed_job())


@pytest.mark.parametrize(
    "new",
    [
        keyed_job(source=3),
        keyed_job(rest=3),
        keyed_job(key=1),
        job(lambda s: s.rebalance().process("step", Same()), 2, 2),
        job(lambda s: s.key_by(0).process("step", Count()).rebalance(), 2, 2),
    ],
)
def test_a_restore_replays_if_any_parallelism_edge_or_partitioner_has_changed(tmp_path: Path, new: Plan) -> None:
    checkpoint = Checkpointed(tmp_path, keyed_job()).metadata()
    assert not same_topology(checkpoint, new)
    assert must_replay(checkpoint, new)


def test_a_restore_replays_if_the_checkpoint_was_triggered_during_a_replay(tmp_path: Path) -> None:
    checkpoint = Checkpointed(tmp_path, keyed_job()).metadata(replaying=True)
    assert same_topology(checkpoint, keyed_job())
    assert must_replay(checkpoint, keyed_job())
