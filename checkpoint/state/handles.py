"""What an operator gets when it reads one of its states: access to the value of the current key.

What a handle returns is good within the one call of `process` or `on_timer` that asked for it. It may be changed in
place there, and the change is kept. A reference kept beyond that call must not be changed: the next barrier may
already have given the object to a snapshot, while the state goes on with a copy.

What is put is checked at once: a checkpoint must be able to hold it, and give it back as it is. What becomes of it by
changes in place is checked when the next checkpoint is written.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, MutableMapping, ValuesView
from enum import Enum
from typing import Any, ClassVar, Final, Generic, NoReturn, TypeVar, cast

from checkpoint.codec import SCALARS, EncodingError, decode_key, encode, is_plain
from checkpoint.shown import shown
from checkpoint.state.errors import StateAccessError
from checkpoint.state.groups import IMMUTABLE, KeyContext, KeyGroupMap
from checkpoint.state.misuse import refuse_as_value, refuse_methods, refuse_operators

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


class Missing(Enum):
    """There is no value. (An enum, since its member stays itself when it is pickled.)"""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


_KEYS_OF_MAPS: Final = frozenset({bool, int, float, bytes, type(None)})
"""Types of keys that change nothing in how the values are encoded, beside str."""
_CHECKED_EACH_TIME: Final = 256
"""Bytes."""


class Handle:
    """A state of one operator instance, bound to the backend."""

    __slots__ = ("_context", "_groups", "_name", "_passes")

    encoding_advice: ClassVar[str] = "it is a state; write what it holds, such as self.total.value"

    def __init__(self, name: str, groups: list[KeyGroupMap], context: KeyContext) -> None:
        self._name = name
        self._groups = groups
        self._context = context
        self._passes = 0
        """So many times what was changed in place is put again without being checked."""

    def _group(self) -> KeyGroupMap:
        index = self._context.index
        if index is None:
            self._no_key()
        return self._groups[index]

    def _no_key(self) -> NoReturn:
        raise StateAccessError(
            f"{self._name} was used where there is no current key; keyed state exists only in process and on_timer"
        )

    def _check(self, content: Any, what: str, again: bool = False, flat: list[Any] | None = None) -> None:
        """
        Args:
            content: what is to be kept, in what it will lie in.
            flat: the same as a list, which takes a fraction of the time where `content` is a dict with other keys than
                str.
            again: it is there already, and may have been changed in place. What is large is checked now and then only,
                so that putting it costs no more than what is small; the next snapshot checks it in any case.
        """
        if again and self._passes:
            self._passes -= 1
            return
        try:
            try:
                size = len(encode(content if flat is None else flat))
            except EncodingError:
                size = len(encode(content))  # it is told where it lies
            if again:
                self._passes = size // _CHECKED_EACH_TIME
        except EncodingError as error:
            raise EncodingError(
                f"{self._name} can't keep {what} of key {shown(decode_key(self._context.key))}: {error}"
            ) from None

    def clear(self) -> None:
        """Forget what the current key has."""
        self._group().remove(self._context.key)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}>"


class ValueHandle(Handle, Generic[T]):
    """One value a key."""

    __slots__ = ("_default", "_factory")

    def __init__(
        self,
        name: str,
        groups: list[KeyGroupMap],
        context: KeyContext,
        default: Any = None,
        factory: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(name, groups, context)
        self._default = default
        self._factory = factory

    @property
    def value(self) -> T:
        """The current key's value, or the default. A mutable default is kept once it was read."""
        context = self._context
        index = context.index
        if index is None:
            self._no_key()
        group = self._groups[index]
        try:
            value: T = group.data[context.key]
        except KeyError:
            return cast(T, self._initial(group, context.key))
        if group.private is None or type(value) in IMMUTABLE:
            return value
        return cast(T, group.own(context.key))

    @value.setter
    def value(self, value: T) -> None:
        context = self._context
        index = context.index
        if index is None:
            self._no_key()
        group = self._groups[index]
        if type(value) not in SCALARS and not is_plain(value):
            self._check(value, "the value", group.data.get(context.key, MISSING) is value)
        if group.private is None:
            group.data[context.key] = value
        else:
            group.put(context.key, value)

    def _initial(self, group: KeyGroupMap, key: bytes) -> Any:
        if self._factory is None:
            return self._default
        value = self._factory()
        if type(value) not in SCALARS:
            self._check(value, "the default")
        if type(value) not in IMMUTABLE:
            group.put(key, value)  # else what the operator puts into it would be lost
        return value


class ReducingHandle(Handle, Generic[T]):
    """One value a key, made of everything added to it."""

    __slots__ = ("_reduce", "_value")

    def __init__(
        self,
        name: str,
        groups: list[KeyGroupMap],
        context: KeyContext,
        reduce_fn: Callable[[Any, Any], Any],
        default: Any = MISSING,
        factory: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(name, groups, context)
        self._reduce = reduce_fn
        self._value: ValueHandle[Any] = ValueHandle(name, groups, context, default, factory)

    @property
    def value(self) -> T | None:
        """What was added so far; the default, or else `None`, if there is nothing yet."""
        value = self._value.value
        return None if value is MISSING else value

    def add(self, value: T) -> None:
        """Reduce the value into the current key's. Without a default the first value is kept as it is."""
        before = self._value.value
        self._value.value = value if before is MISSING else self._reduce(before, value)


class AggregatingHandle(Handle, Generic[V, R]):
    """One accumulator a key, and the result of what was added to it."""

    __slots__ = ("_add", "_create", "_result", "_value")

    def __init__(
        self,
        name: str,
        groups: list[KeyGroupMap],
        context: KeyContext,
        create: Callable[[], Any],
        add: Callable[[Any, Any], Any],
        result: Callable[[Any], Any],
    ) -> None:
        super().__init__(name, groups, context)
        self._create = create
        self._add = add
        self._result = result
        self._value: ValueHandle[Any] = ValueHandle(name, groups, context, MISSING)

    @property
    def value(self) -> R | None:
        """The result of what was added for the current key; `None` if nothing was."""
        accumulator = self._value.value
        return None if accumulator is MISSING else cast(R, self._result(accumulator))

    def add(self, value: V) -> None:
        """Add the value to the current key's accumulator.

        Raises:
            TypeError: the function that adds has returned no accumulator.
        """
        before = self._value.value
        after = self._add(self._create() if before is MISSING else before, value)
        if after is None:
            raise TypeError(
                f"the add function of {self._name} returned None; it must return the accumulator, also if it changed "
                "that in place"
            )
        self._value.value = after


for _class in (ValueHandle, ReducingHandle, AggregatingHandle):
    refuse_as_value(_class)


class ListHandle(Handle, Generic[T]):
    """A list a key."""

    __slots__ = ()

    def get(self) -> list[T]:
        """The items, in a new list: adding to it doesn't add to the state, changing an item in place does change it."""
        group, key = self._group(), self._context.key
        if key not in group.data:
            return []
        return list(group.own(key))

    def append(self, item: T) -> None:
        group, key = self._group(), self._context.key
        if type(item) not in SCALARS and not is_plain(item):
            self._check([item], "the item")
        if key in group.data:
            group.own(key).append(item)
        else:
            group.put(key, [item])

    def extend(self, items: Iterable[T]) -> None:
        group, key = self._group(), self._context.key
        added = list(items)
        self._check(added, "items")
        if key in group.data:
            group.own(key).extend(added)
        elif added:
            group.put(key, added)

    def update(self, items: Iterable[T]) -> None:
        """Replace all items."""
        group, replaced = self._group(), list(items)
        self._check(replaced, "items")
        if replaced:
            group.put(self._context.key, replaced)
        else:
            group.remove(self._context.key)

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def __len__(self) -> int:
        return len(self._group().data.get(self._context.key, ()))


refuse_operators(
    ListHandle,
    {
        "iadd": "{0}.extend(…)",
        "imul": "{0}.update({0}.get() * …)",
        "add": "{0}.get() + …",
        "radd": "… + {0}.get()",
        "eq": "{0}.get() == …",
        "ne": "{0}.get() != …",
        "getitem": "{0}.get()[…]",
        "setitem": "{0}.update(…) with all items",
        "delitem": "{0}.update(…) with all items",
    },
)


class MapHandle(Handle, MutableMapping[K, V]):
    """A dict a key. Its own keys compare as in any Python dict."""

    __slots__ = ()

    def _entries(self) -> dict[K, V]:
        """For reading only."""
        return cast(dict[K, V], self._group().data.get(self._context.key, {}))

    def __getitem__(self, map_key: K) -> V:
        group, key = self._group(), self._context.key
        entries = group.data.get(key)
        if entries is None:
            raise KeyError(map_key)
        value = entries[map_key]
        if group.private is not None and type(value) not in IMMUTABLE:
            value = group.own(key)[map_key]
        return cast(V, value)

    def __setitem__(self, map_key: K, value: V) -> None:
        group, key = self._group(), self._context.key
        if not ((type(map_key) in SCALARS or is_plain(map_key)) and (type(value) in SCALARS or is_plain(value))):
            flat = [map_key, value] if type(map_key) in _KEYS_OF_MAPS else None
            self._check({map_key: value}, "the entry", self._entries().get(map_key, MISSING) is value, flat)
        if key in group.data:
            group.own(key)[map_key] = value
        else:
            group.put(key, {map_key: value})

    def __delitem__(self, map_key: K) -> None:
        group, key = self._group(), self._context.key
        entries = group.data.get(key)
        if entries is None or map_key not in entries:
            raise KeyError(map_key)
        if len(entries) == 1:
            group.remove(key)
        else:
            del group.own(key)[map_key]

    def __contains__(self, map_key: object) -> bool:
        return map_key in self._entries()

    def __len__(self) -> int:
        return len(self._entries())

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._entries()))

    def _copy(self) -> dict[K, V]:
        group, key = self._group(), self._context.key
        return dict(group.own(key)) if key in group.data else {}

    def keys(self) -> KeysView[K]:
        """The keys as they are now; the map may be changed while they are gone through."""
        return dict(self._entries()).keys()

    def values(self) -> ValuesView[V]:
        """The values as they are now; the map may be changed while they are gone through."""
        return self._copy().values()

    def items(self) -> ItemsView[K, V]:
        """The entries as they are now; the map may be changed while they are gone through."""
        return self._copy().items()


refuse_operators(MapHandle, {"ior": "{0}.update(…)", "or": "dict({0}) | …", "ror": "… | dict({0})"})
refuse_methods(ListHandle, list, "{0}.get(), and {0}.update(…) with what it becomes")
refuse_methods(MapHandle, dict, "dict({0}), and {0}[…] = … for what changes")
