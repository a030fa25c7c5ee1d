"""Options: what they may be, and what a wrong one says."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.failure_rate import AtMost
from checkpoint.state_backends import RocksDb
from pipeline import BufferConfig, CheckpointConfig, Pipeline, PipelineError, RestartStrategy


def test_durations_are_seconds_or_timedeltas_everywhere() -> None:
    half = timedelta(milliseconds=500)
    config = CheckpointConfig("/var/lib/weir", interval=half, timeout=timedelta(minutes=2), min_pause=half)
    assert (config.interval_s, config.timeout_s, config.min_pause_s) == (0.5, 120.0, 0.5)
    buffers = BufferConfig(target=half, linger=timedelta(0))
    assert (buffers.target_s, buffers.linger_s) == (0.5, 0.0)
    assert RestartStrategy.fixed_delay(delay=half).delay == 0.5
    strategy = RestartStrategy.exponential(initial=half, maximum=timedelta(minutes=1), reset_after=timedelta(hours=1))
    assert (strategy.delay, strategy.max_delay, strategy.reset_after) == (0.5, 60.0, 3600.0)


def test_options_that_are_not_given_have_the_values_that_help_tells() -> None:
    assert asdict(CheckpointConfig("/var/lib/weir")) == {
        "uri": "/var/lib/weir",
        "interval": 10.0,
        "first": "output",
        "timeout": 600.0,
        "min_pause": 0.0,
        "max_concurrent": 1,
        "slow_storage_span": 60.0,
        "tolerable_failures": 0,
        "alignment": "unaligned",
        "mode": "exactly_once",
        "retained": 1,
        "retain_on_cancel": True,
        "state_backend": "heap",
        "incremental": False,
        "compression": "lz4",
        "inline_bytes": 131_072,
        "local_recovery": False,
        "on_damaged": "fail",
    }
    assert asdict(RocksDb()) == {"memory": 256 * 1024 * 1024, "options": "default", "folder": None}
    assert asdict(AtMost(0.5)) == {"share": 0.5, "within": 60, "minimum": 10}


def test_a_savepoint_of_a_job_that_aligns_overtakes_after_a_second() -> None:
    def savepoint(**options: Any) -> float | None:
        return CheckpointConfig("/var/lib/weir", **options).alignment_timeout_of(CheckpointKind.SAVEPOINT)

    assert savepoint() == 0.0
    assert savepoint(alignment="aligned") == 1.0
    assert savepoint(alignment=5) == 5.0
    assert savepoint(mode="at_least_once") is None


def test_the_last_checkpoint_of_a_job_that_is_stopped_leaves_time_for_what_is_in_flight() -> None:
    def last(kind: CheckpointKind = CheckpointKind.FINAL, **options: Any) -> float | None:
        return CheckpointConfig("/var/lib/weir", **options).alignment_timeout_of(kind, stops=True)

    assert last() == last(alignment=0.05) == last(CheckpointKind.SAVEPOINT) == 1.0
    assert last(alignment=5) == 5.0
    assert last(alignment="aligned") is None
    assert last(CheckpointKind.SAVEPOINT, alignment="aligned") == 1.0
    assert last(mode="at_least_once") is None


@pytest.mark.parametrize("alignment", ["aligned", "unaligned", 5])
@pytest.mark.parametrize("kind", list(CheckpointKind))
@pytest.mark.parametrize("stops", [True, False])
def test_what_is_to_overtake_does_so_from_the_start_unless_records_may_come_twice(
    alignment: Any, kind: CheckpointKind, stops: bool
) -> None:
    def overtaking(**options: Any) -> float | None:
        config = CheckpointConfig("/var/lib/weir", alignment=alignment, **options)
        return config.alignment_timeout_of(kind, stops=stops, unaligned=True)

    assert overtaking() == 0.0
    assert overtaking(mode="at_least_once") is None


@pytest.mark.parametrize("uri", ["file:///var/lib/weir", "s3://bucket/weir?region=x", "/var/lib/weir"])
def test_a_checkpoint_folder_is_a_uri_or_an_absolute_path(uri: str) -> None:
    assert CheckpointConfig(uri).uri == uri


def test_a_checkpoint_folder_may_be_a_path() -> None:
    assert CheckpointConfig(Path("/var/lib/weir")).uri == "/var/lib/weir"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"uri": "relative/folder"},
            "uri, the checkpoint folder, must be a URI such as file:///var/lib/weir or an absolute path",
        ),
        ({"uri": Path("relative/folder")}, "absolute path, not 'relative/folder'"),
        ({"uri": b"/var/lib/weir"}, "uri, the checkpoint folder, must be a URI"),
        ({"interval": 0}, "interval must be at least 0.01 s, not 0"),
        ({"interval": -1}, "interval must be at least 0.01 s, not -1"),
        ({"interval": "10"}, "interval must be seconds or a timedelta, not '10'"),
        ({"interval": None}, "interval must be seconds or a timedelta, not None"),
        ({"interval": math.inf}, "interval must be a finite number of seconds"),
        ({"interval": math.nan}, "interval must be at least 0.01 s, not nan"),
        ({"timeout": timedelta(seconds=-1)}, "timeout must be at least 0.01 s, not -1"),
        ({"min_pause": -0.1}, "min_pause must be at least 0 s, not -0.1"),
        ({"min_pause": math.inf}, "min_pause must be a finite number of seconds"),
        ({"min_pause": True}, "min_pause must be seconds or a timedelta, not True"),
        ({"slow_storage_span": -0.5}, "slow_storage_span must be at least 0 s, not -0.5"),
        ({"max_concurrent": 0}, "max_concurrent must be a whole number of at least 1, not 0"),
        ({"max_concurrent": 1.0}, "max_concurrent must be a whole number of at least 1, not 1.0"),
        ({"tolerable_failures": -1}, "tolerable_failures must be a whole number of at least 0, not -1"),
        ({"retained": 0}, "retained must be a whole number of at least 1, not 0"),
        ({"retained": True}, "retained must be a whole number of at least 1, not True"),
        ({"retain_on_cancel": "yes"}, "retain_on_cancel must be True or False, not 'yes'"),
        ({"mode": "exactly-once"}, "mode must be one of exactly_once, at_least_once, not 'exactly-once'"),
        ({"alignment": "sometimes"}, 'alignment must be "unaligned", "aligned" or a number of seconds'),
        ({"alignment": -1.0}, "alignment must be at least 0 s, not -1"),
        ({"alignment": math.inf}, 'alignment must be a finite number of seconds; use "aligned" to align always'),
        ({"alignment": None}, "alignment must be seconds or a timedelta, not None"),
        ({"state_backend": "rocks"}, "state_backend must be one of heap, rocksdb, RocksDb(…), not 'rocks'"),
        ({"state_backend": {"memory": 1}}, "memory of RocksDb must be a whole number of bytes, at least 16777216"),
        ({"compression": "gzip"}, "compression must be one of lz4, zstd, none, not 'gzip'"),
        ({"inline_bytes": -1}, "inline_bytes must be a whole number of bytes, at least 0, not -1"),
        ({"local_recovery": 1}, "local_recovery must be True or False, not 1"),
        ({"incremental": "yes"}, "incremental must be True or False, not 'yes'"),
        ({"first": "now"}, "first must be one of output, interval, not 'now'"),
        ({"on_damaged": "skip"}, "on_damaged must be one of fail, previous, not 'skip'"),
    ],
)
def test_a_wrong_checkpoint_option_says_which_values_it_may_have(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        CheckpointConfig(**{"uri": "/var/lib/weir", **options})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({}, 0.0),
        ({"alignment": "unaligned"}, 0.0),
        ({"alignment": "aligned"}, None),
        ({"alignment": timedelta(milliseconds=50)}, 0.05),
        ({"alignment": 2}, 2.0),
        ({"alignment": 2, "mode": "at_least_once"}, None),
    ],
)
def test_an_alignment_is_a_time_after_which_barriers_overtake(options: dict[str, Any], seconds: float | None) -> None:
    assert CheckpointConfig("/var/lib/weir", **options).alignment_timeout_s == seconds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_bytes": 100}, "max_bytes must be a whole number of bytes, at least 2048, not 100"),
        ({"max_bytes": 1e6}, "max_bytes must be a whole number of bytes"),
        ({"frame_bytes": 0}, "frame_bytes must be a whole number of bytes, at least 2048, not 0"),
        ({"frame_bytes": 4096, "max_bytes": 2048}, "frame_bytes (4096) must not be above max_bytes (2048)"),
        ({"target": 0}, "target must be at least 0.01 s, not 0"),
        ({"linger": -1}, "linger must be at least 0 s, not -1"),
        ({"debloat": 1}, "debloat must be True or False, not 1"),
    ],
)
def test_a_wrong_buffer_option_says_which_values_it_may_have(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        BufferConfig(**options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RestartStrategy.fixed_delay(attempts=0), "attempts must be a whole number of at least 1, not 0"),
        (lambda: RestartStrategy.fixed_delay(attempts=True), "attempts must be a whole number of at least 1, not True"),
        (lambda: RestartStrategy.fixed_delay(delay=-1), "delay must be at least 0 s, not -1"),
        (lambda: RestartStrategy.exponential(initial=0), "initial must be at least 0.001 s, not 0"),
        (lambda: RestartStrategy.exponential(5, 1), "maximum (1 s) must not be below initial (5 s)"),
        (lambda: RestartStrategy.exponential(multiplier=0.5), "multiplier must be a number of at least 1, not 0.5"),
        (lambda: RestartStrategy.exponential(multiplier="2"), "multiplier must be a number of at least 1, not '2'"),
        (lambda: RestartStrategy.exponential(multiplier=math.nan), "multiplier must be a number of at least 1"),
        (lambda: RestartStrategy.exponential(jitter=1), "jitter must be a fraction from 0 to below 1, not 1"),
        (lambda: RestartStrategy.exponential(jitter=-0.1), "jitter must be a fraction from 0 to below 1, not -0.1"),
        (lambda: RestartStrategy.exponential(jitter="x"), "jitter must be a fraction from 0 to below 1, not 'x'"),
        (lambda: RestartStrategy.exponential(attempts=0), "attempts must be a whole number of at least 1 or None"),
    ],
)
def test_a_wrong_restart_option_says_which_values_it_may_have(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "name must be non-empty and work as a folder name, not ''"),
        ({"name": "a/b"}, "work as a folder name, not 'a/b'"),
        ({"name": ".."}, "work as a folder name, not '..'"),
        ({"name": 5}, "work as a folder name, not 5"),
        ({"parallelism": 0}, "parallelism must be a whole number from 1 to 32767, not 0"),
        ({"parallelism": True}, "parallelism must be a whole number from 1 to 32767, not True"),
        ({"max_parallelism": 40_000}, "max_parallelism must be a whole number from 1 to 32767, not 40000"),
        ({"max_parallelism": "128"}, "max_parallelism must be a whole number from 1 to 32767, not '128'"),
        ({"checkpoints": "/var/lib/weir"}, "checkpoints must be a CheckpointConfig, not '/var/lib/weir'"),
        ({"restart": 3}, "restart must be a RestartStrategy, not 3"),
        ({"buffers": 1 << 20}, "buffers must be a BufferConfig, not 1048576"),
    ],
)
def test_a_wrong_pipeline_option_says_which_values_it_may_have(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        Pipeline(**{"name": "job", **options})
    assert message in str(caught.value)
