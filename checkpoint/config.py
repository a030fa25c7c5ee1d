"""Checkpoint options, with the meaning that Apache Flink gives them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, Literal
from urllib.parse import urlparse

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.options import Seconds, flag, named_options, one_of, seconds, whole_number
from checkpoint.state_backends import StateBackend, checked_state_backend

LONGEST_ALIGNMENT: Final = 1.0
"""Seconds after which a savepoint of a job with aligned checkpoints becomes unaligned, and the last checkpoint of a job
that is stopped with unaligned ones."""


@named_options
@dataclass(frozen=True)
class CheckpointConfig:
    """Where, how often and how checkpoints are taken. Durations are seconds or `timedelta`.

    Args:
        uri: root folder, as a URI (`file:///var/lib/weir`) or an absolute path, which may be a `Path`. Each job has a
            folder of its name in it. All hosts that run the job must reach it by this name.
        interval: time from one trigger to the next, at least 0.01 s. Sinks that commit with checkpoints show their
            output about so often, and a crash repeats about so much work. Default: 10 s.
        first: when the first checkpoint of a start or a restart is triggered. `"output"` (the default): a tenth of a
            second after a sink that commits with checkpoints has its first record, or one interval after all subtasks
            run, whichever comes first. `"interval"`: one interval after all subtasks run.
        timeout: a checkpoint that is not complete so long after its trigger is given up: it has *expired*, which counts
            as a failure (see `tolerable_failures`). Default: 600 s.
        min_pause: least time from the end of a checkpoint, successful or not, to the next trigger: what is left to the
            job between two checkpoints that take long. Savepoints don't wait for it. Default: 0 s, no pause.
        max_concurrent: most checkpoints that may be in progress at once, savepoints not counted. With more than 1 a new
            one is triggered though the storage still writes the one before, so that slow storage holds back neither
            barriers nor sources. Default: 1, the next one waits until the one before has ended.
        slow_storage_span: how long a source may read on since its last barrier while barriers pass in time and only the
            storage holds the next checkpoint back. What a crash then makes it read again grows by as much. 0: no longer
            than otherwise. Default: 60 s.
        tolerable_failures: how many checkpoints may fail in a row before the job fails and restarts. Default: 0, the
            first failure does it.
        alignment: `"unaligned"` (the default): barriers overtake the data in flight, which becomes part of the
            checkpoint. `"aligned"`: they wait behind it. A duration: they wait until the checkpoint has been under way
            for so long, and overtake then.
        mode: `"at_least_once"`: no channel waits for another's barrier and none overtakes data; after a failure some
            records are processed twice, and event time may be ahead of them, so that they are late. By default state
            holds the effect of each record exactly once.
        retained: how many completed checkpoints are kept; older ones are deleted. Savepoints are not counted, and are
            kept. Default: 1, the newest.
        retain_on_cancel: whether the checkpoints of a job stay when it is cancelled (`handle.cancel()`, a second
            Ctrl-C), so that a later start can go on from there. `False`: they are deleted, unless they hold output that
            is not committed yet. A job that fails, finishes or is stopped keeps them in any case. Default: `True`.
        state_backend: where keyed state is while the job runs. `"heap"` (the default): in the memory of each subtask's
            process. `"rocksdb"`: on a disk of its executor, for state that is larger than memory; `RocksDb(memory=…)`
            is the same with options, which may be given as a dict, too. Checkpoints and savepoints of one are restored
            by the other. A step can have another one (`state_backend` of `process`).
        incremental: a checkpoint writes what has changed in keyed state since the one before, and refers to that one's
            files for the rest; they are merged beside the job, so that a restore reads at most about twice the size of
            the oldest file. Savepoints are whole in any case. Default: `False`, each checkpoint writes all state.
        compression: how the files of checkpoints are compressed. `"zstd"` makes them smaller than `"lz4"` (the
            default), and takes more time.
        inline_bytes: a subtask's keyed state, or what was in flight, that is no larger is kept in `_metadata` and not
            in a file of its own, which would take longer to sync than to write. Of many subtasks each has less, so that
            all of them together have 1 MiB of either. Savepoints have files. 0: checkpoints, too. Default: 131,072
            bytes.
        local_recovery: keep a second copy of each subtask's state in a folder of its executor's own, and restore from
            that where it is there. It takes the room twice. Default: `False`.
        on_damaged: what a start or restart does when the newest checkpoint is damaged, so that it can't be read.
            `"fail"` (the default): it fails, and says what is damaged. `"previous"`: it restores, with a warning, the
            newest one that can be read of those that are `retained`.

    Raises:
        ValueError: an option has a value that it can't have; the message says which it may have.
    """

    uri: str
    interval: Seconds = 10.0
    first: Literal["output", "interval"] = "output"
    timeout: Seconds = 600.0
    min_pause: Seconds = 0.0
    max_concurrent: int = 1
    slow_storage_span: Seconds = 60.0
    tolerable_failures: int = 0
    alignment: Literal["aligned", "unaligned"] | Seconds = "unaligned"
    mode: Literal["exactly_once", "at_least_once"] = "exactly_once"
    retained: int = 1
    retain_on_cancel: bool = True
    state_backend: StateBackend = "heap"
    incremental: bool = False
    compression: Literal["lz4", "zstd", "none"] = "lz4"
    inline_bytes: int = 128 * 1024
    local_recovery: bool = False
    on_damaged: Literal["fail", "previous"] = "fail"

    def __post_init__(self) -> None:
        if isinstance(self.uri, PurePath):
            object.__setattr__(self, "uri", str(self.uri))
        scheme = urlparse(self.uri).scheme if isinstance(self.uri, str) else ""
        if not isinstance(self.uri, str) or not (scheme or self.uri.startswith("/")):
            raise ValueError(
                "uri, the checkpoint folder, must be a URI such as file:///var/lib/weir or an absolute path, "
                f"not {self.uri!r}"
            )
        for name, least in (("interval", 0.01), ("timeout", 0.01), ("min_pause", 0.0), ("slow_storage_span", 0.0)):
            finite = name in ("interval", "min_pause")
            object.__setattr__(self, name, seconds(getattr(self, name), name, least, finite=finite))
        for name, fewest in (("max_concurrent", 1), ("tolerable_failures", 0), ("retained", 1)):
            whole_number(getattr(self, name), name, fewest)
        one_of(self.first, "first", ("output", "interval"))
        one_of(self.mode, "mode", ("exactly_once", "at_least_once"))
        object.__setattr__(self, "state_backend", checked_state_backend(self.state_backend))
        one_of(self.compression, "compression", ("lz4", "zstd", "none"))
        whole_number(self.inline_bytes, "inline_bytes", 0, unit="bytes")
        one_of(self.on_damaged, "on_damaged", ("fail", "previous"))
        self._check_alignment()
        flag(self.retain_on_cancel, "retain_on_cancel")
        flag(self.local_recovery, "local_recovery")
        flag(self.incremental, "incremental")

    def _check_alignment(self) -> None:
        if isinstance(self.alignment, str):
            if self.alignment not in ("aligned", "unaligned"):
                raise ValueError(
                    'alignment must be "unaligned", "aligned" or a number of seconds after which an aligned checkpoint '
                    f"becomes unaligned, not {self.alignment!r}"
                )
            return
        object.__setattr__(self, "alignment", seconds(self.alignment, "alignment"))
        if self.alignment == math.inf:
            raise ValueError('alignment must be a finite number of seconds; use "aligned" to align always')

    @property
    def alignment_timeout_s(self) -> float | None:
        """Seconds until an aligned checkpoint becomes unaligned: 0 = unaligned from the start, `None` = never."""
        if self.mode == "at_least_once" or self.alignment == "aligned":
            return None
        return 0.0 if self.alignment == "unaligned" else float(self.alignment)  # type: ignore[arg-type]

    def alignment_timeout_of(
        self, kind: CheckpointKind, *, stops: bool = False, unaligned: bool = False
    ) -> float | None:
        """The same for a checkpoint of this kind.

        A savepoint that aligned always would take as long as the slowest operator needs for all that is queued. The
        last one of a job that `stops` gives what is in flight that long to come out at the other end: sources emit
        nothing behind it. What is left then is part of the checkpoint.

        Args:
            unaligned: it is to overtake what is in flight from the start, unless records may come twice anyway.
        """
        timeout = self.alignment_timeout_s
        if self.mode == "at_least_once":
            return None
        if unaligned:
            return 0.0
        if timeout is None:
            return LONGEST_ALIGNMENT if kind is CheckpointKind.SAVEPOINT else None
        return max(timeout, LONGEST_ALIGNMENT) if stops else timeout

    @property
    def interval_s(self) -> float | None:
        """`None`: there are only final checkpoints, and those that users and sources ask for."""
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


class WithoutInterval(CheckpointConfig):
    """The options of a job that has none: only the checkpoint at its end, in a folder of its own, is taken unasked."""

    @property
    def interval_s(self) -> None:
        return None
