"""Addresses of Kafka brokers, names of topics, and what a client has been told about its connections to them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import KafkaError

REFUSES: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED})
"""A user, a password or a certificate. No broker is more patient with a wrong one later on."""
REFUSED: Final = "The brokers refuse this client: correct user, password, certificate, security settings in config"
_NO_LISTENER: Final = "Connection refused"
_ADDRESS: Final = re.compile(
    r"((plaintext|ssl|sasl_plaintext|sasl_ssl)://)?(\[[^\]\s]+\]|[^\s:/,;\[\]]+)(:\d+)?", re.IGNORECASE
)

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: object) -> bool:
    """Whether a topic can have this name. Kafka's client ends the process on half a surrogate pair."""
    return isinstance(name, str) and _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def no_topic_name(name: object) -> str:
    """What to say where `is_topic_name` is false."""
    return (
        f"{name!r} is not a valid name of a topic, which has letters from a to z, digits, '.', '_' and '-', 249 at most"
    )


def check_addresses(servers: Any) -> str:
    """The same, if they are addresses as librdkafka takes them, which leaves out what it can't read.

    Raises:
        ValueError: they are not.
    """
    if isinstance(servers, str) and servers.strip():
        wrong = [one for one in map(str.strip, servers.split(",")) if not _ADDRESS.fullmatch(one)]
        if not wrong:
            return servers
    raise ValueError(f'servers must be addresses such as "localhost:9092,localhost:9093", not {servers!r}')


def nobody_listens(said: Iterable[KafkaError]) -> bool:
    """Whether every broker of a client has been tried, and each time the host refused the connection or there is no
    such host. That is definite at once, other than a broker that is slow.

    Args:
        said: all that the client's error callback was told.
    """
    said = list(said)
    tries = [error for error in said if error.code() != KafkaError._ALL_BROKERS_DOWN]
    return len(tries) < len(said) and all(
        error.code() == KafkaError._RESOLVE or (error.code() == KafkaError._TRANSPORT and _NO_LISTENER in error.str())
        for error in tries
    )
