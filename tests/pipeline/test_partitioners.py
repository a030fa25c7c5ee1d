"""Which subtasks records go to."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.elements import EdgeName
from pipeline.partitioners import (
    BROADCAST,
    FORWARD,
    REBALANCE,
    RESCALE,
    Distribution,
    KeyMissing,
    KeySelector,
    Partitioner,
    rescale_targets,
)
from pipeline.plan import PlannedEdge
from pipeline.runtime.reach import downstream_subtasks

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
    return PlannedEdge(
        index=0,
        upstream=0,
        downstream=1,
        partitioner=partitioner,
        tag=None,
        name=EdgeName("up", "down", "0.0"),
        input=0,
        carries_keys=partitioner.distribution is Distribution.KEYED,
    )


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
    for distribution in (Distribution.KEYED, Distribution.REBALANCE, Distribution.CUSTOM, Distribution.BROADCAST):
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


# -- fingerprints ---------------------------------------------------------------------------------------------


def by_size(value: object, n: int) -> int:
    return 0 if value in {"small", "tiny", "little"} else n - 1


def test_a_fingerprint_changes_with_what_decides_where_a_record_goes() -> None:
    partitioners = [
        FORWARD,
        REBALANCE,
        RESCALE,
        BROADCAST,
        Partitioner(Distribution.KEYED, key=KeySelector("user")),
        Partitioner(Distribution.KEYED, key=KeySelector("order")),
        Partitioner(Distribution.KEYED, key=KeySelector(1)),
        Partitioner(Distribution.KEYED, key=KeySelector("1")),
        Partitioner(Distribution.KEYED, key=KeySelector(len)),
        Partitioner(Distribution.KEYED, key=KeySelector(lambda value: value["user"])),
        Partitioner(Distribution.KEYED, key=KeySelector(lambda value: value["order"])),
        Partitioner(Distribution.KEYED, key=KeySelector(lambda value: [value[k] for k in ("a", "b")])),
        Partitioner(Distribution.KEYED, key=KeySelector(lambda value: [value[k] for k in ("a", "c")])),
        Partitioner(Distribution.CUSTOM, function=by_size),
        Partitioner(Distribution.CUSTOM, function=lambda value, n: 0),
        Partitioner(Distribution.CUSTOM, function=lambda value, n: 1),
        Partitioner(Distribution.CUSTOM, function=partial(by_size)),
    ]
    assert len({edge(partitioner).fingerprint for partitioner in partitioners}) == len(partitioners)
    assert edge(FORWARD).fingerprint == "forward"
    assert edge(partitioners[4]).fingerprint == "keyed:'user'"


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    """Sets of strings have another order in each."""
    program = (
        "from pipeline.partitioners import Distribution, Partitioner\n"
        "def by_size(value, n):\n"
        "    return 0 if value in {'small', 'tiny', 'little', 'short'} else [n - 1 for _ in 'x'][0]\n"
        "print(Partitioner(Distribution.CUSTOM, function=by_size).fingerprint)"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1
    assert printed.pop().startswith("custom:__main__.by_size:")
