"""What a lookup join remembers, for how long and how much of it."""

from __future__ import annotations

import pytest

from pipeline import LookupCache
from pipeline.async_calls.cache import MISSING, Remembered
from pipeline.testing import ManualClock


def remembered(clock: ManualClock, size: int = 3, ttl: float = 10, ttl_missing: float | None = None) -> Remembered:
    return LookupCache(size=size, ttl=ttl, ttl_missing=ttl_missing).make(clock)


def test_an_answer_counts_for_its_time_from_when_it_came() -> None:
    clock = ManualClock()
    cache = remembered(clock)
    cache.put("a", 1)
    clock.advance(9.9)
    assert cache.get("a") == 1
    clock.advance(0.1)
    assert cache.get("a") is MISSING
    assert len(cache) == 0


def test_that_there_is_nothing_is_an_answer_with_a_time_of_its_own() -> None:
    clock = ManualClock()
    cache = remembered(clock, ttl_missing=2)
    cache.put("a", None)
    assert cache.get("a") is None
    clock.advance(2)
    assert cache.get("a") is MISSING
    never = remembered(clock, ttl_missing=0)
    never.put("a", None)
    assert never.get("a") is MISSING


def test_what_was_asked_for_longest_ago_goes_first() -> None:
    cache = remembered(ManualClock())
    for key in "abc":
        cache.put(key, key)
    assert cache.get("a") == "a"
    cache.put("d", "d")
    assert [cache.get(key) is not MISSING for key in "abcd"] == [True, False, True, True]


@pytest.mark.parametrize("options", [{"size": 0}, {"ttl": -1}, {"ttl_missing": "soon"}])
def test_options_that_are_none(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        LookupCache(**options)  # type: ignore[arg-type]
