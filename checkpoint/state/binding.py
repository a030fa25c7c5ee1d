"""Which states a class declares, and how they become handles on an instance that runs."""

from __future__ import annotations

from typing import Any, Final

from checkpoint.state.broadcast import BroadcastHandle, BroadcastStates
from checkpoint.state.descriptor import StateDescriptor
from checkpoint.state.descriptors import (
    BroadcastState,
    Handles,
    KeyedStateDescriptor,
    OperatorListState,
    OperatorUnionState,
)
from checkpoint.state.errors import StateAccessError
from checkpoint.state.handles import Handle
from checkpoint.state.operator_lists import LIST, UNION, OperatorListHandle, OperatorLists
from checkpoint.state.stores import MISSING, Missing

OF_SUBTASKS: Final = (OperatorListState, OperatorUnionState)
"""Kinds of state that any operator may have, keyed or not, whatever its streams."""


class DeclaresState:
    """Base of operators with states: refuses `self.total = 5`, which would replace the state by a plain attribute."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Operators without states keep the plain, faster assignment.
        if descriptors_of(cls):
            cls.__setattr__ = _refuse_states  # type: ignore[method-assign]


def _refuse_states(self: object, name: str, value: Any) -> None:
    descriptor = getattr(type(self), name, None)
    if isinstance(descriptor, StateDescriptor):
        update = f"self.{name}.update(…)"
        how = {"value": f"self.{name}.value = …", "list": update, LIST: update, UNION: update}.get(descriptor.kind)
        raise StateAccessError(
            f"{name} is a state of {type(self).__qualname__} and can't be assigned to"
            + (f"; use {how}" if how else "; change it through its methods")
        )
    object.__setattr__(self, name, value)


_PLACED: Final = (Handle, BroadcastHandle, OperatorListHandle, Missing)
"""What an instance may have under the name of a state."""


def descriptors_of(cls: type) -> dict[str, StateDescriptor[Any]]:
    """The states that a class declares or inherits, by name."""
    found: dict[str, StateDescriptor[Any]] = {}
    for base in reversed(cls.__mro__):
        for name, attribute in vars(base).items():
            found.pop(name, None)
            if isinstance(attribute, StateDescriptor):
                found[name] = attribute
    return found


def bind(
    instance: object,
    backend: Handles | None,
    broadcast: BroadcastStates | None = None,
    lists: OperatorLists | None = None,
) -> None:
    """Connect every state that the operator declares with where it is kept. Comes before `restore` and `open`.

    Args:
        backend: for what belongs to keys; `None` where there are none.
        broadcast: for broadcast state.
        lists: for operator list and union state.

    Raises:
        EncodingError: the default of a state can't be kept in a checkpoint.
        StateAccessError: the instance has something else under the name of a state, or a state has no place.
    """
    operator = type(instance).__qualname__
    for name, descriptor in descriptors_of(type(instance)).items():
        descriptor.__set_name__(type(instance), name)  # for those that were put into the class later
        descriptor.check()
        if not isinstance(vars(instance).get(name, MISSING), _PLACED):
            raise StateAccessError(f"{operator}.{name} is a state, but the instance has an attribute of that name")
        if isinstance(descriptor, BroadcastState):
            if broadcast is None:
                raise StateAccessError(f"{operator}.{name} is broadcast state, which needs a broadcast stream")
            vars(instance)[name] = broadcast.handle(name, operator, descriptor)
        elif isinstance(descriptor, OF_SUBTASKS):
            if lists is None:
                raise StateAccessError(f"{operator}.{name} is {descriptor.kind} state, which only operators have")
            vars(instance)[name] = lists.handle(name, descriptor.kind, operator, descriptor)
        elif not isinstance(descriptor, KeyedStateDescriptor):
            raise StateAccessError(f"{operator}.{name}: there is no state of type {type(descriptor).__qualname__}")
        elif backend is None:
            raise StateAccessError(f"{operator}.{name} is state of keys; make {operator} a KeyedOperator")
        else:
            vars(instance)[name] = descriptor.make_handle(backend, operator)
