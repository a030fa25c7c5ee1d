"""What a subtask captures for a checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from checkpoint.elements import ChannelName, Data, EdgeName, InFlight


class Part(StrEnum):
    """Where an element was captured."""

    RESTORED = "restored"
    """In the rest of the subtask's restored sequence."""
    INPUT = "input"
    """On an input channel, in front of its barrier."""
    OUTPUT = "output"
    """In an output queue, overtaken by the barrier."""


@dataclass(slots=True)
class CapturedState:
    restored: list[tuple[ChannelName, InFlight]] = field(default_factory=list)
    """One ordered sequence, which comes before all else. Channels are those of the attempt that captured it first."""
    inputs: dict[ChannelName, list[InFlight]] = field(default_factory=dict)
    outputs: dict[ChannelName, list[InFlight]] = field(default_factory=dict)

    def elements(self) -> Iterator[tuple[Part, ChannelName, InFlight]]:
        """Part by part, channel by channel, in order."""
        for channel, element in self.restored:
            yield Part.RESTORED, channel, element
        for part, channels in ((Part.INPUT, self.inputs), (Part.OUTPUT, self.outputs)):
            for channel, elements in channels.items():
                for element in elements:
                    yield part, channel, element

    def rows(self) -> dict[EdgeName, int]:
        """Rows still to be processed, by edge; edges without any are left out."""
        return _by_edge(self, of_rows=True)

    def sizes(self) -> dict[EdgeName, int]:
        """Bytes of these rows, as flow control counts them."""
        return _by_edge(self, of_rows=False)

    def __bool__(self) -> bool:
        return bool(self.restored or any(self.inputs.values()) or any(self.outputs.values()))


def _by_edge(captured: CapturedState, of_rows: bool) -> dict[EdgeName, int]:
    found: Counter[EdgeName] = Counter()
    for _, channel, element in captured.elements():
        if isinstance(element, Data) and element.rest:
            found[channel.edge] += element.rest if of_rows else element.size * element.rest // element.rows
    return dict(found)
