"""Following a topic as it grows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pipeline.broker.topics import Follower, publish
from pipeline.testing import KafkaBroker


@pytest.mark.sample(1)
def test_a_follower_fetches_nothing_until_records_are_asked_for(
    kafka: KafkaBroker, make_topic: Callable[..., str]
) -> None:
    servers, topic = kafka.bootstrap_servers, make_topic("followed")
    publish(servers, topic, [(b"k", b"%d" % number) for number in range(100)])
    with Follower(servers, topic) as follower:
        assert follower.end_offset() == 100
        assert follower._consumer.assignment() == []
        values = [message.value() for batch in follower.to_end() for message in batch]
        assert values == [b"%d" % number for number in range(100)]
        assert follower.end_offset() == 100
