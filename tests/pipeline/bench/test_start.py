"""Where the time of a start went."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.bench.start import _phases

_TOOK = st.floats(0, 100)


@given(st.dictionaries(st.sampled_from(["checks", "Spark", "first record", "checkpoint", "commit"]), _TOOK), _TOOK)
def test_what_follows_the_moment_that_the_job_runs_adds_up_to_its_output(told: dict[str, float], wait: float) -> None:
    phases = _phases(10.0, 12.0, 20.0, 20.0 + wait, told)
    assert phases["Python"] == 2.0
    after = [took for name, took in phases.items() if name not in ("Python", "checks", "Spark")]
    assert sum(after) == pytest.approx(wait)
    assert min(after) >= 0


def test_restored_output_that_comes_before_the_first_new_record_is_committed_hides_nothing() -> None:
    told = {"deploy": 3.0, "first record": 0.5, "checkpoint": 2.0, "commit": 0.1}
    assert _phases(0.0, 1.0, 4.0, 4.25, told) == {"Python": 1.0, "deploy": 3.0, "read": 0.25}
