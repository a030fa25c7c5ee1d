"""Reading from the start: by one reader, by several, in every attempt the same."""

from __future__ import annotations

from typing import Final

from pipeline.testing.contracts.source.stage import Stage

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
            f"the source has {len(stage.expected)} records; check_source_contract needs at least {_FEWEST}, so that "
            "there are positions to restore"
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
        "a reader was closed with a batch in hand and no checkpoint, and another one began",
        "let close() only release; what no checkpoint covers must be read again",
        [run.tape],
    )
