"""The keys that have most of the records are told, with their share, whatever the order; others are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.codec import encode_key
from pipeline.runtime.subtask.hot_keys import HotKeys

HOT = encode_key("ann")


def looked(batches: Iterable[list[bytes]], named: bool = True) -> HotKeys:
    keys = HotKeys(named, 0.0)
    for batch in batches:
        keys.look(batch)
    return keys


def rare(number: int) -> list[bytes]:
    return [encode_key(n) for n in range(number)]


@given(st.lists(st.one_of(st.integers(0, 3), st.integers(4, 5000)), min_size=20, max_size=600))
def test_shares_fall_short_of_the_true_ones_by_little_at_most(numbers: list[int]) -> None:
    """At first all batches are looked at: where they have one record, there is no chance in it."""
    told = dict(looked([[encode_key(n)] for n in numbers]).told(0.0))
    there = {repr(n): count / len(numbers) for n, count in Counter(numbers).items()}
    for key, share in told.items():
        assert key is not None
        assert there[key] - 1 / 33 <= share <= there[key] + 1e-9
    sure = [key for key, share in there.items() if share >= 0.5]
    assert set(sure) <= told.keys()
    assert len(told) <= 3
    assert list(told.values()) == sorted(told.values(), reverse=True)


@given(st.lists(st.integers(0, 10**6), max_size=3000, unique=True))
def test_what_is_kept_is_bounded(numbers: list[int]) -> None:
    keys = HotKeys(True, 0.0)
    for n in numbers:
        keys.look([encode_key(n)])
        assert len(keys._counts) <= 64


@pytest.mark.parametrize("hot_first", [True, False])
@pytest.mark.parametrize("size", [1, 7, 500])
def test_a_hot_key_is_told_whatever_the_size_of_batches_and_its_place_in_them(size: int, hot_first: bool) -> None:
    others = rare(5000)
    choose = Random(1)
    batches = []
    for _ in range(2000):
        batch = [HOT if choose.random() < 0.7 else choose.choice(others) for _ in range(size)]
        batches.append(sorted(batch, key=lambda key: (key == HOT) != hot_first))
    ((key, share),) = looked(batches).told(0.0)
    assert (key, share) == ("'ann'", pytest.approx(0.7, abs=0.06))


def test_batches_count_by_their_records() -> None:
    told = dict(looked([[HOT], rare(9) * 11] * 2000).told(0.0))
    assert "'ann'" not in told, "it has half of the batches, and a hundredth of the records"
    assert len(told) == 3
    assert all(share == pytest.approx(0.11, abs=0.03) for share in told.values())
    even = looked([[HOT] * 50, rare(50)] * 100)
    ((key, share),) = even.told(0.0)
    assert (key, share) == ("'ann'", pytest.approx(0.5, abs=0.03))


def test_of_even_load_and_of_few_batches_nothing_is_told() -> None:
    choose = Random(2)
    assert looked([[choose.choice(rare(30))] for _ in range(20_000)]).told(0.0) == []
    assert looked([[HOT] * 1000] * 19).told(0.0) == []
    assert looked([[HOT] * 1000] * 20).told(0.0) == [("'ann'", 1.0)]
    assert looked([[HOT] * 100_000, *[[key] for key in rare(100)]]).told(0.0) == [], "that was one batch"


@pytest.mark.parametrize("size", [1, 50])
def test_of_many_batches_some_are_looked_at_and_keys_that_come_in_turn_are_not_taken_for_one(size: int) -> None:
    keys, ring, looks = HotKeys(True, 0.0), rare(16), 0
    for second in range(30):
        for n in range(3200):
            keys.look(ring[n % 16 : n % 16 + 1] * size)
            looks += keys._passed == 0
        told = keys.told(second + 1.0)
    assert looks == pytest.approx(3200 + 29 * 100, rel=0.2), "in the first second all"
    assert all(share < 0.12 for _, share in told)


def test_what_was_hot_is_forgotten() -> None:
    keys = looked([[HOT]] * 1000)
    assert keys.told(0.0) == [("'ann'", 1.0)]
    bob = [encode_key("bob")]
    for second in range(1, 61):
        for _ in range(10):
            keys.look(bob)
        told = dict(keys.told(float(second)))
    assert told["'bob'"] == pytest.approx(430 * 0.75 / (430 * 0.75 + 250), abs=0.02)
    assert keys.told(61.0 + 30 * 12) == []
    assert keys._counts == {}


def test_keys_that_are_not_to_be_named_are_not() -> None:
    assert looked([[HOT]] * 30, named=False).told(0.0) == [(None, 1.0)]


def test_a_long_key_is_cut() -> None:
    ((key, _),) = looked([[encode_key("x" * 500)]] * 30).told(0.0)
    assert key == "'" + "x" * 59 + "…"
