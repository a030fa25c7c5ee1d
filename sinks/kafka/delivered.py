"""What of a checkpoint is out, seen from outside of a running job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from confluent_kafka import KafkaException

from sinks.kafka.marker import Marker
from sinks.kafka.marker_group import MarkerGroup
from sinks.kafka.settle import OnMarkerLost, Situation, settle
from sinks.sink import Committable, OwnerRestore

_LOOK: Final = 5.0
"""Seconds to wait for a marker that a pending transaction may still change."""


def not_out(
    servers: str, config: Mapping[str, Any], owner: str, state: Any, committables: Sequence[Committable]
) -> Sequence[Committable]:
    """Those of an owner's committables that are not committed, by its marker; all of them where it can't be told: there
    is no answer, no marker, or another lineage's.

    Args:
        owner: its name, that of the marker's group.
        state: what its committer had in the checkpoint.
    """
    topic, *recorded = state
    try:
        with closing(MarkerGroup(servers, config, owner, topic)) as group:
            found = group.read()
    except KafkaException:
        return committables
    if found is None or found.lineage.id != Marker.from_wire(recorded).lineage.id:
        return committables
    return [one for one in committables if found.last is None or one.name > found.last]


def check_restore(
    servers: str,
    config: Mapping[str, Any],
    owner: str,
    topic: str,
    on_marker_lost: OnMarkerLost,
    restore: OwnerRestore,
) -> None:
    """See whether the owner can be restored, as far as Kafka tells its marker.

    Args:
        owner: its name, that of the marker's group.
        topic: has the marker of an owner without state.

    Raises:
        OutputAhead, EarlierOutput, MarkerLost, ForeignMarker: it can't.
    """
    recorded = None
    if restore.state is not None:
        topic, *wire = restore.state
        recorded = Marker.from_wire(wire)
    try:
        with closing(MarkerGroup(servers, config, owner, topic)) as group:
            found = group.read(_LOOK)
    except KafkaException:
        return
    settle(
        Situation(
            group=owner,
            lineage=restore.lineage,
            checkpoint=restore.checkpoint,
            recorded=recorded,
            found=found,
            restored=[committable.name for committable in restore.pending],
            rewind=restore.rewind,
            ignore_earlier_output=False,
            on_marker_lost=on_marker_lost,
            fork=restore.fork,
        )
    )
