"""`split`: each record to the first of several branches that takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipeline.graph import DEFAULT_BRANCH
from pipeline.lazy_results import check_has_run
from pipeline.runtime.subtask.steps.compiled import CompiledStep, Push, Site
from pipeline.runtime.subtask.steps.guarded import guarded_choice


def compile_split(site: Site) -> CompiledStep:
    """Branches are side outputs of the step: chained to what reads them where they can be."""
    splitter = Splitter(site.step.payload, site.sides)
    push = splitter.push if site.failed is None else guarded_choice(splitter.branch_of, site.failed)
    return CompiledStep(push, runs=splitter)


class Splitter:
    """Asks the branches in their order."""

    def __init__(self, branches: Mapping[str, Callable[[Any], Any]], sides: Mapping[str, Push]) -> None:
        """`sides`: the branches that somebody reads, by name."""
        self._branches = [(function, sides.get(name, _dropped)) for name, function in branches.items()]
        self._rest = sides.get(DEFAULT_BRANCH, _dropped)

    def push(self, value: Any) -> None:
        for function, downstream in self._branches:
            answer = function(value)
            if answer:
                if answer is not True:
                    check_has_run("split", answer)
                downstream(value)
                return
        self._rest(value)

    def branch_of(self, value: Any) -> Push:
        """What `push` hands it to."""
        for function, downstream in self._branches:
            answer = function(value)
            if answer:
                if answer is not True:
                    check_has_run("split", answer)
                return downstream
        return self._rest


def _dropped(value: Any) -> None:
    """Nobody reads the branch."""
