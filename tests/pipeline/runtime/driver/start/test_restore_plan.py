"""Which subtask gets what of a checkpoint, for any old and new parallelism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from checkpoint_folders import metadata_of
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.codec import decode, encode
from checkpoint.committables import Committable, CommittableName, SinkState
from checkpoint.key_groups import range_of
from checkpoint.storage.handles import FileHandle, StateFile
from checkpoint.storage.metadata import CheckpointMetadata, OperatorSnapshot, SubtaskSnapshot, VertexSnapshot
from checkpoint.storage.naming import CheckpointRef
from pipeline import KeyedOperator, Operator, Pipeline, PipelineError, ValueState
from pipeline.plan import Plan
from pipeline.runtime.deployment import Restored
from pipeline.runtime.driver.start.restore_plan import check_restorable, restored_for
from pipeline.runtime.typed_values import from_value, to_value
from pipeline.testing import TestingSink, TestingSource

GROUPS = 64
parallelisms = st.integers(1, GROUPS)


class Count(KeyedOperator):
    count = ValueState(default=0)

    def process(self, value: Any, ctx: Any) -> Any:
        yield value


class Same(Operator):
    def process(self, value: Any, ctx: Any) -> Any:
        yield value


def plan(parallelism: int, keyed: bool = True) -> Plan:
    p = Pipeline("job", parallelism=parallelism, max_parallelism=GROUPS)
    stream = p.source("in", TestingSource())
    step = stream.key_by(0).process("step", Count()) if keyed else stream.rebalance().process("step", Same())
    step.rebalance().sink("out", TestingSink())
    return p.plan()


def metadata(*subtasks: Mapping[str, OperatorSnapshot], max_parallelism: int = GROUPS) -> CheckpointMetadata:
    """A checkpoint of one vertex, with what each subtask's steps had."""
    vertices = {"v": VertexSnapshot(tuple(SubtaskSnapshot(dict(each)) for each in subtasks))}
    return metadata_of(CheckpointRef(5, 1), pipeline="job", max_parallelism=max_parallelism, vertices=vertices)


def restored(old: CheckpointMetadata, new: Plan, vertex: int, allow_unclaimed: bool = False) -> list[Restored]:
    """What comes to each subtask of a vertex."""
    v = new.vertices[vertex]
    return [
        restored_for(v, i, old, GROUPS, lambda snapshot: snapshot.state, allow_unclaimed) for i in range(v.parallelism)
    ]


def sent(mine: Restored) -> Restored:
    """What arrives in the subtask."""
    return from_value(Restored, decode(encode(to_value(mine))))


# -- keyed state ----------------------------------------------------------------------------------------------


@given(parallelisms, parallelisms)
def test_every_subtask_gets_the_files_with_its_key_groups_for_those_and_no_others(old: int, new: int) -> None:
    files = [FileHandle(f"chk-5-1/step-{i}-state.arrow", 1, "c") for i in range(old)]
    checkpoint = metadata(*({"step": OperatorSnapshot(keyed_state=(StateFile(file),))} for file in files))
    for index, mine in enumerate(restored(checkpoint, plan(new), 1)):
        common = [sorted(set(range_of(i, old, GROUPS)) & set(range_of(index, new, GROUPS))) for i in range(old)]
        wanted = [(files[i], both) for i, both in enumerate(common) if both]
        assert [(one.file, list(one.groups or ())) for one in mine.keyed_state["step"]] == wanted


# -- state of operators' own ----------------------------------------------------------------------------------


@given(parallelisms, parallelisms, st.randoms())
def test_an_operators_own_state_comes_to_exactly_one_subtask(old: int, new: int, rng: Any) -> None:
    having = {i for i in range(old) if rng.random() < 0.7}
    checkpoint = metadata(
        *({"step": OperatorSnapshot({"operator": {"of": i}})} if i in having else {} for i in range(old))
    )
    got = [mine.operators.get("step", []) for mine in restored(checkpoint, plan(new, keyed=False), 1)]
    assert sorted(state["of"] for states in got for state in states) == sorted(having)
    for index, states in enumerate(got):
        assert all(state["of"] % new == index for state in states)


def test_at_the_same_parallelism_each_subtask_gets_its_own_state_back_though_others_had_none() -> None:
    checkpoint = metadata({}, {}, {"step": OperatorSnapshot({"operator": "of subtask 2"})})
    got = [mine.operators.get("step") for mine in restored(checkpoint, plan(3, keyed=False), 1)]
    assert got == [None, None, ["of subtask 2"]]


# -- broadcast state ------------------------------------------------------------------------------------------


@given(parallelisms, parallelisms)
def test_broadcast_state_comes_to_every_subtask_once_from_its_own_predecessor_if_there_was_one(
    old: int, new: int
) -> None:
    checkpoint = metadata(
        *({"step": OperatorSnapshot({"broadcast": {"rules": {b"of": b"%d" % i}}})} for i in range(old))
    )
    got = [mine.broadcast["step"]["rules"] for mine in restored(checkpoint, plan(new, keyed=False), 1)]
    assert got == [{b"of": b"%d" % (i % old)} for i in range(new)]


def test_broadcast_state_travels_to_the_subtask() -> None:
    checkpoint = metadata({"step": OperatorSnapshot({"broadcast": {"rules": {b"k": b"v"}}})})
    mine = restored(checkpoint, plan(1), 1)[0]
    assert sent(mine) == mine


# -- operator list and union state ---------------------------------------------------------------------------


def list_chunk(*items: Any) -> list[Any]:
    """Some items as a snapshot holds them."""
    return [len(items), encode([encode(item) for item in items])]


def items_of(mine: Restored, kind: str) -> list[Any]:
    chunks = mine.lists.get("step", {}).get(kind, {}).get("held", [])
    return [decode(item) for _, data in chunks for item in decode(data)]


@given(parallelisms, parallelisms, st.data())
def test_lists_are_cut_into_even_parts_in_order_and_unions_come_to_all(old: int, new: int, data: Any) -> None:
    held = data.draw(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=old, max_size=old))
    parts = [{"held": [list_chunk(*items)]} if items else {} for items in held]
    checkpoint = metadata(
        *({"step": OperatorSnapshot({"operator list": part, "operator union": part})} if part else {} for part in parts)
    )
    everything = [item for items in held for item in items]
    got = restored(checkpoint, plan(new, keyed=False), 1)
    lists = [items_of(mine, "operator list") for mine in got]
    assert [items_of(mine, "operator union") for mine in got] == [everything] * new
    assert [item for items in lists for item in items] == everything
    if old == new:
        assert lists == held
    else:
        assert {len(items) for items in lists} <= {len(everything) // new, -(-len(everything) // new)}


def test_operator_lists_travel_to_the_subtask_beside_the_operators_own_state() -> None:
    state = {"operator": 7, "operator list": {"held": [list_chunk((1, "a"), None)]}}
    mine = restored(metadata({"step": OperatorSnapshot(state)}), plan(1), 1)[0]
    assert mine.operators == {"step": [7]}
    assert items_of(sent(mine), "operator list") == [(1, "a"), None]


# -- sources and sinks ----------------------------------------------------------------------------------------


@given(parallelisms, parallelisms)
def test_every_source_subtask_sees_every_position(old: int, new: int) -> None:
    checkpoint = metadata(*({"in": OperatorSnapshot({"source": [[i, 10 * i]]})} for i in range(old)))
    for mine in restored(checkpoint, plan(new), 0):
        assert mine.sources == {"in": [[[i, 10 * i]] for i in range(old)]}


def test_a_source_that_was_not_in_the_checkpoint_has_no_positions() -> None:
    assert restored(metadata({"other": OperatorSnapshot({"source": 1})}), plan(1), 0)[0].sources == {}


@given(parallelisms, parallelisms)
def test_every_sink_writer_has_one_host_which_is_itself_as_long_as_there_is_such_a_subtask(old: int, new: int) -> None:
    pending = [[Committable(CommittableName(1, 0), f"p{writer}")] for writer in range(old)]
    checkpoint = metadata(*(sink_snapshot(SinkState({i: pending[i]}, {i: f"c{i}"})) for i in range(old)))
    hosted = [mine.sinks["out"] for mine in restored(checkpoint, plan(new), 2)]
    for expected, parts in (
        (dict(enumerate(pending)), [each.pending for each in hosted]),
        ({writer: f"c{writer}" for writer in range(old)}, [each.committers for each in hosted]),
    ):
        rows = [(index, writer, what) for index, part in enumerate(parts) for writer, what in part.items()]
        assert sorted(writer for _, writer, _ in rows) == list(range(old))
        for index, writer, what in rows:
            assert index == (writer if writer < new else writer % new)
            assert what == expected[writer]


def sink_snapshot(state: SinkState) -> dict[str, OperatorSnapshot]:
    return {"out": OperatorSnapshot({"sink": state.to_wire()})}


def test_a_writer_that_lay_with_another_subtask_goes_back_to_its_own() -> None:
    """3 → 2 → 3: what subtask 0 hosted of writer 2 comes to subtask 2 again."""
    a, c = [Committable(CommittableName(1, 0), "a")], [Committable(CommittableName(1, 0), "c")]
    checkpoint = metadata(sink_snapshot(SinkState({0: a, 2: c})), sink_snapshot(SinkState()))
    hosted = [mine.sinks["out"].pending for mine in restored(checkpoint, plan(3), 2)]
    assert hosted == [{0: a}, {}, {2: c}]


# -- what doesn't fit -----------------------------------------------------------------------------------------


def test_another_max_parallelism_is_refused_with_both_numbers() -> None:
    with pytest.raises(PipelineError, match=r"max_parallelism 128.*the pipeline has 64\. Set it back"):
        check_restorable(metadata({}, max_parallelism=128), plan(1), GROUPS, allow_unclaimed=True)


def test_state_of_a_step_that_is_gone_is_refused_unless_it_may_be_dropped() -> None:
    checkpoint = metadata({"old name": OperatorSnapshot({"operator": 1}), "in": OperatorSnapshot({"source": 1})})
    with pytest.raises(PipelineError, match=r"doesn't have: old name\..*give it its old id back.*allow_unclaimed=True"):
        check_restorable(checkpoint, plan(1), GROUPS, allow_unclaimed=False)
    check_restorable(checkpoint, plan(1), GROUPS, allow_unclaimed=True)


def test_keyed_state_of_a_step_that_is_no_keyed_operator_any_more_is_refused_unless_it_may_be_dropped() -> None:
    checkpoint = metadata({"step": OperatorSnapshot(keyed_state=(StateFile(FileHandle("chk-5-1/x", 1, "c")),))})
    with pytest.raises(PipelineError, match="keyed state of step 'step', which isn't a KeyedOperator any more"):
        check_restorable(checkpoint, plan(1, keyed=False), GROUPS, allow_unclaimed=False)
    check_restorable(checkpoint, plan(1, keyed=False), GROUPS, allow_unclaimed=True)
    assert restored(checkpoint, plan(1, keyed=False), 1)[0].keyed_state == {}


@pytest.mark.parametrize(
    ("step", "state", "vertex"),
    [
        ("in", {"operator": 1}, 0),
        ("step", {"source": [[0, 1]]}, 1),
        ("step", {"sink": SinkState({0: [Committable(CommittableName(1, 0), "not committed")]}).to_wire()}, 1),
        ("out", {"operator": 1}, 2),
        ("in", {"operator list": {"held": [list_chunk(1)]}}, 0),
        ("out", {"operator union": {"held": [list_chunk(1)]}}, 2),
    ],
)
def test_state_of_another_kind_of_step_under_the_id_is_refused_unless_it_may_be_dropped(
    step: str, state: dict[str, Any], vertex: int
) -> None:
    checkpoint, new = metadata({step: OperatorSnapshot(state)}), plan(1, keyed=False)
    (part,) = state
    with pytest.raises(PipelineError, match=f"has {part} state under the id '{step}'"):
        restored(checkpoint, new, vertex)
    (dropped,) = restored(checkpoint, new, vertex, allow_unclaimed=True)
    assert not dropped.operators
    assert not dropped.lists
    assert not any(dropped.sources.values())
    assert all(sink == SinkState() for sink in dropped.sinks.values())


# -- event time -----------------------------------------------------------------------------------------------


def test_every_subtask_sees_the_watermarks_of_all_old_subtasks() -> None:
    checkpoint = metadata(
        *(
            {
                "in": OperatorSnapshot({"source": [], "watermarks": {"of": i}}),
                "step": OperatorSnapshot({"event_time": {"of": i}}),
            }
            for i in range(3)
        )
    )
    old = [{"of": i} for i in range(3)]
    for mine in restored(checkpoint, plan(2, keyed=False), 1):
        assert mine.event_time == {"step": old}
    for mine in restored(checkpoint, plan(2, keyed=False), 0):
        assert mine.watermarks == {"in": old}
        assert mine.event_time == {}


def test_watermarks_that_no_step_takes_any_more_are_nobodys_loss() -> None:
    checkpoint = metadata({"out": OperatorSnapshot({"watermarks": 1, "event_time": 2})})
    (mine,) = restored(checkpoint, plan(1), 2)
    assert mine.sinks["out"] == SinkState()


def test_a_chain_and_a_step_with_a_joined_id_each_find_their_own_state() -> None:
    """As the coordinator puts a checkpoint together: by the names of vertices."""
    p = Pipeline("job", parallelism=1, max_parallelism=GROUPS)
    stream = p.source("in", TestingSource())
    stream.rebalance().process("totals", Same()).sink("all", TestingSink())
    stream.rebalance().process("totals → all", Same()).rebalance().sink("out", TestingSink())
    made = p.plan()
    taken = {
        vertex.name: VertexSnapshot(
            (SubtaskSnapshot({step.id: OperatorSnapshot({"operator": step.id}) for step in vertex.steps}),)
        )
        for vertex in made.vertices
    }
    old = replace(metadata(), vertices=taken)
    old = CheckpointMetadata.from_bytes(old.to_bytes())
    found = {}
    for vertex in made.vertices:
        found |= restored_for(vertex, 0, old, GROUPS, lambda snapshot: snapshot.state, allow_unclaimed=True).operators
    assert found == {"totals": ["totals"], "totals → all": ["totals → all"]}


def time_of(subtask: int, parallelism: int, emitted: int) -> dict[str, Any]:
    return {
        "channels": [[[["in", "head", "0.0"], 0, subtask], emitted, False]],
        "draining": False,
        "emitted": emitted,
        "subtask": subtask,
        "parallelism": parallelism,
        "idle": False,
    }
