"""What of a checkpoint is committed, seen from outside of a running job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from confluent_kafka import KafkaException

from sinks.kafka.marker import Marker
from sinks.kafka.marker_group import MarkerGroup
from sinks.kafka.recovery import KafkaRecovery, recover
from sinks.recovery import OnMarkerLost
from sinks.sink import Committable, WriterRestore

_LOOK: Final = 5.0
"""Seconds to wait for a marker that a pending transaction may still change."""


def not_committed(
    servers: str, config: Mapping[str, Any], writer: str, state: Any, committables: Sequence[Committable]
) -> Sequence[Committable]:
    """Those of a writer's committables that are not committed, by its marker; all of them where it can't be told: there
    is no answer, no marker, or another lineage's.

    Args:
        writer: its name, that of the marker's group.
        state: what its committer had in the checkpoint.
    """
    topic, *recorded = state
    try:
        with closing(MarkerGroup(servers, config, writer, topic)) as group:
            found = group.read()
    except KafkaException:
        return committables
    if found is None or found.lineage.id != Marker.from_wire(recorded).lineage.id:
        return committables
    return found.after(committables)


def check_restore(
    servers: str,
    config: Mapping[str, Any],
    writer: str,
    topic: str,
    on_marker_lost: OnMarkerLost,
    restore: WriterRestore,
) -> None:
    """See whether the writer can be restored, as far as Kafka tells its marker.

    Args:
        writer: its name, that of the marker's group.
        topic: has the marker of a writer without state.

    Raises:
        OutputAhead, EarlierOutput, MarkerLost, ForeignMarker: it can't.
    """
    recorded = None
    if restore.state is not None:
        topic, *wire = restore.state
        recorded = Marker.from_wire(wire)
    try:
        with closing(MarkerGroup(servers, config, writer, topic)) as group:
            found = group.read(_LOOK)
    except KafkaException:
        return
    recover(
        KafkaRecovery(
            group=writer,
            lineage=restore.lineage,
            checkpoint=restore.checkpoint,
            recorded=recorded,
            found=found,
            restored=restore.pending,
            rewind=restore.rewind,
            when_lost=on_marker_lost,
            fork=restore.fork,
        )
    )
