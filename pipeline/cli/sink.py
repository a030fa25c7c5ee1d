"""`weir sink`: output that is staged and can't be committed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from checkpoint.counted import counted
from pipeline.cli.common import Group, ending_cleanly, log_to_stderr
from pipeline.cli.options import overriding_options, pipeline_options

if TYPE_CHECKING:
    from pipeline.cli.sink_staged import Staged
    from sinks.kafka.skip import StagedRecord

_SEGMENT: Final = re.compile(r"(\d+)/(\d+)")


@click.group(cls=Group)
def sink() -> None:
    """Output of a stopped job that is staged, and cannot be committed.

    FILE[:NAME] is the job's script, as for `weir run`; SINK the sink's id.
    """


@contextmanager
def _explaining() -> Iterator[None]:
    from checkpoint.errors import PermanentFailure
    from checkpoint.storage.errors import StorageError
    from pipeline.errors import PipelineError
    from sinks.kafka.errors import KafkaSinkError

    log_to_stderr("ERROR")
    with ending_cleanly():
        try:
            yield
        except (StorageError, PipelineError, PermanentFailure, KafkaSinkError) as error:
            raise click.ClickException(str(error)) from error


def _find(target: str, sink_id: str, assignments: tuple[str, ...], config: Path | None) -> Staged:
    from pipeline.cli.script import find_pipeline
    from pipeline.cli.sink_staged import find_staged

    with overriding_options(None, assignments, config):
        pipeline = find_pipeline(target)
    return find_staged(pipeline, sink_id)


@sink.command()
@pipeline_options
@click.argument("sink_id", metavar="SINK")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table; sizes in bytes.")
def show(target: str, sink_id: str, assignments: tuple[str, ...], config: Path | None, as_json: bool) -> None:
    """List what the newest checkpoint holds of a Kafka sink's output and is not committed. Changes nothing."""
    from pipeline.cli.drawing import human_size, open_console, say, table_of

    with _explaining():
        staged = _find(target, sink_id, assignments, config)
        rows = [
            (writer, f"{one.name.epoch}/{one.name.index}", int(one.payload["rows"]), int(one.payload["bytes"]))
            for writer in staged.writers
            for one in staged.waiting(writer)
        ]
        if as_json:
            segments = [dict(zip(("writer", "segment", "rows", "bytes"), row, strict=True)) for row in rows]
            click.echo(json.dumps({"checkpoint": staged.checkpoint, "uri": staged.uri, "segments": segments}))
            return
        console = open_console()
        say(console, f"{staged.uri} holds of sink {sink_id!r}, not committed: {len(rows) or 'nothing'}")
        if rows:
            table = table_of("writer>", "segment", "rows>", "size>")
            for writer, name, count, size in rows:
                table.add_row(str(writer), name, f"{count:,}", human_size(size))
            console.print(table)


@sink.command()
@pipeline_options
@click.argument("sink_id", metavar="SINK")
@click.option(
    "--writer",
    "--owner",
    "writer",
    required=True,
    type=click.IntRange(min=0),
    help="Which of the sink's writers has the segment.",
)
@click.option("--segment", required=True, metavar="CHECKPOINT/PLACE", help="Which segment has the records.")
@click.option(
    "--row", "rows", required=True, multiple=True, type=click.IntRange(min=0), help="A record's number in it, from 0."
)
@click.option(
    "--save",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="New file that gets the records, as JSON lines; keys and values in base64.",
)
@click.option("--yes", is_flag=True, help="Do it. Otherwise it only shows what it would do.")
def skip(
    target: str,
    sink_id: str,
    writer: int,
    segment: str,
    rows: tuple[int, ...],
    save: Path,
    yes: bool,
    assignments: tuple[str, ...],
    config: Path | None,
) -> None:
    """Leave records that Kafka refuses out of a stopped job's output, and save them in a file.

    All that waits up to the segment is committed, but for these records; of other writers what is of older epochs. The
    next start goes on behind it. A driver of the job that runs elsewhere is fenced.
    """
    from checkpoint.committables import CommittableName

    match = _SEGMENT.fullmatch(segment)
    if match is None:
        raise click.BadParameter(f"{segment!r} is no segment such as 12/0", param_hint="--segment")
    name = CommittableName(int(match[1]), int(match[2]))
    with _explaining():
        staged = _find(target, sink_id, assignments, config)
        records = staged.records(writer, name, set(rows))
        if not yes:
            _print_records(records)
            if save.exists():
                raise click.ClickException(f"{save} exists; name a new file for the records to be saved in")
            count = sum(map(len, staged.upto(writer, name).values()))
            click.echo(
                f"would save these records in {save} and commit {counted(count, 'segment')}, up to and with {segment} "
                f"of writer {writer}, without them. Nothing was changed; add --yes to do it"
            )
            return
        done = staged.skip(writer, name, set(rows), save)
        click.echo(
            f"{counted(len(records), 'record is', 'records are')} in {save}, and {counted(done, 'segment')}, up to and "
            f"with {segment} of writer {writer}, are committed without them. Start the job again",
            err=True,
        )


def _print_records(records: Sequence[StagedRecord]) -> None:
    from pipeline.cli.drawing import open_console, table_of, time_of
    from sinks.kafka.errors import shorten

    table = table_of("row>", "topic", "partition>", "timestamp (UTC)", "key", "value")
    for one in records:
        table.add_row(
            str(one.row),
            one.topic,
            "by key" if one.partition is None else str(one.partition),
            "of sending" if one.timestamp is None else time_of(one.timestamp / 1000),
            shorten(one.key),
            shorten(one.value),
        )
    open_console().print(table)
