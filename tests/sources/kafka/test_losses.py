"""What messages about lost offsets count is what was to be read and is gone: no more, no less."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.counted import counted
from pipeline.testing import KafkaBroker
from sources import END
from sources.kafka.errors import DataLoss
from sources.kafka.options import KafkaOptions
from sources.kafka.splits import Split, check_position, lost_range, lost_with_topic
from sources.kafka.start import SplitAssignment, open_splits

MakeTopic = Callable[..., str]
OpenSubtask = Callable[..., Any]

OFFSETS = st.integers(0, 60)


@given(OFFSETS, OFFSETS, OFFSETS, st.none() | OFFSETS)
def test_what_is_said_to_be_lost_is_what_was_to_be_read_and_is_gone(
    position: int, low: int, length: int, end: int | None
) -> None:
    high = low + length
    wanted = [offset for offset in range(position, 200) if end is None or offset < end]
    gone = [offset for offset in wanted if offset < low]
    assert list(lost_range(position, low, end)) == gone
    for policy in ("fail", "earliest"):
        split = Split("t", 0, "id", position, end)
        try:
            text = check_position(split, low, high, "the checkpointed offset", policy)
        except DataLoss as error:
            text = str(error)
            assert policy == "fail" or position > high
            assert split.position == position
        else:
            # What is left is read, and nothing else.
            left = [offset for offset in wanted if offset >= low]
            assert list(range(split.position, 200 if end is None else max(split.position, end))) == left
        if position > high and wanted:
            assert text is not None
            assert "the topic ends at" in text
        elif gone:
            assert text is not None
            assert f"offsets {gone[0]} to {gone[-1]} ({counted(len(gone), 'offset')}) are gone" in text
            assert ("going on at" in text) == (policy == "earliest" and len(gone) < len(wanted))
            assert ("up to its end" in text) == (len(gone) == len(wanted))
        else:
            assert text is None


@given(OFFSETS, st.none() | OFFSETS, st.booleans())
def test_what_is_lost_with_a_topic_is_what_had_not_been_read(position: int, end: int | None, ended: bool) -> None:
    lost = lost_with_topic(Split("t", 0, "id", position, end, ended and end is not None))
    if end is None:
        assert lost is not None
        assert f"from offset {position} on" in lost
    elif ended or position >= end:
        assert lost is None
    else:
        assert lost == f"offsets {position} to {end - 1} ({counted(end - position, 'offset')}) are lost"


class _Log:
    """Answers as a cluster does that has one partition."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high

    def earliest(self, keys: Any) -> dict[Any, int]:
        return dict.fromkeys(keys, self.low)

    def latest(self, keys: Any, committed: bool = False) -> dict[Any, int]:
        return dict.fromkeys(keys, self.high)


class _Topic:
    name, id, partitions = "t", "id", 1


@pytest.mark.parametrize(
    ("position", "end", "ended", "low", "high", "said"),
    [
        (131, 1000, False, 1500, 2000, ["offsets 131 to 999 (869 offsets) are gone; nothing is left"]),
        (131, 1000, False, 1000, 2000, ["offsets 131 to 999 (869 offsets) are gone; nothing is left"]),
        (131, 1000, False, 999, 2000, ["offsets 131 to 998 (868 offsets) are gone; going on at 999"]),
        (131, 1000, False, 131, 2000, []),
        (1000, 1000, True, 1500, 2000, ["had ended at offset 1000 by the checkpoint"]),
        (1000, 1000, True, 1000, 1000, []),
        (1000, 1000, True, 1000, 1001, ["had ended at offset 1000 by the checkpoint"]),
    ],
)
def test_a_bounded_source_says_what_it_lost_and_what_had_ended(
    position: int, end: int, ended: bool, low: int, high: int, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    options = KafkaOptions("nowhere:1", topics=("t",), end="latest", on_data_loss="earliest")
    state = {
        "version": 1,
        "subtask": 0,
        "parallelism": 1,
        "splits": [["t", 0, "id", position, end, ended]],
        "dead_letters": [],
    }
    with caplog.at_level(logging.WARNING):
        (split,) = open_splits(
            options,
            SplitAssignment("in", restored=[state]),
            _Log(low, high),
            {"t": _Topic()},
            lambda keys: {},  # type: ignore[arg-type, dict-item]
        )
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len(said), lines
    assert all(part in line for part, line in zip(said, lines, strict=True))
    assert split.ended == (end <= low or ended)


@pytest.mark.parametrize("policy", ["fail", "earliest"])
def test_retention_that_passes_the_kept_end_ends_a_bounded_source(
    kafka: KafkaBroker, make_topic: MakeTopic, subtask: OpenSubtask, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(partitions=1)
    kafka.produce(topic, [{"id": i} for i in range(100)])
    reading = subtask(topics=[topic], end="latest")
    batch = reading.poll(13, timeout=5)
    state = [reading.reader.snapshot(1, len(batch))]
    reading.reader.close()
    kafka.produce(topic, [{"id": i} for i in range(100, 200)])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, 150)]).values():
        future.result()
    at = state[0]["splits"][0][3]
    assert 0 < at < 100
    gone = f"offsets {at} to 99 ({100 - at} offsets) are gone"
    if policy == "fail":
        with pytest.raises(DataLoss, match=re.escape(gone)):
            subtask(topics=[topic], end="latest", restored=state)
        return
    with caplog.at_level(logging.WARNING):
        again = subtask(topics=[topic], end="latest", restored=state, on_data_loss="earliest")
        assert again.reader.poll(10, 1.0) is END
    assert gone in caplog.text
    assert "nothing is left to be read up to its end, 100" in caplog.text
    assert "had ended" not in caplog.text
