"""The numbers of the entries of a page."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from checkpoint.state.paging.rows import NUMBERS, packed, unpacked, with_number, without_number

EDGES = [0, 1, 255, 2**16 - 2, 2**16 - 1, 2**16, 2**32 - 1, 2**32, 2**33, 2**63]
ASCENDING = st.lists(st.sampled_from(EDGES) | st.integers(0, 2**63), min_size=1, unique=True).map(sorted)


def page_of(numbers: list[int]) -> list[Any]:
    return [dict.fromkeys(range(len(numbers))), packed(numbers)]


@given(ASCENDING, st.data())
def test_numbers_come_back_whatever_is_added_and_removed(numbers: list[int], data: st.DataObject) -> None:
    page = page_of(numbers)
    assert unpacked(page) == tuple(numbers)
    more = data.draw(st.integers(numbers[-1] + 1, 2**64 - 1))
    longer = [{**page[0], "new": None}, with_number(page, more)]
    assert unpacked(longer) == (*numbers, more)
    if len(numbers) > 1:
        at = data.draw(st.integers(0, len(numbers) - 1))
        entries = dict.fromkeys(range(len(numbers) - 1))
        assert unpacked([entries, without_number(page, at)]) == (*numbers[:at], *numbers[at + 1 :])


def test_they_take_as_little_room_as_the_last_one_needs() -> None:
    assert [len(page_of([1, last])[NUMBERS]) for last in (2, 2**16 - 1, 2**16, 2**32 - 1, 2**32)] == [4, 4, 8, 8, 16]
