"""Runs the demo: Kafka, input, the job with a crash in it, the check."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from checkpoint.counted import counted
from pipeline.bench.percentiles import percentile
from pipeline.broker import NativeBroker
from pipeline.broker.readiness import await_broker
from pipeline.broker.topics import Follower, create_topics, delete_topics, publish
from pipeline.demo.display import Display
from pipeline.demo.flights import Flights, messages
from pipeline.demo.hours import ExpectedHours, HoursFindings
from pipeline.demo.job import DemoJob, SlowPhase
from pipeline.demo.observe import Observer, durations, largest_span, victim
from pipeline.demo.report import Report
from pipeline.demo.validate import Expected, Findings, Validator
from pipeline.demo.weather import weather, weather_messages
from pipeline.handle import JobHandle
from pipeline.runtime.driver.status.job_statuses import ENDED

ALL_FLIGHTS: Final = 336_776
_PARTITIONS: Final = 4
_LEAST_SECONDS: Final = 8.0
"""The source takes at least so long over the input: there must be something to see, and to kill, with few records."""
_BROKER_TIMEOUT: Final = 60.0
_KILL_AT: Final = 0.6
"""Part of the output after which a process is killed: behind the slow phase, which partitions leave one by one."""
_TICK: Final = 0.1


class DemoFailed(RuntimeError):
    """The job did not come to its end; the message says why."""


@dataclass(frozen=True)
class DemoOptions:
    records: int = ALL_FLIGHTS
    servers: str | None = None
    """Addresses of a running broker; `None`: start one."""
    parallelism: int = 2
    interval: float = 1.0
    """Seconds between checkpoints."""
    slow_seconds: float = 10.0
    """How long the slow phase takes, about; 0 = none."""
    kill: bool = True
    """Whether to kill a worker process on the way."""
    keep_topics: bool = False
    """Only matters for a running broker."""


@dataclass(frozen=True)
class _Run:
    """What is known of the job at its end."""

    handle: JobHandle
    observer: Observer
    seconds: float
    recovery: float | None


class Demo:
    """One run. Whatever it starts it stops, however it ends."""

    def __init__(self, options: DemoOptions, display: Display) -> None:
        self._o = options
        self._display = display
        self.expected: Expected | None = None
        """Once the job runs."""
        self.expected_hours: ExpectedHours | None = None
        """As `expected`."""

    def run(self) -> Report:
        """
        Raises:
            DemoFailed: the job failed.
            DataMissing, BrokerFailed, FetchFailed, JavaMissing, TopicTrouble: what it needs isn't there.
        """
        o, say = self._o, self._display.say
        flights, observations = Flights(o.records), weather()
        with self._broker() as servers:
            name = f"weir-demo-{uuid.uuid4().hex[:8]}"
            inputs, outputs = f"{name}-flights", f"{name}-delays"
            observed, hours = f"{name}-weather", f"{name}-hours"
            topics = [inputs, outputs, observed, hours]
            create_topics(servers, dict.fromkeys(topics, _PARTITIONS))
            try:
                say(f"publishing {counted(o.records, 'flight')} to {inputs}, and a year's weather to {observed}")
                publish(servers, inputs, messages(flights))
                publish(servers, observed, weather_messages(observations))
                with tempfile.TemporaryDirectory(prefix="weir-demo-") as folder:
                    run = self._job(DemoJob(
                        name=name,
                        servers=servers,
                        flights_topic=inputs,
                        delays_topic=outputs,
                        weather_topic=observed,
                        hours_topic=hours,
                        folder=folder,
                        parallelism=o.parallelism,
                        interval=o.interval,
                        rate_limit=max(1.0, o.records / _LEAST_SECONDS),
                        slow=SlowPhase.of(o.records, o.parallelism, o.slow_seconds),
                    ), flights, observations)  # fmt: skip
                say(f"reading {outputs} and {hours} back")
                findings = self._check(servers, outputs), self._check_hours(servers, hours)
            finally:
                if o.servers is not None and not o.keep_topics:
                    delete_topics(servers, topics)
        return _report(run, *findings)

    @contextlib.contextmanager
    def _broker(self) -> Iterator[str]:
        servers, say = self._o.servers, self._display.say
        if servers is not None:
            say(f"waiting for Kafka at {servers}")
            await_broker(servers, _BROKER_TIMEOUT)
            yield servers
            return
        say("starting Kafka (the first time ever it is fetched: 45 MB)")
        with NativeBroker.start() as broker:
            say(f"Kafka runs at {broker.bootstrap_servers}")
            yield broker.bootstrap_servers

    def _job(self, job: DemoJob, flights: Flights, observations: list[dict[str, Any]]) -> _Run:
        self._display.say(f"starting Spark and the job with parallelism {job.parallelism}")
        with Follower(job.servers, job.delays_topic) as follower:
            started = time.monotonic()
            handle = job.pipeline().start(restore="none")
            try:
                self.expected = Expected(flights)
                self.expected_hours = ExpectedHours(flights, observations)
                return self._watch(job, handle, follower, started)
            finally:
                handle.cancel()

    def _watch(self, job: DemoJob, handle: JobHandle, follower: Follower, started: float) -> _Run:
        observer = Observer(handle, self._o.records)
        out, killed_at, recovery = 0, None, None
        status = handle.status
        while status not in ENDED:
            messages = follower.poll(_TICK)
            now = time.monotonic()
            if messages and out == 0:
                self._display.say(f"first output after {now - started:.1f} s")
            out += len(messages)
            if killed_at is None and self._o.kill and out >= _KILL_AT * self._o.records:
                killed_at = self._kill(handle)
            elif killed_at is not None and recovery is None and messages and handle.restarts:
                recovery = now - killed_at
                self._display.say(f"new output {recovery:.1f} s after the kill")
            recovering = killed_at is not None and recovery is None
            self._display.show(observer.observe(_phase(job, out, recovering), now - started, out))
            status = handle.status
        seconds = time.monotonic() - started
        if status != "finished":
            raise DemoFailed(f"the job {status}: {handle.failure}")
        observer.observe("finished", seconds, out)
        return _Run(handle, observer, seconds, recovery)

    def _kill(self, handle: JobHandle) -> float | None:
        """SIGKILL one of the operator's processes; when, or `None` if there is none just now."""
        found = victim(handle.processes()) if handle.status == "running" else None
        if found is None:
            return None
        name, pid = found
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None  # the job has just ended
        self._display.say(f"killed process {pid} ({name}) with SIGKILL")
        return time.monotonic()

    def _check(self, servers: str, topic: str) -> Findings:
        assert self.expected is not None
        validator = Validator(self.expected)
        with Follower(servers, topic) as follower:
            for batch in follower.to_end():
                for message in batch:
                    validator.take(message.value())
        return validator.findings()

    def _check_hours(self, servers: str, topic: str) -> HoursFindings:
        assert self.expected_hours is not None
        with Follower(servers, topic) as follower:
            return self.expected_hours.findings(message.value() for batch in follower.to_end() for message in batch)


def _phase(job: DemoJob, out: int, recovering: bool) -> str:
    if recovering:
        return "recovering"
    if out == 0:
        return "starting"
    # What is committed lags behind what is processed.
    return "slow operator" if job.slow.seconds and job.slow.first <= out < job.slow.last else "running"


def _report(run: _Run, findings: Findings, hours: HoursFindings) -> Report:
    rows = run.handle.checkpoints()
    took = durations(rows)
    return Report(
        findings=findings,
        hours=hours,
        checkpoints_completed=len(took),
        checkpoints_failed=sum(row.status == "failed" for row in rows),
        checkpoint_p50_s=percentile(took, 0.5),
        checkpoint_p95_s=percentile(took, 0.95),
        max_span_records=largest_span(rows),
        gate_closed_s=run.observer.gate_closed,
        restarts=run.handle.restarts,
        recovery_s=run.recovery,
        seconds=run.seconds,
    )
