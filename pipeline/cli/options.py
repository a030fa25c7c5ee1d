"""What commands are told of a job, `weir run` and `weir plan` of its start, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import click

_PIPELINE: Final = (
    click.argument("target", metavar="FILE[:NAME]"),
    click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="NAME=VALUE",
        help="Replace an option of the pipeline's, as in checkpoints.interval=5. May be repeated.",
    ),
    click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        help="TOML file with options of the pipeline's.  [default: the one that WEIR_CONFIG names]",
    ),
)
_START: Final = (
    click.option(
        "--restore",
        default="latest",
        show_default=True,
        metavar="latest|none|URI",
        help="Where to begin: the newest retained checkpoint if there is one, nothing, or the checkpoint or savepoint "
        "in that folder.",
    ),
    click.option("--parallelism", type=click.IntRange(min=1), help="Subtasks of each step that doesn't set its own."),
    click.option(
        "--claim/--no-claim",
        default=None,
        help="With a URI: whether output in there that is not committed is this job's to commit, or dropped.  "
        "[default: commit it if the pipeline has the same name, else leave it]",
    ),
    click.option(
        "--allow-unclaimed", is_flag=True, help="Drop state of the checkpoint that no step declares any more."
    ),
    click.option(
        "--ignore-in-flight",
        type=click.IntRange(min=1),
        metavar="CHECKPOINT",
        help="Lose the records that were in flight in the checkpoint with this id, which is to be restored.",
    ),
)


def pipeline_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which pipeline, with which options of its own."""
    for option in reversed(_PIPELINE):
        command = option(command)
    return command


def start_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which pipeline, with which options of its own, and what it restores."""
    for option in reversed(_START):
        command = option(command)
    return pipeline_options(command)


@contextmanager
def overriding_options(
    parallelism: int | None,
    assignments: tuple[str, ...],
    config: Path | None,
    own: Mapping[str, tuple[Any, str]] = MappingProxyType({}),
) -> Iterator[None]:
    """Pipelines made inside take these options.

    Args:
        own: what options of the command stand for: by the pipeline's option a value, and the command's option.

    Raises:
        UsageError: one of them, a variable or something in the file is no option.
    """
    from pipeline import settings
    from pipeline.errors import PipelineError
    from pipeline.settings import Given, Settings

    try:
        if parallelism is not None:
            own = {**own, "parallelism": (parallelism, "--parallelism")}
        named = {name: Given(value, option) for name, (value, option) in own.items()}
        given = Settings(named).over(settings.parse(assignments))
    except PipelineError as error:
        raise click.UsageError(str(error)) from error
    with settings.overriding(given, config):
        try:
            settings.current()
        except PipelineError as error:
            raise click.UsageError(str(error)) from error
        yield
