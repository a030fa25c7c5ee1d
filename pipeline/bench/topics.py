"""Topics that a measurement has for itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from pipeline.broker.topics import create_topics, delete_topics


@contextlib.contextmanager
def topics(servers: str, partitions: Mapping[str, int]) -> Iterator[None]:
    """They are there meanwhile.

    Args:
        partitions: how many each has, by name.

    Raises:
        TopicTrouble: the broker doesn't do what is needed.
    """
    create_topics(servers, partitions)
    try:
        yield
    finally:
        delete_topics(servers, list(partitions))
