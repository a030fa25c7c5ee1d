"""Values as they were stored, where the classes of today don't fit them any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from checkpoint.codec.decoding import RecordParts, decode_records
from checkpoint.codec.errors import UnfitClass
from checkpoint.codec.records import form_named


class StoredRecord(dict[str, Any]):
    """A value of a class that is gone or has changed, as it was stored: its fields by name. What a function that is
    given as `migrate` gets.

    It can be kept nowhere: make a value of a class of it, or a plain dict by `dict(record)`.
    """

    __slots__ = ("class_name", "more")

    encoding_advice: ClassVar[str] = "it is a value as it was stored; make a value of a class of it, or dict(…)"

    def __init__(self, fields: dict[str, Any], class_name: str, more: dict[str, Any] | None = None) -> None:
        """
        Args:
            class_name: `module:qualname` of then, such as `orders:Order`.
            more: what it held beside its fields: other attributes; of a pydantic model `more`, `set` (the fields that
                were given), `extra` and `private`.
        """
        super().__init__(fields)
        self.class_name = class_name
        self.more = more

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)  # it may be a key or the member of a set, as what it was made of

    def __repr__(self) -> str:
        return f"<{self.class_name} {super().__repr__()}>"


def decode_stored(data: bytes, changed: Callable[[str, Any], str | None]) -> tuple[Any, list[str]]:
    """The value of which `encode` made this, with what fits the classes of today.

    A value of a class that doesn't fit, or that holds one, is a `StoredRecord`; a member of an enum is its name, a flag
    without one its number, and what was pickled its pickle.

    Args:
        changed: why values of a class with such content don't fit it any more, apart from what `Form.make` refuses;
            `None` if they do.

    Returns:
        The value, and what doesn't fit; nothing if all does.

    Raises:
        DecodingError, UnknownTimeZone: as `decode`.
        UnfitClass: keys or members are equal now that were not.
    """
    problems: dict[str, None] = {}
    unfit = 0

    def made(parts: Callable[[], RecordParts]) -> Any:
        nonlocal unfit
        before = unfit
        name, content, more = parts()
        if unfit == before:
            problem = changed(name, content)
            if problem is None:
                try:
                    return form_named(name).make(content, more)
                except UnfitClass as error:
                    problem = str(error)
            problems[problem] = None
        unfit += 1
        return StoredRecord(content, name, more) if type(content) is dict else content

    return decode_records(data, made, all_kept=True), list(problems)
