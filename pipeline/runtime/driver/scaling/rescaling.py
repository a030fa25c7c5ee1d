"""Rescaling a job while it runs: what it would go by then, and how far a rescale has come (pure).

A rescale is a restart that is planned: behind a last checkpoint the attempt ends, and the next one restores it at the
new parallelism. A job has one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from checkpoint.options import whole_number
from pipeline.errors import PipelineError
from pipeline.event_time_inputs import check_event_time
from pipeline.graph import MOST_SUBTASKS, Graph
from pipeline.plan import Plan, plan
from pipeline.runtime.driver.job_options import JobOptions

_KEPT: Final = 100
"""Rescales that are remembered."""

Answer = Callable[[Exception | None], None]
"""Gets `None` once the job runs at the new parallelism, or why it does not."""


def rescaled(options: JobOptions, parallelism: int, step: str | None) -> JobOptions:
    """What the job would go by.

    Args:
        parallelism: of the steps that go by the pipeline's, or of `step` and those that follow it.

    Raises:
        PipelineError: it can't be; says why.
    """
    try:
        whole_number(parallelism, "parallelism", 1, MOST_SUBTASKS)
    except ValueError as error:
        raise PipelineError(str(error)) from error
    if options.graph is None:
        raise PipelineError("the job was not started from a pipeline, so that it can't be planned anew")
    graph = (
        options.graph.rescaled(parallelism, {}) if step is None else options.graph.rescaled(None, {step: parallelism})
    )
    if step is None and () not in [one.follows for one in graph.steps]:
        raise PipelineError("every step sets a parallelism of its own: name one, by step= or --step")
    replanned = _replanned(options, graph)
    if not changes(options.plan, replanned.plan):
        same = "every step that goes by the pipeline's parallelism" if step is None else f"step {step!r}"
        raise PipelineError(f"nothing would change: {same} has parallelism {parallelism} already")
    return replanned


def rescaled_by_itself(options: JobOptions, widths: Mapping[str, int]) -> JobOptions:
    """What the job would go by if these steps had other parallelisms, and those that follow them. They go by the
    pipeline's, and go on counting as such.

    Args:
        widths: by the step's id.

    Raises:
        PipelineError: it can't be; says why.
    """
    assert options.graph is not None
    replanned = _replanned(options, options.graph.rescaled(None, widths, own=False))
    if not changes(options.plan, replanned.plan):
        raise PipelineError("nothing would change")
    return replanned


def _replanned(options: JobOptions, graph: Graph) -> JobOptions:
    planned = plan(graph, options.max_parallelism)
    check_event_time(planned)
    return replace(options, graph=graph, plan=planned)


def _widths(planned: Plan) -> Mapping[str, int]:
    return {step.id: vertex.parallelism for vertex in planned.vertices for step in vertex.steps}


def changes(before: Plan, after: Plan) -> dict[str, tuple[int, int]]:
    """By the id of each step whose parallelism differs: before, and after."""
    old, new = _widths(before), _widths(after)
    return {id: (old[id], width) for id, width in new.items() if old[id] != width}


def in_words(before: Plan, after: Plan) -> str:
    """`in, totals 4 → 8; out 2 → 1`."""
    groups: dict[tuple[int, int], list[str]] = {}
    for id, widths in changes(before, after).items():
        groups.setdefault(widths, []).append(id)
    return "; ".join(f"{', '.join(ids)} {old} → {new}" for (old, new), ids in groups.items())


@dataclass(frozen=True)
class Rescaled:
    """A rescale that has come about."""

    at: float
    """When it was asked for, in seconds since 1970."""
    what: str
    """`in, totals 4 → 8`."""
    seconds: float
    """From then until the job ran again."""


class _State(Enum):
    IDLE = auto()
    CHECKPOINT = auto()
    """Its checkpoint is under way; should that fail, the job goes on as it was."""
    ENDING = auto()
    """The checkpoint is complete: whatever comes, the next attempt has the new parallelism."""
    STARTING = auto()
    """An attempt has it, and does not run yet; should that fail, the next one goes back."""


class Rescaling:
    """The rescales of one job, one after the other. Answers are called by whoever brings the news."""

    def __init__(self, options: JobOptions):
        self.options = options
        """What the current attempt goes by, or the next one if none is under way."""
        self.done: list[Rescaled] = []
        """The newest 100, oldest first."""
        self._state = _State.IDLE
        self._other = options
        """What is asked for, up to the checkpoint; from then on what the job goes back to."""
        self._answer: Answer = lambda _: None
        self._asked_at = (0.0, 0.0)

    @property
    def under_way(self) -> str | None:
        """In words; `None` if no rescale is."""
        match self._state:
            case _State.IDLE:
                return None
            case _State.CHECKPOINT:
                return in_words(self.options.plan, self._other.plan)
            case _:
                return in_words(self._other.plan, self.options.plan)

    @property
    def holds_back_requests(self) -> bool:
        """Whether who asks for a checkpoint now is to wait for the next attempt, or until the rescale has failed."""
        return self._state in (_State.CHECKPOINT, _State.ENDING)

    def ask(self, wanted: JobOptions, answer: Answer, now: float, wall: float) -> None:
        """A rescale begins: its checkpoint is to be taken.

        Args:
            now: a clock value.
            wall: seconds since 1970.

        Raises:
            PipelineError: another one is under way.
        """
        if self.under_way is not None:
            raise PipelineError(f"a rescale is under way already: {self.under_way}")
        self._state, self._other, self._answer, self._asked_at = _State.CHECKPOINT, wanted, answer, (now, wall)

    def checkpointed(self, failure: Exception | None) -> None:
        """Its checkpoint is complete, or has failed."""
        assert self._state is _State.CHECKPOINT
        if failure is not None:
            self._end(RuntimeError(f"the job was not rescaled, and keeps its parallelism: {failure}"))
            return
        self.options, self._other = self._other, self.options
        self._state = _State.ENDING

    def attempt_ended(self, failure: str | None) -> bool:
        """An attempt has ended: by a failure, or since all was done.

        Returns:
            Whether the job goes on with the next attempt as planned.
        """
        if self._state is _State.ENDING:
            self._state = _State.STARTING
            return failure is None
        if self._state is _State.STARTING and failure is not None:
            self.options = self._other
            why = f"the first attempt at the new parallelism failed, and the job goes back to the old one: {failure}"
            self._end(RuntimeError(why))
        return False

    @property
    def on_trial(self) -> bool:
        """Whether an attempt that fails now is followed by one at the old parallelism."""
        return self._state is _State.STARTING

    def running(self, now: float) -> None:
        """All subtasks of an attempt run."""
        if self._state is _State.STARTING:
            began, wall = self._asked_at
            what = in_words(self._other.plan, self.options.plan)
            self.done = [*self.done[1 - _KEPT :], Rescaled(wall, what, now - began)]
            self._end(None)

    def job_ended(self, status: str) -> None:
        """No attempt follows."""
        if self._state is not _State.IDLE:
            self._end(RuntimeError(f"the job is {status}, so that it can't be rescaled any more"))

    def _end(self, result: Exception | None) -> None:
        answer, self._answer = self._answer, lambda _: None
        self._state = _State.IDLE
        answer(result)
