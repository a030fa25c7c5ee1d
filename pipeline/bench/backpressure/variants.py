"""What is run: each mechanism against backpressure alone, and together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, Literal

from checkpoint.config import CheckpointConfig
from pipeline.bench.backpressure.load import Change, Load
from pipeline.buffers import KIB, BufferConfig

PARALLELISM: Final = 2
RESCALED: Final = 3
"""The parallelism after a rescaling."""
DELAY_S: Final = 0.002
"""What a slow operator sleeps for each record."""
OPERATORS_RATE: Final = PARALLELISM / DELAY_S
"""Records/s that the slow operators could do at most."""
SOURCE_RATE: Final = 100 * OPERATORS_RATE
"""Records/s of the whole source: the operators do 1 % of it."""
HEALTHY_RATE: Final = 10_000.0
"""Records/s of the healthy job's source: ten times what the slow operators do, and still easy for two cores."""
TIMEOUT_ALIGNMENT: Final = 0.5
"""Seconds after which the checkpoints of `timeout` runs turn unaligned."""
_FIXED: Final = {"max_bytes": 384 * KIB, "frame_bytes": 32 * KIB, "debloat": False}
"""What Apache Flink's defaults give a subtask with two input channels: twelve buffers of 32 KiB."""
LARGE: Final = {"debloat": False}
"""Weir's bounds without debloating: 8 MiB a subtask, so that what is queued takes minutes, as in the original."""


@dataclass(frozen=True)
class Settings:
    """What all runs of an experiment have in common. Durations are seconds."""

    interval: float
    timeout: float
    max_concurrent: int
    tolerable_failures: int
    seconds: float
    """How long a run is watched at most, from the moment that all subtasks run; runs may have times of their own."""
    enough: int | None = None
    """End a run when so many checkpoints have completed; `None` = never before `seconds`."""
    least: float = 0.0
    """Seconds that a run is watched at least, however many have completed: for rates that can be compared."""

    @property
    def warm_up(self) -> float:
        """Checkpoints triggered before that many seconds are left out of percentiles: queues and rates settle."""
        return 2 * self.interval


@dataclass(frozen=True)
class Interruption:
    """What happens to the job on the way."""

    kind: Literal["restart", "rescale"]
    """A worker is killed, and the job goes on from its newest checkpoint; or it is stopped with a savepoint and started
    from that with `RESCALED` subtasks a step."""
    at: float
    """Seconds since all subtasks run."""


@dataclass(frozen=True)
class Variant:
    """One run."""

    name: str
    alignment: str | float = "aligned"
    gate: bool = True
    window: bool = True
    """Whether the gate has a learned window for each source subtask; `False` = it closes by time, and by the limit."""
    max_span_records: int | None = None
    """The gate's limit for each source subtask; `None` = there is none."""
    slow_storage_span: float | None = None
    """`CheckpointConfig.slow_storage_span`; `None` = as by default."""
    buffers: dict[str, Any] = field(default_factory=dict)
    """Options of `BufferConfig`."""
    delay: float = DELAY_S
    rate: float = SOURCE_RATE
    change: Change | None = None
    shares: tuple[int, ...] = ()
    """How the records are dealt to the source subtasks, in parts; `()` = evenly, to `PARALLELISM` of them."""
    storage_delay: float = 0.0
    """Seconds that each subtask's writing takes in each checkpoint, beside its work."""
    interruption: Interruption | None = None
    seconds: float | None = None
    """How long it is watched, beside an interruption; `None` = as the settings say."""
    group: str = ""
    """Runs of the same group, one behind the other, differ only in the gate, and are compared with the one without."""

    @property
    def load(self) -> Load:
        return Load(self.rate, self.delay, self.change)

    @property
    def buffer_config(self) -> BufferConfig:
        return BufferConfig(**self.buffers)

    def checkpoint_config(self, folder: str, settings: Settings) -> CheckpointConfig:
        """
        Raises:
            ValueError: an option has a value that it can't have.
        """
        alignment: Any = self.alignment
        gate: dict[str, Any] = {} if self.slow_storage_span is None else {"slow_storage_span": self.slow_storage_span}
        return CheckpointConfig(
            folder,
            interval=settings.interval,
            timeout=settings.timeout,
            max_concurrent=settings.max_concurrent,
            tolerable_failures=settings.tolerable_failures,
            alignment=alignment,
            **gate,
        )


@dataclass(frozen=True)
class Experiment:
    settings: Settings
    variants: tuple[Variant, ...]
    rounds: int = 1
    """How often each group is run."""

    def only(self, names: tuple[str, ...]) -> Experiment:
        """The runs of these names and groups, all for none.

        Raises:
            ValueError: there is no such run; the message lists those there are.
        """
        known = [variant.name for variant in self.variants]
        groups = list(dict.fromkeys(variant.group for variant in self.variants if variant.group not in ("", *known)))
        for name in names:
            if name not in (*known, *groups):
                whole = f"; of several each: {', '.join(groups)}" if groups else ""
                raise ValueError(f"there is no run {name!r}; there are {', '.join(known)}{whole}")
        if not names:
            return self
        chosen = tuple(v for v in self.variants if v.name in names or (v.group in names and v.group in groups))
        return replace(self, variants=chosen)

    def plan(self) -> Iterator[tuple[Variant, int]]:
        """What is run one after the other, with the number of the round: the runs of a group in turn, then its next
        round, and then the next group."""
        for _, grouped in groupby(self.variants, key=lambda variant: variant.group):
            variants = list(grouped)
            for number in range(1, self.rounds + 1):
                yield from ((variant, number) for variant in variants)


def standard(seconds: float | None = None, interval: float | None = None, rounds: int = 1) -> Experiment:
    """An interval of 2 s, a timeout of 60 s, one checkpoint at a time, failures tolerated; 75 s a run."""
    settings = Settings(
        interval=interval or 2.0, timeout=60.0, max_concurrent=1, tolerable_failures=1_000, seconds=seconds or 75.0
    )
    limit = _limit(settings)
    return Experiment(
        settings,
        (
            Variant("healthy", delay=0.0, rate=HEALTHY_RATE),
            Variant("healthy-unaligned", "unaligned", delay=0.0, rate=HEALTHY_RATE),
            Variant("aligned-fixed", gate=False, buffers=_FIXED),
            Variant("aligned-fixed-gate", window=False, buffers=_FIXED),
            Variant("aligned-fixed-gate-limit", window=False, max_span_records=limit, buffers=_FIXED),
            Variant("aligned-fixed-window", buffers=_FIXED),
            Variant("aligned", gate=False),
            Variant("aligned-gate", window=False),
            Variant("timeout-gate", TIMEOUT_ALIGNMENT, window=False),
            Variant("timeout-window", TIMEOUT_ALIGNMENT),
            Variant("unaligned-fixed", "unaligned", gate=False, buffers=_FIXED),
            Variant("unaligned", "unaligned", gate=False),
            Variant("unaligned-gate", "unaligned", window=False),
            Variant("unaligned-window", "unaligned"),
        ),
        rounds,
    )


def original(seconds: float | None = None, interval: float | None = None, rounds: int = 1) -> Experiment:
    """The experiment that began it: two checkpoints at a time, every 10 s, a timeout of 5 min, no failure tolerated,
    and queues that take minutes; until ten checkpoints have completed, 5 min at least and 20 at most."""
    settings = Settings(
        interval=interval or 10.0,
        timeout=300.0,
        max_concurrent=2,
        tolerable_failures=0,
        seconds=seconds or 1_200.0,
        enough=10,
        least=300.0,
    )
    limit = _limit(settings)
    return Experiment(
        settings,
        (
            Variant("original", gate=False, buffers=LARGE, group="original"),
            Variant("original-gate", window=False, buffers=LARGE, group="original"),
            Variant("original-gate-limit", window=False, max_span_records=limit, buffers=LARGE, group="original"),
            Variant("original-window", buffers=LARGE, group="original"),
        ),
        rounds,
    )


def _limit(settings: Settings) -> int:
    """What the operators do in one interval, for each source subtask."""
    return max(1, round(OPERATORS_RATE * settings.interval / PARALLELISM))
