"""What of a writer's output is committed in Kafka at a restore, told from its marker. Pure; see `sinks.recovery`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NoReturn

from sinks.kafka.errors import EarlierOutput, ForeignMarker, MarkerLost, OutputAhead
from sinks.kafka.marker import Marker
from sinks.recovery import Outcome, decide, up_to
from sinks.sink import Lineage, SegmentName

OnMarkerLost = Literal["fail", "replay", "skip"]

_FORGOTTEN: Final = (
    "Kafka forgets the offsets of a group without members after offsets.retention.minutes (7 days by default); a new "
    "transactional_id_prefix begins without any."
)
_RESET: Final = "Somebody has reset the group's offsets, or the brokers have lost some."
_SHARED: Final = "Two jobs must not share a transactional_id_prefix and sink id."


@dataclass(frozen=True, slots=True)
class WriterRecovery:
    group: str
    """The marker group, for messages."""
    lineage: Lineage
    """The job's."""
    checkpoint: int
    """Id of the checkpoint restored; 0 for none."""
    recorded: Marker | None
    """Last marker known to be committed when that checkpoint was taken."""
    found: Marker | None
    """The marker in Kafka, read when nothing of an earlier producer is pending any more."""
    restored: Sequence[SegmentName]
    """Segments of the checkpoint that it doesn't know to be committed, in order."""
    rewind: bool
    ignore_earlier_output: bool
    on_marker_lost: OnMarkerLost
    fork: bool = False
    """The checkpoint is another pipeline's."""


@dataclass(frozen=True, slots=True)
class RecoveredMarker:
    marker: Marker
    """What the marker must say before the writer takes part in a checkpoint. Segments up to its `last` are committed,
    the others must be committed."""


def recover(s: WriterRecovery) -> RecoveredMarker:
    """
    Raises:
        OutputAhead: output of a later checkpoint is committed, and the user didn't ask to rewind.
        EarlierOutput: committed output that doesn't come from the checkpoint, or no checkpoint.
        ForeignMarker: the names are those of the pipeline that this one is a fork of.
        MarkerLost: by `on_marker_lost`.
    """
    found = s.found
    if found is not None and s.fork:
        refuse_the_originals(s.group, s.lineage, found)
    decision = decide(s, lambda marker: _unknown_here(s, marker))
    ours = decision.ours
    if found is None:
        if decision.outcome is Outcome.ANEW:
            return RecoveredMarker(Marker(ours, s.checkpoint, None))
        return _lost(s, ours, "is lost", "has no committed offset", _FORGOTTEN)
    match decision.outcome:
        case Outcome.GOES_ON:
            return RecoveredMarker(found)
        case Outcome.BRANCHES:
            return RecoveredMarker(Marker(ours, s.checkpoint, up_to(found.last, s.checkpoint)))
        case Outcome.ANEW:
            return RecoveredMarker(Marker(ours, s.checkpoint, None))
        case Outcome.AHEAD:
            _ahead(s, found)
        case Outcome.OTHER_BRANCH:
            _other_branch(s, found)
        case Outcome.EARLIER_OUTPUT:
            _earlier(s, found)
        case Outcome.OTHER_OUTPUT:
            _other_output(s, found)
        case Outcome.WENT_BACK:
            return _lost(s, ours, "is lost", f"says {found}: it went back", _RESET)
        case Outcome.ANOTHER_JOBS:
            return _lost(s, ours, "is another job's", f"says {found}", _SHARED)
    return _lost(s, ours, "is another run's", f"says {found}", _taken_over(found))


def refuse_the_originals(group: str, fork: Lineage, found: Marker) -> None:
    """
    Raises:
        ForeignMarker: the marker in the group is that of the pipeline that this one is a fork of.
    """
    if fork.parent is not None and found.lineage.id == fork.parent[0]:
        raise ForeignMarker(
            f"group {group!r} belongs to the pipeline that this one is a fork of: its marker says {found}. The fork "
            "would keep the original from committing. Give it a transactional_id_prefix of its own"
        )


def _unknown_here(s: WriterRecovery, found: Marker) -> bool:
    if s.recorded is None or found.last is None or found.last == s.recorded.last:
        return False
    return found.last not in s.restored and found.progress > s.recorded.progress


def _other_branch(s: WriterRecovery, found: Marker) -> NoReturn:
    raise OutputAhead(
        f"output of another branch of this job's history is committed: the marker of group {s.group!r} says that "
        f"{found} is committed, and checkpoint {s.checkpoint}, which is being restored, doesn't know that segment. "
        "Both hold the same records, read twice after a restart from an older checkpoint. Restore the checkpoint or "
        "savepoint whose output was committed, or a later one; or start with rewind=True to accept that records are "
        "written again."
    )


def _ahead(s: WriterRecovery, found: Marker) -> NoReturn:
    restore = f"checkpoint {s.checkpoint}" if s.checkpoint else "no checkpoint"
    raise OutputAhead(
        f"output is ahead of this checkpoint: {restore} is being restored, but the marker of group {s.group!r} says "
        f"that {found} is committed. Restore checkpoint {found.checkpoint} or a later one, or start with rewind=True "
        f"to accept that what was written after checkpoint {s.checkpoint} is written again."
    )


def _earlier(s: WriterRecovery, found: Marker) -> NoReturn:
    raise EarlierOutput(
        f"there is committed output but no checkpoint to restore: the marker of group {s.group!r} says {found}. "
        "Starting from nothing would write it again. Point the pipeline at the checkpoint folder it had; or, to keep "
        'that output and start afresh beside it, use restore="none" or another transactional_id_prefix.'
    )


def _other_output(s: WriterRecovery, found: Marker) -> NoReturn:
    raise EarlierOutput(
        f"there is committed output under this fork's names that doesn't come from checkpoint {s.checkpoint} of "
        f"lineage {s.lineage.parent[0] if s.lineage.parent else None}, which it starts from: the marker of group "
        f"{s.group!r} says {found}. Give the fork a name, or a transactional_id_prefix, that was not used before; or "
        "start with rewind=True to begin anew beside that output"
    )


def _taken_over(found: Marker) -> str:
    lineage = found.lineage
    begun = f" at checkpoint {lineage.parent[1]} of lineage {lineage.parent[0]}" if lineage.parent else " from nothing"
    if found.has_output:
        go_on = (
            f"To go on from its output, restore checkpoint {found.checkpoint} or a later one from that run's folder. "
        )
    else:
        go_on = "It has committed nothing. "
    return (
        "Kafka has forgotten nothing: a run with another checkpoint folder or another history has taken these names "
        f"over since. Its lineage, {lineage.id}, began{begun}. {go_on}To go on from this checkpoint all the same, set "
        "a transactional_id_prefix that was not used before, and on_marker_lost."
    )


def _lost(s: WriterRecovery, ours: Lineage, state: str, says: str, why: str) -> RecoveredMarker:
    recorded = s.recorded.last if s.recorded else None
    if s.on_marker_lost == "replay":
        return RecoveredMarker(Marker(ours, s.checkpoint, recorded))
    if s.on_marker_lost == "skip":
        return RecoveredMarker(Marker(ours, s.checkpoint, s.restored[-1] if s.restored else recorded))
    raise MarkerLost(
        f"the marker of group {s.group!r} {state}: checkpoint {s.checkpoint} records {s.recorded or 'none'}, and the "
        f"group {says}. {why} Whether the {len(s.restored)} segment(s) that checkpoint {s.checkpoint} holds are in the "
        'topic can\'t be told: on_marker_lost="replay" commits them (doubled if they are there), "skip" leaves them '
        "out (lost if they are not)."
    )
