"""A job that is measured, looked at from outside until it has ended."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Final, Literal, Self

import psutil

from pipeline.bench.cpu import CpuMeter
from pipeline.bench.errors import BenchFailed
from pipeline.bench.memory import shared_out
from pipeline.bench.spark_jvm import jvm_pid
from pipeline.broker.topics import Follower
from pipeline.handle import JobHandle
from pipeline.runtime.driver.spark.daemon_process import daemons
from pipeline.runtime.driver.status.job_statuses import ENDED

Part = Literal["driver", "JVM", "subtasks", "others"]
PARTS: Final[tuple[Part, ...]] = ("driver", "JVM", "subtasks", "others")
"""Others: what subtasks are forked from, and what else the JVM has started."""


def processes(handle: JobHandle) -> dict[int, Part]:
    """Process ids, with what part of the job each is. A broker that this process has started isn't among them."""
    jvm, others = jvm_pid(), {one.pid for one in daemons()}
    if jvm is not None:
        try:
            others |= {child.pid for child in psutil.Process(jvm).children(recursive=True)}
        except psutil.NoSuchProcess:
            jvm = None  # it has ended
    found: dict[int, Part] = dict.fromkeys(others, "others")
    if jvm is not None:
        found[jvm] = "JVM"
    found |= dict.fromkeys(handle.processes().values(), "subtasks")
    return {**found, os.getpid(): "driver"}


_SAMPLE_S: Final = 0.1


def is_over(handle: JobHandle) -> bool:
    """Whether the job goes on no more, however it has ended."""
    return handle.status in ENDED


def ran_from(handle: JobHandle) -> float:
    """When all subtasks of a job ran that has read its topic to the end.

    Raises:
        BenchFailed: it has ended otherwise, or was restarted.
    """
    running_at = handle.running_since
    if handle.status != "finished" or handle.restarts or running_at is None:
        raise BenchFailed(f"the job {handle.status} after {handle.restarts} restarts: {handle.failure}")
    return running_at


class Watch:
    """Looks at the end of the output topic, which costs next to nothing, and at its processes' CPU time and memory."""

    def __init__(self, servers: str, target: str, weigh_every: float) -> None:
        """`weigh_every`: seconds between two looks at memory, for which the system goes through all pages."""
        self._follower = Follower(servers, target)
        self._weigh_every = weigh_every
        self._end = 0
        self.first_change = self.last_change = 0.0
        """When output was seen first and last; of `time.monotonic`."""
        self.meter = CpuMeter()
        self.pss_peak = 0
        """Bytes of memory at the worst time; a page that several processes share counts once."""
        self.pss_parts: dict[Part, int] = {}
        """What of it the parts of the job had."""

    def until_ended(self, handle: JobHandle, each_time: Callable[[], object] = lambda: None) -> None:
        """`each_time`: called at each look."""
        weighed, taking_part = -math.inf, dict[int, Part]()
        while not is_over(handle):
            time.sleep(_SAMPLE_S)
            self._look()
            each_time()
            if handle.running_since is not None:
                taking_part = taking_part or processes(handle)
                self.meter.sample(taking_part)
                if time.monotonic() - weighed > self._weigh_every:
                    weighed, taking_part = time.monotonic(), processes(handle)
                    self._weigh(taking_part)
        self._look()

    def _weigh(self, taking_part: dict[int, Part]) -> None:
        found = shared_out(taking_part)
        if (total := sum(found.values())) > self.pss_peak:
            self.pss_peak = total
            self.pss_parts = {
                part: sum(size for pid, size in found.items() if taking_part[pid] == part) for part in PARTS
            }

    def _look(self) -> None:
        end = self._follower.end_offset()
        if end > self._end:
            self._end, self.last_change = end, time.monotonic()
            self.first_change = self.first_change or self.last_change

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._follower.close()
