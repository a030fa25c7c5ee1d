"""Opening a reader's splits: patient with brokers that are down."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from checkpoint.outage import Outage
from sources.kafka.cluster import Cluster, Topic
from sources.kafka.errors import DataLoss, KafkaUnavailable
from sources.kafka.options import KafkaOptions
from sources.kafka.splits import Split
from sources.kafka.start import Committed, SplitAssignment, open_splits

START_TIMEOUT_S: Final = 30.0
"""For one answer of the brokers. A restart may meet a broker that is restarting, too."""
_TRY_AGAIN_S: Final = 0.5


def open_when_up(
    options: KafkaOptions, assignment: SplitAssignment, committed: Committed, outage: Outage
) -> tuple[Mapping[str, Topic], list[Split]]:
    """The topics and this subtask's splits. Waits for brokers that are down, as long as `outage` allows: a restart may
    be caused by the outage that it meets.

    Raises:
        As `open_splits`.
    """
    while True:
        began = time.monotonic()
        try:
            with Cluster(options, START_TIMEOUT_S) as cluster:
                topics = cluster.topics()
                splits = open_splits(options, assignment, cluster, topics, committed)
        except (KafkaUnavailable, DataLoss, ValueError) as e:
            if not outage.after_look(e if isinstance(e, KafkaUnavailable) else None, began):
                raise
            time.sleep(_TRY_AGAIN_S)
        else:
            outage.over()
            return topics, splits
