"""Recovering a writer of a Kafka sink: its markers and its refusals. Pure; `sinks.recovery` has the rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from checkpoint.counted import counted
from sinks import recovery
from sinks.kafka.errors import EarlierOutput, ForeignMarker, MarkerLost, OutputAhead
from sinks.kafka.marker import Marker
from sinks.recovery import OnMarkerLost, Outcome, RecoveryDecision, WriterRecovery
from sinks.sink import CommittableName, Lineage

_FORGOTTEN: Final = (
    "Kafka forgets the offsets of a group without members after offsets.retention.minutes (7 days by default); a new "
    "transactional_id_prefix begins without any."
)
_RESET: Final = "Somebody has reset the group's offsets, or the brokers have lost some."
_SHARED: Final = "Two jobs must not share a transactional_id_prefix and sink id."


@dataclass(frozen=True, kw_only=True)
class KafkaRecovery(WriterRecovery[Marker]):
    group: str
    """The marker's group, for messages."""
    when_lost: OnMarkerLost = "fail"

    def marker(self, lineage: Lineage, last: CommittableName | None, origin: Marker | None = None) -> Marker:
        return Marker(lineage, self.checkpoint, last)

    def unknown_here(self, found: Marker) -> bool:
        if self.recorded is None or found.last is None or found.last == self.recorded.last:
            return False
        return all(found.last != one.name for one in self.restored)

    def on_marker_lost(self, decision: RecoveryDecision) -> OnMarkerLost:
        return self.when_lost

    def refusal(self, outcome: Outcome) -> Exception:
        found, checkpoint = self.found, self.checkpoint
        match outcome:
            case Outcome.AHEAD if found is not None:
                restore = f"checkpoint {checkpoint}" if checkpoint else "no checkpoint"
                return OutputAhead(
                    f"output is ahead of this checkpoint: {restore} is being restored, but the marker of group "
                    f"{self.group!r} says that {found} is committed. Restore checkpoint {found.checkpoint} or a later "
                    f"one, or start with rewind=True to accept that what was written after checkpoint {checkpoint} is "
                    "written again."
                )
            case Outcome.OTHER_BRANCH:
                return OutputAhead(
                    f"output of another branch of this job's history is committed: the marker of group {self.group!r} "
                    f"says that {found} is committed, and checkpoint {checkpoint}, which is being restored, doesn't "
                    "know that segment. Both hold the same records, read twice after a restart from an older "
                    "checkpoint. Restore the checkpoint or savepoint whose output was committed, or a later one; or "
                    "start with rewind=True to accept that records are written again."
                )
            case Outcome.EARLIER_OUTPUT:
                return EarlierOutput(
                    f"there is committed output but no checkpoint to restore: the marker of group {self.group!r} says "
                    f"{found}. Starting from nothing would write it again. Point the pipeline at the checkpoint folder "
                    'it had; or, to keep that output and start afresh beside it, use restore="none" or another '
                    "transactional_id_prefix."
                )
            case Outcome.OTHER_OUTPUT:
                parent = self.lineage.parent[0] if self.lineage.parent else None
                return EarlierOutput(
                    f"there is committed output under this fork's names that doesn't come from checkpoint {checkpoint} "
                    f"of lineage {parent}, which it starts from: the marker of group {self.group!r} says {found}. Give "
                    "the fork a name, or a transactional_id_prefix, that was not used before; or start with "
                    "rewind=True to begin anew beside that output"
                )
            case Outcome.WENT_BACK:
                return self._lost("is lost", f"says {found}: it went back", _RESET)
            case Outcome.ANOTHER_JOBS:
                return self._lost("is another job's", f"says {found}", _SHARED)
            case _ if found is not None:
                return self._lost("is another run's", f"says {found}", _taken_over(found))
        return self._lost("is lost", "has no committed offset", _FORGOTTEN)

    def _lost(self, state: str, says: str, why: str) -> MarkerLost:
        return MarkerLost(
            f"the marker of group {self.group!r} {state}: checkpoint {self.checkpoint} records "
            f"{self.recorded or 'none'}, and the group {says}. {why} It can't be told whether what "
            f"checkpoint {self.checkpoint} holds is in the topic ({counted(len(self.restored), 'segment')}): "
            'on_marker_lost="replay" commits it (doubled if it is there), "skip" leaves it out (lost if it '
            "is not)."
        )


def recover(writer: KafkaRecovery) -> Marker:
    """
    Raises:
        OutputAhead: output of a later checkpoint is committed, and the user didn't ask to rewind.
        EarlierOutput: committed output that doesn't come from the checkpoint, or no checkpoint.
        ForeignMarker: the names are those of the pipeline that this one is a fork of.
        MarkerLost: by `on_marker_lost`.
    """
    if writer.found is not None and writer.fork:
        refuse_the_originals(writer.group, writer.lineage, writer.found)
    return recovery.recover(writer)


def recover_in_doubt(
    group: str, known: Marker | None, attempted: Marker | None, found: Marker | None, on_marker_lost: OnMarkerLost
) -> Marker | None:
    """The marker that is committed, once a new producer has ended what the one before left open.

    Args:
        known: the last one known to be committed.
        attempted: that of a transaction of unknown outcome.
        found: the one in Kafka.

    Raises:
        ForeignMarker: somebody else wrote the one in Kafka.
        MarkerLost: there is none, so that the outcome can't be told, and `on_marker_lost` doesn't say what to do.
    """
    if found is None:
        if attempted is None:
            return known  # everything is known all the same; the next transaction writes it again
        if on_marker_lost == "fail":
            raise MarkerLost(
                f"the marker of group {group!r} vanished while the sink was committing {attempted}; whether that is in "
                "the topic can't be told. Somebody deleted the group's offsets, or the topic: set "
                'on_marker_lost="replay" to commit it again (doubled if it is there), or "skip" to leave it out'
            )
        return attempted if on_marker_lost == "skip" else known
    if found not in (attempted, known):
        raise ForeignMarker(
            f"somebody else has written the marker of group {group!r}: it says {found}, but this sink last wrote "
            f"{known}. Two jobs must not use one transactional_id_prefix and sink id"
        )
    return found


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
