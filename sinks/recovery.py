"""What of a writer's output is committed when it is restored: the rules that sinks with a marker share. Pure.

A *marker* says how far a writer's output is committed. The sink keeps it where the output is, and in the checkpoint as
well. A checkpoint is identified by (lineage, id), since ids alone say nothing once a pipeline was rewound, forked or
started afresh under the same name. The lineage that counts is the one of the *recorded* marker: a writer that went on
with a child lineage keeps it, whatever the rest of the job calls itself, so that it can still be told from its parent.

A sink derives from `WriterRecovery` to say how its markers are made and how refusals are worded. `recover` does
the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Generic, Literal, TypeVar

from sinks.sink import Committable, CommittableName, Lineage

OnMarkerLost = Literal["fail", "replay", "skip"]
"""What is done when the recorded marker is gone: stop, commit what the checkpoint holds, or leave it out."""

_LAST_INDEX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class OutputMarker:
    lineage: Lineage
    checkpoint: int
    """Newest checkpoint of which output is (or may be) committed; the one restored, if the marker begins a lineage."""
    last: CommittableName | None = None
    """Every segment up to this one is committed; `None` before the first."""

    @property
    def has_output(self) -> bool:
        """Whether anything can be committed under it."""
        parent = self.lineage.parent
        return self.last is not None or self.checkpoint > (parent[1] if parent else 0)

    @property
    def progress(self) -> tuple[int, int, int]:
        """Grows with what is committed."""
        return (self.checkpoint, self.last.epoch, self.last.index) if self.last else (self.checkpoint, 0, -1)

    def after(self, committables: Iterable[Committable]) -> list[Committable]:
        """Those that are not known to be committed."""
        return [one for one in committables if self.last is None or one.name > self.last]


M = TypeVar("M", bound=OutputMarker)


class Outcome(Enum):
    GOES_ON = auto()
    """The marker found stays as it is."""
    BRANCHES = auto()
    """What is committed by the marker found counts, and a child lineage begins."""
    ANEW = auto()
    """Nothing is committed."""
    AHEAD = auto()
    """Output of a later checkpoint is committed, and the user didn't ask to rewind."""
    OTHER_BRANCH = auto()
    """Output of another branch of the job's history is committed."""
    EARLIER_OUTPUT = auto()
    """There is output, and no checkpoint to restore."""
    OTHER_OUTPUT = auto()
    """There is output under a fork's names that doesn't come from the checkpoint."""
    WENT_BACK = auto()
    """The marker found is older than the one recorded."""
    ANOTHER_JOBS = auto()
    """The marker found is that of another job under the same names."""
    LOST = auto()
    """The marker recorded is not there; another one may be."""


@dataclass(frozen=True, slots=True)
class RecoveryDecision:
    outcome: Outcome
    lineage: Lineage
    """What the writer goes on with, unless it keeps the marker found."""
    begins: bool
    """Whether that is a child of the checkpoint's lineage."""


@dataclass(frozen=True, kw_only=True)
class WriterRecovery(ABC, Generic[M]):
    """What a sink knows of one writer when it is restored."""

    lineage: Lineage
    """The job's."""
    checkpoint: int
    """Id of the checkpoint restored; 0 for none."""
    recorded: M | None
    """Last marker known when that checkpoint was taken."""
    found: M | None
    """The marker that is there now. No transaction of an earlier committer may still change it."""
    restored: Sequence[Committable]
    """What the checkpoint holds and doesn't know to be committed, in order."""
    rewind: bool = False
    ignore_earlier_output: bool = False
    fork: bool = False
    """The checkpoint is another pipeline's."""

    @abstractmethod
    def marker(self, lineage: Lineage, last: CommittableName | None, origin: M | None = None) -> M:
        """A marker at the restored checkpoint.

        Args:
            origin: the marker that `last` was taken from, perhaps cut off at the checkpoint.
        """

    @abstractmethod
    def unknown_here(self, found: M) -> bool:
        """Whether the last segment of `found` is not part of the checkpoint's history, though its id is older.

        So it is when records were read twice: the job was restarted from an older checkpoint, and then a savepoint of
        the first reading was restored and has committed. Whatever the checkpoint's own history has prepared is known
        to it as committed, or is restored.

        Args:
            found: a marker of the recorded lineage, not older than the recorded one.
        """

    @abstractmethod
    def on_marker_lost(self, decision: RecoveryDecision) -> OnMarkerLost:
        """What the user wants to be done."""

    @abstractmethod
    def refusal(self, outcome: Outcome) -> Exception:
        """The error that says why the writer can't be restored, and what to do."""


def recover(writer: WriterRecovery[M]) -> M:
    """The marker that must be there before the writer takes part in a checkpoint. What the checkpoint holds up to its
    `last` is committed, the rest must be.

    Raises:
        Exception: `WriterRecovery.refusal`.
    """
    decision = decide(writer)
    outcome, found = decision.outcome, writer.found
    if outcome is Outcome.ANEW:
        return writer.marker(decision.lineage, None)
    if found is not None and outcome is Outcome.GOES_ON:
        return found
    if found is not None and outcome is Outcome.BRANCHES:
        return writer.marker(decision.lineage, up_to(found.last, writer.checkpoint), found)
    if outcome in (Outcome.LOST, Outcome.WENT_BACK, Outcome.ANOTHER_JOBS):
        policy = writer.on_marker_lost(decision)
        if policy == "skip" and writer.restored:
            return writer.marker(decision.lineage, writer.restored[-1].name)
        if policy != "fail":
            return writer.marker(decision.lineage, writer.recorded.last if writer.recorded else None)
    raise writer.refusal(outcome)


def decide(writer: WriterRecovery[M]) -> RecoveryDecision:
    """How the marker found fits the checkpoint."""
    parent, found, recorded = writer.lineage.parent, writer.found, writer.recorded
    begins = writer.checkpoint > 0 and parent is not None and parent[1] == writer.checkpoint
    if recorded is not None:
        base = recorded.lineage
    elif begins and parent is not None:
        base = Lineage(parent[0])
    else:
        base = writer.lineage
    here = (base.id, writer.checkpoint)

    def decided(outcome: Outcome) -> RecoveryDecision:
        return RecoveryDecision(outcome, Lineage(writer.lineage.id, here) if begins else base, begins)

    if found is not None:
        same = found.lineage.id == base.id
        if begins and found.lineage.id == writer.lineage.id:
            # An earlier attempt began the lineage already; it has no checkpoint yet, so it can't have gone on.
            return decided(Outcome.AHEAD if found.checkpoint > writer.checkpoint else Outcome.GOES_ON)
        if writer.fork and found.lineage.parent != here:
            return decided(Outcome.OTHER_OUTPUT if found.has_output and not writer.rewind else Outcome.ANEW)
        if same or (writer.checkpoint > 0 and found.lineage.parent == here):
            if found.checkpoint > writer.checkpoint and not (writer.rewind and begins):
                return decided(Outcome.AHEAD)
            if recorded is not None and same and found.progress < recorded.progress:
                return decided(Outcome.WENT_BACK)
            if same and not begins and writer.unknown_here(found):
                return decided(Outcome.OTHER_BRANCH)
            return decided(Outcome.BRANCHES if begins else Outcome.GOES_ON)
    if recorded is not None or writer.restored:
        return decided(Outcome.LOST)
    # Nothing is recorded: a start without restore, a subtask id new to the lineage, or a fork under another name.
    if found is not None and found.has_output:
        if writer.checkpoint == 0 and not writer.ignore_earlier_output:
            return decided(Outcome.EARLIER_OUTPUT)
        if begins:
            return decided(Outcome.ANOTHER_JOBS)
    return decided(Outcome.ANEW)


def up_to(last: CommittableName | None, checkpoint: int) -> CommittableName | None:
    """How far output counts as committed in a lineage that branches off at `checkpoint`.

    Args:
        last: how far it is committed in the parent. A child must not count segments whose ids it may give out again.
    """
    return CommittableName(checkpoint, _LAST_INDEX) if last is not None and last.epoch > checkpoint else last
