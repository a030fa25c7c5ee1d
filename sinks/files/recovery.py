"""Recovering a writer of a file sink: its markers and its refusals. Pure; `sinks.recovery` has the rules."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoint.counted import counted
from sinks.files.errors import EarlierOutput, MarkerLost, OutputAhead
from sinks.files.marker import Marker
from sinks.recovery import OnMarkerLost, Outcome, RecoveryDecision, WriterRecovery
from sinks.sink import CommittableName, Lineage


@dataclass(frozen=True, kw_only=True)
class FileRecovery(WriterRecovery[Marker]):
    where: str
    """The writer and its target, for messages."""

    def marker(self, lineage: Lineage, last: CommittableName | None, origin: Marker | None = None) -> Marker:
        return Marker(lineage, self.checkpoint, last, origin.path if origin is not None and last == origin.last else "")

    def unknown_here(self, found: Marker) -> bool:
        if self.recorded is None or found.last is None or found.path == self.recorded.path:
            return False
        return all(found.path != one.payload["path"] for one in self.restored)

    def on_marker_lost(self, decision: RecoveryDecision) -> OnMarkerLost:
        return "replay" if self.rewind and decision.begins else "fail"

    def refusal(self, outcome: Outcome) -> Exception:
        found, checkpoint = self.found, self.checkpoint
        match outcome:
            case Outcome.AHEAD if found is not None:
                restore = f"checkpoint {checkpoint}" if checkpoint else "no checkpoint"
                return OutputAhead(
                    f"output is ahead of this checkpoint: {restore} is being restored, but in {self.where} files of "
                    f"{found} are, or may be, visible. Restore checkpoint {found.checkpoint} or a later one, or start "
                    f"with rewind=True to accept that what was written after checkpoint {checkpoint} is written again, "
                    "in files of other names."
                )
            case Outcome.OTHER_BRANCH if found is not None:
                return OutputAhead(
                    f"output of another branch of this job's history is visible: in {self.where} {found.path} is the "
                    f"last file, and checkpoint {checkpoint}, which is being restored, doesn't know it. Both hold the "
                    "same records, read twice after a restart from an older checkpoint. Restore the checkpoint or "
                    "savepoint whose output is visible, or a later one; or start with rewind=True to accept that "
                    "records are written again."
                )
            case Outcome.EARLIER_OUTPUT:
                return EarlierOutput(
                    f"there is visible output but no checkpoint to restore: {self.where} has files of {found}. "
                    "Starting from nothing would write them again. Point the pipeline at the checkpoint folder it had; "
                    'or, to keep those files and start afresh beside them, use restore="none" or another folder.'
                )
            case Outcome.OTHER_OUTPUT:
                return EarlierOutput(
                    f"there is visible output under this fork's name that doesn't come from checkpoint {checkpoint}, "
                    f"which it starts from: {self.where} has files of {found}. Give the fork a name or a folder that "
                    "was not used before; or start with rewind=True to begin anew beside that output"
                )
            case Outcome.WENT_BACK:
                return self._lost(f"the marker there says {found}: it went back")
            case Outcome.ANOTHER_JOBS:
                return self._lost(f"the marker there says {found}, the output of another job under the same names")
        return self._lost("no marker is there" if found is None else f"the marker there says {found}")

    def _lost(self, what: str) -> MarkerLost:
        return MarkerLost(
            f"the marker of {self.where} is lost: checkpoint {self.checkpoint} records {self.recorded or 'none'}, and "
            f"{what}. Did somebody delete the folder _weir there? It can't be told whether what the "
            f"checkpoint holds was visible ({counted(len(self.restored), 'file')}). Put the folder back; or start with "
            "rewind=True to write what of it is not there now."
        )
