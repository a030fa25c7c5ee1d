"""`weir kafka`: the embedded broker in the foreground."""

from __future__ import annotations

import time
from pathlib import Path

import click

from pipeline.cli.common import ending_cleanly, log_to_stderr


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on and to advertise.")
@click.option("--port", default=9092, show_default=True, type=click.IntRange(0, 65535), help="0 = a free one.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for data that outlives the broker. By default a temporary one.",
)
@click.option("--topic", "topics", multiple=True, metavar="NAME[:PARTITIONS]", help="Create a topic. May be repeated.")
@click.option("--set", "properties", multiple=True, metavar="NAME=VALUE", help="A broker setting. May be repeated.")
def kafka(host: str, port: int, directory: Path | None, topics: tuple[str, ...], properties: tuple[str, ...]) -> None:
    """Run one Kafka broker until Ctrl-C, and print its address on the first line.

    The first start fetches Kafka (45 MB from Maven Central).
    """
    from pipeline.broker import BrokerFailed, NativeBroker
    from pipeline.broker.jars import FetchFailed
    from pipeline.broker.java import JavaMissing
    from pipeline.broker.topics import TopicTrouble, create_topics

    log_to_stderr("INFO")
    wanted = dict(map(_topic, topics))
    with ending_cleanly():
        try:
            with NativeBroker.start(
                dict(map(_property, properties)), host=host, port=port or None, directory=directory
            ) as broker:
                create_topics(broker.bootstrap_servers, wanted, existing_ok=True)
                click.echo(broker.bootstrap_servers)
                click.echo("Ctrl-C ends the broker", err=True)
                while broker.alive:
                    time.sleep(0.2)
                raise click.ClickException(f"the broker has ended. The end of its log:\n{broker.log_tail()}")
        except (BrokerFailed, FetchFailed, JavaMissing, TopicTrouble, ValueError) as error:
            raise click.ClickException(str(error)) from error


def _topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.partition(":")
    if not name or not (partitions or "1").isdigit() or partitions == "0":
        raise click.BadParameter(f"{text!r} is not NAME or NAME:PARTITIONS", param_hint="--topic")
    return name, int(partitions or 1)


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--set")
    return name, value
