"""A run: attempt after attempt until all input is processed and committed, then the checks."""

from __future__ import annotations

import random
import traceback
from dataclasses import replace
from typing import Any

from simulated.attempt import Attempt
from simulated.checks import check
from simulated.frames import count
from simulated.graph import Graph, random_graph
from simulated.master import JobFailed
from simulated.operator import Operator
from simulated.options import Options, random_options
from simulated.output import OutputSystem
from simulated.scheduler import Scheduler
from simulated.storage import Storage
from sinks.kafka.errors import MarkerLost

_MOST_STEPS = 60_000
_MIX_EVERY = 150
"""Steps after which other actors are quick and slow."""
_SHOWN = 60


class Crash(Exception):
    """The attempt's processes are gone."""


class SimulationFailed(AssertionError):
    """A run went wrong. The message is a bug report: `Simulation(seed).run()` repeats it."""


class Simulation:
    def __init__(self, seed: int, graph: Graph | None = None, **overrides: Any) -> None:
        """
        Args:
            graph: instead of a random one.
            overrides: of `Options`.
        """
        self.seed = seed
        self.rng = random.Random(seed)
        options = random_options(self.rng)
        made = random_graph(self.rng, options.records)
        self.overrides = overrides
        self.options: Options = replace(options, **overrides)
        self.graph = graph if graph is not None else made
        self.scheduler = Scheduler(self.rng, _MOST_STEPS, self.options.slow)
        self.storage = Storage(self.scheduler, self.rng)
        self.output = OutputSystem()
        self.parallelisms: dict[str, set[int]] = {id: set() for id in self.graph.steps}
        self.attempts = 0
        self.restored_rows: list[int] = []
        """In flight, by attempt."""
        self.drains = 0
        self.last: Attempt
        self._crashes = self.options.crashes
        self._crash_at: int | None = None
        self._crash_on: tuple[str, int] | None = None
        """A moment, and how many of its kind come before."""

    def run(self) -> Simulation:
        """
        Raises:
            SimulationFailed: something went wrong.
        """
        try:
            self._run()
        except Exception as error:
            raise SimulationFailed(self._report(error)) from error
        return self

    def _run(self) -> None:
        parallelism: dict[str, int] | None = None
        while True:
            if parallelism is None or self.rng.random() >= self.options.keep_parallelism:
                parallelism = self.graph.random_parallelism(self.rng, self.options.most_parallelism)
            for id, p in parallelism.items():
                self.parallelisms[id].add(p)
            self._plan_crash()
            try:
                self.attempts += 1
                attempt = Attempt(
                    self.graph, self.options, self.scheduler, self.storage, self.output, parallelism, self._happened
                )
                self.last = attempt
                self._count(attempt)
                self._act(attempt)
            except (Crash, JobFailed) as error:
                self.scheduler.log("crash", repr(error))
                self.storage.crash(survive=0.5)
                if self.rng.random() < self.options.markers_lost:
                    self.output.markers.clear()
                continue
            except MarkerLost:
                if not self.options.markers_lost:
                    raise
                return  # loudly: that is all that can be asked for
            check(self.graph, attempt, self.output, self.parallelisms, self.options.exactly_once)
            return

    def _count(self, attempt: Attempt) -> None:
        entries = [e for s in attempt.subtasks if isinstance(s, Operator) for _, e in s.restored.rest()]
        self.restored_rows.append(count(entries))
        self.drains += attempt.drains

    def _act(self, attempt: Attempt) -> None:
        scheduler = self.scheduler
        scheduler.set_actors(attempt.actors())
        while not attempt.finished:
            scheduler.step()
            if scheduler.steps >= self.options.storm:
                if scheduler.steps == self.options.storm:
                    self._crash_at = self._crash_on = None
                attempt.calm()
                if scheduler.steps % _MIX_EVERY == 0:
                    scheduler.mix(calm=True)
            elif scheduler.steps % _MIX_EVERY == 0:
                scheduler.mix()
            if self._crash_at is not None and scheduler.steps >= self._crash_at:
                raise Crash("at a step")

    # -- crashes --------------------------------------------------------------------------------------------------

    def _plan_crash(self) -> None:
        self._crash_at = self._crash_on = None
        if self._crashes <= 0 or self.scheduler.steps >= self.options.storm:
            return
        self._crashes -= 1
        chosen = self.options.crash_moments
        if not chosen and self.rng.random() < 0.4:
            self._crash_at = self.scheduler.steps + self.rng.randint(1, 500)
        else:
            moments = chosen or ["snapshot", "durable", "complete", "complete", "complete", "commit"]
            self._crash_on = (self.rng.choice(moments), self.rng.choice([0, 0, 1, 2, 5]))

    def _happened(self, moment: str) -> None:
        if self._crash_on is None or self._crash_on[0] != moment:
            return
        before = self._crash_on[1]
        self._crash_on = (moment, before - 1)
        if before == 0:
            raise Crash(f"at a {moment}")

    def _report(self, error: Exception) -> str:
        lines = [
            f"{type(error).__name__}: {error}",
            f"seed {self.seed}, overrides {self.overrides}, attempt {self.attempts}, step {self.scheduler.steps}",
            f"graph: {self.graph}",
            f"{self.options}",
            *(
                f"{now:9.3f} {step:>6} {' '.join(map(str, what))}"
                for now, step, what in list(self.scheduler.trace)[-_SHOWN:]
            ),
        ]
        if not isinstance(error, AssertionError):
            lines.append("".join(traceback.format_exception(error)))
        return "\n".join(lines)
