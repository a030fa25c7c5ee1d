"""Records that were left out, and output that is not committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from checkpoint.counted import counted
from pipeline.diagnosis.sentence import Sentence, note, trouble

_PENDING: Final = 2
"""Completed checkpoints whose output may wait for its commit and it is nothing unusual."""


def sentences(status: Mapping[str, Any]) -> Iterator[Sentence]:
    for name, figures in status["vertices"].items():
        if figures["recordsFailed"]:
            last = "; ".join(figures["lastFailures"])
            yield trouble(
                "records",
                f"{name} has left out {counted(figures['recordsFailed'], 'record')} on which a step has failed"
                f"{f', the last of {last}' if last else ''}.",
            )
        if figures["pendingCommits"] > _PENDING:
            yield trouble(
                "output",
                f"The output of {counted(figures['pendingCommits'], 'completed checkpoint')} is not committed yet at "
                f"{name}, and so not visible.",
            )
    for metric, where in (
        ("recordsSkipped", "left out"),
        ("recordsDeadLettered", "sent to the topic for dead letters"),
    ):
        number = sum(values.get(metric) or 0 for values in status["subtasks"].values())
        if number:
            yield note(
                "records",
                f"Of what sources have read, {counted(number, 'bad record was', 'bad records were')} {where}.",
            )
