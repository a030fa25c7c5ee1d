"""`weir checkpoints`: what is in checkpoint folders, whether it is whole, and what may go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from pipeline.cli.common import Group, ending_cleanly, log_to_stderr

if TYPE_CHECKING:
    from checkpoint.storage.orphans import Orphan
    from checkpoint.storage.storage import CheckpointStorage

_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables; sizes in bytes.")


@click.group(cls=Group)
def checkpoints() -> None:
    """What is in checkpoint folders.

    URI (or an absolute path) names a job's folder, which is CheckpointConfig's URI followed by the pipeline's name, or
    the folder above it, or one checkpoint's folder chk-<number>-<attempt>, or a savepoint.
    """


@contextmanager
def explaining_storage() -> Iterator[None]:
    """Runs a command's body; what the checkpoint storage can't do is said, and ends the command."""
    from checkpoint.storage.errors import StorageError
    from checkpoint.storage.fencing import Fenced

    log_to_stderr("WARNING")
    with ending_cleanly():
        try:
            yield
        except (StorageError, Fenced) as error:
            raise click.ClickException(str(error)) from error


@checkpoints.command()
@click.argument("uri")
@_as_json
def ls(uri: str, as_json: bool) -> None:
    """List checkpoints and savepoints: kind, time, size, what is in flight and not yet committed."""
    from checkpoint.storage.inspection.folders import describe_job, look_at, summarise
    from pipeline.cli import checkpoint_json, checkpoint_tables

    with explaining_storage():
        folder = look_at(uri)
        jobs = [describe_job(job) for job in folder.jobs]
        others = [summarise(one) for one in ([folder.single] if folder.single else folder.savepoints)]
        if as_json:
            click.echo(checkpoint_json.dump({"jobs": jobs, "others": others}))
        else:
            checkpoint_tables.print_list(jobs, others)


@checkpoints.command()
@click.argument("uri")
@_as_json
def show(uri: str, as_json: bool) -> None:
    """Show one checkpoint: state of every step, records in flight on every edge, positions, what isn't committed.

    Of a job's folder it shows the newest checkpoint.
    """
    from checkpoint.storage.inspection.folders import describe, the_one
    from pipeline.cli import checkpoint_json, checkpoint_tables

    with explaining_storage():
        details = describe(the_one(uri))
        if as_json:
            click.echo(checkpoint_json.dump_details(details))
        else:
            checkpoint_tables.print_details(details)


@checkpoints.command()
@click.argument("uri")
@click.option("--quick", is_flag=True, help="Compare sizes only, and read nothing but metadata.")
@_as_json
def verify(uri: str, quick: bool, as_json: bool) -> None:
    """Check every file of every checkpoint, and find what belongs to none.

    Exit status: 0 all checkpoints are whole, whatever else lies there; 1 one is damaged, or the folder can't be read.
    """
    from checkpoint.storage.inspection.folders import look_at
    from checkpoint.storage.inspection.verification import verify_job, verify_single
    from pipeline.cli import checkpoint_json, checkpoint_tables

    with explaining_storage():
        folder = look_at(uri)
        jobs = [verify_job(job, quick) for job in folder.jobs]
        others = [verify_single(one, quick) for one in ([folder.single] if folder.single else folder.savepoints)]
        damaged = any(job.damaged for job in jobs) or any(one.problems for one in others)
        if as_json:
            click.echo(checkpoint_json.dump({"damaged": damaged, "quick": quick, "jobs": jobs, "others": others}))
        else:
            checkpoint_tables.print_verification(jobs, others)
        if damaged:
            raise SystemExit(1)


@checkpoints.command()
@click.argument("uri")
@click.option("--dry-run", is_flag=True, help="Only list what would be deleted.")
@click.option(
    "--stopped",
    is_flag=True,
    help="The job doesn't run: what its last run left goes, too. A driver that runs after all is fenced, and stops.",
)
@click.option("--void", is_flag=True, help="Checkpoints that were given up for an older restore go, too.")
@_as_json
def gc(uri: str, dry_run: bool, stopped: bool, void: bool, as_json: bool) -> None:
    """Delete what crashed runs have left and nobody refers to. Safe while the job runs."""
    from checkpoint.storage.inspection.folders import look_at

    with explaining_storage():
        folder = look_at(uri)
        if not folder.jobs:
            raise click.ClickException(
                f"{uri} is no job's folder; gc cleans these. Checkpoints in it are deleted whole"
            )
        if stopped and len(folder.jobs) > 1:
            there = "\n  ".join(job.uri_of() for job in folder.jobs)
            raise click.ClickException(f"--stopped stops a job that runs, so name one job's folder:\n  {there}")
        results = []
        try:
            for job in folder.jobs:
                found: list[Orphan] = []
                results.append((job, found))
                _collect(job, found, dry_run, stopped, void)
        finally:
            _report(results, dry_run, as_json)


def _collect(job: CheckpointStorage, found: list[Orphan], dry_run: bool, stopped: bool, void: bool) -> None:
    from checkpoint.storage.fencing import Fenced
    from checkpoint.storage.sweep import collect

    if stopped and not job.owners():
        raise click.ClickException(
            f"{job.location}: no job has ever run in this folder, so there is none to be stopped"
        )
    try:
        found.extend(collect(job, stopped=stopped, void=void, dry_run=dry_run))
    except Fenced as error:
        raise click.ClickException(
            f"the job has a new owner meanwhile, so gc has stopped; run it again. {error}"
        ) from error


def _report(results: list[tuple[CheckpointStorage, list[Orphan]]], dry_run: bool, as_json: bool) -> None:
    from pipeline.cli import checkpoint_json, checkpoint_tables

    rows: list[dict[str, Any]] = [
        {
            "uri": job.uri_of(),
            "deleted": [orphan for orphan in found if orphan.spared is None],
            "kept": [orphan for orphan in found if orphan.spared is not None],
        }
        for job, found in results
    ]
    if as_json:
        click.echo(checkpoint_json.dump({"dry_run": dry_run, "jobs": rows}))
        return
    for row in rows:
        checkpoint_tables.print_collected(row["uri"], row["deleted"], row["kept"], dry_run)
