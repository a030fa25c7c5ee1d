"""Which process becomes which subtask, and with what of the restored checkpoint."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from checkpoint.in_flight.runs import Origin
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.handles import FileHandle
from checkpoint.storage.metadata import OperatorSnapshot
from checkpoint.storage.probe import finish_probe
from pipeline.errors import PipelineError
from pipeline.plan import Vertex
from pipeline.runtime import error_text
from pipeline.runtime.deployment import Deployment, Restored
from pipeline.runtime.driver.attempt_context import AttemptContext
from pipeline.runtime.driver.failures import AttemptFailed
from pipeline.runtime.driver.start.placement import Slot, place, wish
from pipeline.runtime.driver.start.restore_plan import restored_for, without_pending
from pipeline.runtime.restored_in_flight import ask_custom_partitioners, in_flight_for
from pipeline.runtime.topology_changes import same_topology


class Process(Protocol):
    """One that is ready for a subtask."""

    @property
    def partition(self) -> int: ...

    @property
    def address(self) -> tuple[str, int]: ...

    @property
    def slot(self) -> Slot: ...


def deployments(context: AttemptContext, processes: Sequence[Process], replay: bool) -> list[Deployment]:
    """The place of each process.

    Args:
        processes: all of them, by partition.
        replay: whether sources wait until what was in flight has been replayed.

    Raises:
        AttemptFailed: a process doesn't see the checkpoint folder, or what is to be restored can't be.
    """
    c = context
    _check_folder(c, processes)
    restored = _Restoring(c).by_subtask()
    partitions = place([process.slot for process in processes], [wish(one) for one in restored])
    subtask_in = {partition: subtask for subtask, partition in enumerate(partitions)}
    subtasks = [subtask_in[index] for index in range(len(processes))]
    addresses = {subtask: process.address for subtask, process in zip(subtasks, processes, strict=True)}
    unchanged = c.start.restored is not None and same_topology(c.start.restored, c.plan)
    return [
        Deployment(
            subtask=subtask,
            peers=addresses,
            lineage=c.start.lineage,
            restored_checkpoint=c.start.restored.id if c.start.restored else 0,
            restored_from=(c.start.restored_storage.uri, c.start.restored_storage.pipeline),
            rewind=c.start.rewind,
            ignore_earlier_output=c.job.restore == "none",
            fork=c.start.restored is not None and c.start.restored.pipeline != c.spec.pipeline,
            allow_unclaimed=c.job.allow_unclaimed,
            replay=replay,
            same_topology=unchanged,
            restore=restored[subtask],
        )
        for subtask in subtasks
    ]


def _check_folder(c: AttemptContext, processes: Sequence[Process]) -> None:
    if c.start.probe is None:
        return
    try:
        finish_probe(c.start.storage, c.start.probe, [str(process.partition) for process in processes])
    except StorageError as error:
        raise AttemptFailed(str(error), permanent=c.spec.first_attempt) from error


class _Restoring:
    """What of the restored checkpoint comes to which subtask."""

    def __init__(self, context: AttemptContext):
        self._c = context
        self._spilled: dict[FileHandle, Mapping[str, Any]] = {}
        """State that was too large for `_metadata`, by file."""

    def by_subtask(self) -> list[Restored]:
        c = self._c
        if c.start.restored is None:
            return [Restored() for _ in range(c.plan.subtasks)]
        with _failing():
            assigned = self._ask_custom_partitioners()
            return [
                self._of(vertex, subtask - vertex.first_subtask, assigned)
                for vertex in c.plan.vertices
                for subtask in vertex.subtasks
            ]

    def _ask_custom_partitioners(self) -> Mapping[Origin, array[int]]:
        assert self._c.start.restored is not None
        try:
            return ask_custom_partitioners(self._c.start.restored, self._c.plan, self._c.start.restored_storage)
        except (DamagedFile, StorageError):
            raise
        except Exception as error:  # of the user's
            told = f"restoring in-flight data failed: {error_text.summary(error)}\n{error_text.trace(error)}"
            raise AttemptFailed(told) from error

    def _of(self, vertex: Vertex, index: int, assigned: Mapping[Origin, array[int]]) -> Restored:
        c, most = self._c, self._c.spec.max_parallelism
        assert c.start.restored is not None
        restored = restored_for(vertex, index, c.start.restored, most, self._load_state, c.job.allow_unclaimed)
        if not c.start.claimed:
            restored = without_pending(restored, markers=c.start.restored.pipeline == c.spec.pipeline)
        return replace(restored, in_flight=in_flight_for(vertex, index, c.start.restored, c.plan, most, assigned))

    def _load_state(self, snapshot: OperatorSnapshot) -> Mapping[str, Any]:
        """The state of a step in an old subtask. Every new subtask asks for it, so a file is read once for all."""
        handle = snapshot.state_file
        if handle is None:
            return snapshot.state
        if handle not in self._spilled:
            self._spilled[handle] = self._c.start.restored_storage.unspill(snapshot).state
        return self._spilled[handle]


@contextmanager
def _failing() -> Iterator[None]:
    """Whatever goes wrong fails the attempt."""
    try:
        yield
    except DamagedFile as error:
        raise AttemptFailed(str(error), damaged=str(error)) from error
    except StorageError as error:
        raise AttemptFailed(str(error)) from error
    except PipelineError as error:
        raise AttemptFailed(f"{type(error).__name__}: {error}", permanent=True) from error
