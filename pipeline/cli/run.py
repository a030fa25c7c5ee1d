"""`weir run`: run the pipeline of a script."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from checkpoint.counted import counted
from pipeline.cli.common import INTERRUPTED, ending_cleanly, in_options, log_to_stderr, tell, told_errors
from pipeline.cli.options import overriding_options, start_options

if TYPE_CHECKING:
    from pipeline.handle import JobHandle


@click.command()
@start_options
@click.option(
    "--master",
    metavar="URL",
    help="Where Spark runs, as in spark://host:7077.  [default: in this process, with a slot for each subtask]",
)
@click.option(
    "--autoscale",
    metavar="LEAST:MOST",
    help="Have the job rescaled by itself, as in 1:8 subtasks of each step that doesn't set its own.  [default: the "
    "pipeline's autoscale, else never]",
)
@click.option("--take-over", is_flag=True, help="End the driver that runs this job now, and go on here.")
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="How long the last checkpoint and its commit may take after Ctrl-C or SIGTERM.  [default: the pipeline's "
    "stop_grace, 30]",
)
@click.option(
    "--http",
    metavar="ADDRESS",
    help="Where the job's web server listens, as in 127.0.0.1:8080, with metrics, health and REST.  [default: nowhere]",
)
@click.option(
    "--otel/--no-otel",
    default=None,
    help="Send all metrics by OpenTelemetry's protocol (OTLP over HTTP), to where OTEL_EXPORTER_OTLP_ENDPOINT says.  "
    "[default: no]",
)
@click.option(
    "--encrypt/--no-encrypt",
    default=None,
    help="Encrypt what the job's processes say to each other and to commands, by TLS.  [default: the pipeline's, no]",
)
@click.option("--rewind", is_flag=True, help="Accept that output beyond the checkpoint is visible, and make it again.")
@click.option("-q", "--quiet", is_flag=True, help="Log warnings and errors only.  [WEIR_LOG_LEVEL sets any level]")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="How this process and the workers log; json: one object a line.  [default: WEIR_LOG_FORMAT, else text]",
)
def run(
    target: str,
    restore: str,
    parallelism: int | None,
    assignments: tuple[str, ...],
    config: Path | None,
    claim: bool | None,
    rewind: bool,
    allow_unclaimed: bool,
    ignore_in_flight: int | None,
    quiet: bool,
    grace: float | None,
    autoscale: str | None,
    http: str | None,
    otel: bool | None,
    encrypt: bool | None,
    take_over: bool,
    master: str | None,
    log_format: str | None,
) -> None:
    """Run the Pipeline in FILE: that called NAME, or the only one.

    The script's folder comes last on the module path. Ctrl-C or SIGTERM stops the job behind a last checkpoint, with
    its output committed; a second one cancels it. Exit status: 0 the job has finished or was stopped, 1 it failed, 2
    wrong usage, 130 or 143 cancelled by Ctrl-C or SIGTERM, 130 cancelled by others.
    """
    from pipeline.cli.script import find_pipeline
    from pipeline.errors import PipelineError
    from pipeline.runtime.driver.signals import signals

    if log_format is not None:
        os.environ["WEIR_LOG_FORMAT"] = log_format  # for the workers, too
    log_to_stderr("WARNING" if quiet else "INFO")
    own: dict[str, tuple[object, str]] = {}
    for name, value, option in (
        ("stop_grace", grace, "--grace"),
        ("http", http, "--http"),
        ("otel", otel, "--otel"),
        ("encrypt", encrypt, "--encrypt"),
    ):
        if value is not None:
            own[name] = (value, option)
    if autoscale is not None:
        least, colon, most = autoscale.partition(":")
        if not colon:
            raise click.UsageError(f"--autoscale {autoscale}: write LEAST:MOST, as in 1:8")
        for name, text in (("autoscale.least", least), ("autoscale.most", most)):
            own[name] = (int(text) if text.isdecimal() else text, "--autoscale")
    with told_errors(), ending_cleanly(jobs_first=True), signals.waiting():
        with overriding_options(parallelism, assignments, config, own):
            pipeline = find_pipeline(target)
        try:
            handle = pipeline.start(
                restore,
                claim=claim,
                rewind=rewind,
                allow_unclaimed=allow_unclaimed,
                ignore_in_flight=ignore_in_flight,
                take_over=take_over,
                spark=master,
            )
        except PipelineError as error:
            raise click.ClickException(in_options(str(error))) from error
        _follow(handle, pipeline.name)


def _follow(handle: JobHandle, name: str) -> None:
    """Wait for the job's end."""
    from pipeline.errors import Interrupted, JobCancelled, JobFailed

    try:
        handle.wait()
    except Interrupted as interrupted:
        tell("job '%s' was cancelled", name)
        raise SystemExit(interrupted.code) from None
    except JobCancelled:
        tell("job '%s' was cancelled", name)
        raise SystemExit(INTERRUPTED) from None
    except JobFailed as error:
        raise click.ClickException(f"job {name!r} failed: {in_options(str(error))}") from error
    except BaseException:
        tell("cancelling…")
        handle.cancel()
        if handle.checkpoints():
            tell("the next run goes on from the newest checkpoint")
        raise
    completed = counted(sum(row.status == "completed" for row in handle.checkpoints()), "checkpoint")
    records = f"{handle.records_in:,} in, {handle.records_out:,} out"
    if handle.restarts:
        records += " since the last restart"
    tell("job '%s' finished: %s; %s, %s", name, records, completed, counted(handle.restarts, "restart"))
