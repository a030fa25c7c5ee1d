"""Steps with `on_error`: a record that one fails on leaves nothing, neither in its state nor downstream.

What a step emits is held back until it is done with the record, and only then handed on: what fails downstream is
another step's. As in the plain steps, the user's code is called by the name `function` (see `failed_step`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import GeneratorType
from typing import Any

from checkpoint.codec import copied
from checkpoint.state.undo import UndoLog
from pipeline.lazy_results import check_answer, check_has_run
from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.steps.compiled import Push
from pipeline.runtime.subtask.steps.failed_records import NEVER, FailedRecords
from pipeline.runtime.subtask.steps.outputs import NO_OUTPUTS, NotRecords, check_outputs


def guarded_map(function: Callable[[Any], Any], downstream: Push, failed: FailedRecords) -> Push:
    def push(value: Any) -> None:
        encoded = failed.begin(value)
        try:
            output = copied(function(value))
        except NEVER:
            raise
        except Exception as error:
            failed.handle(error, failed.note(encoded))
            return
        downstream(output)

    return push


def guarded_filter(
    function: Callable[[Any], Any], downstream: Push, failed: FailedRecords, passes: bool = True
) -> Push:
    """`passes`: whether records pass for which the function is true, or the others."""
    who = "filter" if passes else "filter_not"

    def push(value: Any) -> None:
        encoded = failed.begin(value)
        try:
            answer = function(value)
            if answer is not True:
                check_answer(who, answer)
            if bool(answer) is not passes:
                return
            output = copied(value)
        except NEVER:
            raise
        except Exception as error:
            failed.handle(error, failed.note(encoded))
            return
        downstream(output)

    return push


def guarded_peek(function: Callable[[Any], Any], downstream: Push, failed: FailedRecords) -> Push:
    def push(value: Any) -> None:
        encoded = failed.begin(value)
        try:
            returned = function(copied(value))
            if returned is not None:
                check_has_run("peek", returned)
        except NEVER:
            raise
        except Exception as error:
            failed.handle(error, failed.note(encoded))
            return
        downstream(value)

    return push


def guarded_choice(function: Callable[[Any], Push], failed: FailedRecords) -> Push:
    """For a step that hands records on as they are. `function` says to whom."""

    def push(value: Any) -> None:
        encoded = failed.begin(value)
        try:
            downstream = function(value)
            output = copied(value)
        except NEVER:
            raise
        except Exception as error:
            failed.handle(error, failed.note(encoded))
            return
        downstream(output)

    return push


def guarded_flat_map(function: Callable[[Any], Iterable[Any]], downstream: Push, failed: FailedRecords) -> Push:
    def push(value: Any) -> None:
        encoded = failed.begin(value)
        outputs: Any = None
        held: list[Any] = []
        try:
            outputs = function(value)
            hold("flat_map", outputs, lambda output: held.append(copied(output)))
        except NEVER:
            raise
        except Exception as error:
            failed.handle(ended(outputs, error), failed.note(encoded))
            return
        for output in held:
            downstream(output)

    return push


def guarded_method(
    function: Callable[[Any, Context], Iterable[Any] | None],
    name: str,
    context: Context,
    downstream: Push,
    failed: FailedRecords,
    undo: UndoLog,
    is_timer: bool,
) -> Push:
    """For a method of an operator.

    Args:
        name: as messages name it.
        is_timer: it gets the times of timers, not records.
    """

    def push(value: Any) -> None:
        encoded = None
        if is_timer:
            failed.count()
        else:
            encoded = failed.begin(value)
        undo.begin()
        held: list[tuple[Push, Any, int | None]] = []
        timestamp = context.timestamp
        context.held = held
        outputs: Any = None
        try:
            outputs = function(value, context)
            hold(name, outputs, lambda output: held.append((downstream, copied(output), context.timestamp)))
        except NEVER:
            raise
        except Exception as error:
            # A generator may have something to do at its end, too: it is ended before anything is taken back.
            last = ended(outputs, error)
            context.held = None
            context.show_timestamp(timestamp)
            undo.take_back()
            failed.handle(last, failed.note(encoded, value if is_timer else None))
            return
        context.held = None
        undo.keep()
        for target, output, timestamp in held:
            context.show_timestamp(timestamp)
            target(output)

    return push


def holding(context: Context, target: Push) -> Push:
    """For a side output: held back like the rest, in its place."""

    def push(value: Any) -> None:
        held = context.held
        if held is None:
            target(copied(value))
        else:
            held.append((target, copied(value), context.timestamp))

    return push


def copying(target: Push) -> Push:
    """For what such a step emits and doesn't hold back: whoever gets it takes it for a copy (`is_fresh`)."""

    def push(value: Any) -> None:
        target(copied(value))

    return push


def hold(name: str, outputs: Any, keep: Push) -> None:
    """Take all that a function emits."""
    if outputs is None:
        return
    if type(outputs) in NO_OUTPUTS:
        raise NotRecords(name, outputs)
    try:
        for output in outputs:
            keep(output)
    except TypeError:
        check_outputs(name, outputs)
        raise


def ended(outputs: Any, error: Exception) -> Exception:
    """The error, or the one that a generator raises as it is ended where it stands.

    Raises:
        Exception: such a one, to which no `on_error` applies.
    """
    if isinstance(outputs, GeneratorType):
        try:
            outputs.close()
        except NEVER:
            raise
        except Exception as another:
            return another
    return error
