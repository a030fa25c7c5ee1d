"""The file that every measurement writes with `--json`: one envelope, whatever was measured. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import msgspec

from pipeline.bench.environment import Environment
from pipeline.bench.errors import BenchFailed

FORMAT: Final = 1
Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Figure:
    """One number that a measurement comes to."""

    name: str
    """Unique in its report."""
    value: float
    unit: str
    better: Better
    """Whether a higher or a lower value is the better one."""


@dataclass(frozen=True)
class Report:
    """What is the same in every file. A measurement's own fields stand beside these; `compare` reads these only."""

    bench: str
    """Name of the command."""
    format: int
    when: str
    seconds: float
    versions: dict[str, str]
    machine: dict[str, Any]
    settings: dict[str, Any]
    """What was asked for. Only figures of equal settings say something about each other."""
    figures: list[Figure]


class Measured(Protocol):
    """The result of a measurement."""

    def settings(self) -> dict[str, Any]: ...

    def figures(self) -> Sequence[Figure | None]:
        """What can be compared, under unique names; `None` stands for one that could not be had."""

    def fields(self) -> dict[str, Any]:
        """All that was measured, in the measurement's own form, under names that the envelope doesn't have."""


def to_json(bench: str, environment: Environment, measured: Measured) -> str:
    known = [figure for figure in measured.figures() if figure is not None]
    names = [figure.name for figure in known]
    assert len(names) == len(set(names)), f"figures of {bench} have one name twice: {names}"
    report = Report(
        bench=bench,
        format=FORMAT,
        when=environment.when,
        seconds=environment.seconds,
        versions=environment.versions,
        machine=asdict(environment.machine),
        settings=measured.settings(),
        figures=known,
    )
    envelope, fields = asdict(report), measured.fields()
    assert not envelope.keys() & fields.keys(), f"{bench} has fields of the envelope"
    return json.dumps({**envelope, **fields}, indent=2)


def figure(name: str, value: float | None, unit: str, better: Better) -> Figure | None:
    """`None` without a value."""
    return None if value is None else Figure(name, value, unit, better)


def read_report(file: Path) -> Report:
    """
    Raises:
        BenchFailed: the file can't be read, or no measurement has written it.
    """
    try:
        report = msgspec.json.decode(file.read_bytes(), type=Report)
    except OSError as error:
        raise BenchFailed(f"{file} can't be read: {error}") from error
    except msgspec.DecodeError as error:
        raise BenchFailed(f"{file} was not written by a `weir bench` command with --json: {error}") from error
    if report.format != FORMAT:
        raise BenchFailed(f"{file} has format {report.format}, and this version of Weir reads format {FORMAT}")
    return report
