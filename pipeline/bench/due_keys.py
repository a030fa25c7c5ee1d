"""Very many keys whose windows close at one watermark: how long a barrier waits for the task thread meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from checkpoint.codec import encode_key
from checkpoint.elements import ChannelName, EdgeName
from checkpoint.key_groups import key_group
from checkpoint.state import make_backend
from checkpoint.state_backends import StateBackend
from pipeline.aggregates import Count
from pipeline.bench.percentiles import percentile
from pipeline.bench.report import Figure, figure
from pipeline.job import Pipeline
from pipeline.runtime.subtask.chain import Chain
from pipeline.runtime.subtask.context import contexts_of
from pipeline.runtime.subtask.event_time.event_time import EventTime
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.windows import Tumbling
from sources import SequenceSource

_KEY_GROUPS: Final = 128
_INPUT: Final = ChannelName(EdgeName("in", "counts", ""), 0, 0)
_WINDOW: Final = 60
_PAUSE_S: Final = 0.01
"""Between two barriers."""


@dataclass(frozen=True)
class DueResult:
    """Of one backend, in seconds."""

    backend: StateBackend
    keys: int
    close_s: float
    """Until all windows have closed, barriers included."""
    barriers: int
    p50: float
    p99: float
    longest: float
    """From when a barrier was announced until the task thread had left its timers."""


@dataclass(frozen=True)
class DueReport:
    results: list[DueResult]

    def settings(self) -> dict[str, Any]:
        return {"keys": self.results[0].keys, "backends": [one.backend for one in self.results]}

    def figures(self) -> list[Figure | None]:
        return [
            figure(f"{one.backend}, {what}", value, "s", "lower")
            for one in self.results
            for what, value in (
                ("all windows close", one.close_s),
                ("a barrier waits, p99", one.p99),
                ("a barrier waits, at most", one.longest),
            )
        ]

    def fields(self) -> dict[str, Any]:
        return asdict(self)


def measure(backends: Sequence[StateBackend], keys: int, say: Callable[[str], None]) -> DueReport:
    """A tumbling count of one record a key, in one subtask without Kafka and Spark."""
    return DueReport([_measure(backend, keys, say) for backend in backends])


class _Subtask:
    """A task's chain, state and event time; `emitted` counts results."""

    def __init__(self, backend: StateBackend) -> None:
        p = Pipeline("due", max_parallelism=_KEY_GROUPS)
        p.source("in", SequenceSource(1)).key_by(str).window(Tumbling(_WINDOW)).aggregate("counts", n=Count())
        (vertex,) = [one for one in p.plan().vertices if not one.is_source]
        self.backend = make_backend(range(_KEY_GROUPS), _KEY_GROUPS, False, backend)
        self.mailbox, self._record, self.emitted = Mailbox(), RecordInProgress(), 0
        outputs: dict[tuple[str, str | None], list[Any]] = {("counts", None): [self._emit]}
        contexts = contexts_of(vertex, self._record, 0)
        self._chain = Chain(vertex, self._record, contexts, {}, outputs, self.backend)
        self.time = EventTime(
            chain=self._chain, backend=self.backend, writers=[], mailbox=self.mailbox, channels=[_INPUT]
        )
        self._chain.open()
        self.time.open()

    def process(self, number: int) -> None:
        record, key = self._record, encode_key(f"key-{number:012}")
        record.timestamp, record.key_bytes, record.key_group = 0, key, key_group(key, _KEY_GROUPS)
        self.backend.set_current_key(key, record.key_group)
        self._chain.push(number)

    def close_all(self) -> None:
        self._record.leave()
        self.backend.clear_current_key()
        self.time.on_watermark(_INPUT, 1000 * _WINDOW)

    def _emit(self, result: Any) -> None:
        self.emitted += 1


class _Barriers:
    """Announces a barrier, and the next one a while after the task thread has come to it."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.waits: list[float] = []
        self._mailbox = mailbox
        self._announced = 0.0
        self._came = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="weir-bench-barriers", daemon=True)
        self._thread.start()

    def came(self) -> None:
        """The task thread looks at its mailbox."""
        self.waits.append(time.perf_counter() - self._announced)
        self._mailbox.interrupt = False
        self._came.set()

    def end(self) -> None:
        self._over = True
        self._came.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over:
            time.sleep(_PAUSE_S)
            self._came.clear()
            if self._over:
                return
            self._announced = time.perf_counter()
            self._mailbox.tick()
            self._came.wait()


def _measure(backend: StateBackend, keys: int, say: Callable[[str], None]) -> DueResult:
    subtask = _Subtask(backend)
    say(f"{backend}: {keys:,} keys are opening their windows")
    for number in range(keys):
        subtask.process(number)
    say(f"{backend}: all are due")
    began = time.perf_counter()
    subtask.close_all()
    barriers = _Barriers(subtask.mailbox)
    while subtask.time.due:
        subtask.time.fire()
        if subtask.mailbox.interrupt:
            barriers.came()
    took = time.perf_counter() - began
    barriers.end()
    subtask.backend.close()
    assert subtask.emitted == keys
    waits = barriers.waits
    p50, p99 = (percentile(waits, part) or 0.0 for part in (0.5, 0.99))
    return DueResult(backend, keys, took, len(waits), p50, p99, max(waits, default=0.0))
