"""`weir deadletters`: what lies in a topic for dead letters, of sources and of steps alike, and sending it again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from checkpoint.counted import counted
from pipeline.cli.common import Group, ending_cleanly
from pipeline.cli.kafka_options import client_options, client_settings

if TYPE_CHECKING:
    from pipeline.cli.letters_client import FoundMessage

_step = click.option("--step", help="Only those of this step, or of this source.")
_error = click.option("--error", metavar="CLASS", help="Only those of this exception, with or without its module.")
_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")


@contextmanager
def _explaining() -> Iterator[None]:
    from pipeline.cli.kafka_client import KafkaTrouble
    from pipeline.cli.replay_mark import MarkTrouble

    with ending_cleanly():
        try:
            yield
        except (KafkaTrouble, MarkTrouble) as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=Group)
def deadletters() -> None:
    """Look into a topic for dead letters, and send what lies there through its job again."""


@deadletters.command(name="list")
@click.argument("topic")
@client_options
@_as_json
def list_letters(topic: str, bootstrap: str, config: Path | None, assignments: tuple[str, ...], as_json: bool) -> None:
    """Count the letters in TOPIC by step and exception, and how many were replayed."""
    from pipeline.cli.drawing import open_console, say, table_of
    from pipeline.cli.letters_client import Letters

    counts: Counter[tuple[str, str]] = Counter()
    replayed: Counter[tuple[str, str]] = Counter()
    last: dict[tuple[str, str], str] = {}
    others = 0
    with _explaining():
        for found in Letters(client_settings(bootstrap, config, assignments), topic).all():
            if found.letter is None:
                others += 1
                continue
            kind = (found.letter.step, found.letter.error)
            counts[kind] += 1
            replayed[kind] += found.replayed
            last[kind] = found.letter.told.get("weir.error.reason", "")
    rows: list[dict[str, Any]] = [
        {"step": step, "error": error, "letters": count, "replayed": replayed[step, error], "last": last[step, error]}
        for (step, error), count in sorted(counts.items())
    ]
    if as_json:
        click.echo(json.dumps({"letters": rows, "others": others}))
        return
    console = open_console()
    table = table_of("step", "error", "letters>", "replayed>", "the last one says")
    for row in rows:
        table.add_row(row["step"], row["error"], f"{row['letters']:,}", f"{row['replayed']:,}", row["last"])
    if rows:
        console.print(table)
    else:
        say(console, f"no dead letter in {topic}")
    if others:
        say(
            console,
            f"{topic} has {counted(others, 'message that is no dead letter', 'messages that are no dead letters')}",
        )


@deadletters.command()
@click.argument("topic")
@_step
@_error
@click.option("--limit", type=click.IntRange(min=1), default=10, show_default=True, help="So many at most.")
@client_options
def show(
    topic: str,
    step: str | None,
    error: str | None,
    limit: int,
    bootstrap: str,
    config: Path | None,
    assignments: tuple[str, ...],
) -> None:
    """Print letters of TOPIC, the oldest first, each as one line of JSON: the record, and what is told of it."""
    from pipeline.cli.letters_client import Filters, Letters

    filters, left = Filters(step, error), limit
    with _explaining():
        for found in Letters(client_settings(bootstrap, config, assignments), topic).all():
            if filters.take(found.letter):
                click.echo(json.dumps(_shown(found), ensure_ascii=False))
                left -= 1
                if not left:
                    return


def _shown(found: FoundMessage) -> dict[str, Any]:
    from pipeline.cli.kafka_records import to_line

    assert found.letter is not None
    message, letter = found.message, found.letter
    record = json.loads(
        to_line(
            message.topic() or "",
            found.partition,
            found.offset,
            message.timestamp()[1],
            message.key(),
            message.value(),
            list(letter.headers),
        )
    )
    return {**record, "replayed": found.replayed, "told": dict(letter.told)}


@deadletters.command()
@click.argument("topic")
@_step
@_error
@click.option("--to", metavar="TOPIC", help="Send them there, instead of to the topic that each record was in.")
@click.option("--limit", type=click.IntRange(min=1), help="So many at most.")
@click.option("--dry-run", is_flag=True, help="Only say what would be sent.")
@client_options
def replay(
    topic: str,
    step: str | None,
    error: str | None,
    to: str | None,
    limit: int | None,
    dry_run: bool,
    bootstrap: str,
    config: Path | None,
    assignments: tuple[str, ...],
) -> None:
    """Send letters of TOPIC again as the records that they were: key, value, headers and timestamp as in their topic.

    What was sent is noted as offsets of the group weir-deadletters-TOPIC, in the same transaction: a second replay
    sends only what the first has not. Everything that reads the records' topic gets them again.
    """
    from pipeline.cli.letters_client import Filters, Letters

    reasons: Counter[str] = Counter()
    with _explaining():
        sent = Letters(client_settings(bootstrap, config, assignments), topic).replay(
            Filters(step, error), to, limit, dry_run, lambda found, why: reasons.update([why])
        )
    for name, count in sorted(sent.items()):
        click.echo(f"{counted(count, 'record')} {'would be ' if dry_run else ''}sent to {name}")
    if not sent:
        click.echo("nothing to be sent")
    for why, count in reasons.items():
        click.echo(f"{count:,} left: {why}", err=True)
