"""Where an attempt starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from attempt_parts import job_options
from option_values import checkpoint_config

from checkpoint.storage.storage import CheckpointStorage
from pipeline import Pipeline
from pipeline.runtime.driver.start.start_point import StartPoints
from pipeline.testing import TestingSink, TestingSource


@pytest.mark.parametrize("rewind", [False, True])
def test_without_a_restore_no_lineage_is_rewound_and_all_attempts_have_one(tmp_path: Path, rewind: bool) -> None:
    """Else sinks would write beside output that is there already."""
    p = Pipeline("job")
    p.source("in", TestingSource()).sink("out", TestingSink())
    storage = CheckpointStorage(tmp_path.as_uri(), "job")
    storage.prepare()
    points = StartPoints(job_options(p.plan(), rewind=rewind), storage, checkpoint_config(), "")
    first, second = points.begin(0), points.begin(1)
    assert (first.rewind, second.rewind) == (False, False)
    assert first.lineage == second.lineage
    assert (first.lineage[1], first.largest_id, first.restored) == (None, 0, None)
    assert second.ownership.attempt == first.ownership.attempt + 1
