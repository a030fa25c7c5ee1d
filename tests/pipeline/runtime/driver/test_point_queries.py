"""Point queries on the driver: each gets an answer, or an error that says for whom it waited."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attempt_parts import attempt_context
from deadlines import PATIENCE, eventually
from virtual_attempt import VirtualAttempt

from checkpoint.checkpoint_kind import CheckpointKind
from checkpoint.codec import encode_key
from checkpoint.key_groups import key_group
from checkpoint.storage.metadata import SubtaskSnapshot
from checkpoint.storage.savepoints import prepare
from pipeline import KeyedOperator, Pipeline, ValueState
from pipeline.runtime import protocol
from pipeline.runtime.driver import point_queries
from pipeline.runtime.driver.attempt_context import CheckpointRequest
from pipeline.runtime.driver.attempt_events import QueryAsked
from pipeline.runtime.driver.failures import AttemptFailed
from pipeline.runtime.driver.point_queries import Answer, JobQueries, NotAnswered
from pipeline.runtime.point_query import Found, PointQuery
from pipeline.testing import TestingSink, TestingSource

MAX = 128
FOUND = Found({"total": b"\x05"})


class Total(KeyedOperator):
    total = ValueState(default=0)

    def process(self, value: Any, ctx: Any) -> Any:
        yield value


def query(key: Any = "ann") -> PointQuery:
    encoded = encode_key(key)
    return PointQuery("totals", encoded, key_group(encoded, MAX), "total")


class Asking:
    """Asks in a thread of its own, and keeps what came of it."""

    def __init__(self, queries: JobQueries, key: Any = "ann", timeout: float = PATIENCE) -> None:
        self.result: Answer | Exception | None = None
        self._queries = queries
        self._key, self._timeout = key, timeout
        before = len(queries._waiting)
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()
        eventually(lambda: len(queries._waiting) > before or self.result is not None)

    def _ask(self) -> None:
        try:
            self.result = self._queries.ask(query(self._key), self._timeout)
        except (NotAnswered, TimeoutError) as error:
            self.result = error

    def answer(self) -> Any:
        self._thread.join(PATIENCE)
        assert self.result is not None
        return self.result


# -- who waits --------------------------------------------------------------------------------------------------------


def test_an_answer_comes_to_whoever_asked_for_it() -> None:
    queries, told = JobQueries(str), list[int]()
    queries.attempt_begins(told.append)
    ann, bob = Asking(queries, "ann"), Asking(queries, "bob")
    assert told == [1, 2]
    assert queries.unsent() == {1: query("ann"), 2: query("bob")}
    queries.sent(1, "totals[0]")
    assert list(queries.unsent()) == [2]
    queries.answered(2, Found(), 7)
    queries.answered(1, FOUND, None)
    assert (ann.answer(), bob.answer()) == (Answer(FOUND, None), Answer(Found(), 7))
    assert queries.unsent() == {}
    queries.answered(1, FOUND, None)  # nobody is there any more


def test_what_the_owner_refuses_is_an_error() -> None:
    queries = JobQueries(str)
    one = Asking(queries)
    queries.answered(1, Found(refused="too large"), 7)
    assert (type(one.answer()), str(one.answer())) == (NotAnswered, "too large")


def test_who_waits_in_vain_is_told_for_whom() -> None:
    queries = JobQueries(lambda subtask: f"subtask {subtask}")
    with pytest.raises(TimeoutError, match=r"^no answer within 0\.01 s: waited for subtask None$"):
        queries.ask(query(), 0.01)
    one = Asking(queries, timeout=0.5)
    queries.sent(2, "totals[1]")
    assert str(one.answer()) == "no answer within 0.5 s: waited for subtask totals[1]"
    assert queries.unsent() == {}


def test_what_an_attempt_leaves_without_an_answer_is_the_next_ones() -> None:
    queries, told = JobQueries(str), list[int]()
    queries.attempt_begins(told.append)
    one = Asking(queries)
    queries.sent(1, "totals[1]")
    queries.attempt_ends()
    assert list(queries.unsent()) == [1]
    other = Asking(queries, "bob")
    assert told == [1], "no attempt is there to be told"
    for number in queries.unsent():
        queries.answered(number, FOUND, 3)
    assert one.answer() == other.answer() == Answer(FOUND, 3)


def test_the_end_of_the_job_is_told_to_all() -> None:
    queries = JobQueries(str)
    one = Asking(queries)
    queries.close("the job is finished")
    assert (type(one.answer()), str(one.answer())) == (NotAnswered, "the job is finished")
    with pytest.raises(NotAnswered, match=r"^the job is finished$"):
        queries.ask(query(), PATIENCE)


def test_more_than_so_many_may_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(point_queries, "MOST", 2)
    queries = JobQueries(str)
    asking = [Asking(queries), Asking(queries)]
    with pytest.raises(NotAnswered, match="2 queries wait for an answer already"):
        queries.ask(query(), PATIENCE)
    queries.close("over")
    for one in asking:
        one.answer()


# -- an attempt -------------------------------------------------------------------------------------------------------


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., VirtualAttempt]:
    p = Pipeline("job", parallelism=2, max_parallelism=MAX)
    keyed = p.source("in", TestingSource()).key_by(lambda value: value)
    keyed.process("totals", Total()).sink("out", TestingSink())

    def made(queries: JobQueries | None = None) -> VirtualAttempt:
        context = attempt_context(p.plan(), str(tmp_path))
        return VirtualAttempt(context if queries is None else replace(context, queries=queries))

    return made


def asked_of(attempt: VirtualAttempt) -> list[tuple[int, PointQuery]]:
    """Subtask and query, in order."""
    return [(i, one.query) for i, subtask in enumerate(attempt.subtasks) for one in subtask.heard(protocol.Query)]


def test_the_owner_of_the_key_is_asked_once_all_run_and_once(make: Callable[..., VirtualAttempt]) -> None:
    attempt = make()
    queries, plan = attempt.context.queries, attempt.context.plan
    queries.attempt_begins(lambda number: attempt.services.post(QueryAsked(number)))
    early = Asking(queries, "ann")
    attempt.work()
    assert asked_of(attempt) == []
    attempt.start()
    late = Asking(queries, "bob")
    attempt.work()
    owners = {key: plan.owner_of("totals", query(key).group, MAX) for key in ("ann", "bob")}
    assert sorted(asked_of(attempt)) == sorted((owners[key], query(key)) for key in owners)
    assert {plan.subtask_name(owner)[:-3] for owner in owners.values()} == {"totals → out"}
    attempt.say(owners["ann"], protocol.QueryAnswered(1, FOUND))
    attempt.say(owners["bob"], protocol.QueryAnswered(2, Found()))
    assert (early.answer(), late.answer()) == (Answer(FOUND, None), Answer(Found(), None))


def test_an_answer_names_the_newest_checkpoint_that_is_complete(
    make: Callable[..., VirtualAttempt], tmp_path: Path
) -> None:
    attempt = make()
    attempt.start()
    target = prepare((tmp_path / "savepoint").as_uri())
    requests = [CheckpointRequest(), CheckpointRequest(CheckpointKind.SAVEPOINT, target)]
    for id, request in enumerate(requests, 1):
        attempt.attempt.request_checkpoint(request, lambda result: None)
        attempt.work()
        attempt.acknowledge(id, SubtaskSnapshot({}))
        assert attempt.context.history.completed_count == id
    attempt.attempt.request_checkpoint(CheckpointRequest(), lambda result: None)
    attempt.work()
    one = Asking(attempt.context.queries)
    attempt.say(2, protocol.QueryAnswered(1, FOUND))
    assert one.answer() == Answer(FOUND, 1), "a savepoint lies elsewhere, and the third one is not complete"


def test_an_attempt_that_ends_leaves_its_questions_to_the_next(make: Callable[..., VirtualAttempt]) -> None:
    queries = JobQueries(str)
    first = make(queries)
    asking: list[Asking] = []

    def ask() -> None:
        asking.append(Asking(queries))

    with pytest.raises(AttemptFailed):
        first.run(
            first.start,
            ask,
            lambda: first.lose(0),
            first.spark_ends,
            *(lambda i=i: first.lose(i) for i in range(1, len(first.subtasks))),
        )
    (subtask,) = [i for i, _ in asked_of(first)]
    assert list(queries.unsent()) == [1]
    second = make(queries)
    second.start()
    assert asked_of(second) == [(subtask, query())]
    second.say(subtask, protocol.QueryAnswered(1, FOUND))
    assert asking[0].answer() == Answer(FOUND, None)
