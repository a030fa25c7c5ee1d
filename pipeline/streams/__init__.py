"""The fluent interface: streams, and the methods that add steps to a pipeline."""

from pipeline.streams.branches import Branches
from pipeline.streams.connected import ConnectedStreams
from pipeline.streams.keyed import KeyedStream
from pipeline.streams.stream import Stream

__all__ = ["Branches", "ConnectedStreams", "KeyedStream", "Stream"]
