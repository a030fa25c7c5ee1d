"""The tables of `weir checkpoints`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson
from rich.console import Console
from rich.table import Table

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.committables import CommittableName
from checkpoint.counted import counted
from checkpoint.elements import EdgeName
from checkpoint.storage.inspection.checkpoints import Details, StateSize, Summary, Unreadable
from checkpoint.storage.inspection.folders import JobFolder
from checkpoint.storage.inspection.verification import Verification, Verified
from checkpoint.storage.orphans import Orphan, Spared
from pipeline.cli.drawing import human_size, open_console, say, table_of, time_of
from sources.positions import positions

_ROWS: Final = 40
"""How many rows a table of files has at most; --json lists all."""
_STATE: Final = 200
"""Characters of a source's state that is not known here."""


# -- ls -----------------------------------------------------------------------------------------------------------


def print_list(jobs: Sequence[JobFolder], others: Sequence[Summary]) -> None:
    console = open_console()
    for job in jobs:
        say(console, job.uri)
        if job.checkpoints:
            console.print(_summaries(job.checkpoints))
        else:
            say(console, "  no complete checkpoint")
        for one in job.checkpoints:
            if isinstance(one, Unreadable):
                say(console, f"  {one.ref.path} can't be read: {one.problem}")
        if job.incomplete:
            refs = ", ".join(ref.path for ref in job.incomplete)
            say(console, f"  in progress, failed or half deleted: {refs}")
        for trace in job.savepoints:
            state = {True: "", False: ", which isn't there any more", None: ", which can't be reached"}[trace.there]
            stopped = "; the job was stopped with it" if trace.stopped else ""
            say(console, f"  savepoint {trace.ref.id}: {trace.uri or 'its trace is damaged'}{state}{stopped}")
        for source, at in job.starts.items():
            say(console, f"  source {source!r}: begun by the start of {time_of(at)} UTC, and in no checkpoint yet")
        if job.owner is not None:
            starting = "" if job.owner.recorded else "; it is starting, or has failed to"
            say(console, f"  newest owner: {job.owner.attempt}, {job.owner.description}{starting}")
        say(console, "")
    if others:
        console.print(_summaries(others))
        for other in others:
            say(console, f"  {other.ref.path}: {other.uri}")


def _summaries(rows: Iterable[Summary | Unreadable]) -> Table:
    table = table_of("checkpoint", "triggered (UTC)", "took>", "size>", "own>", "in flight>", "to commit>", "")
    for row in rows:
        if isinstance(row, Unreadable):
            table.add_row(row.ref.path, "?", "?", "?", "?", "?", "?", ", ".join(["damaged", *_void(row.void_by)]))
            continue
        notes = [*_void(row.void_by)]
        notes += [row.kind.value] if row.kind is not CheckpointKind.CHECKPOINT else []
        notes += ["replaying"] if row.replaying else []
        table.add_row(
            row.ref.path,
            time_of(row.trigger_time),
            f"{row.duration:.2f} s",
            human_size(row.size),
            human_size(row.own_size),
            f"{row.in_flight_rows:,}",
            "in files" if row.uncommitted is None else f"{row.uncommitted:,}",
            ", ".join(notes),
        )
    return table


def _void(void_by: int | None) -> list[str]:
    return [] if void_by is None else [f"void by owner {void_by}"]


# -- show ---------------------------------------------------------------------------------------------------------


def print_details(details: Details) -> None:
    console = open_console()
    one = details.summary
    say(console, one.uri)
    notes = [
        *_void(one.void_by),
        *(["replaying"] if one.replaying else []),
        *(["all input ended"] if one.ended else []),
    ]
    parent = details.lineage_parent
    lineage = details.lineage + (f", branched off {parent[0]} at checkpoint {parent[1]}" if parent else "")
    for name, value in (
        ("checkpoint", f"{one.ref.id} of owner {one.ref.attempt} ({', '.join([one.kind.value, *notes])})"),
        ("pipeline", f"{one.pipeline}, written by Weir {details.weir_version}"),
        ("triggered", f"{time_of(one.trigger_time)} UTC, took {one.duration:.3f} s"),
        (
            "size",
            f"{human_size(one.size)} in {counted(one.files, 'file')}; only it refers to {human_size(one.own_size)}",
        ),
        ("in flight", f"{counted(one.in_flight_rows, 'record')}, {human_size(one.in_flight_bytes)}"),
        ("lineage", lineage),
        ("parallelism", ", ".join(f"{vertex} {n}" for vertex, n in details.parallelism.items())),
        ("max parallelism", str(details.max_parallelism)),
        ("options", ", ".join(f"{name}={value}" for name, value in details.options.items()) or "none"),
        *(() if details.made_from is None else (("made from", _made_from(details.made_from)),)),
    ):
        say(console, f"  {name + ':':17}{value}")
    for table in (_state(details), _in_flight(details), _sources(details), _pending(details)):
        if table.row_count:
            say(console, "")
            console.print(table)
    for problem in details.problems:
        say(console, f"damaged: {problem}")


def _made_from(made: Mapping[str, Any]) -> str:
    base = made["base"]
    sources = [*([] if base is None else [f"{base['checkpoint']} at {base['uri']}"]), *made["tables"]]
    return f"{', '.join(sources) or 'tables'}, at {time_of(made['at'])} UTC"


def _state(details: Details) -> Table:
    table = table_of("state of", "subtask>", "inline>", "files>", "keyed>", "staged>", "total>")
    for state in details.steps:
        table.add_row(state.step, "all", *_sizes(state.total), style="bold")
        for index, size in state.subtasks.items():
            table.add_row("", str(index), *_sizes(size))
    return table


def _sizes(size: StateSize) -> list[str]:
    return [human_size(part) for part in (size.inline, size.files, size.keyed, size.staged, size.total)]


def _in_flight(details: Details) -> Table:
    table = table_of("in flight on", "records>", "size>")
    for one in details.in_flight:
        table.add_row(_edge(one.edge), f"{one.rows:,}", human_size(one.size))
    return table


def _edge(edge: EdgeName) -> str:
    return f"{edge.upstream} → {edge.downstream}" + ("" if edge.port == "0.0" else f" ({edge.port})")


def _sources(details: Details) -> Table:
    table = table_of("source", "subtask>", "split", "next>", "end>", "")
    for source in details.sources:
        found = positions(source.state)
        if found is None:
            table.add_row(source.step, str(source.subtask), _shortened(source.state), "", "", "")
        for at in found or ():
            end = "" if at.end is None else f"{at.end}"
            table.add_row(source.step, str(source.subtask), at.split, f"{at.next}", end, "ended" if at.ended else "")
    return table


def _shortened(state: Any) -> str:
    text = orjson.dumps(state, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()
    return text if len(text) <= _STATE else text[:_STATE] + "…"


def _pending(details: Details) -> Table:
    table = table_of("not known to be committed", "writer>", "committables>", "records>", "size>", "segments")
    for one in details.pending:
        rows = "?" if one.rows is None else f"{one.rows:,}"
        segments = _segments(one.segments)
        table.add_row(one.sink, str(one.writer), f"{len(one.segments):,}", rows, human_size(one.size), segments)
    return table


def _segments(names: Sequence[CommittableName]) -> str:
    """By the checkpoint behind them and their place: `12.0, 12.1`."""
    texts = [f"{name.epoch}.{name.index}" for name in names]
    return ", ".join(texts) if len(texts) <= 4 else f"{texts[0]} … {texts[-1]}"


# -- verify and gc ------------------------------------------------------------------------------------------------


def print_verification(jobs: Sequence[Verification], others: Sequence[Verified]) -> None:
    console = open_console()
    for job in jobs:
        say(console, job.uri)
        _print_verified(console, job.checkpoints)
        if job.blind:
            say(console, "Which files the unreadable checkpoints need isn't known: none counts as an orphan.")
        _print_orphans(console, job)
        say(console, "")
    _print_verified(console, others)
    checked = [*(one for job in jobs for one in job.checkpoints if one.void_by is None), *others]
    damaged = sum(bool(one.problems) for one in checked)
    orphans = sum(len(job.orphans) for job in jobs)
    verdict = (
        f"{damaged:,} of {counted(len(checked), 'checkpoint')} damaged"
        if damaged
        else f"{counted(len(checked), 'checkpoint is', 'checkpoints are')} whole"
    )
    left = f"{counted(orphans, 'file or folder belongs', 'files or folders belong')} to none"
    say(console, f"{verdict}; {left if orphans else 'nothing left over'}")


def _print_verified(console: Console, rows: Sequence[Verified]) -> None:
    if not rows:
        return
    table = table_of("checkpoint", "files>", "size>", "")
    for one in rows:
        verdict = ", ".join(["damaged" if one.problems else "whole", *_void(one.void_by)])
        table.add_row(one.ref.path if one.ref else "?", f"{one.files:,}", human_size(one.size), verdict)
    console.print(table)
    for one in rows:
        for problem in one.problems:
            say(console, f"  {problem}")


def _print_orphans(console: Console, job: Verification) -> None:
    going = [orphan for orphan in job.orphans if orphan.spared is None]
    if going:
        say(console, f"Left by older owners ({_total(going)}); weir checkpoints gc deletes it:")
        console.print(_orphans(going))
    in_use = [orphan for orphan in job.orphans if orphan.spared is Spared.IN_USE]
    if in_use:
        say(
            console,
            f"Perhaps in use by the newest owner, {job.owner} ({_total(in_use)}); once the job doesn't run, "
            "weir checkpoints gc --stopped deletes it:",
        )
        console.print(_orphans(in_use))
    kept = [orphan for orphan in job.orphans if orphan.spared in (Spared.VOID, Spared.LARGEST_ID)]
    if kept:
        say(console, f"Kept for now ({_total(kept)}):")
        console.print(_orphans(kept))


def print_collected(uri: str, deleted: Sequence[Orphan], kept: Sequence[Orphan], dry_run: bool) -> None:
    console = open_console()
    say(console, uri)
    if deleted:
        console.print(_orphans(deleted))
    what = "would be deleted" if dry_run else "deleted"
    say(console, f"{what}: {_total(deleted)}" if deleted else "nothing to delete")
    for why, n in Counter(orphan.spared for orphan in kept).items():
        hint = {
            Spared.VOID: " (--void deletes them)",
            Spared.IN_USE: " (--stopped deletes it once the job doesn't run)",
        }
        assert why is not None
        say(console, f"kept: {n}, {why.value}{hint.get(why, '')}")


def _orphans(orphans: Sequence[Orphan]) -> Table:
    table = table_of("path", "what", "size>", "")
    for orphan in orphans[:_ROWS]:
        why = orphan.spared.value if orphan.spared not in (None, Spared.IN_USE) else ""
        table.add_row(orphan.path, orphan.kind.value, human_size(orphan.size), why)
    if len(orphans) > _ROWS:
        rest = orphans[_ROWS:]
        table.add_row(f"… and {len(rest):,} more", "", human_size(sum(o.size for o in rest)), "--json lists all")
    return table


def _total(orphans: Sequence[Orphan]) -> str:
    return (
        f"{counted(len(orphans), 'file or folder', 'files or folders')}, "
        f"{human_size(sum(orphan.size for orphan in orphans))}"
    )
