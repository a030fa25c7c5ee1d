"""A job under a load, and what autoscale decides for it, without threads and clocks."""

from __future__ import annotations

from collections.abc import Callable

from attempt_parts import job_options

from pipeline import Autoscale, Pipeline
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.scaling.advice import Load
from pipeline.runtime.driver.scaling.autoscaling import Autoscaling, Decision, Reason, RefusedAdvice, Sample
from pipeline.runtime.driver.scaling.rescaling import rescaled_by_itself
from pipeline.testing import TestingSink, TestingSource

PAUSE, WINDOW = 100.0, 60.0


def options(parallelism: int = 2, max_parallelism: int = 64, sinks: int | None = None) -> JobOptions:
    """Of in → totals → out, where the source has one subtask whatever comes."""
    p = Pipeline("job", parallelism, max_parallelism)
    keyed = p.source("in", TestingSource(), parallelism=1).key_by(lambda n: n)
    keyed.reduce(max, id="totals").sink("out", TestingSink(), parallelism=sinks)
    return job_options(p.plan(), graph=p._graph, max_parallelism=max_parallelism)


def width(job: JobOptions, step: str = "totals") -> int:
    return next(v.parallelism for v in job.plan.vertices if step in [one.id for one in v.steps])


def under(job: JobOptions, work: float, rate: float = 1000.0) -> Load:
    """Of a job whose step `totals` has work for so many subtasks; with as many it gets `rate` records a second."""
    n = width(job)
    return Load(
        busy={
            vertex.name: [0.0 if vertex.is_source else min(1.0, work / n)] * vertex.parallelism
            for vertex in job.plan.vertices
        },
        held=[max(0.0, 1 - n / work)],
        rates={vertex.name: rate * min(1.0, n / work) for vertex in job.plan.vertices},
    )


class Run:
    """A job under a load, looked at every five seconds."""

    def __init__(self, job: JobOptions, bounds: Autoscale, slots: int | None = None):
        self.core = Autoscaling(bounds)
        self.job, self.slots, self.now = job, slots, 1000.0
        self.running_since = self.now
        self.failed_checkpoint: int | None = None
        self.load: Callable[[JobOptions], Load] = lambda job: under(job, 1.0)
        self.decisions: list[tuple[float, Decision]] = []
        self.refusals: list[RefusedAdvice] = []
        self.takes: float = 3.0
        """Seconds of a rescale."""
        self.fails = False

    def go(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            seen = Sample(self.job, self.running_since, self.load(self.job), self.slots, self.failed_checkpoint)
            for one in self.core.sample(self.now, seen):
                if isinstance(one, RefusedAdvice):
                    self.refusals.append(one)
                else:
                    self._rescale(one)
            self.now += 5.0

    def _rescale(self, decision: Decision) -> None:
        self.decisions.append((self.now, decision))
        assert self.core.sample(self.now, Sample(self.job, self.running_since, self.load(self.job), None, None)) == []
        self.core.away("it is rescaled")
        assert self.core.state == f"rescales {decision.what}"
        self.now += self.takes
        if self.fails:
            self.core.failed(self.now)
        else:
            self.job = rescaled_by_itself(self.job, decision.widths)
            self.running_since = self.now
            self.core.rescaled(self.now)

    @property
    def widths(self) -> list[int]:
        return [decision.widths["totals"] for _, decision in self.decisions]


def bounds(most: int = 8, least: int = 1) -> Autoscale:
    return Autoscale(most=most, least=least, pause=PAUSE, window=WINDOW)


def refused(run: Run) -> list[tuple[Reason, str]]:
    return [(one.reason, one.text) for one in run.refusals]
