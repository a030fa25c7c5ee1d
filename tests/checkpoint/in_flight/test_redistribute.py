"""What was in flight comes to the new subtasks: every row once, in order, for every edge and any two parallelisms."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from captures import EDGE, GROUPS, channel, cut, data, shown
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.codec import encode_key
from checkpoint.edge_format import EdgeFormat
from checkpoint.elements import ChannelName, EdgeName, IdleStatus, InFlight, Watermark
from checkpoint.in_flight import channel_state
from checkpoint.in_flight.captured import CapturedState, Part
from checkpoint.in_flight.edges import EdgeShape
from checkpoint.in_flight.redistribute import EdgeRedistribution, Rule, assign, redistribute, rule
from checkpoint.in_flight.runs import Origin, Run, runs_of
from checkpoint.key_groups import key_group, range_of
from checkpoint.row_format import row_format

MOST = 5
PLAIN, KEYED = row_format(carries_keys=False), row_format(carries_keys=True)
KEYS = 7
Sequence = list[tuple[ChannelName, InFlight]]


def shape(distribution: str, upstreams: int, downstreams: int, fingerprint: str = "", keys: bool = False) -> EdgeShape:
    carries_keys = keys or distribution == "keyed"
    return EdgeShape(distribution, fingerprint or distribution, carries_keys, upstreams, downstreams)


def targets(distribution: str, upstream: int, upstreams: int, downstreams: int) -> list[int]:
    """Downstream subtasks that an upstream subtask has channels to."""
    match distribution:
        case "forward":
            return [upstream]
        case "rescale":
            if upstreams >= downstreams:
                return [upstream * downstreams // upstreams]
            return [d for d in range(downstreams) if d * upstreams // downstreams == upstream]
    return list(range(downstreams))


def group(key: int) -> int:
    return key_group(encode_key(key), GROUPS)


def owner(key: int, downstreams: int) -> int:
    return group(key) * downstreams // GROUPS


def moved(old: EdgeShape, new: EdgeShape, assigned: Mapping[Origin, array[int]] | None = None) -> EdgeRedistribution:
    return EdgeRedistribution(
        old,
        new,
        GROUPS,
        lambda upstream: targets(new.distribution, upstream, new.upstreams, new.downstreams),
        lambda value: value[0],
        assigned or {},
    )


@dataclass
class Old:
    """What the subtasks of an edge's two ends captured. A value is `[key, upstream, number]`; numbers of an upstream
    subtask count up in the order of capture."""

    shape: EdgeShape
    downstream: list[CapturedState]
    upstream: list[CapturedState]

    def runs(self) -> Iterator[Run]:
        for captured in (self.downstream, self.upstream):
            for subtask, state in enumerate(captured):
                yield from runs_of(state, subtask, lambda _: self.shape.format)

    def values(self) -> list[Any]:
        elements = [e for each in (*self.downstream, *self.upstream) for _, _, e in each.elements()]
        return [v for v in shown(elements, self.shape.carries_keys) if isinstance(v, list)]


@st.composite
def shapes(draw: st.DrawFn) -> EdgeShape:
    distribution = draw(st.sampled_from(["keyed", "forward", "rebalance", "rescale", "custom"]))
    upstreams, downstreams = draw(st.integers(1, MOST)), draw(st.integers(1, MOST))
    fingerprint = draw(st.sampled_from(["", "another"])) if distribution in ("keyed", "custom") else ""
    keys = distribution == "forward" and draw(st.booleans())
    return shape(distribution, upstreams, upstreams if distribution == "forward" else downstreams, fingerprint, keys)


@st.composite
def olds(draw: st.DrawFn, old: EdgeShape) -> Old:
    """Captured state that the edge could have had: rows lie where its partitioner sends them."""
    numbers: dict[int, int] = defaultdict(int)

    def part(upstream: int, holder: int) -> list[InFlight]:
        elements: list[InFlight] = []
        for kind in draw(st.lists(st.sampled_from(["rows", "rows", "watermark", "idle"]), max_size=3)):
            numbers[upstream] += 1
            if kind == "idle":
                elements.append(IdleStatus(draw(st.booleans())))
            elif kind == "watermark":
                elements.append(Watermark(numbers[upstream]))
            else:
                fitting = [key for key in range(KEYS) if not old.carries_keys or owner(key, old.downstreams) == holder]
                keys = draw(st.lists(st.sampled_from(fitting), max_size=6)) if fitting else []
                values = []
                for key in keys:
                    numbers[upstream] += 1
                    values.append([key, upstream, numbers[upstream]])
                sizes = draw(st.lists(st.integers(1, 3), max_size=2))
                elements += [data(piece, old.carries_keys) for piece in cut(values, sizes)]
        return elements

    channels = [
        (u, d) for u in range(old.upstreams) for d in targets(old.distribution, u, old.upstreams, old.downstreams)
    ]
    downstream = [CapturedState() for _ in range(old.downstreams)]
    upstream = [CapturedState() for _ in range(old.upstreams)]
    for d, state in enumerate(downstream):
        # Its channels are those of an attempt before, which may have had any parallelism.
        per_channel = [(channel(u, draw(st.integers(0, MOST))), part(100 + u, d)) for u in range(2)]
        while per_channel:
            name, elements = draw(st.sampled_from(per_channel))
            if not elements:
                per_channel.remove((name, elements))
            else:
                state.restored.append((name, elements.pop(0)))
    for u, d in channels:
        downstream[d].inputs[channel(u, d)] = part(u, d)
    for u, d in channels:
        upstream[u].outputs[channel(u, d)] = part(u, d)
    return Old(old, downstream, upstream)


def all_restored(old: Old, new: EdgeShape) -> list[Sequence]:
    """The restored sequence of every new subtask."""
    assigned: dict[Origin, array[int]] = {}
    if rule(old.shape, new) is Rule.ASSIGNED:
        assigned = assign(old.runs(), old.shape.format, lambda value: value[2] % new.downstreams)
    edge = moved(old.shape, new, assigned)
    return [redistribute(old.runs(), {EDGE: edge}, subtask) for subtask in range(new.downstreams)]


@settings(max_examples=40)
@given(st.data(), shapes(), shapes(), st.booleans())
def test_every_row_comes_to_exactly_one_subtask_whatever_the_edge_was_and_is(
    draw: st.DataObject, was: EdgeShape, now: EdgeShape, same: bool
) -> None:
    old = draw.draw(olds(was))
    new = was if same else now
    restored = all_restored(old, new)
    got = [v for each in restored for v in shown((e for _, e in each), new.carries_keys) if isinstance(v, list)]
    assert sorted(got) == sorted(old.values())


@settings(max_examples=40)
@given(st.data(), shapes(), shapes(), st.booleans())
def test_rows_and_watermarks_of_an_old_channel_keep_their_order(
    draw: st.DataObject, was: EdgeShape, now: EdgeShape, same: bool
) -> None:
    old = draw.draw(olds(was))
    new = was if same else now
    had = {(e[1], e[2]): d for d, state in enumerate(old.downstream) for e in held(state, old.shape)}
    had |= {(e[1], e[2]): d for state in old.upstream for d, e in sent(state, old.shape)}
    for sequence in all_restored(old, new):
        at: dict[tuple[int, int], int] = {}
        for value in shown((e for _, e in sequence), new.carries_keys):
            if isinstance(value, list):
                _, upstream, number = value
                place = upstream, had[upstream, number]
                assert at.get(place, 0) < number
                at[place] = number


def held(state: CapturedState, old: EdgeShape) -> list[Any]:
    elements = [e for part, _, e in state.elements() if part is not Part.OUTPUT]
    return [v for v in shown(elements, old.carries_keys) if isinstance(v, list)]


def sent(state: CapturedState, old: EdgeShape) -> list[tuple[int, Any]]:
    return [
        (name.downstream, v)
        for name, each in state.outputs.items()
        for v in shown(each, old.carries_keys)
        if isinstance(v, list)
    ]


@settings(max_examples=40)
@given(st.data(), st.integers(1, MOST), st.integers(1, MOST), st.integers(1, MOST), st.sampled_from([False, True]))
def test_where_rows_go_by_key_each_key_is_with_its_subtask_and_in_order(
    draw: st.DataObject, upstreams: int, before: int, after: int, forward: bool
) -> None:
    if forward:
        was, now = (shape("forward", n, n, keys=True) for n in (before, after))
    else:
        was, now = shape("keyed", upstreams, before), shape("keyed", after, after)
    old = draw.draw(olds(was))
    got: list[Any] = []
    for subtask, sequence in enumerate(all_restored(old, now)):
        at: dict[tuple[int, int], int] = {}
        for value in shown((e for _, e in sequence), keyed=True):
            if isinstance(value, list):
                got.append(value)
                key, upstream, number = value
                assert owner(key, after) == subtask
                assert at.get((upstream, key), 0) < number
                at[upstream, key] = number
    assert sorted(got) == sorted(old.values())


@settings(max_examples=40)
@given(st.data(), shapes(), shapes(), st.booleans())
def test_watermarks_and_idle_statuses_come_to_all_who_get_rows_of_their_channel(
    draw: st.DataObject, was: EdgeShape, now: EdgeShape, same: bool
) -> None:
    old = draw.draw(olds(was))
    new = was if same else now
    edge = moved(was, new, assign(old.runs(), old.shape.format, lambda value: value[2] % new.downstreams))
    runs = list(old.runs())
    for subtask in range(new.downstreams):
        shares = [(run, edge.share(run, subtask)) for run in runs]
        with_rows = {run.origin for run, mine in shares if isinstance(mine, pa.RecordBatch) and mine.num_rows}
        for run, mine in shares:
            if run.origin in with_rows and not isinstance(run.content, pa.RecordBatch):
                assert mine is run.content


@settings(max_examples=40)
@given(st.data(), shapes())
def test_where_nothing_has_changed_every_row_stays_with_its_subtask(draw: st.DataObject, same: EdgeShape) -> None:
    old = draw.draw(olds(same))
    for subtask, sequence in enumerate(all_restored(old, same)):
        expected = held(old.downstream[subtask], same)
        expected += [v for state in old.upstream for d, v in sent(state, same) if d == subtask]
        got = [v for v in shown((e for _, e in sequence), same.carries_keys) if isinstance(v, list)]
        assert sorted(got) == sorted(expected)


@settings(max_examples=40)
@given(st.data(), shapes(), shapes())
def test_files_and_captured_states_in_memory_come_to_the_same(
    draw: st.DataObject, was: EdgeShape, now: EdgeShape
) -> None:
    old = draw.draw(olds(was))

    def format_of(_: EdgeName) -> EdgeFormat:
        return was.format

    def from_files() -> Iterator[Run]:
        for captured in (old.downstream, old.upstream):
            for subtask, state in enumerate(captured):
                yield from channel_state.decode(channel_state.encode(state, format_of, "none"), subtask)

    class Filed(Old):
        def runs(self) -> Iterator[Run]:
            return from_files()

    filed = Filed(old.shape, old.downstream, old.upstream)
    for mine, its in zip(all_restored(old, now), all_restored(filed, now), strict=True):
        assert [name for name, _ in mine] == [name for name, _ in its]
        assert shown((e for _, e in mine), now.carries_keys) == shown((e for _, e in its), now.carries_keys)


@settings(max_examples=40)
@given(st.data(), shapes(), shapes(), st.booleans())
def test_only_the_old_subtasks_that_are_named_matter(
    draw: st.DataObject, was: EdgeShape, now: EdgeShape, same: bool
) -> None:
    """A subtask reads the files of `holders` and `upstreams` and no others."""
    old = draw.draw(olds(was))
    new = was if same else now
    whole = all_restored(old, new)
    assigned = assign(old.runs(), old.shape.format, lambda value: value[2] % new.downstreams)
    edge = moved(was, new, assigned)
    for subtask, expected in enumerate(whole):
        some = Old(
            was,
            [s if d in edge.holders(subtask) else CapturedState() for d, s in enumerate(old.downstream)],
            [s if u in edge.upstreams(subtask) else CapturedState() for u, s in enumerate(old.upstream)],
        )
        got = redistribute(some.runs(), {EDGE: edge}, subtask)
        assert shown((e for _, e in got), new.carries_keys) == shown((e for _, e in expected), new.carries_keys)


@pytest.mark.parametrize("before", range(1, MOST + 1))
@pytest.mark.parametrize("after", range(1, MOST + 1))
def test_a_subtask_reads_no_files_that_can_have_nothing_for_it(before: int, after: int) -> None:
    keyed = moved(shape("keyed", 2, before), shape("keyed", 2, after, "", keys=True))
    forward = moved(shape("forward", before, before), shape("forward", after, after))
    for subtask in range(after):
        groups = set(range_of(subtask, after, GROUPS))
        theirs = [set(range_of(old, before, GROUPS)) for old in range(before)]
        expected = [old for old in range(before) if groups & theirs[old]]
        assert list(keyed.holders(subtask)) == ([subtask] if before == after else expected)
        assert list(keyed.upstreams(subtask)) == [0, 1]
        whole = [old for old in range(before) if old % after == subtask]
        assert list(forward.holders(subtask)) == list(forward.upstreams(subtask)) == whole


# -- order ----------------------------------------------------------------------------------------------------


def test_the_rest_of_the_restored_sequence_comes_first_then_input_then_output_by_upstream_subtask() -> None:
    state = CapturedState(
        [(channel(7, 0), data(["rest 1"])), (channel(6, 0), data(["rest 2"])), (channel(7, 0), data(["rest 3"]))],
        {channel(1, 0): [data(["in of 1"])], channel(0, 0): [data(["in of 0"])]},
    )
    outputs = [CapturedState(outputs={channel(u, 0): [data([f"out of {u}"])]}) for u in range(2)]
    old = Old(shape("rebalance", 2, 1), [state], outputs)
    (sequence,) = all_restored(old, shape("rebalance", 1, 1))
    assert shown(e for _, e in sequence) == [
        "rest 1",
        "rest 2",
        "rest 3",
        "in of 0",
        "out of 0",
        "in of 1",
        "out of 1",
    ]


def test_what_waits_further_down_a_chain_comes_before_what_enters_above_it() -> None:
    """source → a → b, all chained now: what was on its way to b is older than what a makes of its own input."""
    to_a, to_b = EdgeName("source", "a", "0.0"), EdgeName("a", "b", "0.0")
    of_a = [
        CapturedState([(channel(0, d, to_a), data([f"rest of a{d}"]))], {channel(0, d, to_a): [data([f"in of a{d}"])]})
        for d in range(2)
    ]
    of_b = [CapturedState(inputs={channel(0, d, to_b): [data([f"in of b{d}"])]}) for d in range(2)]
    runs = [
        run for states in (of_a, of_b) for d, state in enumerate(states) for run in runs_of(state, d, lambda _: PLAIN)
    ]
    old, new = shape("rebalance", 1, 2), shape("forward", 1, 1)
    sequence = redistribute(runs, {to_b: moved(old, new), to_a: moved(old, new)}, 0)
    assert shown(e for _, e in sequence) == [
        "in of b0",
        "in of b1",
        "rest of a0",
        "in of a0",
        "rest of a1",
        "in of a1",
    ]


def test_two_inputs_of_a_step_keep_the_order_of_their_common_rest() -> None:
    main, side = EdgeName("a", "c", "0.0"), EdgeName("b", "c", "1.0")
    rest: Sequence = [
        (channel(0, 0, side), data(["side 1"])),
        (channel(0, 0, main), data(["main 1"])),
        (channel(0, 0, side), data(["side 2"])),
    ]
    inputs: dict[ChannelName, list[InFlight]] = {channel(0, 0, side): [data(["side 3"])]}
    runs = list(runs_of(CapturedState(rest, inputs), 0, lambda _: PLAIN))
    edge = moved(shape("rebalance", 1, 1), shape("rebalance", 1, 1))
    sequence = redistribute(runs, {main: edge, side: edge}, 0)
    assert shown(e for _, e in sequence) == ["side 1", "main 1", "side 2", "side 3"]


def test_data_of_edges_into_other_vertices_is_passed_over() -> None:
    other = CapturedState(outputs={channel(0, 0, EdgeName("orders", "elsewhere", "0.0")): [data(["not mine"])]})
    assert redistribute(runs_of(other, 0, lambda _: PLAIN), {}, 0) == []


# -- rules ----------------------------------------------------------------------------------------------------


def test_a_forward_channel_moves_whole() -> None:
    states = [CapturedState(inputs={channel(d, d): [data([d, d + 10])]}) for d in range(5)]
    old = Old(shape("forward", 5, 5), states, [])
    got = [shown(e for _, e in sequence) for sequence in all_restored(old, shape("forward", 2, 2))]
    assert got == [[0, 10, 2, 12, 4, 14], [1, 11, 3, 13]]


def test_dealt_rows_spread_evenly() -> None:
    states = [CapturedState(inputs={channel(u, 0): [data(range(100))] for u in range(3)})]
    old = Old(shape("rebalance", 3, 1), states, [])
    got = [shown(e for _, e in sequence) for sequence in all_restored(old, shape("rebalance", 2, 4))]
    assert all(70 < len(each) < 80 for each in got)


def test_single_rows_between_watermarks_spread_evenly_too() -> None:
    elements: list[InFlight] = [one for n in range(40) for one in (data([n]), Watermark(n))]
    old = Old(shape("rebalance", 1, 1), [CapturedState(inputs={channel(0, 0): elements})], [])
    for sequence in all_restored(old, shape("rebalance", 1, 4)):
        assert sum(isinstance(value, int) for value in shown(e for _, e in sequence)) == 10


def test_rescaled_rows_come_to_the_share_of_the_upstream_subtask() -> None:
    states = [CapturedState(inputs={channel(0, 0): [data(["a", "b", "c", "d"])]})]
    old = Old(shape("rescale", 1, 1), states, [])
    got = [shown(e for _, e in sequence) for sequence in all_restored(old, shape("rescale", 2, 4))]
    assert got == [["a", "c"], ["b", "d"], [], []]


def test_a_custom_partitioner_is_asked_once_for_each_row() -> None:
    asked: list[Any] = []

    def choose(value: Any) -> int:
        asked.append(value)
        return len(asked) % 2  # not repeatable

    states = [CapturedState(inputs={channel(0, 0): [data(["a", "b"]), Watermark(1), data(["c"])]})]
    old = Old(shape("custom", 1, 1), states, [])
    assigned = assign(old.runs(), old.shape.format, choose)
    assert asked == ["a", "b", "c"]
    edge = moved(old.shape, shape("custom", 1, 2), assigned)
    got = [shown(e for _, e in redistribute(old.runs(), {EDGE: edge}, t)) for t in range(2)]
    assert got == [["b", ("watermark", 1)], ["a", ("watermark", 1), "c"]]


def test_another_key_selector_takes_keys_from_the_values_again() -> None:
    states = [CapturedState(inputs={channel(0, 0): [data([[key, 3 - key] for key in range(4)], keyed=True)]})]
    old = shape("keyed", 1, 1)
    edge = replace(moved(old, shape("keyed", 1, 3, "key_by(1)")), key_of=lambda value: value[1])
    for subtask in range(3):
        runs = runs_of(states[0], 0, lambda _: KEYED)
        for value in shown((e for _, e in redistribute(runs, {EDGE: edge}, subtask)), keyed=True):
            assert owner(value[1], 3) == subtask


def test_rows_that_never_had_a_key_get_a_group_of_their_new_subtask_where_frames_carry_keys() -> None:
    """Rescaled again, they move together to whoever owns the group then."""
    states = [CapturedState(inputs={channel(0, d): [data([f"of {d}"])]}) for d in range(2)]
    old = Old(shape("rebalance", 1, 2), states, [])
    now = shape("forward", 2, 2, keys=True)
    for subtask, sequence in enumerate(all_restored(old, now)):
        again = CapturedState(sequence)
        (run,) = runs_of(again, subtask, lambda _: KEYED)
        assert shown((e for _, e in sequence), keyed=True) == [f"of {subtask}"]
        assert set(run.content.column(2).to_pylist()) <= set(range_of(subtask, 2, GROUPS))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("was", "now"), [("broadcast", "broadcast"), ("broadcast", "rebalance"), ("keyed", "broadcast")]
)
def test_rows_on_a_broadcast_edge_are_an_error_and_watermarks_are_none(was: str, now: str) -> None:
    state = CapturedState(inputs={channel(0, 0): [Watermark(1)]})
    edge = moved(shape(was, 1, 1), shape(now, 1, 2))
    assert edge.rule is Rule.NOTHING
    assert redistribute(runs_of(state, 0, lambda _: PLAIN), {EDGE: edge}, 0) == []
    state.inputs[channel(0, 0)].append(data(["a"]))
    with pytest.raises(ValueError, match=r"1 record was captured on .*a broadcast edge then or now"):
        redistribute(runs_of(state, 0, lambda _: PLAIN), {EDGE: edge}, 0)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (shape("keyed", 2, 2), shape("keyed", 2, 2), Rule.STAY),
        (shape("keyed", 2, 2), shape("keyed", 3, 2), Rule.BY_KEY),
        (shape("keyed", 2, 2), shape("keyed", 2, 2, "another key"), Rule.BY_NEW_KEY),
        (shape("rebalance", 2, 2), shape("keyed", 2, 2), Rule.BY_NEW_KEY),
        (shape("forward", 2, 2, keys=True), shape("keyed", 2, 2), Rule.BY_NEW_KEY),
        (shape("forward", 2, 2), shape("forward", 3, 3), Rule.WHOLE),
        (shape("forward", 2, 2, keys=True), shape("forward", 3, 3, keys=True), Rule.BY_KEY),
        (shape("keyed", 2, 2), shape("forward", 3, 3, keys=True), Rule.WHOLE),
        (shape("rebalance", 2, 2), shape("rebalance", 2, 3), Rule.ROUND_ROBIN),
        (shape("keyed", 2, 2), shape("rescale", 2, 3), Rule.ROUND_ROBIN),
        (shape("custom", 2, 2), shape("custom", 2, 2), Rule.STAY),
        (shape("custom", 2, 2), shape("custom", 2, 2, "another function"), Rule.ASSIGNED),
    ],
)
def test_the_rule_follows_from_what_the_edge_was_and_is(old: EdgeShape, new: EdgeShape, expected: Rule) -> None:
    assert rule(old, new) is expected
