"""Classes of values as users write them, and instances of them at the edges."""

from __future__ import annotations

import enum
from dataclasses import InitVar, dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import pydantic
from hypothesis import strategies as st

from checkpoint.codec.records import form_of
from tests.support.values import HASHABLE, VALUES, same

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = [1]  # noqa: RUF012  # a value that can't be hashed
    ROUGE = "red"  # noqa: PIE796  # an alias


class Level(enum.IntEnum):
    HIGH = 3


class Name(enum.StrEnum):
    ANN = "ann"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Mode(enum.IntFlag):
    A = 1
    B = 2


@dataclass
class Item:
    sku: Any
    price: Any = Decimal(1)
    tags: list[Any] = field(default_factory=list)


@dataclass
class Special(Item):
    extra: Any = 0


class Plain(Item):
    """Inherits fields, and has an attribute of its own."""


@dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any = None


@dataclass(frozen=True, slots=True)
class Slots:
    a: Any
    b: Any = None


@dataclass(slots=True)
class MoreSlots(Slots.__mro__[1]):  # type: ignore[misc]
    x: Any


@dataclass
class Derived:
    """Changes what it is given, each time that it is made."""

    a: int
    by: InitVar[int] = 5
    b: int = field(init=False, default=9)

    def __post_init__(self, by: int) -> None:
        self.a += 1
        self.b = self.a + by
        self.note = "no field"

    @cached_property
    def double(self) -> int:
        return 2 * self.a


@dataclass
class Box(Generic[T]):
    content: T


@dataclass(order=True, kw_only=True)
class Order:
    id: int
    items: list[Item]
    at: datetime
    day: date | None = None


class Struct(msgspec.Struct):
    a: Any
    b: Any = None


class ArrayStruct(msgspec.Struct, tag="s", array_like=True, forbid_unknown_fields=True, rename="camel", frozen=True):
    my_name: Any
    others: list[Any] = []


class OpenStruct(msgspec.Struct, dict=True, kw_only=True):
    a: Any

    def __post_init__(self) -> None:
        self.a = [self.a]


class Node(msgspec.Struct):
    number: int
    next: Node | None = None


class Model(pydantic.BaseModel):
    a: Any
    b: str = "x"
    _secret: Any = pydantic.PrivateAttr(default=3)


class OpenModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", frozen=True)
    a: Any


class Pair(NamedTuple):
    a: Any
    b: Any = None


class NamedPair(Pair):
    """Has a `__dict__`."""


class Money:
    """Of no kind that is carried."""

    def __init__(self, amount: int) -> None:
        self.amount = amount

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and self.amount == other.amount

    def __hash__(self) -> int:
        return hash(self.amount)


def _with(instance: Any, **attributes: Any) -> Any:
    vars(instance).update(attributes)
    return instance


EDGES = [
    *(Colour.RED, Colour.BLUE, Level.HIGH, Name.ANN),
    *(Right.READ, Right.READ | Right.WRITE, Right(0), Mode.A | Mode.B, Mode(8)),
    *(Item("a", Decimal("1.00"), ["x"]), Special("a", Decimal("NaN"), [], -0.0), Item("a", tags=[Special(1)])),
    *(_with(Plain(1), note=2), Frozen(1, Frozen(True, 1.0)), Slots(1, (Slots("1"),)), MoreSlots(2**70)),
    *(Derived(1), _with(Derived(1), double=7), Box(3), Box(Box([Box(b"x" * 300)]))),
    Order(id=1, items=[Item(1), Special(2)], at=datetime(2020, 10, 25, 2, 30, fold=1), day=date.min),
    *(Struct(1), Struct(Struct(bytearray(b"x")), {1: Struct(2), date.min: 3}), ArrayStruct("x", [ArrayStruct(1)])),
    *(OpenStruct(a=1), _with(OpenStruct(a=1), more=(1,))),
    *(Model(a=1), Model(a=1, b="x"), Model(a=Model(a=Slots(1)))),
    *(OpenModel(a=1), OpenModel.model_validate({"a": 1, "more": 2})),
    *(Pair(1), Pair(1, Pair(2, [Pair(3)])), _with(NamedPair(1), note=3)),
    *({Colour.RED: Pair(1)}, {Pair(1, 2), Frozen(3)}, (Level.HIGH, [Name.ANN, 3, "ann"]), {"a": {"b": [Frozen(1)]}}),
]

RECORDS = st.one_of(
    st.sampled_from([edge for edge in EDGES if isinstance(edge, enum.Enum)]),
    st.builds(Item, VALUES, VALUES),
    st.builds(Special, VALUES),
    st.builds(Frozen, HASHABLE, HASHABLE),
    st.builds(Slots, VALUES),
    st.builds(Struct, VALUES, VALUES),
    st.builds(ArrayStruct, VALUES),
    st.builds(Model, a=VALUES),
    st.builds(Pair, VALUES, VALUES),
)
WITH_RECORDS = st.recursive(
    RECORDS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=3),
        st.builds(Box, inner),
        st.builds(Struct, inner, inner),
        st.tuples(inner, VALUES),
    ),
    max_leaves=5,
)


def same_with_records(a: Any, b: Any) -> bool:
    """As `same`, for values of these classes, too."""
    if type(a) is not type(b):
        return False
    if isinstance(a, enum.Enum):
        return a is b
    form = None if type(a) in (tuple, list, dict, set, frozenset) else form_of(type(a))
    if form is not None:
        return same_with_records(list(form.take(a)), list(form.take(b)))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same_with_records, a, b))
    if isinstance(a, dict):
        return same_with_records(list(a.items()), list(b.items()))
    if isinstance(a, set | frozenset):
        return len(a) == len(b) and all(any(same_with_records(x, y) for y in b) for x in a)
    return same(a, b)
