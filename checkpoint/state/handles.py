"""What an operator gets when it reads one of its states: access to the value of the current key.

What a handle returns is good within the one call of `process` or `on_timer` that asked for it. It may be changed in
place there, and the change is kept. A reference kept beyond that call must not be changed: the next barrier may
already have given the object to a snapshot, while the state goes on with a copy.

What is put is checked at once: a checkpoint must be able to hold it, and give it back as it is. What becomes of it by
changes in place is checked when the next checkpoint is written.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, MutableMapping, ValuesView
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, cast

from checkpoint.codec import SCALARS, EncodingError, decode_key, encode, is_plain
from checkpoint.shown import shown
from checkpoint.state.declared_type import DeclaredType
from checkpoint.state.map_keys import problem_of_key
from checkpoint.state.private_copy import IMMUTABLE
from checkpoint.state.refused_operators import refuse_as_value, refuse_methods, refuse_operators
from checkpoint.state.stores import MISSING, ListStore, MapStore, StateStore, ValueStore

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


_KEYS: Final = frozenset({str, int})
"""Types of most keys of maps, of which any value is one."""
_KEYS_OF_MAPS: Final = frozenset({bool, int, float, bytes, type(None)})
"""Types of keys that change nothing in how the values are encoded, beside str."""
_CHECKED_EACH_TIME: Final = 256
"""Bytes."""


class Handle:
    """A state of one operator instance, bound to its store in the backend."""

    __slots__ = ("_declared", "_name", "_passes", "store")

    encoding_advice: ClassVar[str] = "it is a state; write what it holds, such as self.total.value"

    def __init__(self, store: StateStore) -> None:
        self._name = store.what
        self.store = store
        self._declared: DeclaredType | None = None
        self._passes = 0
        """So many times what was changed in place is put again without being checked."""

    def declare(self, declared: DeclaredType) -> Self:
        """Take only values of this type from now on. Kinds of handles that don't look at it have another one that does,
        so that putting costs no more where no type is declared."""
        self._declared = declared
        return self

    def _check_type(self, value: Any, what: str) -> None:
        problem = None if self._declared is None else self._declared.problem(value)
        if problem is not None:
            key = shown(decode_key(self.store.key))
            raise EncodingError(f"{self._name} can't keep {what} of key {key}: {problem}")

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
            key = shown(decode_key(self.store.key))
            raise EncodingError(f"{self._name} can't keep {what} of key {key}: {error}") from None

    def clear(self) -> None:
        """Forget what the current key has."""
        self.store.delete()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}>"


class ValueHandle(Handle, Generic[T]):
    """One value a key."""

    __slots__ = ("_default", "_factory", "_get", "_peek", "_put")

    def __init__(self, store: ValueStore, default: Any = None, factory: Callable[[], Any] | None = None) -> None:
        super().__init__(store)
        self._get = store.get
        self._peek = store.peek
        self._put = store.put
        self._default = default
        self._factory = factory

    @property
    def value(self) -> T:
        """The current key's value, or the default. A mutable default is kept once it was read."""
        value: Any = self._get()
        return self._initial() if value is MISSING else value  # type: ignore[no-any-return]

    @value.setter
    def value(self, value: T) -> None:
        if type(value) not in SCALARS and not is_plain(value):
            self._check(value, "the value", self._peek() is value)
        self._put(value)

    def put_checked(self, value: T) -> None:
        """As setting the value, which whoever calls has made sure of that a checkpoint can hold it."""
        self._put(value)

    def _initial(self) -> Any:
        if self._factory is None:
            return self._default
        value = self._factory()
        if type(value) not in SCALARS:
            self._check(value, "the default")
        if type(value) not in IMMUTABLE:
            self._put(value)  # else what the operator puts into it would be lost
        return value


class TypedValueHandle(ValueHandle[T]):
    """Its values are of a declared type."""

    __slots__ = ()

    @property
    def value(self) -> T:
        """The current key's value, or the default. A mutable default is kept once it was read."""
        value: Any = self._get()
        return self._initial() if value is MISSING else value  # type: ignore[no-any-return]

    @value.setter
    def value(self, value: T) -> None:
        self._check_type(value, "the value")
        if type(value) not in SCALARS:
            self._check(value, "the value", self._peek() is value)
        self._put(value)


class ReducingHandle(Handle, Generic[T]):
    """One value a key, made of everything added to it."""

    __slots__ = ("_reduce", "_value")

    def __init__(self, value: ValueHandle[Any], reduce_fn: Callable[[Any, Any], Any]) -> None:
        """`value`: what was added so far; its default is `MISSING` if there is none."""
        super().__init__(value.store)
        self._reduce = reduce_fn
        self._value = value

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
        value: ValueHandle[Any],
        create: Callable[[], Any],
        add: Callable[[Any, Any], Any],
        result: Callable[[Any], Any],
    ) -> None:
        """`value`: the accumulator; its default is `MISSING`."""
        super().__init__(value.store)
        self._create = create
        self._add = add
        self._result = result
        self._value = value

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


for _class in (ValueHandle, TypedValueHandle, ReducingHandle, AggregatingHandle):
    refuse_as_value(_class)


class ListHandle(Handle, Generic[T]):
    """A list a key."""

    __slots__ = ("_append", "_items", "_lists")

    def __init__(self, store: ListStore) -> None:
        super().__init__(store)
        self._lists = store
        self._append = store.append
        self._items = store.items

    def get(self) -> list[T]:
        """The items, in a new list: adding to it doesn't add to the state, changing an item in place does change it."""
        return self._items()

    def append(self, item: T) -> None:
        """Add an item at the end."""
        if type(item) not in SCALARS and not is_plain(item):
            self._check([item], "the item")
        self._append(item)

    def extend(self, items: Iterable[T]) -> None:
        """Add items at the end."""
        added = list(items)
        self._check(added, "items")
        self._lists.extend(added)

    def update(self, items: Iterable[T]) -> None:
        """Replace all items."""
        replaced = list(items)
        self._check(replaced, "items")
        self._lists.replace(replaced)

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def __len__(self) -> int:
        return self._lists.count()


class TypedListHandle(ListHandle[T]):
    """Its items are of a declared type."""

    __slots__ = ()

    def append(self, item: T) -> None:
        """Add an item at the end."""
        self._check_type(item, "the item")
        super().append(item)

    def extend(self, items: Iterable[T]) -> None:
        """Add items at the end."""
        super().extend(self._of_type(items))

    def update(self, items: Iterable[T]) -> None:
        """Replace all items."""
        super().update(self._of_type(items))

    def _of_type(self, items: Iterable[T]) -> list[T]:
        found = list(items)
        for item in found:
            self._check_type(item, "the item")
        return found


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
    """A dict a key. Its own keys compare as in any Python dict: `1`, `1.0` and `True` are one, and the one that came
    first stays. What isn't equal to a copy of itself, such as NaN, is no key."""

    __slots__ = ("_dicts", "_get", "_peek", "_put")

    def __init__(self, store: MapStore) -> None:
        super().__init__(store)
        self._dicts = store
        self._get = store.get
        self._peek = store.peek
        self._put = store.put

    def __getitem__(self, map_key: K) -> V:
        value: Any = self._get(map_key)
        if value is MISSING:
            raise KeyError(map_key)
        return cast(V, value)

    def __setitem__(self, map_key: K, value: V) -> None:
        if not ((type(map_key) in SCALARS or is_plain(map_key)) and (type(value) in SCALARS or is_plain(value))):
            flat = [map_key, value] if type(map_key) in _KEYS_OF_MAPS else None
            self._check({map_key: value}, "the entry", self._peek(map_key) is value, flat)
        if type(map_key) not in _KEYS and (problem := problem_of_key(map_key)) is not None:
            key = shown(decode_key(self.store.key))
            raise EncodingError(f"{self._name} can't keep an entry {shown(map_key)} of key {key}: {problem}")
        self._put(map_key, value)

    def __delitem__(self, map_key: K) -> None:
        if not self._dicts.remove(map_key):
            raise KeyError(map_key)

    def get(self, map_key: K, /, default: Any = None) -> Any:
        """The value of an entry, or the default, which is not kept."""
        value = self._get(map_key)
        return default if value is MISSING else value

    def __contains__(self, map_key: object) -> bool:
        return self._peek(map_key) is not MISSING

    def __len__(self) -> int:
        return self._dicts.count()

    def __iter__(self) -> Iterator[K]:
        return iter(self._dicts.keys())

    def keys(self) -> KeysView[K]:
        """The keys as they are now; the map may be changed while they are gone through."""
        return self._dicts.keys().keys()

    def values(self) -> ValuesView[V]:
        """The values as they are now; the map may be changed while they are gone through."""
        return self._dicts.entries().values()

    def items(self) -> ItemsView[K, V]:
        """The entries as they are now; the map may be changed while they are gone through."""
        return self._dicts.entries().items()


class ReadRefreshedMapHandle(MapHandle[K, V]):
    """Its entries live on when they are read, and being asked for is being read."""

    __slots__ = ()

    def __contains__(self, map_key: object) -> bool:
        return self._get(map_key) is not MISSING


class TypedMapHandle(MapHandle[K, V]):
    """Its values are of a declared type."""

    __slots__ = ()

    def __setitem__(self, map_key: K, value: V) -> None:
        self._check_type(value, f"the entry {shown(map_key)}")
        super().__setitem__(map_key, value)


class TypedReadRefreshedMapHandle(TypedMapHandle[K, V], ReadRefreshedMapHandle[K, V]):
    """Both."""

    __slots__ = ()


refuse_operators(MapHandle, {"ior": "{0}.update(…)", "or": "dict({0}) | …", "ror": "… | dict({0})"})
refuse_methods(ListHandle, list, "{0}.get(), and {0}.update(…) with what it becomes")
refuse_methods(MapHandle, dict, "dict({0}), and {0}[…] = … for what changes")
