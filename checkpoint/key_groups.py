"""Key groups: the unit in which keyed state and keyed in-flight data move when a job is rescaled.

A key belongs to one key group for ever; a subtask owns a contiguous range of groups. Both functions below are part of
the format of checkpoints: a changed result would look for state in the wrong place.
"""

from __future__ import annotations

from typing import Final

from xxhash import xxh3_64_intdigest

MAX_MAX_PARALLELISM: Final = 1 << 15
"""Key groups travel as int16."""


def key_group(encoded: bytes, max_parallelism: int) -> int:
    """The group, below `max_parallelism`, of a key as `codec.encode_key` encodes it."""
    return int(xxh3_64_intdigest(encoded)) % max_parallelism


def subtask_of(group: int, parallelism: int, max_parallelism: int) -> int:
    """The index of the subtask that owns the group. Where it is asked per record, keep a table of all groups.

    Raises:
        ValueError: the numbers don't fit together.
    """
    check_parallelism(parallelism, max_parallelism)
    if not 0 <= group < max_parallelism:
        raise ValueError(f"key group {group} is outside 0..{max_parallelism - 1}")
    return group * parallelism // max_parallelism


def range_of(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """The groups that the subtask owns.

    Raises:
        ValueError: the numbers don't fit together.
    """
    check_parallelism(parallelism, max_parallelism)
    if not 0 <= subtask < parallelism:
        raise ValueError(f"subtask {subtask} is outside 0..{parallelism - 1}")
    return range(-(-subtask * max_parallelism // parallelism), -(-(subtask + 1) * max_parallelism // parallelism))


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Raises:
    ValueError: not 1 ≤ parallelism ≤ max parallelism ≤ 32768.
    """
    if not 1 <= max_parallelism <= MAX_MAX_PARALLELISM:
        raise ValueError(f"max_parallelism must be from 1 to {MAX_MAX_PARALLELISM}, not {max_parallelism}")
    if not 1 <= parallelism <= max_parallelism:
        raise ValueError(
            f"parallelism {parallelism} must be from 1 to max_parallelism, {max_parallelism}; "
            "lower it, or start a job without state with a higher max_parallelism"
        )
