"""`weir kafka`: the embedded broker in the foreground; topics, records and looks into a cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from pipeline.cli.common import Group, ending_cleanly, log_to_stderr
from pipeline.cli.kafka_options import (
    assignment,
    bootstrap_option,
    client_options,
    client_settings,
    topic_and_partitions,
)
from pipeline.cli.kafka_topics import consume, create, produce
from pipeline.cli.kafka_topics import topics as list_topics

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.cli.kafka_transactions import HangingTransaction, OpenTransaction

_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on and to advertise.")
@click.option("--port", default=9092, show_default=True, type=click.IntRange(0, 65535), help="0 = a free one.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for data that outlives the broker. By default a temporary one.",
)
@click.option("--topic", "topics", multiple=True, metavar="NAME[:PARTITIONS]", help="Create a topic. May be repeated.")
@click.option("--set", "properties", multiple=True, metavar="NAME=VALUE", help="A broker setting. May be repeated.")
def kafka(
    ctx: click.Context,
    host: str,
    port: int,
    directory: Path | None,
    topics: tuple[str, ...],
    properties: tuple[str, ...],
) -> None:
    """Run a Kafka broker until Ctrl-C, or with a command look into a cluster.

    The first line printed is the broker's address. The first start fetches Kafka (45 MB from Maven Central). With a
    command no broker is started: that is for the cluster at its --bootstrap.
    """
    if ctx.invoked_subcommand is None:
        _serve(host, port, directory, topics, properties)
        return
    for name in ctx.params:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"options of the broker don't go with {ctx.invoked_subcommand!r}, which runs none")


def _serve(host: str, port: int, directory: Path | None, topics: tuple[str, ...], properties: tuple[str, ...]) -> None:
    from pipeline.broker import BrokerFailed, NativeBroker
    from pipeline.broker.jars import FetchFailed
    from pipeline.broker.java import JavaMissing
    from pipeline.broker.topics import TopicTrouble, create_topics

    log_to_stderr("INFO")
    wanted = dict(map(topic_and_partitions, topics))
    with ending_cleanly():
        click.echo("starting a Kafka broker…", err=True)
        try:
            with NativeBroker.start(
                dict(map(assignment, properties)), host=host, port=port or None, directory=directory
            ) as broker:
                create_topics(broker.bootstrap_servers, wanted, existing_ok=True)
                click.echo(broker.bootstrap_servers)
                kept = (
                    f"{directory} keeps its topics" if directory else "its topics go with it (--directory keeps them)"
                )
                click.echo(f"Ctrl-C ends the broker; {kept}", err=True)
                while broker.alive:
                    time.sleep(0.2)
                raise click.ClickException(f"the broker has ended. The end of its log:\n{broker.log_tail()}")
        except (BrokerFailed, FetchFailed, JavaMissing, TopicTrouble, ValueError) as error:
            raise click.ClickException(str(error)) from error


@kafka.command()
@click.argument("prefix", default="")
@client_options
@_as_json
def markers(prefix: str, bootstrap: str, config: Path | None, assignments: tuple[str, ...], as_json: bool) -> None:
    """List how far Kafka sinks have committed: the markers in groups whose names begin with PREFIX.

    A group is called <pipeline>-<sink>-<writer>, or begins with the sink's transactional_id_prefix. So is its
    transactional id.
    """
    from pipeline.cli.drawing import open_console, say, table_of
    from pipeline.cli.kafka_markers import MarkersNotListed, find_markers

    settings = client_settings(bootstrap, config, assignments)
    with ending_cleanly():
        try:
            found = find_markers(settings, prefix)
        except MarkersNotListed as error:
            raise click.ClickException(str(error)) from error
        if as_json:
            click.echo(json.dumps({"markers": [one.to_json() for one in found]}))
            return
        console = open_console()
        if not found:
            say(console, f"no marker at {bootstrap} in groups whose names begin with {prefix!r}")
            return
        table = table_of("group", "marker at", "checkpoint>", "last segment", "lineage", "committer")
        for one in found:
            told = one.to_json()
            table.add_row(
                one.group,
                f"{one.topic}-0",
                str(told["checkpoint"]),
                told["last"] or "–",
                told["lineage"],
                told["writer"],
            )
        console.print(table)


@kafka.command()
@click.argument("prefix", default="")
@bootstrap_option
@click.option(
    "--command-config",
    "config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Properties file with settings of Kafka's Java admin client.",
)
@click.option("--hanging", "topics", multiple=True, metavar="TOPIC", help="Those of a topic that nobody will end.")
@_as_json
def transactions(prefix: str, bootstrap: str, config: Path | None, topics: tuple[str, ...], as_json: bool) -> None:
    """List open transactions of transactional ids that begin with PREFIX: readers wait for them. Needs Java.

    With --hanging, which may be repeated, of all ids those that no coordinator knows, so that they stay open until
    somebody aborts them (with Kafka's kafka-transactions.sh).
    """
    import subprocess

    from pipeline.broker.jars import FetchFailed
    from pipeline.broker.java import JavaMissing
    from pipeline.cli.drawing import open_console, say
    from pipeline.cli.kafka_transactions import TransactionsNotListed, hanging_transactions, open_transactions

    with ending_cleanly():
        try:
            found = (
                hanging_transactions(bootstrap, config, topics)
                if topics
                else open_transactions(bootstrap, config, prefix)
            )
        except subprocess.TimeoutExpired as error:
            raise click.ClickException(f"{bootstrap} gave no answer within {error.timeout:.0f} s") from error
        except (TransactionsNotListed, JavaMissing, FetchFailed) as error:
            raise click.ClickException(str(error)) from error
        if as_json:
            click.echo(json.dumps({"hanging" if topics else "open": [asdict(one) for one in found]}))
        elif not found:
            say(open_console(), f"no transaction {'hangs' if topics else 'is open'} at {bootstrap}")
        else:
            open_console().print(_transactions(found))


def _transactions(found: Sequence[OpenTransaction] | Sequence[HangingTransaction]) -> Table:
    from pipeline.cli.drawing import human_time, table_of
    from pipeline.cli.kafka_transactions import OpenTransaction

    if isinstance(found[0], OpenTransaction):
        table = table_of("transactional id", "producer>", "epoch>", "state", "for>", "at most>", "partitions")
    else:
        table = table_of("topic", "partition>", "producer>", "epoch>", "from offset>", "for>")
    for one in found:
        if isinstance(one, OpenTransaction):
            cells = [one.transactional_id, one.producer_id, one.epoch, one.state, human_time(one.seconds)]
            table.add_row(*map(str, cells), human_time(one.timeout), ", ".join(one.partitions))
        else:
            cells = [one.topic, one.partition, one.producer_id, one.epoch, one.start_offset]
            table.add_row(*map(str, cells), human_time(60 * one.minutes))
    return table


for _command in (create, list_topics, produce, consume):
    kafka.add_command(_command)
