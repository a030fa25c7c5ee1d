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


def test_a_phase_ends_with_the_output_at_the_latest() -> None:
    told = {"deploy": 3.0, "first record": 0.5, "checkpoint": 2.0, "commit": 0.1}

    def after(wait: float) -> dict[str, float]:
        phases = _phases(0.0, 1.0, 4.0, 4.0 + wait, told)
        assert (phases.pop("Python"), phases.pop("deploy")) == (1.0, 3.0)
        return phases

    assert after(0.25) == {"first record": 0.25, "checkpoint": 0.0, "commit": 0.0, "read": 0.0}
    assert after(1.5) == {"first record": 0.5, "checkpoint": 1.0, "commit": 0.0, "read": 0.0}
    assert after(4.0) == pytest.approx({"first record": 0.5, "checkpoint": 2.0, "commit": 0.1, "read": 1.4})
