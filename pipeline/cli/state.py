"""`weir state`: what checkpoints hold, as tables; and savepoints made from tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from checkpoint.counted import counted
from pipeline.cli.checkpoints import explaining_storage
from pipeline.cli.common import Group
from pipeline.cli.operate import find_job, secret_file_option

if TYPE_CHECKING:
    from pipeline.cli.state_files import Format

TABLES: Final = ("state", "timers", "operator_state", "in_flight", "sources", "uncommitted", "checkpoints")
_step = click.option("--step", metavar="ID", help="Only of this step.")
_state = click.option("--state", metavar="NAME", help="Only of this state; of timers: event or processing.")
_format = click.option(
    "--format", "format_", type=click.Choice(["parquet", "jsonl"]), default="jsonl", show_default=True
)
_output = click.option("--output", "-o", metavar="FILE", help="A new file; without it, jsonl goes to the output.")


@click.group(cls=Group)
def state() -> None:
    """What checkpoints and running jobs hold, and savepoints made from tables.

    URI (or an absolute path) names a checkpoint or savepoint, or a job's folder, which means its newest checkpoint.
    A KEY is JSON, and a string where it is none: ann, 42, '"42"', '{"$tuple":["a",1]}'.
    """


@contextmanager
def _explaining() -> Iterator[None]:
    with explaining_storage():
        try:
            yield
        except (ValueError, TypeError) as error:
            raise click.ClickException(str(error)) from error


def _key(text: str) -> Any:
    from checkpoint.tables.json_form import from_json

    try:
        json.loads(text, parse_constant=_no_json)
    except ValueError:
        return text
    return from_json(text)


def _no_json(name: str) -> Any:
    """NaN and the infinities, which Python takes for JSON: as keys they are more likely texts."""
    raise ValueError(name)


@state.command()
@click.argument("where", metavar="URI|JOB")
@click.argument("step")
@click.argument("names", metavar="[STATE] KEY", nargs=-1, required=True)
@click.option("--entry", metavar="KEY", help="Of a map only this entry.")
@click.option("--at-checkpoint", is_flag=True, help="Of a running job: from its newest checkpoint, not live.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    help="Seconds that a running job may take.",
)
@secret_file_option
def get(
    where: str,
    step: str,
    names: tuple[str, ...],
    entry: str | None,
    at_checkpoint: bool,
    timeout: float,
    secret_file: Path | None,
) -> None:
    """Print what one key has as JSON: the value of a state, or without STATE all states and the key's timers.

    URI names a checkpoint, as everywhere. JOB is the name or the address of a job that runs: the subtask that owns the
    key answers, and which checkpoint the answer is in, or that it is live, goes to the error output.

    Exit status: 0 the key has something; 1 it has nothing, or there is no answer.
    """
    from pipeline.cli import one_key

    if len(names) > 2:
        raise click.UsageError("give STEP, STATE and KEY, or STEP and KEY")
    if entry is not None and len(names) == 1:
        raise click.UsageError("--entry needs the STATE")
    with _explaining():
        wanted = one_key.WantedKey(
            step, names[0] if len(names) == 2 else None, _key(names[-1]), () if entry is None else (_key(entry),)
        )
        if "/" in where:
            one_key.print_stored(where, wanted)
        else:
            one_key.print_live(find_job(where, secret_file), wanted, "checkpoint" if at_checkpoint else "live", timeout)


@state.command()
@click.argument("uri")
@click.argument("table", type=click.Choice(TABLES), default="state")
@_step
@_state
@click.option("--key", metavar="KEY", help="Only of this key.")
@click.option("--untyped", is_flag=True, help="Keys and values as JSON, also where all are of one type.")
@_format
@_output
def export(
    uri: str,
    table: str,
    step: str | None,
    state: str | None,
    key: str | None,
    untyped: bool,
    format_: Format,
    output: str | None,
) -> None:
    """Write a table: state of keys, or what else a checkpoint holds."""
    from checkpoint.tables.point import Wanted
    from pipeline.cli.state_files import save
    from pipeline.state_tables import table as open_table
    from pipeline.state_tables import wanted

    with _explaining():
        rows = Wanted(step, state) if key is None else wanted(step, state, _key(key))
        # Lines of JSON need no types, so nothing has to be read twice.
        found = open_table(uri, table, rows, typed=not untyped and format_ == "parquet")
        n = save(found.schema, found.batches(), format_, output)
        if output is not None:
            click.echo(f"{counted(n, 'row')} in {output}")


@state.command()
@click.argument("before")
@click.argument("after")
@_step
@click.option("--state", metavar="NAME", help="Only of this state.")
@_format
@_output
def diff(before: str, after: str, step: str | None, state: str | None, format_: Format, output: str | None) -> None:
    """Write what differs in the state of two checkpoints: a row for each value added, removed or changed.

    Exit status: 0 whether they differ or not; 1 one can't be read.
    """
    from pipeline.cli.state_files import save
    from pipeline.state_tables import diff_tables

    with _explaining():
        found = diff_tables(before, after, step=step, state=state)
        n = save(found.schema, found.to_batches(), format_, output)
        if output is not None:
            click.echo(f"{counted(n, 'row')} in {output}")


@state.command()
@click.argument("target")
@click.option("--base", metavar="URI", help="The checkpoint or savepoint to take all else from.")
@click.option("--new", metavar="PIPELINE", help="Instead of --base: a savepoint for this pipeline, of the files alone.")
@click.option("--max-parallelism", type=int, help="With --new: that of the pipeline.")
@click.option("--parallelism", type=int, default=1, show_default=True, help="With --new: files a step.")
@click.option("--replace", multiple=True, metavar="FILE", help="States that are to have these rows and no others.")
@click.option("--put", multiple=True, metavar="FILE", help="Rows to add, or to put in place of those there.")
@click.option("--delete", multiple=True, metavar="FILE", help="Keys to delete with all that they have.")
@click.option("--delete-key", multiple=True, metavar="KEY", help="One such key.")
@click.option("--step", metavar="ID", help="Where a file doesn't say it; else only its rows of this step.")
@click.option("--state", metavar="NAME", help="As --step; of timers: event or processing.")
def write(
    target: str,
    base: str | None,
    new: str | None,
    max_parallelism: int | None,
    parallelism: int,
    replace: Sequence[str],
    put: Sequence[str],
    delete: Sequence[str],
    delete_key: Sequence[str],
    step: str | None,
    state: str | None,
) -> None:
    """Write a new savepoint to the folder TARGET, which is empty or not there yet.

    It is made from --base, which stays as it is, or from nothing (--new); and from files: Parquet, folders of it, or
    lines of JSON as weir state export writes them. First states are replaced, then rows put, then keys deleted.
    """
    from pipeline.cli.state_files import load
    from pipeline.state_tables import NewPipeline, write_savepoint

    if (base is None) == (new is None):
        raise click.UsageError("give either --base URI or --new PIPELINE")
    if new is not None and max_parallelism is None:
        raise click.UsageError("--new needs --max-parallelism, that of the pipeline")
    if base is not None and max_parallelism is not None:
        raise click.UsageError("--max-parallelism is that of --base")
    with _explaining():
        written = write_savepoint(
            target,
            base=base if base is not None else NewPipeline(new or "", max_parallelism or 0, parallelism),
            replace=map(load, replace),
            put=map(load, put),
            delete=map(load, delete),
            delete_keys=[_key(one) for one in delete_key],
            step=step,
            state=state,
            made_from=[*replace, *put, *delete],
        )
        click.echo(written.uri)
        for name in sorted({*written.put, *written.removed}):
            click.echo(
                f"  {name.step} {name.state}: {counted(written.removed[name], 'row')} removed, {written.put[name]:,} "
                f"put, {written.rows[name]:,} now"
            )
        if not (written.put or written.removed):
            click.echo("  no row was changed")
        if written.in_flight_removed:
            click.echo(f"  {counted(written.in_flight_removed, 'record')} in flight of deleted keys removed")
        if written.in_flight:
            click.echo(
                f"  {counted(written.in_flight, 'record')} in flight stay as they were; a restore processes them"
            )
