"""Values from outside of a script, such as the command line's, that win over what the script gives its `Pipeline`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from checkpoint.config import CheckpointConfig
from pipeline.buffers import BufferConfig
from pipeline.errors import PipelineError

T = TypeVar("T", CheckpointConfig, BufferConfig)


@dataclass(frozen=True)
class Settings:
    """What replaces the arguments of every `Pipeline` made under `overriding`; empty = nothing."""

    parallelism: int | None = None
    """Of steps that don't set their own."""
    max_parallelism: int | None = None
    checkpoints: Mapping[str, Any] = field(default_factory=dict)
    """Options of `CheckpointConfig`; with `uri` also for a pipeline that has none."""
    buffers: Mapping[str, Any] = field(default_factory=dict)
    """Options of `BufferConfig`."""

    def checkpoint_config(self, own: CheckpointConfig | None) -> CheckpointConfig | None:
        """
        Raises:
            PipelineError: an option has a value that it can't have, or there is no folder for checkpoints.
        """
        if not self.checkpoints:
            return own
        if own is None and "uri" not in self.checkpoints:
            raise PipelineError(
                "the pipeline has no checkpoints=CheckpointConfig(...); name a folder, too: checkpoints.uri=/folder"
            )
        return _replaced(own or CheckpointConfig(self.checkpoints["uri"]), self.checkpoints, "checkpoints")

    def buffer_config(self, own: BufferConfig | None) -> BufferConfig:
        """
        Raises:
            PipelineError: an option has a value that it can't have.
        """
        return _replaced(own or BufferConfig(), self.buffers, "buffers")


_CURRENT: ContextVar[Settings] = ContextVar("weir_settings")
_NONE = Settings()
_GROUPS: Mapping[str, type] = {"checkpoints": CheckpointConfig, "buffers": BufferConfig}
_PLAIN = ("parallelism", "max_parallelism")


def current() -> Settings:
    return _CURRENT.get(_NONE)


@contextmanager
def overriding(settings: Settings) -> Iterator[None]:
    """Pipelines made inside take these values."""
    token = _CURRENT.set(settings)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def parse(assignments: Iterable[str]) -> Settings:
    """`["checkpoints.interval=5", "parallelism=2"]` as settings; values are JSON or else text.

    Raises:
        PipelineError: no assignment, or no such option; the message lists those there are.
    """
    plain: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {group: {} for group in _GROUPS}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise PipelineError(f"{assignment!r} is no assignment; write NAME=VALUE, as in checkpoints.interval=5")
        name, value = name.strip(), _value(text.strip())
        group, _, option = name.partition(".")
        if name in _PLAIN:
            plain[name] = value
        elif group in _GROUPS and option in _options(group):
            groups[group][option] = value
        else:
            raise PipelineError(f"there is no option {name!r}; there are {', '.join(option_names())}")
    return Settings(**plain, checkpoints=groups["checkpoints"], buffers=groups["buffers"])


def option_names() -> list[str]:
    """All that `parse` takes."""
    return [*_PLAIN, *(f"{group}.{option}" for group in _GROUPS for option in _options(group))]


def _options(group: str) -> list[str]:
    return [one.name for one in fields(_GROUPS[group])]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _replaced(config: T, options: Mapping[str, Any], group: str) -> T:
    try:
        return replace(config, **options)
    except ValueError as error:
        raise PipelineError(f"{group}: {error}") from error
