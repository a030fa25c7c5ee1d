"""What the commands that talk to a Kafka cluster are told of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

bootstrap_option: Final = click.option(
    "--bootstrap",
    default="localhost:9092",
    show_default=True,
    envvar="WEIR_KAFKA_BOOTSTRAP",
    help="Addresses of brokers, HOST:PORT[,HOST:PORT…].",
)
_CLIENT: Final = (
    bootstrap_option,
    click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="File with settings of librdkafka, NAME=VALUE in each line.",
    ),
    click.option("--set", "assignments", multiple=True, metavar="NAME=VALUE", help="Such a setting. May be repeated."),
)


def client_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where the cluster is, and the settings that it asks for: `bootstrap`, `config`, `assignments`."""
    for option in reversed(_CLIENT):
        command = option(command)
    return command


def client_settings(bootstrap: str, config: Path | None, assignments: tuple[str, ...]) -> dict[str, Any]:
    """Those of librdkafka.

    Raises:
        ClickException: the file can't be read, or a line or an assignment is not NAME=VALUE.
    """
    settings: dict[str, Any] = _properties_in(config) if config is not None else {}
    return {**settings, **dict(map(assignment, assignments)), "bootstrap.servers": bootstrap}


def assignment(text: str, hint: str = "--set") -> tuple[str, str]:
    """
    Raises:
        BadParameter: it is not NAME=VALUE.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=hint)
    return name, value


def topic_and_partitions(text: str, hint: str = "--topic") -> tuple[str, int]:
    """`NAME` or `NAME:PARTITIONS`.

    Raises:
        BadParameter: it is neither.
    """
    name, _, partitions = text.partition(":")
    if not name or not (partitions or "1").isdigit() or int(partitions or 1) < 1:
        raise click.BadParameter(f"{text!r} is not NAME or NAME:PARTITIONS", param_hint=hint)
    return name, int(partitions or 1)


def _properties_in(path: Path) -> dict[str, str]:
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"cannot read {path}: {error}") from error
    found = {}
    for number, line in enumerate(lines, 1):
        if line and not line.startswith(("#", "!")):
            name, equals, value = line.partition("=")
            if not equals:
                raise click.ClickException(f"{path}, line {number} is not NAME=VALUE: {line!r}")
            found[name.strip()] = value.strip()
    return found
