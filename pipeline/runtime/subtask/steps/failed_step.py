"""Which step an exception came from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Final

from pipeline.runtime import error_text
from pipeline.runtime.subtask.steps.compiled import CompiledStep

_HERE: Final = str(Path(__file__).parent)


def step_of(error: BaseException, steps: Mapping[str, CompiledStep]) -> str | None:
    """The step whose code an exception came from, by the frames of its traceback; `None` where that can't be told.

    A frame is a step's if it is a method of what the step runs, or if it calls that: by the name `function`, in the
    modules of this folder.
    """
    owners = {id(step.runs): id_ for id_, step in steps.items() if step.runs is not None}
    found = None
    # The innermost counts: a step's frames lie below those of the steps that it gets its records from.
    for frame, _ in walk_tb(error_text.traceback_of(error)):
        found = _owner(frame, owners) or found
    return found


def _owner(frame: FrameType, owners: Mapping[int, str]) -> str | None:
    held = frame.f_locals
    if "self" in held or not frame.f_code.co_filename.startswith(_HERE):
        return owners.get(id(held.get("self")))
    function = held.get("function")
    return owners.get(id(function)) or owners.get(id(getattr(function, "__self__", None)))
