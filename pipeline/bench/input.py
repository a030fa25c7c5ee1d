"""The measurements' input: JSON of 110 bytes from 10,000 users."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

USERS: Final = 10_000
RECORD_BYTES: Final = 110
_FIRST_TIME: Final = 1_700_000_000_000


def records(count: int, users: int = USERS, seed: int = 7) -> Iterator[tuple[bytes, bytes]]:
    """Pairs of key (the user) and value; users and amounts at random but the same in every run."""
    rng = random.Random(seed)
    for number in range(count):
        user = f"u{int(rng.random() * users)}"
        head = f'{{"user": "{user}", "amount": {rng.random() * 100:.2f}, "ts": {_FIRST_TIME + number}, "pad": "'
        yield user.encode(), f'{head:x<{RECORD_BYTES - 2}}"}}'.encode()
