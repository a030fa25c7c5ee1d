"""The option `on_bad_record` of a Kafka source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from checkpoint.options import named_options

_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


@named_options
@dataclass(frozen=True)
class DeadLetter:
    """`on_bad_record=DeadLetter("bad-orders")`: write bad records to a topic of the same cluster, and go on.

    `on_bad_record="bad-orders"` says the same; only topics that are called fail or skip need this form.

    Args:
        topic: has to exist. It can't be one that the source reads.
        config: settings of librdkafka for its producer, on top of those of the source's `config` that aren't a
            consumer's own (its addresses and security, for instance).

    Raises:
        ValueError: an argument has a value that it can't have.
    """

    topic: str
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.topic, str) or not _TOPIC_NAME.fullmatch(self.topic) or self.topic in (".", ".."):
            raise ValueError(
                'on_bad_record must be "fail", "skip", or a topic for dead letters, by its name or as '
                f"DeadLetter(topic); {self.topic!r} is no name of a topic"
            )
        if not isinstance(self.config, Mapping):
            raise ValueError(f"the config of a DeadLetter must be a dict of librdkafka's settings, not {self.config!r}")
        object.__setattr__(self, "config", dict(self.config))


def parse(on_bad_record: object) -> str | DeadLetter:
    """The option's value: "fail", "skip", or a `DeadLetter`.

    Raises:
        ValueError: it is something else.
    """
    if on_bad_record in ("fail", "skip") or isinstance(on_bad_record, DeadLetter):
        return on_bad_record
    return DeadLetter(on_bad_record)  # type: ignore[arg-type]  # which checks it
