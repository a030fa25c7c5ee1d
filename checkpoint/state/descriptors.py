"""What users write as class attributes of a keyed operator to declare its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar, overload

from checkpoint.codec import EncodingError, check
from checkpoint.options import Seconds, named_options
from checkpoint.state.broadcast import BroadcastHandle, BroadcastStates
from checkpoint.state.errors import StateAccessError
from checkpoint.state.handles import AggregatingHandle, Handle, ListHandle, MapHandle, ReducingHandle, ValueHandle
from checkpoint.state.operator_lists import LIST, UNION, OperatorListHandle, OperatorLists
from checkpoint.state.private_copy import is_changeable
from checkpoint.state.stores import MISSING, Missing
from checkpoint.state.ttl import TTL, ttl_of

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")
H = TypeVar("H")
"""The type of a handle: what the attribute is on an instance that runs."""


class StateDescriptor(Generic[H]):
    """A declared state. On an instance that runs, the attribute is a handle to the state of the current key.

    It is no data descriptor: `bind` puts the handle into the instance, where Python finds it without asking here.
    """

    kind: ClassVar[str]
    content: ClassVar[type] = object
    """The type that a value of this kind has in a snapshot."""

    def __init__(self) -> None:
        self.name = ""
        """The name of the attribute, under which the state is kept in checkpoints."""

    def __set_name__(self, owner: type, name: str) -> None:
        if self.name and self.name != name:
            raise StateAccessError(
                f"{owner.__qualname__}: {self.name} and {name} are the same state object; give each its own"
            )
        self.name = name

    def check(self) -> None:
        """Raises:
        EncodingError: the state's default can't be kept in a checkpoint.
        """

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


class Handles(Protocol):
    """Where handles to states of keys come from: a keyed backend, which knows the state from then on. `operator`: the
    name of its class, for messages."""

    def value_handle(
        self, descriptor: KeyedStateDescriptor[Any], operator: str, default: Any, factory: Callable[[], Any] | None
    ) -> ValueHandle[Any]: ...
    def list_handle(self, descriptor: KeyedStateDescriptor[Any], operator: str) -> ListHandle[Any]: ...
    def map_handle(self, descriptor: KeyedStateDescriptor[Any], operator: str) -> MapHandle[Any, Any]: ...


class KeyedStateDescriptor(StateDescriptor[H]):
    """A declared state of keys.

    Args:
        ttl: how long its entries live, in seconds or as `timedelta` or `TTL`; `None` = until they are cleared.
    """

    def __init__(self, ttl: TTL | Seconds | None = None) -> None:
        super().__init__()
        self.ttl = ttl_of(ttl)

    def make_handle(self, handles: Handles, operator: str) -> H:
        """The handle to this state in a backend."""
        raise NotImplementedError


def _check_kept(value: Any, what: str) -> None:
    try:
        check(value)
    except EncodingError as error:
        raise EncodingError(f"{what} can't be kept in a checkpoint: {error}") from None


def _check_factory(factory: Callable[[], Any], what: str) -> None:
    value = factory()
    _check_kept(value, what)
    if is_changeable(value) and factory() is value:
        raise StateAccessError(
            f"{what} is the same {type(value).__name__} for all keys; the function must make a new one each time"
        )


def _safely_changeable(default: Any) -> bool:
    try:
        return is_changeable(default)
    except TypeError:
        return False  # `check` refuses it


class _WithDefault(KeyedStateDescriptor[H]):
    def __init__(self, default: Any, ttl: TTL | Seconds | None) -> None:
        super().__init__(ttl)
        self.default: Any = None
        self.factory: Callable[[], Any] | None = None
        if callable(default):
            self.factory = default
        elif _safely_changeable(default):
            made = type(default).__name__ if default in ([], {}, set(), b"") else f"lambda: {default!r}"
            raise StateAccessError(f"default={default!r} would be one object for all keys; use default={made}")
        else:
            self.default = default

    def check(self) -> None:
        if self.factory is not None:
            _check_factory(self.factory, f"the default of state {self.name!r}")
        elif self.default is not MISSING:
            _check_kept(self.default, f"the default of state {self.name!r}")


@named_options
class ValueState(_WithDefault[ValueHandle[T]], Generic[T]):
    """One value a key: `self.total.value += 1`.

    Args:
        default: the value of a key that has none; a callable makes a new one for each key (`default=list`).
        ttl: how long a value lives after it was put, in seconds or as `timedelta`, or as `TTL` for more; `None` = until
            it is cleared. What a change in place has become lives no longer for that: put it again, or let reads
            refresh it.
    """

    kind = "value"

    @overload
    def __init__(self: ValueState[Any], default: None = None, *, ttl: TTL | Seconds | None = None) -> None: ...
    @overload
    def __init__(self: ValueState[T], default: Callable[[], T], *, ttl: TTL | Seconds | None = None) -> None: ...
    @overload
    def __init__(self: ValueState[T], default: T, *, ttl: TTL | Seconds | None = None) -> None: ...
    def __init__(self, default: Any = None, *, ttl: TTL | Seconds | None = None) -> None:
        super().__init__(default, ttl)

    def make_handle(self, handles: Handles, operator: str) -> ValueHandle[T]:
        return handles.value_handle(self, operator, self.default, self.factory)


@named_options
class ReducingState(_WithDefault[ReducingHandle[T]], Generic[T]):
    """One value a key that `add` reduces every new value into: `self.largest.add(x)`.

    Args:
        reduce_fn: from the value so far and the new one to the next; it may change the former in place.
        default: where the reduction starts (like the last argument of `functools.reduce`), and what `value` is before
            it has. Without one the first value added is kept as it is.
        ttl: how long the value lives after the last `add` (see `ValueState`).
    """

    kind = "reducing"

    def __init__(
        self,
        reduce_fn: Callable[[Any, Any], T],
        default: T | Callable[[], T] | Missing = MISSING,
        *,
        ttl: TTL | Seconds | None = None,
    ) -> None:
        super().__init__(default, ttl)
        if not callable(reduce_fn):
            raise StateAccessError(f"ReducingState needs a function of two values, not {reduce_fn!r}")
        self.reduce_fn = reduce_fn

    def make_handle(self, handles: Handles, operator: str) -> ReducingHandle[T]:
        return ReducingHandle(handles.value_handle(self, operator, self.default, self.factory), self.reduce_fn)


@named_options
class AggregatingState(KeyedStateDescriptor[AggregatingHandle[V, R]], Generic[V, R]):
    """One accumulator a key that values are added to: `self.average.add(x)`; `self.average.value` is its result.

        average = AggregatingState(
            create=lambda: (0.0, 0), add=lambda acc, x: (acc[0] + x, acc[1] + 1), result=lambda acc: acc[0] / acc[1]
        )

    Values and result may be of any type; the accumulator is what checkpoints hold.

    Args:
        create: makes the accumulator of a key that has none.
        add: from the accumulator and a new value to the next accumulator; it may change the former in place, and
            returns it then.
        result: from the accumulator to what `value` gives; it changes nothing.
        ttl: how long the accumulator lives after the last `add` (see `ValueState`).
    """

    kind = "aggregating"

    def __init__(
        self,
        create: Callable[[], A],
        add: Callable[[A, V], A],
        result: Callable[[A], R],
        *,
        ttl: TTL | Seconds | None = None,
    ) -> None:
        super().__init__(ttl)
        for name, function in (("create", create), ("add", add), ("result", result)):
            if not callable(function):
                raise StateAccessError(f"AggregatingState: {name} must be a function, not {function!r}")
        self.create: Callable[[], Any] = create
        self.add: Callable[[Any, Any], Any] = add
        self.result: Callable[[Any], Any] = result

    def make_handle(self, handles: Handles, operator: str) -> AggregatingHandle[V, R]:
        value = handles.value_handle(self, operator, MISSING, None)
        return AggregatingHandle(value, self.create, self.add, self.result)

    def check(self) -> None:
        _check_factory(self.create, f"the accumulator of state {self.name!r}")


@named_options
class ListState(KeyedStateDescriptor[ListHandle[T]], Generic[T]):
    """A list a key: `self.items.append(x)`.

    Args:
        ttl: how long each item lives after it was put (see `ValueState`). Adding one lets the others live no longer;
            `update` puts all of them anew.
    """

    kind = "list"
    content = list

    def __init__(self, *, ttl: TTL | Seconds | None = None) -> None:
        super().__init__(ttl)

    def make_handle(self, handles: Handles, operator: str) -> ListHandle[T]:
        return handles.list_handle(self, operator)


@named_options
class MapState(KeyedStateDescriptor[MapHandle[K, V]], Generic[K, V]):
    """A dict a key: `self.seen[item] = 1`.

    Args:
        ttl: how long each entry lives after it was put (see `ValueState`). Where reads refresh, `in` is a read of the
            one entry, while `len`, `keys` and going through the keys are none.
    """

    kind = "map"
    content = dict

    def __init__(self, *, ttl: TTL | Seconds | None = None) -> None:
        super().__init__(ttl)

    def make_handle(self, handles: Handles, operator: str) -> MapHandle[K, V]:
        return handles.map_handle(self, operator)


class BroadcastState(StateDescriptor[BroadcastHandle[K, V]], Generic[K, V]):
    """One dict for all keys, the same in every subtask: `self.rules[name] = rule` for a record of a broadcast stream.

    Every subtask must do the same with such a record: it can't depend on the subtask, on other records or on state of
    keys. Records of different subtasks upstream come in no set order, so entries under one key should come from one.
    """

    kind = "broadcast"
    content = dict


class OperatorListState(StateDescriptor[OperatorListHandle[T]], Generic[T]):
    """A list of each subtask, in any operator: `self.held.append(x)`.

    After a restore at another parallelism its items are shared out evenly: the lists of the old subtasks, one behind
    the other, are cut into one part for each new subtask. So an item must mean the same wherever it comes to. At the
    same parallelism each subtask finds its own. It can be used from `open` on, and in `restore`.
    """

    kind = LIST


class OperatorUnionState(StateDescriptor[OperatorListHandle[T]], Generic[T]):
    """A list of each subtask, in any operator. After every restore each subtask has the items of all of them.

    The operator takes what it needs in `open`, and keeps only that: `self.offsets.update(mine)`. What it leaves in the
    list would come back once for each subtask that kept it.
    """

    kind = UNION


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
            vars(instance)[name] = broadcast.handle(name, operator)
        elif isinstance(descriptor, OF_SUBTASKS):
            if lists is None:
                raise StateAccessError(f"{operator}.{name} is {descriptor.kind} state, which only operators have")
            vars(instance)[name] = lists.handle(name, descriptor.kind, operator)
        elif not isinstance(descriptor, KeyedStateDescriptor):
            raise StateAccessError(f"{operator}.{name}: there is no state of type {type(descriptor).__qualname__}")
        elif backend is None:
            raise StateAccessError(f"{operator}.{name} is state of keys; make {operator} a KeyedOperator")
        else:
            vars(instance)[name] = descriptor.make_handle(backend, operator)
