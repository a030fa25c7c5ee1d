"""A rule broken on purpose is found: what the simulation checks has teeth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from jobs.faults import FAULTS, broken
from jobs.graph import Graph
from jobs.shapes import (
    CUSTOM,
    FORWARD,
    KEYED,
    REBALANCE,
    chain,
    forward_behind_keyed,
    two_sinks,
    with_rules,
    with_timers,
)
from jobs.simulation import Simulation, SimulationFailed

_CALM: dict[str, Any] = {
    "lost": 0.0,
    "storage_failures": 0.0,
    "markers_lost": 0.0,
    "takeovers": 0.0,
    "timeout": 60.0,
    "tolerable_failures": 1000,
    "savepoints": False,
    "stops": 0.0,
    "edges_change": 0.0,
    "ignores_in_flight": 0.0,
    "idle_after": None,
    "first_window": None,
    "exactly_once": True,
}
_UNALIGNED: dict[str, Any] = {
    **_CALM,
    "alignment": 0.0,
    "max_concurrent": 3,
    "interval": 0.2,
    "storage_seconds": 0.002,
    "crashes": 6,
    "crash_moments": ("complete",),
    "driver_crashes": 1.0,
    "storm": 3000,
    "keep_parallelism": 1.0,
}
_RESCALED: dict[str, Any] = {**_UNALIGNED, "keep_parallelism": 0.0}
_CROWDED: dict[str, Any] = {
    **_UNALIGNED,
    "alignment": None,
    "savepoints": True,
    "slow_steps": ("op1",),
    "buffer_bytes": 2048,
    "linger": 0.0,
    "interval": 0.5,
    "crashes": 0,
    "storm": 6000,
}
"""Aligned barriers wait in output queues, and those of savepoints overtake them."""
_STOPPED: dict[str, Any] = {**_UNALIGNED, "stops": 0.6, "crashes": 1}


def _two_keyed_hops() -> Graph:
    return chain(KEYED, KEYED, FORWARD)


def _forward_first() -> Graph:
    """Splits move when the source is rescaled, and what they had in flight stays behind."""
    return with_rules(FORWARD, KEYED)


_RULES: dict[str, tuple[Callable[[], Graph], dict[str, Any]]] = {
    # snapshots and barriers
    "half_built_batches_left": (_two_keyed_hops, _UNALIGNED | {"linger": 0.3}),
    "batch_in_progress_left": (_two_keyed_hops, _UNALIGNED | {"slow_steps": ("op0",)}),
    "polled_counts_as_emitted": (_two_keyed_hops, _UNALIGNED | {"slow_steps": ("op",)}),
    "barriers_left_not_awaited": (lambda: chain(KEYED, CUSTOM, REBALANCE), _UNALIGNED | {"alignment": 0.05}),
    "captures_not_awaited": (_two_keyed_hops, _UNALIGNED | {"slow": ("wire",)}),
    "aligned_barriers_are_passed_by": (lambda: chain(KEYED, KEYED, FORWARD, records=30), _CROWDED),
    "broadcast_overtakes": (with_rules, _UNALIGNED | {"slow_steps": ("op",)}),
    "asks_ignore_the_min_pause": (
        _two_keyed_hops,
        _CALM | {"min_pause": 0.2, "max_span_records": 3, "crashes": 0, "interval": 1.0},
    ),
    # what was in flight
    "restored_data_not_first": (_two_keyed_hops, _UNALIGNED | {"slow_steps": ("op",)}),
    "restored_rest_left": (_two_keyed_hops, _UNALIGNED | {"slow_steps": ("op",), "interval": 0.1}),
    "restored_rest_joins_channels": (_two_keyed_hops, _UNALIGNED | {"slow_steps": ("op",), "interval": 0.1}),
    "sources_do_not_wait_for_the_replay": (_forward_first, _RESCALED | {"slow_steps": ("op",)}),
    "restore_barriers_overtake": (_forward_first, _RESCALED | {"slow_steps": ("op",)}),
    "replaying_not_marked": (
        _forward_first,
        _RESCALED | {"keep_parallelism": 0.5, "interval": 0.1, "crashes": 8, "slow_steps": ("op",)},
    ),
    "forward_edges_carry_no_key_groups": (
        forward_behind_keyed,
        _RESCALED | {"slow_steps": ("op1",), "interval": 0.1, "crashes": 8},
    ),
    "changed_edges_are_taken_for_the_same": (
        lambda: chain(CUSTOM, KEYED, REBALANCE),
        _UNALIGNED | {"edges_change": 1.0, "slow_steps": ("op0", "sink")},
    ),
    "leaving_out_in_flight_drops_state": (_two_keyed_hops, _UNALIGNED | {"ignores_in_flight": 1.0}),
    # event time
    "restored_watermarks_tell_for_new_channels": (_two_keyed_hops, _RESCALED | {"slow_steps": ("op",)}),
    "broadcast_channels_hold_nothing_back": (
        lambda: with_rules(CUSTOM),
        _RESCALED | {"slow_steps": ("rules", "op"), "crash_moments": ()},
    ),
    "broadcast_inputs_left_out_of_event_time": (with_rules, _UNALIGNED | {"slow": ("wire",)}),
    "timers_not_restored": (with_timers, _UNALIGNED | {"slow_steps": ("op",)}),
    "timers_fire_behind_their_watermark": (with_timers, _UNALIGNED),
    "idle_inputs_end_event_time": (with_timers, _UNALIGNED | {"idle_after": 0.2, "crashes": 0}),
    "drains_not_marked": (lambda: chain(KEYED, REBALANCE), _UNALIGNED | {"stops": 1.0, "crash_moments": ()}),
    # sinks
    "committables_stay": (_two_keyed_hops, _UNALIGNED | {"slow": ("commit",)}),
    "aborted_segments_deleted": (_two_keyed_hops, _UNALIGNED | {"slow": ("report",), "timeout": 1.0, "crashes": 0}),
    "new_epochs_not_held_back": (
        lambda: chain(KEYED, KEYED, FORWARD, records=24),
        _RESCALED | {"slow": ("commit",), "storm": 6000, "max_span_records": 3},
    ),
    "a_completion_commits_its_own_epoch_only": (lambda: two_sinks(KEYED), _UNALIGNED | {"lost": 0.4, "crashes": 0}),
    "markers_ignored": (_two_keyed_hops, _UNALIGNED | {"crash_moments": ("commit",)}),
    "marker_lost_ignored": (_two_keyed_hops, _UNALIGNED | {"markers_lost": 1.0, "crash_moments": ("commit",)}),
    "savepoints_commit": (_two_keyed_hops, _UNALIGNED | {"savepoints": True, "interval": 1.0}),
    "savepoints_refer_to_the_jobs_files": (_two_keyed_hops, _STOPPED | {"savepoints": True}),
    "the_job_ends_before_its_sinks_have_committed": (lambda: two_sinks(KEYED), _CALM | {"slow": ("commit",)}),
    "owners_not_checked": (_two_keyed_hops, _UNALIGNED | {"takeovers": 1.0, "crash_moments": ()}),
}


_LONG = (
    "restore_barriers_overtake",
    "replaying_not_marked",
    "broadcast_channels_hold_nothing_back",
    "new_epochs_not_held_back",
)
"""Rules that only the further schedules show to be broken."""


def found(rule: str) -> tuple[int, str] | None:
    """The first of 500 seeds whose run shows that the rule is broken, and how."""
    make, overrides = _RULES[rule]
    with broken(rule) as faults:
        for seed in range(500):
            try:
                Simulation(seed, make(), **overrides, faults=faults).run()
            except SimulationFailed as failure:
                return seed, str(failure).splitlines()[0]
    return None


def test_every_fault_is_tried() -> None:
    assert FAULTS.keys() <= _RULES.keys()


@pytest.mark.timeout(1800)  # of a busy machine
@pytest.mark.sample(0.12)
@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=pytest.mark.full) if rule in _LONG else rule for rule in _RULES]
)
def test_a_broken_rule_is_found_within_some_hundred_schedules(rule: str) -> None:
    first = found(rule)
    assert first is not None, f"{rule}: nothing found"
    make, overrides = _RULES[rule]
    Simulation(first[0], make(), **overrides).run()  # with the rule kept, the same seed is fine
