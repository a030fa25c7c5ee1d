"""What a harness' snapshot holds of keyed state."""

from __future__ import annotations

from checkpoint.state import read_batches
from pipeline.testing.harness import HarnessSnapshot


def entries(snapshot: HarnessSnapshot) -> int:
    """How many keys have something, over all states."""
    if not snapshot.keyed_state:
        return 0
    return sum(len(batch.keys) for batch in read_batches(snapshot.keyed_state))
