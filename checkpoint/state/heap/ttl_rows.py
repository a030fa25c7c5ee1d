"""What a snapshot has of states with a time to live: of what a store keeps for a key, what is not over by the clock as
it was when the snapshot was taken, and its stamps.
"""

from __future__ import annotations

from typing import Any

from checkpoint.state.ttl import FrozenLifetime


class _Living:
    def __init__(self, life: FrozenLifetime) -> None:
        self._life = life
        self.clock_name: str = life.clock_name


class LivingValues(_Living):
    def living(self, kept: Any) -> tuple[bytes, Any] | None:
        stamp, value = kept
        return None if self._life.over(stamp) else (self._life.packed((stamp,)), value)


class LivingLists(_Living):
    def living(self, kept: Any) -> tuple[bytes, Any] | None:
        life, (stamps, items) = self._life, kept
        if min(stamps) <= life.bound:
            living = [i for i, stamp in enumerate(stamps) if not life.over(stamp)]
            stamps, items = [stamps[i] for i in living], [items[i] for i in living]
        return (life.packed(stamps), items) if items else None


class LivingDicts(_Living):
    def living(self, kept: Any) -> tuple[bytes, Any] | None:
        life, (stamps, values) = self._life, kept
        if min(stamps.values()) <= life.bound:
            values = {map_key: value for map_key, value in values.items() if not life.over(stamps[map_key])}
        return (life.packed([stamps[map_key] for map_key in values]), values) if values else None
