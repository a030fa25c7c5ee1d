"""Where sources begin that a start restores no state of: settled once, recorded, and gone on from by later starts."""

from __future__ import annotations

import copy
import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from checkpoint.codec import DecodingError, EncodingError, decode, encode
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.ownership import RestoreRecord
from checkpoint.storage.restore import RestorePoint
from checkpoint.storage.source_starts import SourceStart, hashed
from checkpoint.storage.storage import CheckpointStorage
from pipeline.errors import PipelineError
from pipeline.plan import Plan, PlannedStep
from pipeline.runtime.packing import pack_plan
from sources.source import Source

_LOG = logging.getLogger(f"weir.{__name__}")
_SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Begin:
    """What a start does with a source that it restores no state of."""

    source: str
    kept: SourceStart | None = None
    """It goes on from there; `None`: it looks where to begin, as at a first start."""
    passes_over: str | None = None
    """Why it doesn't go on from where an earlier start has settled it."""

    @property
    def text(self) -> str | None:
        """For the log; `None` if there is nothing to say."""
        if self.kept is not None and self.kept.resolution is not None:
            return (
                f"source {self.source!r} begins where the start of {_time(self.kept)} did: no checkpoint has its state"
            )
        return self.passes_over


def fresh_sources(plan: Plan, restored: CheckpointMetadata | None) -> list[PlannedStep]:
    """Sources that the checkpoint has no state of."""
    return [
        vertex.head
        for vertex in plan.vertices
        if vertex.is_source and not (restored and restored.operator(vertex.head.id))
    ]


def how_to_begin(step: PlannedStep, kept: SourceStart | None) -> Begin:
    """
    Args:
        kept: what an earlier start has settled, if none since has had a checkpoint.
    """
    if kept is None:
        return Begin(step.id)
    source: Source = step.payload
    anew = f"source {step.id!r} begins anew, and passes over what has come since the start of {_time(kept)} as far as "
    anew += "its settings say so: "
    others = kept.differences(_kind(source), source.start_settings())
    if others:
        return Begin(
            step.id,
            passes_over=f"{anew}{', '.join(others)} {'is' if len(others) == 1 else 'are'} not what "
            f"{'it was' if len(others) == 1 else 'they were'} then, and no checkpoint has its state. To go on from "
            "there, stop the job and start it with the old settings",
        )
    if kept.lost is not None:
        return Begin(step.id, passes_over=f"{anew}where that began could not be recorded ({kept.lost})")
    return Begin(step.id, kept)


def given_up(record: RestoreRecord, why: str) -> Iterator[str]:
    """What a start says that doesn't go on from what is recorded."""
    for id, start in record.starts.items():
        yield (
            f"source {id!r} begins anew, and not where the start of {_time(start)} did, of which no checkpoint has its "
            f"state: {why}"
        )


def recorded_starts(
    storage: CheckpointStorage, point: RestorePoint | None, restore: str
) -> tuple[Mapping[str, SourceStart], list[str]]:
    """What earlier starts have settled and this one may go on from, and what to say of that which it may not.

    Args:
        restore: as of `Pipeline.start`.

    Raises:
        DamagedFile, StorageError: it can't be read.
    """
    record = storage.restore_record()
    if record is None or not record.starts:
        return {}, []
    if restore == "none":
        return {}, list(given_up(record, 'restore="none" says so'))
    if restore != "latest" and point is not None:
        own = point.ref_in(storage)
        same = record.restored == own if own is not None else record.identity == point.metadata.identity
        if not same:
            return {}, list(given_up(record, f"it belongs to another restore than that of {point.uri}"))
    return record.starts, []


class StartPositions:
    """The plan of a run, in which every source that starts from nothing knows for good where that is."""

    def __init__(self, plan: Plan, packed: bytes, say: Callable[[str], None] = _LOG.warning):
        self._definitions = plan
        self._plan = plan
        self._packed = packed
        self._say = say
        self._starts: dict[str, SourceStart] = {}
        """What is settled, by source."""
        self._recorded: dict[str, SourceStart | None] = {}
        """What was recorded when it was."""
        self._fresh: Collection[str] = ()

    def replan(self, plan: Plan) -> None:
        """From now on the plan is this one, with the same steps at another parallelism. What is settled stays."""
        settled = {vertex.head.id: vertex.head.payload for vertex in self._plan.vertices if vertex.is_source}
        self._definitions = plan
        self._plan = _with_payloads(plan, settled)
        self._packed = pack_plan(self._plan)

    @property
    def starts(self) -> dict[str, SourceStart]:
        """What is to be recorded of the plan that `plan_for` has returned last."""
        return {id: self._starts[id] for id in self._fresh}

    def plan_for(self, restored: CheckpointMetadata | None, recorded: Mapping[str, SourceStart]) -> bytes:
        """The packed plan for an attempt. Sources that `restored` has state of go on from there.

        Args:
            recorded: what earlier starts or attempts have settled.

        Raises:
            PipelineError: a source can't tell where to start.
        """
        fresh = fresh_sources(self._definitions, restored)
        self._fresh = [step.id for step in fresh]
        for step in fresh:
            if restored is not None and step.id not in self._starts and step.id not in recorded:
                self._say(f"source {step.id!r} is new to checkpoint {restored.id}: it begins where its settings say")
        sources = {
            step.id: self._settle(step, recorded.get(step.id)) for step in fresh if self._is_open(step, recorded)
        }
        for id in recorded.keys() - {vertex.head.id for vertex in self._definitions.vertices if vertex.is_source}:
            if self._recorded.get(id) != recorded[id]:
                self._recorded[id] = recorded[id]
                self._say(
                    f"source {id!r}, which the start of {_time(recorded[id])} has begun to read, is not in the "
                    "pipeline any more: what that had read, and no checkpoint has, is passed over"
                )
        if sources:
            self._plan = _with_payloads(self._plan, sources)
            self._packed = pack_plan(self._plan)
        return self._packed

    def _is_open(self, step: PlannedStep, recorded: Mapping[str, SourceStart]) -> bool:
        """Whether it is not settled, or another driver has settled it meanwhile."""
        if step.id not in self._starts:
            return True
        there = recorded.get(step.id)
        return there is not None and there not in (self._starts[step.id], self._recorded.get(step.id))

    def _settle(self, step: PlannedStep, kept: SourceStart | None) -> Source:
        begin = how_to_begin(step, kept)
        if begin.text is not None:
            self._say(begin.text)
        definition: Source = step.payload
        salt = secrets.token_hex(_SALT_BYTES)
        settings = hashed(definition.start_settings(), salt)
        try:
            if begin.kept is not None and begin.kept.resolution is not None:
                resolved = definition.with_resolution(decode(begin.kept.resolution))
            else:
                resolved = copy.copy(definition).resolve()  # it may settle in itself
        except DecodingError as error:
            raise PipelineError(
                f"step {step.id!r}: what an earlier start has settled can't be read: {error}"
            ) from error
        except Exception as error:
            raise PipelineError(f"step {step.id!r}: {error}") from error
        resolution, lost = _packed_resolution(definition, resolved)
        if hashed(definition.start_settings(), salt) != settings:
            resolution, lost = None, "resolve() has changed what the definition holds, which its copies share"
        if lost is not None:
            self._say(
                f"source {step.id!r}: where it begins can't be recorded ({lost}): a start after this one begins anew "
                "as long as there is no checkpoint. Implement resolution and with_resolution"
            )
        settled_at = time.time() if begin.kept is None else begin.kept.at
        self._starts[step.id] = SourceStart(_kind(definition), settings, salt, settled_at, resolution, lost)
        self._recorded[step.id] = kept
        return resolved


def _packed_resolution(definition: Source, resolved: Source) -> tuple[bytes | None, str | None]:
    """What `resolve` has settled, or why it can't be told."""
    try:
        resolution = definition.resolution(resolved)
        if resolution is None or resolution == {}:
            return None, None
        return encode(resolution), None
    except (EncodingError, TypeError) as error:
        return None, str(error)


def _kind(source: Source) -> str:
    return type(source).__qualname__  # a script's module has several names


def _time(start: SourceStart) -> str:
    return f"{datetime.fromtimestamp(start.at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _with_payloads(plan: Plan, payloads: dict[str, Any]) -> Plan:
    vertices = tuple(
        replace(
            vertex,
            steps=tuple(replace(step, payload=payloads.get(step.id, step.payload)) for step in vertex.steps),
        )
        for vertex in plan.vertices
    )
    return replace(plan, vertices=vertices)
