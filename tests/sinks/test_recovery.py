"""What all markers have in common. The rules by which they are judged are tested with those of Kafka and of files."""

from __future__ import annotations

import pytest

from sinks import Committable, CommittableName, Lineage
from sinks.recovery import OutputMarker, up_to

BEGUN, CHILD = Lineage("L1"), Lineage("L2", ("L1", 6))


@pytest.mark.parametrize(
    ("marker", "output"),
    [
        (OutputMarker(BEGUN, 0), False),
        (OutputMarker(BEGUN, 1), True),  # what checkpoint 1 holds may be committed in part
        (OutputMarker(CHILD, 6), False),
        (OutputMarker(CHILD, 7), True),
        (OutputMarker(CHILD, 6, CommittableName(6, 0)), True),
    ],
)
def test_there_may_be_output_once_a_segment_or_a_checkpoint_is_behind_the_lineages_begin(
    marker: OutputMarker, output: bool
) -> None:
    assert marker.has_output is output


def test_progress_grows_with_what_is_committed() -> None:
    markers = [
        OutputMarker(BEGUN, 0),
        OutputMarker(BEGUN, 2),
        OutputMarker(BEGUN, 2, CommittableName(1, 3)),
        OutputMarker(BEGUN, 2, CommittableName(2, 0)),
        OutputMarker(BEGUN, 2, CommittableName(2, 1)),
        OutputMarker(BEGUN, 3, CommittableName(2, 1)),
    ]
    assert sorted(markers, key=lambda marker: marker.progress) == markers
    assert len({marker.progress for marker in markers}) == len(markers)


def test_what_is_behind_the_last_segment_is_not_committed() -> None:
    names = [CommittableName(1, 0), CommittableName(1, 1), CommittableName(2, 0)]
    pending = [Committable(name, {}) for name in names]
    assert OutputMarker(BEGUN, 0).after(pending) == pending
    assert OutputMarker(BEGUN, 1, names[1]).after(pending) == pending[2:]


@pytest.mark.parametrize("last", [None, CommittableName(5, 2), CommittableName(6, 2)])
def test_a_child_lineage_counts_what_its_parent_has_committed_up_to_where_it_begins(
    last: CommittableName | None,
) -> None:
    assert up_to(last, 6) == last


def test_a_child_lineage_counts_all_of_its_first_checkpoint_and_nothing_of_later_ones() -> None:
    cut = up_to(CommittableName(7, 0), 6)
    assert cut is not None
    assert CommittableName(6, 1_000_000) < cut < CommittableName(7, 0)
