"""How the records of an edge are spread over the subtasks downstream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from types import CodeType
from typing import Any

from checkpoint.errors import Explained
from checkpoint.shown import no_field


class Distribution(StrEnum):
    FORWARD = "forward"
    """Subtask i to subtask i; chained where possible."""
    KEYED = "keyed"
    """By key group: all records of a key reach one subtask, in order."""
    REBALANCE = "rebalance"
    """Round-robin over all subtasks."""
    RESCALE = "rescale"
    """Round-robin over this subtask's share of the subtasks downstream."""
    CUSTOM = "custom"
    """As the user's function says."""
    BROADCAST = "broadcast"
    """Every record to every subtask."""


@dataclass(frozen=True)
class KeySelector:
    """Takes the key out of a record.

    `field` is a field name (of a dict), an index (of a list) or a function of the record.
    """

    field: str | int | Callable[[Any], Any]

    def __str__(self) -> str:
        if callable(self.field):
            return f"key_by({getattr(self.field, '__name__', type(self.field).__name__)})"
        return f"key_by({self.field!r})"

    def compile(self) -> Callable[[Any], Any]:
        """A function of the record. It raises `KeyMissing` when the field isn't there."""
        if callable(self.field):
            return self.field
        field, label = self.field, str(self)

        def key_of(value: Any) -> Any:
            try:
                return value[field]
            except (KeyError, IndexError, TypeError) as error:
                advice = "filter such records out before key_by, or give key_by a function that has an answer for them"
                raise KeyMissing(f"{label}: {no_field(value, field, advice)}") from error

        return key_of


class KeyMissing(Explained, LookupError):
    """A record without the field that `key_by` names."""


@dataclass(frozen=True)
class Partitioner:
    """The distribution of an edge, with what it needs."""

    distribution: Distribution
    key: KeySelector | None = None
    """For keyed edges."""
    function: Callable[[Any, int], int] | None = None
    """For custom edges: (record, number of subtasks downstream) → index of one."""

    @property
    def fingerprint(self) -> str:
        """Tells, over processes and restarts, whether an edge is still partitioned as it was.

        Of a function it knows the name and its own code, not what that calls.
        """
        if self.key is not None:
            field = self.key.field
            return f"{self.distribution}:{_function_fingerprint(field) if callable(field) else repr(field)}"
        if self.function is not None:
            return f"{self.distribution}:{_function_fingerprint(self.function)}"
        return str(self.distribution)


def _function_fingerprint(function: Any) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    name = f"{named.__module__}.{named.__qualname__}"
    code = getattr(function, "__code__", None)
    return name if code is None else f"{name}:{sha256(_code_text(code).encode()).hexdigest()[:16]}"


def _code_text(code: CodeType) -> str:
    """The code without its place in a file."""
    constants = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            constants.append(_code_text(constant))
        elif isinstance(constant, frozenset):  # its order changes with the process
            constants.append(repr(sorted(map(repr, constant))))
        else:
            constants.append(repr(constant))
    return repr((code.co_code, code.co_names, constants))


FORWARD = Partitioner(Distribution.FORWARD)
REBALANCE = Partitioner(Distribution.REBALANCE)
RESCALE = Partitioner(Distribution.RESCALE)
BROADCAST = Partitioner(Distribution.BROADCAST)


def rescale_targets(upstream: int, upstreams: int, downstreams: int) -> range:
    """The downstream subtasks that upstream subtask number `upstream` sends to on a rescale edge.

    Every downstream subtask has at least one upstream subtask and the shares differ by one at most.
    """
    if upstreams >= downstreams:
        target = upstream * downstreams // upstreams
        return range(target, target + 1)
    return range(
        -(-upstream * downstreams // upstreams),
        -(-(upstream + 1) * downstreams // upstreams),
    )
