"""The Kafka sink keeps the sink contract, on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

from pipeline.testing import KafkaBroker, SinkUnderTest, check_sink_contract
from sinks import KafkaSink


@pytest.mark.sample(1 / 4)
@pytest.mark.slow
@pytest.mark.parametrize("delivery", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.matrix)])
def test_it_keeps_the_sink_contract(
    kafka: KafkaBroker, make_topic: Callable[..., str], delivery: Literal["exactly_once", "at_least_once"]
) -> None:
    def subject() -> SinkUnderTest:
        topic = make_topic("contract")
        sink = KafkaSink(kafka.bootstrap_servers, topic=topic, key="key", delivery=delivery)
        return SinkUnderTest(sink, lambda: [record.json() for record in kafka.consume(topic)], refused=object())

    check_sink_contract(subject, delivery=delivery)
