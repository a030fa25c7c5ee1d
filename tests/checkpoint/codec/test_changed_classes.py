"""Values whose class has changed in another way than by fields: they are refused as such, not as damaged."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest

from checkpoint.codec import UnfitClass, classes, decode, encode


@pytest.fixture(autouse=True)
def only_classes_of_this_test() -> Iterator[None]:
    before = dict(classes._installed), dict(classes._names), dict(classes._types)
    yield
    for known, old in zip((classes._installed, classes._names, classes._types), before, strict=True):
        known.clear()
        known.update(old)  # type: ignore[arg-type]
    classes.forms.clear()


def program(order: Any, pickled: bool = False) -> Any:
    """From now on this is the class `Order`."""
    classes.install({"shop:Order": order}, ["shop:Order"] if pickled else [])
    return order


def a_dataclass(**options: Any) -> Any:
    return dataclasses.make_dataclass("Order", [("id", int)], **options)


class Struct(msgspec.Struct):
    id: int


class Checked(msgspec.Struct):
    id: int

    def __post_init__(self) -> None:
        raise ValueError("no such order")


class Free(pydantic.BaseModel, extra="allow"):
    id: int


class Model(pydantic.BaseModel):
    id: int


class Private(pydantic.BaseModel):
    id: int
    _note: str = pydantic.PrivateAttr("n")


@pytest.mark.parametrize("new", [a_dataclass(slots=True), Struct, NamedTuple("Order", [("id", int)]), Model])
def test_what_was_held_beside_the_fields_is_not_left_out(new: Any) -> None:
    value = program(a_dataclass())(1)
    value.note = "x"
    data = encode(value)
    program(new)
    with pytest.raises(UnfitClass, match="held 'note' beside its fields, for which it has no room now"):
        decode(data)


@pytest.mark.parametrize("new", [a_dataclass(), a_dataclass(slots=True), Struct, NamedTuple("Order", [("id", int)])])
@pytest.mark.parametrize("make", [lambda: program(Free)(id=1, note="x"), lambda: program(Private)(id=1)])
def test_what_only_models_hold_becomes_no_attribute_of_others(new: Any, make: Callable[[], Any]) -> None:
    data = encode(make())
    program(new)
    with pytest.raises(UnfitClass, match="a pydantic model when it was written, with attributes of its own"):
        decode(data)


def test_a_model_that_holds_its_fields_only_may_become_another_kind_of_class() -> None:
    old = program(pydantic.create_model("Order", id=(int, 0)))
    data = encode(old())
    assert decode(data).model_fields_set == set()
    assert decode_as(a_dataclass(), data).__dict__ == {"id": 0}
    assert decode_as(Struct, data) == Struct(0)


def decode_as(new: Any, data: bytes) -> Any:
    program(new)
    return decode(data)


def test_fields_that_a_model_got_later_were_not_given() -> None:
    data = encode(program(pydantic.create_model("Order", id=(int, ...)))(id=1))
    back = decode_as(pydantic.create_model("Order", id=(int, ...), n=(int, 5)), data)
    assert (back.id, back.n, back.model_fields_set) == (1, 5, {"id"})


def test_a_default_that_cant_be_made_is_told_with_its_field() -> None:
    data = encode(program(a_dataclass())(1))

    def fails() -> int:
        raise OSError("no network")

    field = dataclasses.field(default_factory=fails)
    program(dataclasses.make_dataclass("Order", [("id", int), ("n", int, field)]))
    with pytest.raises(UnfitClass, match="default of field 'n' of class shop:Order can't be made: OSError: no network"):
        decode(data)
    of_others = pydantic.Field(default_factory=lambda others: others["id"])
    program(pydantic.create_model("Order", id=(int, ...), n=(int, of_others)))
    with pytest.raises(UnfitClass, match="'n' was not and has no default"):
        decode(data)


def test_what_a_class_refuses_is_not_damaged() -> None:
    data = encode(program(Struct)(1))
    program(Checked)
    with pytest.raises(UnfitClass, match="can't be made of what was written: ValueError: no such order"):
        decode(data)


class Pickled:
    def __setstate__(self, state: Any) -> None:
        raise KeyError("total")


class Plain:
    def __init__(self) -> None:
        self.id = 1


def test_what_a_class_refuses_of_its_pickle_is_not_damaged() -> None:
    data = encode(program(Plain, pickled=True)())
    program(Pickled, pickled=True)
    with pytest.raises(UnfitClass, match="the pickle of a value of shop:Order can't be read: KeyError: 'total'"):
        decode(data)


@pytest.mark.parametrize("made", [lambda a, b: {a: 1, b: 2}, lambda a, b: {a, b}, lambda a, b: frozenset((a, b))])
def test_what_is_equal_now_and_was_not_is_not_left_out(made: Callable[[Any, Any], Any]) -> None:
    old = program(enum.Enum("Order", {"A": 1, "B": 2}))
    data = encode([made(old.A, old.B)])
    assert decode(data) == [made(old.A, old.B)]
    program(enum.Enum("Order", {"A": 1, "B": 1}))
    with pytest.raises(UnfitClass, match="1 of 2 keys of a dict, or members of a set, are equal to others now"):
        decode(data)
