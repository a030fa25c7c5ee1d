"""Slots: how many tasks Spark can run at once, and whether a job's subtasks all get one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from checkpoint.counted import counted
from pipeline.errors import NotEnoughSlots
from pipeline.plan import Plan

_REGISTRATION = 120.0
"""How long the executors of a cluster may take to register before slots count as missing."""
_SETTLED = 10.0
"""A standalone master starts all executors of a session at once: when some are there and none has come for so long,
no more will."""
_REPLACEMENT = 60.0
"""How long a lost executor may take to be replaced, or its host to come back."""
_POLL = 0.1
_TELL = 2.0
"""Seconds after which it is told that slots are waited for."""


def free_slots(context: Any) -> int:
    """How many tasks the context can run at once."""
    java = context._jsc.sc()
    return int(java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile()))


Tell = Callable[[str | None], None]
"""Gets what is waited for, whenever that changes; `None`: it is over."""


def require_slots(context: Any, plan: Plan, tell: Tell) -> None:
    """Check that all subtasks can run at once; Spark itself would retry for minutes. Waits as long as executors may
    still be on their way.

    Raises:
        NotEnoughSlots: with both numbers and where they come from.
    """
    most = _most_slots(context)
    if most is not None and most < plan.subtasks:
        raise not_enough_slots(context, plan, most, " (spark.cores.max)")
    standalone = context.master.startswith("spark:")
    _wait(context, plan, 0.0 if _is_local(context) else _REGISTRATION, _SETTLED if standalone else None, None, tell)


def await_slots(context: Any, plan: Plan, stop: threading.Event, tell: Tell) -> None:
    """After a failure, which may have cost an executor: wait until all subtasks can run at once again, or for `stop`.
    Submitted too early, the job would wait for Spark's next look, 15 s later.

    Raises:
        NotEnoughSlots: they did not come back within a minute; with both numbers.
    """
    _wait(context, plan, 0.0 if _is_local(context) else _REPLACEMENT, None, stop, tell)


def _wait(
    context: Any, plan: Plan, longest: float, settled: float | None, stop: threading.Event | None, tell: Tell
) -> None:
    """`settled`: slots that have not changed for so many seconds are all there will be."""
    stop = stop or threading.Event()
    start = changed = time.monotonic()
    before, told = 0, -1
    while (slots := free_slots(context)) < plan.subtasks and not stop.is_set():
        now = time.monotonic()
        if slots != before:
            before, changed = slots, now
        if now - start >= longest or (settled is not None and slots and now - changed >= settled):
            tell(None)
            raise not_enough_slots(context, plan, slots)
        if slots != told and now - start >= _TELL:
            told = slots
            tell(f"slots: it needs {plan.subtasks}, and Spark at {context.master} has {slots}")
        stop.wait(_POLL)
    tell(None)


def _is_local(context: Any) -> bool:
    return str(context.master).startswith("local")


def _most_slots(context: Any) -> int | None:
    """The most that the session's settings allow on a standalone cluster; `None` = no limit set."""
    conf = context.getConf()
    if not context.master.startswith("spark:") or not conf.contains("spark.cores.max"):
        return None
    return int(conf.get("spark.cores.max")) // int(conf.get("spark.task.cpus", "1"))


def not_enough_slots(context: Any, plan: Plan, slots: int, why: str = "") -> NotEnoughSlots:
    rows = ", ".join(f"{vertex.name} × {vertex.parallelism}" for vertex in plan.vertices)
    return NotEnoughSlots(
        f"the job needs {counted(plan.subtasks, 'slot')}, one for each subtask ({rows}), and Spark at {context.master} "
        f"has {slots}{why}; lower the parallelism, give the cluster more cores, or use master local[{plan.subtasks}]"
    )
