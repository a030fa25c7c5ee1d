"""The option `on_error` of steps: what becomes of a record that a step's function or operator fails on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from checkpoint.failure_rate import AtMost, at_most_of
from checkpoint.options import named_options
from pipeline.errors import PipelineError
from sources.kafka.on_bad_record import DeadLetter

__all__ = ["ERRORS", "AtMost", "DeadLetter", "OnError", "Skip", "on_error_of"]

ERRORS: Final = "weir:errors"
"""Tag of the side output that failed records go to."""


@named_options
@dataclass(frozen=True)
class Skip:
    """`on_error=Skip(at_most=(0.01, 60))`: leave failed records out, count them and tell of them in the log.

    `on_error="skip"` says the same without a bound.

    Args:
        at_most: more failures than that fail the attempt. `None` (the default): any number may fail.

    Raises:
        ValueError: an argument has a value that it can't have.
    """

    at_most: AtMost | tuple[float, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "at_most", at_most_of(self.at_most))


OnError: TypeAlias = Literal["fail", "skip"] | Skip | DeadLetter


def on_error_of(given: Any, where: str) -> Skip | DeadLetter | None:
    """The option's value; `None` = "fail".

    Args:
        where: the step, as messages name it.

    Raises:
        PipelineError: it is none.
    """
    if given == "fail":
        return None
    if given == "skip":
        return Skip()
    if isinstance(given, Skip | DeadLetter):
        return given
    raise PipelineError(
        f'{where}: on_error must be "fail", "skip", Skip(at_most=…) or DeadLetter(topic, servers=…), not {given!r}'
    )
