"""Which partition runs which subtask, so that subtasks come back where copies of their state lie (pure)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from checkpoint.storage.local_copies import Copy, copy_of
from pipeline.runtime.deployment import Restored


@dataclass(frozen=True, slots=True)
class Slot:
    """A Spark partition that has come up."""

    folder: str
    """Where its local copies are: partitions with the same one find the same."""
    copies: frozenset[Copy] = frozenset()
    """What it found there."""


def wish(restored: Restored) -> dict[Copy, int]:
    """The copies that would serve a subtask, and how many bytes each holds for it.

    With another parallelism these are several, of all old subtasks whose keys it takes over.
    """
    wanted: Counter[Copy] = Counter()
    keyed = (listed.file for files in restored.keyed_state.values() for listed in files)
    for handle in (*keyed, *(handle for _, handle in restored.in_flight.files)):
        if not handle.inline and (copy := copy_of(handle.path)):
            wanted[copy] += handle.size
    return dict(wanted)


def place(slots: Sequence[Slot], wishes: Sequence[Mapping[Copy, int]]) -> list[int]:
    """The partition of each subtask.

    As many subtasks as possible come to a folder that holds most of what they want, those that want much first; of the
    others, and within a folder, subtask i comes to partition i where that is free.

    Args:
        slots: by partition.
        wishes: by subtask; as many.
    """
    capacity = Counter(slot.folder for slot in slots)
    choices = [_choices(i, slots, wanted) for i, wanted in enumerate(wishes)]
    chosen = _match(sorted(range(len(wishes)), key=lambda i: -sum(wishes[i].values())), choices, capacity)
    return _partitions(slots, chosen, capacity)


def _choices(subtask: int, slots: Sequence[Slot], wanted: Mapping[Copy, int]) -> list[str]:
    """The folders that hold at least half as much of it as the one that holds most, the best first."""
    held: defaultdict[str, set[Copy]] = defaultdict(set)
    for slot in slots:
        held[slot.folder] |= slot.copies & wanted.keys()
    sizes = {folder: sum(wanted[copy] for copy in copies) for folder, copies in held.items() if copies}
    least = max(sizes.values(), default=0) / 2
    own = slots[subtask].folder
    good = (folder for folder, size in sizes.items() if size >= least)
    return sorted(good, key=lambda folder: (-sizes[folder], folder != own, folder))


def _match(order: Sequence[int], choices: Sequence[Sequence[str]], capacity: Mapping[str, int]) -> dict[int, str]:
    """Folders for as many subtasks as possible, by augmenting paths; a subtask that has got one keeps having one, so
    those that come first in `order` win."""
    seats: dict[str, list[int]] = {folder: [] for folder in capacity}

    def seat(subtask: int, visited: set[str]) -> bool:
        for folder in choices[subtask]:
            if folder in visited:
                continue
            visited.add(folder)
            if len(seats[folder]) < capacity[folder]:
                seats[folder].append(subtask)
                return True
            for place, other in enumerate(seats[folder]):
                if seat(other, visited):
                    seats[folder][place] = subtask
                    return True
        return False

    for subtask in order:
        seat(subtask, set())
    return {subtask: folder for folder, subtasks in seats.items() for subtask in subtasks}


def _partitions(slots: Sequence[Slot], chosen: Mapping[int, str], capacity: Mapping[str, int]) -> list[int]:
    """A partition in each subtask's folder, and any for those without one."""
    spare = Counter(capacity)
    spare.subtract(chosen.values())
    placed: dict[int, int] = {}
    for i, slot in enumerate(slots):
        if chosen.get(i) == slot.folder:
            placed[i] = i
        elif i not in chosen and spare[slot.folder] > 0:
            placed[i] = i
            spare[slot.folder] -= 1
    taken = set(placed.values())
    free: defaultdict[str, list[int]] = defaultdict(list)
    for i in reversed(range(len(slots))):
        if i not in taken:
            free[slots[i].folder].append(i)
    for subtask in sorted(chosen.keys() - placed.keys()):
        placed[subtask] = free[chosen[subtask]].pop()
    left = sorted(i for partitions in free.values() for i in partitions)
    placed.update(zip((i for i in range(len(slots)) if i not in placed), left, strict=True))
    return [placed[i] for i in range(len(slots))]
