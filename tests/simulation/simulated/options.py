"""What one run of the simulation is like."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from checkpoint.config import CheckpointConfig

Alignment = float | None
"""Seconds until a barrier turns unaligned; 0 = unaligned from the start, `None` = never."""


@dataclass(frozen=True)
class Options:
    """Durations in virtual seconds; a step takes about a hundredth of one."""

    exactly_once: bool = True
    alignments: tuple[Alignment, ...] = (0.0,)
    """One of them is drawn for each checkpoint that is no savepoint."""
    savepoint_alignment: Alignment = None
    savepoints: bool = False
    interval: float = 1.0
    min_pause: float = 0.0
    timeout: float = 20.0
    max_concurrent: int = 1
    retained: int = 1
    tolerable_failures: int = 1000
    max_span_records: int | None = None
    first_window: int | None = None
    slow_storage_span: float = 0.0
    records: int = 10
    """Of each split."""
    batch_rows: int = 3
    output_room: int = 2
    """Batches in an output queue at which the subtask waits."""
    input_room: int = 2
    """Batches on the way to, and queued at, a receiver."""
    crashes: int = 2
    crash_moments: tuple[str, ...] = ()
    """Crash at one of these moments ("snapshot", "durable", "complete", "commit"); empty: these or any step."""
    storm: int = 1500
    """Steps after which nothing goes wrong any more, so that the run has to end."""
    lost: float = 0.0
    """Share of triggers and notifications that get lost."""
    storage_failures: float = 0.0
    """Share of writes that fail."""
    storage_seconds: float = 0.2
    """Mean of what a write takes."""
    deletion_seconds: float = 0.1
    keep_parallelism: float = 0.5
    """Share of restarts without rescaling."""
    most_parallelism: int = 3
    slow: tuple[str, ...] = ()
    """How the names of actors begin that are slow during the storm."""
    markers_lost: float = 0.0
    """Chance that the output system has forgotten its markers at a restart."""
    faults: frozenset[str] = field(default=frozenset())
    """Rules to break on purpose (see `test_rules`)."""

    @property
    def checkpoints(self) -> CheckpointConfig:
        return CheckpointConfig(
            "/checkpoints",
            interval=self.interval,
            timeout=self.timeout,
            min_pause=self.min_pause,
            max_concurrent=self.max_concurrent,
            slow_storage_span=self.slow_storage_span,
            tolerable_failures=self.tolerable_failures,
            retained=self.retained,
        )


_SLOW: tuple[tuple[str, ...], ...] = (
    (),
    (),
    (),
    ("commit",),
    ("work sink",),
    ("work sink", "work keyed", "work map"),
    ("send",),
    ("arrive",),
    ("announce",),
    ("mail",),
    ("report",),
    ("storage",),
)


def random_options(rng: random.Random) -> Options:
    timeout = rng.choice([0.05, 0.3, 1.0])
    impatient = rng.random() < 0.3
    alignments: tuple[Alignment, ...] = rng.choice(
        [(0.0,), (0.0,), (0.0,), (None,), (timeout,), (timeout,), (0.0, None), (0.0, timeout, None)]
    )
    gates = random.Random(rng.random())
    return Options(
        exactly_once=rng.random() < 0.9,
        alignments=alignments,
        savepoint_alignment=rng.choice([None, timeout, 0.0]),
        savepoints=rng.random() < 0.3,
        interval=rng.choice([0.1, 0.2, 0.5, 1.0]),
        min_pause=rng.choice([0.0, 0.0, 0.2]),
        timeout=60.0 if impatient else rng.choice([6.0, 15.0, 60.0]),
        max_concurrent=rng.choice([1, 2, 3, 3]),
        retained=rng.choice([1, 2]),
        tolerable_failures=2 if impatient else 1000,
        max_span_records=rng.choice([None, None, 3, 8]),
        first_window=gates.choice([None, 1, 2, 5]),
        slow_storage_span=gates.choice([0.0, 0.0, 3.0]),
        records=rng.randint(5, 12),
        batch_rows=rng.randint(1, 4),
        output_room=rng.randint(1, 4),
        input_room=rng.randint(1, 4),
        crashes=rng.choice([0, 2, 3, 4, 6]),
        storm=rng.choice([600, 1200, 2000]),
        lost=rng.choice([0.0, 0.0, 0.1, 0.4]),
        storage_failures=rng.choice([0.0, 0.0, 0.05]),
        storage_seconds=rng.choice([0.01, 0.01, 0.1, 0.5]),
        deletion_seconds=rng.choice([0.02, 2.0]),
        keep_parallelism=rng.choice([0.0, 0.3, 0.5, 1.0]),
        most_parallelism=rng.choice([2, 3, 3]),
        slow=rng.choice(_SLOW),
        markers_lost=rng.choice([0.0] * 9 + [0.3]),
    )
