"""All rules, in the order in which people want to know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.diagnosis import (
    about_checkpoints,
    about_event_time,
    about_load,
    about_partitions,
    about_records,
    about_state,
)
from pipeline.diagnosis.sentence import Sentence, note


def diagnose(
    status: Mapping[str, Any], under_way: Mapping[str, Any] | None, newest: Mapping[str, Any] | None, now: float
) -> list[Sentence]:
    """Troubles come first. Never empty.

    Args:
        status: a job's, with `graph` and `subtasks`, as the REST interface gives it.
        under_way: the oldest checkpoint in progress, with the parts of its subtasks as far as they are known.
        newest: likewise the newest one that was completed or has failed.
        now: in seconds since 1970.
    """
    said = [
        *about_state.sentences(status, now),
        *about_load.sentences(status),
        *about_partitions.sentences(status),
        *about_checkpoints.sentences(status, under_way, newest, now),
        *about_event_time.sentences(status),
        *about_records.sentences(status),
    ]
    if not said:
        said = [note("job", "There is nothing to say: the job runs, and no rule has found anything unusual.")]
    return sorted(said, key=lambda one: one.severity != "trouble")
