"""`weir run`: run the pipeline of a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pipeline.cli.common import ending_cleanly, log_to_stderr

if TYPE_CHECKING:
    from pipeline.handle import JobHandle


@click.command()
@click.argument("target", metavar="FILE[:NAME]")
@click.option(
    "--restore",
    default="latest",
    show_default=True,
    metavar="latest|none|URI",
    help="Where to begin: the newest retained checkpoint if there is one, nothing, or the checkpoint in that folder.",
)
@click.option("--parallelism", type=click.IntRange(min=1), help="Subtasks of each step that doesn't set its own.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Replace an option of the pipeline's, as in checkpoints.interval=5. May be repeated.",
)
@click.option("--rewind", is_flag=True, help="Accept that output beyond the checkpoint is visible, and make it again.")
@click.option("--allow-unclaimed", is_flag=True, help="Drop state of the checkpoint that no step declares any more.")
@click.option(
    "--ignore-in-flight",
    type=click.IntRange(min=1),
    metavar="CHECKPOINT",
    help="Lose the records that were in flight in the checkpoint with this id, which is to be restored.",
)
def run(
    target: str,
    restore: str,
    parallelism: int | None,
    assignments: tuple[str, ...],
    rewind: bool,
    allow_unclaimed: bool,
    ignore_in_flight: int | None,
) -> None:
    """Run the Pipeline in FILE: that called NAME, or the only one.

    The script's folder comes last on the module path. Ctrl-C cancels the job and leaves its last checkpoint. Exit
    status: 0 the job has finished, 1 it failed, 2 wrong usage, 130 cancelled by Ctrl-C.
    """
    from pipeline import settings
    from pipeline.cli.script import find_pipeline
    from pipeline.errors import PipelineError

    log_to_stderr("WARNING")
    if parallelism is not None:
        assignments = (*assignments, f"parallelism={parallelism}")
    with ending_cleanly():
        try:
            given = settings.parse(assignments)
        except PipelineError as error:
            raise click.UsageError(str(error)) from error
        with settings.overriding(given):
            pipeline = find_pipeline(target)
        try:
            handle = pipeline.start(
                restore, rewind=rewind, allow_unclaimed=allow_unclaimed, ignore_in_flight=ignore_in_flight
            )
        except PipelineError as error:
            raise click.ClickException(str(error)) from error
        click.echo(f"job {pipeline.name!r} started", err=True)
        _follow(handle, pipeline.name)


def _follow(handle: JobHandle, name: str) -> None:
    """Wait for the job's end; cancel it if this process is told to end."""
    from pipeline.errors import JobFailed

    try:
        handle.wait()
    except JobFailed as error:
        raise click.ClickException(f"job {name!r} failed: {error}") from error
    except BaseException:
        click.echo("cancelling…", err=True)
        handle.cancel()
        if handle.checkpoints():
            click.echo("the next run goes on from the newest checkpoint", err=True)
        raise
    completed = sum(row.status == "completed" for row in handle.checkpoints())
    click.echo(f"job {name!r} finished: {completed} checkpoints, {handle.restarts} restarts", err=True)
