"""What `weir status` prints."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.table import Table

from checkpoint.counted import counted
from pipeline.cli.drawing import human_size, human_time, open_console, rate_of, say, share_of, table_of, time_of
from pipeline.runtime.driver.status import event_time_status, gate_status, hot_key_status
from pipeline.runtime.driver.status.waits import Wait, by_what, names

_HOT_KEYS: Final = 3
"""That are shown."""
_PHASES: Final = ("cancel", "wait", "start", "restore", "catch_up")


def print_jobs(jobs: Sequence[dict[str, Any]]) -> None:
    """
    Args:
        jobs: statuses, or name, address and `trouble` of those that don't answer.
    """
    console = open_console()
    if not jobs:
        say(console, "no job of this user runs on this host")
        return
    table = table_of("job", "address", "pid>", "status", "for>", "restarts>", "last checkpoint")
    for job in jobs:
        if "trouble" in job:
            table.add_row(job["name"], job["address"], str(job["pid"]), "no answer", "", "", "")
            continue
        completed = [row for row in job["checkpoints"] if row["status"] == "completed"]
        table.add_row(
            job["name"],
            job["address"],
            str(job["pid"]),
            job["status"],
            human_time(job["uptime"]),
            str(job["restarts"]),
            _last(completed[-1]) if completed else "none yet",
        )
    console.print(table)
    for job in jobs:
        if "trouble" in job:
            say(console, f"{job['name']}: {job['trouble']}")


def _last(row: dict[str, Any]) -> str:
    return f"{row['id']} at {time_of(row['trigger_time'])}"


def print_status(job: dict[str, Any]) -> None:
    console = open_console()
    for name, value in facts(job):
        say(console, f"{name + ':':13}{value}")
    for table in (_vertices(job), _checkpoints(job), _recoveries(job)):
        if table.row_count:
            say(console, "")
            console.print(table)
    for row in job["checkpoints"]:
        if row["failure"] is not None:
            say(console, f"checkpoint {row['id']} failed: {row['failure']}")


def facts(job: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What is said of a job line by line: what about, and what."""
    since = job["running_for"]
    state = job["status"]
    if since is not None and state == "running":
        state += f" for {human_time(since)}"
    elif job["start"] and since is None:
        phase, seconds = list(job["start"].items())[-1]
        state += f", starting: {phase} for {human_time(seconds)}"
    if job.get("rescaling"):
        state += f", rescaling {job['rescaling']}"
    completed, failed = job["checkpoints_completed"], job["checkpoints_failed"]
    yield from (
        ("job", f"{job['name']} at {job['address']}, process {job['pid']} on {job['host']}"),
        ("status", state),
        ("started", f"{time_of(job['started'])} UTC, {human_time(job['uptime'])} ago"),
        *([("encrypted", "yes" if job["encrypted"] else "no")] if "encrypted" in job else []),
        ("restarts", str(job["restarts"])),
        *(("rescaled", _rescaled(one)) for one in job.get("rescales", ())[-1:]),
        ("checkpoints", f"{completed} completed, {failed} failed since the start"),
    )
    for what, waits in by_what(Wait(**wait) for wait in job["waits"]).items():
        since = waits[0].since
        lasts = human_time(max(0.0, time.time() - since))
        yield "waits for", f"{what}, for {lasts}, since {time_of(since)} UTC: {names(waits)}"
    for row in job.get("event_time", ()):  # a job that began with an older version has none
        yield "event time", f"{row['vertex']}: {event_time_status.sentence(row)}"
    for row in job.get("gates", ()):
        yield "gate", f"{row['vertex']}: {gate_status.sentence(row)}"
    for row in job.get("hot_keys", ())[:_HOT_KEYS]:
        yield "hot key", hot_key_status.sentence(row)
    for text in job.get("advice", ()):
        yield "parallelism", text
    if autoscale := job.get("autoscale"):
        yield "autoscale", f"{autoscale['least']} to {autoscale['most']}: it {autoscale['state']}"
        for one in autoscale["refused"]:
            yield "autoscale", f"{one['what']} is advised and not done: {one['why']}"
        for one in [each for each in autoscale["newest"] if each["outcome"] != "refused"][-1:]:
            yield "autoscale", f"{one['outcome']} {one['what']}, at {time_of(one['at'])} UTC: {one['why']}"
    for name, sums in job["vertices"].items():
        if sums.get("recordsFailed"):
            last = "; ".join(sums["lastFailures"])
            yield "left out", f"{name}: {counted(sums['recordsFailed'], 'failed record')}, the last of {last}"
    for one in job.get("diagnosis", ()):
        if one["severity"] == "trouble" and one["about"] not in ("waits", "records"):  # those are shown above
            yield "trouble", f"{one['text']}"
    sending = job.get("otel")
    if sending is not None and sending["failing_since"] is not None:
        yield "metrics", f"don't get to {sending['to']} since {time_of(sending['failing_since'])} UTC: {sending['why']}"
    if job["failure"] is not None:
        yield "failure", f"{job['failure']}"


def _rescaled(one: dict[str, Any]) -> str:
    return f"{one['what']}, at {time_of(one['at'])} UTC, in {human_time(one['seconds'])}"


def _vertices(job: dict[str, Any]) -> Table:
    columns = ("records in>", "out>", "in/s>", "out/s>", "lag>", "busy>", "queued>", "gate>", "pending>")
    table = table_of("in this attempt", "×>", *columns)
    for name, sums in job["vertices"].items():
        table.add_row(
            name,
            f"{sums['subtasks']}",
            f"{sums['recordsIn']:,.0f}",
            f"{sums['recordsOut']:,.0f}",
            rate_of(sums["recordsInPerSecond"]),
            rate_of(sums["recordsOutPerSecond"]),
            "" if sums["recordsLag"] is None else f"{sums['recordsLag']:,.0f}",
            share_of(sums["busyMsPerSecond"]),
            human_size(round(sums["inFlightBytes"])),
            human_time(sums["sourceGateClosedMs"] / 1000) if sums["sourceGateClosedMs"] else "",
            f"{sums['pendingCommits']:.0f}" if sums["pendingCommits"] else "",
        )
    return table


def _checkpoints(job: dict[str, Any]) -> Table:
    table = table_of("checkpoint>", "triggered (UTC)", "kind", "status", "took>", "size>", "in flight>")
    for row in job["checkpoints"]:
        table.add_row(
            str(row["id"]),
            time_of(row["trigger_time"]),
            row["kind"],
            row["status"].replace("_", " "),
            human_time(row["duration"]),
            human_size(row["size"]),
            f"{row['in_flight_records']:,}",
        )
    return table


def _recoveries(job: dict[str, Any]) -> Table:
    table = table_of("restart>", *(f"{phase.replace('_', ' ')}>" for phase in _PHASES), "in all>")
    for number, phases in enumerate(job["recoveries"], 1):
        times = [phases[phase] for phase in _PHASES]
        known = [time for time in times if time is not None]
        table.add_row(str(number), *map(human_time, times), human_time(sum(known)) if len(known) == len(times) else "–")
    return table
