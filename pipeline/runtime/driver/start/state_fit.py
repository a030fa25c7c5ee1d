"""Whether the states of a checkpoint fit what the pipeline's operators declare, as far as its files say: no state is
read for that, only what each file says about itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from checkpoint.state.binding import descriptors_of
from checkpoint.state.contents import StateContent
from checkpoint.state.evolution import ADVICE, content_misfits
from checkpoint.state.files import load_footer
from checkpoint.state.operator_lists import KINDS
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.metadata import OperatorSnapshot
from checkpoint.storage.restore import RestorePoint
from pipeline.graph import StepKind
from pipeline.plan import Plan, PlannedStep
from pipeline.runtime.driver.start.restore_plan import Misfit, undeclared

_AT_ONCE: Final = 16
"""Files that are looked into at the same time; most of it is waiting."""


@dataclass
class StatesFound:
    """The states of one step in a checkpoint."""

    names: set[str] = field(default_factory=set)
    """Of keys, timers included; none of files that don't say so."""
    contents: dict[str, list[StateContent]] = field(default_factory=dict)
    """What their values are, of all states of which the checkpoint says it; files may say different things."""

    def add(self, name: str, content: StateContent) -> None:
        known = self.contents.setdefault(name, [])
        if content not in known:
            known.append(content)


def find_states(point: RestorePoint, snapshots: Mapping[str, Iterable[OperatorSnapshot]]) -> dict[str, StatesFound]:
    """The states of each step.

    Args:
        snapshots: whole (see `CheckpointStorage.unspill`), by step id.

    Raises:
        DamagedFile, StorageError: a file can't be looked into.
    """
    files: dict[FileHandle, StatesFound] = {}
    found: dict[str, StatesFound] = {}
    for id, of_step in snapshots.items():
        states = found[id] = StatesFound()
        for snapshot in of_step:
            files.update(dict.fromkeys((listed.file for listed in snapshot.keyed_state), states))
            for name, content in _of_subtask(snapshot.state):
                states.add(name, content)
    if files:
        with ThreadPoolExecutor(min(len(files), _AT_ONCE), thread_name_prefix="weir-check") as pool:
            footers = pool.map(lambda file: load_footer(point.storage, file), files)
            for states, footer in zip(files.values(), footers, strict=True):
                states.names.update(footer.states)
                for name, content in footer.contents.items():
                    states.add(name, content)
    return found


def _of_subtask(state: Mapping[str, Any]) -> Iterator[tuple[str, StateContent]]:
    """Broadcast state, operator list and union state."""
    for name, wire in state.get("broadcast_contents", {}).items():
        yield name, StateContent.from_wire(wire)
    for kind in KINDS:
        for name, chunks in state.get(kind, {}).items():
            for _, _, *wire in chunks:
                if wire:
                    yield name, StateContent.from_wire(wire[0])


def unfit_states(plan: Plan, checkpoint_id: int, found: Mapping[str, StatesFound]) -> Iterator[Misfit]:
    """States whose values don't fit, and that have no `migrate`."""
    for step, name, problems, migrated in _evolved(plan, found):
        if not migrated:
            yield Misfit(
                f"checkpoint {checkpoint_id}: values of state {name!r} of step {step.id!r} "
                f"({type(step.payload).__qualname__}) don't fit: {'; '.join(problems)}. {ADVICE}",
                (step.id,),
            )


def migrations(plan: Plan, found: Mapping[str, StatesFound]) -> Iterator[str]:
    """What `migrate` changes, of each state where it has to."""
    for step, name, problems, migrated in _evolved(plan, found):
        if migrated:
            yield f"values of state {name!r} of step {step.id!r} are migrated, since {'; '.join(problems)}"


def _evolved(plan: Plan, found: Mapping[str, StatesFound]) -> Iterator[tuple[PlannedStep, str, list[str], bool]]:
    for vertex in plan.vertices:
        for step in vertex.steps:
            if step.kind is not StepKind.PROCESS or step.id not in found:
                continue
            for name, descriptor in descriptors_of(type(step.payload)).items():
                contents = found[step.id].contents.get(name, ())
                problems = [problem for one in contents for problem in content_misfits(one, descriptor.declared)]
                if problems:
                    yield step, name, list(dict.fromkeys(problems)), descriptor.migrate is not None


def undeclared_states(
    plan: Plan,
    checkpoint_id: int,
    found: Mapping[str, StatesFound],
    snapshots: Mapping[str, Iterable[OperatorSnapshot]],
) -> Iterator[Misfit]:
    """States that no operator declares any more."""
    for vertex in plan.vertices:
        for step in vertex.steps:
            if step.id in found:
                states = [snapshot.state for snapshot in snapshots[step.id]]
                misfit = undeclared(step, checkpoint_id, found[step.id].names, states)
                if misfit is not None:
                    yield misfit
