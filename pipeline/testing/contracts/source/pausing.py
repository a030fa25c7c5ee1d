"""The gate: between `pause` and `resume` nothing comes, and nothing is lost by it."""

from __future__ import annotations

import time

from pipeline.testing.contracts.common import ContractBroken
from pipeline.testing.contracts.source.reader import ReaderUnderTest
from pipeline.testing.contracts.source.stage import IDLE_POLLS, SLOW_S, Stage


def poll_paused(run: ReaderUnderTest) -> None:
    fastest = float("inf")
    for _ in range(IDLE_POLLS):
        started = time.monotonic()
        if run.poll(1, 0.0) or run.ended:
            raise ContractBroken(
                "pause-holds",
                f"{run.name} returned {'END' if run.ended else 'records'} from a poll between pause() and resume()",
                "return None from poll while the gate is closed: what is emitted then lies behind a barrier that "
                "should have come first",
            )
        fastest = min(fastest, time.monotonic() - started)
    if fastest > SLOW_S:
        raise ContractBroken(
            "poll-returns-in-time",
            f"each of {IDLE_POLLS} polls with a timeout of 0 s took the paused {run.name} {fastest:.1f} s",
            "wait for at most `timeout` seconds",
        )


def pause_loses_nothing(stage: Stage) -> None:
    run = stage.reader(stage.source())
    for _ in range(3):
        # The gate may close while a batch is in progress.
        if not stage.poll_until_some(run):
            break
        run.snapshot(len(run.batch) // 2)
        if len(run.tape.values) + len(run.batch) >= len(stage.expected):
            break
        run.reader.pause()
        poll_paused(run)
        run.reader.resume()
    stage.finish_and_close(run)
    stage.compare(
        "pause-loses-nothing",
        "a reader was paused and resumed between batches",
        "let resume() go on exactly behind the batch last polled",
        [run.tape],
    )
