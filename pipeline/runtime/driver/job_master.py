"""A job on the driver: attempts, one after the other, until it has finished, failed or been cancelled."""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from checkpoint import failpoints
from checkpoint.config import CheckpointConfig, WithoutInterval
from checkpoint.errors import PermanentFailure
from checkpoint.storage import fencing
from checkpoint.storage.errors import DamagedFile, StorageError
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.probe import write_probe
from checkpoint.storage.restore import RestorePoint, newest
from checkpoint.storage.shared_files import SharedFiles
from checkpoint.storage.storage import CheckpointStorage
from pipeline.errors import NotEnoughSlots, PipelineError
from pipeline.runtime import error_text
from pipeline.runtime.deployment import JobSpec
from pipeline.runtime.driver.attempt import Attempt
from pipeline.runtime.driver.attempt_context import Answer, AttemptContext, CheckpointRequest, NotTriggered, Progress
from pipeline.runtime.driver.checkpoint_stats import CheckpointHistory
from pipeline.runtime.driver.cleanup import Cleanup
from pipeline.runtime.driver.failures import AttemptFailed
from pipeline.runtime.driver.gateway import lost_jvm
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.owner_liveness import refuse_living_owner
from pipeline.runtime.driver.recovery import Recovery
from pipeline.runtime.driver.restart import RestartPolicy
from pipeline.runtime.driver.slots import await_slots, require_slots
from pipeline.runtime.driver.spark_job import check_session, spark_context, stop_context
from pipeline.runtime.driver.start_checks import (
    check_sinks,
    claims_output,
    invalid_steps,
    invisible_output,
    open_gates,
    restore_point,
    shared_names,
    unclaimed_output,
)
from pipeline.runtime.driver.start_positions import StartPositions, recorded_starts
from pipeline.runtime.driver.uncommitted import uncommitted_output
from pipeline.runtime.driver.waits import Waits
from pipeline.runtime.in_flight import describe
from pipeline.runtime.liveness import LIMITS
from pipeline.runtime.packing import pack_plan
from pipeline.runtime.versions import versions
from pipeline.version import VERSION

_LOG = logging.getLogger(f"weir.{__name__}")
_RECOVERIES = 999
"""Restarts that are remembered beside the newest."""


_MASTERS: weakref.WeakSet[JobMaster] = weakref.WeakSet()


def jobs_here() -> list[JobMaster]:
    """The jobs of this process that run or are still referred to, in no set order."""
    return list(_MASTERS)


class JobMaster:
    """Runs a job in a thread of its own. What it publishes is read by `JobHandle`."""

    def __init__(self, options: JobOptions):
        _MASTERS.add(self)
        self._o = options
        self.status = "created"
        self.restarts = 0
        self.failure: str | None = None
        self.history = CheckpointHistory()
        self.progress = Progress()
        self.waits = Waits(options.name)
        self._recovered: deque[Recovery] = deque(maxlen=_RECOVERIES)
        """The restarts but the newest."""
        self._restarted: tuple[float, float, float, Progress] | None = None
        """Of the newest when the attempt before failed and ended, when the new one began, and how far it came."""
        self.address = ""
        """Where the job can be asked, if it can."""
        self.ended = threading.Event()
        self.on_ended: Callable[[], None] = lambda: None
        """Called by the job's thread at the very end."""
        self._current: Attempt | None = None
        self._lock = threading.Lock()
        """Guards `_current` and `_requests` against requests from other threads."""
        self._requests: list[tuple[CheckpointRequest, Answer]] = []
        """Who asked for a checkpoint while no attempt was under way."""
        self._stopped = False
        """The job's last checkpoint is complete, since a user wanted it to stop: what is left is to commit it."""
        self._cancelled = threading.Event()
        self._ownership: fencing.Ownership | None = None
        self._restored: RestorePoint | None = None
        """By the newest attempt."""
        self._damaged: dict[CheckpointRef, str] = {}
        """Checkpoints that subtasks found to be damaged, and what they said."""
        self._lineage: tuple[str, tuple[str, int] | None] | None = None
        self._temporary: str | None = None
        self._failed_at = self._ended_at = 0.0
        """When the attempt before failed, and when its last process was gone."""
        self._thread = threading.Thread(target=self._run, name=f"weir-job-{options.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def cancel(self) -> None:
        """End the job; returns at once."""
        self._cancelled.set()
        with self._lock:
            if self._current is not None:
                self._current.cancel()

    def request_checkpoint(self, request: CheckpointRequest, answer: Answer) -> None:
        """Ask for a checkpoint or savepoint; `answer` gets its id once it is complete, or an error."""
        if request.stop:
            answer = self._noting_stop(answer)
        with self._lock:
            if self._current is not None:
                self._current.request_checkpoint(request, answer)
                return
            if not self.ended.is_set():
                self._requests.append((request, answer))
                return
        answer(NotTriggered(f"the job is {self.status}, so no checkpoint is taken any more"))

    def _noting_stop(self, answer: Answer) -> Answer:
        def note(result: int | Exception) -> None:
            # An attempt that fails from now on must not be followed by one that reads on.
            self._stopped |= not isinstance(result, Exception)
            answer(result)

        return note

    @property
    def recoveries(self) -> list[Recovery]:
        newest = self._restarted
        return [*self._recovered, *([] if newest is None else [_recovery(*newest)])]

    @property
    def stopped(self) -> bool:
        """Its last checkpoint is complete, since somebody stopped it."""
        return self._stopped

    @property
    def name(self) -> str:
        return self._o.name

    def runs(self, payload: object) -> bool:
        """Whether it has a step with this very source, sink, operator or function."""
        return any(step.payload is payload for vertex in self._o.plan.vertices for step in vertex.steps)

    def records(self) -> tuple[int, int]:
        """How many its sources have read and its sinks have taken, in the current attempt."""
        metrics, plan = dict(self.progress.metrics), self._o.plan
        sources = {plan.subtask_name(i) for vertex in plan.vertices if vertex.is_source for i in vertex.subtasks}
        return (
            sum(int(values.get("recordsIn") or 0) for name, values in metrics.items() if name in sources),
            sum(int(values.get("recordsToSinks") or 0) for values in metrics.values()),
        )

    # -- job thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        spark, own_spark = None, False
        try:
            self.progress.start.begin("checks", time.monotonic())
            _LOG.info("job %s: checking the pipeline, its sources, sinks and checkpoints", self._o.name)
            storage, config = self._prepare()
            if not self._o.take_over:
                refuse_living_owner(storage, self._o.name)
            positions = StartPositions(self._o.plan, pack_plan(self._o.plan), self._say)
            # What must be refused is refused before Spark starts, which takes seconds.
            self._check_restore(storage, positions, restarted=False)
            self.progress.start.begin("Spark", time.monotonic())
            _LOG.info("job %s: all checks passed; Spark comes next", self._o.name)
            spark, own_spark = spark_context(self._o.spark, self._o.plan.subtasks, self._o.name)
            require_slots(spark, self._o.plan)
            _LOG.info(
                "job %s: Spark %s at %s has slots for all %d subtasks; their processes start",
                *(self._o.name, spark.version, spark.master, self._o.plan.subtasks),
            )
            self._attempts(storage, config, positions, spark)
        except (
            PipelineError,
            NotEnoughSlots,
            StorageError,
            PermanentFailure,
            ValueError,
            OSError,
            RuntimeError,
        ) as error:
            self._end("failed", self._lost_spark(spark) or error_text.summary(error))
        except BaseException as error:
            # Code of the user's runs here, too: sources and sinks check themselves.
            lost = self._lost_spark(spark)
            self._end("failed", lost or f"{error_text.summary(error)}\n{error_text.trace(error)}")
        finally:
            if own_spark and spark is not None:
                stop_context(spark)
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)
            with self._lock:
                self.ended.set()
            for _, answer in self._requests:
                answer(NotTriggered(f"the job is {self.status}, so no checkpoint is taken any more"))
            self.on_ended()

    def _lost_spark(self, spark: Any) -> str | None:
        """That Spark's JVM is gone, if it is: what that does to all who talk to it explains nothing."""
        lost = None if spark is None else lost_jvm(spark)
        if lost is None:
            return None
        return f"{lost}. Start the job again; it goes on from its newest checkpoint"

    def _say(self, text: str) -> None:
        _LOG.warning("job %s: %s", self._o.name, text)

    def _end(self, status: str, failure: str | None = None) -> None:
        self.failure = None if failure is None else error_text.clean(failure)
        self.status = status

    def _prepare(self) -> tuple[CheckpointStorage, CheckpointConfig]:
        """Check what can be checked before anything starts."""
        o, config = self._o, self._o.checkpoints
        wrong = [*shared_names(o.plan, o.name), *invalid_steps(o.plan, o.name)]
        if wrong:
            raise PipelineError("\n".join(dict.fromkeys(wrong)))
        if config is None:
            for invisible in invisible_output(o.plan):
                raise PipelineError(invisible)
            self._temporary = tempfile.mkdtemp(prefix="weir-")
            config = WithoutInterval(self._temporary, alignment="aligned", slow_storage_span=0.0)
        else:
            for warning in open_gates(o.plan, config):
                _LOG.warning("%s", warning)
        storage = CheckpointStorage(config.uri, o.name)
        storage.prepare()
        return storage, config

    def _check_restore(self, storage: CheckpointStorage, positions: StartPositions, restarted: bool) -> None:
        """A start that must be refused doesn't end the job that it would have taken over.

        Raises:
            PipelineError, DamagedFile, StorageError, PermanentFailure: it must be.
        """
        point = restore_point(self._o, storage, restarted, self._damaged)
        recorded, said = recorded_starts(storage, point, "latest" if restarted else self._o.restore)
        for text in said:
            self._say(text)
        positions.plan_for(point.metadata if point else None, recorded)
        if point is not None and self._o.restore != "latest":
            check_sinks(self._o, point)

    def _attempts(
        self, storage: CheckpointStorage, config: CheckpointConfig, positions: StartPositions, spark: Any
    ) -> None:
        policy: RestartPolicy = self._o.restart.start()
        number = 0
        while not self._cancelled.is_set():
            try:
                self._attempt(number, storage, config, positions, spark)
            except AttemptFailed as failure:
                self._ended_at = time.monotonic()
                self._failed_at = self.progress.failed_at or self._ended_at
                if self._cancelled.is_set():
                    break
                if (lost := self._lost_spark(spark)) is not None:
                    self._end("failed", lost)
                    return
                if not self._restart(failure, policy, storage, config):
                    return
            else:
                self._end("finished")
                read, written = self.records()
                level = logging.WARNING if read and not written else logging.INFO
                _LOG.log(level, "job %s finished: %s in, %s out", self._o.name, f"{read:,}", f"{written:,}")
                return
            number += 1
        self._end("cancelled")
        if not config.retain_on_cancel:
            self._forget_checkpoints(storage)

    def _restart(
        self, failure: AttemptFailed, policy: RestartPolicy, storage: CheckpointStorage, config: CheckpointConfig
    ) -> bool:
        """Whether to go on, after the strategy's delay."""
        delay: float | None
        if failure.damaged is not None:
            # Each time another checkpoint is out of the question, so this comes to an end without the strategy.
            try:
                self._note_damage(failure.damaged, storage, config)
            except StorageError as error:
                self._end("failed", error_text.summary(error))
                return False
            delay = 0.0
        else:
            delay = None if failure.permanent else policy.on_failure(time.monotonic())
        if delay is None:
            why = "" if failure.permanent else f"\n({policy.describe()})"
            self._end("failed", failure.message + why)
            return False
        self.failure = error_text.clean(failure.message)
        _LOG.warning(
            "job %s: attempt failed, restarting in %.1f s: %s",
            *(self._o.name, delay, error_text.first_line(self.failure)),
        )
        self.status = "restarting"
        self._cancelled.wait(delay)
        if not self._cancelled.is_set():
            self.restarts += 1
        return True

    def _note_damage(self, what: str, storage: CheckpointStorage, config: CheckpointConfig) -> None:
        """
        Raises:
            DamagedFile: the restored checkpoint can't be read and no other is to be, or can be, restored instead.
        """
        assert self._restored is not None
        self._damaged[self._restored.ref] = what
        newest(storage, config.on_damaged, self._damaged)

    def _attempt(
        self,
        number: int,
        storage: CheckpointStorage,
        config: CheckpointConfig,
        positions: StartPositions,
        spark: Any,
    ) -> None:
        o = self._o
        if number:
            self.progress = Progress()
            self.progress.start.begin("checks", time.monotonic())
        progress = self.progress
        if number:
            if self._restarted is not None:
                self._recovered.append(_recovery(*self._restarted))
            self._restarted = (self._failed_at, self._ended_at, time.monotonic(), progress)
        try:
            check_session(spark)
            if number:
                await_slots(spark, o.plan, self._cancelled)
            if self._ownership is not None:
                # A driver whose job was taken over meanwhile must not take it back, as a restart would.
                fencing.check(storage, self._ownership)
            elif number:
                self._check_restore(storage, positions, restarted=True)
            if self._ownership is None and not o.take_over:
                refuse_living_owner(storage, o.name)  # one that has come while Spark started
            ownership = self._ownership = fencing.take_ownership(storage, address=self.address)
            point = restore_point(o, storage, number > 0, self._damaged)
            recorded, _ = recorded_starts(storage, point, "latest" if number else o.restore)
            plan = positions.plan_for(point.metadata if point else None, recorded)
            self._restored = point
            claimed = self._claims(point)
            self._note_left_out(point)
            own = point.ref_in(storage) if point else None
            origin = point.uri if point and own is None else None
            identity = point.metadata.identity if point else None
            fencing.record_restored(storage, ownership, own, origin, identity, claimed, positions.starts)
            retained = tuple(storage.list_checkpoints())
            loaded, unreadable = _load(storage, retained)
            probe = write_probe(storage) if self._may_be_local(storage) else None
        except (DamagedFile, PermanentFailure, PipelineError) as error:
            raise AttemptFailed(error_text.summary(error), permanent=True) from error
        except StorageError as error:
            raise AttemptFailed(error_text.summary(error), permanent=number == 0) from error
        except NotEnoughSlots as error:
            raise AttemptFailed(f"NotEnoughSlots: {error}") from error
        metadata = point.metadata if point else None
        lineage, rewind = self._choose_lineage(metadata, claimed)
        context = AttemptContext(
            spec=JobSpec(
                pipeline=o.name,
                plan=plan,
                max_parallelism=o.max_parallelism,
                buffers=o.buffers,
                checkpoint_uri=storage.uri,
                checkpoints=config,
                attempt=ownership.attempt,
                ownership=ownership.to_wire(),
                versions=versions(),
                probe=probe.to_wire() if probe else None,
                failpoints=failpoints.active(),
                limits=LIMITS,
                first_attempt=number == 0,
            ),
            plan=o.plan,
            spark=spark,
            storage=storage,
            ownership=ownership,
            restored=metadata,
            restored_storage=point.storage if point else storage,
            claimed=claimed,
            commit_only=self._stopped,
            lineage=lineage,
            rewind=rewind,
            ignore_earlier_output=o.restore == "none",
            allow_unclaimed=o.allow_unclaimed,
            probe=probe,
            retained=retained,
            shared=SharedFiles.of(loaded),
            cleanup=Cleanup(storage, ownership, loaded, unreadable),
            first_id=1 + max(storage.largest_id(), metadata.id if metadata else 0, self.history.largest_id),
            history=self.history,
            host=_driver_host(spark),
            metadata_options={"weir": VERSION, "interval": config.interval_s, "retained": config.retained},
            waits=self.waits,
        )
        self.status = "running"
        progress.start.begin("deploy", time.monotonic())
        origin_told = f"{metadata.kind.noun} {point.ref.id} at {point.uri}" if point and metadata else "nothing"
        _LOG.info("job %s: attempt %d begins from %s", o.name, number + 1, origin_told)
        attempt = Attempt(context, progress)
        with self._lock:
            self._current = attempt
            for request, answer in self._requests:
                attempt.request_checkpoint(request, answer)
            self._requests.clear()
        if self._cancelled.is_set():
            attempt.cancel()
        try:
            attempt.run()
        finally:
            with self._lock:
                self._current = None
            attempt.refuse_requests()

    def _note_left_out(self, point: RestorePoint | None) -> None:
        if point is None or point.ref.id != self._o.ignore_in_flight:
            return
        rows = ", ".join(f"{count} {describe(edge)}" for edge, count in point.left_out.items())
        _LOG.warning(
            "job %s: checkpoint %d is restored without its in-flight data; records dropped: %s",
            self._o.name,
            point.ref.id,
            rows or "none",
        )

    def _claims(self, point: RestorePoint | None) -> bool:
        """Whether output that was prepared and is not committed is this job's to commit."""
        claimed = claims_output(self._o, point)
        if point is not None and not claimed:
            left = unclaimed_output(self._o, point)
            if left is not None:
                _LOG.warning("job %s: %s", self._o.name, left)
        return claimed

    def _choose_lineage(
        self, restored: CheckpointMetadata | None, claimed: bool
    ) -> tuple[tuple[str, tuple[str, int] | None], bool]:
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

    def _may_be_local(self, storage: CheckpointStorage) -> bool:
        return storage.location.startswith("file:")

    def _forget_checkpoints(self, storage: CheckpointStorage) -> None:
        """`retain_on_cancel=False`: a cancelled job leaves nothing to restore."""
        if self._ownership is None:
            return  # cancelled before it owned them
        try:
            refs = storage.list_checkpoints()
            loaded, _ = _load(storage, refs)
            left = None
            if loaded and self.progress.committed < loaded[-1].id:
                left = uncommitted_output(self._o.plan, self._o.name, loaded[-1], storage)
            if left is not None:
                _LOG.warning(
                    "job %s was cancelled, and %s: its checkpoints are kept in spite of retain_on_cancel=False, "
                    "so that a later start can commit it",
                    self._o.name,
                    left,
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


def _recovery(failed: float, ended: float, submitted: float, progress: Progress) -> Recovery:
    return Recovery(failed, ended, submitted, progress.deployed_at, progress.running_at, progress.first_commit_at)


def _driver_host(spark: Any) -> str:
    """The address that executors reach the driver at."""
    if spark.master.startswith("local"):
        return "127.0.0.1"
    host: str = spark.getConf().get("spark.driver.host", "127.0.0.1")
    return host
