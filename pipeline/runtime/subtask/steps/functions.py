"""`map`, `filter`, `filter_not`, `peek` and `flat_map`. In each `push` the user's code is called by the name `function`
(see `failed_step`)."""

from __future__ import annotations

from typing import Any

from checkpoint.codec import copied
from pipeline.lazy_results import check_has_run
from pipeline.runtime.subtask.steps.compiled import CompiledStep, Site
from pipeline.runtime.subtask.steps.guarded import guarded_filter, guarded_flat_map, guarded_map, guarded_peek
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
                check_has_run("filter", answer)
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
            check_has_run("filter_not", answer)

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
