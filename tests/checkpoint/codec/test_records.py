"""Values of users' classes come back as they were, or are refused."""

from __future__ import annotations

import dataclasses
import enum
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings

from checkpoint.codec import (
    EncodingError,
    UnfitClass,
    classes,
    copied,
    decode,
    decode_opaquely,
    encode,
    encode_key,
    register_pickle,
    revived,
)
from checkpoint.codec.class_shapes import ClassShape, misfits
from checkpoint.codec.records import form_of
from checkpoint.codec.type_shapes import ANY
from checkpoint.codec.values import MAX_EXTENSIONS, _encode_step_by_step
from checkpoint.state.private_copy import is_changeable, private_copy
from tests.support import records
from tests.support.records import EDGES, WITH_RECORDS, same_with_records


def check_everything(value: Any) -> None:
    data = encode(value)
    assert data == _encode_step_by_step(value)
    for back in (decode(data), copied(value), private_copy(value), revived(decode_opaquely(data))):
        assert same_with_records(back, value), back
    assert encode(decode(data)) == data
    assert encode(decode_opaquely(data)) == data


@pytest.mark.parametrize("value", EDGES, ids=range(len(EDGES)))  # the text of a set differs between processes
def test_edges_come_back_wherever_they_lie(value: Any) -> None:
    for each in (
        value,
        [value],
        (value,),
        {"a": value},
        {1: value},
        {"a": {"b": [1, (2, value)]}},
        records.Box([value]),
    ):
        check_everything(each)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(WITH_RECORDS)
def test_whatever_is_accepted_comes_back_with_its_types(value: Any) -> None:
    check_everything(value)


def test_what_a_constructor_would_change_is_not_changed_again() -> None:
    derived, struct = records.Derived(1), records.OpenStruct(a=1)
    derived.a, struct.a = 10, [[2]]
    for value in (decode(encode(derived)), private_copy(derived)):
        assert (value.a, value.b, value.note) == (10, 7, "no field")
    assert decode(encode(struct)).a == [[2]]


def test_a_private_copy_shares_nothing_that_can_be_changed() -> None:
    for value in (records.Item([1]), records.Slots([1]), records.Struct([1]), records.Model(a=[1]), records.Pair([1])):
        copy = private_copy(value)
        inside = next(iter(form_of(type(value)).take(copy)[0].values()))  # type: ignore[union-attr]
        inside.append(2)
        assert same_with_records(decode(encode(value)), value)
        assert not same_with_records(copy, value)


@dataclass(eq=False)
class Node:
    """Can be changed, and hashed all the same."""

    n: int


def test_a_private_copy_shares_no_member_and_no_key_that_can_be_changed() -> None:
    for make in (
        lambda node: {node},
        lambda node: frozenset({(node,)}),
        lambda node: {node: 1},
        lambda node: ({node},),
    ):
        node = Node(1)
        value: Any = make(node)
        assert is_changeable(value)
        before, copy = encode(value), private_copy(value)
        node.n = 2
        assert encode(copy) == before
    assert not is_changeable(frozenset({1, (2, "a")}))


def test_which_values_can_be_changed_in_place() -> None:
    for value in (records.Item(1), records.Struct(1), records.Model(a=1), records.Frozen([1]), records.Pair({}), [1]):
        assert is_changeable(value), value
    for value in (records.Frozen(1), records.ArrayStruct(1, ()), records.Pair(1), records.Level.HIGH, (1,), "a"):  # type: ignore[arg-type]
        assert not is_changeable(value), value


# -- what is refused -----------------------------------------------------------------------------------------------


@dataclass
class OfDict(dict[str, int]):
    a: int = 1


def local() -> Any:
    @dataclass
    class Local:
        a: int

    return Local(1)


def unset() -> Any:
    item = records.Item(1)
    del item.sku
    return item


def endless() -> Any:
    box: records.Box[Any] = records.Box(1)
    box.content = [box]
    return box


def deep() -> Any:
    node = None
    for i in range(MAX_EXTENSIONS + 1):
        node = records.Node(i, node)
    return node


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (OfDict(), "OfDict at value: it is also a dict, whose content would be lost"),
        (local(), "Local at value: its class is defined within a function"),
        (unset(), "Item at value: its field 'sku' is not set"),
        (endless(), "contains itself"),
        (deep(), f"deeper than {MAX_EXTENSIONS} levels"),
        (records.Item({"k": [1j]}), r"complex at value\.sku\['k'\]\[0\]"),
        ([records.Struct(1, records.Pair(2, object()))], r"object at value\[0\]\.b\.b: .*register_pickle"),
        (records.Item(memoryview(b"x")), r"memoryview at value\.sku: use bytes"),
        (records.Money(1), "Money at value"),
        (records.Item, "type at value"),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_what_could_not_come_back_is_refused_with_its_path(value: Any, message: str) -> None:
    with pytest.raises(EncodingError, match=message):
        encode(value)


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        (records.Colour.RED, r"\.value"),
        ((1, records.Level.HIGH), r"\.value"),
        (records.Name.ANN, r"\.value"),
        (records.Pair(1, 2), r"tuple\(x\)"),
        (records.Frozen(1), "one of its fields"),
        (records.ArrayStruct("a"), "one of its fields"),
    ],
    ids=repr,
)
def test_the_key_of_a_record_does_not_depend_on_the_name_of_a_class(key: Any, advice: str) -> None:
    with pytest.raises(EncodingError, match=advice):
        encode_key(key)


def test_nesting_that_is_accepted_is_read() -> None:
    node = deep().next
    assert decode(encode(node)) == node


# -- classes -------------------------------------------------------------------------------------------------------


def test_a_second_class_of_the_same_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    old = records.Item(1)
    replaced(monkeypatch, "Item", dataclasses.make_dataclass("Item", ["a"]))
    with pytest.raises(EncodingError, match="another class called"):
        encode(old)


def replaced(monkeypatch: pytest.MonkeyPatch, name: str, cls: Any) -> None:
    cls.__module__, cls.__qualname__ = records.__name__, name
    monkeypatch.setattr(records, name, cls)
    classes.forms.clear()


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    classes.forms.clear()


def test_a_field_that_has_come_gets_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Item:
        sku: Any
        price: Any
        tags: list[Any]
        amount: int = 7
        more: list[int] = field(default_factory=lambda: [1])

    data = encode(records.Item("a"))
    replaced(monkeypatch, "Item", Item)
    item = decode(data)
    assert (item.sku, item.amount, item.more) == ("a", 7, [1])


@pytest.mark.parametrize("kind", ["Struct", "Model", "Pair"])
def test_a_default_is_made_anew_for_each_value_whatever_kind_its_class_is(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    class Struct(msgspec.Struct):
        a: Any
        b: Any = 5
        more: list[int] = msgspec.field(default_factory=lambda: [1])
        amount: int = 7

    class Model(pydantic.BaseModel):
        a: Any
        b: str = "y"
        more: list[int] = pydantic.Field(default_factory=lambda: [1])
        amount: int = 7

    class Pair(NamedTuple):
        a: Any
        b: Any = 5
        more: Any = (1,)
        amount: int = 7

    old = getattr(records, kind)
    data = encode([old(a="a", b="b"), old(a="c", b="b")])
    replaced(monkeypatch, kind, {"Struct": Struct, "Model": Model, "Pair": Pair}[kind])
    one, other = decode(data)
    assert (one.a, one.b, list(one.more), one.amount) == ("a", "b", [1], 7)
    assert kind == "Pair" or one.more is not other.more


@pytest.mark.parametrize("kind", ["Model", "Pair"])
def test_a_field_that_has_come_without_a_default_is_told_whatever_kind_its_class_is(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    class Model(pydantic.BaseModel):
        a: Any
        b: Any
        c: int

    class Pair(NamedTuple):
        a: Any
        b: Any
        c: int

    data = encode(getattr(records, kind)(a=1, b="x"))
    replaced(monkeypatch, kind, {"Model": Model, "Pair": Pair}[kind])
    with pytest.raises(UnfitClass, match=rf"records:{kind} has changed .*: 'c' was not and has no default"):
        decode(data)


@pytest.mark.parametrize(
    ("old", "new", "was"),
    [
        (records.Level.HIGH, "Item", "was an enum when it was written, and has fields now"),
        (records.Item(1), "Level", "is an enum, and was a class with fields"),
        (records.Right(0), "Item", "was an enum of flags when it was written, and has fields now"),
    ],
)
def test_a_class_that_is_of_another_kind_now_is_told(
    monkeypatch: pytest.MonkeyPatch, old: Any, new: str, was: str
) -> None:
    class Level(enum.IntEnum):
        LOW = 3

    data = encode(old)
    replaced(monkeypatch, type(old).__name__, {"Item": dataclasses.make_dataclass("Item", ["a"]), "Level": Level}[new])
    with pytest.raises(UnfitClass, match=was):
        decode(data)


def test_a_field_that_has_gone_or_has_no_default_is_told_with_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    class Struct(msgspec.Struct):
        a: Any
        c: int

    data = encode([records.Struct(1)])
    replaced(monkeypatch, "Struct", Struct)
    with pytest.raises(UnfitClass, match=r"records:Struct has .*'b' was written.*'c' was not and has no default"):
        decode(data)


def test_a_member_that_has_gone_is_told_with_the_enum(monkeypatch: pytest.MonkeyPatch) -> None:
    class Level(enum.IntEnum):
        LOW = 3

    data = encode(records.Level.HIGH)
    replaced(monkeypatch, "Level", Level)
    with pytest.raises(UnfitClass, match=r"records:Level has no member 'HIGH'"):
        decode(data)


class Way(enum.IntFlag):
    IN = 1
    OUT = 2
    BOTH = 3
    UP = 8


def test_combined_flags_are_known_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    both, three, unnamed = Way.IN | Way.OUT, Way.IN | Way.OUT | Way.UP, Way(4 | 1)
    for value in (*Way, both, Way.IN | Way.UP, three, unnamed, Way(0)):
        check_everything(value)
        check_everything({value: [value]})
    old, number = encode([Way.UP, Way.IN | Way.UP, three]), encode(unnamed)

    class Moved(enum.IntFlag):
        UP = 1
        IN = 2
        OUT = 4
        BOTH = 6

    module = sys.modules[__name__]
    Moved.__module__, Moved.__qualname__ = __name__, "Way"
    monkeypatch.setattr(module, "Way", Moved)
    classes.forms.clear()
    assert decode(old) == [Moved.UP, Moved.IN | Moved.UP, Moved.IN | Moved.OUT | Moved.UP]
    assert decode(number) == 5  # of flags without names the number is all that is known

    class Fewer(enum.IntFlag):
        IN = 1
        OUT = 2

    Fewer.__module__, Fewer.__qualname__ = __name__, "Way"
    monkeypatch.setattr(module, "Way", Fewer)
    classes.forms.clear()
    with pytest.raises(UnfitClass, match="Way has no member 'UP' now"):
        decode(old)
    monkeypatch.undo()
    classes.forms.clear()


class Range(msgspec.Struct, frozen=True):
    low: int
    high: int
    steps: list[int] = []

    def __post_init__(self) -> None:
        self.steps.sort()
        if self.low > self.high:
            raise ValueError("low is above high")


class Heard(msgspec.Struct):
    a: Any
    subclasses: ClassVar[list[str]] = []

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Heard.subclasses.append(cls.__name__)

    def __post_init__(self) -> None:
        if self.a is None:
            raise ValueError("a is None")
        self.a.sort()


def test_what_a_struct_holds_comes_back_though_its_constructor_would_refuse_it_now() -> None:
    value = Range(1, 2, [1, 2])
    msgspec.structs.force_setattr(value, "low", 3)
    value.steps.reverse()
    check_everything(value)
    assert decode(encode(value)).steps == [2, 1]


def test_a_struct_that_would_hear_of_subclasses_is_made_by_its_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Heard([1, 2])
    one.a.reverse()
    check_everything(one)
    assert decode(encode(one)).a == one.a == [2, 1]
    assert Heard.subclasses == []
    one.a = None
    with pytest.raises(
        EncodingError, match=r"can't encode Heard at value\[0\]: it would not come back: ValueError: a is"
    ):
        encode([one])


@pytest.mark.parametrize("kind", ["dataclass", "Struct", "model"])
def test_a_default_that_can_not_be_made_is_told_with_its_field(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    def fails() -> int:
        raise ZeroDivisionError("by zero")

    old = encode(Kept(a=1))
    new: Any = {
        "dataclass": lambda: dataclasses.make_dataclass("Kept", ["a", ("b", int, field(default_factory=fails))]),
        "Struct": lambda: msgspec.defstruct("Kept", ["a", ("b", int, msgspec.field(default_factory=fails))]),
        "model": lambda: pydantic.create_model("Kept", a=(int, 0), b=(int, pydantic.Field(default_factory=fails))),
    }[kind]()
    new.__module__, new.__qualname__ = __name__, "Kept"
    monkeypatch.setattr(sys.modules[__name__], "Kept", new)
    classes.forms.clear()
    told = r"the default of field 'b' of class \S+:Kept raised ZeroDivisionError: by zero"
    with pytest.raises(UnfitClass, match=told):
        decode(old)
    (problem,) = misfits(ClassShape(f"{__name__}:Kept", {"a": ANY}))
    assert re.match(told, problem)
    monkeypatch.undo()
    classes.forms.clear()


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int
    b: int = 2


def now_is(monkeypatch: pytest.MonkeyPatch, name: str, new: Any) -> None:
    new.__module__, new.__qualname__ = __name__, name
    monkeypatch.setattr(sys.modules[__name__], name, new)
    classes.forms.clear()


def test_what_was_beside_the_fields_of_a_model_stays_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    with_more, plain, old = encode(Open(a=1, z=3)), encode(Open(a=1)), encode(Kept(a=1))
    now_is(monkeypatch, "Open", pydantic.create_model("Open", __base__=Open, z=(int, 7)))
    value: Any = decode(with_more)
    assert (value.z, value.__pydantic_extra__, value.model_fields_set) == (3, {}, {"a", "z"})
    assert decode(plain).z == 7
    now_is(monkeypatch, "Kept", pydantic.create_model("Kept", __config__=Open.model_config, a=(int, ...)))
    value = decode(old)
    value.z = 4
    assert value.model_extra == {"z": 4}
    now_is(monkeypatch, "Open", dataclasses.make_dataclass("Open", ["a", "b"]))
    assert vars(decode(plain)) == {"a": 1, "b": 2}
    with pytest.raises(UnfitClass, match="Open was a pydantic model when it was written, and held 'z' beside"):
        decode(with_more)
    monkeypatch.undo()
    classes.forms.clear()


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (lambda: dataclasses.make_dataclass("Doubled", ["a", "b"], slots=True), "has no place for that now"),
        (lambda: msgspec.defstruct("Doubled", ["a", "b"]), "has no place for that now"),
        (lambda: pydantic.create_model("Doubled", a=(int, ...), b=(int, ...)), "was no pydantic model"),
    ],
)
def test_attributes_that_the_class_has_no_place_for_any_more_are_told(
    monkeypatch: pytest.MonkeyPatch, new: Any, told: str
) -> None:
    plain, value = Doubled(1, 2), Doubled(1, 2)
    value.note = "x"  # type: ignore[attr-defined]
    data, of_plain = encode(value), encode(plain)
    now_is(monkeypatch, "Doubled", new())
    assert (decode(of_plain).a, decode(of_plain).b) == (1, 2)
    with pytest.raises(UnfitClass, match=told) as error:
        decode(data)
    assert "'note'" in str(error.value)
    monkeypatch.undo()
    classes.forms.clear()


@dataclass(unsafe_hash=True)
class Spot:
    x: int
    y: int


def test_keys_and_members_that_are_equal_now_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise one of them would be gone."""
    found = []
    for make in (lambda *spots: dict.fromkeys(spots, 1), lambda *spots: set(spots), lambda *spots: frozenset(spots)):
        one, other = Spot(1, 1), Spot(1, 2)
        value: Any = make(one, other)
        check_everything(value)
        found.append(encode([value]))
        other.y = 1
        with pytest.raises(EncodingError, match=r"can't encode \w+ at value\['a'\]: keys or members of it are equal"):
            encode({"a": value})

    @dataclass(unsafe_hash=True)
    class Loose:
        x: int
        y: int = field(compare=False)

    now_is(monkeypatch, "Spot", Loose)
    for data in found:
        with pytest.raises(UnfitClass, match=r"are equal now that were not .*: has the __eq__ of \S*Spot changed"):
            decode(data)
    monkeypatch.undo()
    classes.forms.clear()


class Brittle:
    fails: ClassVar[bool] = False

    def __setstate__(self, state: Any) -> None:
        if Brittle.fails:
            raise KeyError("b")
        self.__dict__.update(state)


def test_a_pickle_that_the_class_does_not_read_any_more_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    register_pickle(Brittle)
    value = Brittle()
    value.a = 1  # type: ignore[attr-defined]
    data = encode(value)
    assert decode(data).a == 1
    monkeypatch.setattr(Brittle, "fails", True)
    with pytest.raises(UnfitClass, match=r"the pickle of a value of \S+:Brittle can't be read: KeyError: 'b'"):
        decode(data)


@register_pickle
class Disguised:
    def __reduce__(self) -> Any:
        return str, ("a",)


@register_pickle
class OneWay:
    def __reduce__(self) -> Any:
        return int, ("a",)


@pytest.mark.parametrize(
    ("kind", "why"), [(Disguised, "gives a str"), (OneWay, "can't be read: ValueError: invalid lit")]
)
def test_what_could_be_pickled_and_not_be_read_again_is_refused(kind: Any, why: str) -> None:
    for _ in range(2):
        with pytest.raises(
            EncodingError, match=rf"can't encode {kind.__name__} at value\['x'\]: it would not .* {why}"
        ):
            encode({"x": kind()})


class Kept(pydantic.BaseModel):
    a: int


def test_private_attributes_that_have_come_have_their_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    old = encode(Kept(a=1))

    class Now(pydantic.BaseModel):
        a: int
        _count: int = 5
        _seen: list[int] = pydantic.PrivateAttr(default_factory=list)
        _open: int

    Now.__module__, Now.__qualname__ = __name__, "Kept"
    monkeypatch.setattr(sys.modules[__name__], "Kept", Now)
    classes.forms.clear()
    value = decode(old)
    assert (value._count, value._seen) == (5, [])
    assert value == Now(a=1)
    value._count, value._open = 6, 7
    check_everything(value)
    assert decode(encode(value))._count == 6
    del value._count
    with pytest.raises(EncodingError, match="its private attribute '_count' is not set"):
        encode(value)
    monkeypatch.undo()
    classes.forms.clear()


def test_a_model_whose_new_fields_default_depends_on_others_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    old = encode(Kept(a=1))

    class Now(pydantic.BaseModel):
        a: int
        b: int = pydantic.Field(default_factory=lambda fields: fields["a"] + 1)

    Now.__module__, Now.__qualname__ = __name__, "Kept"
    monkeypatch.setattr(sys.modules[__name__], "Kept", Now)
    classes.forms.clear()
    with pytest.raises(UnfitClass, match="'b' was not and has no default"):
        decode(old)
    monkeypatch.undo()
    classes.forms.clear()


@dataclass
class Fixed:
    a: Any
    version: int = field(init=False, default=3)
    kinds: tuple[str, ...] = field(init=False, default=("x",))


@dataclass(slots=True)
class FixedSlots:
    a: Any
    version: int = field(init=False, default=3)


def test_a_field_that_only_the_class_has_a_value_of_is_carried() -> None:
    changed = Fixed(1)
    changed.version = 4
    for value in (Fixed(1), changed, FixedSlots(1)):
        data = encode(value)
        assert data == _encode_step_by_step(value)
        for back in (decode(data), copied(value), private_copy(value)):
            assert (type(back), back, back.version) == (type(value), value, value.version)
    gone = FixedSlots(1)
    del gone.version
    with pytest.raises(EncodingError, match="its field 'version' is not set"):
        encode(gone)


@dataclass
class Doubled:
    a: Any
    b: Any


def test_a_class_that_keeps_a_field_by_a_property_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written as the field would lie behind the property, unseen."""
    data = encode(Doubled(1, 2))
    new = dataclasses.make_dataclass("Doubled", ["a", "b"])
    new.b = property(lambda self: 2 * self.a, lambda self, value: None)  # type: ignore[attr-defined]
    new.__module__ = __name__
    monkeypatch.setattr(sys.modules[__name__], "Doubled", new)
    classes.forms.clear()
    with pytest.raises(UnfitClass, match="Doubled can't be read: its field 'b' is kept by a property"):
        decode(data)
    with pytest.raises(EncodingError, match="its field 'b' is kept by a property"):
        encode(new(1, 2))
    monkeypatch.undo()
    classes.forms.clear()


class Slotted:
    __slots__ = ("a",)


@dataclass
class SlottedTwice(Slotted):
    __slots__ = ("a", "b")
    a: Any
    b: Any


def test_of_two_slots_of_one_name_that_of_the_subclass_counts() -> None:
    value = SlottedTwice([1], "b")
    assert decode(encode(value)) == value
    Slotted.a.__set__(value, "hidden")  # type: ignore[attr-defined]
    assert decode(encode(value)).a == [1]


def test_a_class_that_is_not_here_is_named_and_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(records.Item(1)).replace(b"tests.support.records:Item", b"tests.support.absents:Item")
    with pytest.raises(UnfitClass, match="absents:Item can't be read"):
        decode(data)
    data = encode(records.Item(1)).replace(b"tests.support.records:Item", b"antigravity.aaaaaaaaa:Item")
    with pytest.raises(UnfitClass):
        decode(data)
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("name", [b"tests.support.records:Mony_", b"tests.support.records:EDGES"])
def test_only_classes_of_values_are_made(monkeypatch: pytest.MonkeyPatch, name: bytes) -> None:
    monkeypatch.setattr(records, "Mony_", type("Mony_", (), {"__module__": records.__name__}), raising=False)
    head = bytes([0xA0 | len(name)]) if len(name) < 32 else b"\xd9" + bytes([len(name)])
    body = b"\x92" + head + name + b"\x80"
    with pytest.raises(UnfitClass, match="can't be read"):
        decode(b"\xc7" + bytes([len(body), 14]) + body)


def test_pickle_is_used_only_where_it_is_registered() -> None:
    with pytest.raises(EncodingError, match="register_pickle"):
        encode(records.Money(1))
    assert register_pickle(records.Money) is records.Money
    try:
        value = {"a": [records.Money(3)], records.Money(4): 1}
        assert decode(encode(value)) == value == private_copy(value)
        assert encode(decode_opaquely(encode(value))) == encode(value)
        data = encode(value)
    finally:
        classes._pickled.discard(records.Money)
        classes.forms.clear()
    with pytest.raises(UnfitClass, match=r"Money can't be read.*not registered with pickle"):
        decode(data)
    with pytest.raises(ValueError, match="cls must be a class"):
        register_pickle(records.Money(1))  # type: ignore[type-var]


SCRIPT = """
import sys
from dataclasses import dataclass
from checkpoint.codec import decode, encode

@dataclass
class Order:
    id: int

def main():
    data = encode(Order(1))
    assert type(decode(data)) is Order
    sys.stdout.write(data.hex())

if __name__ in ("__main__", "weir_script_orders"):
    main()
"""


def test_a_class_of_a_script_has_one_name_however_the_script_is_run(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(SCRIPT)
    root = str(Path(__file__).parents[3])
    as_weir_does = (
        "import sys, importlib.util as u; s = u.spec_from_file_location('weir_script_orders', 'orders.py'); "
        "m = u.module_from_spec(s); sys.modules[s.name] = m; s.loader.exec_module(m)"
    )
    found = {
        subprocess.run(
            [sys.executable, *how], cwd=tmp_path, env={"PYTHONPATH": root}, capture_output=True, text=True, check=True
        ).stdout
        for how in (["orders.py"], ["-m", "orders"], ["-c", "import orders; orders.main()"], ["-c", as_weir_does])
    }
    assert len(found) == 1
    assert b"orders:Order" in bytes.fromhex(found.pop())
