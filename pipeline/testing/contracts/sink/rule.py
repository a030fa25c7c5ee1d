"""A rule of a sink: a plain function of a stage, with its name, its advice and the variants it is tried in."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipeline.testing.contracts.sink.stage import Stage, Terms, open_stage

Crash = Callable[[Stage], None]
CRASHES: Final[tuple[Crash, ...]] = (Stage.die, Stage.close)
"""The two ways in which an attempt ends: its processes are gone, or it fails and closes what it has."""


@dataclass(frozen=True)
class Rule:
    name: str
    advice: str
    check: Callable[..., bool | None]
    """Called with a new stage and the variant; True = the variants left would show nothing more."""
    variants: Mapping[str, Iterable[Any]]
    """Values by parameter; the rule is tried with each combination."""
    exactly_once: bool
    """At-least-once sinks needn't keep it."""
    needs_committer: bool
    """It says nothing of sinks without one."""

    def run(self, terms: Terms) -> None:
        if self.exactly_once and not terms.exact:
            return
        for values in itertools.product(*self.variants.values()):
            with open_stage(terms, self.name, self.advice) as stage:
                if self.needs_committer and not stage.attempt.commits:
                    return
                if self.check(stage, **dict(zip(self.variants, values, strict=True))):
                    return


def rule(
    name: str, advice: str, *, exactly_once: bool = False, needs_committer: bool = False, **variants: Iterable[Any]
) -> Callable[[Callable[..., bool | None]], Rule]:
    """Make a rule of a function `check(stage, **variant)`."""
    return lambda check: Rule(name, advice, check, variants, exactly_once, needs_committer)
