"""Schedules that broke earlier drafts of the protocol, each as a case of its own: with today's rules they all pass.

`test_rules` shows for most of them that the same kind of run fails when the rule is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from simulated.graph import Graph, Row
from simulated.output import OutputSystem, SimulatedCommitter
from simulated.shapes import BROADCAST, CUSTOM, FORWARD, KEYED, REBALANCE, RESCALE, chain, union, with_rules
from simulated.simulation import Simulation

from checkpoint.committables import Committable, SegmentName
from checkpoint.storage.handles import FileHandle
from sinks.kafka.errors import EarlierOutput, MarkerLost, OutputAhead
from sinks.kafka.marker import Marker
from sinks.sink import Lineage

_SEEDS = 6
_UNALIGNED: dict[str, Any] = {
    "exactly_once": True,
    "alignments": (0.0,),
    "max_concurrent": 3,
    "interval": 0.2,
    "timeout": 60.0,
    "storage_seconds": 0.01,
    "crashes": 6,
    "markers_lost": 0.0,
    "storm": 2500,
}
_CASES: dict[str, tuple[Callable[[], Graph], dict[str, Any]]] = {
    "restored data first, as one ordered sequence": (
        lambda: chain(KEYED, KEYED, FORWARD),
        {"keep_parallelism": 1.0, "slow": ("work",), "crash_moments": ("complete",)},
    ),
    "two keyed hops, rescaled every time": (lambda: chain(KEYED, KEYED, FORWARD), {"keep_parallelism": 0.0}),
    "committables travel with every later checkpoint": (
        lambda: chain(KEYED, FORWARD),
        {"slow": ("commit",), "crash_moments": ("complete", "commit")},
    ),
    "segments that were aborted join the next epoch, and keep their names": (
        lambda: chain(KEYED, FORWARD),
        {"slow": ("report",), "storage_failures": 0.1, "crash_moments": ("commit",)},
    ),
    "a key's older epochs are committed first after rescaling": (
        lambda: chain(KEYED, FORWARD, records=20),
        {"slow": ("commit sink-0",), "keep_parallelism": 0.0, "crash_moments": ("complete",)},
    ),
    "operators that emit for broadcast elements, not rescaled": (with_rules, {"keep_parallelism": 1.0}),
    "operators that emit for broadcast elements, rescaled": (with_rules, {"keep_parallelism": 0.0}),
    "broadcast and custom edges into one operator": (lambda: with_rules(CUSTOM), {"keep_parallelism": 0.3}),
    "broadcast and rebalance edges into one operator": (lambda: with_rules(REBALANCE), {"keep_parallelism": 0.3}),
    "a broadcast edge alone": (lambda: chain(BROADCAST, KEYED, FORWARD, splits=1, records=6), {}),
    "forward edges from the source, rescaled": (
        lambda: chain(FORWARD, KEYED, FORWARD),
        {"keep_parallelism": 0.0, "slow": ("work op0-0",), "crash_moments": ("complete",)},
    ),
    "forward edges behind a keyed operator go by key group": (
        lambda: chain(KEYED, FORWARD, KEYED, FORWARD),
        {"keep_parallelism": 0.0, "slow": ("work op1",)},
    ),
    "a checkpoint taken during a drain drains again": (
        lambda: chain(FORWARD, KEYED, FORWARD),
        {"keep_parallelism": 0.5, "interval": 0.1, "crashes": 8, "slow": ("work op0-0",)},
    ),
    "aligned, unaligned and savepoints at once": (
        lambda: chain(KEYED, KEYED, FORWARD),
        {"alignments": (0.0, None, 0.05), "savepoints": True, "savepoint_alignment": None, "slow": ("send",)},
    ),
    "announcements lag behind what is taken": (
        union,
        {"alignments": (0.0, 0.05), "slow": ("announce",), "keep_parallelism": 0.5},
    ),
    "barriers turn in the sender's queue": (
        lambda: chain(KEYED, RESCALE, KEYED, FORWARD),
        {"alignments": (0.05,), "slow": ("send",), "output_room": 4},
    ),
    "watermarks of old channels stay apart until they are drained": (
        lambda: chain(REBALANCE, KEYED, FORWARD),
        {"keep_parallelism": 0.0, "slow": ("work",)},
    ),
    "watermarks wait for broadcast inputs after rescaling": (
        lambda: with_rules(FORWARD),
        {"keep_parallelism": 0.0, "slow": ("work rules",), "crash_moments": ("complete",)},
    ),
    "every checkpoint would expire: spans shrink until one completes": (
        lambda: chain(KEYED, FORWARD, records=20),
        {"alignments": (None,), "timeout": 4.0, "slow": ("work sink",), "max_span_records": 8, "crashes": 0},
    ),
    "lost triggers, notifications and heartbeats": (union, {"lost": 0.5}),
    "a slow deleter and failing storage": (union, {"deletion_seconds": 5.0, "storage_failures": 0.1}),
    "at least once": (union, {"exactly_once": False}),
}


@pytest.mark.parametrize("name", _CASES)
def test_a_schedule_that_broke_an_earlier_draft(name: str) -> None:
    make, overrides = _CASES[name]
    for seed in range(_SEEDS):
        Simulation(seed, make(), **(_UNALIGNED | {"lost": 0.0, "storage_failures": 0.0} | overrides)).run()


def test_a_source_knows_the_barriers_that_it_took_before_it_began_to_read() -> None:
    """Its gate was made anew at the first heartbeat, and took an aborted checkpoint's barrier behind a later one's."""
    Simulation(912346364).run()


# -- lineages and markers, step by step -----------------------------------------------------------------------------


class _Owner:
    """One sink owner over several starts."""

    def __init__(self) -> None:
        self.output = OutputSystem()

    @property
    def out(self) -> list[int]:
        return [row.sequence for row in self.output.log.get("sink", [])]

    def start(
        self,
        lineage: Lineage,
        checkpoint: int,
        recorded: Marker | None,
        pending: Sequence[int] = (),
        rewind: bool = False,
    ) -> SimulatedCommitter:
        """Restore `checkpoint`, in which the epochs `pending` aren't known to be committed, and commit what is left."""
        rng = Simulation(0).rng
        committer = SimulatedCommitter(self.output, _rows, "sink", 0, lineage, checkpoint, recorded, rng)
        for _ in committer.open([_segment(n) for n in pending], rewind):
            pass
        self.commit(committer, committer.left, checkpoint)
        return committer

    def commit(self, committer: SimulatedCommitter, segments: Sequence[Committable], checkpoint: int) -> None:
        if segments:
            for _ in committer.commit(checkpoint, segments):
                pass


def _segment(epoch: int) -> Committable:
    return Committable(SegmentName(epoch, 0), None, (FileHandle(f"shared/1-{epoch}.arrow", 1, ""),))


def _rows(path: str) -> list[Row]:
    return [Row(0, int(path.removeprefix("shared/1-").removesuffix(".arrow")))]


_FIRST = Lineage("first")


def test_an_epoch_whose_commit_nobody_knows_of_is_not_committed_again() -> None:
    owner = _Owner()
    running = owner.start(_FIRST, 0, None)
    recorded = running.marker
    owner.commit(running, [_segment(1)], 1)
    owner.start(_FIRST, 1, recorded, pending=[1])
    assert owner.out == [1]


def test_a_marker_lost_before_it_was_ever_moved_is_noticed() -> None:
    """The first marker is written at the start, so that the first checkpoint records one."""
    owner = _Owner()
    recorded = owner.start(_FIRST, 0, None).marker
    assert recorded is not None
    owner.output.markers.clear()
    with pytest.raises(MarkerLost):
        owner.start(_FIRST, 1, recorded, pending=[1])


def test_another_job_under_the_same_name_in_between_counts_as_a_lost_marker() -> None:
    owner = _Owner()
    running = owner.start(_FIRST, 0, None)
    recorded = running.marker
    owner.commit(running, [_segment(1)], 1)
    with pytest.raises(EarlierOutput):
        owner.start(Lineage("second"), 0, None)
    owner.output.markers["sink-0"] = Marker(Lineage("second"), 1, SegmentName(1, 0))
    with pytest.raises(MarkerLost):
        owner.start(_FIRST, 1, recorded, pending=[1])


def test_output_beyond_the_checkpoint_stops_the_job_unless_it_rewinds() -> None:
    owner = _Owner()
    running = owner.start(_FIRST, 0, None)
    recorded = running.marker
    owner.commit(running, [_segment(1)], 1)
    owner.commit(running, [_segment(2)], 2)
    with pytest.raises(OutputAhead):
        owner.start(_FIRST, 1, recorded, pending=[1])
    child = Lineage("child", ("first", 1))
    owner.start(child, 1, recorded, pending=[1], rewind=True)
    assert owner.out == [1, 2]


def test_a_crash_before_the_new_lineages_first_checkpoint_repeats_nothing() -> None:
    owner = _Owner()
    running = owner.start(_FIRST, 0, None)
    recorded = running.marker
    owner.commit(running, [_segment(1)], 1)
    child = Lineage("child", ("first", 2))
    owner.start(child, 2, recorded, pending=[1, 2], rewind=True)
    owner.start(child, 2, recorded, pending=[1, 2], rewind=True)
    assert owner.out == [1, 2]


def test_a_restore_of_the_parent_that_finds_its_own_child_goes_on_with_the_child() -> None:
    owner = _Owner()
    running = owner.start(_FIRST, 0, None)
    recorded = running.marker
    owner.commit(running, [_segment(1)], 1)
    owner.start(Lineage("child", ("first", 1)), 1, recorded, pending=[1], rewind=True)
    again = owner.start(_FIRST, 1, recorded, pending=[1])
    assert again.marker is not None
    assert again.marker.lineage.id == "child"
    assert owner.out == [1]
