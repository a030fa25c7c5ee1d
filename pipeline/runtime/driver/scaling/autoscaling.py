"""When a job is rescaled by itself: advice that lasts is followed, within bounds and with pauses (pure).

After a start the load is left alone for the pause. Then it is looked at in parts of the window: only what every part
advises is done, and no more than the most careful of them. A rescale that failed or brought nothing makes the next one
wait, longer each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from checkpoint.counted import counted
from pipeline.autoscale import Autoscale
from pipeline.errors import PipelineError
from pipeline.graph import Graph
from pipeline.plan import Plan
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.scaling.advice import Advice, Load, advise
from pipeline.runtime.driver.scaling.rescaling import in_words, rescaled_by_itself
from pipeline.shown_times import human_time

_PARTS: Final = 6
"""Of a window. A part is long enough that a checkpoint or a pause of the garbage collector does not decide."""
_REMEMBERED: Final = 10.0
"""Pauses for which a step does not get fewer subtasks than it was given at a like rate."""
_LIKE: Final = 0.75
"""From this part of a rate on it is like it, or above."""
_HELPED: Final = 0.25
"""The part of the rate hoped for that more subtasks must have brought."""
_LONGEST: Final = 64.0
"""Pauses that the next rescale waits at most."""


class Reason(StrEnum):
    """Why advice is not followed."""

    BOUNDS = "bounds"
    """`least`, `most`, or the number of key groups."""
    SLOTS = "slots"
    OWN_PARALLELISM = "own_parallelism"
    PLAN = "plan"
    """The pipeline can't run like that."""
    LIKE_RATE = "like_rate"
    """A short while ago as many were too few at such a rate."""
    NO_GAIN = "no_gain"
    """The subtasks that were added last brought nothing."""
    FAILED = "failed"
    """The rescale before failed a short while ago."""
    CHECKPOINT = "checkpoint"
    """The newest checkpoint failed, and a rescale needs one."""


@dataclass(frozen=True)
class RefusedAdvice:
    step: str
    what: str
    """`totals 4 → 6`."""
    reason: Reason
    why: str

    @property
    def text(self) -> str:
        return f"{self.what} is advised and not done: {self.why}"


@dataclass(frozen=True)
class Decision:
    """The job is to be rescaled; the core is told what became of it, by `rescaled` or `failed`."""

    widths: Mapping[str, int]
    """The new parallelism by the ids of steps that go by the pipeline's."""
    what: str
    why: str


@dataclass(frozen=True)
class Sample:
    """A running job."""

    job: JobOptions
    """What it goes by, with a graph."""
    running_since: float
    """When all subtasks of its attempt ran: a clock value, which tells attempts apart."""
    load: Load
    slots: int | None
    """How many subtasks it may have; `None` = any number."""
    failed_checkpoint: int | None
    """The id of the newest checkpoint that has ended, if that failed."""


@dataclass
class _Part:
    """Means over the samples of a part of the window."""

    began: float
    samples: int = 0
    _busy: dict[str, float] = field(default_factory=dict)
    _subtasks: dict[str, int] = field(default_factory=dict)
    _rates: dict[str, float] = field(default_factory=dict)
    _held: float = 0.0

    def add(self, load: Load) -> None:
        self.samples += 1
        self._held += sum(load.held) / len(load.held) if load.held else 0.0
        for vertex, shares in load.busy.items():
            self._subtasks[vertex] = len(shares)
            self._busy[vertex] = self._busy.get(vertex, 0.0) + sum(shares) / len(shares)
            self._rates[vertex] = self._rates.get(vertex, 0.0) + load.rates.get(vertex, 0.0)

    def advice(self) -> dict[str, Advice]:
        busy = {vertex: [share / self.samples] * self._subtasks[vertex] for vertex, share in self._busy.items()}
        return {one.vertex: one for one in advise(busy, [self._held / self.samples])}

    def rate(self, vertex: str) -> float:
        return self._rates.get(vertex, 0.0) / self.samples


@dataclass(frozen=True)
class _Scaled:
    """The last rescale of a step by this."""

    at: float
    old: int
    new: int
    rate: float
    """Records a second before it."""
    in_vain: int
    """How many in a row brought nothing before this one."""

    def gained(self, rate: float) -> bool:
        """Whether more subtasks have brought a higher rate; fewer are not expected to."""
        return self.new < self.old or rate >= self.rate * (1 + _HELPED * (self.new / self.old - 1))


class Autoscaling:
    """Each method takes the time in seconds of a monotonic clock."""

    def __init__(self, options: Autoscale):
        self._o = options
        self.refused: list[RefusedAdvice] = []
        """What lasting advice is not followed now, and why."""
        self.state = "waits until the job runs"
        """What this does now; reads on from "autoscale"."""
        self._unit = max(options.pause_s, options.window_s)
        """What the times to wait are multiples of."""
        self._since: float | None = None
        self._parts: deque[_Part] = deque(maxlen=_PARTS)
        self._part: _Part | None = None
        self._asked: dict[str, _Scaled] | None = None
        """Of a decision that has no outcome yet: by step what will be remembered of it."""
        self._last: dict[str, _Scaled] = {}
        self._said: dict[tuple[str, Reason], float] = {}
        """When each refusal held last: one that comes and goes isn't told each time."""
        self._failures = 0
        self._not_before = -float("inf")

    def away(self, why: str) -> None:
        """What the job does now says nothing of its load: it restarts, stops, or waits for others.

        Args:
            why: for `state`.
        """
        self._forget()
        if self._asked is None:
            self.state = why

    def rescaled(self, now: float) -> None:
        """What was decided has come about."""
        assert self._asked is not None
        self._last |= {step: replace(one, at=now) for step, one in self._asked.items()}
        self._failures, self._asked = 0, None

    def failed(self, now: float) -> None:
        """What was decided has not come about."""
        self._asked = None
        self._failures += 1
        self._not_before = now + self._unit * min(2.0**self._failures, _LONGEST)

    def sample(self, now: float, seen: Sample) -> list[Decision | RefusedAdvice]:
        """The job runs, with this load.

        Returns:
            What is to be done, if anything, and refusals that are new.
        """
        if self._asked is not None:
            return []
        if seen.running_since != self._since:
            self._since = seen.running_since
            self._forget()
        left = seen.running_since + self._o.pause_s - now
        if left > 0:
            self.state = f"pauses for {human_time(left)} more"
            return []
        if not self._collect(now, seen):
            return []
        decision, self.refused = self._decide(now, seen)
        self.state = "does not follow all advice" if self.refused else "finds nothing to change"
        found: list[Decision | RefusedAdvice] = []
        for one in self.refused:
            if now - self._said.get((one.step, one.reason), -float("inf")) > self._unit:
                found.append(one)
            self._said[one.step, one.reason] = now
        if decision is not None:
            self._parts.clear()
            self.state = f"rescales {decision.what}"
            found.append(decision)
        return found

    # -- the window ---------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        self._parts.clear()
        self._part, self.refused = None, []

    def _collect(self, now: float, seen: Sample) -> bool:
        """Whether there is a whole window, with a new part at its end."""
        there = {vertex.name: vertex.parallelism for vertex in seen.job.plan.vertices}
        if {vertex: len(shares) for vertex, shares in seen.load.busy.items()} != there:
            return False  # not all have reported yet
        length = self._o.window_s / _PARTS
        if self._part is not None and now - self._part.began > 2 * length + 1:
            self._forget()  # nobody has looked for a while
        self._part = self._part or _Part(now)
        self._part.add(seen.load)
        if now - self._part.began >= length:
            self._parts.append(self._part)
            self._part = _Part(now)
            self._part.add(seen.load)
            if len(self._parts) == _PARTS:
                return True
        if len(self._parts) < _PARTS:
            self.state = f"has looked at the load for {len(self._parts)} of {_PARTS} parts of the window"
        return False

    def _lasting(self) -> dict[str, Advice]:
        """By vertex what every part advises: the one that changes least."""
        parts = [part.advice() for part in self._parts]
        found = {}
        for vertex in parts[0]:
            of = [part[vertex] for part in parts if vertex in part]
            more = [one for one in of if one.better > one.now]
            if len(of) == len(parts) and len(more) in (0, len(of)):
                found[vertex] = min(of, key=lambda one: abs(one.better - one.now))
        return found

    def _rate(self, vertex: str) -> float:
        return sum(part.rate(vertex) for part in self._parts) / len(self._parts)

    # -- what is done -------------------------------------------------------------------------------------------

    def _decide(self, now: float, seen: Sample) -> tuple[Decision | None, list[RefusedAdvice]]:
        graph, plan = seen.job.graph, seen.job.plan
        assert graph is not None
        refused: list[RefusedAdvice] = []
        widths: dict[str, int] = {}
        scaled: dict[str, _Scaled] = {}
        wishes = _wishes(graph, plan, self._lasting(), refused)
        for step, (old, _, wanted) in wishes.items():
            new, bound = self._within_bounds(wanted, seen.job.max_parallelism)
            what = f"{step} {old} → {wanted}"
            if (new - old) * (wanted - old) <= 0:
                refused.append(RefusedAdvice(step, what, Reason.BOUNDS, bound))
                continue
            rate = self._rate(_vertex_of(plan, step))
            last = self._last.get(step)
            if last is not None and last.new != old:
                last = None  # somebody else has rescaled it since
            if (refusal := self._as_before(step, what, new > old, rate, last, now)) is not None:
                refused.append(refusal)
                continue
            in_vain = 0 if last is None or last.gained(rate) else last.in_vain + 1
            widths[step] = new
            scaled[step] = _Scaled(now, old, new, rate, in_vain)
        decision = self._fitting(seen, wishes, widths, refused)
        if decision is None:
            return None, refused
        first = next(iter(decision.widths))
        if (refusal := self._not_now(first, decision.what, now, seen)) is not None:
            return None, [*refused, refusal]
        self._asked = {step: replace(scaled[step], new=width) for step, width in decision.widths.items()}
        return decision, refused

    def _within_bounds(self, wanted: int, key_groups: int) -> tuple[int, str]:
        """What may be had, and which bound is in the way if that is less, or more."""
        if wanted < self._o.least:
            return self._o.least, f"least is {self._o.least}"
        if wanted > min(self._o.most, key_groups):
            if key_groups < self._o.most:
                return key_groups, f"the pipeline has {counted(key_groups, 'key group')} (max_parallelism)"
            return self._o.most, f"most is {self._o.most}"
        return wanted, ""

    def _as_before(
        self, step: str, what: str, more: bool, rate: float, last: _Scaled | None, now: float
    ) -> RefusedAdvice | None:
        """Whether the step's last rescale speaks against this one."""
        if last is None or last.new < last.old:
            return None
        ago = human_time(now - last.at)
        if more:
            wait = last.at + self._unit * min(2.0 ** (last.in_vain + 2), _LONGEST) - now
            if last.gained(rate) or wait <= 0:
                return None
            why = (
                f"{last.old} → {last.new} brought nothing {ago} ago: it was {last.rate:,.0f} records/s, and is "
                f"{rate:,.0f}; it is tried again in {human_time(wait)} at the earliest"
            )
            return RefusedAdvice(step, what, Reason.NO_GAIN, why)
        if now - last.at < _REMEMBERED * self._unit and rate >= _LIKE * last.rate:
            why = (
                f"{last.old} were too few for {last.rate:,.0f} records/s {ago} ago, and {rate:,.0f} come now; it may "
                f"have fewer below {_LIKE * last.rate:,.0f}, or "
                f"{human_time(_REMEMBERED * self._unit)} after that rescale"
            )
            return RefusedAdvice(step, what, Reason.LIKE_RATE, why)
        return None

    def _fitting(
        self,
        seen: Sample,
        wishes: Mapping[str, tuple[int, Advice, int]],
        widths: dict[str, int],
        refused: list[RefusedAdvice],
    ) -> Decision | None:
        """As much of it as slots allow."""
        while widths:
            try:
                wanted = rescaled_by_itself(seen.job, widths).plan
            except PipelineError as error:
                for step, new in widths.items():
                    refused.append(RefusedAdvice(step, f"{step} {wishes[step][0]} → {new}", Reason.PLAN, str(error)))
                return None
            there = seen.job.plan.subtasks
            if seen.slots is None or wanted.subtasks < there or wanted.subtasks <= seen.slots:
                why = "; ".join(_why(wishes[step], width) for step, width in widths.items())
                return Decision(dict(widths), in_words(seen.job.plan, wanted), why)
            step = max(widths, key=lambda step: widths[step] - wishes[step][0])
            old, _, advised = wishes[step]
            widths[step] -= max(1, (wanted.subtasks - seen.slots) // len(wanted.vertices))
            if widths[step] <= old:
                del widths[step]
                why = f"Spark has {counted(seen.slots, 'slot')}, and the job {counted(there, 'subtask')} already"
                refused.append(RefusedAdvice(step, f"{step} {old} → {advised}", Reason.SLOTS, why))
        return None

    def _not_now(self, step: str, what: str, now: float, seen: Sample) -> RefusedAdvice | None:
        """Whether there is to be no rescale now, whichever."""
        if now < self._not_before:
            wait = human_time(self._not_before - now)
            why = f"the rescale before failed; the next one begins in {wait} at the earliest"
            return RefusedAdvice(step, what, Reason.FAILED, why)
        if seen.failed_checkpoint is not None:
            why = f"checkpoint {seen.failed_checkpoint} failed, and a rescale needs one; it waits until one is complete"
            return RefusedAdvice(step, what, Reason.CHECKPOINT, why)
        return None


def _why(wish: tuple[int, Advice, int], width: int) -> str:
    _, advice, wanted = wish
    return advice.text + (f"; more than {width} don't fit bounds or slots" if width < wanted else "")


def _vertex_of(plan: Plan, step: str) -> str:
    return next(vertex.name for vertex in plan.vertices if any(one.id == step for one in vertex.steps))


def _wishes(
    graph: Graph, plan: Plan, lasting: Mapping[str, Advice], refused: list[RefusedAdvice]
) -> dict[str, tuple[int, Advice, int]]:
    """By step that goes by the pipeline's parallelism: what it has, the advice that counts, and what it should have.

    Steps that follow it have as many, so it gets what most of them need.
    """
    steps = {step.id: step for step in graph.steps}
    found: dict[str, tuple[int, Advice, int]] = {}
    content: set[str] = set()
    """Those which a vertex needs as they are."""
    for vertex in plan.vertices:
        advice = lasting.get(vertex.name)
        roots = graph.roots(steps[vertex.head.id])
        if advice is None:
            content |= roots
            continue
        if not roots:
            what, why = f"{vertex.head.id} {advice.now} → {advice.better}", "it sets a parallelism of its own"
            refused.append(RefusedAdvice(vertex.head.id, what, Reason.OWN_PARALLELISM, why))
        for root in roots:
            old = steps[root].parallelism
            wanted = advice.better if advice.better > advice.now else min(advice.better, old)
            if root not in found or wanted > found[root][2]:
                found[root] = (old, advice, wanted)
    return {
        root: wish for root, wish in found.items() if wish[2] > wish[0] or (wish[2] < wish[0] and root not in content)
    }
