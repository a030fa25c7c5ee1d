from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.codec import encode_key
from checkpoint.key_groups import check_parallelism, key_group, range_of, subtask_of


@st.composite
def parallelisms(draw: st.DrawFn) -> tuple[int, int]:
    max_parallelism = draw(st.integers(1, 300) | st.sampled_from([128, 4096]))
    return draw(st.integers(1, min(max_parallelism, 300))), max_parallelism


@settings(deadline=None)
@given(parallelisms())
def test_the_ranges_of_all_subtasks_partition_the_groups_and_agree_with_subtask_of(numbers: tuple[int, int]) -> None:
    parallelism, max_parallelism = numbers
    groups = []
    for subtask in range(parallelism):
        owned = range_of(subtask, parallelism, max_parallelism)
        assert len(owned) in (max_parallelism // parallelism, -(-max_parallelism // parallelism))
        assert all(subtask_of(group, parallelism, max_parallelism) == subtask for group in owned)
        groups += owned
    assert groups == list(range(max_parallelism))


@settings(deadline=None)
@given(st.binary(), st.integers(1, 1 << 15))
def test_a_key_has_a_group_below_max_parallelism(encoded: bytes, max_parallelism: int) -> None:
    assert 0 <= key_group(encoded, max_parallelism) < max_parallelism


@pytest.mark.parametrize(
    ("key", "of_128", "of_32768"),
    [
        ("AA", 20, 32020),
        ("user-1", 52, 8756),
        ("", 120, 22264),
        (0, 91, 27867),
        (1, 107, 20203),
        (-1, 46, 22318),
        (2**40, 13, 9101),
        (1.0, 94, 32350),
        (1.5, 104, 13800),
        (True, 37, 7717),
        (None, 76, 25676),
        (b"AA", 26, 6426),
        (("AA", 7), 123, 30331),
        (("a", ("b", None)), 92, 9436),
    ],
)
def test_the_group_of_a_key_is_the_same_for_ever(key: Any, of_128: int, of_32768: int) -> None:
    """Checkpoints of older versions hold state under these groups. A failure here means they can't be restored."""
    assert key_group(encode_key(key), 128) == of_128
    assert key_group(encode_key(key), 32768) == of_32768


def test_keys_spread_over_all_subtasks() -> None:
    counts = [0] * 8
    for i in range(8000):
        counts[subtask_of(key_group(encode_key(f"user-{i}"), 128), 8, 128)] += 1
    assert min(counts) > 700


@pytest.mark.parametrize(("parallelism", "max_parallelism"), [(0, 128), (129, 128), (1, 0), (1, (1 << 15) + 1)])
def test_numbers_that_dont_fit_together_are_refused(parallelism: int, max_parallelism: int) -> None:
    with pytest.raises(ValueError, match="must be from 1 to"):
        check_parallelism(parallelism, max_parallelism)
    with pytest.raises(ValueError, match="must be from 1 to"):
        range_of(0, parallelism, max_parallelism)


def test_groups_and_subtasks_that_dont_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="key group 128 is outside"):
        subtask_of(128, 2, 128)
    with pytest.raises(ValueError, match="subtask 2 is outside"):
        range_of(2, 2, 128)
