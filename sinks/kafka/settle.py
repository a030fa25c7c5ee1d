"""What is out and what is not, at a restore: decided from the marker found in Kafka and the one recorded. Pure.

A checkpoint is identified by (lineage, id), since ids alone say nothing once a pipeline was rewound, forked or started
afresh under the same name. The lineage that counts is the one of the *recorded* marker: an owner that went on with a
child lineage keeps it, whatever the rest of the job calls itself, so that it can still be told from its parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

from sinks.kafka.errors import EarlierOutput, ForeignMarker, MarkerLost, OutputAhead
from sinks.kafka.marker import Marker
from sinks.sink import Lineage, SegmentName

OnMarkerLost = Literal["fail", "replay", "skip"]

_LAST_INDEX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Situation:
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
    """Segments of the checkpoint that it doesn't know to be out, in order."""
    rewind: bool
    ignore_earlier_output: bool
    on_marker_lost: OnMarkerLost
    fork: bool = False
    """The checkpoint is another pipeline's."""


@dataclass(frozen=True, slots=True)
class Settlement:
    marker: Marker
    """What the marker must say before the owner takes part in a checkpoint. Segments up to its `last` are out, the
    others must be committed."""


def settle(s: Situation) -> Settlement:
    """
    Raises:
        OutputAhead: output of a later checkpoint is committed, and the user didn't ask to rewind.
        EarlierOutput: committed output that doesn't come from the checkpoint, or no checkpoint.
        ForeignMarker: the names are those of the pipeline that this one is a fork of.
        MarkerLost: by `on_marker_lost`.
    """
    parent = s.lineage.parent
    begins = s.checkpoint > 0 and parent is not None and parent[1] == s.checkpoint
    if s.recorded is not None:
        base = s.recorded.lineage
    elif begins and parent is not None:
        base = Lineage(parent[0])
    else:
        base = s.lineage
    here = (base.id, s.checkpoint)
    ours = Lineage(s.lineage.id, here) if begins else base

    found = s.found
    if found is not None and begins and found.lineage.id == s.lineage.id:
        # An earlier attempt began the lineage already; it has no checkpoint yet, so it can't have gone on.
        if found.checkpoint > s.checkpoint:
            _ahead(s, found)
        return Settlement(found)
    if found is not None and s.fork and found.lineage.parent != here:
        refuse_the_originals(s.group, s.lineage, found)
        if found.has_output and not s.rewind:
            _other_output(s, found)
        return Settlement(Marker(ours, s.checkpoint, None))
    if found is not None and (found.lineage.id == base.id or (s.checkpoint > 0 and found.lineage.parent == here)):
        if found.checkpoint > s.checkpoint and not (s.rewind and begins):
            _ahead(s, found)
        if s.recorded is not None and found.lineage.id == base.id and _progress(found) < _progress(s.recorded):
            return _lost(s, ours, f"the group says {found}: it went back")
        if found.lineage.id == base.id and not begins and _unknown_here(s, found):
            _other_branch(s, found)
        if begins:
            return Settlement(Marker(ours, s.checkpoint, _up_to(found.last, s.checkpoint)))
        return Settlement(found)

    if s.recorded is None and not s.restored:
        # Nothing is recorded: a start without restore, a subtask id new to the lineage, or a fork under another name.
        if found is not None and found.has_output:
            if s.checkpoint == 0 and not s.ignore_earlier_output:
                _earlier(s, found)
            if begins:
                return _lost(s, ours, f"the group says {found}, the output of another job under the same names")
        return Settlement(Marker(ours, s.checkpoint, None))
    return _lost(s, ours, f"the group says {found}" if found is not None else "the group has no committed offset")


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


def _unknown_here(s: Situation, found: Marker) -> bool:
    """† Whether the last segment out is none of the checkpoint's history, though its id is older: records were read
    twice, after a restart from an older checkpoint, and a savepoint of the other reading has been restored and has
    committed. All that this checkpoint's history has prepared is known to it as out, or is restored."""
    if s.recorded is None or found.last is None or found.last == s.recorded.last:
        return False
    return found.last not in s.restored and _progress(found) > _progress(s.recorded)


def _other_branch(s: Situation, found: Marker) -> NoReturn:
    raise OutputAhead(
        f"output of another branch of this job's history is out: the marker of group {s.group!r} says that {found} is "
        f"committed, and checkpoint {s.checkpoint}, which is being restored, doesn't know that segment. Both hold the "
        "same records, read twice after a restart from an older checkpoint. Restore the checkpoint or savepoint whose "
        "output was committed, or a later one; or start with rewind=True to accept that records are written again."
    )


def _progress(marker: Marker) -> tuple[int, int, int]:
    last = marker.last
    return (marker.checkpoint, last.epoch, last.index) if last else (marker.checkpoint, 0, -1)


def _up_to(last: SegmentName | None, checkpoint: int) -> SegmentName | None:
    # A rewound lineage must not count segments of ids that it may give out again as out.
    return SegmentName(checkpoint, _LAST_INDEX) if last is not None and last.epoch > checkpoint else last


def _ahead(s: Situation, found: Marker) -> NoReturn:
    restore = f"checkpoint {s.checkpoint}" if s.checkpoint else "no checkpoint"
    raise OutputAhead(
        f"output is ahead of this checkpoint: {restore} is being restored, but the marker of group {s.group!r} says "
        f"that {found} is committed. Restore checkpoint {found.checkpoint} or a later one, or start with rewind=True "
        f"to accept that what was written after checkpoint {s.checkpoint} is written again."
    )


def _earlier(s: Situation, found: Marker) -> NoReturn:
    raise EarlierOutput(
        f"there is committed output but no checkpoint to restore: the marker of group {s.group!r} says {found}. "
        "Starting from nothing would write it again. Point the pipeline at the checkpoint folder it had; or, to keep "
        'that output and start afresh beside it, use restore="none" or another transactional_id_prefix.'
    )


def _other_output(s: Situation, found: Marker) -> NoReturn:
    raise EarlierOutput(
        f"there is committed output under this fork's names that doesn't come from checkpoint {s.checkpoint} of "
        f"lineage {s.lineage.parent[0] if s.lineage.parent else None}, which it starts from: the marker of group "
        f"{s.group!r} says {found}. Give the fork a name, or a transactional_id_prefix, that was not used before; or "
        "start with rewind=True to begin anew beside that output"
    )


def _lost(s: Situation, ours: Lineage, what: str) -> Settlement:
    recorded = s.recorded.last if s.recorded else None
    if s.on_marker_lost == "replay":
        return Settlement(Marker(ours, s.checkpoint, recorded))
    if s.on_marker_lost == "skip":
        return Settlement(Marker(ours, s.checkpoint, s.restored[-1] if s.restored else recorded))
    raise MarkerLost(
        f"the marker of group {s.group!r} is lost: checkpoint {s.checkpoint} records {s.recorded or 'none'}, and "
        f"{what}. Kafka forgets the offsets of a group without members after offsets.retention.minutes (7 days by "
        f"default). Whether the {len(s.restored)} segment(s) that the checkpoint holds are in the topic can't be told: "
        'on_marker_lost="replay" commits them (doubled if they are there), "skip" leaves them out (lost if they are '
        "not)."
    )
