"""Which subtasks records go to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.graph import PlannedEdge
from pipeline.partitioners import FORWARD, RESCALE, Distribution, KeyMissing, KeySelector, Partitioner, rescale_targets
from pipeline.runtime.record_writer import downstream_subtasks

numbers = st.integers(1, 60)


@given(numbers, numbers)
def test_rescale_reaches_every_subtask_and_shares_differ_by_one_at_most(upstreams: int, downstreams: int) -> None:
    targets = [rescale_targets(i, upstreams, downstreams) for i in range(upstreams)]
    reached = [target for each in targets for target in each]
    assert set(reached) == set(range(downstreams))
    assert reached == sorted(reached)
    if upstreams >= downstreams:
        assert all(len(each) == 1 for each in targets)
        shares = [reached.count(target) for target in range(downstreams)]
    else:
        assert len(reached) == downstreams
        shares = [len(each) for each in targets]
    assert max(shares) - min(shares) <= 1


@given(numbers, numbers)
def test_rescale_between_multiples_gives_each_its_block(n: int, factor: int) -> None:
    assert [list(rescale_targets(i, n, n * factor)) for i in range(n)] == [
        list(range(i * factor, (i + 1) * factor)) for i in range(n)
    ]


def edge(partitioner: Partitioner) -> PlannedEdge:
    return PlannedEdge(0, 0, "up", 1, "down", partitioner, None)


@given(numbers, numbers, st.sampled_from(Distribution))
def test_both_ends_of_an_edge_agree_on_its_channels(upstreams: int, downstreams: int, distribution: str) -> None:
    if distribution == Distribution.FORWARD:
        downstreams = upstreams
    of = edge(Partitioner(Distribution(distribution)))
    outgoing = {(i, t) for i in range(upstreams) for t in downstream_subtasks(of, i, upstreams, downstreams)}
    incoming = {
        (i, t)
        for t in range(downstreams)
        for i in range(upstreams)
        if t in downstream_subtasks(of, i, upstreams, downstreams)
    }
    assert outgoing == incoming
    assert {t for _, t in outgoing} == set(range(downstreams))
    assert {i for i, _ in outgoing} == set(range(upstreams))


def test_forward_and_rescale_join_few_and_the_others_all() -> None:
    assert list(downstream_subtasks(edge(FORWARD), 2, 4, 4)) == [2]
    assert list(downstream_subtasks(edge(RESCALE), 1, 2, 5)) == [3, 4]
    for distribution in (Distribution.KEYED, Distribution.REBALANCE, Distribution.CUSTOM):
        assert list(downstream_subtasks(edge(Partitioner(distribution)), 1, 2, 5)) == [0, 1, 2, 3, 4]


def test_a_key_is_a_field_an_index_or_a_functions_result() -> None:
    assert KeySelector("user").compile()({"user": "ann"}) == "ann"
    assert KeySelector(1).compile()(["a", "b"]) == "b"
    assert KeySelector(len).compile()("four") == 4


@pytest.mark.parametrize(
    ("field", "record"), [("user", {"name": "ann"}), (2, ["a", "b"]), ("user", "text"), ("user", None), (0, {})]
)
def test_a_record_without_the_key_is_shown_with_what_to_do(field: str | int, record: object) -> None:
    with pytest.raises(KeyMissing) as caught:
        KeySelector(field).compile()(record)
    message = str(caught.value)
    assert f"key_by({field!r}): the record has no {field!r}: {record!r}" in message
    assert "filter such records out" in message


def test_a_large_record_without_the_key_is_cut_short() -> None:
    with pytest.raises(KeyMissing) as caught:
        KeySelector("user").compile()({"text": "x" * 100_000})
    assert len(str(caught.value)) < 500


def test_an_error_of_the_users_own_key_function_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        KeySelector(lambda value: 1 // 0).compile()({})
