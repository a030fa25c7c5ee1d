"""What user code may return where any number of records is expected."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from checkpoint.errors import Explained
from checkpoint.shown import shown

NO_OUTPUTS: Final = frozenset({dict, str, bytes})
"""They can be iterated, but whoever returns one means it as one record."""


class NotRecords(Explained, TypeError):
    """A step has returned one record where any number is expected."""

    def __init__(self, who: str, outputs: Any):
        kind = type(outputs).__name__
        why = (
            "which would be taken apart into records" if type(outputs) in NO_OUTPUTS else "which is no list of records"
        )
        article = "an" if kind[0] in "aeiouAEIOU" else "a"
        super().__init__(
            f"{who} returned {article} {kind}, {why} ({shown(outputs, 200)}): yield it, or return it in a list"
        )


def check_outputs(who: str, outputs: Any) -> None:
    """Called once something has failed, so that records pay nothing for it.

    Raises:
        NotRecords: it can't be iterated.
    """
    if not isinstance(outputs, Iterable) and not hasattr(outputs, "__getitem__"):
        raise NotRecords(who, outputs) from None
