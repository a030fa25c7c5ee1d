"""Options from outside of a script, which win over what the script gives its `Pipeline`.

From the strongest to the weakest: what a command was given (`--set`), `WEIR_…` variables, a TOML file (`--config` or
WEIR_CONFIG), the script. Variables and the file of WEIR_CONFIG count for every `Pipeline`, however it is run.

    checkpoints.interval=5          --set checkpoints.interval=5
    WEIR_CHECKPOINTS_INTERVAL=5     variable
    [checkpoints]                   in the file
    interval = 5
"""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from checkpoint.config import CheckpointConfig
from pipeline.autoscale import Autoscale
from pipeline.buffers import BufferConfig
from pipeline.errors import PipelineError
from pipeline.runtime.driver.restart import STRATEGIES, RestartStrategy
from pipeline.variables import meant, unknown

T = TypeVar("T", CheckpointConfig, BufferConfig, Autoscale)

FILE_VARIABLE: Final = "WEIR_CONFIG"


@dataclass(frozen=True)
class Given:
    """A value and where it comes from, for messages."""

    value: Any
    origin: str


@dataclass(frozen=True)
class Settings:
    """What replaces the arguments of a `Pipeline`; empty = nothing."""

    given: Mapping[str, Given] = field(default_factory=dict)
    """By name, as in `checkpoints.interval`."""

    def over(self, weaker: Settings) -> Settings:
        """Both, where a value of this one wins."""
        rest = dict(weaker.given)
        strategy = self.given.get(_STRATEGY)
        if strategy is not None and (_STRATEGY not in rest or rest[_STRATEGY].value != strategy.value):
            # The options that came along belong to the other strategy.
            rest = {name: one for name, one in rest.items() if not name.startswith("restart.")}
        return Settings({**rest, **self.given})

    def value(self, name: str, own: Any) -> Any:
        """The value of `name`, or else the pipeline's own."""
        one = self.given.get(name)
        return own if one is None else one.value

    def origin(self, name: str) -> str:
        """` (from WEIR_PARALLELISM)`; empty for a value of the pipeline's own."""
        one = self.given.get(name)
        return "" if one is None else f" (from {one.origin})"

    def flag(self, name: str, own: Any) -> bool:
        """
        Raises:
            PipelineError: the value is neither true nor false.
        """
        value = self.value(name, own)
        if not isinstance(value, bool):
            raise PipelineError(f"{name} must be true or false, not {value!r}{self.origin(name)}")
        return value

    def checkpoint_config(self, own: CheckpointConfig | None) -> CheckpointConfig | None:
        """
        Raises:
            PipelineError: an option has a value that it can't have, or there is no folder for checkpoints.
        """
        options = self._group("checkpoints")
        if not options:
            return own
        if own is None:
            if "uri" not in options:
                raise PipelineError(
                    f"{_origins('checkpoints', options, '')}: the pipeline has no checkpoints=CheckpointConfig(...); "
                    "name a folder, too: checkpoints.uri=/folder"
                )
            own = _UNNAMED
        return _replaced(own, options, "checkpoints")

    def buffer_config(self, own: BufferConfig | None) -> BufferConfig:
        """
        Raises:
            PipelineError: an option has a value that it can't have.
        """
        return _replaced(own or BufferConfig(), self._group("buffers"), "buffers")

    def autoscale(self, own: Autoscale | None) -> Autoscale | None:
        """
        Raises:
            PipelineError: an option has a value that it can't have, or there is no upper bound.
        """
        options = self._group("autoscale")
        if own is None and options:
            if "most" not in options:
                raise PipelineError(
                    f"{_origins('autoscale', options, '')}: the pipeline has no autoscale=Autoscale(...); "
                    "say how many subtasks a step may have, too: autoscale.most=8"
                )
            own = Autoscale(most=_ANY_NUMBER)
        return own if own is None else _replaced(own, options, "autoscale")

    def restart_strategy(self, own: RestartStrategy | None) -> RestartStrategy:
        """The pipeline's own with these options, or another one.

        Raises:
            PipelineError: there is no such strategy, it has no such option, or one can't have such a value.
        """
        own = own or RestartStrategy.fixed_delay()
        options = self._group("restart")
        if not options:
            return own
        kind = self.value(_STRATEGY, own.kind)
        options.pop("strategy", None)
        if kind not in STRATEGIES:
            where = self.origin(_STRATEGY)
            raise PipelineError(f"{_STRATEGY} must be one of {', '.join(STRATEGIES)}, not {kind!r}{where}")
        there = _restart_options(kind)
        for name, one in options.items():
            if name not in there:
                has = f"has {', '.join(there)}" if there else "has none"
                raise PipelineError(
                    f"restart.{name} is no option of the restart strategy {kind}, which {has} (from {one.origin}); "
                    f"{_STRATEGY} names another one"
                )
        before = own.options if kind == own.kind else {}
        try:
            return STRATEGIES[kind](**{**before, **_values(options)})
        except ValueError as error:
            raise PipelineError(f"{_origins('restart', options, str(error))}: {error}") from error

    def _group(self, group: str) -> dict[str, Given]:
        start = f"{group}."
        return {name.removeprefix(start): one for name, one in self.given.items() if name.startswith(start)}


_STRATEGY: Final = "restart.strategy"
_PLAIN: Final = (
    "parallelism",
    "max_parallelism",
    "stop_grace",
    "encrypt",
    "http",
    "http_certificate",
    "http_key",
    "otel",
    "ready_within",
    "show_keys",
)
_UNNAMED: Final = CheckpointConfig("/")
"""The defaults, for a pipeline whose folder comes from outside."""
_ANY_NUMBER: Final = sys.maxsize
"""Until the upper bound from outside takes its place."""


def _restart_options(kind: str) -> list[str]:
    return list(inspect.signature(STRATEGIES[kind]).parameters)


_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "checkpoints": tuple(one.name for one in fields(CheckpointConfig)),
    "buffers": tuple(one.name for one in fields(BufferConfig)),
    "autoscale": tuple(one.name for one in fields(Autoscale)),
    "restart": ("strategy", *dict.fromkeys(option for kind in STRATEGIES for option in _restart_options(kind))),
}
"""By group."""


def option_names() -> list[str]:
    """All there are."""
    return [*_PLAIN, *(f"{group}.{option}" for group, options in _OPTIONS.items() for option in options)]


# -- what counts ------------------------------------------------------------------------------------------------

_OVERRIDING: ContextVar[tuple[Settings, Path | None]] = ContextVar("weir_settings")


@contextmanager
def overriding(given: Settings, file: Path | None = None) -> Iterator[None]:
    """Pipelines made inside take these values, then those of variables, then those of the file.

    Args:
        file: instead of the one that WEIR_CONFIG names.
    """
    token = _OVERRIDING.set((given, file))
    try:
        yield
    finally:
        _OVERRIDING.reset(token)


def current() -> Settings:
    """What counts for a pipeline that is made now.

    Raises:
        PipelineError: a variable or the file has something that is no option.
    """
    given, file = _OVERRIDING.get((Settings(), None))
    weaker = from_environment(os.environ)
    if file is None and os.environ.get(FILE_VARIABLE):
        file = Path(os.environ[FILE_VARIABLE])
    return given.over(weaker if file is None else weaker.over(from_file(file)))


# -- where values come from -------------------------------------------------------------------------------------


def parse(assignments: Iterable[str]) -> Settings:
    """`["checkpoints.interval=5", "parallelism=2"]` as settings; values are JSON or else text.

    Raises:
        PipelineError: no assignment, or no such option; the message lists those there are.
    """
    given: dict[str, Given] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise PipelineError(f"{assignment!r} is no assignment; write NAME=VALUE, as in checkpoints.interval=5")
        name = name.strip()
        if name not in option_names():
            raise PipelineError(_no_option(name, "--set"))
        given[name] = Given(_value(text.strip()), f"--set {name}")
    return Settings(given)


def from_environment(variables: Mapping[str, str]) -> Settings:
    """Those of variables such as WEIR_CHECKPOINTS_INTERVAL. One that is empty counts as not set.

    Raises:
        PipelineError: one begins with WEIR_, and nothing reads it (see `pipeline.variables`).
    """
    names = {_variable(name): name for name in option_names()}
    given: dict[str, Given] = {}
    for variable, text in variables.items():
        if variable in names and text.strip():
            given[names[variable]] = Given(_value(text.strip()), variable)
    wrong = unknown(variables, names)
    if wrong is not None:
        raise PipelineError(wrong)
    return Settings(given)


def _variable(name: str) -> str:
    return f"WEIR_{name.replace('.', '_').upper()}"


def from_file(path: Path) -> Settings:
    """Those of a TOML file: keys such as `parallelism` and `http`, and a table for each group of options.

    Raises:
        PipelineError: it can't be read, is no TOML, or has what is no option; names the file and the key.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PipelineError(
            f"cannot read the options in {path}: {error.strerror}. --config or {FILE_VARIABLE} names it"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PipelineError(f"{path} is no TOML: {error}") from error
    given: dict[str, Given] = {}
    for key, value in content.items():
        if key in _PLAIN:
            given[key] = Given(value, f"{path}, {key}")
        elif key not in _OPTIONS:
            raise PipelineError(_no_option(key, str(path)))
        elif not isinstance(value, dict):
            raise PipelineError(f"{path}: {key} must be a table of options, as in [{key}], not {value!r}")
        else:
            for option, one in value.items():
                name = f"{key}.{option}"
                if option not in _OPTIONS[key]:
                    raise PipelineError(_no_option(name, str(path)))
                given[name] = Given(one, f"{path}, {name}")
    return Settings(given)


def _no_option(name: str, origin: str) -> str:
    there = ", ".join(option_names())
    return f"{origin}: there is no option {name!r}; there are {there}.{meant(name, (*option_names(), *_OPTIONS))}"


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return json.loads(text)
    except ValueError:
        return text


def _replaced(config: T, options: Mapping[str, Given], group: str) -> T:
    try:
        return replace(config, **_values(options))
    except ValueError as error:
        raise PipelineError(f"{_origins(group, options, str(error))}: {error}") from error


def _values(options: Mapping[str, Given]) -> dict[str, Any]:
    return {name: one.value for name, one in options.items()}


def _origins(group: str, options: Mapping[str, Given], message: str) -> str:
    """Where the options come from that a message speaks of, or all of them if it names none."""
    spoken_of = [name for name in options if re.search(rf"\b{name}\b", message)] or list(options)
    return f"{group} (from {', '.join(dict.fromkeys(options[name].origin for name in spoken_of))})"
