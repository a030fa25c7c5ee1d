"""The payload of a `map_async` step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from checkpoint.options import Seconds, is_whole, seconds, whole_number

Order: TypeAlias = bool | Literal["key"]
RetryOn: TypeAlias = type[Exception] | tuple[type[Exception], ...]


class _Nothing:
    """See `NOTHING`."""

    def __repr__(self) -> str:
        return "NOTHING"

    def __reduce__(self) -> str:
        return "NOTHING"


NOTHING: Final = _Nothing()
"""What a function of Weir's own returns for a record that has no result."""


@dataclass(frozen=True)
class AsyncStep:
    function: Callable[..., Any]
    capacity: int
    """Records that may be taken and not emitted yet."""
    ordered: Order
    timeout: float | None
    """Seconds for each try of a request; `None` = no limit."""
    retries: int
    """How often a request that failed is tried again."""
    backoff: float
    """Seconds before the first retry; each further wait is twice as long, up to `LONGEST_BACKOFF`, less up to a half at
    random."""
    retry_on: RetryOn
    batch_size: int | None
    """`None` = a request is for one record."""
    batch_wait: float
    """Seconds that a record waits for its batch to fill."""

    def __call__(self, value: Any) -> Any:
        return self.function(value)


LONGEST_BACKOFF: Final = 30.0
BACKOFF: Final = 0.1
BATCH_WAIT: Final = 0.05


def async_step(
    function: Callable[..., Any],
    capacity: int,
    ordered: Order,
    timeout: Seconds | None,
    retries: int,
    backoff: Seconds | None,
    retry_on: RetryOn | None,
    batch_size: int | None,
    batch_wait: Seconds | None,
) -> AsyncStep:
    """
    Raises:
        ValueError: an option is none, or would have no effect; the message names it.
    """
    retries = whole_number(retries, "retries", 0)
    for name, given, missing in (
        ("backoff", backoff, None if retries else "retries"),
        ("retry_on", retry_on, None if retries else "retries"),
        ("batch_wait", batch_wait, "batch_size" if batch_size is None else None),
    ):
        if given is not None and missing is not None:
            raise ValueError(f"{name}={given!r} would have no effect without {missing}; give {missing}=, too")
    retry_on = Exception if retry_on is None else retry_on
    if ordered not in (True, False, "key") or is_whole(ordered):
        raise ValueError(f'ordered must be True, False or "key", not {ordered!r}')
    kinds = retry_on if isinstance(retry_on, tuple) else (retry_on,)
    if not kinds or not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        raise ValueError(f"retry_on must be a class of exceptions, or a tuple of them, not {retry_on!r}")
    limit = None if timeout is None else seconds(timeout, "timeout", finite=True)
    if limit == 0:
        raise ValueError("timeout must be more than 0 s, or None for no limit")
    capacity = whole_number(capacity, "capacity", 1)
    if batch_size is not None:
        batch_size = whole_number(batch_size, "batch_size", 1)
        if batch_size > capacity:
            raise ValueError(
                f"batch_size must be at most capacity, not {batch_size} with capacity {capacity}: a batch would never "
                "be full"
            )
    return AsyncStep(
        function,
        capacity,
        ordered,
        limit,
        retries,
        BACKOFF if backoff is None else seconds(backoff, "backoff", finite=True),
        kinds,
        batch_size,
        BATCH_WAIT if batch_wait is None else seconds(batch_wait, "batch_wait", finite=True),
    )
