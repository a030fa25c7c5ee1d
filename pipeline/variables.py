"""Which `WEIR_…` variables there are: one that nothing reads is a mistake, most likely a misspelt one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

import click

PREFIX: Final = "WEIR_"
_OWN: Final = frozenset(
    {
        "WEIR_CACHE",
        "WEIR_CLASS_ARCHIVES",
        "WEIR_CONFIG",
        "WEIR_HTTP_TOKEN",
        "WEIR_IVY_SETTINGS",
        "WEIR_JOB_SECRET",
        "WEIR_LOCAL_DIR",
        "WEIR_LOG_FORMAT",
        "WEIR_LOG_LEVEL",
        "WEIR_SCRIPT_FOLDER",
        "WEIR_SPARK_DAEMON",
        "WEIR_SPARK_PYTHON",
        "WEIR_SPARK_LOG_LEVEL",
        "WEIR_SPARK_UI",
        "WEIR_STATE_DIR",
    }
)
_OF_COMPOSE: Final = frozenset(
    {
        "WEIR_GRAFANA_IMAGE",
        "WEIR_GRAFANA_PORT",
        "WEIR_HTTP_PORT",
        "WEIR_IMAGE",
        "WEIR_KAFKA_IMAGE",
        "WEIR_KAFKA_PORT",
        "WEIR_PROMETHEUS_IMAGE",
        "WEIR_PROMETHEUS_PORT",
    }
)
_OF_TESTS: Final = frozenset(
    {
        "WEIR_STRESS_BROKERS",
        "WEIR_STRESS_MINUTES",
        "WEIR_STRESS_ROUNDS",
        "WEIR_STRESS_SEED",
        "WEIR_TEST_DRIVER",
        "WEIR_TEST_ROUNDS",
        "WEIR_TEST_SCRIPT",
        "WEIR_TEST_PATIENCE",
        "WEIR_TEST_SESSION",
    }
)
_OF_EXAMPLES: Final = "WEIR_EXAMPLE_"
"""Scripts read these themselves."""
_SERVICE_LINK: Final = re.compile(r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")


def unknown(variables: Mapping[str, str], options: Iterable[str]) -> str | None:
    """What is wrong with the first variable that begins with WEIR_ and that nothing reads; `None` if all are known.

    Args:
        options: names of the variables of pipelines' options.
    """
    left = [
        name
        for name in sorted(variables)
        if name.startswith(PREFIX)
        and name not in _OWN | _OF_COMPOSE | _OF_TESTS
        and not name.startswith(_OF_EXAMPLES)
        and not _is_service_link(name, variables)
    ]
    if not left:
        return None
    known = {*_OWN, *_OF_COMPOSE, *options, *_of_commands()}
    name = next((name for name in left if name not in known), None)
    return None if name is None else f"nothing reads the variable {name}.{meant(name, known)} Correct it, or unset it"


def meant(name: str, there: Iterable[str]) -> str:
    """` Did you mean …?`, or nothing where none is near."""
    near = get_close_matches(name, sorted(there), 1, 0.75)
    return f" Did you mean {near[0]}?" if near else ""


def _is_service_link(name: str, variables: Mapping[str, str]) -> bool:
    """Kubernetes gives every container such variables for each service; one may be called `weir` or `weir-…`."""
    parts = name.split("_")
    services = ("_".join(parts[:n]) for n in range(1, len(parts)))
    return any(
        f"{service}_SERVICE_HOST" in variables and _SERVICE_LINK.fullmatch(name.removeprefix(f"{service}_"))
        for service in services
    )


def _of_commands() -> Iterator[str]:
    """Every option of a command has one: WEIR_DEMO_RECORDS, WEIR_CHECKPOINTS_LS_JSON."""
    from pipeline.cli.app import main

    return _of_command(main, PREFIX.rstrip("_"))


def _of_command(command: click.Command, name: str) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            if parameter.allow_from_autoenv and parameter.name is not None:
                yield f"{name}_{parameter.name.upper()}"
            yield from [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar or ()
    if isinstance(command, click.Group):
        for own, each in command.commands.items():
            yield from _of_command(each, f"{name}_{own.upper().replace('-', '_')}")
