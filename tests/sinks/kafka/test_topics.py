"""What a topic takes, by its settings."""

from __future__ import annotations

import pytest

from sinks.kafka.topics import TopicLimits, limits_of

HOUR_MS = 3_600_000
EVER = 2**63 - 1
BOTH = {"message.timestamp.difference.max.ms": "5"}


@pytest.mark.parametrize(
    ("settings", "before_ms", "after_ms"),
    [
        ({}, EVER, HOUR_MS),
        ({"message.timestamp.before.max.ms": "7"}, 7, HOUR_MS),
        ({"message.timestamp.after.max.ms": "7"}, EVER, 7),
        (BOTH, 5, 5),
        ({**BOTH, "message.timestamp.before.max.ms": "7", "message.timestamp.after.max.ms": "8"}, 7, 8),
        ({**BOTH, "message.timestamp.type": "LogAppendTime"}, EVER, EVER),
        ({**BOTH, "message.timestamp.type": "CreateTime"}, 5, 5),
    ],
)
def test_times_may_lie_as_far_off_as_the_newest_settings_say(
    settings: dict[str, str], before_ms: int, after_ms: int
) -> None:
    assert limits_of("t", 3, settings) == TopicLimits("t", 3, 1_048_588, before_ms, after_ms)


@pytest.mark.parametrize(
    ("policy", "needs_key"), [("delete", False), ("compact", True), ("compact,delete", True), ("", False)]
)
def test_compacted_topics_need_keys(policy: str, needs_key: bool) -> None:
    limits = limits_of("t", 1, {"cleanup.policy": policy, "max.message.bytes": "900"})
    assert (limits.needs_key, limits.max_message_bytes) == (needs_key, 900)
