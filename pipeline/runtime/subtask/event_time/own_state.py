"""Which of the states of all old subtasks a subtask goes on from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Identity(NamedTuple):
    """Which subtask of its vertex this is."""

    subtask: int
    parallelism: int

    def mark(self) -> dict[str, int]:
        """Part of its state, by which `own` finds it."""
        return self._asdict()

    def own(self, states: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
        """The state of this very subtask, if the parallelism is the same."""
        mark = self.mark().items()
        return next((state for state in states if mark <= state.items()), None)

    def heirs(self, states: Sequence[Mapping[str, Any]]) -> set[int]:
        """The old subtasks whose operator state comes here."""
        heirs = {state["subtask"] for state in states if state["subtask"] % self.parallelism == self.subtask}
        return heirs or {self.subtask % state["parallelism"] for state in states}
