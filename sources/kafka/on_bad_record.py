"""The option `on_bad_record` of a Kafka source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from checkpoint.brokers import check_addresses, is_topic_name
from checkpoint.failure_rate import AtMost, at_most_of
from checkpoint.options import named_options


@named_options
@dataclass(frozen=True)
class DeadLetter:
    """Write records that can't be dealt with to a topic of their own, and go on.

    `on_bad_record=DeadLetter("bad-orders")` of a source is for records that its format can't decode;
    `on_bad_record="bad-orders"` says the same, only topics that are called fail or skip need this form.
    `on_error=DeadLetter("failed-orders")` of a step is for records that its function or operator fails on.

    Args:
        topic: has to exist. It can't be one that the source reads.
        config: settings of librdkafka for its producer, on top of those of the source's `config` that aren't a
            consumer's own (its addresses and security, for instance).
        servers: of a step only: addresses of brokers, `host:port[,host:port…]`; `config` has all settings then. `None`:
            the cluster, and the settings, of the Kafka source that the step's records come from.
        at_most: of a step only: more failures than that fail the attempt, `AtMost(0.01)` or `(0.01, 60)`. `None`: any
            number may fail.

    Raises:
        ValueError: an argument has a value that it can't have.
    """

    topic: str
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    servers: str | None = None
    at_most: AtMost | tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not is_topic_name(self.topic):
            raise ValueError(
                'on_bad_record must be "fail", "skip", or a topic for dead letters, by its name or as '
                f"DeadLetter(topic); {self.topic!r} is no name of a topic"
            )
        if not isinstance(self.config, Mapping):
            raise ValueError(f"the config of a DeadLetter must be a dict of librdkafka's settings, not {self.config!r}")
        if self.servers is not None:
            check_addresses(self.servers)
        object.__setattr__(self, "config", dict(self.config))
        object.__setattr__(self, "at_most", at_most_of(self.at_most))


def parse(on_bad_record: object) -> str | DeadLetter:
    """The option's value: "fail", "skip", or a `DeadLetter`.

    Raises:
        ValueError: it is something else.
    """
    if on_bad_record in ("fail", "skip") or isinstance(on_bad_record, DeadLetter):
        return on_bad_record
    return DeadLetter(on_bad_record)  # type: ignore[arg-type]  # which checks it
