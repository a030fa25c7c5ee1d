"""Restored in-flight data: one sequence, in front of all else, in this attempt and in the next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from checkpoint.elements import ChannelName, Data, EdgeName, IdleStatus, InFlight, Watermark
from checkpoint.in_flight.restored_input import InFlightEntry, RestoredInput

EDGE = EdgeName("orders", "totals", "in")
FIRST, SECOND = ChannelName(EDGE, 0, 0), ChannelName(EDGE, 1, 0)


def data(name: str, rows: int = 1) -> Data:
    return Data(name.encode(), size=10, rows=rows)


def drained(restored: RestoredInput) -> list[InFlightEntry]:
    entries = []
    while (entry := restored.take()) is not None:
        entries.append(entry)
    assert not restored
    assert len(restored) == 0
    return entries


def test_a_start_without_in_flight_data_has_none() -> None:
    restored = RestoredInput()
    assert not restored
    assert restored.take() is None
    assert restored.rest() == []


def test_elements_come_in_one_sequence_over_all_channels() -> None:
    entries: list[InFlightEntry] = [
        (FIRST, data("a")),
        (SECOND, Watermark(1)),
        (FIRST, IdleStatus(True)),
        (SECOND, data("b")),
    ]
    restored = RestoredInput(iter(entries))
    assert len(restored) == 4
    assert drained(restored) == entries


def test_the_rest_of_a_batch_comes_first_again_on_its_channel() -> None:
    restored = RestoredInput([(FIRST, data("a", rows=5)), (SECOND, data("b"))])
    taken = restored.take()
    assert taken is not None
    channel, batch = taken
    assert isinstance(batch, Data)
    restored.put_back(channel, batch.from_row(2))
    assert restored.rest() == [(FIRST, data("a", rows=5).from_row(2)), (SECOND, data("b"))]


def test_what_a_later_checkpoint_captures_stays_to_be_processed() -> None:
    restored = RestoredInput([(FIRST, data("a")), (SECOND, data("b"))])
    captured = restored.rest()
    assert drained(restored) == captured
    assert captured == [(FIRST, data("a")), (SECOND, data("b"))]


def rows_of(entries: list[InFlightEntry]) -> list[tuple[bytes, int]]:
    return [
        (bytes(element.payload), row)
        for _, element in entries
        if isinstance(element, Data)
        for row in range(element.start, element.rows)
    ]


@given(st.lists(st.integers(1, 4), max_size=6), st.lists(st.tuples(st.booleans(), st.integers(0, 4)), max_size=30))
def test_over_any_number_of_restores_each_row_is_processed_once_and_in_order(
    batches: list[int], order: list[tuple[bool, int]]
) -> None:
    elements: list[InFlight] = [data(str(i), rows) for i, rows in enumerate(batches)]
    entries: list[InFlightEntry] = [((FIRST, SECOND)[i % 2], element) for i, element in enumerate(elements)]
    restored = RestoredInput(entries)
    processed: list[tuple[bytes, int]] = []
    for restart, rows in order:
        if restart:
            restored = RestoredInput(restored.rest())
        elif (entry := restored.take()) is not None:
            channel, batch = entry
            assert isinstance(batch, Data)
            processed += rows_of([entry])[:rows]
            if rows < batch.rest:
                restored.put_back(channel, batch.from_row(batch.start + rows))
        assert processed + rows_of(restored.rest()) == rows_of(entries)
