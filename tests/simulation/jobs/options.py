"""What one run of the simulation is like."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

Alignment = float | None
"""Seconds until a barrier is made unaligned; 0 = unaligned from the start, `None` = never."""


@dataclass(frozen=True)
class Options:
    """Durations in virtual seconds."""

    exactly_once: bool = True
    alignment: Alignment = 0.0
    savepoints: bool = False
    interval: float = 1.0
    min_pause: float = 0.0
    timeout: float = 20.0
    max_concurrent: int = 1
    retained: int = 1
    incremental: bool = False
    tolerable_failures: int = 1000
    max_span_records: int | None = None
    first_window: int | None = None
    """Records that a source may read ahead of checkpoints in the beginning; `None`: as many as ever."""
    slow_storage_span: float = 0.0
    records: int = 10
    """Of each split."""
    idle_after: float | None = None
    linger: float = 0.05
    debloat: bool = True
    buffer_bytes: int = 8192
    stops: float = 0.0
    """Chance that the user stops the job, each time that he thinks of it; the next start goes on."""
    edges_change: float = 0.0
    """Share of starts with other edges."""
    ignores_in_flight: float = 0.0
    """Share of starts that leave out what was in flight."""
    markers_lost: float = 0.0
    """Chance that the output system has forgotten its markers when a driver has crashed."""
    crashes: int = 2
    crash_moments: tuple[str, ...] = ()
    """Crash at one of these moments ("snapshot", "durable", "complete", "commit"); empty: these or any step."""
    driver_crashes: float = 0.5
    """Share of crashes that take the driver; the others take a subtask."""
    takeovers: float = 0.0
    """Share of the drivers' crashes in which the driver lives on: its user thinks it dead, and starts another."""
    storm: int = 3000
    """Steps after which nothing goes wrong any more, so that the run has to end."""
    lost: float = 0.0
    """Share of triggers and notifications that get lost."""
    storage_failures: float = 0.0
    """Share of writes that fail."""
    storage_seconds: float = 0.02
    """Mean of what a file operation takes."""
    keep_parallelism: float = 0.5
    """Share of starts without rescaling."""
    most_parallelism: int = 3
    slow_steps: tuple[str, ...] = ()
    """How the ids of steps begin that are slow during the storm."""
    slow: tuple[str, ...] = ()
    """How the names of fibers and wires begin that are slow during the storm."""
    faults: frozenset[str] = field(default=frozenset())
    """Rules to break on purpose (see `test_rules`)."""

    @property
    def nothing_goes_wrong(self) -> bool:
        """No checkpoint has a reason to fail."""
        return not (self.crashes or self.lost or self.storage_failures or self.stops) and self.timeout >= 60.0


_SLOW: tuple[tuple[str, ...], ...] = (
    (),
    (),
    (),
    ("commit",),
    ("task",),
    ("wire",),
    ("mail",),
    ("report",),
    ("snapshot",),
)


def random_options(rng: random.Random) -> Options:
    timeout = rng.choice([0.05, 0.3, 1.0])
    impatient = rng.random() < 0.3
    return Options(
        exactly_once=rng.random() < 0.9,
        alignment=rng.choice([0.0, 0.0, None, timeout]),
        savepoints=rng.random() < 0.3,
        interval=rng.choice([0.1, 0.2, 0.5, 1.0]),
        min_pause=rng.choice([0.0, 0.0, 0.2]),
        timeout=60.0 if impatient else rng.choice([6.0, 15.0, 60.0]),
        max_concurrent=rng.choice([1, 2, 3, 3]),
        retained=rng.choice([1, 2]),
        tolerable_failures=2 if impatient else 1000,
        max_span_records=rng.choice([None, None, 3, 8]),
        first_window=rng.choice([None, None, 1, 5]),
        slow_storage_span=rng.choice([0.0, 0.0, 3.0]),
        records=rng.randint(5, 12),
        idle_after=rng.choice([None, None, None, 0.5]),
        linger=rng.choice([0.0, 0.02, 0.1]),
        debloat=rng.random() < 0.5,
        buffer_bytes=rng.choice([2048, 8192]),
        stops=rng.choice([0.0, 0.0, 0.2, 0.5]),
        edges_change=rng.choice([0.0, 0.0, 1.0]),
        ignores_in_flight=rng.choice([0.0] * 4 + [0.7]),
        markers_lost=rng.choice([0.0] * 9 + [0.3]),
        crashes=rng.choice([0, 1, 2, 3, 4]),
        takeovers=rng.choice([0.0, 0.0, 0.0, 0.5]),
        storm=rng.choice([600, 1200, 2000]),
        lost=rng.choice([0.0, 0.0, 0.1, 0.4]),
        storage_failures=rng.choice([0.0, 0.0, 0.05]),
        storage_seconds=rng.choice([0.001, 0.001, 0.01, 0.05]),
        keep_parallelism=rng.choice([0.0, 0.3, 0.5, 1.0]),
        most_parallelism=rng.choice([2, 3, 3]),
        slow=rng.choice(_SLOW),
    )
