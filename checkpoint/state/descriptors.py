"""What users write as class attributes of a keyed operator to declare its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, overload

from checkpoint.options import Seconds, named_options
from checkpoint.state.broadcast import BroadcastHandle
from checkpoint.state.declared_type import RecordClass, declared_type
from checkpoint.state.defaults import check_factory, check_kept, safely_changeable
from checkpoint.state.descriptor import H, StateDescriptor
from checkpoint.state.errors import WrongDeclaration
from checkpoint.state.evolution import Migrate
from checkpoint.state.handles import AggregatingHandle, ListHandle, MapHandle, ReducingHandle, ValueHandle
from checkpoint.state.operator_lists import LIST, UNION, OperatorListHandle
from checkpoint.state.stores import MISSING, Missing
from checkpoint.state.ttl import TTL, ttl_of

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")
C = TypeVar("C", bound=RecordClass)
Ttl: TypeAlias = TTL | Seconds | None


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
        record, migrate: as of every state.
        ttl: how long its entries live, in seconds or as `timedelta` or `TTL`; `None` = until they are cleared.
    """

    def __init__(self, record: Any = None, migrate: Migrate | None = None, ttl: Ttl = None) -> None:
        super().__init__(record, migrate)
        self.ttl = ttl_of(ttl)

    def make_handle(self, handles: Handles, operator: str) -> H:
        """The handle to this state in a backend."""
        raise NotImplementedError


class _WithDefault(KeyedStateDescriptor[H]):
    def __init__(self, default: Any, ttl: Ttl, migrate: Migrate | None = None, record: Any = None) -> None:
        super().__init__(record, migrate, ttl)
        self.default: Any = None
        self.factory: Callable[[], Any] | None = None
        if callable(default):
            self.factory = default
        elif safely_changeable(default):
            made = type(default).__name__ if default in ([], {}, set(), b"") else f"lambda: {default!r}"
            raise WrongDeclaration(f"default={default!r} would be one object for all keys; use default={made}")
        else:
            self.default = default

    def check(self) -> None:
        super().check()
        if self.factory is not None:
            check_factory(self.factory, f"the default of state {self.name!r}")
        elif self.default is not MISSING:
            check_kept(self.default, f"the default of state {self.name!r}")


@named_options
class ValueState(_WithDefault[ValueHandle[T]], Generic[T]):
    """One value a key: `self.total.value += 1`.

    The first argument may be a class of values: a dataclass, Struct, `TypedDict`, named tuple, enum or pydantic model.
    It says of which class the values are; a key that has none has `None` then, if no default is given. Any other first
    argument is the default.

    Args:
        default: the value of a key that has none; a callable makes a new one for each key (`default=list`).
        migrate: makes a new value of one that a checkpoint holds and that doesn't fit: its class is gone or has other
            fields, or is another one than what the state is declared for. It gets fields as a dict (`StoredRecord`).
        ttl: how long a value lives after it was put, in seconds or as `timedelta`, or as `TTL` for more; `None` = until
            it is cleared. What a change in place has become lives no longer for that: put it again, or let reads
            refresh it.
    """

    kind = "value"

    @overload
    def __init__(
        self: ValueState[Any], default: None = None, *, migrate: Migrate | None = None, ttl: Ttl = None
    ) -> None: ...
    @overload
    def __init__(
        self: ValueState[C | None], record: type[C], /, *, migrate: Migrate | None = None, ttl: Ttl = None
    ) -> None: ...
    @overload
    def __init__(
        self: ValueState[C],
        record: type[C],
        /,
        *,
        default: Callable[[], C] | C,
        migrate: Migrate | None = None,
        ttl: Ttl = None,
    ) -> None: ...
    @overload
    def __init__(
        self: ValueState[T], default: Callable[[], T], *, migrate: Migrate | None = None, ttl: Ttl = None
    ) -> None: ...
    @overload
    def __init__(self: ValueState[T], default: T, *, migrate: Migrate | None = None, ttl: Ttl = None) -> None: ...
    def __init__(  # type: ignore[misc]  # the first argument has two names
        self, record: Any = MISSING, /, default: Any = MISSING, *, migrate: Migrate | None = None, ttl: Ttl = None
    ) -> None:
        if default is MISSING:
            default = None
            if record is not MISSING and declared_type(record) is None:
                record, default = None, record
        super().__init__(default, ttl, migrate, None if record is MISSING else record)

    def make_handle(self, handles: Handles, operator: str) -> ValueHandle[T]:
        return handles.value_handle(self, operator, self.default, self.factory)


@named_options
class ReducingState(_WithDefault[ReducingHandle[T]], Generic[T]):
    """One value a key that `add` reduces every new value into: `self.largest.add(x)`.

    Args:
        reduce_fn: from the value so far and the new one to the next; it may change the former in place.
        default: where the reduction starts (like the last argument of `functools.reduce`), and what `value` is before
            it has. Without one the first value added is kept as it is.
        migrate: as of `ValueState`, where a class is gone or has other fields.
        ttl: how long the value lives after the last `add` (see `ValueState`).
    """

    kind = "reducing"

    def __init__(
        self,
        reduce_fn: Callable[[Any, Any], T],
        default: T | Callable[[], T] | Missing = MISSING,
        *,
        migrate: Migrate | None = None,
        ttl: Ttl = None,
    ) -> None:
        super().__init__(default, ttl, migrate)
        if not callable(reduce_fn):
            raise WrongDeclaration(f"ReducingState: reduce_fn must be a function of two values, not {reduce_fn!r}")
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
        migrate: makes a new accumulator of one that a checkpoint holds and whose class is gone or has other fields (see
            `ValueState`).
        ttl: how long the accumulator lives after the last `add` (see `ValueState`).
    """

    kind = "aggregating"

    def __init__(
        self,
        create: Callable[[], A],
        add: Callable[[A, V], A],
        result: Callable[[A], R],
        *,
        migrate: Migrate | None = None,
        ttl: Ttl = None,
    ) -> None:
        super().__init__(migrate=migrate, ttl=ttl)
        for name, function in (("create", create), ("add", add), ("result", result)):
            if not callable(function):
                raise WrongDeclaration(f"AggregatingState: {name} must be a function, not {function!r}")
        self.create: Callable[[], Any] = create
        self.add: Callable[[Any, Any], Any] = add
        self.result: Callable[[Any], Any] = result

    def make_handle(self, handles: Handles, operator: str) -> AggregatingHandle[V, R]:
        value = handles.value_handle(self, operator, MISSING, None)
        return AggregatingHandle(value, self.create, self.add, self.result)

    def check(self) -> None:
        super().check()
        check_factory(self.create, f"the accumulator of state {self.name!r}")


@named_options
class ListState(KeyedStateDescriptor[ListHandle[T]], Generic[T]):
    """A list a key: `self.items.append(x)`.

    Args:
        record: the class of the items (see `ValueState`); `None` = they may be of any type.
        migrate: makes a new item of one that doesn't fit (see `ValueState`).
        ttl: how long each item lives after it was put (see `ValueState`). Adding one lets the others live no longer;
            `update` puts all of them anew.
    """

    kind = "list"
    content = list

    def __init__(self, record: type[T] | None = None, *, migrate: Migrate | None = None, ttl: Ttl = None) -> None:
        super().__init__(record, migrate, ttl)

    def make_handle(self, handles: Handles, operator: str) -> ListHandle[T]:
        return handles.list_handle(self, operator)


@named_options
class MapState(KeyedStateDescriptor[MapHandle[K, V]], Generic[K, V]):
    """A dict a key: `self.seen[item] = 1`.

    Args:
        record: the class of the values, not of the keys (see `ValueState`); `None` = they may be of any type.
        migrate: makes a new value of one that doesn't fit (see `ValueState`). Keys stay what they are.
        ttl: how long each entry lives after it was put (see `ValueState`). Where reads refresh, `in` is a read of the
            one entry, while `len`, `keys` and going through the keys are none.
    """

    kind = "map"
    content = dict

    def __init__(self, record: type[V] | None = None, *, migrate: Migrate | None = None, ttl: Ttl = None) -> None:
        super().__init__(record, migrate, ttl)

    def make_handle(self, handles: Handles, operator: str) -> MapHandle[K, V]:
        return handles.map_handle(self, operator)


@named_options
class BroadcastState(StateDescriptor[BroadcastHandle[K, V]], Generic[K, V]):
    """One dict for all keys, the same in every subtask: `self.rules[name] = rule` for a record of a broadcast stream.

    Every subtask must do the same with such a record: it can't depend on the subtask, on other records or on state of
    keys. Records of different subtasks upstream come in no set order, so entries under one key should come from one.

    Args:
        record: the class of the values (see `ValueState`); `None` = they may be of any type.
        migrate: makes a new value of one that doesn't fit (see `ValueState`). Every subtask calls it, and it must give
            all of them the same.
    """

    kind = "broadcast"
    content = dict

    def __init__(self, record: type[V] | None = None, *, migrate: Migrate | None = None) -> None:
        super().__init__(record, migrate)


@named_options
class OperatorListState(StateDescriptor[OperatorListHandle[T]], Generic[T]):
    """A list of each subtask, in any operator: `self.held.append(x)`.

    After a restore at another parallelism its items are shared out evenly: the lists of the old subtasks, one behind
    the other, are cut into one part for each new subtask. So an item must mean the same wherever it comes to. At the
    same parallelism each subtask finds its own. It can be used from `open` on, and in `restore`.

    Args:
        record: the class of the items (see `ValueState`); `None` = they may be of any type.
        migrate: makes a new item of one that doesn't fit (see `ValueState`).
    """

    kind = LIST
    content = list

    def __init__(self, record: type[T] | None = None, *, migrate: Migrate | None = None) -> None:
        super().__init__(record, migrate)


@named_options
class OperatorUnionState(StateDescriptor[OperatorListHandle[T]], Generic[T]):
    """A list of each subtask, in any operator. After every restore each subtask has the items of all of them.

    The operator takes what it needs in `open`, and keeps only that: `self.offsets.update(mine)`. What it leaves in the
    list would come back once for each subtask that kept it.

    Args:
        record: as of `OperatorListState`.
        migrate: the same.
    """

    kind = UNION
    content = list

    def __init__(self, record: type[T] | None = None, *, migrate: Migrate | None = None) -> None:
        super().__init__(record, migrate)
