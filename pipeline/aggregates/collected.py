"""All values, and how many different ones."""

from __future__ import annotations

from collections.abc import Callable, Sized
from itertools import chain
from typing import Any, TypeAlias, TypeVar

from checkpoint.codec import check, encode_key
from checkpoint.codec.errors import EncodingError
from checkpoint.options import named_arguments
from pipeline.aggregates.base import Aggregate, Unfit
from pipeline.aggregates.selectors import Selector, WhenMissing

R = TypeVar("R", bound=Sized)

Runs: TypeAlias = tuple[R, ...]
"""Values in the order in which they came, in parts of which each is larger than the next: to add one to n values copies
log n of them, on average, though nothing is changed."""


def pushed(runs: Runs[R], run: R, join: Callable[[R, R], R]) -> Runs[R]:
    """Runs with one more at the end."""
    i = len(runs)
    while i and len(runs[i - 1]) <= len(run):
        i -= 1
        run = join(runs[i], run)
    return (*runs[:i], run)


def _concatenated(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return a + b


def _united(a: frozenset[bytes], b: frozenset[bytes]) -> frozenset[bytes]:
    return a | b


@named_arguments
class Collect(Aggregate):
    """All values of a field, as a list in the order of their arrival: `Collect("page")`.

    What is merged comes part by part: the panes of a sliding window in order of time, and sessions that become one.
    State holds all values, so use it where they are few: a result costs as much as there are.
    """

    checks = True

    def __init__(
        self, of: Selector = None, *, missing: WhenMissing = "fail", where: Callable[[Any], Any] | None = None
    ) -> None:
        """See `Aggregate`."""
        super().__init__(of, missing=missing, where=where)

    def create(self) -> Runs[tuple[Any, ...]]:
        return ()

    def add(self, acc: Runs[tuple[Any, ...]], value: Any) -> Runs[tuple[Any, ...]]:
        check(value)
        return pushed(acc, (value,), _concatenated)

    def merge(self, a: Runs[tuple[Any, ...]], b: Runs[tuple[Any, ...]]) -> Runs[tuple[Any, ...]]:
        for run in b:
            a = pushed(a, run, _concatenated)
        return a

    def result(self, acc: Runs[tuple[Any, ...]]) -> list[Any]:
        return list(chain.from_iterable(acc))


@named_arguments
class CountDistinct(Aggregate):
    """How many different values a field has: `CountDistinct("user")`.

    Values are compared as keys are: 1, 1.0 and True are different, two NaNs are not. State holds all of them; where
    they are many, `ApproxCountDistinct` needs a few kilobytes.
    """

    checks = True

    def __init__(
        self, of: Selector = None, *, missing: WhenMissing = "fail", where: Callable[[Any], Any] | None = None
    ) -> None:
        """See `Aggregate`."""
        super().__init__(of, missing=missing, where=where)

    def create(self) -> Runs[frozenset[bytes]]:
        return ()

    def add(self, acc: Runs[frozenset[bytes]], value: Any) -> Runs[frozenset[bytes]]:
        key = encoded_as_key(value)
        for run in acc:
            if key in run:
                return acc
        return pushed(acc, frozenset((key,)), _united)

    def merge(self, a: Runs[frozenset[bytes]], b: Runs[frozenset[bytes]]) -> Runs[frozenset[bytes]]:
        new = frozenset(chain.from_iterable(b)).difference(*a)
        return pushed(a, new, _united) if new else a

    def result(self, acc: Runs[frozenset[bytes]]) -> int:
        return sum(map(len, acc))


def encoded_as_key(value: Any) -> bytes:
    """
    Raises:
        Unfit: the value can't be told from others as a key can.
    """
    try:
        return encode_key(value)
    except EncodingError as error:
        raise Unfit(f"different values are counted only of types that keys may have: {error}") from None
