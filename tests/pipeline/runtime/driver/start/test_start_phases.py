"""The phases of a start, their times, and a start that is refused before Spark is there."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import JobFailed, Pipeline, PipelineError
from pipeline.broker.ports import free_ports
from pipeline.logs import level
from pipeline.runtime.driver.start.start_phases import OUTPUT_PHASES, PHASES, StartPhases
from sinks import KafkaSink
from sources import KafkaSource


@given(st.lists(st.floats(0, 100), min_size=len(PHASES), max_size=len(PHASES)), st.integers(1, len(PHASES)))
def test_each_phase_lasts_until_the_next_begins(lengths: list[float], begun: int) -> None:
    phases, now = StartPhases(), 1000.0
    assert (phases.current, phases.seconds(now)) == (None, {})
    for phase, length in list(zip(PHASES, lengths, strict=True))[:begun]:
        phases.begin(phase, now)
        phases.begin(phase, now + length / 2)  # goes on
        assert phases.current == phase
        now += length
    assert phases.seconds(now) == pytest.approx(dict(list(zip(PHASES, lengths, strict=True))[:begun]))
    phases.run(now)
    assert phases.current is None
    assert phases.seconds(now + 50) == pytest.approx(phases.seconds(now))
    assert all(f"{phase} " in phases.in_words() for phase in PHASES[:begun])


@given(st.lists(st.floats(0, 100), min_size=3, max_size=3))
def test_the_phases_of_the_output_follow_in_their_order_and_once(lengths: list[float]) -> None:
    phases, now = StartPhases(), 1000.0
    phases.begin("checks", now)
    assert not phases.reach("first record", now), "the job doesn't run"
    phases.run(now := now + 1)
    assert not phases.reach("commit", now), "of what was restored"
    for phase, length in zip(OUTPUT_PHASES, lengths, strict=True):
        now += length
        assert phases.reach(phase, now)
        assert not phases.reach(phase, now + 1)
    assert phases.current is None
    assert phases.seconds(now + 50) == pytest.approx({"checks": 1, **dict(zip(OUTPUT_PHASES, lengths, strict=True))})


def test_brokers_that_refuse_are_told_together_without_waiting_and_before_spark_starts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    there, here = (f"127.0.0.1:{port}" for port in free_ports(2))
    p = Pipeline("refused")
    p.source("in", KafkaSource(there, topics=["a"], end="latest")).sink("out", KafkaSink(here, topic="b", key=None))
    with caplog.at_level(logging.INFO):
        handle = p.start()
        with pytest.raises(JobFailed) as failed:
            handle.wait(300)
    message = str(failed.value)
    assert f"step 'in': cannot list topics at {there}" in message
    assert f"step 'out': no Kafka broker listens at {here}" in message
    assert "waited up to" not in message  # for an answer that can't come any more
    assert list(handle.start_phases) == ["checks"]
    told = [one for one in caplog.records if one.levelno == logging.INFO and one.name.startswith("weir")]
    assert [record.message for record in told] == [
        f"job refused: starting at {handle.address}",
        "job refused: checking the pipeline, its sources, sinks and checkpoints",
    ]


# -- where the log goes -----------------------------------------------------------------------------------------------

SAY = """
import logging
{before}
from pipeline.logs import log_by_default
log_by_default()
log_by_default()
logging.getLogger("weir.pipeline.handle").info("hello")
logging.getLogger("weir.sources.kafka").warning("look")
logging.getLogger("other").info("not ours")
"""


@pytest.mark.parametrize(
    ("before", "variables", "expected"),
    [
        ("", {}, ["INFO    hello", "WARNING look"]),
        ("", {"WEIR_LOG_LEVEL": "warning"}, ["WARNING look"]),
        ("logging.getLogger('weir').setLevel('ERROR')", {}, []),
        ("logging.basicConfig(format='own %(message)s')", {}, ["own look"]),
        ("logging.basicConfig(format='own %(message)s', level='INFO')", {}, ["own hello", "own look", "own not ours"]),
        ("logging.getLogger('weir').addHandler(logging.NullHandler())", {}, []),
    ],
)
def test_a_script_hears_of_its_job_unless_it_has_set_logging_up(
    before: str, variables: dict[str, str], expected: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SAY.format(before=before)],
        env={"PATH": "", **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    lines = done.stderr.splitlines()
    own = "own" in before
    assert [line if own else line.split(maxsplit=2)[2] for line in lines] == expected
    assert own or all(line[4] == "-" and line[13] == ":" for line in lines), "with date and time"


def test_everything_is_logged_through_the_one_logger() -> None:
    root = Path(__file__).parents[5]
    found = {
        f"{path}: {name}"
        for package in ("pipeline", "sources", "sinks", "formats", "checkpoint")
        for path in (root / package).rglob("*.py")
        for name in re.findall(r"getLogger\(([^)]+)\)", path.read_text())
        if name not in ("LOGGER", "of_others") and not name.startswith(('f"weir.', '"weir.', '"py4j'))
    }
    assert found == set()


def test_a_level_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_LOG_LEVEL", "loud")
    with pytest.raises(PipelineError, match="WEIR_LOG_LEVEL must be one of DEBUG, INFO"):
        level("INFO")
