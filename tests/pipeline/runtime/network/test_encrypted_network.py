"""Channels that are encrypted: who is kept out of them, and what can be read on the way."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from deadlines import PATIENCE, eventually
from wire_parts import wiretap

from checkpoint.elements import Data
from pipeline.buffers import BufferConfig
from pipeline.runtime.auth import AuthenticationError, new_secret
from pipeline.runtime.encryption import Encryption
from pipeline.runtime.network.frames import ChannelId
from pipeline.runtime.network.network import Network

SECRET = new_secret()
CHANNEL = ChannelId(0, 0, 1)
MARK = b"a marked value"


class Side:
    """A network, and what it says."""

    def __init__(self, secret: bytes, encryption: Encryption | None, **options: Any) -> None:
        self.woken = threading.Event()
        self.errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        self.network = Network(
            secret,
            "127.0.0.1",
            self.woken.set,
            self.errors.put,
            lambda *_: None,
            BufferConfig(),
            encryption=encryption,
            **options,
        )
        self.network.start()


Make = Callable[..., Side]


@pytest.fixture
def side() -> Iterator[Make]:
    made: list[Side] = []

    def make(secret: bytes, encryption: Encryption | None, **options: Any) -> Side:
        made.append(Side(secret, encryption, **options))
        return made[-1]

    yield make
    for one in made:
        one.network.close()


@pytest.mark.parametrize(
    ("stranger", "told", "logged"),
    [
        ((new_secret(), None), "closed the connection|Connection reset", "the peer doesn't encrypt as this side does"),
        (
            (SECRET, Encryption(new_secret())),
            "the peer has another certificate: it belongs to another job",
            "refuses its certificate",
        ),
        (
            (new_secret(), Encryption(SECRET)),
            "the peer doesn't know the job's secret: it belongs to another job",
            "the peer closed the connection|Connection reset",
        ),
    ],
    ids=["no TLS", "another certificate", "the right certificate and another secret"],
)
def test_strangers_are_refused_by_name(
    side: Make,
    caplog: pytest.LogCaptureFixture,
    stranger: tuple[bytes, Encryption | None],
    told: str,
    logged: str,
) -> None:
    down = side(SECRET, Encryption(SECRET))
    up = side(*stranger, connect_timeout=0.3)
    up.network.add_output(CHANNEL)
    up.network.connect({1: down.network.address}, 0)
    error = up.errors.get(timeout=PATIENCE)
    assert "can't connect to subtask 1 at 127.0.0.1" in str(error)
    with pytest.raises(ConnectionError, match=told):
        raise error
    if stranger[1] is not None:
        assert isinstance(error.__cause__, AuthenticationError)

    def lines() -> list[str]:
        return [line for line in caplog.messages if line.startswith("dropped a connection from 127.0.0.1")]

    caplog.set_level(logging.WARNING)
    eventually(lambda: bool(lines()))
    with pytest.raises(AssertionError, match=logged):
        raise AssertionError(lines())
    assert down.errors.empty()


@pytest.mark.parametrize("encrypts", [True, False])
def test_records_can_be_read_on_the_way_unless_they_are_encrypted(side: Make, encrypts: bool) -> None:
    encryption = Encryption(SECRET) if encrypts else None
    up, down = side(SECRET, encryption), side(SECRET, encryption)
    output = up.network.add_output(CHANNEL)
    down.network.add_input(CHANNEL)
    down.network.connect({}, 1)
    with wiretap(down.network.address) as tap:
        up.network.connect({1: tap.address}, 0)
        output.send(Data(MARK * 1000, len(MARK) * 1000, 1))
        while (polled := down.network.inputs.poll()) is None:
            assert down.woken.wait(PATIENCE)
            down.woken.clear()
        element = polled[1]
        assert isinstance(element, Data)
        assert bytes(element.payload) == MARK * 1000
        assert len(tap.seen) > len(MARK) * 1000
        assert (MARK in tap.seen) is not encrypts
        up.network.close()
