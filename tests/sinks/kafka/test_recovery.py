"""What is committed at a restore, decided from markers: every rule of lineages, without a broker."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks import Committable, CommittableName, Lineage
from sinks.kafka.errors import EarlierOutput, ForeignMarker, MarkerLost, OutputAhead
from sinks.kafka.marker import Marker
from sinks.kafka.recovery import KafkaRecovery, recover, recover_in_doubt
from sinks.recovery import OnMarkerLost, decide

L1, L2, L3 = Lineage("L1"), Lineage("L2", ("L1", 6)), Lineage("L3", ("L1", 6))


def seg(epoch: int, index: int = 0) -> CommittableName:
    return CommittableName(epoch, index)


def pending(epoch: int, index: int = 0) -> Committable:
    return Committable(seg(epoch, index), {})


def marker(lineage: Lineage, checkpoint: int, last: CommittableName | None = None) -> Marker:
    return Marker(lineage, checkpoint, last)


FRESH = KafkaRecovery(group="group", lineage=L1, checkpoint=0, recorded=None, found=None, restored=[])
RESTORE_6 = replace(FRESH, checkpoint=6, recorded=marker(L1, 5, seg(5)), restored=[pending(6, 0), pending(6, 1)])


def test_a_first_start_writes_a_marker_that_says_nothing_is_out() -> None:
    assert recover(FRESH) == marker(L1, 0)


def test_a_restart_before_the_first_checkpoint_keeps_its_marker() -> None:
    assert recover(replace(FRESH, found=marker(L1, 0))) == marker(L1, 0)


def test_a_start_without_restore_is_refused_where_output_is_committed() -> None:
    with pytest.raises(EarlierOutput, match=r"checkpoint 9 of lineage L0.*restore=\"none\""):
        recover(replace(FRESH, found=marker(Lineage("L0"), 9, seg(9))))


def test_restore_none_accepts_earlier_output_and_begins_anew() -> None:
    found = marker(Lineage("L0"), 9, seg(9))
    assert recover(replace(FRESH, found=found, ignore_earlier_output=True)) == marker(L1, 0)


def test_the_marker_of_a_start_that_committed_nothing_is_no_earlier_output() -> None:
    assert recover(replace(FRESH, found=marker(Lineage("L0"), 0))) == marker(L1, 0)


def test_a_start_from_nothing_is_no_branch_of_anything() -> None:
    """Not even of a checkpoint 0, which no job has."""
    of_none = Lineage("L2", ("L1", 0))
    assert recover(replace(FRESH, lineage=of_none)).lineage == of_none
    assert not decide(replace(FRESH, lineage=of_none)).begins
    with pytest.raises(EarlierOutput):
        recover(replace(FRESH, found=marker(of_none, 3, seg(3))))


def test_segments_up_to_the_markers_name_are_committed_and_the_rest_is_pending() -> None:
    assert recover(replace(RESTORE_6, found=marker(L1, 6, seg(6, 0)))).last == seg(6, 0)
    assert recover(replace(RESTORE_6, found=marker(L1, 5, seg(5)))).last == seg(5)


def test_output_ahead_of_the_checkpoint_stops_with_what_to_do() -> None:
    with pytest.raises(OutputAhead, match=r"checkpoint 6 is being restored.*checkpoint 7 of lineage L1.*rewind=True"):
        recover(replace(RESTORE_6, found=marker(L1, 7, seg(7))))


def test_a_rewind_excuses_only_what_was_ahead_when_it_began() -> None:
    """A job that was rewound once is not rewound again at each of its restarts."""
    with pytest.raises(OutputAhead, match="ahead of this checkpoint: checkpoint 6 is being restored"):
        recover(replace(RESTORE_6, rewind=True, found=marker(L1, 7, seg(7))))


def test_a_rewind_settles_by_the_old_marker_and_begins_a_lineage_that_names_its_parent() -> None:
    s = replace(RESTORE_6, lineage=L2, rewind=True)
    ahead, behind = recover(replace(s, found=marker(L1, 7, seg(7)))), recover(replace(s, found=marker(L1, 5, seg(5))))
    assert (ahead.lineage, ahead.checkpoint) == (L2, 6)
    assert ahead.last is not None
    assert ahead.last >= seg(6, 1)
    assert behind == marker(L2, 6, seg(5))


def test_a_rewound_lineage_does_not_count_ids_given_out_again_as_out() -> None:
    again = recover(replace(RESTORE_6, lineage=L2, rewind=True, found=marker(L1, 7, seg(7, 3)))).last
    assert again is not None
    assert again < seg(7, 0)


def test_a_rewind_that_crashed_before_its_first_checkpoint_can_be_repeated() -> None:
    begun = marker(L2, 6, seg(6, 0))
    assert recover(replace(RESTORE_6, lineage=L2, rewind=True, found=begun)) == begun
    assert recover(replace(RESTORE_6, lineage=L3, rewind=True, found=begun)) == marker(L3, 6, seg(6, 0))


def test_a_restore_of_the_parent_goes_on_with_its_child() -> None:
    begun = marker(L2, 6, seg(6, 0))
    assert recover(replace(RESTORE_6, found=begun)) == begun


def test_a_restore_of_the_parent_goes_on_with_a_child_that_was_rewound_from_output_ahead() -> None:
    begun = recover(replace(RESTORE_6, lineage=L2, rewind=True, found=marker(L1, 7, seg(7))))
    assert recover(replace(RESTORE_6, found=begun)) == begun


def test_a_child_that_went_on_is_ahead_of_its_parent() -> None:
    for lineage in (L1, L3):
        with pytest.raises(OutputAhead, match="checkpoint 8 of lineage L2"):
            recover(replace(RESTORE_6, lineage=lineage, found=marker(L2, 8, seg(8))))


def test_a_child_of_another_checkpoint_counts_as_marker_lost() -> None:
    with pytest.raises(MarkerLost, match="lineage L2"):
        recover(replace(RESTORE_6, checkpoint=7, restored=[pending(7)], found=marker(L2, 6, seg(6))))


def test_a_writer_that_went_on_with_the_child_keeps_to_it() -> None:
    later = replace(RESTORE_6, checkpoint=9, recorded=marker(L2, 6, seg(6, 0)), restored=[pending(9)])
    assert recover(replace(later, found=marker(L2, 9, seg(9)))) == marker(L2, 9, seg(9))
    with pytest.raises(MarkerLost):
        recover(replace(later, found=marker(L1, 9, seg(9))))


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (
            marker(Lineage("L9"), 1, seg(1)),
            r"L9, began from nothing.*restore checkpoint 1 or a later one from that run",
        ),
        (marker(Lineage("L9", ("L1", 3)), 8, seg(8)), r"L9, began at checkpoint 3 of lineage L1.*restore checkpoint 8"),
        (marker(Lineage("L9"), 0), r"It has committed nothing\."),
    ],
    ids=["afresh", "from an older checkpoint", "without output"],
)
def test_a_run_that_took_the_names_over_meanwhile_counts_as_marker_lost_and_is_told(found: Marker, told: str) -> None:
    with pytest.raises(MarkerLost) as caught:
        recover(replace(RESTORE_6, found=found))
    message = str(caught.value)
    whose = (
        r"is another run's: checkpoint 6 records checkpoint 5 of lineage L1.*the group says checkpoint \d of lineage L9"
    )
    assert re.search(whose, message), message
    assert re.search(told, message), message
    assert re.search(r"another checkpoint folder.*transactional_id_prefix.*on_marker_lost", message), message
    assert "retention" not in message, "Kafka has forgotten nothing"


@pytest.mark.parametrize(("policy", "last"), [("replay", seg(5)), ("skip", seg(6, 1))])
def test_a_marker_that_is_gone_is_an_error_with_a_choice(policy: str, last: CommittableName) -> None:
    with pytest.raises(MarkerLost, match=r"offsets.retention.minutes.*2 segments.*\"replay\".*\"skip\""):
        recover(RESTORE_6)
    chosen = replace(RESTORE_6, when_lost=policy)  # type: ignore[arg-type]
    assert recover(chosen) == marker(L1, 6, last)


def test_without_a_marker_nothing_is_skipped_that_the_checkpoint_does_not_hold() -> None:
    assert recover(replace(RESTORE_6, restored=[], when_lost="skip")) == marker(L1, 6, seg(5))


def test_a_marker_that_expired_before_anything_but_the_first_was_recorded_is_lost_too() -> None:
    with pytest.raises(MarkerLost):
        recover(replace(FRESH, checkpoint=1, recorded=marker(L1, 0), restored=[pending(1)]))


def test_a_marker_older_than_the_one_recorded_is_lost() -> None:
    with pytest.raises(MarkerLost, match=r"went back\. Somebody has reset.* \(2 segments\).*\"replay\".*\"skip\""):
        recover(replace(RESTORE_6, found=marker(L1, 4, seg(4))))


def test_a_subtask_id_that_is_new_to_the_lineage_starts_a_marker() -> None:
    new = replace(FRESH, checkpoint=20)
    assert recover(new) == marker(L1, 20)
    left_by_an_older_run = marker(Lineage("L0"), 9, seg(9))
    assert recover(replace(new, found=left_by_an_older_run)) == marker(L1, 20)


def test_a_subtask_id_that_is_new_to_a_child_lineage_does_not_begin_another() -> None:
    assert recover(replace(FRESH, lineage=L2, checkpoint=9)).lineage == L2


def test_output_that_is_pending_without_any_marker_is_not_taken_for_the_first() -> None:
    with pytest.raises(MarkerLost, match="checkpoint 6 records none, and the group has no committed offset"):
        recover(replace(FRESH, checkpoint=6, restored=[pending(6)]))


# -- forks and starts that don't claim ------------------------------------------------------------------------------

FORK = replace(FRESH, lineage=L2, checkpoint=6, fork=True)
"""A pipeline of another name that starts from checkpoint 6 of L1: nothing in there is its own."""
DROP = replace(RESTORE_6, lineage=L2, restored=[])
"""`claim=False`: what checkpoint 6 holds is dropped, but the markers are the job's."""


def test_a_fork_begins_with_a_marker_that_names_its_parent() -> None:
    assert recover(FORK) == marker(L2, 6)


def test_a_fork_that_crashed_before_its_first_checkpoint_begins_again() -> None:
    begun = marker(L2, 6)
    assert recover(replace(FORK, found=begun)) == begun
    # Another driver has made up another name for it.
    assert recover(replace(FORK, lineage=L3, found=begun)) == marker(L3, 6)


def test_a_fork_that_went_on_is_ahead_of_the_savepoint_it_started_from() -> None:
    for lineage in (L2, L3):
        with pytest.raises(OutputAhead, match=r"checkpoint 6 is being restored.*checkpoint 9 of lineage L2"):
            recover(replace(FORK, lineage=lineage, found=marker(L2, 9, seg(9))))


def test_a_fork_that_is_rewound_begins_anew_and_counts_nothing_of_its_first_run_as_out() -> None:
    again = recover(replace(FORK, lineage=L3, rewind=True, found=marker(L2, 9, seg(9, 2))))
    assert (again.lineage, again.checkpoint) == (L3, 6)
    assert again.last is not None
    assert again.last < seg(7, 0)


@pytest.mark.parametrize("rewind", [False, True])
@pytest.mark.parametrize("found", [marker(L1, 0), marker(L1, 5, seg(5)), marker(L1, 9, seg(9))])
def test_a_fork_never_takes_over_the_names_of_its_original(found: Marker, rewind: bool) -> None:
    with pytest.raises(ForeignMarker, match=r"'group' belongs to the pipeline that this one is a fork of.*_prefix"):
        recover(replace(FORK, rewind=rewind, found=found))


@pytest.mark.parametrize(
    "lineage", [Lineage("L9"), Lineage("L4", ("L1", 5)), Lineage("L4", ("L9", 6))], ids=["none", "older", "other"]
)
def test_a_fork_refuses_names_with_output_that_does_not_come_from_its_savepoint(lineage: Lineage) -> None:
    found = marker(lineage, 8, seg(8))
    with pytest.raises(EarlierOutput, match=r"from checkpoint 6 of lineage L1.*checkpoint 8 of lineage.*rewind=True"):
        recover(replace(FORK, found=found))
    assert recover(replace(FORK, found=found, rewind=True)) == marker(L2, 6)
    assert recover(replace(FORK, found=marker(lineage, lineage.parent[1] if lineage.parent else 0))) == marker(L2, 6)


def test_a_fork_of_a_fork_is_told_from_both() -> None:
    fork = replace(FRESH, lineage=Lineage("L4", ("L2", 9)), checkpoint=9, fork=True)
    assert recover(fork) == marker(Lineage("L4", ("L2", 9)), 9)
    with pytest.raises(ForeignMarker):
        recover(replace(fork, found=marker(L2, 9, seg(9))))
    with pytest.raises(EarlierOutput):
        recover(replace(fork, found=marker(L1, 9, seg(9))))


def test_a_fork_with_a_checkpoint_of_its_own_is_a_job_like_any_other() -> None:
    own = replace(FRESH, lineage=L2, checkpoint=9, recorded=marker(L2, 6), restored=[pending(8), pending(9)])
    assert recover(replace(own, found=marker(L2, 8, seg(8)))) == marker(L2, 8, seg(8))
    with pytest.raises(OutputAhead):
        recover(replace(own, found=marker(L2, 10, seg(10))))
    with pytest.raises(MarkerLost):  # a second fork was started under its name
        recover(replace(own, found=marker(L3, 6)))


def test_dropping_what_a_checkpoint_holds_begins_a_lineage_behind_it() -> None:
    for found in (marker(L1, 5, seg(5)), marker(L1, 6, seg(6, 0))):
        assert recover(replace(DROP, found=found)) == marker(L2, 6, found.last)


def test_dropping_does_not_excuse_output_that_is_ahead() -> None:
    for lineage in (L2, L3):
        for ahead in (marker(L1, 7, seg(7)), marker(L2, 8, seg(8))):
            with pytest.raises(OutputAhead):
                recover(replace(DROP, lineage=lineage, found=ahead))
    assert recover(replace(DROP, rewind=True, found=marker(L1, 7, seg(7)))).lineage == L2


def test_dropping_that_crashed_before_its_first_checkpoint_can_be_repeated() -> None:
    begun = marker(L2, 6, seg(5))
    assert recover(replace(DROP, found=begun)) == begun
    assert recover(replace(DROP, lineage=L3, found=begun)) == marker(L3, 6, seg(5))


def test_who_thinks_better_of_dropping_before_the_first_checkpoint_commits_what_is_left() -> None:
    begun = marker(L2, 6, seg(6, 0))
    assert recover(replace(RESTORE_6, found=begun)) == begun


def test_a_subtask_id_that_is_new_may_have_a_marker_of_an_attempt_that_came_to_nothing() -> None:
    new = replace(DROP, recorded=None)
    assert recover(replace(new, found=marker(L1, 6))) == marker(L2, 6)
    with pytest.raises(OutputAhead):
        recover(replace(new, found=marker(L1, 8, seg(8))))


def test_a_subtask_id_that_is_new_to_a_rewound_job_refuses_another_lineages_output() -> None:
    with pytest.raises(MarkerLost, match="another job"):
        recover(replace(DROP, recorded=None, rewind=True, found=marker(Lineage("L9"), 4, seg(4))))


# -- branches of one lineage ------------------------------------------------------------------------------------------


def test_output_of_another_reading_of_the_same_records_stops_the_restore() -> None:
    """From checkpoint 2 the job went on twice: to a savepoint with segment 3, and, restarted, to one with segment 4.
    The first was restored and has committed segment 3; the second would write the same records again."""
    second = replace(
        RESTORE_6, recorded=marker(L1, 2, seg(2)), restored=[pending(4)], lineage=L1, found=marker(L1, 3, seg(3))
    )
    with pytest.raises(OutputAhead, match="another branch of this job's history"):
        recover(second)
    rewound = replace(second, lineage=replace(L2, parent=("L1", 6)), rewind=True)
    assert recover(rewound).lineage.parent == (L1.id, 6)


@pytest.mark.parametrize(
    "found",
    [marker(L1, 3, seg(3)), marker(L1, 4, seg(4)), marker(L1, 5, seg(4)), marker(L1, 2, seg(2)), marker(L1, 3, seg(2))],
)
def test_whatever_of_its_own_history_is_out_is_no_other_branch(found: Marker) -> None:
    own = replace(RESTORE_6, recorded=marker(L1, 2, seg(2)), restored=[pending(3), pending(4)], lineage=L1, found=found)
    assert recover(own) == found


# -- the marker's form ----------------------------------------------------------------------------------------------


def test_a_marker_survives_its_metadata_and_its_checkpoint() -> None:
    for lineage, last in ((L1, None), (L2, seg(6, 3))):
        original = replace(marker(lineage, 7, last), committer="me")
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
    recovery = replace(
        RESTORE_6,
        recorded=marker(L1, 2),
        restored=[Committable(name, {}) for name in names],
        lineage=L2 if rewinds else L1,
        rewind=rewinds,
        found=found,
    )
    for stop in [*crashes, len(names)]:
        current = recover(recovery)
        for segment in [n for n in names if current.last is None or n > current.last][:stop]:
            committed.append(segment)
            current = replace(current, last=segment)
        recovery = replace(recovery, found=current)
    assert committed == names


# -- a transaction of unknown outcome ---------------------------------------------------------------------------------

KNOWN, ATTEMPTED, OTHERS = marker(L1, 5, seg(5)), marker(L1, 6, seg(6)), replace(marker(L1, 6, seg(6)), committer="x")


@pytest.mark.parametrize("policy", ["fail", "replay", "skip"])
@pytest.mark.parametrize(
    ("known", "attempted", "found", "committed"),
    [
        (KNOWN, None, KNOWN, KNOWN),
        (KNOWN, ATTEMPTED, KNOWN, KNOWN),
        (KNOWN, ATTEMPTED, ATTEMPTED, ATTEMPTED),
        (KNOWN, None, None, KNOWN),  # somebody deleted it; the next transaction writes it again
    ],
)
def test_a_new_producer_tells_whether_the_last_transaction_was_committed(
    policy: OnMarkerLost, known: Marker, attempted: Marker | None, found: Marker | None, committed: Marker
) -> None:
    assert recover_in_doubt("group", known, attempted, found, policy) == committed


@pytest.mark.parametrize(("policy", "committed"), [("replay", KNOWN), ("skip", ATTEMPTED)])
def test_a_marker_that_vanished_during_a_commit_is_an_error_with_a_choice(
    policy: OnMarkerLost, committed: Marker
) -> None:
    with pytest.raises(MarkerLost, match=r"'group' vanished.*checkpoint 6.*\"replay\".*\"skip\""):
        recover_in_doubt("group", KNOWN, ATTEMPTED, None, "fail")
    assert recover_in_doubt("group", KNOWN, ATTEMPTED, None, policy) == committed


@pytest.mark.parametrize("attempted", [None, ATTEMPTED])
def test_a_marker_that_somebody_else_wrote_meanwhile_is_refused(attempted: Marker | None) -> None:
    with pytest.raises(ForeignMarker, match=r"'group': it says checkpoint 6.*last wrote checkpoint 5"):
        recover_in_doubt("group", KNOWN, attempted, OTHERS, "replay")
