"""Options as the runtime has them, for tests of what goes by them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from checkpoint.config import CheckpointConfig, WithoutInterval
from checkpoint.gate.gate_options import GateOptions

_OF_GATES = {one.name for one in fields(GateOptions)}


def checkpoint_config(**options: Any) -> CheckpointConfig:
    """`interval=None`: a job that has none."""
    if options.get("interval", 0) is None:
        del options["interval"]
        return WithoutInterval("/checkpoints", **options)
    return CheckpointConfig("/checkpoints", **options)


def gate_options(**options: Any) -> GateOptions:
    """Options of a gate, and those of its job's checkpoints."""
    own = {name: value for name, value in options.items() if name in _OF_GATES}
    return GateOptions(checkpoint_config(**{name: options[name] for name in options if name not in own}), **own)
