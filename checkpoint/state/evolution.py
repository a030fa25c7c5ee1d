"""State whose classes have changed between two runs: what fits them still, and what `migrate` makes of the rest.

A value fits if it can be made of the classes that the program has now, with all that was written (`Form.make`), if the
types of its fields are what they were or more (`type_shapes.fits`), and if it is of the type that the state is declared
for. What was written is known from the snapshot (`checkpoint.state.contents`); where that doesn't say it, from the
values, without the types of fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from checkpoint.codec import (
    EncodingError,
    UnfitClass,
    decode,
    decode_key,
    decode_opaquely,
    encode,
    is_plain,
    owner_of,
)
from checkpoint.codec.class_shapes import ClassShape, misfits
from checkpoint.codec.stored import decode_stored
from checkpoint.shown import shown
from checkpoint.state.contents import StateContent, looked_at
from checkpoint.state.declared_type import DeclaredKeys, DeclaredType
from checkpoint.state.errors import StateRestoreError
from checkpoint.state.paging import rows
from checkpoint.state.snapshot_format import StateBatch

Migrate: TypeAlias = Callable[[Any], Any]

ADVICE: Final = (
    "Keep the old fields and give new ones a default, or have the state make new values of old ones: migrate=… "
    "(see docs/state.md)"
)
_SHOWN: Final = 500
"""Characters of an old value in a message."""


def class_misfit(shape: ClassShape) -> str | None:
    """Why such values don't fit the class of their name as the program has it now; `None` if they do."""
    problems = misfits(shape)
    return f"class {shape.name} has changed: {', '.join(problems)}" if problems else None


def class_misfits(content: StateContent) -> list[str]:
    """Why values with this content don't fit the classes that the program has now."""
    return [problem for shape in content.classes if (problem := class_misfit(shape)) is not None]


def content_misfits(content: StateContent, declared: DeclaredType | None) -> list[str]:
    """Why values with this content don't fit a state, as far as the snapshot says."""
    return class_misfits(content) + ([] if declared is None else declared.misfits(content))


def fit_unseen(content: StateContent | None, declared: DeclaredType | None) -> bool:
    """Whether all values with this content fit a state, so that nobody has to look at them.

    Args:
        content: what the snapshot says; `None` = nothing, as that of an older version.
    """
    if content is None or content_misfits(content, declared):
        return False
    return declared is None or declared.holds_for(content)


def decoded(batch: StateBatch) -> StateBatch:
    """With the values decoded; still encoded if they may not fit the classes that the program has now.

    Raises:
        DecodingError, UnknownTimeZone: as `checkpoint.codec.decode`.
    """
    if batch.content is None or not class_misfits(batch.content):
        try:
            return batch._replace(values=list(map(decode, batch.values)), encoded=False)
        except UnfitClass:
            pass
    return batch


class Evolution:
    """How the values of one state in one snapshot become values of now."""

    def __init__(
        self,
        what: str,
        content: type,
        declared: DeclaredType | None,
        migrate: Migrate | None,
        stored: StateContent | None,
    ) -> None:
        """
        Args:
            what: the state as messages name it.
            content: `list` or `dict` if values have members, which are migrated one by one.
            stored: what the snapshot says of the state.
        """
        self._what = what
        self._content = content
        self._declared = declared
        self._migrate = migrate
        self.stored = stored
        self.migrated = 0
        """Values, or members of them."""
        self._known: dict[tuple[str, frozenset[str]], str | None] = {}

    def values(self, batch: StateBatch) -> list[Any]:
        """The values of a batch of the state as they are now. Those that are no `content` at all stay what they are.

        Raises:
            StateRestoreError: a value doesn't fit, and there is no `migrate`, or it has failed.
        """
        if not batch.encoded and self._all_of_type(batch.values):
            return batch.values
        found = []
        for key, value in zip(batch.keys, batch.values, strict=True):
            where = f"the value of key {shown(decode_key(owner_of(key)))}"
            if self._content is object:
                found.append(self.value(value, where) if batch.encoded else self._typed(value, where, []))
            else:
                found.append(self._with_members(decode_opaquely(value) if batch.encoded else value, where))
        return found

    def value(self, data: bytes, where: str) -> Any:
        """One encoded value, or one member, as it is now. Otherwise as `values`."""
        return self._typed(*self._stored(data, where))

    def _stored(self, data: bytes, where: str) -> tuple[Any, str, list[str]]:
        """The old value, where it is, and why it doesn't fit."""
        try:
            old, problems = decode_stored(data, self._changed)
        except UnfitClass as error:  # which no `migrate` could make good
            raise StateRestoreError(f"{self._what}: {where} doesn't fit: {error}") from error
        return old, where, problems

    def key(self, data: bytes, where: str) -> Any:
        """One encoded key of a map as it is now; keys aren't migrated. Otherwise as `values`."""
        old, _, problems = self._stored(data, where)
        if problems:
            raise StateRestoreError(f"{self._what}: {where} doesn't fit: {'; '.join(problems)}")
        return old

    def _all_of_type(self, values: list[Any]) -> bool:
        declared, content = self._declared, self._content
        if declared is None:
            return True
        if not self._paged and not all(issubclass(kind, content) for kind in set(map(type, values))):
            return True
        if isinstance(declared, DeclaredKeys) and (self.stored is None or not declared.holds_for(self.stored)):
            return False
        return all(map(declared.takes, set(map(type, looked_at(values, content)))))

    @property
    def _paged(self) -> bool:
        return self.stored is not None and self.stored.paged is not None

    def _with_members(self, whole: Any, where: str) -> Any:
        """`whole`: decoded, values of classes perhaps opaquely."""
        if not self._paged or type(whole) is self._content:
            return self._migrated(whole, where)
        part = rows.part_of(whole, self._content)
        return whole if part is None else rows.with_part(whole, self._migrated(part, f"a page of {where}"))

    def _migrated(self, whole: Any, where: str) -> Any:
        if type(whole) is list and self._content is list:
            return [self._member(item, f"item {i} in {where}") for i, item in enumerate(whole)]
        if type(whole) is dict and self._content is dict:
            found = {
                key if is_plain(key) else self.key(encode(key), f"a key in {where}"): self._member(
                    value, f"the entry {shown(key)} in {where}"
                )
                for key, value in whole.items()
            }
            if len(found) < len(whole):
                raise StateRestoreError(f"{self._what}: {where} has keys that were different and are equal now")
            return found
        return whole

    def _member(self, value: Any, where: str) -> Any:
        return self._typed(value, where, []) if is_plain(value) else self.value(encode(value), where)

    def _changed(self, name: str, content: Any) -> str | None:
        """See `decode_stored`."""
        if self.stored is None or type(content) is not dict:
            return None
        variant = name, frozenset(content)
        if variant not in self._known:
            self._known[variant] = next(
                (
                    problem
                    for shape in self.stored.classes
                    if shape.name == name and shape.fields is not None and shape.fields.keys() == content.keys()
                    if (problem := class_misfit(shape)) is not None
                ),
                None,
            )
        return self._known[variant]

    def _typed(self, old: Any, where: str, problems: list[str]) -> Any:
        if not problems and self._declared is not None:
            problem = self._declared.misfit(old, self.stored)
            problems = [] if problem is None else [problem]
        if not problems:
            return old
        if self._migrate is None:
            raise StateRestoreError(f"{self._what}: {where} doesn't fit: {'; '.join(problems)}. {ADVICE}")
        try:
            new = self._migrate(old)
        except Exception as error:
            raise self._failed(old, where, f"raised {type(error).__name__}: {error}") from error
        if new is None:
            raise self._failed(old, where, "returned None, and would lose it")
        problem = None if self._declared is None else self._declared.problem(new)
        if problem is not None:
            raise self._failed(old, where, f"returned what can't be put there: {problem}")
        try:
            data = encode(new)
        except EncodingError as error:
            raise self._failed(old, where, f"returned what can't be kept: {error}") from None
        self.migrated += 1
        return decode(data)  # `migrate` may give one object twice

    def _failed(self, old: Any, where: str, problem: str) -> StateRestoreError:
        return StateRestoreError(
            f"{self._what}: migrate {problem}. It was given {where}, {shown(old, _SHOWN)}. The checkpoint is as it was"
        )
