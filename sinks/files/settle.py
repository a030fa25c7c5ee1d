"""What is visible and what is not, at a restore: decided from the marker found and the one recorded. Pure.

As for Kafka's markers a checkpoint is (lineage, id), and the lineage that counts is that of the recorded marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from sinks.files.errors import EarlierOutput, MarkerLost, OutputAhead
from sinks.files.marker import Marker
from sinks.sink import Committable, Lineage, SegmentName

_LAST_INDEX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Situation:
    where: str
    """The owner and its target, for messages."""
    lineage: Lineage
    """The job's."""
    checkpoint: int
    """Id of the checkpoint restored; 0 for none."""
    recorded: Marker | None
    """Last marker known when that checkpoint was taken."""
    found: Marker | None
    """The newest marker in the target."""
    restored: Sequence[Committable]
    """Parts of the checkpoint that it doesn't know to be out, in order."""
    rewind: bool
    ignore_earlier_output: bool = False
    fork: bool = False
    """The checkpoint is another pipeline's."""


def settle(s: Situation) -> Marker:
    """What the marker must say before the owner takes part in a checkpoint. Parts up to its `last` are out.

    Raises:
        OutputAhead: output of a later checkpoint, or of another branch, is visible, and the user didn't ask to rewind.
        EarlierOutput: visible output that doesn't come from the checkpoint, or no checkpoint.
        MarkerLost: the marker that the checkpoint records is not there, and the user didn't ask to rewind.
    """
    parent, found, recorded = s.lineage.parent, s.found, s.recorded
    begins = s.checkpoint > 0 and parent is not None and parent[1] == s.checkpoint
    if recorded is not None:
        base = recorded.lineage
    elif begins and parent is not None:
        base = Lineage(parent[0])
    else:
        base = s.lineage
    here = (base.id, s.checkpoint)
    rewinds = s.rewind and begins
    ours = Lineage(s.lineage.id, here) if begins else base

    if found is not None and begins and found.lineage.id == s.lineage.id:
        # An earlier attempt began the lineage already; it has no checkpoint yet, so it can't have gone on.
        if found.checkpoint > s.checkpoint:
            _ahead(s, found)
        return found
    if found is not None and s.fork and found.lineage.parent != here:
        if found.has_output and not s.rewind:
            _other_output(s, found)
        return Marker(ours, s.checkpoint)
    if found is not None and (found.lineage.id == base.id or (s.checkpoint > 0 and found.lineage.parent == here)):
        if found.checkpoint > s.checkpoint and not rewinds:
            _ahead(s, found)
        if recorded is not None and found.lineage.id == base.id and found.progress < recorded.progress:
            return _lost(s, ours, rewinds, f"the marker there says {found}: it went back")
        if found.lineage.id == base.id and not begins and _unknown_here(s, found):
            _other_branch(s, found)
        if not begins:
            return found
        if found.last is not None and found.last.epoch > s.checkpoint:
            # A rewound lineage must not count parts of ids that it may give out again as out.
            return Marker(ours, s.checkpoint, SegmentName(s.checkpoint, _LAST_INDEX))
        return Marker(ours, s.checkpoint, found.last, found.path)
    if recorded is None and not s.restored:
        # Nothing is recorded: a start without restore, a subtask id new to the lineage, or a fork under another name.
        if found is not None and found.has_output:
            if s.checkpoint == 0 and not s.ignore_earlier_output:
                _earlier(s, found)
            if begins:
                return _lost(
                    s, ours, rewinds, f"the marker there says {found}, the output of another job under the same names"
                )
        return Marker(ours, s.checkpoint)
    return _lost(s, ours, rewinds, f"the marker there says {found}" if found is not None else "no marker is there")


def _unknown_here(s: Situation, found: Marker) -> bool:
    """† Whether the last part out is none of the checkpoint's history, though its id is older: records were read twice,
    after a restart from an older checkpoint, and a savepoint of the other reading has been restored and has committed.
    All that this checkpoint's history has prepared is known to it as out, or is restored."""
    if s.recorded is None or found.last is None or found.path == s.recorded.path:
        return False
    return found.path not in [one.payload["path"] for one in s.restored]


def _ahead(s: Situation, found: Marker) -> NoReturn:
    restore = f"checkpoint {s.checkpoint}" if s.checkpoint else "no checkpoint"
    raise OutputAhead(
        f"output is ahead of this checkpoint: {restore} is being restored, but in {s.where} files of {found} are, or "
        f"may be, visible. Restore checkpoint {found.checkpoint} or a later one, or start with rewind=True to accept "
        f"that what was written after checkpoint {s.checkpoint} is written again, in files of other names."
    )


def _other_branch(s: Situation, found: Marker) -> NoReturn:
    raise OutputAhead(
        f"output of another branch of this job's history is visible: in {s.where} {found.path} is the last file, and "
        f"checkpoint {s.checkpoint}, which is being restored, doesn't know it. Both hold the same records, read twice "
        "after a restart from an older checkpoint. Restore the checkpoint or savepoint whose output is visible, or a "
        "later one; or start with rewind=True to accept that records are written again."
    )


def _earlier(s: Situation, found: Marker) -> NoReturn:
    raise EarlierOutput(
        f"there is visible output but no checkpoint to restore: {s.where} has files of {found}. Starting from nothing "
        "would write them again. Point the pipeline at the checkpoint folder it had; or, to keep those files and start "
        'afresh beside them, use restore="none" or another folder.'
    )


def _other_output(s: Situation, found: Marker) -> NoReturn:
    raise EarlierOutput(
        f"there is visible output under this fork's name that doesn't come from checkpoint {s.checkpoint}, which it "
        f"starts from: {s.where} has files of {found}. Give the fork a name or a folder that was not used before; or "
        "start with rewind=True to begin anew beside that output"
    )


def _lost(s: Situation, ours: Lineage, rewinds: bool, what: str) -> Marker:
    if rewinds:
        return Marker(ours, s.checkpoint, s.recorded.last if s.recorded else None)
    raise MarkerLost(
        f"the marker of {s.where} is lost: checkpoint {s.checkpoint} records {s.recorded or 'none'}, and {what}. Did "
        f"somebody delete the folder _weir there? Whether the {len(s.restored)} file(s) that the checkpoint holds were "
        "visible can't be told. Put the folder back; or start with rewind=True to write those of them that are not "
        "there now."
    )
