"""What a subtask tells downstream of event time."""

from __future__ import annotations

from collections.abc import Sequence

from checkpoint.elements import IdleStatus, Watermark
from pipeline.runtime.subtask.event_time.domains import TimeDomain, TimeDomains
from pipeline.runtime.subtask.record_writer import RecordWriter


class OutputTime:
    """Sends the watermark and idle status of a domain on the edges that begin in it."""

    def __init__(self, domains: TimeDomains, writers: Sequence[RecordWriter]) -> None:
        self._domains = (domains.head, *domains.generated)
        self._writers: dict[int, list[RecordWriter]] = {id(domain): [] for domain in self._domains}
        for writer in writers:
            self._writers[id(domains.of[writer.edge.upstream_step])].append(writer)

    def tell_watermark(self, domain: TimeDomain) -> None:
        """Tell the one that the domain has reached."""
        assert domain.watermark is not None
        self._send(domain, Watermark(domain.watermark))

    def tell_idle(self, domain: TimeDomain, idle: bool) -> None:
        """Tell it unless it was told."""
        if idle is not domain.idle:
            domain.idle = idle
            self._send(domain, IdleStatus(idle))

    def repeat(self) -> None:
        """Tell all once more."""
        for domain in self._domains:
            if domain.watermark is not None:
                self.tell_watermark(domain)
            if domain.idle:
                self._send(domain, IdleStatus(True))

    def _send(self, domain: TimeDomain, element: Watermark | IdleStatus) -> None:
        for writer in self._writers[id(domain)]:
            writer.broadcast(element)
