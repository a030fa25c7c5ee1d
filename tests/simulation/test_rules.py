"""A rule broken on purpose is found: what the simulation checks has teeth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulated.graph import Graph
from simulated.shapes import CUSTOM, FORWARD, KEYED, REBALANCE, chain, with_rules
from simulated.simulation import Simulation, SimulationFailed

from checkpoint.in_flight.output_queue import OutputQueue

_SEEDS = 400
_CALM: dict[str, Any] = {
    "lost": 0.0,
    "storage_failures": 0.0,
    "markers_lost": 0.0,
    "timeout": 60.0,
    "savepoints": False,
}
_UNALIGNED: dict[str, Any] = {
    **_CALM,
    "exactly_once": True,
    "alignments": (0.0,),
    "max_concurrent": 3,
    "interval": 0.2,
    "storage_seconds": 0.01,
    "crashes": 6,
    "crash_moments": ("complete",),
    "storm": 3000,
    "keep_parallelism": 1.0,
}
_RESCALED: dict[str, Any] = {**_UNALIGNED, "keep_parallelism": 0.0}


def _two_keyed_hops() -> Graph:
    return chain(KEYED, KEYED, FORWARD)


def _forward_first() -> Graph:
    """Splits move when the source is rescaled, and what they had in flight stays behind."""
    return chain(FORWARD, KEYED, FORWARD)


_RULES: dict[str, tuple[Callable[[], Graph], dict[str, Any]]] = {
    # design §3
    "half_built_batches_left": (_two_keyed_hops, _UNALIGNED),
    "batch_in_progress_left": (_two_keyed_hops, _UNALIGNED),
    # §4, on demand
    "asks_ignore_the_min_pause": (_two_keyed_hops, _CALM | {"min_pause": 0.2, "first_window": 1, "crashes": 0}),
    # §4
    "restored_data_not_first": (_two_keyed_hops, _UNALIGNED | {"slow": ("work",)}),
    "restored_rest_joins_channels": (_two_keyed_hops, _UNALIGNED | {"slow": ("work",)}),
    "sources_do_not_wait_for_the_drain": (_forward_first, _RESCALED | {"slow": ("work op0-0",)}),
    "restore_barriers_overtake": (_forward_first, _RESCALED | {"slow": ("work op0-0",)}),
    "draining_not_marked": (
        _forward_first,
        _RESCALED
        | {
            "keep_parallelism": 0.5,
            "interval": 0.1,
            "input_room": 4,
            "output_room": 4,
            "batch_rows": 2,
            "crashes": 8,
            "slow": ("work op0-0",),
        },
    ),
    "broadcast_overtakes": (with_rules, _UNALIGNED),
    "barriers_left_not_awaited": (lambda: chain(KEYED, CUSTOM, REBALANCE), _UNALIGNED | {"alignments": (0.05,)}),
    "forward_edges_carry_no_key_groups": (
        lambda: chain(KEYED, FORWARD, KEYED, FORWARD),
        _RESCALED | {"slow": ("work op1",), "interval": 0.1},
    ),
    "restored_watermarks_tell_for_new_channels": (_two_keyed_hops, _RESCALED | {"slow": ("work",)}),
    "broadcast_channels_hold_nothing_back": (
        lambda: with_rules(FORWARD),
        _RESCALED | {"slow": ("work rules",), "crash_moments": ()},
    ),
    # §7
    "polled_counts_as_emitted": (_two_keyed_hops, _UNALIGNED),
    "committables_stay": (_two_keyed_hops, _UNALIGNED | {"slow": ("commit",)}),
    "aborted_segments_deleted": (_two_keyed_hops, _UNALIGNED | {"slow": ("report",)}),
    "new_epochs_not_held_back": (
        lambda: chain(KEYED, KEYED, FORWARD, records=24),
        _RESCALED | {"slow": ("commit sink-0",), "storm": 6000, "max_span_records": 3},
    ),
    "markers_ignored": (_two_keyed_hops, _UNALIGNED | {"crash_moments": ("commit",)}),
    "marker_lost_ignored": (
        _two_keyed_hops,
        _UNALIGNED | {"markers_lost": 1.0, "crash_moments": ("commit",)},
    ),
    "savepoints_commit": (_two_keyed_hops, _UNALIGNED | {"savepoints": True, "interval": 1.0}),
}


def _found(fault: str | None, make: Callable[[], Graph], overrides: dict[str, Any], seeds: int) -> int | None:
    """The first seed that finds the fault."""
    faults = frozenset() if fault is None else frozenset({fault})
    for seed in range(seeds):
        try:
            Simulation(seed, make(), **overrides, faults=faults).run()
        except SimulationFailed:
            return seed
    return None


@pytest.mark.parametrize("fault", _RULES)
def test_a_broken_rule_is_found_within_some_hundred_seeds(fault: str) -> None:
    make, overrides = _RULES[fault]
    seed = _found(fault, make, overrides, _SEEDS)
    assert seed is not None, f"{fault}: nothing found in {_SEEDS} seeds"
    Simulation(seed, make(), **overrides).run()  # with the rule kept, the same seed is fine


def test_barriers_that_overtake_older_aligned_ones_cost_these(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would overtake an aligned barrier has to turn it first; else the receiver has to give the older one up."""
    mixed = _UNALIGNED | {"alignments": (0.0, None), "slow": ("send",), "crashes": 0}

    def given_up() -> int:
        return sum(Simulation(seed, _two_keyed_hops(), **mixed).run().last.master.declined for seed in range(30))

    assert given_up() == 0
    monkeypatch.setattr(OutputQueue, "make_unaligned", lambda self, checkpoint_id: {})
    assert given_up() > 0
