"""What a job that is cancelled by a signal says of where it stands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.runtime.driver.signals import Watched


def row(id: int, status: str, parts: int = 0) -> Any:
    return SimpleNamespace(id=id, status=status, subtasks=(None,) * parts)


def standing(*rows: Any, stopped: bool = False) -> str:
    master: Any = SimpleNamespace(history=SimpleNamespace(rows=lambda: list(rows)), stopped=stopped)
    return Watched("job", master, 30).standing()


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "It has not completed a checkpoint in this run. The next start goes on where this one did"),
        (
            [row(1, "failed")],
            "It has not completed a checkpoint in this run. The next start goes on where this one did",
        ),
        (
            [row(1, "failed"), row(2, "in_progress", 3)],
            "Checkpoint 2 was under way, with the parts of 3 subtasks. The next start goes on where this one did",
        ),
        (
            [row(1, "completed"), row(3, "completed"), row(2, "completed")],
            "The next start goes on from checkpoint 3; output behind it is not committed",
        ),
        (
            [row(1, "completed"), row(2, "in_progress", 1), row(3, "in_progress")],
            "Checkpoint 2 was under way, with the parts of 1 subtask; checkpoint 3 was under way, with the parts of 0 "
            "subtasks. The next start goes on from checkpoint 1; output behind it is not committed",
        ),
    ],
)
def test_the_next_start_goes_on_from_what_is_complete(rows: list[Any], says: str) -> None:
    assert standing(*rows) == says


def test_a_job_whose_last_checkpoint_is_complete_has_output_left_to_commit() -> None:
    says = "Its last checkpoint 4 is complete, its output not all committed: the next start commits it"
    assert standing(row(3, "completed"), row(4, "completed"), row(5, "in_progress"), stopped=True) == says
