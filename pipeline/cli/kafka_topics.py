"""`weir kafka create|topics|produce|consume`: topics, and records as lines of JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from checkpoint.counted import counted
from pipeline.cli.common import ending_cleanly
from pipeline.cli.kafka_options import assignment, client_options, client_settings, topic_and_partitions

if TYPE_CHECKING:
    from confluent_kafka import Message

    from pipeline.cli.kafka_records import Record


@contextmanager
def _explaining() -> Iterator[None]:
    from pipeline.cli.kafka_client import KafkaTrouble

    with ending_cleanly():
        try:
            yield
        except KafkaTrouble as error:
            raise click.ClickException(str(error)) from error


@click.command()
@click.argument("topics", metavar="NAME[:PARTITIONS]...", nargs=-1, required=True)
@click.option("--replication", type=click.IntRange(min=1), help="Replicas of each partition.  [default: the brokers']")
@click.option(
    "--topic-config", "options", multiple=True, metavar="NAME=VALUE", help="A topic's setting. May be repeated."
)
@click.option("--if-missing", is_flag=True, help="Take topics that exist, with as many partitions, as they are.")
@click.option("--wait", type=click.FloatRange(min=0), default=0, help="Seconds that a broker may take to come up.")
@client_options
def create(
    topics: tuple[str, ...],
    replication: int | None,
    options: tuple[str, ...],
    if_missing: bool,
    wait: float,
    bootstrap: str,
    config: Path | None,
    assignments: tuple[str, ...],
) -> None:
    """Create topics, of one partition unless it says more: weir kafka create orders:4 totals."""
    from pipeline.cli.kafka_client import ClusterClient

    wanted = dict(topic_and_partitions(topic, "NAME[:PARTITIONS]") for topic in topics)
    settings = dict(assignment(option, "--topic-config") for option in options)
    with _explaining():
        cluster = ClusterClient(client_settings(bootstrap, config, assignments))
        cluster.await_broker(wait)
        for name, new in cluster.create(wanted, replication, settings, if_missing).items():
            number = counted(wanted[name], "partition")
            click.echo(f"{name}: {'created with' if new else 'is there, with'} {number}", err=True)


@click.command()
@click.argument("prefix", default="")
@client_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def topics(prefix: str, bootstrap: str, config: Path | None, assignments: tuple[str, ...], as_json: bool) -> None:
    """List the topics whose names begin with PREFIX."""
    from pipeline.cli.drawing import open_console, say, table_of
    from pipeline.cli.kafka_client import ClusterClient

    with _explaining():
        found = ClusterClient(client_settings(bootstrap, config, assignments)).views(prefix)
        if as_json:
            click.echo(json.dumps({"topics": [asdict(one) for one in found]}))
        elif not found:
            say(open_console(), f"no topic at {bootstrap} whose name begins with {prefix!r}")
        else:
            table = table_of("topic", "partitions>", "replicas>", "records, about>")
            for one in found:
                table.add_row(one.name, str(one.partitions), str(one.replicas), f"{one.records:,}")
            open_console().print(table)


@click.command()
@click.argument("topic")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--key", metavar="FIELD", help="Take the key from this field of each value.")
@click.option("--partition", type=click.IntRange(min=0), help="Put all there.  [default: by the key]")
@click.option("--text", is_flag=True, help="Lines are text, and need not be JSON.")
@click.option("--records", is_flag=True, help="Lines are whole records, as `weir kafka consume --records` prints them.")
@client_options
def produce(
    topic: str,
    file: BinaryIO,
    key: str | None,
    partition: int | None,
    text: bool,
    records: bool,
    bootstrap: str,
    config: Path | None,
    assignments: tuple[str, ...],
) -> None:
    """Put a record into TOPIC for each line of FILE or of standard input: a value in JSON. Empty lines are left out.

    With --records a line is an object: {"key": "ada", "value": …, "headers": [["name", "text"]], "partition": 0,
    "timestamp": MS}, where key_base64, value_base64 and value_text stand for what is no JSON. All but the value may be
    left out. Bad lines are refused; the records of the lines before are in the topic then.
    """
    from pipeline.cli.kafka_client import ClusterClient
    from pipeline.cli.kafka_records import BadLine, Record, from_record, from_value

    if sum((key is not None, text, records)) > 1:
        raise click.UsageError("--key, --text and --records don't go together")
    produced = 0

    def read() -> Iterator[Record]:
        nonlocal produced
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                told = line.decode()
                if text:
                    one = Record(told.rstrip("\r\n").encode())
                else:
                    one = from_record(told) if records else from_value(told, key)
            except (BadLine, UnicodeDecodeError) as error:
                raise click.ClickException(
                    f"line {number}: {error}. Before it {counted(produced, 'record is', 'records are')} in the topic"
                ) from error
            if partition is not None:
                one = Record(one.value, one.key, one.headers, partition, one.timestamp)
            yield one
            produced += 1

    with _explaining():
        count = ClusterClient(client_settings(bootstrap, config, assignments)).produce(topic, read())
    click.echo(f"{counted(count, 'record')} produced to {topic}", err=True)


def _start(_: Any, __: Any, value: str) -> str | int:
    if value.isdigit():
        return int(value)
    if value not in ("earliest", "latest"):
        raise click.BadParameter(f"{value!r} is neither earliest nor latest nor an offset")
    return value


@click.command()
@click.argument("topic")
@click.option(
    "--from", "start", default="earliest", show_default=True, metavar="earliest|latest|OFFSET", callback=_start
)
@click.option(
    "--partition", "partitions", multiple=True, type=click.IntRange(min=0), help="Only this. May be repeated."
)
@click.option("--read-committed", is_flag=True, help="Leave out what open and aborted transactions wrote.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many records.")
@click.option("--to-end", is_flag=True, help="End where the topic ends now.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    help="End after so many seconds; with --count or --to-end not done by then is a failure.",
)
@click.option("--records", is_flag=True, help="Print whole records: key, value, headers, partition, offset, timestamp.")
@client_options
def consume(
    topic: str,
    start: str | int,
    partitions: tuple[int, ...],
    read_committed: bool,
    count: int | None,
    to_end: bool,
    timeout: float | None,
    records: bool,
    bootstrap: str,
    config: Path | None,
    assignments: tuple[str, ...],
) -> None:
    """Print the records of TOPIC, one a line, as they come, until Ctrl-C: values, or with --records whole records.

    No offset is committed. The records of each partition are in order. A tombstone's value is printed as null.
    """
    from pipeline.cli.kafka_client import ClusterClient

    with _explaining():
        cluster = ClusterClient(client_settings(bootstrap, config, assignments))
        try:
            for batch in cluster.consume(
                topic,
                partitions,
                start,
                read_committed=read_committed,
                to_end=to_end,
                count=count,
                timeout=timeout,
            ):
                _print(batch, records)
        except BrokenPipeError:
            # Whoever reads has seen enough, as `head` has; nor is there anything to flush at the exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return


def _print(batch: Iterable[Message], records: bool) -> None:
    for message in batch:
        sys.stdout.buffer.write((_whole(message) if records else _value(message)) + b"\n")
    sys.stdout.flush()


def _whole(message: Message) -> bytes:
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

    from pipeline.cli.kafka_records import to_line
    from sources.kafka.messages import told_headers_of

    kind, timestamp = message.timestamp()
    line = to_line(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        message.key(),
        message.value(),
        told_headers_of(message),
    )
    return line.encode()


def _value(message: Message) -> bytes:
    from pipeline.cli.kafka_client import KafkaTrouble

    value: Any = message.value()
    if value is None:
        return b"null"
    try:
        value.decode()
    except UnicodeDecodeError:
        raise KafkaTrouble(
            f"the value at {message.topic()}[{message.partition()}], offset {message.offset()}, is no text: "
            "--records prints it in base64"
        ) from None
    return bytes(value)
