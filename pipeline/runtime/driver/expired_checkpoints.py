"""Who held up a checkpoint that has expired, in words (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from checkpoint.counted import counted
from pipeline.plan import Plan

_HELD: Final = 0.3
"""Seconds; a task thread that is left alone looks around at least five times in one."""
_NAMED: Final = 5
"""Subtasks that are told of one by one."""


def explain(
    plan: Plan, metrics: Mapping[str, Mapping[str, Any]], checkpoint_id: int, missing: Sequence[int]
) -> list[str]:
    """What is known of those that held the checkpoint up.

    Args:
        metrics: of each subtask that has reported any, by its name.
        missing: the subtasks that have not acknowledged.
    """
    parts = [_subtask(plan, metrics, checkpoint_id, subtask) for subtask in missing[:_NAMED]]
    if len(missing) > _NAMED:
        parts.append(f"and {counted(len(missing) - _NAMED, 'more subtask')}")
    # Sources that are missing say of their gates themselves.
    sources = [subtask for vertex in plan.vertices if vertex.is_source for subtask in vertex.subtasks]
    others = [plan.subtask_name(subtask) for subtask in sources if subtask not in missing]
    closed = [name for name in others if metrics.get(name, {}).get("sourceGateReason")]
    if closed:
        parts.append("gate closed: " + ", ".join(closed))
    return parts


def _subtask(plan: Plan, metrics: Mapping[str, Mapping[str, Any]], checkpoint_id: int, subtask: int) -> str:
    name = plan.subtask_name(subtask)
    own = metrics.get(name, {})
    writing = checkpoint_id in own.get("writing", ())
    barriers = own.get("barriers", {}).get(checkpoint_id)
    if writing:
        what = f"{name} is still writing its snapshot"
    elif unsent := own.get("unsent", {}).get(checkpoint_id):
        what = f"the barrier of {name} is still queued towards {_listed(unsent)}"
    elif plan.vertex_of(subtask).is_source:
        what = f"{name} has not taken the barrier"
    elif uncaptured := own.get("uncaptured", {}).get(checkpoint_id):
        what = f"{name} has taken its snapshot and has no barrier from {_listed(uncaptured)}"
    elif barriers is None:
        what = f"{name} has no barrier from any input"
    else:
        what = f"{name} has no barrier from " + ", ".join(plan.subtask_name(s) for s in barriers)
    details = [f"{counted(own.get('inFlightBytes') or 0, 'byte')} queued"]
    held = (own.get("heldMs") or 0) / 1000
    if held >= _HELD:
        details.insert(0, f"its operators or the sink's writer have kept the task busy for {held:.1f} s")
    if gate := own.get("sourceGateReason"):
        details.append(f"gate closed: {gate}")
    return "; ".join([what, *details, "storage busy" if writing else "storage idle"])


def _listed(subtasks: list[list[Any]]) -> str:
    return ", ".join(f"{step}[{index}]" for step, index in subtasks)
