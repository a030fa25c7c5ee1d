"""`weir plan`: what a start would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.cli.common import ending_cleanly, in_options, log_to_stderr
from pipeline.cli.options import overriding_options, start_options

if TYPE_CHECKING:
    from pipeline.preview import Preview, RestoredView


@click.command()
@start_options
@click.option("--offline", is_flag=True, help="Ask no brokers whether topics exist and which output is committed.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables; sizes in bytes.")
def plan(
    target: str,
    restore: str,
    parallelism: int | None,
    assignments: tuple[str, ...],
    config: Path | None,
    claim: bool | None,
    allow_unclaimed: bool,
    ignore_in_flight: int | None,
    offline: bool,
    as_json: bool,
) -> None:
    """Show the graph of the Pipeline in FILE, and what a start would restore, drop or refuse. Changes nothing.

    Takes the options of `weir run`. Exit status: 0 it would start, 1 it would not, 2 wrong usage. Only running can tell
    whether Spark has the slots, and whether visible output is ahead of the checkpoint.
    """
    from pipeline.cli import checkpoint_json
    from pipeline.cli.script import find_pipeline
    from pipeline.errors import PipelineError
    from pipeline.preview import preview

    log_to_stderr("WARNING")
    with ending_cleanly():
        with overriding_options(parallelism, assignments, config):
            pipeline = find_pipeline(target)
        try:
            found = preview(
                pipeline,
                restore,
                claim=claim,
                allow_unclaimed=allow_unclaimed,
                ignore_in_flight=ignore_in_flight,
                offline=offline,
            )
        except PipelineError as error:
            raise click.ClickException(in_options(str(error))) from error
        if as_json:
            click.echo(checkpoint_json.dump(found))
        else:
            _print(found)
        if found.refusals:
            raise SystemExit(1)


def _print(found: Preview) -> None:
    from pipeline.cli.drawing import human_size, open_console, say, table_of
    from pipeline.runtime.topology_changes import describe

    console = open_console()
    folder = found.checkpoints or "none: only one at the end of all input"
    for name, value in (
        ("pipeline", f"{found.pipeline}, max parallelism {found.max_parallelism}"),
        ("slots", f"{found.slots}, one for each subtask"),
        ("checkpoints", folder),
        ("restores", "nothing" if found.restored is None else _restored(found.restored)),
    ):
        say(console, f"{name + ':':13}{value}")
    say(console, "")
    graph = table_of("subtasks>", "step", "kind", "reads")
    for vertex in found.vertices:
        for i, step in enumerate(vertex.steps):
            id = step.id if step.named else f"{step.id} *"
            graph.add_row("" if i else str(vertex.parallelism), id, step.kind, "; ".join(step.reads))
    console.print(graph)
    kept = table_of("state of", "is kept")
    for step in (one for vertex in found.vertices for one in vertex.steps):
        for i, what in enumerate(step.keeps):
            kept.add_row("" if i else step.id, what)
    state = table_of("state of", "kind", "size>", "subtasks", "")
    for one in found.state:
        before, now = one.old_parallelism, one.parallelism
        subtasks = f"{'–' if before is None else before} → {'–' if now is None else now}"
        kinds = list(one.parts.items()) or [("", 0)]
        for i, (part, size) in enumerate(kinds):
            shown = human_size(size) if part else ""
            state.add_row(*(("", part, shown, "", "") if i else (one.step, part, shown, subtasks, one.fate)))
    in_flight = table_of("records in flight", "records>", "")
    for edge in found.in_flight:
        in_flight.add_row(describe(edge.edge), f"{edge.records:,}", edge.fate)
    fate = "committed at the start" if found.claims_output else "left to who prepared it, or dropped"
    uncommitted = table_of("output not known to be committed", "parts>", "")
    for sink, parts in found.uncommitted.items():
        uncommitted.add_row(sink, f"{parts:,}", fate)
    for table in (kept, state, in_flight, uncommitted):
        if table.row_count:
            say(console, "")
            console.print(table)
    if found.migrations:
        say(console, "")
        for migration in found.migrations:
            say(console, migration)
    if found.replays:
        say(console, "")
        nothing = "" if found.in_flight else ", which is nothing"
        say(console, f"Sources wait until what was in flight has been replayed{nothing}, since")
        for reason in found.replays:
            say(console, f"  {reason}")
    for warning in found.warnings:
        say(console, f"\nwarning: {warning}")
    how = "with --take-over, or once the job that runs has been stopped" if found.runs else ""
    say(console, "\nIt would not start:" if found.refusals else f"\nIt would start{how and ' '}{how}.")
    for refusal in found.refusals:
        say(console, f"  {in_options(refusal)}")


def _restored(one: RestoredView) -> str:
    from checkpoint.checkpoint_kind import CheckpointKind
    from pipeline.cli.drawing import time_of

    what = f"{CheckpointKind(one.kind).noun} {one.id} of {one.pipeline!r}"
    return f"{one.uri} ({what}, triggered {time_of(one.trigger_time)} UTC)"
