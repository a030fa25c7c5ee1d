"""`process`: an operator of the user's. In each `push` its method is called by the name `function` (see
`failed_step`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from checkpoint.shown import shown
from checkpoint.state import BroadcastStates, OperatorLists, bind
from checkpoint.state.undo import UndoLog
from pipeline.on_error import ERRORS
from pipeline.operators import KeyedOperator, Operator
from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.record_in_progress import RecordInProgress
from pipeline.runtime.subtask.steps.compiled import CompiledStep, Push, Site
from pipeline.runtime.subtask.steps.guarded import copying, guarded_method, holding
from pipeline.runtime.subtask.steps.outputs import NO_OUTPUTS, NotRecords, check_outputs


def compile_process(site: Site) -> CompiledStep:
    step, context, downstream = site.step, site.context, site.downstream
    operator: Operator = step.payload
    keyed = isinstance(operator, KeyedOperator)
    failed, undo = site.failed, None if site.failed is None else UndoLog()
    broadcast, lists = BroadcastStates(undo), OperatorLists(undo)
    if undo is not None and keyed and site.backend is not None:
        site.backend.undo_by(undo)
    bind(operator, site.backend if keyed else None, broadcast, lists)
    context.backend = site.backend if keyed else None
    context.side_outputs = {
        tag: push if failed is None else holding(context, push) for tag, push in site.sides.items() if tag != ERRORS
    }

    if isinstance(operator, KeyedOperator) and site.backend is not None:
        site.backend.event_timers.end = operator._timers_end
    timers_fail = isinstance(operator, KeyedOperator) and not operator._timers_can_be_left_out

    def method(name: str) -> Push:
        if failed is None or undo is None:
            return _method(operator, name, context, downstream)
        if name == "on_watermark" or (name == "on_timer" and timers_fail):
            return _keeping(undo, _method(operator, name, context, copying(downstream)))
        function, what = getattr(operator, name), f"{type(operator).__name__}.{name}"
        return guarded_method(function, what, context, downstream, failed, undo, is_timer=name == "on_timer")

    pushes = [method(name) for name in ("process", "process_connected")[: 1 + step.connected]]
    pushes = [_writing(broadcast, one) if i in step.broadcast_inputs else one for i, one in enumerate(pushes)]
    on_watermark: Push | None = None
    if type(operator).on_watermark is not Operator.on_watermark:
        on_watermark = _emitting_nothing(operator, context, site.record) if keyed else method("on_watermark")
    return CompiledStep(
        pushes[0],
        runs=operator,
        push_connected=pushes[1] if step.connected else None,
        on_timer=method("on_timer") if keyed else None,
        on_watermark=on_watermark,
        operator=operator,
        broadcast=broadcast if broadcast.declared else None,
        lists=lists if lists.declared else None,
    )


def _method(operator: Operator, method: str, context: Context, downstream: Push) -> Push:
    function: Callable[[Any, Context], Iterable[Any] | None] = getattr(operator, method)
    name = f"{type(operator).__name__}.{method}"

    def push(value: Any) -> None:
        outputs = function(value, context)
        if outputs is not None:
            if type(outputs) in NO_OUTPUTS:
                raise NotRecords(name, outputs)
            try:
                for output in outputs:
                    downstream(output)
            except TypeError:
                check_outputs(name, outputs)
                raise

    return push


def _keeping(undo: UndoLog, downstream: Push) -> Push:
    """For what nobody takes back: a million timers in a row would be noted as one record's changes."""

    def push(value: Any) -> None:
        downstream(value)
        undo.keep()

    return push


def _writing(broadcast: BroadcastStates, downstream: Push) -> Push:
    """For records that every subtask gets: they may change broadcast state."""
    if not broadcast.declared:
        return downstream

    def push(value: Any) -> None:
        broadcast.writable = True
        try:
            downstream(value)
        finally:
            broadcast.writable = False

    return push


def _emitting_nothing(operator: Operator, context: Context, record: RecordInProgress) -> Push:
    function = operator.on_watermark

    def push(timestamp: Any) -> None:
        with record.mute():
            for output in function(timestamp, context) or ():
                raise TypeError(
                    f"{type(operator).__name__}.on_watermark emitted {shown(output, 200)}; a KeyedOperator has no "
                    "current key there, so nothing it emits could keep its place behind the key's records. Set timers "
                    "with ctx.timer and emit in on_timer"
                )

    return push
