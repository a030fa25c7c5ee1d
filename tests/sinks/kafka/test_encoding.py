"""Records become columns of bytes, and what their topics would refuse is refused, to the byte and the millisecond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.kafka.encoding import RecordEncoder, RecordOptions, message_size
from sinks.kafka.errors import RecordRefused, TopicRefused
from sinks.kafka.rows import Headers, KafkaRows
from sinks.kafka.topics import TopicLimits
from sinks.sink import SinkBatch

NOW_MS = 1_700_000_000_000


class Topics:
    """A catalog that knows topics, and what a second look at them says."""

    def __init__(self, *known: TopicLimits, newer: Sequence[TopicLimits] = ()) -> None:
        self._known = {one.name: one for one in known}
        self._newer = {one.name: one for one in newer}

    def get(self, topic: str) -> TopicLimits:
        if topic not in self._known:
            raise TopicRefused(f"topic {topic!r} doesn't exist")
        return self._known[topic]

    def refresh(self, topic: str) -> TopicLimits:
        self._known.update(self._newer)
        return self._known[topic]


def limits(name: str = "t", partitions: int = 4, size: int = 1_000_000, **more: Any) -> TopicLimits:
    return TopicLimits(name, partitions, size, **more)


def encoded(values: list[Any], *known: TopicLimits, times: Any = None, newer: Any = (), **options: Any) -> KafkaRows:
    topics: Any = Topics(*(known or (limits(),)), newer=newer)
    given = RecordOptions(**{"topic": "t", "value_format": "bytes", **options})
    batch = SinkBatch(values, times or [None] * len(values), [None] * len(values))
    return RecordEncoder(given, topics, "out", lambda: NOW_MS / 1000).encode(batch)


# -- sizes ------------------------------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    """As in Kafka's description of its protocol."""
    number = 2 * number if number >= 0 else -2 * number - 1
    done = bytearray()
    while number > 0x7F:
        done.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*done, number])


def sized(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def record(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """Attributes, both deltas, and the content."""
    named = b"".join(varint(len(name.encode())) + name.encode() + sized(content) for name, content in headers)
    body = b"\0\0\0" + sized(key) + sized(value) + varint(len(headers)) + named
    return varint(len(body)) + body


CONTENT = st.none() | st.sampled_from([0, 1, 60, 63, 64, 127, 128, 8_191, 8_192]).map(lambda size: b"x" * size)


@given(CONTENT, CONTENT, st.lists(st.tuples(st.sampled_from(["", "h", "ä" * 32]), CONTENT), max_size=3))
def test_the_size_of_a_message_is_that_of_a_batch_with_it_alone(key: Any, value: Any, headers: Any) -> None:
    assert message_size(key, value, headers) == 61 + len(record(key, value, headers))


@pytest.mark.parametrize("key", [None, b"key"])
@pytest.mark.parametrize("headers", [None, [("h", b"1"), ("none", None)]])
@pytest.mark.parametrize(("own", "option"), [(None, "max.message.bytes of topic 't'"), (300, "message.max.bytes in")])
def test_the_largest_record_is_taken_and_a_byte_more_is_refused(key: Any, headers: Any, own: Any, option: str) -> None:
    options: dict[str, Any] = {"key": lambda _: key, "headers": headers and (lambda _: headers), "message_limit": own}
    topic = limits(size=300 if own is None else 301)
    fits = max(size for size in range(300) if message_size(key, b"x" * size, headers) <= 300)
    assert encoded([b"", b"x" * fits, b""], topic, **options).message_limit == 300
    with pytest.raises(RecordRefused, match=f"takes 301 bytes .*{option}.* allows 300"):
        encoded([b"", b"x" * (fits + 1), b""], topic, **options)


def test_the_longest_key_counts_though_its_value_is_short() -> None:
    with pytest.raises(RecordRefused, match="allows 300"):
        encoded([b"a", b"k" * 300], limits(size=300), key=lambda v: v, value=lambda _: b"")


def test_a_limit_that_was_raised_meanwhile_holds_for_all_that_comes() -> None:
    large = [b"x" * 400] * 2
    assert encoded(large, limits(size=300), newer=[limits(size=600)]).values == large
    with pytest.raises(RecordRefused, match="allows 450"):
        encoded([*large, b"x" * 500], limits(size=300), newer=[limits(size=450)])


# -- topics -----------------------------------------------------------------------------------------------------------

BOTH = [limits("a", size=200), limits("b", size=400, needs_key=True)]


def by_topic(value: bytes) -> str:
    return value[:1].decode()


def test_each_record_is_held_to_the_limits_of_its_own_topic() -> None:
    large = b"b" + b"x" * 250
    rows = encoded([b"a1", large, b"a2"], *BOTH, topic=by_topic, key=lambda v: v[1:2] if v[:1] == b"b" else None)
    assert (rows.topic, rows.topics, rows.message_limit) == (None, ["a", "b", "a"], 200)
    with pytest.raises(RecordRefused, match="topic 'a' allows 200"):
        encoded([large, b"a" + b"x" * 250], *BOTH, topic=by_topic, key=lambda v: v[:1])
    with pytest.raises(RecordRefused, match=r"record b'c1' to Kafka: topic 'c' doesn't exist"):
        encoded([b"a1", b"c1", b"c2"], *BOTH, topic=by_topic)


@pytest.mark.parametrize("key", [None, lambda value: None if value == b"2" else b"k"])
def test_a_compacted_topic_takes_no_record_without_key(key: Any) -> None:
    with pytest.raises(RecordRefused, match=f"record b'{2 if key else 1}' .*compacted and takes no record without key"):
        encoded([b"1", b"2"], limits(needs_key=True), key=key)
    assert encoded([b"1", b"3"], limits(needs_key=True), key=lambda _: "k").keys == [b"k"] * 2


def test_no_records_are_no_rows_and_no_topic_is_looked_up() -> None:
    assert len(encoded([], limits("other"))) == 0


# -- partitions -------------------------------------------------------------------------------------------------------


def test_a_partitioner_chooses_among_all_partitions_for_each_record() -> None:
    def choose(value: bytes, count: int) -> int:
        return int(value) % count

    assert encoded([b"0", b"7", b"2"], partitioner=choose).partitions == [0, 3, 2]
    rows = encoded([b"b6", b"a1"], *BOTH, topic=by_topic, key=lambda _: "k", partitioner=lambda v, n: int(v[1:]) % n)
    assert rows.partitions == [2, 1]
    assert encoded([b"0"]).partitions is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (4, "partition 4, but topic 't' has only the partitions 0 to 3"),
        (-1, "partition -1"),
        ("0", "'0', which is not an int"),
        (True, "True, which is not an int"),
    ],
)
def test_what_is_no_partition_is_refused(answer: Any, reason: str) -> None:
    with pytest.raises(RecordRefused, match=rf"record b'2' to Kafka: the partitioner returned {reason}"):
        encoded([b"1", b"2"], partitioner=lambda value, _: answer if value == b"2" else 0)


def test_a_partition_that_was_added_meanwhile_is_seen() -> None:
    assert encoded([b""], partitioner=lambda *_: 4, newer=[limits(partitions=5)]).partitions == [4]


def test_a_partitioner_that_fails_names_the_record() -> None:
    with pytest.raises(RecordRefused, match="record b'x' to Kafka: partitioner: ValueError"):
        encoded([b"1", b"x"], partitioner=lambda value, _: int(value))


# -- timestamps -------------------------------------------------------------------------------------------------------

AROUND = limits(before_ms=10_000, after_ms=5_000)


def test_times_within_the_topics_range_are_taken_to_the_millisecond() -> None:
    times = [NOW_MS - 10_000, None, NOW_MS + 5_000]
    assert encoded([b"0", b"1", b"2"], AROUND, timestamp=lambda v: times[int(v)]).timestamps == times
    assert encoded([b"0", b"1", b"2"], AROUND, times=times, timestamp="record").timestamps == times
    assert encoded([b"0"], AROUND).timestamps is None


@pytest.mark.parametrize(
    ("off", "reason"),
    [
        (-10_001, r"lies 10001 ms in the past, and message\.timestamp\.before\.max\.ms of topic 't' allows 10000 ms"),
        (5_001, r"lies 5001 ms in the future, and message\.timestamp\.after\.max\.ms of topic 't' allows 5000 ms"),
    ],
)
@pytest.mark.parametrize("others", [[NOW_MS], [None, NOW_MS - 10_000, NOW_MS + 5_000]])
def test_a_time_beyond_the_topics_range_is_refused(off: int, reason: str, others: list[Any]) -> None:
    times = [*others, NOW_MS + off]
    values = [str(i).encode() for i in range(len(times))]
    with pytest.raises(RecordRefused, match=rf"record b'{len(others)}' to Kafka: its timestamp {times[-1]} {reason}"):
        encoded(values, AROUND, timestamp=lambda v: times[int(v)])


@pytest.mark.parametrize(("time", "taken"), [(1, True), (0, False), (-5, False), (1.0, False), (True, False)])
def test_a_time_is_a_positive_whole_number(time: Any, taken: bool) -> None:
    if taken:
        assert encoded([b""], timestamp=lambda _: time).timestamps == [time]
    else:
        with pytest.raises(RecordRefused, match=r"its timestamp: (TypeError|ValueError)"):
            encoded([b""], timestamp=lambda _: time)


def test_times_of_another_topics_records_are_not_held_to_this_ones_range() -> None:
    topics = [limits("a", before_ms=1_000), limits("b")]
    times = {b"a": NOW_MS, b"b": NOW_MS - 5_000}
    rows = encoded([b"a", b"b"], *topics, topic=by_topic, timestamp=lambda v: times[v])
    assert rows.timestamps == [NOW_MS, NOW_MS - 5_000]


# -- content ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "headers"),
    [
        ({"h": "ä", "b": b"\xff", "n": None}, [("h", "ä".encode()), ("b", b"\xff"), ("n", None)]),
        ([("h", "1"), ("h", "2")], [("h", b"1"), ("h", b"2")]),
        ((), []),
        (None, None),
    ],
)
def test_headers_are_a_mapping_or_pairs(found: Any, headers: Any) -> None:
    assert encoded([b""], headers=lambda _: found).headers == [headers]


@pytest.mark.parametrize(("found", "reason"), [({1: b""}, "is a str, not 1"), ({"h": 1}, "header 'h' is bytes, str")])
def test_other_headers_are_refused(found: Any, reason: str) -> None:
    with pytest.raises(RecordRefused, match=f"record b'2' to Kafka: its headers: TypeError: .*{reason}"):
        encoded([b"1", b"2"], headers=lambda value: found if value == b"2" else None)


def test_values_and_keys_are_parts_of_the_record_and_none_stays_none() -> None:
    rows = encoded([{"k": 1, "v": b"x"}, {"k": None, "v": None}], key="k", value=lambda r: r["v"])
    assert (rows.values, rows.keys) == ([b"x", None], [b"1", None])
    rows = encoded([{"k": 1}, {"k": 2}], key="k", value_format="json", key_format="json")
    assert (rows.values, rows.keys) == ([b'{"k":1}', b'{"k":2}'], [b"1", b"2"])
    assert encoded([None, {"k": 1}], value_format="json").values == [None, b'{"k":1}']


def test_the_record_that_can_not_be_encoded_is_named() -> None:
    for what, options in (
        ("its value: TypeError", {}),
        ("its key: TypeError", {"key": lambda v: v, "key_format": "str", "value": str, "value_format": "str"}),
    ):
        good: Any = "1" if options else b"1"
        with pytest.raises(RecordRefused, match=f"sink 'out' can't write the record 2 to Kafka: {what}"):
            encoded([good, 2], **options)


# -- many at once -----------------------------------------------------------------------------------------------------

SOME_KEYS = st.one_of(st.text(max_size=3), st.sampled_from(["é", b"b", 1, True, None, "\ud800", 2.5, ["l"], (1,)]))


@given(st.lists(st.builds(dict) | st.fixed_dictionaries({"k": SOME_KEYS}), min_size=1, max_size=70))
def test_keys_and_values_of_many_are_those_of_each_and_one_that_is_refused_is_named(records: list[Any]) -> None:
    alone: list[KafkaRows] = []
    refused: set[str] = set()
    for record in records:
        try:
            alone.append(encoded([record], key="k", value_format="json"))
        except RecordRefused as error:
            refused.add(str(error))
    if refused:
        with pytest.raises(RecordRefused) as caught:
            encoded(records, key="k", value_format="json")
        assert str(caught.value) in refused
    else:
        together = encoded(records, key="k", value_format="json")
        assert together.values == [value for one in alone for value in one.values]
        assert together.keys == [key for one in alone for key in one.keys or ()]
