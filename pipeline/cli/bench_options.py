"""What `weir bench`'s commands have in common."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pipeline.cli.common import ending_cleanly, log_to_stderr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from pipeline.bench.environment import EnvironmentProbe
    from pipeline.bench.report import Measured

FILE_WIDTH: Final = 160
"""Characters a line of what goes to a file, which has no width of its own."""


def to_write(_: click.Context, __: click.Parameter, file: Path | None) -> Path | None:
    """Refused before anything is measured, rather than after."""
    if file is not None and not file.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {file.parent}")
    return file


json_option = click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=to_write,
    help="Also write the result here.",
)


folder_option = click.option(
    "--folder",
    type=click.Path(file_okay=False, exists=True),
    help="Where the checkpoints go for the while.  [default: the temporary directory]",
)
interval_option = click.option(
    "--interval", default=1.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds between checkpoints."
)
backends_option = click.option(
    "--backend",
    "backends",
    multiple=True,
    default=("heap", "rocksdb"),
    show_default=True,
    type=click.Choice(["heap", "rocksdb"]),
    help="May be given several times.",
)
parallelism_option = click.option("--parallelism", default=2, show_default=True, type=click.IntRange(1, 128))
bootstrap_option = click.option("--bootstrap", metavar="SERVERS", help="Use the Kafka there instead of starting one.")


@contextlib.contextmanager
def measuring(*failures: type[Exception]) -> Iterator[None]:
    """What makes the measurement void is said in a line, `failures` as `BenchFailed`."""
    from pipeline.bench.errors import BenchFailed

    void: tuple[type[Exception], ...] = (BenchFailed, *failures)
    log_to_stderr("WARNING")
    with ending_cleanly():
        try:
            yield
        except void as error:
            raise click.ClickException(str(error)) from error


@contextlib.contextmanager
def kafka(bootstrap: str | None) -> Iterator[str]:
    """The addresses of the Kafka to measure with, one of our own unless there is `bootstrap`; what goes wrong inside is
    said in a line."""
    from pipeline.broker import BrokerFailed, NativeBroker
    from pipeline.broker.jars import FetchFailed
    from pipeline.broker.java import JavaMissing
    from pipeline.broker.topics import TopicTrouble

    with measuring(BrokerFailed, FetchFailed, JavaMissing, TopicTrouble), contextlib.ExitStack() as stack:
        yield bootstrap or stack.enter_context(NativeBroker.start()).bootstrap_servers


def report(
    file: Path | None, bench: str, measured: Measured, probe: EnvironmentProbe, bootstrap: str | None = "elsewhere"
) -> None:
    """Write the report, if there is a file for it.

    Args:
        bootstrap: as given to the command; `None`: it has started a broker of its own, whose version is known.
    """
    from pipeline.bench.environment import own_kafka
    from pipeline.bench.report import to_json

    if file is not None:
        file.write_text(to_json(bench, probe.environment(own_kafka(bootstrap)), measured) + "\n")


def mib(size: float) -> str:
    return f"{size / (1 << 20):,.0f} MiB"


def wide_console() -> Console:
    """Of standard output; what goes to a file isn't cut to the width of a terminal."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=FILE_WIDTH)
