"""A run: start after start until all input is processed and committed, then the checks."""

from __future__ import annotations

import gc
import logging
import random
import traceback
from dataclasses import replace
from typing import Any

import pyarrow as pa
from virtual.files import VirtualFiles
from virtual.scheduler import Scheduler

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.config import CheckpointConfig
from checkpoint.in_flight import channel_state
from checkpoint.in_flight.runs import Run
from checkpoint.storage import savepoints
from checkpoint.storage.errors import StorageError
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.opening import IN_PROCESS
from checkpoint.storage.restore import newest
from checkpoint.storage.storage import CheckpointStorage
from jobs.checks import check
from jobs.cluster import Cluster, Driver
from jobs.graph import Graph, Kind, Row, random_graph
from jobs.messages import Messages
from jobs.options import Options, random_options
from jobs.pipeline_of import pipeline_of
from jobs.world import WORLDS, World
from pipeline.buffers import BufferConfig
from pipeline.partitioners import Distribution
from pipeline.runtime.driver.attempt_context import CheckpointRequest
from pipeline.runtime.driver.restart import RestartStrategy

_MOST_STEPS = 100_000
_SHOWN = 60
_CALM_STORAGE = 0.001
"""Seconds that file operations take once nothing goes wrong any more."""


class SimulationFailed(AssertionError):
    """A run went wrong. The message is a bug report: `Simulation(seed).run()` repeats it."""


class JobFailed(AssertionError):
    """A job has failed that should not."""


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
        # Every second seed, without a draw that would change what the others are.
        self.options: Options = replace(options, **{"incremental": seed % 2 == 1, **overrides})
        self.graph = graph if graph is not None else made
        self.scheduler = Scheduler(self.rng, _MOST_STEPS, self.options.slow)
        self.world = World(f"world-{seed}-{id(self)}", self.graph, self.scheduler, self.options.faults)
        self.files = VirtualFiles(
            self.scheduler, lambda: self.options.storage_failures if self._storm else 0.0, self.options.storage_seconds
        )
        self.cluster = Cluster(self.scheduler)
        self.parallelisms: dict[str, set[int]] = {id: set() for id in self.graph.steps}
        self.starts = 0
        self.reached: set[str] = set()
        """What has come about, in words."""
        self._messages = Messages(self.scheduler, self.options, self.graph, self.reached, self._happened)
        self.cluster.to_subtask = self._messages.to_subtask
        self.cluster.to_driver = self._messages.to_driver
        self._savepoints = 0
        self.driver: Driver
        self._crashes = self.options.crashes
        self._crash_at: int | None = None
        self._crash_on: tuple[str, int] | None = None
        """A moment, and how many of its kind come before."""
        self._storm = True
        self._markers_lost = False
        self._taken_over = False
        self._takeovers = 0
        self._drains = False
        """The job was asked to drain: whether its last checkpoint succeeds or fails, it ends before its input does."""
        self._stopped_at: str | None = None
        """The savepoint that the job was stopped with."""
        self.world.exact = self.options.exactly_once
        self.world.strict_time = self.options.exactly_once and self.options.idle_after is None
        self.world.idle_after = self.options.idle_after
        self.world.happened = self._happened
        self.world.slow_steps = self.options.slow_steps
        self.files.happened = self._happened

    def run(self) -> Simulation:
        """
        Raises:
            SimulationFailed: something went wrong.
        """
        IN_PROCESS[f"virtual://{self.world.name}"] = self.files
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        collects = gc.isenabled()
        gc.disable()  # at once for all of the run is cheaper
        try:
            with self.cluster.with_its_code(self.options.first_window):
                try:
                    self._run()
                finally:
                    self.scheduler.end()
        except Exception as error:
            raise SimulationFailed(self._report(error)) from error
        finally:
            logging.disable(disabled)
            del WORLDS[self.world.name]
            if collects:
                gc.enable()
            del IN_PROCESS[f"virtual://{self.world.name}"]
        return self

    def _run(self) -> None:
        parallelism: dict[str, int] | None = None
        while True:
            if parallelism is None or self.rng.random() >= self.options.keep_parallelism:
                parallelism = self.graph.random_parallelism(self.rng, self.options.most_parallelism)
            for id, p in parallelism.items():
                self.parallelisms[id].add(p)
            if any(parallelism[id] > len(step.splits) for id, step in self.graph.steps.items() if step.splits):
                # A subtask without splits is idle. Until it ends with the others, those behind it may be idle, too,
                # and what their timers emit at the end comes late.
                self.world.strict_time = False
            if self.starts and self.rng.random() < self.options.edges_change:
                self.graph.vary(self.rng)
                if self.graph.varied:
                    self.reached.add("changes edges")
            self._plan_crash()
            self.starts += 1
            self.scheduler.log("start", self.starts, parallelism)
            driver = self.driver = self.cluster.start(self._job(parallelism), f"driver {self.starts}")
            self._messages.begin(driver.process)
            self._drains = False
            self.scheduler.spawn(driver.process, "user", lambda driver=driver: self._user(driver))  # type: ignore[misc]
            self._act(driver)
            if self._taken_over:
                self._taken_over = False
            elif not driver.process.alive:
                if self._storm and self.rng.random() < self.options.markers_lost:
                    self.world.output.markers.clear()
                    self._markers_lost = True
            elif driver.stopped or (self._drains and driver.job.status == "finished"):
                self.reached.add("stops")
            elif self._may_fail(driver):
                self.reached.add("fails to write")
            else:
                break
        job = driver.job
        if self._markers_lost and "MarkerLost" in (job.failure or ""):
            return  # loudly: that is all that can be asked for
        if job.status != "finished":
            raise JobFailed(f"the job is {job.status}: {job.failure}")
        if sum(step.kind is Kind.SINK for step in self.graph.steps.values()) > 1:
            self.reached.add("commits to several sinks")
        check(self.graph, self.world, self._storage(), self.parallelisms, self.options.exactly_once)

    def _job(self, parallelism: dict[str, int]) -> Any:
        o = self.options
        checkpoints = CheckpointConfig(
            self._uri,
            interval=o.interval,
            timeout=o.timeout,
            min_pause=o.min_pause,
            max_concurrent=o.max_concurrent,
            slow_storage_span=o.slow_storage_span,
            tolerable_failures=o.tolerable_failures,
            alignment="aligned" if o.alignment is None else o.alignment,
            mode="exactly_once" if o.exactly_once else "at_least_once",
            retained=o.retained,
            incremental=o.incremental,
        )
        pipeline = pipeline_of(
            self.graph,
            self.world.name,
            parallelism,
            checkpoints,
            RestartStrategy.fixed_delay(1000, 0.1),
            BufferConfig(max_bytes=o.buffer_bytes, linger=o.linger, debloat=o.debloat, frame_bytes=2048),
            o.max_span_records,
            o.idle_after,
        )
        restore, ignored = "latest", None
        if self._stopped_at is not None and self.rng.random() < 0.5:
            restore = self._stopped_at
            self.reached.add("starts from a savepoint")
        elif self.starts > 1 and self._storm and not self._takeovers and self.rng.random() < o.ignores_in_flight:
            ignored = self._leave_out_in_flight()  # a driver that lives could complete a checkpoint meanwhile
        self._stopped_at = None
        return pipeline.options(
            restore,
            spark=None,
            claim=None,
            rewind=False,
            allow_unclaimed=False,
            ignore_in_flight=ignored,
            take_over=True,  # the driver before is gone, or ends
        )

    def _leave_out_in_flight(self) -> int | None:
        """What the next start restores, if anything; what is in flight there is dropped."""
        point = newest(self._storage())
        if point is None:
            return None
        for vertex in point.metadata.vertices.values():
            for index, subtask in enumerate(vertex.subtasks):
                for handle in subtask.channel_state:
                    for run in channel_state.load(point.storage, handle, index):
                        self.world.dropped |= self._rows_of(run, point.metadata)
        if self.world.dropped:
            self.reached.add("leaves out what was in flight")
        return point.ref.id

    def _rows_of(self, run: Run, metadata: CheckpointMetadata) -> set[Row]:
        name = run.origin.channel.edge
        edge = self.graph.between(name.upstream.removesuffix(" time"), name.downstream)
        path: tuple[int, ...] = (edge.index, -1) if edge.distribution is Distribution.BROADCAST else (edge.index,)
        if not isinstance(run.content, pa.RecordBatch):
            return set()
        values = metadata.edges[name].shape.format.rows(run.content).values
        return {Row(split, sequence, (*way, *path)).plain for split, sequence, way, _ in values}

    @property
    def _uri(self) -> str:
        return f"virtual://{self.world.name}/root"

    def _storage(self) -> CheckpointStorage:
        return CheckpointStorage(self._uri, "job")

    def _may_fail(self, driver: Driver) -> bool:
        """Whether the job has failed of what its storage does at the moment, so that its user starts it again."""
        failure = driver.job.failure
        if failure is None:
            return False
        # A start that looks at what is there while another driver deletes it ends before it owns anything. And of two
        # that are told to take the job over, the slower one gets it, which may be the one that was started first.
        raced = self._takeovers > 0 and ("_metadata is missing" in failure or "has a newer owner" in failure)
        return raced or "the virtual storage has failed" in failure

    def _act(self, driver: Driver) -> None:
        scheduler = self.scheduler

        def over() -> bool:
            if self._storm and scheduler.steps >= self.options.storm:
                self._storm = self._messages.may_be_lost = False
                self.world.slow_steps = ()
                self.files.seconds = _CALM_STORAGE
                scheduler.calm = True
                scheduler.mix()
                self._crash_at = self._crash_on = None
            if self._crash_at is not None and scheduler.steps >= self._crash_at:
                self._crash()
            return driver.ended or self._taken_over or not driver.process.alive

        scheduler.run(over)

    # -- crashes --------------------------------------------------------------------------------------------------

    def _plan_crash(self) -> None:
        self._crash_at = self._crash_on = None
        if self._crashes <= 0 or not self._storm:
            return
        self._crashes -= 1
        chosen = self.options.crash_moments
        if not chosen and self.rng.random() < 0.4:
            self._crash_at = self.scheduler.steps + self.rng.randint(1, 400)
        else:
            moments = chosen or ("snapshot", "durable", "complete", "complete", "complete", "commit", "replayed")
            self._crash_on = (self.rng.choice(moments), self.rng.choice([0, 0, 1, 2, 5]))

    def _happened(self, moment: str) -> None:
        if self._crash_on is None or self._crash_on[0] != moment:
            return
        before = self._crash_on[1]
        self._crash_on = (moment, before - 1)
        if before == 0:
            self._crash()

    def _crash(self) -> None:
        """Kill somebody, or take the job over from a driver that lives."""
        rng, scheduler = self.rng, self.scheduler
        self._plan_crash()
        subtasks = [process for process in self.cluster.subtasks if process.alive]
        if not subtasks or rng.random() < self.options.driver_crashes:
            self._taken_over = rng.random() < self.options.takeovers
            self._takeovers += self._taken_over
            self.reached.add("takes a job over" if self._taken_over else "kills a driver")
            if not self._taken_over:
                scheduler.kill(self.driver.process)
        else:
            self.reached.add("kills a subtask")
            scheduler.kill(rng.choice(subtasks))

    # -- the user -------------------------------------------------------------------------------------------------

    def _user(self, driver: Driver) -> None:
        """Asks for checkpoints, savepoints, and for the end."""
        rng, scheduler = self.rng, self.scheduler
        while self._storm and not driver.ended:
            scheduler.pause(rng.expovariate(1.0))
            if not self._storm or driver.ended:
                continue
            stop = rng.random() < self.options.stops
            target = None
            if self.options.savepoints and rng.random() < 0.7:
                self._savepoints += 1
                uri = f"virtual://{self.world.name}/savepoints/{self._savepoints}"
                try:
                    target = savepoints.prepare(uri)
                except StorageError:
                    continue
            elif not stop and rng.random() < 0.7:
                continue
            kind = CheckpointKind.FINAL if stop else CheckpointKind.CHECKPOINT
            if target is not None:
                kind = CheckpointKind.SAVEPOINT
            drains = stop and rng.random() < 0.6 and all(step.timer is None for step in self.graph.steps.values())
            self._messages.asked_to_stop |= stop
            self.world.drained |= drains
            self._drains |= drains
            scheduler.log("user asks", kind, "stop" if stop else "", "drain" if drains else "")

            def answer(result: int | Exception, stop: bool = stop, drains: bool = drains, target: Any = target) -> None:
                scheduler.log("answer", repr(result))
                if isinstance(result, Exception):
                    self._messages.answered(result)
                    return
                if drains:
                    self.reached.add("drains")
                if target is not None:
                    self.reached.add("takes a savepoint")
                    if stop:
                        self._stopped_at = target.uri

            driver.job.request_checkpoint(CheckpointRequest(kind, target, stop, drains), answer)

    def _report(self, error: Exception) -> str:
        lines = [
            f"{type(error).__name__}: {error}",
            f"seed {self.seed}, overrides {self.overrides}, start {self.starts}, step {self.scheduler.steps}",
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
