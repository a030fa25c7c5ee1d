"""Where sources begin that no checkpoint has state of: settled by the first start, and the same for all that follow."""

from __future__ import annotations

import copy
import itertools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.storage import fencing
from checkpoint.storage.errors import StorageError
from checkpoint.storage.metadata import CheckpointMetadata
from checkpoint.storage.ownership import RestoreRecord
from checkpoint.storage.storage import CheckpointStorage
from pipeline import CheckpointConfig, Pipeline, PipelineError
from pipeline.graph import StepKind
from pipeline.preview import preview
from pipeline.runtime.driver.start.start_point import StartPoints
from pipeline.runtime.driver.start.start_positions import StartPositions, given_up, recorded_starts
from pipeline.runtime.packing import pack_plan
from sinks import PrintSink
from sources import FileSource, SequenceSource, Source, SourceContext, SourceReader
from sources.source import _attributes

_ends: Iterator[int] = itertools.count(100)


class Log(Source):
    """Begins at the end of a log that grows all the time."""

    def __init__(self, topic: str = "orders", **more: Any) -> None:
        self.topic = topic
        self.begin: Any = None
        vars(self).update(more)

    def resolve(self) -> Source:
        resolved = copy.copy(self)
        resolved.begin = self.settled(next(_ends))
        return resolved

    def settled(self, end: int) -> Any:
        return end

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        raise NotImplementedError


class Deep(Log):
    """Copies all of it, and keeps what settles in several attributes and types."""

    def resolve(self) -> Source:
        resolved = copy.deepcopy(self)
        resolved.begin = (next(_ends), {"a": [1, None, b"x"]}, "text")
        resolved.extra = {"end": 7}  # type: ignore[attr-defined]
        return resolved


class InPlace(Log):
    """Says itself what it has settled."""

    def settled(self, end: int) -> Any:
        return {"at": end}

    def resolution(self, resolved: Source) -> Any:
        assert isinstance(resolved, InPlace)
        return resolved.begin["at"]

    def with_resolution(self, resolution: Any) -> Source:
        resolved = copy.copy(self)
        resolved.begin = {"at": resolution}
        return resolved


@dataclass(slots=True)
class Slots(Source):
    """Has its attributes elsewhere than others."""

    topic: str = "orders"
    begin: Any = None
    __end: Any = None

    def resolve(self) -> Source:
        resolved = copy.copy(self)
        resolved.begin = resolved.__end = next(_ends)
        return resolved

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        raise NotImplementedError


@dataclass(slots=True, frozen=True)
class Frozen(Source):
    topic: str = "orders"
    begin: Any = None

    def resolve(self) -> Source:
        return replace(self, begin=next(_ends))

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        raise NotImplementedError


class Itself(Log):
    def resolve(self) -> Source:
        self.begin = next(_ends)
        return self


class Shared(Log):
    """Settles in what all its copies share."""

    def __init__(self) -> None:
        super().__init__(begin={})

    def resolve(self) -> Source:
        self.begin["at"] = next(_ends)
        return self


class Fewer(Log):
    def resolve(self) -> Source:
        resolved = copy.copy(self)
        del resolved.topic
        return resolved


class Unkept(Log):
    def settled(self, end: int) -> Any:
        return lambda: end


class AnotherClass(Log):
    def resolve(self) -> Source:
        return Log(begin=next(_ends))


def pipeline(**sources: Source) -> Pipeline:
    p = Pipeline("job")
    for id, source in sources.items():
        p.source(id, source).sink(f"out-{id}", PrintSink())
    return p


class Start:
    """What a driver's start does with the folder, up to its record."""

    def __init__(self, storage: CheckpointStorage, restore: str = "latest", **sources: Source) -> None:
        plan = (
            pipeline(**sources)
            .options("latest", spark=None, claim=None, rewind=False, allow_unclaimed=False, ignore_in_flight=None)
            .plan
        )
        self.said: list[str] = []
        self.storage = storage
        self.restore = restore
        self.positions = StartPositions(plan, pack_plan(plan), self.said.append)
        recorded, said = recorded_starts(storage, None, restore)
        self.said += said
        self.positions.plan_for(None, recorded)

    def run(self, number: int = 0) -> dict[str, Any]:
        """Take ownership and record; returns the sources as subtasks get them."""
        ownership = fencing.take_ownership(self.storage, rng=random.Random())
        recorded, _ = recorded_starts(self.storage, None, "latest" if number else self.restore)
        self.positions.plan_for(None, recorded)
        plan = self.positions._plan
        fencing.record_restored(self.storage, ownership, None, starts=self.positions.starts)
        return {v.head.id: v.head.payload for v in plan.vertices if v.head.kind is StepKind.SOURCE}


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    made = CheckpointStorage(str(tmp_path), "job")
    made.prepare()
    return made


@pytest.mark.parametrize("kind", [Log, Deep, InPlace, Slots, Frozen, Itself])
def test_a_later_start_goes_on_from_what_the_first_one_has_settled(
    storage: CheckpointStorage, kind: Callable[..., Log]
) -> None:
    first = Start(storage, a=kind(), b=kind("users"))
    begun = first.run()
    assert first.said == []
    assert begun["a"].begin is not None  # type: ignore[attr-defined]
    for number in (1, 2):  # attempts of the same run
        assert _attributes(first.run(number)["a"]) == _attributes(begun["a"])
    assert first.said == []
    for _ in range(3):  # drivers that are started after its death
        again = Start(storage, a=kind(), b=kind("users"))
        found = again.run()
        assert {id: _attributes(source) for id, source in found.items()} == {
            id: _attributes(s) for id, s in begun.items()
        }
        assert {id: type(source) for id, source in found.items()} == {"a": kind, "b": kind}
        assert len(again.said) == 2
        assert "source 'a' begins where the start of" in again.said[0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"in": Log("users")}, "source 'in' begins anew, and passes over .* topic is not what it was then"),
        ({"in": Log(speed=3)}, "source 'in' begins anew.* speed is not what it was then"),
        ({"in": Log("users", speed=3)}, "speed, topic are not what they were then"),
        ({"in": Deep()}, "source 'in' begins anew.* class is not what it was then"),
        ({"in": SequenceSource(3)}, "source 'in' begins anew.* class is not"),
        ({"other": Log()}, "source 'in', which the start of .* has begun to read, is not in the pipeline any more"),
    ],
)
def test_what_is_passed_over_since_settings_have_changed_is_said(
    storage: CheckpointStorage, changed: dict[str, Source], said: str
) -> None:
    (begun,) = Start(storage, **{"in": Log()}).run().values()
    again = Start(storage, **changed)
    (found,) = again.run().values()
    assert getattr(found, "begin", None) != begun.begin
    (line,) = again.said
    assert re.search(said, line), line
    # What is begun anew counts from now on.
    third = Start(storage, **changed)
    assert vars(next(iter(third.run().values()))) == vars(found)


def test_restore_none_begins_anew_and_says_so(storage: CheckpointStorage) -> None:
    begun = Start(storage, a=Log()).run()
    none = Start(storage, "none", a=Log())
    found = none.run()
    assert found["a"].begin > begun["a"].begin
    (line,) = none.said
    assert "source 'a' begins anew" in line
    assert 'restore="none" says so' in line
    assert none.run(1)["a"].begin == found["a"].begin
    assert Start(storage, a=Log()).run()["a"].begin == found["a"].begin


@pytest.mark.parametrize("kind", [Unkept, AnotherClass, Shared, Fewer])
def test_what_cannot_be_recorded_is_said_at_both_starts(storage: CheckpointStorage, kind: Callable[..., Log]) -> None:
    first = Start(storage, a=kind())
    begun = first.run()["a"]
    assert "where it begins can't be recorded" in first.said[0]
    assert first.run(1)["a"].begin == begun.begin if kind is AnotherClass else True
    again = Start(storage, a=kind())
    assert "source 'a' begins anew, and passes over what has come since the start of" in again.said[0]
    assert "could not be recorded" in again.said[0]


def test_a_driver_that_has_settled_it_meanwhile_is_followed(storage: CheckpointStorage) -> None:
    late = Start(storage, a=Log())  # has looked, and not taken ownership yet
    begun = Start(storage, a=Log()).run()
    assert late.run()["a"].begin == begun["a"].begin
    assert len(late.said) == 1


def test_sources_that_settle_nothing_say_nothing_but_that_they_have_become_others(storage: CheckpointStorage) -> None:
    Start(storage, a=SequenceSource(10)).run()
    again = Start(storage, a=SequenceSource(10))
    again.run()
    assert again.said == []
    changed = Start(storage, a=SequenceSource(11))
    changed.run()
    assert "n is not what it was then" in changed.said[0]


def test_files_that_have_come_or_gone_between_two_starts_are_known(storage: CheckpointStorage, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_text("{}\n")
    found = Start(storage, a=FileSource(str(folder), format="jsonl")).run()["a"]
    assert sorted(file.path for file in found._fixed) == ["a", "b"]
    (folder / "a").unlink()
    (folder / "c").write_text("{}\n")
    found = Start(storage, a=FileSource(str(folder), format="jsonl")).run()["a"]
    assert sorted(file.path for file in found._fixed) == ["a", "b", "c"]
    (folder / "d").write_text("{}\n")
    found = Start(storage, a=FileSource(str(folder), format="jsonl", split_bytes=5)).run()["a"]
    assert sorted(file.path for file in found._fixed) == ["a", "b", "c", "d"]


def test_a_file_that_has_changed_between_two_starts_is_told_of(
    storage: CheckpointStorage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first one may have read what it was."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a").write_text("{}\n")
    (folder / "b").write_text("{}\n")
    Start(storage, a=FileSource(str(folder), format="jsonl")).run()
    (folder / "a").write_text('{"more": 1}\n')
    found = Start(storage, a=FileSource(str(folder), format="jsonl")).run()["a"]
    assert sorted((file.path, file.size) for file in found._fixed) == [("a", 12), ("b", 3)]
    (told,) = [record.getMessage() for record in caplog.records if "has changed" in record.getMessage()]
    assert told.startswith("a in ")


def test_a_source_that_is_new_to_a_checkpoint_is_told_of(storage: CheckpointStorage) -> None:
    """Also where an older checkpoint is restored, that is from before it came."""
    restored = CheckpointMetadata(7, 1, CheckpointKind.CHECKPOINT, "job", "L", None, 128, "1", 0.0, 0.0, {}, {})
    start = Start(storage, a=Log())
    positions = StartPositions(start.positions._definitions, b"", start.said.append)
    positions.plan_for(restored, {})
    positions.plan_for(restored, {})
    assert start.said == ["source 'a' is new to checkpoint 7: it begins where its settings say"]


def test_what_was_recorded_and_cannot_be_gone_on_from_is_an_error(storage: CheckpointStorage) -> None:
    class Refuses(Log):
        def with_resolution(self, resolution: Any) -> Source:
            raise ValueError("that log is gone; restore none")

    Start(storage, a=Refuses()).run()
    with pytest.raises(PipelineError, match="step 'a': that log is gone; restore none"):
        Start(storage, a=Refuses())


def test_a_plan_says_where_its_sources_begin(tmp_path: Path) -> None:
    from checkpoint.config import CheckpointConfig

    def job(source: Source) -> Pipeline:
        p = Pipeline("job", checkpoints=CheckpointConfig(str(tmp_path)))
        p.source("in", source).sink("out", PrintSink())
        return p

    storage = CheckpointStorage(str(tmp_path), "job")
    storage.prepare()
    assert not any("begins" in warning for warning in preview(job(Log())).warnings)
    Start(storage, **{"in": Log()}).run()
    for source, restore, said in (
        (Log(), "latest", "source 'in' begins where the start of"),
        (Log("users"), "latest", "topic is not what it was then"),
        (Log(), "none", 'restore="none" says so'),
    ):
        assert any(said in warning for warning in preview(job(source), restore).warnings)


def test_another_restore_than_the_one_it_belongs_to_gives_it_up() -> None:
    record = RestoreRecord(1, None, frozenset(), "file:///a", "l/1-1")
    assert list(given_up(record, "so")) == []


# -- a crash at any operation on the storage ---------------------------------------------------------------------------


class Crash(BaseException):
    pass


class Crashing(CheckpointStorage):
    """Ends the process at one of its writing operations, before or after it."""

    left = -1

    def _step(self, operation: Callable[[], None]) -> None:
        self.left -= 1
        if self.left == -1:
            raise Crash
        operation()
        self.left -= 1
        if self.left == -1:
            raise Crash

    def put(self, path: str, data: bytes) -> None:
        self._step(lambda: CheckpointStorage.put(self, path, data))

    def remove(self, paths: Any) -> None:
        self._step(lambda: CheckpointStorage.remove(self, paths))


@settings(max_examples=12)
@given(st.lists(st.tuples(st.integers(0, 14), st.sampled_from(["latest", "latest", "none"])), min_size=1, max_size=4))
def test_crashes_at_any_step_leave_what_was_settled_before_the_first_record(
    tmp_path_factory: pytest.TempPathFactory, starts: list[tuple[int, str]]
) -> None:
    folder = str(tmp_path_factory.mktemp("job"))
    CheckpointStorage(folder, "job").prepare()
    reading: Any = None
    """Where those begin that may have read."""
    for left, restore in [*starts, (1_000, "latest")]:
        storage = Crashing(folder, "job")
        storage.left = left
        start = Start(storage, restore, a=Log())
        before = reading
        try:
            found = start.run()["a"].begin
        except Crash:
            record = CheckpointStorage(folder, "job").restore_record()
            # Without its record no subtask has started.
            if record is not None and restore == "none":
                reading = Start(CheckpointStorage(folder, "job"), a=Log()).run()["a"].begin
            continue
        except StorageError:
            raise AssertionError("a crashed start must not keep the next one from starting") from None
        if restore == "latest" and before is not None:
            assert found == before
        reading = found


def test_a_start_from_nothing_says_which_positions_it_gives_up(
    storage: CheckpointStorage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Start(storage, orders=Log()).run()
    options = pipeline(orders=Log()).options(
        "none", spark=None, claim=None, rewind=False, allow_unclaimed=False, ignore_in_flight=None
    )
    StartPoints(options, storage, CheckpointConfig(str(tmp_path)), "").check()
    assert 'restore="none" says so' in caplog.text
