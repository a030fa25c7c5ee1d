"""Passwords of users that a secured broker knows."""

from __future__ import annotations

from pipeline.broker.native import NativeBroker
from pipeline.testing import KafkaBroker


def rotate(broker: KafkaBroker, old: str, new: str) -> None:
    """The broker knows a user by another password from now on, and has lost all connections."""
    native = broker._backend
    assert isinstance(native, NativeBroker)
    file = native.directory / "server.properties"
    text = file.read_text()
    assert old in text
    broker.kill()
    file.write_text(text.replace(old, new))
    broker.restart()
