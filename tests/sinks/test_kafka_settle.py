"""What is out at a restore, decided from markers: every rule of lineages, without a broker."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks import Lineage, SegmentName
from sinks.kafka.errors import EarlierOutput, ForeignMarker, MarkerLost, OutputAhead
from sinks.kafka.marker import Marker
from sinks.kafka.settle import Situation, settle

L1, L2, L3 = Lineage("L1"), Lineage("L2", ("L1", 6)), Lineage("L3", ("L1", 6))


def seg(epoch: int, index: int = 0) -> SegmentName:
    return SegmentName(epoch, index)


def marker(lineage: Lineage, checkpoint: int, last: SegmentName | None = None) -> Marker:
    return Marker(lineage, checkpoint, last)


FRESH = Situation("group", L1, 0, None, None, [], rewind=False, ignore_earlier_output=False, on_marker_lost="fail")
RESTORE_6 = replace(FRESH, checkpoint=6, recorded=marker(L1, 5, seg(5)), restored=[seg(6, 0), seg(6, 1)])


def test_a_first_start_writes_a_marker_that_says_nothing_is_out() -> None:
    assert settle(FRESH).marker == marker(L1, 0)


def test_a_restart_before_the_first_checkpoint_keeps_its_marker() -> None:
    assert settle(replace(FRESH, found=marker(L1, 0))).marker == marker(L1, 0)


def test_a_start_without_restore_is_refused_where_output_is_committed() -> None:
    with pytest.raises(EarlierOutput, match=r"checkpoint 9 of lineage L0.*restore=\"none\""):
        settle(replace(FRESH, found=marker(Lineage("L0"), 9, seg(9))))


def test_restore_none_accepts_earlier_output_and_begins_anew() -> None:
    found = marker(Lineage("L0"), 9, seg(9))
    assert settle(replace(FRESH, found=found, ignore_earlier_output=True)).marker == marker(L1, 0)


def test_the_marker_of_a_start_that_committed_nothing_is_no_earlier_output() -> None:
    assert settle(replace(FRESH, found=marker(Lineage("L0"), 0))).marker == marker(L1, 0)


def test_segments_up_to_the_markers_name_are_out_and_the_rest_is_pending() -> None:
    assert settle(replace(RESTORE_6, found=marker(L1, 6, seg(6, 0)))).marker.last == seg(6, 0)
    assert settle(replace(RESTORE_6, found=marker(L1, 5, seg(5)))).marker.last == seg(5)


def test_output_ahead_of_the_checkpoint_stops_with_what_to_do() -> None:
    with pytest.raises(OutputAhead, match=r"checkpoint 6 is being restored.*checkpoint 7 of lineage L1.*rewind=True"):
        settle(replace(RESTORE_6, found=marker(L1, 7, seg(7))))


def test_a_rewind_settles_by_the_old_marker_and_begins_a_lineage_that_names_its_parent() -> None:
    s = replace(RESTORE_6, lineage=L2, rewind=True)
    ahead, behind = settle(replace(s, found=marker(L1, 7, seg(7)))), settle(replace(s, found=marker(L1, 5, seg(5))))
    assert (ahead.marker.lineage, ahead.marker.checkpoint) == (L2, 6)
    assert ahead.marker.last is not None
    assert ahead.marker.last >= seg(6, 1)
    assert behind.marker == marker(L2, 6, seg(5))


def test_a_rewound_lineage_does_not_count_ids_given_out_again_as_out() -> None:
    again = settle(replace(RESTORE_6, lineage=L2, rewind=True, found=marker(L1, 7, seg(7, 3)))).marker.last
    assert again is not None
    assert again < seg(7, 0)


def test_a_rewind_that_crashed_before_its_first_checkpoint_can_be_repeated() -> None:
    begun = marker(L2, 6, seg(6, 0))
    assert settle(replace(RESTORE_6, lineage=L2, rewind=True, found=begun)).marker == begun
    assert settle(replace(RESTORE_6, lineage=L3, rewind=True, found=begun)).marker == marker(L3, 6, seg(6, 0))


def test_a_restore_of_the_parent_goes_on_with_its_child() -> None:
    begun = marker(L2, 6, seg(6, 0))
    assert settle(replace(RESTORE_6, found=begun)).marker == begun


def test_a_child_that_went_on_is_ahead_of_its_parent() -> None:
    for lineage in (L1, L3):
        with pytest.raises(OutputAhead, match="checkpoint 8 of lineage L2"):
            settle(replace(RESTORE_6, lineage=lineage, found=marker(L2, 8, seg(8))))


def test_a_child_of_another_checkpoint_counts_as_marker_lost() -> None:
    with pytest.raises(MarkerLost, match="lineage L2"):
        settle(replace(RESTORE_6, checkpoint=7, restored=[seg(7)], found=marker(L2, 6, seg(6))))


def test_an_owner_that_went_on_with_the_child_keeps_to_it() -> None:
    later = replace(RESTORE_6, checkpoint=9, recorded=marker(L2, 6, seg(6, 0)), restored=[seg(9)])
    assert settle(replace(later, found=marker(L2, 9, seg(9)))).marker == marker(L2, 9, seg(9))
    with pytest.raises(MarkerLost):
        settle(replace(later, found=marker(L1, 9, seg(9))))


def test_a_second_driver_that_started_afresh_meanwhile_counts_as_marker_lost() -> None:
    with pytest.raises(MarkerLost, match=r"checkpoint 6 records checkpoint 5.*lineage L9"):
        settle(replace(RESTORE_6, found=marker(Lineage("L9"), 1, seg(1))))


@pytest.mark.parametrize(("policy", "last"), [("replay", seg(5)), ("skip", seg(6, 1))])
def test_a_marker_that_is_gone_is_an_error_with_a_choice(policy: str, last: SegmentName) -> None:
    with pytest.raises(MarkerLost, match=r"offsets.retention.minutes.*2 segment.*\"replay\".*\"skip\""):
        settle(RESTORE_6)
    chosen = replace(RESTORE_6, on_marker_lost=policy)  # type: ignore[arg-type]
    assert settle(chosen).marker == marker(L1, 6, last)


def test_a_marker_that_expired_before_anything_but_the_first_was_recorded_is_lost_too() -> None:
    with pytest.raises(MarkerLost):
        settle(replace(FRESH, checkpoint=1, recorded=marker(L1, 0), restored=[seg(1)]))


def test_a_marker_older_than_the_one_recorded_is_lost() -> None:
    with pytest.raises(MarkerLost, match="went back"):
        settle(replace(RESTORE_6, found=marker(L1, 4, seg(4))))


def test_a_subtask_id_that_is_new_to_the_lineage_starts_a_marker() -> None:
    new = replace(FRESH, checkpoint=20)
    assert settle(new).marker == marker(L1, 20)
    left_by_an_older_run = marker(Lineage("L0"), 9, seg(9))
    assert settle(replace(new, found=left_by_an_older_run)).marker == marker(L1, 20)


def test_a_fork_under_another_name_begins_with_its_parent_and_refuses_foreign_output() -> None:
    fork = replace(FRESH, lineage=L2, checkpoint=6)
    assert settle(fork).marker == marker(L2, 6)
    with pytest.raises(MarkerLost, match="another job"):
        settle(replace(fork, found=marker(Lineage("L9"), 4, seg(4))))


def test_a_marker_survives_its_metadata_and_its_checkpoint() -> None:
    for lineage, last in ((L1, None), (L2, seg(6, 3))):
        original = replace(marker(lineage, 7, last), writer="me")
        assert Marker.from_metadata("group", 7, original.to_metadata()) == original
        assert Marker.from_wire(original.to_wire()) == original


@pytest.mark.parametrize("metadata", ["", "hello", "{}", '{"weir": 99}', "[1]"])
def test_an_offset_that_somebody_else_committed_is_refused(metadata: str) -> None:
    with pytest.raises(ForeignMarker, match="'group'"):
        Marker.from_metadata("group", 7, metadata)


@given(
    out=st.integers(0, 12),
    crashes=st.lists(st.integers(0, 12), max_size=4),
    rewinds=st.booleans(),
)
def test_over_any_crashes_each_segment_is_committed_once(out: int, crashes: list[int], rewinds: bool) -> None:
    names = [seg(epoch, index) for epoch in range(3, 7) for index in range(3)]
    committed = names[:out]
    found = marker(L1, 6, committed[-1] if committed else None)
    situation = replace(
        RESTORE_6, recorded=marker(L1, 2), restored=names, lineage=L2 if rewinds else L1, rewind=rewinds, found=found
    )
    for stop in [*crashes, len(names)]:
        current = settle(situation).marker
        for segment in [n for n in names if current.last is None or n > current.last][:stop]:
            committed.append(segment)
            current = replace(current, last=segment)
        situation = replace(situation, found=current)
    assert committed == names
