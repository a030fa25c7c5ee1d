"""What Kafka sinks have left in a cluster to tell how far their output is committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from sinks.kafka.errors import ForeignMarker
from sinks.kafka.marker import Marker

_TIMEOUT: Final = 15.0
"""Seconds for one request."""
_AT_ONCE: Final = 50
"""Groups that are asked for at the same time: librdkafka takes one in a request."""


class MarkersNotListed(Exception):
    """The brokers don't answer, or refuse."""


@dataclass(frozen=True, slots=True)
class FoundMarker:
    group: str
    """That of the sink's writer; its transactional id has the same name."""
    topic: str
    """The marker is an offset at partition 0 of this topic."""
    marker: Marker

    def to_json(self) -> dict[str, Any]:
        marker = self.marker
        return {
            "group": self.group,
            "topic": self.topic,
            "checkpoint": marker.checkpoint,
            "lineage": marker.lineage.id,
            "parent": None if marker.lineage.parent is None else list(marker.lineage.parent),
            "last": None if marker.last is None else f"{marker.last.epoch}/{marker.last.index}",
            "writer": marker.committer,
        }


def find_markers(settings: Mapping[str, Any], prefix: str) -> list[FoundMarker]:
    """Markers in groups whose names begin with `prefix`, by group; groups without one are left out.

    Args:
        settings: of librdkafka; how to reach the brokers.

    Raises:
        MarkersNotListed: the brokers (or one of them) don't answer or refuse, or librdkafka doesn't know a setting.
    """
    try:
        admin = AdminClient({"log_level": 0, **settings})
        listed = admin.list_consumer_groups(request_timeout=_TIMEOUT).result()
        for error in listed.errors or ():
            raise KafkaException(error)
        groups = sorted(one.group_id for one in listed.valid or () if one.group_id.startswith(prefix))
        found: list[FoundMarker] = []
        for start in range(0, len(groups), _AT_ONCE):
            found += _markers_of(admin, groups[start : start + _AT_ONCE])
    except KafkaException as error:
        raise MarkersNotListed(
            f"the groups at {settings['bootstrap.servers']} can't be listed: {error.args[0].str()}. Check that the "
            "brokers run, that the address is right, and the security settings (--config, --set); the user needs "
            "DESCRIBE on the groups and on the markers' topics"
        ) from error
    return found


def _markers_of(admin: AdminClient, groups: Sequence[str]) -> Iterator[FoundMarker]:
    answers = [
        (group, admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=_TIMEOUT))
        for group in groups
    ]
    for group, answer in answers:
        for one in answer[group].result().topic_partitions:
            if one.partition == 0 and one.offset >= 0 and one.metadata:
                try:
                    marker = Marker.from_metadata(group, one.offset, one.metadata)
                except ForeignMarker:
                    continue  # another program's offset
                yield FoundMarker(group, one.topic, marker)
