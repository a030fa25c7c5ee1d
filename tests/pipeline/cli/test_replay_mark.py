from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cli.replay_mark import MOST, MarkTrouble, ReplayMark, ReplayProgress


@given(
    offsets=st.lists(st.integers(0, 60), unique=True).map(sorted),
    replays=st.lists(st.tuples(st.sets(st.integers(0, 60)), st.integers(0, 60)), max_size=5),
)
def test_what_was_done_once_is_known_whatever_filters_and_ends_replays_had(
    offsets: list[int], replays: list[tuple[set[int], int]]
) -> None:
    """Offsets have gaps, as those of transactions do; a replay may end before the topic does."""
    done: set[int] = set()
    mark = ReplayMark(0)
    for meant, end in replays:
        mark = ReplayMark.read(mark.offset, mark.metadata)
        progress = ReplayProgress(mark)
        for offset in offsets:
            if offset >= mark.offset and offset < end:
                progress.saw(offset, offset in meant)
                done |= {offset} & meant
        mark = progress.mark
        assert [offset for offset in offsets if mark.done(offset)] == sorted(done)


def test_without_gaps_it_is_an_offset() -> None:
    progress = ReplayProgress(ReplayMark(3))
    for offset in (3, 4, 7):
        progress.saw(offset, True)
    assert progress.mark == ReplayMark(8)
    assert progress.mark.metadata == ""


def test_gaps_are_in_its_metadata() -> None:
    progress = ReplayProgress(ReplayMark(0))
    for offset in range(10):
        progress.saw(offset, offset % 4 != 1)
    assert progress.mark == ReplayMark(1, ((2, 5), (6, 9)))
    assert progress.mark.metadata == "done:1+3,1+3"


def test_more_gaps_than_a_broker_takes_are_refused() -> None:
    mark = ReplayMark(0, tuple((2 * i + 1, 2 * i + 2) for i in range(MOST)))
    with pytest.raises(MarkTrouble, match="fewer filters"):
        _ = mark.metadata


@pytest.mark.parametrize("metadata", ["done:", "done:1", "a:1+2", "done:x+1", "17"])
def test_what_others_have_committed_is_refused(metadata: str) -> None:
    with pytest.raises(MarkTrouble, match="doesn't write"):
        ReplayMark.read(5, metadata)
