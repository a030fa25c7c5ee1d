"""Checkpoint options, with the meaning that Apache Flink gives them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import PurePath
from typing import Final, Literal
from urllib.parse import urlparse

from checkpoint.options import named_options

Seconds = float | int | timedelta

SAVEPOINT_ALIGNMENT: Final = 1.0
"""Seconds after which a savepoint of a job with aligned checkpoints turns unaligned."""


def seconds(value: Seconds, name: str, minimum: float = 0.0) -> float:
    """`value` (seconds or `timedelta`) as seconds.

    Raises:
        ValueError: it is no duration, or below `minimum`; the message names the option.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be seconds or a timedelta, not {value!r}")
    if not value >= minimum:
        raise ValueError(f"{name} must be at least {minimum:g} s, not {value:g}")
    return float(value)


@named_options
@dataclass(frozen=True)
class CheckpointConfig:
    """Where, how often and how checkpoints are taken. Durations are seconds or `timedelta`.

    Raises:
        ValueError: an option has a value that it can't have; the message says which it may have.
    """

    uri: str
    """Root folder, as a URI (`file:///var/lib/weir`) or an absolute path, which may be a `Path`."""
    interval: Seconds = 10.0
    """Time from one trigger to the next."""
    timeout: Seconds = 600.0
    """A checkpoint that takes longer expires."""
    min_pause: Seconds = 0.0
    """Least time from the end of a checkpoint, successful or not, to the next trigger."""
    max_concurrent: int = 1
    slow_storage_span: Seconds = 60.0
    """How long a source may read on since its last barrier while barriers pass in time and only the storage holds the
    next checkpoint back: what a crash then makes it read again grows by as much. 0: no longer than otherwise."""
    tolerable_failures: int = 0
    """How many checkpoints may fail in a row before the job fails."""
    alignment: Literal["aligned", "unaligned"] | Seconds = "unaligned"
    """`"unaligned"`: barriers overtake the data in flight, which becomes part of the checkpoint. `"aligned"`: they wait
    behind it. A duration: they wait until the checkpoint has been under way for so long, and overtake then."""
    mode: Literal["exactly_once", "at_least_once"] = "exactly_once"
    """`"at_least_once"`: no channel waits for another's barrier and none overtakes data; after a failure some records
    are processed twice."""
    retained: int = 1
    """How many completed checkpoints are kept."""
    retain_on_cancel: bool = True
    state_backend: Literal["heap"] = "heap"
    compression: Literal["lz4", "zstd", "none"] = "lz4"
    local_recovery: bool = False
    """Keep a second copy of each subtask's state in a folder of its executor's own, and restore from that."""
    on_damaged: Literal["fail", "previous"] = "fail"

    def __post_init__(self) -> None:
        if isinstance(self.uri, PurePath):
            object.__setattr__(self, "uri", str(self.uri))
        scheme = urlparse(self.uri).scheme if isinstance(self.uri, str) else ""
        if not isinstance(self.uri, str) or not (scheme or self.uri.startswith("/")):
            raise ValueError(
                "the checkpoint folder must be a URI such as file:///var/lib/weir or an absolute path, "
                f"not {self.uri!r}"
            )
        for name, least in (("interval", 0.01), ("timeout", 0.01), ("min_pause", 0.0), ("slow_storage_span", 0.0)):
            object.__setattr__(self, name, seconds(getattr(self, name), name, least))
            if getattr(self, name) == math.inf and name in ("interval", "min_pause"):
                raise ValueError(f"{name} must be a finite number of seconds")
        for name, least in (("max_concurrent", 1), ("tolerable_failures", 0), ("retained", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
        for name, allowed in (
            ("mode", ("exactly_once", "at_least_once")),
            ("state_backend", ("heap",)),
            ("compression", ("lz4", "zstd", "none")),
            ("on_damaged", ("fail", "previous")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")
        self._check_alignment()
        for field in fields(self):
            if field.type == "bool" and not isinstance(getattr(self, field.name), bool):
                raise ValueError(f"{field.name} must be True or False, not {getattr(self, field.name)!r}")

    def _check_alignment(self) -> None:
        if isinstance(self.alignment, str):
            if self.alignment not in ("aligned", "unaligned"):
                raise ValueError(
                    'alignment must be "unaligned", "aligned" or a number of seconds after which an aligned checkpoint '
                    f"turns unaligned, not {self.alignment!r}"
                )
            return
        timeout = seconds(self.alignment, "alignment")
        if timeout == math.inf:
            raise ValueError('alignment must be a finite number of seconds; use "aligned" to align always')
        object.__setattr__(self, "alignment", timeout)

    @property
    def alignment_timeout_s(self) -> float | None:
        """Seconds until an aligned checkpoint turns unaligned: 0 = unaligned from the start, `None` = never."""
        if self.mode == "at_least_once" or self.alignment == "aligned":
            return None
        return 0.0 if self.alignment == "unaligned" else float(self.alignment)  # type: ignore[arg-type]

    @property
    def savepoint_alignment_timeout_s(self) -> float | None:
        """The same for savepoints: as the job's checkpoints. But one that aligned always would take as long as the
        slowest operator needs for all that is queued."""
        if self.mode == "exactly_once" and self.alignment_timeout_s is None:
            return SAVEPOINT_ALIGNMENT
        return self.alignment_timeout_s

    @property
    def interval_s(self) -> float:
        return float(self.interval)  # type: ignore[arg-type]  # normalised above

    @property
    def timeout_s(self) -> float:
        return float(self.timeout)  # type: ignore[arg-type]

    @property
    def min_pause_s(self) -> float:
        return float(self.min_pause)  # type: ignore[arg-type]

    @property
    def slow_storage_span_s(self) -> float:
        return float(self.slow_storage_span)  # type: ignore[arg-type]
