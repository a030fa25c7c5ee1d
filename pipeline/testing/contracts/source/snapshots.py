"""Snapshots: a restore of each gives exactly the rest; taking, completing and aborting them moves nothing."""

from __future__ import annotations

import time
from typing import Final

from checkpoint.counted import counted
from pipeline.testing.contracts.common import ContractBroken, wire
from pipeline.testing.contracts.source.pausing import poll_paused
from pipeline.testing.contracts.source.reader import MOST, Position
from pipeline.testing.contracts.source.stage import Stage

_ADVICE: Final = (
    "let snapshot(checkpoint_id, emitted) return where to read on after the first `emitted` records of the batch last "
    "polled, and create_reader begin there; a poll that returns None or END begins an empty batch"
)


def restore_gives_the_rest(stage: Stage) -> None:
    """Each position in some batches, then a restore of each: exactly the rest."""
    source = stage.source()
    positions: list[Position] = []
    run = stage.reader(source)
    positions.append(run.snapshot())
    batches = 0
    deadline = time.monotonic() + stage.wait
    while not run.ended and len(run.tape.values) < len(stage.expected) and time.monotonic() < deadline:
        if run.poll(MOST if batches else 3):
            deadline = time.monotonic() + stage.wait
            batches += 1
            size = len(run.batch)
            cuts = sorted({0, 1, size // 2, size}) if batches <= 2 else [size // 2]
            positions += [run.snapshot(emitted) for emitted in cuts]
            run.emit_all()
    stage.finish(run)
    positions.append(run.snapshot())
    run.close()
    stage.compare(
        "snapshot-changes-nothing",
        "snapshots were taken while one reader read",
        "let snapshot only tell the position; the reader goes on behind the batch it has polled",
        [run.tape],
    )
    middle = positions[8:-1]
    chosen = positions[:8] + middle[:: max(1, len(middle) // 3)] + positions[-1:]
    for position in chosen:
        again = stage.reader(source, states=[position.data])
        stage.finish_and_close(again, emitted=len(position.emitted))
        stage.compare(
            "restore-gives-the-rest",
            f"snapshot after {position.what}, then a restore of it that read "
            f"{counted(len(again.tape.values), 'record')}",
            _ADVICE,
            [run.tape.prefix(len(position.emitted)), again.tape],
            again=True,
        )


def snapshots_stay_as_they_are(stage: Stage) -> None:
    run = stage.reader(stage.source())
    taken = [run.snapshot()]
    while len(run.tape.values) < len(stage.expected) // 2 and stage.poll_until_some(run):
        taken.append(run.snapshot(len(run.batch) // 2))
        run.emit_all()
    stage.finish_and_close(run)
    for position in taken:
        if wire(position.state, "snapshot-stays-as-it-is", "a snapshot, later") != position.data:
            raise ContractBroken(
                "snapshot-stays-as-it-is",
                f"what snapshot returned (after {position.what}) was changed by later calls",
                "return a copy: the checkpoint is written while the reader goes on",
            )


def empty_batches_begin_behind_all_before(stage: Stage) -> None:
    """A poll that returns nothing has emitted everything in front of it: `emitted` is 0 from then on."""
    source = stage.source()
    run = stage.reader(source)
    stage.poll_until_some(run)
    run.reader.pause()
    poll_paused(run)
    position = run.snapshot()
    before = run.tape.prefix(len(run.tape.values))
    run.close()
    again = stage.reader(source, states=[position.data])
    stage.finish_and_close(again, emitted=len(position.emitted))
    stage.compare(
        "restore-gives-the-rest",
        "snapshot(…, emitted=0) after a poll that returned None (the reader was paused), then a restore of it",
        _ADVICE,
        [before, again.tape],
        again=True,
    )


def notifications_change_nothing(stage: Stage) -> None:
    """Completions that come late, twice, never, for unknown checkpoints; aborts."""
    source = stage.source()
    run = stage.reader(source)
    number = 0
    completed: Position | None = None
    waiting: list[tuple[int, Position]] = []
    run.reader.on_checkpoint_complete(987_654)  # of an earlier attempt
    while len(run.tape.values) < len(stage.expected) * 2 // 3 and stage.poll_until_some(run):
        position = run.snapshot(len(run.batch) // 2)
        number += 1
        if number % 3 == 2:
            run.reader.on_checkpoint_aborted(number)
        elif number % 3 == 1:
            waiting.append((number, position))
        if len(waiting) > 1:
            late, completed = waiting.pop(0)
            run.reader.on_checkpoint_complete(late)
            run.reader.on_checkpoint_complete(late)
        run.emit_all()
    for late, position in waiting:
        completed = position
        run.reader.on_checkpoint_complete(late)
    stage.finish_and_close(run)
    advice = "let on_checkpoint_complete and on_checkpoint_aborted change nothing of what is read"
    stage.compare(
        "notifications-change-nothing", "checkpoints completed late, twice, or were aborted", advice, [run.tape]
    )
    if completed is not None:
        length = len(completed.emitted)
        again = stage.reader(source, states=[completed.data])
        stage.finish_and_close(again, emitted=length)
        stage.compare(
            "notifications-change-nothing",
            f"restore of a checkpoint that was completed (after {completed.what})",
            "release only what lies in front of the position that the completed checkpoint holds",
            [run.tape.prefix(length), again.tape],
            again=True,
        )
