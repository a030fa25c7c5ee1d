"""The batch that a record loop is working on: what holds for each record, and what is left of it in between."""

from __future__ import annotations

from typing import Any

import pytest
from captures import channel, data
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.codec import encode, encode_key
from checkpoint.elements import Data
from checkpoint.row_format import row_format
from checkpoint.state import BroadcastStates, KeyedBackend, OperatorLists, StateAccessError, bind, make_backend
from pipeline import KeyedOperator, ValueState
from pipeline.runtime.subtask.batch_in_progress import BatchInProgress
from pipeline.runtime.subtask.context import Context
from pipeline.runtime.subtask.event_time.domains import TimeDomain
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.record_in_progress import RecordInProgress

PLAIN, KEYED = row_format(carries_keys=False), row_format(carries_keys=True)


def test_between_steps_that_are_chained_now_records_are_older_than_the_watermark_in_front() -> None:
    record, domain = RecordInProgress(), TimeDomain("front")
    context = Context(record, 0, 1)
    domain.contexts.append(context)
    domain.watermark = context.watermark = 100
    batch = BatchInProgress(record, Mailbox(), None)
    seen: list[Any] = []

    def push(value: Any) -> None:
        seen.append((value, context.watermark))

    batch.take(data(["a"], timestamp=50), channel(0, 0), PLAIN, push, inside=domain)
    batch.process()
    batch.take(data(["b"], timestamp=150), channel(0, 0), PLAIN, push)
    batch.process()
    assert seen == [("a", None), ("b", 100)]
    assert context.watermark == 100


class Loop:
    """A batch in progress whose records are noted with key and timestamp; attention is asked for behind some."""

    def __init__(self, backend: KeyedBackend | None = None, interrupted_by: Any = None) -> None:
        self.record, self.mailbox, self.seen = RecordInProgress(), Mailbox(), list[Any]()
        self.batch = BatchInProgress(self.record, self.mailbox, backend)
        self._interrupted_by = interrupted_by

    def push(self, value: Any) -> None:
        self.seen.append((value, self.record.key_bytes, self.record.timestamp))
        if value == self._interrupted_by:
            self.mailbox.interrupt = True


def test_each_record_has_its_own_key_and_timestamp_and_behind_the_last_there_is_none() -> None:
    one = Loop()
    one.batch.take(data([["k", 1], ["l", 2]], keyed=True, timestamp=7), channel(0, 0), KEYED, one.push)
    assert one.batch.process() == 2
    assert one.seen == [(["k", 1], encode_key("k"), 7), (["l", 2], encode_key("l"), 7)]
    assert one.record.key_bytes is None
    assert not one.batch


def test_what_held_for_the_batch_before_does_not_hold_for_one_without_keys_and_timestamps() -> None:
    one = Loop()
    one.batch.take(data(["a"], timestamp=7), channel(0, 0), PLAIN, one.push)
    one.batch.process()
    one.record.key_bytes = encode_key("of a timer")
    one.batch.take(data(["b"]), channel(0, 0), PLAIN, one.push)
    one.batch.process()
    assert one.seen == [("a", None, 7), ("b", None, None)]


@pytest.mark.parametrize("keyed", [False, True])
def test_when_something_asks_for_attention_the_rest_can_go_back(keyed: bool) -> None:
    values = [["k", i] for i in range(4)]
    one = Loop(interrupted_by=values[1])
    one.batch.take(data(values, keyed), channel(2, 0), row_format(keyed), one.push)
    whole = one.batch.bytes
    assert one.batch.process() == 2
    assert one.batch
    assert one.batch.bytes == whole // 2
    assert one.batch.origin == channel(2, 0)
    rest = one.batch.release()
    assert (rest.start, rest.rest) == (2, 2)
    assert not one.batch
    assert one.batch.bytes == 0
    one.mailbox.interrupt = False
    one.batch.take(rest, 0, keyed, one.push)
    assert one.batch.process() == 2
    assert [value for value, *_ in one.seen] == values


def test_nothing_is_processed_while_attention_is_asked_for() -> None:
    one = Loop()
    one.mailbox.interrupt = True
    one.batch.take(data(["a"]), 0, PLAIN, one.push)
    assert one.batch.process() == 0
    assert one.batch


@pytest.mark.parametrize("keyed", [False, True])
def test_a_record_that_fails_counts_as_processed_up_to_it(keyed: bool) -> None:
    one = Loop()

    def fail(value: Any) -> None:
        raise ValueError(value)

    one.batch.take(data([["k", 1], ["k", 2]], keyed), 0, row_format(keyed), fail)
    with pytest.raises(ValueError, match="1"):
        one.batch.process()
    assert one.record.key_bytes is None


def test_keyed_state_is_that_of_the_record_at_the_head_only() -> None:
    groups = range(16)
    backend = make_backend(groups, 16)
    keys: list[Any] = []

    class Counts(KeyedOperator):
        n = ValueState(default=0)

    operator = Counts()
    bind(operator, backend, BroadcastStates(), OperatorLists())

    def push(value: Any) -> None:
        try:
            operator.n.value += 1
            keys.append(operator.n.value)
        except StateAccessError:
            keys.append("no key")

    one = Loop(backend)
    rows = data([["k", 1], ["l", 2], ["k", 3]], keyed=True)
    one.batch.take(rows, 0, KEYED, push)
    one.batch.process()
    push("behind the batch")
    one.batch.take(data([["k", 4]], keyed=True), 0, KEYED, push, inside=TimeDomain("front"))
    one.batch.process()
    assert keys == [1, 1, 2, "no key", "no key"]


@given(st.lists(st.integers(0, 15), min_size=1), st.integers(0, 14), st.integers(1, 15), st.integers(-1, 20))
def test_each_record_has_its_key_in_the_state_and_one_of_a_foreign_group_is_refused(
    groups: list[int], start: int, count: int, interrupted_by: int
) -> None:
    own = range(start, min(16, start + count))
    backend, slowly = make_backend(own, 16), make_backend(own, 16)
    one = Loop(backend, interrupted_by)
    builder = KEYED.builder()
    for number, group in enumerate(groups):
        builder.append_keyed(encode(number), None, encode_key(number), group)
    frame = KEYED.to_frame(builder.seal())
    current = []

    def push(value: Any) -> None:
        one.push(value)
        current.append((backend.current_key.key, backend.current_key.index))

    one.batch.take(Data(frame, frame.size, len(groups)), 0, KEYED, push)
    if not own.start <= min(groups) <= max(groups) < own.stop:
        with pytest.raises(StateAccessError):
            one.batch.process()
        assert any(group not in own for group in groups)
        return
    while one.batch:
        one.mailbox.interrupt = False
        one.batch.process()
    expected = []
    for number, group in enumerate(groups):
        slowly.set_current_key(encode_key(number), group)
        expected.append((slowly.current_key.key, slowly.current_key.index))
    assert current == expected
    assert [value for value, *_ in one.seen] == list(range(len(groups)))
