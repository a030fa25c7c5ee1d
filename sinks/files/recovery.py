"""What is visible and what is not, at a restore: by the rules that sinks share (`sinks.recovery`), from the marker
found and the one recorded. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from sinks.files.errors import EarlierOutput, MarkerLost, OutputAhead
from sinks.files.marker import Marker
from sinks.recovery import Outcome, decide, up_to
from sinks.sink import Committable, Lineage


@dataclass(frozen=True, slots=True)
class WriterRecovery:
    where: str
    """The writer and its target, for messages."""
    lineage: Lineage
    """The job's."""
    checkpoint: int
    """Id of the checkpoint restored; 0 for none."""
    recorded: Marker | None
    """Last marker known when that checkpoint was taken."""
    found: Marker | None
    """The newest marker in the target."""
    restored: Sequence[Committable]
    """Parts of the checkpoint that it doesn't know to be committed, in order."""
    rewind: bool
    ignore_earlier_output: bool = False
    fork: bool = False
    """The checkpoint is another pipeline's."""


def recover(s: WriterRecovery) -> Marker:
    """What the marker must say before the writer takes part in a checkpoint. Parts up to its `last` are committed.

    Raises:
        OutputAhead: output of a later checkpoint, or of another branch, is visible, and the user didn't ask to rewind.
        EarlierOutput: visible output that doesn't come from the checkpoint, or no checkpoint.
        MarkerLost: the marker that the checkpoint records is not there, and the user didn't ask to rewind.
    """
    found = s.found
    decision = decide(s, lambda marker: _unknown_here(s, marker))
    ours, rewinds = decision.ours, s.rewind and decision.begins
    if found is None:
        if decision.outcome is Outcome.ANEW:
            return Marker(ours, s.checkpoint)
        return _lost(s, ours, rewinds, "no marker is there")
    match decision.outcome:
        case Outcome.GOES_ON:
            return found
        case Outcome.BRANCHES:
            last = up_to(found.last, s.checkpoint)
            return Marker(ours, s.checkpoint, last, found.path if last == found.last else "")
        case Outcome.ANEW:
            return Marker(ours, s.checkpoint)
        case Outcome.AHEAD:
            _ahead(s, found)
        case Outcome.OTHER_BRANCH:
            _other_branch(s, found)
        case Outcome.EARLIER_OUTPUT:
            _earlier(s, found)
        case Outcome.OTHER_OUTPUT:
            _other_output(s, found)
        case Outcome.WENT_BACK:
            return _lost(s, ours, rewinds, f"the marker there says {found}: it went back")
        case Outcome.ANOTHER_JOBS:
            what = f"the marker there says {found}, the output of another job under the same names"
            return _lost(s, ours, rewinds, what)
    return _lost(s, ours, rewinds, f"the marker there says {found}")


def _unknown_here(s: WriterRecovery, found: Marker) -> bool:
    if s.recorded is None or found.last is None or found.path == s.recorded.path:
        return False
    return found.path not in [one.payload["path"] for one in s.restored]


def _ahead(s: WriterRecovery, found: Marker) -> NoReturn:
    restore = f"checkpoint {s.checkpoint}" if s.checkpoint else "no checkpoint"
    raise OutputAhead(
        f"output is ahead of this checkpoint: {restore} is being restored, but in {s.where} files of {found} are, or "
        f"may be, visible. Restore checkpoint {found.checkpoint} or a later one, or start with rewind=True to accept "
        f"that what was written after checkpoint {s.checkpoint} is written again, in files of other names."
    )


def _other_branch(s: WriterRecovery, found: Marker) -> NoReturn:
    raise OutputAhead(
        f"output of another branch of this job's history is visible: in {s.where} {found.path} is the last file, and "
        f"checkpoint {s.checkpoint}, which is being restored, doesn't know it. Both hold the same records, read twice "
        "after a restart from an older checkpoint. Restore the checkpoint or savepoint whose output is visible, or a "
        "later one; or start with rewind=True to accept that records are written again."
    )


def _earlier(s: WriterRecovery, found: Marker) -> NoReturn:
    raise EarlierOutput(
        f"there is visible output but no checkpoint to restore: {s.where} has files of {found}. Starting from nothing "
        "would write them again. Point the pipeline at the checkpoint folder it had; or, to keep those files and start "
        'afresh beside them, use restore="none" or another folder.'
    )


def _other_output(s: WriterRecovery, found: Marker) -> NoReturn:
    raise EarlierOutput(
        f"there is visible output under this fork's name that doesn't come from checkpoint {s.checkpoint}, which it "
        f"starts from: {s.where} has files of {found}. Give the fork a name or a folder that was not used before; or "
        "start with rewind=True to begin anew beside that output"
    )


def _lost(s: WriterRecovery, ours: Lineage, rewinds: bool, what: str) -> Marker:
    if rewinds:
        return Marker(ours, s.checkpoint, s.recorded.last if s.recorded else None)
    raise MarkerLost(
        f"the marker of {s.where} is lost: checkpoint {s.checkpoint} records {s.recorded or 'none'}, and {what}. Did "
        f"somebody delete the folder _weir there? Whether the {len(s.restored)} file(s) that the checkpoint holds were "
        "visible can't be told. Put the folder back; or start with rewind=True to write those of them that are not "
        "there now."
    )
