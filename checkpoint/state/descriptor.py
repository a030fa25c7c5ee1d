"""What all declared states have in common."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, Self, TypeVar, overload

from checkpoint.codec import EncodingError
from checkpoint.state.contents import Declared, StateContent
from checkpoint.state.declared_type import DeclaredType, declared_type
from checkpoint.state.errors import StateAccessError, WrongDeclaration
from checkpoint.state.evolution import Evolution, Migrate

H = TypeVar("H")
"""The type of a handle: what the attribute is on an instance that runs."""


class StateDescriptor(Generic[H]):
    """A declared state. On an instance that runs, the attribute is a handle to the state of the current key.

    It is no data descriptor: `bind` puts the handle into the instance, where Python finds it without asking here.
    """

    kind: ClassVar[str]
    content: ClassVar[type] = object
    """The type that a value of this kind has in a snapshot."""

    def __init__(self, record: Any = None, migrate: Migrate | None = None) -> None:
        """
        Args:
            record: the class of the values; `None` = they may be of any type.
            migrate: from a value of a checkpoint that doesn't fit (see `checkpoint.state.evolution`) to a new one.
        """
        self.name = ""
        """The name of the attribute, under which the state is kept in checkpoints."""
        self.declared: DeclaredType | None = None
        """The type of the values."""
        if record is not None:
            self.declared = declared_type(record)
            if self.declared is None:
                raise WrongDeclaration(
                    f"{type(self).__name__} takes the class of its values as record (a dataclass, Struct, TypedDict, "
                    f"named tuple, enum or pydantic model), not {record!r}"
                )
        if migrate is not None and not callable(migrate):
            raise WrongDeclaration(f"migrate must be a function of an old value, not {migrate!r}")
        self.migrate = migrate

    def __set_name__(self, owner: type, name: str) -> None:
        if self.name and self.name != name:
            raise StateAccessError(
                f"{owner.__qualname__}: {self.name} and {name} are the same state object; give each its own"
            )
        self.name = name

    def check(self) -> None:
        """Raises:
        EncodingError: the state's default, or values of its class, can't be kept in a checkpoint.
        """
        self.written()

    def written(self) -> Declared:
        """What a snapshot notes of the state beside its values.

        Raises:
            EncodingError: as `check`.
        """
        try:
            return Declared(self.content, None if self.declared is None else self.declared.shape)
        except TypeError as error:
            raise EncodingError(f"the values of state {self.name!r} can't be kept in a checkpoint: {error}") from None

    def evolution(self, what: str, stored: StateContent | None) -> Evolution:
        """How values of a snapshot become values of this state.

        Args:
            what: the state as messages name it.
            stored: what the snapshot says of the state.
        """
        content = self.content if self.content in (list, dict) else object
        return Evolution(what, content, self.declared, self.migrate, stored)

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> H: ...
    def __get__(self, instance: object | None, owner: type) -> Self | H:
        if instance is None:
            return self
        raise StateAccessError(
            f"state {self.name!r} of {type(instance).__qualname__} can be used only while the operator runs, "
            "so not in __init__. To test an operator, run it in an OperatorHarness"
        )
