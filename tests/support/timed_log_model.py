"""As `log_model`, where state has a time to live, which changes between runs. Clocks go on, are behind after a restart
or aren't known for long; and each subtask has its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import log_model
import ttl_model
from log_model import GROUPS, Checkpoint
from ttl_model import STATES, TTLS, Entry

from checkpoint.codec import encode_key
from checkpoint.key_groups import key_group
from checkpoint.state import TTL, KeyedBackend
from checkpoint.storage.storage import CheckpointStorage

Ttls = dict[str, TTL | None]
_STEPS = (0, 1, 250, 499, 500, 501, 1000)
"""Milliseconds."""


class Subtask(log_model.Subtask):
    """What its backend says is compared with a model."""

    def __init__(
        self,
        make: Callable[[range, int], KeyedBackend],
        storage: CheckpointStorage,
        groups: range,
        attempt: int,
        model: ttl_model.Subtask,
    ) -> None:
        super().__init__(make, storage, groups, attempt)
        self.model = model
        self.backend, self.op = model.backend, model.op

    def change(self, rng: random.Random, key: int) -> None:
        op, model, value, name = self.at(key), self.model, rng.randrange(1000), rng.randrange(4)
        model.record.timestamp = rng.choice([None, rng.randrange(4000)])
        match rng.randrange(11):
            case 0 | 1:
                op.total.value = value
                model.put("total", key, value)
            case 2:
                op.bag.value.append(value)
                if not model.read("bag", key):
                    model.put("bag", key, [])
                model.living("bag", key)[0].value.append(value)
            case 3:
                op.sum.add(value)
                before = model.read("sum", key)
                model.put("sum", key, value + (before[0].value if before else 0))
            case 4 | 5:
                op.items.append(value)
                model.add("items", key, [value])
            case 6 | 7:
                op.seen[name] = [value]
                model.put("seen", key, [value], name)
            case 8:
                there = model.read("seen", key, name)
                assert op.seen.get(name) == (there[0].value if there else None)
            case 9:
                op.seen.pop(name, None)
                model.entries["seen", key] = [entry for entry in model.living("seen", key) if entry.name != name]
            case 10:
                state = rng.choice(STATES)
                getattr(op, state).clear()
                model.entries[state, key] = []
        self.backend.clear_current_key()

    def check(self) -> None:
        expected = {place: ttl_model.content(place[0], entries) for place, entries in self.model.frozen().items()}
        assert self.state() == expected


@dataclass
class Job(log_model.Job):
    ttls: Ttls = field(default_factory=dict)
    kept: dict[int, tuple[Ttls, dict[tuple[str, Any], list[Entry]]]] = field(default_factory=dict)
    """What each checkpoint has by the model."""
    wall: int = 10_000
    skew: int = 0

    def start(self, point: Checkpoint | None, parallelism: int) -> None:
        if not self.ttls or self.rng.random() < 0.3:
            self.ttls = {state: self.rng.choice(TTLS) for state in STATES}
        self.wall += self.rng.choice(_STEPS)
        self.skew = self.rng.choice([0, 200, -200])
        super().start(point, parallelism)

    def subtask(self, groups: range) -> log_model.Subtask:
        model = ttl_model.Subtask(self.make, groups, self.ttls, self._clock(len(self.subtasks)))  # type: ignore[arg-type]
        return Subtask(self.make, self.storage, groups, self.attempt, model)

    def _clock(self, index: int) -> int:
        return self.wall + index * self.skew

    def check_restored(self, point: Checkpoint) -> None:
        ttls, kept = self.kept[point.id]
        watermark = self.rng.choice([None, self.rng.randrange(2000)])
        for subtask in self._subtasks():
            model = subtask.model
            for (state, key), entries in kept.items():
                if key_group(encode_key(key), GROUPS) in subtask.groups:
                    model.take_over(state, key, entries, ttls[state])
            if watermark is not None:
                model.moves("event", watermark)
                model.backend.event_clock.passed(watermark)
            subtask.check()

    def _subtasks(self) -> list[Subtask]:
        return [subtask for subtask in self.subtasks if isinstance(subtask, Subtask)]

    def change(self) -> None:
        chosen = self.rng.random()
        if chosen < 0.1:
            self.wall += self.rng.choice(_STEPS)
            for index, subtask in enumerate(self._subtasks()):
                subtask.model.moves("processing", self._clock(index))
                subtask.backend.processing_clock.read(self._clock(index))
        elif chosen < 0.2:
            model = self.rng.choice(self._subtasks()).model
            to = (model.now["event"] or 0) + self.rng.choice(_STEPS)
            model.moves("event", to)
            model.backend.event_clock.passed(to)
        elif chosen < 0.25:
            for subtask in self.subtasks:
                subtask.backend.remove_expired()
        else:
            super().change()

    def barrier(self) -> None:
        self.kept[self.next_id] = self.ttls, {}
        for subtask in self._subtasks():
            subtask.check()
            self.kept[self.next_id][1].update(subtask.model.frozen())
        super().barrier()
