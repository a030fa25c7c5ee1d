"""`map`, `filter`, `filter_not`, `peek`, `flat_map` and `split`. In each `push` the user's code is called by the
name `function` (see `failed_step`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from checkpoint.codec import copied
from pipeline.graph import DEFAULT_BRANCH
from pipeline.lazy_results import check_answer, check_has_run
from pipeline.runtime.subtask.steps.compiled import CompiledStep, Push, Site
from pipeline.runtime.subtask.steps.guarded import (
    guarded_choice,
    guarded_filter,
    guarded_flat_map,
    guarded_map,
    guarded_peek,
)
from pipeline.runtime.subtask.steps.outputs import NO_OUTPUTS, NotRecords, check_outputs


def compile_map(site: Site) -> CompiledStep:
    function, downstream = site.step.payload, site.downstream
    if site.failed is not None:
        return CompiledStep(guarded_map(function, downstream, site.failed), runs=function)

    def push(value: Any) -> None:
        downstream(function(value))

    return CompiledStep(push, runs=function)


def compile_filter(site: Site) -> CompiledStep:
    function, downstream = site.step.payload, site.downstream
    if site.failed is not None:
        return CompiledStep(guarded_filter(function, downstream, site.failed), runs=function)

    def push(value: Any) -> None:
        answer = function(value)
        if answer:
            if answer is not True:
                check_answer("filter", answer)
            downstream(value)

    return CompiledStep(push, runs=function)


def compile_filter_not(site: Site) -> CompiledStep:
    function, downstream = site.step.payload, site.downstream
    if site.failed is not None:
        return CompiledStep(guarded_filter(function, downstream, site.failed, passes=False), runs=function)

    def push(value: Any) -> None:
        answer = function(value)
        if not answer:
            downstream(value)
        elif answer is not True:
            check_answer("filter_not", answer)

    return CompiledStep(push, runs=function)


def compile_peek(site: Site) -> CompiledStep:
    """The function has a copy to itself, so what it does to it changes nothing."""
    function, downstream = site.step.payload, site.downstream
    if site.failed is not None:
        return CompiledStep(guarded_peek(function, downstream, site.failed), runs=function)

    def push(value: Any) -> None:
        returned = function(copied(value))
        if returned is not None:
            check_has_run("peek", returned)
        downstream(value)

    return CompiledStep(push, runs=function)


def compile_flat_map(site: Site) -> CompiledStep:
    function, downstream = site.step.payload, site.downstream
    if site.failed is not None:
        return CompiledStep(guarded_flat_map(function, downstream, site.failed), runs=function)

    def push(value: Any) -> None:
        outputs = function(value)
        if outputs is not None:
            if type(outputs) in NO_OUTPUTS:
                raise NotRecords("flat_map", outputs)
            try:
                for output in outputs:
                    downstream(output)
            except TypeError:
                check_outputs("flat_map", outputs)
                raise

    return CompiledStep(push, runs=function)


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
                    check_answer("split", answer)
                downstream(value)
                return
        self._rest(value)

    def branch_of(self, value: Any) -> Push:
        """What `push` hands it to."""
        for function, downstream in self._branches:
            answer = function(value)
            if answer:
                if answer is not True:
                    check_answer("split", answer)
                return downstream
        return self._rest


def _dropped(value: Any) -> None:
    """Nobody reads the branch."""
