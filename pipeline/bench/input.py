"""The measurements' input: JSON of 110 bytes from 10,000 users."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

USERS: Final = 10_000
RECORD_BYTES: Final = 110
_FIRST_TIME: Final = 1_700_000_000_000


def records(count: int, users: int = USERS, seed: int = 7, size: int = RECORD_BYTES) -> Iterator[tuple[bytes, bytes]]:
    """Pairs of key (the user) and value; users and amounts at random but the same in every run. `size` in bytes."""
    rng = random.Random(seed)
    for number in range(count):
        yield record(rng, _FIRST_TIME + number, users, size)


def record(rng: random.Random, ts: int, users: int = USERS, size: int = RECORD_BYTES) -> tuple[bytes, bytes]:
    """One of them, with a time of its own."""
    user = f"u{int(rng.random() * users)}"
    head = f'{{"user": "{user}", "amount": {rng.random() * 100:.2f}, "ts": {ts}, "pad": "'
    return user.encode(), f'{head:x<{size - 2}}"}}'.encode()
