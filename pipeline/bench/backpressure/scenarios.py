"""Sources that are too fast, idle or uneven, operators and storage that are slow for a while: each without a gate, with
one by time, and with one that learns."""

from __future__ import annotations

from typing import Any, Final

from pipeline.bench.backpressure.load import Change
from pipeline.bench.backpressure.variants import (
    HEALTHY_RATE,
    LARGE,
    OPERATORS_RATE,
    PARALLELISM,
    SOURCE_RATE,
    Experiment,
    Interruption,
    Settings,
    Variant,
)

FULL_RATE: Final = 1_000_000.0
"""Records/s: more than any machine gives, so that the source reads its backlog as fast as it can."""
BURST_RATE: Final = 60_000.0
"""Less than most machines give: a speed that can be told to be reached again."""
TRICKLE_RATE: Final = 100.0
VARYING_RATE: Final = 5_000.0
"""Records/s of sources whose operators are slow at times…"""
QUICK_DELAY: Final = 0.0002
"""…and what these sleep a record at other times: enough to do somewhat more than the source gives, and not many times
as much, which would empty any queue at once."""
PAUSE_S: Final = 3_600.0
STORAGE_S: Final = 30.0
"""What slow storage takes for a checkpoint."""
_OFF: Final[dict[str, Any]] = {"gate": False, "window": False}
_BY_TIME: Final[dict[str, Any]] = {"window": False}
_PAIR: Final[dict[str, dict[str, Any]]] = {"off": _OFF, "window": {}}
_THREE: Final[dict[str, dict[str, Any]]] = {"off": _OFF, "gate": _BY_TIME, "window": {}}


def scenarios(
    seconds: float | None = None, interval: float | None = None, pause: float = PAUSE_S, rounds: int = 1
) -> Experiment:
    """Two checkpoints at a time, every 10 s, aligned, queues that take minutes.

    Args:
        seconds: how long each run is watched, beside pause and interruptions; what changes on the way does so in the
            same part of it.
        pause: seconds for which the source of `pause` is idle.
    """
    settings = Settings(
        interval=interval or 10.0,
        timeout=300.0,
        max_concurrent=2,
        tolerable_failures=1_000,
        seconds=seconds or 300.0,
    )
    long, short, third = seconds or 600.0, seconds or 180.0, (seconds or 360.0) / 3
    too_fast = {"rate": 3 * OPERATORS_RATE, "seconds": long}
    healthy: dict[str, Any] = {"rate": HEALTHY_RATE, "delay": 0.0}
    varying: dict[str, Any] = {"rate": VARYING_RATE, "delay": QUICK_DELAY}
    return Experiment(
        settings,
        (
            *_group("too-fast-100", _THREE, rate=SOURCE_RATE, seconds=long),
            *_group("too-fast-3", _THREE, **too_fast),
            *_group("healthy-backlog", _THREE, rate=FULL_RATE, delay=0.0),
            *_group("bursts", _THREE, rate=TRICKLE_RATE, delay=0.0, change=_bursts(settings)),
            *_group(
                "slow-down",
                _THREE,
                **varying,
                seconds=3 * third,
                change=Change(third, 2 * third, delay=_delay(VARYING_RATE / 20)),
            ),
            *_group(
                "flutter",
                _THREE,
                **varying,
                change=Change(0.0, 5.0, period=10.0, delay=_delay(VARYING_RATE / 10), returns=False),
            ),
            *_group(
                "slow-storage",
                {"off": _OFF, "gate": _BY_TIME, "window-0": {"slow_storage_span": 0.0}, "window": {}},
                **healthy,
                storage_delay=STORAGE_S,
            ),
            *_group("too-fast-3-slow-storage", _THREE, **too_fast, storage_delay=STORAGE_S),
            *_group("skewed", _THREE, **too_fast, shares=(10, 1, 1, 1)),
            *_group(
                "pause",
                _PAIR,
                rate=BURST_RATE,
                delay=0.0,
                seconds=short + pause,
                change=Change(short / 2, short / 2 + pause, rate=0.0),
            ),
            *_group("restart", _PAIR, **healthy, seconds=short, interruption=Interruption("restart", short / 2)),
            *_group("rescale", _PAIR, **healthy, seconds=short, interruption=Interruption("rescale", short / 2)),
        ),
        rounds,
    )


def _group(name: str, gates: dict[str, dict[str, Any]], **common: Any) -> list[Variant]:
    """Runs that differ in their gates only."""
    return [
        Variant(f"{name}-{gate}", buffers=LARGE, group=name, **common, **options) for gate, options in gates.items()
    ]


def _bursts(settings: Settings) -> Change:
    """10 s a minute, or a part as long of a run that is shorter."""
    period = min(60.0, settings.seconds / 2)
    return Change(period * 5 / 6, period, period, rate=BURST_RATE)


def _delay(rate: float) -> float:
    """With which the operators do `rate` records/s together."""
    return PARALLELISM / rate
