"""Records that were left out, and output that is not committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipeline.diagnosis.sentence import Sentence, note, trouble

_PENDING: Final = 2
"""Completed checkpoints whose output may wait for its commit and it is nothing unusual."""


def sentences(status: Mapping[str, Any]) -> Iterator[Sentence]:
    for name, figures in status["vertices"].items():
        if figures["recordsFailed"]:
            last = "; ".join(figures["lastFailures"])
            yield trouble(
                "records",
                f"{name} has left out {figures['recordsFailed']:,.0f} records on which a step has failed"
                f"{f', the last of {last}' if last else ''}.",
            )
        if figures["pendingCommits"] > _PENDING:
            yield trouble(
                "output",
                f"The output of {figures['pendingCommits']:.0f} completed checkpoints is not committed yet at {name}, "
                "and so not visible.",
            )
    for metric, where in (
        ("recordsSkipped", "left out"),
        ("recordsDeadLettered", "sent to the topic for dead letters"),
    ):
        number = sum(values.get(metric) or 0 for values in status["subtasks"].values())
        if number:
            yield note("records", f"{number:,.0f} bad records that sources have read were {where}.")
