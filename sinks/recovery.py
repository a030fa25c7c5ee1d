"""What is committed and what is not, at a restore: the rules that sinks with a marker share. Pure.

A *marker* says how far a writer's output is committed. The sink keeps it where the output is, and in the
checkpoint as well.
A checkpoint is identified by (lineage, id), since ids alone say nothing once a pipeline was rewound, forked or started
afresh under the same name. The lineage that counts is the one of the *recorded* marker: a writer that went on with a
child lineage keeps it, whatever the rest of the job calls itself, so that it can still be told from its parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol, TypeVar

from sinks.sink import Committable, Lineage, SegmentName

_LAST_INDEX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class OutputMarker:
    lineage: Lineage
    checkpoint: int
    """Newest checkpoint of which output is (or may be) committed; the one restored, if the marker begins a lineage."""
    last: SegmentName | None = None
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
M_co = TypeVar("M_co", bound=OutputMarker, covariant=True)


class WriterRecovery(Protocol[M_co]):
    """What a sink knows of one writer when it is restored."""

    @property
    def lineage(self) -> Lineage:
        """The job's."""

    @property
    def checkpoint(self) -> int:
        """Id of the checkpoint restored; 0 for none."""

    @property
    def recorded(self) -> M_co | None:
        """Last marker known when that checkpoint was taken."""

    @property
    def found(self) -> M_co | None:
        """The marker that is there now, when nothing of an earlier committer is pending any more."""

    @property
    def restored(self) -> Sequence[Any]:
        """What the checkpoint holds and doesn't know to be committed, in order."""

    @property
    def rewind(self) -> bool: ...

    @property
    def ignore_earlier_output(self) -> bool: ...

    @property
    def fork(self) -> bool:
        """The checkpoint is another pipeline's."""


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
    ours: Lineage
    """What the writer goes on with, unless it keeps the marker found."""
    begins: bool
    """Whether that is a child of the checkpoint's lineage."""


def decide(s: WriterRecovery[M], unknown_here: Callable[[M], bool]) -> RecoveryDecision:
    """
    Args:
        unknown_here: † whether the last segment out by a marker of the recorded lineage is none of the checkpoint's
            history, though its id is older: records were read twice, after a restart from an older checkpoint, and a
            savepoint of the other reading has been restored and has committed. All that this checkpoint's history has
            prepared is known to it as out, or is restored.
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

    def decided(outcome: Outcome) -> RecoveryDecision:
        return RecoveryDecision(outcome, Lineage(s.lineage.id, here) if begins else base, begins)

    if found is not None:
        same = found.lineage.id == base.id
        if begins and found.lineage.id == s.lineage.id:
            # An earlier attempt began the lineage already; it has no checkpoint yet, so it can't have gone on.
            return decided(Outcome.AHEAD if found.checkpoint > s.checkpoint else Outcome.GOES_ON)
        if s.fork and found.lineage.parent != here:
            return decided(Outcome.OTHER_OUTPUT if found.has_output and not s.rewind else Outcome.ANEW)
        if same or (s.checkpoint > 0 and found.lineage.parent == here):
            if found.checkpoint > s.checkpoint and not (s.rewind and begins):
                return decided(Outcome.AHEAD)
            if recorded is not None and same and found.progress < recorded.progress:
                return decided(Outcome.WENT_BACK)
            if same and not begins and unknown_here(found):
                return decided(Outcome.OTHER_BRANCH)
            return decided(Outcome.BRANCHES if begins else Outcome.GOES_ON)
    if recorded is not None or s.restored:
        return decided(Outcome.LOST)
    # Nothing is recorded: a start without restore, a subtask id new to the lineage, or a fork under another name.
    if found is not None and found.has_output:
        if s.checkpoint == 0 and not s.ignore_earlier_output:
            return decided(Outcome.EARLIER_OUTPUT)
        if begins:
            return decided(Outcome.ANOTHER_JOBS)
    return decided(Outcome.ANEW)


def up_to(last: SegmentName | None, checkpoint: int) -> SegmentName | None:
    """How far a lineage that branches off at `checkpoint` counts as out, where `last` is. A rewound one must not count
    segments of ids that it may give out again."""
    return SegmentName(checkpoint, _LAST_INDEX) if last is not None and last.epoch > checkpoint else last
