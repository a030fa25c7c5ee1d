"""Other parallelisms: the snapshots of all old readers are dealt among the new ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from checkpoint.counted import counted
from pipeline.testing.contracts.source.reader import ReaderUnderTest, Tape
from pipeline.testing.contracts.source.stage import Stage
from sources.source import Source

_RESCALES: Final = ((1, 2), (2, 1), (2, 3), (3, 2))


def splits_are_dealt_anew(stage: Stage) -> None:
    for old, new in _RESCALES:
        _splits_are_dealt_anew(stage, old, new)


def _splits_are_dealt_anew(stage: Stage, old: int, new: int) -> None:
    source = stage.source()
    before = _partly(stage, source, old, None, len(stage.expected) // (3 * old))
    states = _states(before)
    tapes = [run.tape for run in before]
    for run in before:
        run.close()
    after = stage.readers(source, new, states)
    stage.finish_and_close(*after, emitted=sum(len(tape.values) for tape in tapes))
    _compare(stage, f"{counted(old, 'reader')} read a part, {new} the rest", [*tapes, *(run.tape for run in after)])


def splits_are_dealt_anew_again_and_again(stage: Stage) -> None:
    """The positions of splits that a reader doesn't have must get through it."""
    source = stage.source()
    tapes: list[Tape] = []
    states: list[bytes] | None = None
    for parallelism in (2, 3, 1):
        runs = _partly(stage, source, parallelism, states, len(stage.expected) // (6 * parallelism))
        states = _states(runs)
        tapes += [run.tape for run in runs]
        for run in runs:
            run.close()
    last = stage.readers(source, 2, states)
    stage.finish_and_close(*last, emitted=sum(len(tape.values) for tape in tapes))
    _compare(stage, "2, 3 and 1 readers read parts, 2 the rest", [*tapes, *(run.tape for run in last)])


def _partly(
    stage: Stage, source: Source, parallelism: int, states: Sequence[bytes] | None, most: int
) -> list[ReaderUnderTest]:
    """Readers, some of which have emitted a little; the first one nothing."""
    runs = stage.readers(source, parallelism, states)
    for run in runs[1 if parallelism > 2 else 0 :]:
        deadline = time.monotonic() + min(stage.wait, 2.0)
        while len(run.tape.values) < most and not run.ended and time.monotonic() < deadline:
            if run.poll(3):
                run.emit(max(1, len(run.batch) // 2))
    return runs


def _states(runs: Sequence[ReaderUnderTest]) -> list[bytes]:
    return [run.snapshot(run.emitted).data for run in runs]


def _compare(stage: Stage, what: str, tapes: Sequence[Tape]) -> None:
    stage.compare(
        "rescaling-deals-splits-anew",
        what,
        "every new reader is given the snapshots of all old ones: keep positions by split, deal the splits by "
        "`subtask` and `parallelism`, and take over the position of each split that is one's own now",
        tapes,
        again=True,
    )
