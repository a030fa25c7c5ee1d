"""Where an attempt starts: it takes ownership of the job, and finds what it restores."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from checkpoint.config import CheckpointConfig
from checkpoint.storage import fencing
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.ownership import Ownership
from checkpoint.storage.probe import Probe, write_probe
from checkpoint.storage.restore import RestorePoint, newest
from checkpoint.storage.shared_files import SharedFiles
from checkpoint.storage.storage import CheckpointStorage
from pipeline.errors import PipelineError
from pipeline.runtime.driver.cleanup import Cleanup
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.owner_liveness import refuse_living_owner
from pipeline.runtime.driver.start.start_checks import check_sinks, claims_output, restore_point, unclaimed_output
from pipeline.runtime.driver.start.start_positions import StartPositions, recorded_starts
from pipeline.runtime.driver.start.state_fit import find_states, migrations, unfit_states
from pipeline.runtime.driver.uncommitted import uncommitted_output
from pipeline.runtime.packing import pack_plan
from pipeline.runtime.topology_changes import describe

_LOG = logging.getLogger(f"weir.{__name__}")

LineageId = tuple[str, tuple[str, int] | None]
"""A lineage, and the checkpoint of another one that it branches off from, if any."""


@dataclass(frozen=True)
class StartPoint:
    """What one attempt owns and restores."""

    storage: CheckpointStorage
    """The job's folder."""
    ownership: Ownership
    plan: bytes
    """Packed, with sources that know where they begin."""
    point: RestorePoint | None
    """What is restored."""
    claimed: bool
    """Whether output that it holds and that is not committed is this job's to commit."""
    lineage: LineageId
    rewind: bool
    """The lineage is still to be branched off by a rewind."""
    retained: tuple[CheckpointRef, ...]
    """The good checkpoints in the job's folder, oldest first."""
    shared: SharedFiles
    """What these refer to."""
    cleanup: Cleanup
    largest_id: int
    """The largest id of the checkpoints in the folder and of the restored one; 0 without any."""
    probe: Probe | None
    """By which every process shows that it sees the folder, if it may be local."""

    @property
    def restored(self) -> CheckpointMetadata | None:
        return self.point.metadata if self.point is not None else None

    @property
    def restored_storage(self) -> CheckpointStorage:
        """Where the files of what is restored are."""
        return self.point.storage if self.point is not None else self.storage

    def __str__(self) -> str:
        point = self.point
        return "nothing" if point is None else f"{point.metadata.kind.noun} {point.ref.id} at {point.uri}"


class StartPoints:
    """Where each attempt of one job starts, one after the other."""

    def __init__(self, options: JobOptions, storage: CheckpointStorage, config: CheckpointConfig, address: str):
        """
        Args:
            config: of the pipeline, or what stands for it if it has none.
            address: where the job can be asked, for those who find that it runs; empty if it can't.
        """
        self._o = options
        self._storage = storage
        self._config = config
        self._address = address
        self._positions = StartPositions(options.plan, pack_plan(options.plan), self._say)
        self._ownership: Ownership | None = None
        self._restored: RestorePoint | None = None
        """By the newest attempt."""
        self._damaged: dict[CheckpointRef, str] = {}
        """Checkpoints that subtasks found to be damaged, and what they said."""
        self._lineage: LineageId | None = None
        self._fits = ""
        """URI of a checkpoint whose states fit."""
        self._first: RestorePoint | None = None
        """What the first attempt would restore, as it was checked."""

    def check(self, restarted: bool = False) -> None:
        """See that nothing stands against a start, while the job that it would take over still runs.

        Args:
            restarted: for an attempt after the first.

        Raises:
            PipelineError, DamagedFile, StorageError, PermanentFailure: something does.
        """
        if not restarted and not self._o.take_over:
            refuse_living_owner(self._storage, self._o.name)
        point = restore_point(self._o, self._storage, restarted, self._damaged)
        if not restarted:
            self._first = point
            self._check_states(point)
        recorded, said = recorded_starts(self._storage, point, "latest" if restarted else self._o.restore)
        for text in said:
            self._say(text)
        self._positions.plan_for(point.metadata if point else None, recorded)
        if point is not None and self._o.restore != "latest":
            check_sinks(self._o, point)

    @cached_property
    def holds_output(self) -> bool:
        """Whether what the first attempt would restore has output that is not known to be committed."""
        point = self._first
        if point is None:
            return False
        try:
            pipeline = point.metadata.pipeline
            return uncommitted_output(self._o.plan, pipeline, point.metadata, point.storage) is not None
        except Exception as error:  # of sinks of users, too, or of brokers that don't answer
            _LOG.debug("job %s: whether its output is committed can't be told: %s", self._o.name, error)
            return True

    def begin(self, number: int) -> StartPoint:
        """Take ownership, and record what is restored: from now on this attempt, the `number`-th from 0, has the job.

        Raises:
            PipelineError, DamagedFile, StorageError, PermanentFailure: it can't be.
        """
        o, storage = self._o, self._storage
        if self._ownership is None:
            if number:
                self.check(restarted=True)
            if not o.take_over:
                refuse_living_owner(storage, o.name)  # one that has come while Spark started
        # A driver whose job was taken over meanwhile must not take it back, as a restart would.
        ownership = self._ownership = fencing.take_ownership(storage, address=self._address, held=self._ownership)
        point = self._restored = restore_point(o, storage, number > 0, self._damaged)
        if not number:
            self._check_states(point)
        metadata = point.metadata if point else None
        recorded, _ = recorded_starts(storage, point, "latest" if number else o.restore)
        plan = self._positions.plan_for(metadata, recorded)
        claimed = self._claims(point)
        self._note_left_out(point)
        own = point.ref_in(storage) if point else None
        origin = point.uri if point and own is None else None
        identity = metadata.identity if metadata else None
        fencing.record_restored(storage, ownership, own, origin, identity, claimed, self._positions.starts)
        retained = tuple(storage.list_checkpoints())
        loaded, unreadable = _load(storage, retained)
        probe = write_probe(storage) if storage.location.startswith("file:") else None
        lineage, rewind = self._choose_lineage(metadata, claimed)
        return StartPoint(
            storage=storage,
            ownership=ownership,
            plan=plan,
            point=point,
            claimed=claimed,
            lineage=lineage,
            rewind=rewind,
            retained=retained,
            shared=SharedFiles.of(loaded),
            cleanup=Cleanup(storage, ownership, loaded, unreadable),
            largest_id=max(storage.largest_id(), metadata.id if metadata else 0),
            probe=probe,
        )

    def replan(self, options: JobOptions) -> None:
        """The next attempts go by these options, which differ in their plan's parallelism."""
        if options.plan is not self._o.plan:
            self._positions.replan(options.plan)
        self._o = options

    def note_damage(self, what: str) -> None:
        """What was restored can't be read, as a subtask says; the next attempt begins from another checkpoint.

        Raises:
            DamagedFile: no other one is to be, or can be, restored instead.
            StorageError: that can't be seen.
        """
        assert self._restored is not None
        self._damaged[self._restored.ref] = what
        newest(self._storage, self._config.on_damaged, self._damaged)

    def forget_checkpoints(self, committed: int) -> None:
        """`retain_on_cancel=False`: a cancelled job leaves nothing to restore.

        Args:
            committed: checkpoints up to this id are committed by every sink.
        """
        storage = self._storage
        if self._ownership is None:
            return  # cancelled before it owned them
        try:
            refs = storage.list_checkpoints()
            loaded, _ = _load(storage, refs)
            left = None
            if loaded and committed < loaded[-1].id:
                left = uncommitted_output(self._o.plan, self._o.name, loaded[-1], storage)
            if left is not None:
                self._say(
                    f"it was cancelled, and {left}: its checkpoints are kept in spite of retain_on_cancel=False, so "
                    "that a later start can commit it"
                )
                return
            shared = SharedFiles.of(loaded)
            for ref in refs:
                fencing.check(storage, self._ownership)
                storage.delete_checkpoint(ref)
                for handle in shared.discard(ref.id):
                    storage.delete_file(handle)
            if (record := storage.restore_record()) is not None and record.starts:
                # Where its sources had begun is forgotten, too.
                fencing.check(storage, self._ownership)
                fencing.record_restored(storage, fencing.take_ownership(storage), None)
        except (StorageError, fencing.Fenced):
            _LOG.exception("the checkpoints of cancelled job %s could not all be deleted", self._o.name)

    def _check_states(self, point: RestorePoint | None) -> None:
        """
        Raises:
            PipelineError: states that it holds don't fit what the operators declare.
        """
        if point is None or point.uri == self._fits:
            return
        plan, metadata = self._o.plan, point.metadata
        try:
            snapshots = {
                id: [point.storage.unspill(snapshot) for snapshot in metadata.operator(id)] for id in metadata.step_ids
            }
            found = find_states(point, snapshots)
        except DamagedFile:
            return  # who reads its state finds that, too, and then `on_damaged` counts
        unfit = [misfit.message for misfit in unfit_states(plan, metadata.id, found)]
        if unfit:
            raise PipelineError("\n".join(unfit))
        for text in migrations(plan, found):
            self._say(text)
        self._fits = point.uri

    def _say(self, text: str) -> None:
        _LOG.warning("job %s: %s", self._o.name, text)

    def _note_left_out(self, point: RestorePoint | None) -> None:
        if point is None or point.ref.id != self._o.ignore_in_flight:
            return
        rows = ", ".join(f"{count} {describe(edge)}" for edge, count in point.left_out.items())
        self._say(
            f"checkpoint {point.ref.id} is restored without its in-flight data; records dropped: {rows or 'none'}"
        )

    def _claims(self, point: RestorePoint | None) -> bool:
        """Whether output that was prepared and is not committed is this job's to commit."""
        claimed = claims_output(self._o, point)
        if point is not None and not claimed:
            left = unclaimed_output(self._o, point)
            if left is not None:
                self._say(left)
        return claimed

    def _choose_lineage(self, restored: CheckpointMetadata | None, claimed: bool) -> tuple[LineageId, bool]:
        """The attempt's lineage, and whether it is still to be branched off by a rewind. A fork branches off, too."""
        if restored is None:
            # Kept over attempts: nothing of it may have been committed, but its markers may have been written.
            if self._lineage is None:
                self._lineage = (uuid.uuid4().hex, None)
            return self._lineage, False
        recorded = (restored.lineage, restored.lineage_parent)
        rewind = self._o.rewind
        if not (rewind or not claimed) or (self._lineage is not None and restored.lineage == self._lineage[0]):
            self._lineage = recorded
            return recorded, False
        if self._lineage is None:
            self._lineage = (uuid.uuid4().hex, (restored.lineage, restored.id))
        return self._lineage, rewind


def _load(
    storage: CheckpointStorage, refs: Sequence[CheckpointRef]
) -> tuple[tuple[CheckpointMetadata, ...], tuple[CheckpointRef, ...]]:
    """The checkpoints' metadata, and those whose metadata is damaged; none of them needs to be restored."""
    loaded, unreadable = [], []
    for ref in refs:
        try:
            loaded.append(storage.load(ref))
        except DamagedFile as error:
            _LOG.warning("an older checkpoint is damaged: %s", error)
            unreadable.append(ref)
    return tuple(loaded), tuple(unreadable)
