"""Whether the job runs, why it was restarted, what it waits for, and whether its metrics get to where they are sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from checkpoint.counted import counted
from checkpoint.waiting import WaitKind
from pipeline.diagnosis.sentence import Sentence, note, some, trouble
from pipeline.runtime.driver.status.job_statuses import ENDED
from pipeline.shown_times import human_time, time_of

_REPEATED: Final = 2
"""Restarts that look like one cause."""
_SETTLED: Final = 600.0
"""Seconds behind a restart after which its cause is no trouble any more."""
_LONG_PHASE: Final = 30.0
"""Seconds."""
_LONG_WAIT: Final = 5.0
"""Seconds that a wait may last and is nothing unusual."""

_ADVICE: Final = {
    WaitKind.BROKERS: " Do they run, and do the workers reach them? The job goes on by itself once they answer.",
    WaitKind.CREDENTIALS: " Correct the user, the password or the certificate in config=, and start the job again.",
    WaitKind.SLOTS: " Lower the parallelism, or give the cluster more cores.",
    WaitKind.PROCESSES: " Does another job of the Spark session hold the slots? The executors' logs may say more.",
    WaitKind.SUBTASK: "",
    WaitKind.EVENT_TIME: "",
    WaitKind.REQUESTS: " The service that it asks is away, or slow.",
    WaitKind.RATE: "",
    WaitKind.OTHER: "",
}
"""What to do, where the words of the wait don't say it."""


def sentences(status: Mapping[str, Any], now: float) -> Iterator[Sentence]:
    yield from _state(status)
    yield from _restarts(status)
    yield from _waits(status, now)
    yield from _metrics(status)


def _state(status: Mapping[str, Any]) -> Iterator[Sentence]:
    state = status["status"]
    if state == "failed":
        yield trouble("job", f"The job has failed: {_cause(status)}{_left_out(status)}")
    elif state in ENDED:
        yield note("job", f"The job is {state}.")
    elif state == "restarting" and status["running_for"] is not None:
        yield note(
            "job", "The job has failed and is about to be restarted."
        )  # what it has told is of the attempt before
    elif state != "running" or status["running_for"] is None:
        phase, seconds = next(reversed(status["start"].items()), ("the first checks", 0.0))
        text = f"The job does not run yet: {phase} has taken {human_time(seconds)} so far."
        yield (trouble if seconds > _LONG_PHASE else note)("job", text)


def _restarts(status: Mapping[str, Any]) -> Iterator[Sentence]:
    restarts = status["restarts"]
    if not restarts or status["status"] in ENDED:
        return
    text = f"The job was restarted {_times(restarts)}. The newest cause: {_cause(status)}"
    causes = [one["cause"] for one in status["restart_causes"]]
    if len(causes) >= _REPEATED and len(set(causes[-_REPEATED:])) == 1:
        text += _left_out(status)
    running_for = status["running_for"] if status["status"] == "running" else None
    if running_for is None or running_for < _SETTLED:
        yield trouble("job", text)
    else:
        yield note("job", f"{text}. It has run for {human_time(running_for)} since.")


def _cause(status: Mapping[str, Any]) -> str:
    what = next(iter((status["failure"] or "").strip().splitlines()), "unknown").rstrip()
    step = status["failed_step"]
    return what if step is None else f"{what}, in step {step!r}"


def _left_out(status: Mapping[str, Any]) -> str:
    """What to do about a record that a step fails on each time."""
    step = status["failed_step"]
    if step is None:  # a process that is gone, a broker
        return ""
    return (
        f". If it is one record each time: on_error=DeadLetter(topic) or Skip on step {step!r} leaves it out, and the "
        "job goes on"
    )


def _times(number: int) -> str:
    return "once" if number == 1 else counted(number, "time")


def _waits(status: Mapping[str, Any], now: float) -> Iterator[Sentence]:
    by_what: dict[str, list[Mapping[str, Any]]] = {}
    for wait in status["waits"]:
        by_what.setdefault(wait["what"], []).append(wait)
    for what, waits in by_what.items():
        since = min(wait["since"] for wait in waits)
        who = some(sorted({wait["who"] for wait in waits}))
        lasts = max(0.0, now - since)
        kind = WaitKind(waits[0]["kind"])
        text = f"{who} {_verb(waits)} for {what}, for {human_time(lasts)}, since {time_of(since)} UTC.{_ADVICE[kind]}"
        wanted = kind is WaitKind.RATE
        definite = kind is WaitKind.CREDENTIALS
        yield (trouble if definite or (lasts > _LONG_WAIT and not wanted) else note)("waits", text)


def _verb(waits: list[Mapping[str, Any]]) -> str:
    return "waits" if len({wait["who"] for wait in waits}) == 1 else "wait"


def _metrics(status: Mapping[str, Any]) -> Iterator[Sentence]:
    sending = status.get("otel")
    if sending is not None and sending["failing_since"] is not None:
        since = time_of(sending["failing_since"])
        text = f"Its metrics don't get to {sending['to']} since {since} UTC: {sending['why']}. The job goes on without."
        yield note("job", text)
