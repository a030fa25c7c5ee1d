"""What every kind of class has whose values are carried: a form, which takes its values apart and makes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from ormsgpack import packb

from checkpoint.codec.classes import name_of


class Form(ABC):
    """How the values of one class are taken apart and made."""

    changeable: bool = True
    """Whether a value can be changed in place, apart from what it holds."""
    shape: Any = None
    """What `checkpoint.codec.class_shapes` has found out about the class."""

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.name = name_of(cls)
        self.head: Final = packb(self.name)

    @abstractmethod
    def take(self, value: Any) -> tuple[Any, dict[str, Any] | None]:
        """The content of a value, which must not be changed: a dict by field, or something plain. And what else it
        holds, if anything.

        Raises:
            TypeError: this very value can't be carried; the message says why.
        """

    @abstractmethod
    def make(self, content: Any, more: dict[str, Any] | None) -> Any:
        """The value that `take` took apart; may keep the dicts.

        Raises:
            UnfitClass: the class has changed since.
        """

    def copy(self, value: Any, copied: Callable[[Any], Any]) -> Any:
        """A copy of the value that shares nothing that can be changed. `copied` does the same for what it holds."""
        content, more = self.take(value)
        return self.make(copied(content), None if more is None else copied(more))


def stored_as(content: Any) -> str:
    """As what a value was written that was taken apart into this, in words."""
    return {dict: "a class with fields", str: "an enum", int: "an enum of flags"}.get(type(content), "pickled")
