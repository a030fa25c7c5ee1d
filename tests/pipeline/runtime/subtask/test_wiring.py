"""How a subtask is joined from its parts: who else reads what an edge carries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from checkpoint.errors import PermanentFailure
from pipeline import Pipeline
from pipeline.runtime.deployment import Restored
from pipeline.runtime.subtask.wiring import emitters, restore_event_time, whole
from pipeline.testing import TestingSink, TestingSource


class Writer:
    """An edge out of a step, and whether it was told that others get its records, too."""

    def __init__(self, step: str, tag: str | None = None) -> None:
        self.edge = SimpleNamespace(upstream_step=step, tag=tag)
        self.shared: bool | None = None

    def emitter(self, subtask: int, parallelism: int, max_parallelism: int, shared: bool) -> Any:
        self.shared = shared
        return self


def wired(writers: list[Writer], *chained: tuple[str | None, str | None]) -> dict[Any, Any]:
    steps = [SimpleNamespace(chained_to=step, tag=tag) for step, tag in chained]
    vertex: Any = SimpleNamespace(steps=steps, parallelism=2)
    given: Any = writers
    return emitters(vertex, 1, given, 128)


def test_a_record_that_one_edge_alone_gets_is_not_shared() -> None:
    main, side = Writer("map"), Writer("map", "late")
    assert wired([main, side], (None, None)) == {("map", None): [main], ("map", "late"): [side]}
    assert (main.shared, side.shared) == (False, False)


def test_a_record_that_two_edges_get_is_shared() -> None:
    one, two = Writer("map"), Writer("map")
    assert wired([one, two]) == {("map", None): [one, two]}
    assert (one.shared, two.shared) == (True, True)


def test_a_record_that_a_chained_step_gets_too_is_shared() -> None:
    main, side = Writer("map"), Writer("map", "late")
    wired([main, side], (None, None), ("map", None), ("other", "late"))
    assert (main.shared, side.shared) == (True, False)


@pytest.mark.parametrize("error", [ValueError("no"), TypeError("no"), KeyError("no"), ZeroDivisionError("no")])
def test_what_does_not_fit_whole_files_fails_every_time(error: Exception) -> None:
    with pytest.raises(PermanentFailure, match=r"keyed state can't be restored: .*no"), whole("keyed state"):
        raise error


@pytest.mark.parametrize("error", [OSError("disk"), PermanentFailure("says all")])
def test_what_says_so_itself_or_may_pass_is_left_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, whole("keyed state"):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("same", [False, True])
def test_event_time_gets_what_all_old_subtasks_had_of_the_head_and_of_each_step(same: bool) -> None:
    calls: list[Any] = []
    event_time: Any = SimpleNamespace(
        restore=lambda *given: calls.append(("input", *given)),
        restore_watermarks=lambda *given: calls.append(given),
    )
    p = Pipeline("job")
    p.source("in", TestingSource()).sink("out", TestingSink())
    plan = p.plan()
    vertex = plan.vertices[0]
    watermarks = {"a": [{"idle": False}], "b": [{"idle": True}, {"idle": False}]}
    restored = Restored(event_time={vertex.head.id: [{"subtask": 0}]}, watermarks=watermarks)
    restore_event_time(event_time, restored, plan, vertex, 0, 128, same)
    assert calls == [("input", [{"subtask": 0}], {}, same), *((step, had, same) for step, had in watermarks.items())]
