"""`weir state get`: what one key has, in a checkpoint or in a job that runs, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from checkpoint.codec import decode_opaquely, encode, encode_key
from checkpoint.shown import shown
from checkpoint.tables.json_form import to_json
from checkpoint.tables.keyed import check_state
from checkpoint.tables.one_key import rows_of_key
from checkpoint.tables.point import open_point
from pipeline.cli.operate import JobTarget, patience_of
from pipeline.runtime.driver.operations_client import JobRequestFailed, NotReached

if TYPE_CHECKING:
    from pipeline.key_state import At


class WantedKey(NamedTuple):
    """Which state of which key."""

    step: str
    state: str | None
    """`None`: all, and timers."""
    key: Any
    entry: tuple[Any, ...] = ()
    """Of a map only the entry with this key, if there is one in here."""


def print_stored(uri: str, wanted: WantedKey) -> None:
    """
    Raises:
        ClickException: the key has nothing there.
        ValueError: there is no such step or state; says which there are.
        StorageError: the checkpoint can't be read.
    """
    point = open_point(uri)
    rows = rows_of_key(point, wanted.step, encode_key(wanted.key))
    if wanted.state is not None:
        check_state(point, wanted.state, wanted.step)
    values = {name: decode_opaquely(value) for name, value in rows.states.items() if wanted.state in (None, name)}
    if wanted.entry:
        values = {name: _entry(name, value, wanted.entry[0]) for name, value in values.items()}
    _print(wanted, values, rows.timers)


def _entry(state: str, value: Any, map_key: Any) -> Any:
    if not isinstance(value, dict) or map_key not in value:
        raise click.ClickException(f"state {state!r} of this key has no entry {shown(map_key)}")
    return value[map_key]


def print_live(job: JobTarget, wanted: WantedKey, at: At, timeout: float) -> None:
    """
    Raises:
        ClickException: the job can't be asked or doesn't answer, or the key has nothing.
        EncodingError: nothing of that type is a key.
    """
    try:
        answer = job.ask(
            "state",
            patience_of(timeout),
            step=wanted.step,
            state=wanted.state,
            key=encode_key(wanted.key),
            map_key=encode(wanted.entry[0]) if wanted.entry else None,
            at=at,
            timeout=timeout,
        )
    except (NotReached, JobRequestFailed) as error:
        raise click.ClickException(str(error)) from error
    click.echo(_consistency(answer["as_of"], answer["checkpoint"]), err=True)
    _print(wanted, {name: decode_opaquely(value) for name, value in answer["states"].items()}, answer["timers"])


def _consistency(as_of: int | str, checkpoint: int | None) -> str:
    if as_of != "live":
        return f"as of checkpoint {as_of}"
    return "live; no checkpoint is complete yet" if checkpoint is None else f"live, with all of checkpoint {checkpoint}"


def _print(wanted: WantedKey, values: Mapping[str, Any], timers: Mapping[str, Sequence[int]]) -> None:
    whose = f"key {shown(wanted.key)} ({type(wanted.key).__name__})"
    if wanted.state is not None:
        if wanted.state not in values:
            entry = f" with an entry {shown(wanted.entry[0])}" if wanted.entry else ""
            raise click.ClickException(f"state {wanted.state!r} of step {wanted.step!r} has no value of {whose}{entry}")
        click.echo(to_json(values[wanted.state]))
        return
    if not values and not any(timers.values()):
        raise click.ClickException(f"step {wanted.step!r} has nothing of {whose}")
    states = ",".join(f"{json.dumps(name)}:{to_json(value)}" for name, value in sorted(values.items()))
    set_timers = sorted((at, clock) for clock, times in timers.items() for at in times)
    told = json.dumps([{"at": at, "clock": clock} for at, clock in set_timers], separators=(",", ":"))
    click.echo(f'{{"states":{{{states}}},"timers":{told}}}')
