"""`handle.state(step).get(key)`: what the owner of a key answers while its job runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from checkpoint_folders import JobFolder, metadata_of
from deadlines import PATIENCE, eventually
from small_job import NEVER
from threads_for_processes import job_in_threads

from checkpoint.codec import EncodingError, encode_key
from checkpoint.key_groups import key_group
from checkpoint.storage.metadata import OperatorSnapshot
from checkpoint.storage.naming import CheckpointRef
from checkpoint.storage.storage import CheckpointStorage
from pipeline import (
    AggregatingState,
    BroadcastState,
    CheckpointConfig,
    KeyedOperator,
    ListState,
    MapState,
    Pipeline,
    PipelineError,
    RestartStrategy,
    ValueState,
)
from pipeline.key_state import KeyState, KeyTimer, NotAnswered, StepState
from pipeline.runtime.driver.attempt_context import CheckpointRequest
from pipeline.runtime.driver.job_master import JobMaster
from pipeline.testing import TestingSink, TestingSource

KEYS = [f"user-{i}" for i in range(20)]


@dataclass
class Seen:
    count: int
    last: str


class Totals(KeyedOperator):
    total = ValueState(default=0)
    unused = ValueState(default=list)
    seen = ValueState[Any]()
    items = ListState[Any]()
    by_kind = MapState[Any, int]()
    average = AggregatingState(lambda: (0, 0), lambda acc, x: (acc[0] + x, acc[1] + 1), lambda acc: acc[0] / acc[1])

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """A record "hold up" leaves a file here, and waits for another one."""

    def process(self, value: Any, ctx: Any) -> Any:
        self.total.value += 1
        self.seen.value = Seen(self.total.value, value)
        self.items.append(value)
        self.by_kind[("kind", 1)] = self.total.value
        self.by_kind["other"] = 0
        self.average.add(5)
        ctx.timer(10**15)
        if value == "hold up":
            (self.folder / "reached").touch()
            eventually((self.folder / "go on").exists)
        yield value

    def on_timer(self, at: int, ctx: Any) -> None:
        pass


class OnlyTotal(KeyedOperator):
    total = ValueState(default=0)
    rules = BroadcastState[Any, Any]()

    def process(self, value: Any, ctx: Any) -> Any:
        self.total.value += 1
        yield value

    def process_connected(self, value: Any, ctx: Any) -> None:
        self.rules[value] = value


class Job:
    """Runs until its test is over; its source waits behind all keys."""

    def __init__(self, folder: Path | None, source: TestingSource, parallelism: int = 2, **options: Any) -> None:
        checkpoints = None if folder is None else CheckpointConfig(str(folder), **options)
        restart = RestartStrategy.fixed_delay(attempts=3, delay=0)
        p = Pipeline("job", parallelism=parallelism, max_parallelism=16, checkpoints=checkpoints, restart=restart)
        self.source, self.sink = source, TestingSink()
        stream = p.source("in", source).map(str, id="as text").key_by(lambda value: value)
        stream.process("totals", Totals(folder or Path())).sink("out", self.sink)
        self.master: JobMaster = job_in_threads(p)
        self.totals = StepState(self.master.options, self.master.queries, "totals")

    def get(self, *args: Any, **options: Any) -> KeyState:
        return self.totals.get(*args, **{"timeout": PATIENCE, **options})

    def start(self) -> Job:
        self.master.start()
        return self

    def checkpoint(self) -> int:
        answers: list[int | Exception] = []
        self.master.request_checkpoint(CheckpointRequest(), answers.append)
        eventually(lambda: bool(answers))
        (id,) = answers
        assert isinstance(id, int)
        return id

    def end(self) -> None:
        self.master.cancel()
        assert self.master.ended.wait(PATIENCE)


@pytest.fixture
def started() -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def start(*args: Any, **options: Any) -> Job:
        jobs.append(Job(*args, **options))
        return jobs[-1].start()

    yield start
    for job in jobs:
        job.end()


def paused(*values: Any) -> TestingSource:
    return TestingSource([*values, TestingSource.PAUSE(), *values, TestingSource.PAUSE()])


def test_the_owner_of_each_key_answers_with_all_that_it_has(tmp_path: Path, started: Any) -> None:
    job = started(tmp_path, paused(*KEYS, *KEYS), **NEVER)
    # The sink commits with a checkpoint, so what it has tells nothing here.
    eventually(lambda: all(job.get(key, "total").value == 2 for key in KEYS))
    for key in KEYS:
        found = job.get(key)
        assert found.states == {
            "total": 2,
            "seen": Seen(2, key),
            "items": [key, key],
            "by_kind": {("kind", 1): 2, "other": 0},
            "average": (10, 2),
        }
        assert found.timers == (KeyTimer(10**15, "event"),)
        assert (found.step, found.key, found.as_of, found.checkpoint) == ("totals", key, "live", None)


def test_a_state_an_entry_and_what_is_not_there(tmp_path: Path, started: Any) -> None:
    job = started(tmp_path, paused("ann"), **NEVER)
    eventually(lambda: job.get("ann", "total").value == 1)
    found = job.get("ann", "items")
    assert (found.states, found.value, found.timers) == ({"items": ["ann"]}, ["ann"], ())
    assert job.get("ann", "by_kind", map_key=("kind", 1)).value == 1
    assert job.get("ann", "by_kind", map_key="other").states == {"by_kind": 0}
    assert job.get("ann", "by_kind", map_key="none").states == {}
    for key in ("bob", 1, None, ("ann",)):
        nothing = job.get(key)
        assert (nothing.states, nothing.timers) == ({}, ())
    assert job.get("ann", "unused", timeout=float("inf")).value is None
    with pytest.raises(ValueError, match="has 6 states, total, unused, seen, items, by_kind, average: ask for one"):
        job.get("ann").value  # noqa: B018


def test_the_same_key_at_a_checkpoint_and_live(tmp_path: Path, started: Any) -> None:
    job = started(tmp_path, paused("ann", "ann"), **NEVER)
    eventually(lambda: job.get("ann", "total").value == 2)
    with pytest.raises(PipelineError, match="no complete checkpoint"):
        job.get("ann", at="checkpoint")
    id = job.checkpoint()
    assert job.get("ann").checkpoint == id
    job.source.release()
    eventually(lambda: job.get("ann", "total").value == 4)
    stored, live = job.get("ann", at="checkpoint"), job.get("ann")
    assert (stored.as_of, stored.checkpoint, stored.states["items"]) == (id, id, ["ann"] * 2)
    assert stored.timers == live.timers == (KeyTimer(10**15, "event"),)
    assert (live.as_of, live.checkpoint, live.states["items"]) == ("live", id, ["ann"] * 4)
    assert job.get("ann", "total", at="checkpoint").states == {"total": 2}
    assert job.get("ann", "by_kind", map_key=("kind", 1), at="checkpoint").value == 2
    assert job.get("ann", "by_kind", map_key="none", at="checkpoint").states == {}
    assert job.get("bob", at="checkpoint").states == {}


def test_a_question_changes_nothing(tmp_path: Path, started: Any) -> None:
    job = started(tmp_path, paused("ann"), **NEVER)
    eventually(lambda: job.get("ann", "total").value == 1)
    job.get("ann").states["items"].append("mine")
    for key in ("ann", "bob", 5):
        job.get(key)
    before = job.get("ann").states
    assert before["items"] == ["ann"]
    job.checkpoint()
    assert job.get("ann", at="checkpoint").states == before
    assert job.get("bob", at="checkpoint").states == {}


def test_a_question_that_is_asked_before_the_job_runs_or_while_it_restarts_is_answered_then(
    tmp_path: Path, started: Any
) -> None:
    source = TestingSource(["ann", TestingSource.PAUSE(), TestingSource.ABORT(), TestingSource.PAUSE()])
    job = Job(tmp_path, source, **NEVER)
    with pytest.raises(TimeoutError, match=r"no answer within 0\.1 s: waited for the job to start"):
        job.get("ann", timeout=0.1)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(job.get("bob").states))
    thread.start()
    try:
        job.start()
        thread.join(PATIENCE)
        assert answers == [{}]
        eventually(lambda: job.get("ann", "total").value == 1)
        id = job.checkpoint()
        source.release()
        eventually(lambda: job.master.restarts == 1)
        found = job.get("ann")
        assert (found.states["total"], found.checkpoint) == (1, id)
    finally:
        job.end()


def test_a_question_to_a_subtask_that_is_held_up_says_so(tmp_path: Path, started: Any) -> None:
    job = started(tmp_path, paused(*KEYS, "hold up"), **NEVER)
    try:
        eventually((tmp_path / "reached").exists)
        with pytest.raises(TimeoutError, match=r"waited for subtask totals → out\[\d\], which answers between two rec"):
            job.get("hold up", timeout=0.2)
        answers = [job.get(key).states["total"] for key in KEYS if not same_owner(job, key)]
        assert set(answers) == {1}, "the other subtask answers"
    finally:
        (tmp_path / "go on").touch()
    assert job.get("hold up").states["total"] == 1


def same_owner(job: Job, key: str) -> bool:
    """Whether the subtask that is held up owns the key."""
    plan, groups = job.master.options.plan, [key_group(encode_key(one), 16) for one in (key, "hold up")]
    return len({plan.owner_of("totals", group, 16) for group in groups}) == 1


def test_a_job_that_has_ended_says_where_its_state_is(tmp_path: Path, started: Any) -> None:
    job = started(tmp_path, TestingSource(["ann"]))
    assert job.master.ended.wait(PATIENCE)
    with pytest.raises(NotAnswered, match="the job is finished; what its state was is in its newest checkpoint"):
        job.get("ann")
    assert job.get("ann", "total", at="checkpoint").value == 1


def test_a_checkpoint_from_before_there_was_the_step_has_nothing_of_it(tmp_path: Path) -> None:
    folder = JobFolder(CheckpointStorage(str(tmp_path), "job"))
    ref = CheckpointRef(1, folder.ownership.attempt)
    folder.storage.write_metadata(1, ref.attempt, metadata_of(ref, {"in": OperatorSnapshot()}))
    job = Job(tmp_path, paused())
    with pytest.raises(PipelineError, match="checkpoint 1 has nothing of step 'totals'; it has steps 'in'"):
        job.get("ann", at="checkpoint")


def test_what_there_is_is_told_where_a_name_is_wrong(tmp_path: Path) -> None:
    job = Job(None, paused())
    options, queries = job.master.options, job.master.queries
    with pytest.raises(PipelineError, match=r"no step 'total'; steps with state of keys: 'totals' \(total, unused, se"):
        StepState(options, queries, "total")
    for step in ("in", "as text", "out"):
        with pytest.raises(PipelineError, match=f"step '{step}' has no state of keys; steps with state of keys: 'tot"):
            StepState(options, queries, step)
    with pytest.raises(PipelineError, match="has no state of keys called 'totl'; it has total, unused, seen, items"):
        job.get("ann", "totl")
    with pytest.raises(PipelineError, match=r"only a MapState has entries: name one of step .*, which has by_kind"):
        job.get("ann", "items", map_key=1)
    with pytest.raises(PipelineError, match="only a MapState has entries"):
        job.get("ann", map_key=1)
    with pytest.raises(PipelineError, match="is no key of a map: unhashable"):
        job.get("ann", "by_kind", map_key=[1])
    with pytest.raises(EncodingError, match="a key must not change"):
        job.get(["ann"])
    with pytest.raises(ValueError, match="at must be"):
        job.get("ann", at="now")
    with pytest.raises(ValueError, match="timeout must be at least 0 s"):
        job.get("ann", timeout=-1)
    with pytest.raises(PipelineError, match="the job takes no checkpoints"):
        job.get("ann", at="checkpoint")


def test_states_that_belong_to_no_key_are_not_offered() -> None:
    p = Pipeline("job", parallelism=1)
    rules = p.source("rules", TestingSource()).broadcast()
    keyed = p.source("in", TestingSource()).key_by(lambda value: value)
    keyed.connect(rules).process("totals", OnlyTotal()).sink("out", TestingSink())
    master = job_in_threads(p)
    with pytest.raises(PipelineError, match=r"no state of keys called 'rules'; it has total$"):
        StepState(master.options, master.queries, "totals").get("ann", "rules")
