"""The classes that a program has, for as long as one test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from checkpoint.codec import classes


@contextmanager
def own_classes() -> Iterator[None]:
    """What is installed meanwhile is gone afterwards."""
    before = dict(classes._installed), dict(classes._names), dict(classes._types)
    try:
        yield
    finally:
        for known, old in zip((classes._installed, classes._names, classes._types), before, strict=True):
            known.clear()
            known.update(old)  # type: ignore[arg-type]
        classes.forms.clear()


def program(**found: Any) -> None:
    """From now on the program has these classes, in a module `shop`, and no others there."""
    for name in [name for name in classes._installed if name.startswith("shop:")]:
        del classes._installed[name]
        classes._types.pop(name, None)
    classes.install({f"shop:{name}": cls for name, cls in found.items()}, [])
