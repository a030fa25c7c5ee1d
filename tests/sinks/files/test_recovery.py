"""Recovering a writer of files, decided from markers: what differs from Kafka, without a folder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sinks import Committable, CommittableName, Lineage
from sinks.files.errors import EarlierOutput, MarkerLost, OutputAhead
from sinks.files.marker import Marker, newest
from sinks.files.recovery import FileRecovery
from sinks.recovery import recover

L1, L2, OTHER = Lineage("L1"), Lineage("L2", ("L1", 6)), Lineage("L9")


def part(epoch: int, index: int = 0) -> Committable:
    return Committable(CommittableName(epoch, index), {"path": f"p{epoch}-{index}"})


def marker(lineage: Lineage, checkpoint: int, last: Committable | None = None) -> Marker:
    return Marker(lineage, checkpoint, last.name, last.payload["path"]) if last else Marker(lineage, checkpoint)


RESTORE_6 = FileRecovery(
    where="folder (sink 'out', writer 0)",
    lineage=L1,
    checkpoint=6,
    recorded=marker(L1, 5, part(5)),
    found=marker(L1, 5, part(5)),
    restored=[part(6, 0), part(6, 1)],
)
REWIND = replace(RESTORE_6, lineage=L2, rewind=True)


@pytest.mark.parametrize("last", [part(5), part(6, 0), part(6, 1)])
def test_a_marker_of_the_checkpoints_own_history_stays(last: Committable) -> None:
    found = marker(L1, 6, last)
    assert recover(replace(RESTORE_6, found=found)) == found


def test_a_part_of_another_name_is_another_branch_although_its_number_is_known() -> None:
    """Segment 6/1 of another attempt, which has read the same records again."""
    found = Marker(L1, 6, CommittableName(6, 1), "another")
    with pytest.raises(OutputAhead, match=r"another branch.*folder.* another is the last file, and checkpoint 6"):
        recover(replace(RESTORE_6, found=found))


def test_before_the_first_part_there_is_no_other_branch() -> None:
    assert recover(replace(RESTORE_6, recorded=marker(L1, 5), found=marker(L1, 6))) == marker(L1, 6)


def test_a_rewind_takes_the_last_part_along_unless_it_is_ahead() -> None:
    kept = recover(replace(REWIND, found=marker(L1, 6, part(6, 0))))
    assert (kept.lineage, kept.checkpoint, kept.last, kept.path) == (L2, 6, CommittableName(6, 0), "p6-0")
    cut = recover(replace(REWIND, found=marker(L1, 7, part(7))))
    assert cut.path == ""
    assert cut.last is not None
    assert CommittableName(6, 1) < cut.last < CommittableName(7, 0)


@pytest.mark.parametrize("found", [None, marker(OTHER, 6, part(6))])
def test_a_marker_that_is_lost_is_an_error_unless_a_rewind_begins(found: Marker | None) -> None:
    lost = r"is lost: checkpoint 6 records checkpoint 5 of lineage L1, and .*folder _weir.*2 files.*rewind=True"
    for refused in (RESTORE_6, replace(RESTORE_6, rewind=True), replace(REWIND, rewind=False)):
        with pytest.raises(MarkerLost, match=lost):
            recover(replace(refused, found=found))
    assert recover(replace(REWIND, found=found)).lineage == L2


def test_a_rewind_without_a_marker_writes_what_the_checkpoint_holds() -> None:
    again = recover(replace(REWIND, found=None))
    assert (again.lineage, again.last, again.path) == (L2, CommittableName(5, 0), "")


@pytest.mark.parametrize(
    ("found", "what"),
    [
        (None, "no marker is there"),
        (marker(L1, 4, part(4)), "says checkpoint 4 of lineage L1: it went back"),
        (marker(OTHER, 6, part(6)), "says checkpoint 6 of lineage L9"),
    ],
)
def test_it_is_told_what_is_there_instead_of_the_marker(found: Marker | None, what: str) -> None:
    with pytest.raises(MarkerLost) as caught:
        recover(replace(RESTORE_6, found=found))
    assert what in str(caught.value)


def test_another_jobs_marker_is_told_as_that() -> None:
    new = replace(REWIND, recorded=None, restored=[], rewind=False, found=marker(OTHER, 4, part(4)))
    with pytest.raises(MarkerLost, match="the output of another job under the same names"):
        recover(new)


def test_output_without_a_checkpoint_is_told_with_what_to_do() -> None:
    fresh = replace(RESTORE_6, checkpoint=0, recorded=None, restored=[], found=marker(OTHER, 4, part(4)))
    with pytest.raises(EarlierOutput, match=r'folder.* has files of checkpoint 4 of lineage L9.*restore="none"'):
        recover(fresh)
    assert recover(replace(fresh, ignore_earlier_output=True)) == marker(L1, 0)


def test_of_several_markers_the_newest_committers_counts_and_of_its_own_the_one_that_is_farthest() -> None:
    late = replace(marker(L1, 9, part(9)), term=1)
    behind, ahead = replace(marker(L1, 5, part(5)), term=2), replace(marker(L1, 6, part(5)), term=2)
    assert newest([late, ahead, behind]) == newest([behind, ahead, late]) == ahead
    assert newest([]) is None
