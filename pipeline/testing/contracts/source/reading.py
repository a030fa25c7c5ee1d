"""Reading from the start: by one reader, by several, in every attempt the same."""

from __future__ import annotations

from typing import Final

from checkpoint.codec import decode, encode
from checkpoint.counted import counted
from checkpoint.storage.source_starts import canonical
from pipeline.testing.contracts.common import ContractBroken, pickled_copy
from pipeline.testing.contracts.source.stage import Stage
from sources.source import Source

_FEWEST: Final = 12


def one_reader_reads_all(stage: Stage) -> None:
    """Everything else is compared with what comes here."""
    run = stage.reader(stage.source())
    stage.finish_and_close(run)
    if not stage.known:
        stage.expected = run.tape.values
    stage.compare(
        "every-record-once",
        "one reader read from the start",
        "hand over each record once; `expected` must list all that the source holds, in the form that poll returns",
        [run.tape],
    )
    if len(stage.expected) < _FEWEST:
        raise ValueError(
            f"the source has {counted(len(stage.expected), 'record')}; check_source_contract needs at least {_FEWEST}, "
            "so that there are positions to restore"
        )


def every_attempt_reads_the_same(stage: Stage) -> None:
    """Until the first checkpoint every attempt starts from nothing."""
    source = stage.source()
    for attempt in (1, 2):
        runs = stage.readers(source, 3)
        stage.finish_and_close(*runs)
        stage.compare(
            "resolve-is-stable" if attempt == 2 else "every-record-once",
            f"three readers read from the start, for the {'first' if attempt == 1 else 'second'} time",
            "deal the splits among the subtasks so that each has one reader; what depends on the moment (where "
            '"latest" is) must be fixed by resolve()',
            [run.tape for run in runs],
        )


def later_starts_read_the_same(stage: Stage) -> None:
    """A driver that dies before the first checkpoint is followed by another one, which only has what was recorded."""
    rule, definition = "resolution-is-kept", stage.factory()
    resolved = stage.resolve(definition)
    again: Source = pickled_copy(definition, "the source")[1]  # as another process has it
    kept = {name: canonical(value) for name, value in definition.start_settings().items()}
    others = {name: canonical(value) for name, value in again.start_settings().items()}
    if kept != others:
        changed = ", ".join(sorted(name for name in {*kept, *others} if kept.get(name) != others.get(name)))
        raise ContractBroken(
            rule,
            f"start_settings() differs between the definition and a copy of it: {changed}",
            "return only what says where the source begins and ends, and is the same whenever it is defined",
        )
    if resolved is not definition:
        try:
            resolution = definition.resolution(resolved)
            data = None if resolution is None else encode(resolution)
        except TypeError as error:
            raise ContractBroken(
                rule,
                f"what resolve() has settled can't be recorded: {error}",
                "implement resolution() and with_resolution(), or keep it in attributes of plain values",
            ) from error
        again = again.resolve() if data is None else again.with_resolution(decode(data))
    else:
        again = again.resolve()
    runs = stage.readers(pickled_copy(again, "the source")[1], 2)
    stage.finish_and_close(*runs)
    stage.compare(
        rule,
        "two readers read from the start, by what the resolution() of an earlier definition says",
        "let with_resolution() begin where the resolved definition did",
        [run.tape for run in runs],
    )


def nothing_to_restore_is_the_start(stage: Stage) -> None:
    """A checkpoint that is older than the source has nothing of it."""
    runs = stage.readers(stage.source(), 2, [])
    stage.finish_and_close(*runs)
    stage.compare(
        "every-record-once",
        "two readers were made with restored=[], of a checkpoint that has nothing of this source",
        "begin at the start where `ctx.restored` is empty, as where it is None",
        [run.tape for run in runs],
    )


def close_moves_nothing(stage: Stage) -> None:
    """Closing must not move anything outside: what was polled and not in a checkpoint comes again."""
    source = stage.source()
    stage.reader(source).close()
    polled = stage.reader(source)
    stage.poll_until_some(polled)
    polled.reader.pause()
    polled.close()
    run = stage.reader(source)
    stage.finish_and_close(run)
    stage.compare(
        "close-moves-nothing",
        "a reader was closed with a batch in progress and no checkpoint, and another one began",
        "let close() only release; what no checkpoint covers must be read again",
        [run.tape],
    )
