"""State whose classes change between two runs: it comes back equal, is migrated, or is refused with what differs."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, NotRequired, Required, TypedDict, TypeVar

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program_classes import own_classes, program

from checkpoint.codec import EncodingError, UnfitClass, encode_key
from checkpoint.codec.stored import StoredRecord
from checkpoint.key_groups import key_group
from checkpoint.state import (
    TTL,
    AggregatingState,
    DeclaresState,
    ListState,
    MapState,
    ReducingState,
    StateAccessError,
    StateDescriptor,
    StateRestoreError,
    ValueState,
    bind,
    make_backend,
    read_batches,
    read_footer,
)
from checkpoint.state.contents import StateContent, together
from checkpoint.state.declared_type import DeclaredKeys, DeclaredType
from checkpoint.state.evolution import content_misfits, fit_unseen
from checkpoint.state.snapshot_reader import read_encoded
from checkpoint.state_backends import StateBackend

MAX = 8
_backends: list[StateBackend] = ["heap"]
"""The last one is that of this test."""


@pytest.fixture(autouse=True, params=["heap", "rocksdb"])
def each_backend(request: pytest.FixtureRequest) -> Iterator[None]:
    _backends.append(request.param)
    yield
    _backends.pop()


@pytest.fixture(autouse=True)
def only_classes_of_this_test() -> Iterator[None]:
    with own_classes():
        yield


class Running:
    """An operator with one state, and its backend."""

    def __init__(self, state: StateDescriptor[Any], file: bytes | None = None) -> None:
        operator = type("Op", (DeclaresState,), {"state": state})
        self.backend = make_backend(range(MAX), MAX, state_backend=_backends[-1])
        instance: Any = operator()
        bind(instance, self.backend)
        if file is not None and self.backend.takes_encoded:
            self.backend.restore_encoded(read_encoded(file))
        elif file is not None:
            self.backend.restore(read_batches(file))
        self.state = instance.state

    def at(self, key: Any) -> Any:
        encoded = encode_key(key)
        self.backend.set_current_key(encoded, key_group(encoded, MAX))
        return self.state

    def snapshot(self) -> bytes:
        data = bytearray()
        self.backend.freeze().write(data.extend)
        return bytes(data)


def stored(state: StateDescriptor[Any], value: Any, key: Any = "ann") -> bytes:
    """A snapshot in which a key has this value."""
    running = Running(state)
    running.at(key).value = value
    return running.snapshot()


def older_file(file: bytes) -> bytes:
    """The same, written by a version of Weir that notes nothing of the values."""
    import xxhash

    from checkpoint.codec import decode
    from checkpoint.codec import encode as encoded
    from checkpoint.state.snapshot_format import MAGIC, TAIL_BYTES

    length = int.from_bytes(file[-len(MAGIC) - 4 : -len(MAGIC)], "little")
    footer = decode(file[-TAIL_BYTES - length : -TAIL_BYTES])
    del footer["contents"]
    body = encoded(footer)
    tail = xxhash.xxh3_128(body).digest() + len(body).to_bytes(4, "little") + MAGIC
    return file[: -TAIL_BYTES - length] + body + tail


# -- fields that come, go and change ------------------------------------------------------------------------------

TYPES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "int": (int, st.integers()),
    "bool": (bool, st.booleans()),
    "float": (float, st.floats(allow_nan=False)),
    "str": (str, st.text(max_size=3)),
    "int or None": (int | None, st.none() | st.integers()),
    "list of int": (list[int], st.lists(st.integers(), max_size=3)),
    "list of float": (list[float], st.lists(st.floats(allow_nan=False), max_size=3)),
    "Decimal": (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
}
WIDER = {
    ("bool", "int"),
    ("bool", "float"),
    ("bool", "int or None"),
    ("int", "float"),
    ("int", "int or None"),
    ("list of int", "list of float"),
}
FIELDS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(sorted(TYPES)), min_size=1)
KINDS = ("dataclass", "struct", "model", "named tuple")


def class_of_kind(kind: str, fields: dict[str, str], defaults: Mapping[str, Any] = MappingProxyType({})) -> Any:
    ordered = sorted(fields, key=lambda name: name in defaults)
    annotations = {name: TYPES[fields[name]][0] for name in ordered}
    if kind == "dataclass":
        spec = [
            (name, of, dataclasses.field(default_factory=lambda name=name: defaults[name]))
            if name in defaults
            else (name, of)
            for name, of in annotations.items()
        ]
        return dataclasses.make_dataclass("Order", spec)
    if kind == "struct":
        return msgspec.defstruct(
            "Order",
            [
                (name, of, msgspec.field(default_factory=lambda name=name: defaults[name]))
                if name in defaults
                else (name, of)
                for name, of in annotations.items()
            ],
        )
    if kind == "model":
        return pydantic.create_model(
            "Order", **{name: (of, defaults.get(name, ...)) for name, of in annotations.items()}
        )
    made: Any = NamedTuple("Order", list(annotations.items()))  # type: ignore[misc]
    made._field_defaults = {name: defaults[name] for name in ordered if name in defaults}
    return made


def fields_of(value: Any, names: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_what_fits_comes_back_equal_and_everything_else_is_refused_or_migrated(data: st.DataObject) -> None:
    draw = data.draw
    kind, old, new = draw(st.sampled_from(KINDS)), draw(FIELDS), draw(FIELDS)
    if draw(st.booleans()):
        new = {**old, **new}
    content = {name: draw(TYPES[of][1]) for name, of in old.items()}
    given_defaults = [name for name in new if draw(st.booleans())]
    defaults = {name: draw(TYPES[new[name]][1]) for name in given_defaults}

    old_class = class_of_kind(kind, old)
    program(Order=old_class)
    file = stored(ValueState(old_class), old_class(**content))
    new_class = class_of_kind(kind, new, defaults)
    program(Order=new_class)

    unknown = old.keys() - new.keys()
    missing = new.keys() - old.keys() - defaults.keys()
    changed = {n for n in old.keys() & new.keys() if old[n] != new[n] and (old[n], new[n]) not in WIDER}
    calls: list[Any] = []

    def migrate(before: Any) -> Any:
        calls.append(before)
        return new_class(**{name: _some(of) for name, of in new.items()})

    if not (unknown or missing or changed):
        back = Running(ValueState(new_class, migrate=migrate), file).at("ann").value
        assert type(back) is new_class
        assert fields_of(back, new) == {**defaults, **content}
        assert not calls
        return
    with pytest.raises(StateRestoreError, match=r"state 'state' of Op: the value of key 'ann' doesn't fit") as refused:
        Running(ValueState(new_class), file)
    for names, what in ((unknown, "is no field now"), (missing, "has no default"), (changed, "and is")):
        for name in names:
            assert f"its field {name!r} was" in str(refused.value)
            assert what in str(refused.value)
    running = Running(ValueState(new_class, migrate=migrate), file)
    assert fields_of(running.at("ann").value, new) == {name: _some(of) for name, of in new.items()}
    ((before),) = calls
    assert before == content
    assert before.class_name == "shop:Order"
    # Once: what it made is in the next snapshot.
    again = Running(ValueState(new_class, migrate=migrate), running.snapshot())
    assert len(calls) == 1
    assert again.at("ann").value == running.at("ann").value
    assert Running(ValueState(new_class), running.snapshot()).at("ann").value == running.at("ann").value


def _some(kind: str) -> Any:
    return {"int": 1, "bool": True, "float": 1.5, "str": "x", "int or None": None, "Decimal": Decimal(1)}.get(kind, [1])


# -- whole kinds --------------------------------------------------------------------------------------------------


@dataclass
class V1:
    id: int
    amount: float


@dataclass
class V2:
    id: int
    total: Decimal


def to_v2(old: Any) -> V2:
    return V2(old["id"], Decimal(str(old["amount"])))


NEW = V2(1, Decimal("2.5"))


@pytest.fixture
def file_of_v1() -> bytes:
    program(Order=V1)
    return stored(ValueState(V1), V1(1, 2.5))


def test_what_may_be_anything_takes_all_and_is_not_compared() -> None:
    def of(*fields: tuple[str, Any]) -> Any:
        return dataclasses.make_dataclass("Order", fields)

    first, wider = of(("id", int), ("items", list[int])), of(("id", Any), ("items", list[Any]))
    program(Order=first)
    file = stored(ValueState(first), first(1, [2]))
    program(Order=wider)
    running = Running(ValueState(wider), file)
    assert running.at("ann").value == wider(1, [2])
    file = running.snapshot()
    program(Order=first)
    assert Running(ValueState(first), file).at("ann").value == first(1, [2])


def test_a_class_that_was_renamed_or_moved(file_of_v1: bytes) -> None:
    program(Purchase=V2)
    with pytest.raises(StateRestoreError, match="a value of class shop:Order can't be read: there is no such class"):
        Running(ValueState(V2), file_of_v1)
    assert Running(ValueState(V2, migrate=to_v2), file_of_v1).at("ann").value == NEW


def test_one_class_in_place_of_another_that_is_still_there(file_of_v1: bytes) -> None:
    program(Order=V1, Purchase=V2)
    with pytest.raises(StateRestoreError, match="it is a V1, and the state is declared for values of V2 now"):
        Running(ValueState(V2), file_of_v1)
    by_attribute = ValueState(V2, migrate=lambda old: V2(old.id, Decimal(str(old.amount))))
    assert Running(by_attribute, file_of_v1).at("ann").value == NEW


def test_a_class_in_place_of_a_plain_dict() -> None:
    program(Order=V2)
    file = stored(ValueState(), {"id": 1, "amount": 2.5})
    assert read_footer(file).contents["state"].types == {"dict"}
    with pytest.raises(StateRestoreError, match="it is a dict, and the state is declared for values of V2 now"):
        Running(ValueState(V2), file)
    assert Running(ValueState(V2, migrate=to_v2), file).at("ann").value == NEW


def test_the_type_of_a_field_that_has_changed() -> None:
    old_class = dataclasses.make_dataclass("Order", [("id", int), ("tags", list[int])])
    new_class = dataclasses.make_dataclass("Order", [("id", int), ("tags", dict[str, int])])
    program(Order=old_class)
    file = stored(ValueState(), old_class(1, [2]))
    program(Order=new_class)
    with pytest.raises(StateRestoreError, match=r"its field 'tags' was list\[int\] and is dict\[str, int\] now"):
        Running(ValueState(), file)
    migrated = ValueState(new_class, migrate=lambda old: new_class(old["id"], dict.fromkeys(map(str, old["tags"]), 1)))
    assert Running(migrated, file).at("ann").value == new_class(1, {"2": 1})
    # Not known of older files: types aren't looked at there, as they weren't.
    assert Running(ValueState(), older_file(file)).at("ann").value == new_class(1, [2])


def test_older_files_are_told_when_they_are_read(file_of_v1: bytes) -> None:
    program(Order=V2)
    file = older_file(file_of_v1)
    assert read_footer(file).contents == {}
    with pytest.raises(StateRestoreError, match=r"state 'state' of Op: the value of key 'ann' .*'amount' was written"):
        Running(ValueState(V2), file)
    assert Running(ValueState(V2, migrate=to_v2), file).at("ann").value == NEW


def test_what_lists_of_older_files_hold_is_told_when_they_are_read() -> None:
    program(Order=V1)
    running = Running(ListState())
    running.at("ann").append({"orders": [V1(1, 2.5)]})
    file = older_file(running.snapshot())
    program(Order=V2)
    with pytest.raises(StateRestoreError, match=r"item 0 in the value of key 'ann' .*'amount' was written"):
        Running(ListState(), file)
    back = Running(ListState(migrate=lambda old: {"orders": [to_v2(one) for one in old["orders"]]}), file)
    assert back.at("ann").get() == [{"orders": [NEW]}]


class Status(enum.Enum):
    OPEN = 1
    CLOSED = 2


def test_a_member_that_an_enum_has_lost() -> None:
    program(Status=Status, Order=V1)
    running = Running(ValueState())
    running.at("ann").value = [Status.OPEN, V1(1, 2.5)]
    running.at("bob").value = [Status.CLOSED, V1(1, 2.5)]
    file = running.snapshot()
    fewer = enum.Enum("Status", {"OPEN": 1})
    program(Status=fewer, Order=V1)
    with pytest.raises(StateRestoreError, match="enum shop:Status has no member 'CLOSED' now"):
        Running(ValueState(), file)
    back = Running(ValueState(migrate=lambda old: [fewer.OPEN, *old]), file)
    assert back.at("ann").value == [fewer.OPEN, V1(1, 2.5)]
    assert back.at("bob").value == [fewer.OPEN, "CLOSED", V1(1, 2.5)]


def test_a_member_that_was_never_written_may_go() -> None:
    program(Status=Status)
    file = stored(ValueState(Status), Status.OPEN)
    fewer = enum.Enum("Status", {"OPEN": 1})
    program(Status=fewer)
    assert Running(ValueState(fewer), file).at("ann").value is fewer.OPEN


def test_classes_within_others_and_what_fits_stays_an_instance() -> None:
    @dataclass
    class Basket:
        orders: list[Any]
        first: Any

    program(Basket=Basket, Order=V1, Status=Status)
    file = stored(ValueState(Basket), Basket([V1(1, 2.5)], Status.OPEN))
    program(Basket=Basket, Order=V2, Status=Status)
    seen = []

    def migrate(old: Any) -> Basket:
        seen.append(old)
        return Basket([to_v2(one) for one in old["orders"]], old["first"])

    with pytest.raises(StateRestoreError, match="class shop:Order has changed"):
        Running(ValueState(Basket), file)
    assert Running(ValueState(Basket, migrate=migrate), file).at("ann").value == Basket([NEW], Status.OPEN)
    assert seen == [{"orders": [{"id": 1, "amount": 2.5}], "first": Status.OPEN}]
    assert seen[0].class_name == "shop:Basket"
    assert seen[0]["orders"][0].class_name == "shop:Order"


def test_items_of_lists_and_entries_of_maps(file_of_v1: bytes) -> None:
    items, entries = Running(ListState(V1)), Running(MapState(V1))
    items.at("ann").update([V1(1, 2.5), V1(2, 0.5)])
    entries.at("ann")["x"] = V1(1, 2.5)
    files = items.snapshot(), entries.snapshot()
    program(Order=V2)
    with pytest.raises(StateRestoreError, match="item 0 in the value of key 'ann' doesn't fit"):
        Running(ListState(V2), files[0])
    with pytest.raises(StateRestoreError, match="the entry 'x' in the value of key 'ann' doesn't fit"):
        Running(MapState(V2), files[1])
    assert Running(ListState(V2, migrate=to_v2), files[0]).at("ann").get() == [NEW, V2(2, Decimal("0.5"))]
    assert dict(Running(MapState(V2, migrate=to_v2), files[1]).at("ann")) == {"x": NEW}
    plain = Running(ListState())
    plain.at("ann").update([{"id": 1, "amount": 2.5}])
    assert Running(ListState(V2, migrate=to_v2), plain.snapshot()).at("ann").get() == [NEW]


def test_keys_of_maps_are_not_migrated() -> None:
    key_class = dataclasses.make_dataclass("Key", [("a", int)], frozen=True)
    program(Key=key_class)
    running = Running(MapState())
    running.at("ann")[key_class(1)] = 1
    file = running.snapshot()
    program()
    with pytest.raises(StateRestoreError, match="a key in the value of key 'ann' doesn't fit"):
        Running(MapState(migrate=lambda old: old), file)


@pytest.mark.parametrize("kind", [MapState, ValueState])
def test_keys_that_are_equal_now_are_told(kind: Any) -> None:
    """RocksDB reads them once their key comes."""
    old = dataclasses.make_dataclass("Key", [("a", int), ("b", int)], frozen=True)
    program(Key=old)
    running = Running(kind())
    entries = {old(1, 1): "x", old(1, 2): "y"}
    if kind is MapState:
        running.at("ann").update(entries)
    else:
        running.at("ann").value = entries
    file = running.snapshot()
    of_b = dataclasses.field(compare=False)
    program(Key=dataclasses.make_dataclass("Key", [("a", int), ("b", int, of_b)], frozen=True))

    def read() -> Any:
        found = Running(kind(), file).at("ann")
        return len(found if kind is MapState else found.value)

    with pytest.raises((StateRestoreError, UnfitClass), match="equal now"):
        read()


@pytest.mark.parametrize("ttl", [60, TTL(60, time="event", refresh="read_and_write")])
def test_state_with_a_time_to_live(file_of_v1: bytes, ttl: Any) -> None:
    values, items, entries = (Running(kind(V1, ttl=ttl)) for kind in (ValueState, ListState, MapState))
    values.at("ann").value = V1(1, 2.5)
    items.at("ann").append(V1(1, 2.5))
    entries.at("ann")[5] = V1(1, 2.5)
    files = [running.snapshot() for running in (values, items, entries)]
    program(Order=V2)
    back = [
        Running(kind(V2, ttl=ttl, migrate=to_v2), file).at("ann")
        for kind, file in zip((ValueState, ListState, MapState), files, strict=True)
    ]
    assert (back[0].value, back[1].get(), dict(back[2])) == (NEW, [NEW], {5: NEW})
    with pytest.raises(EncodingError, match="declared for values of V2"):
        back[2][5] = 1


def test_accumulators() -> None:
    program(Order=V1)
    summed = Running(ReducingState(lambda a, b: V1(a.id, a.amount + b.amount)))
    summed.at("ann").add(V1(1, 2.5))
    added = Running(AggregatingState(lambda: V1(1, 2.5), lambda acc, x: acc, lambda acc: acc))
    added.at("ann").add(0)
    files = summed.snapshot(), added.snapshot()
    program(Order=V2)
    assert Running(ReducingState(max, migrate=to_v2), files[0]).at("ann").value == NEW
    aggregating = AggregatingState(lambda: V2(0, Decimal(0)), lambda acc, x: acc, lambda acc: acc, migrate=to_v2)
    assert Running(aggregating, files[1]).at("ann").value == NEW


class Movie(TypedDict):
    name: str
    year: NotRequired[int]


class Film(TypedDict):
    title: str


def test_typed_dicts_by_what_was_declared() -> None:
    file = stored(ValueState(Movie), {"name": "x"})
    assert Running(ValueState(Movie), file).at("ann").value == {"name": "x"}
    with pytest.raises(
        StateRestoreError, match=r"Film has changed since: 'name' was written and is no key now.*'title'"
    ):
        Running(ValueState(Film), file)
    films = ValueState(Film, migrate=lambda old: {"title": old["name"]})
    assert Running(films, file).at("ann").value == {"title": "x"}
    # Nothing was declared: by the keys that there are.
    plain = stored(ValueState(), {"name": "x", "stars": 5})
    with pytest.raises(StateRestoreError, match="its key 'stars' is no key of Movie"):
        Running(ValueState(Movie), plain)
    # What a job has let its dicts become, it can restore.
    running = Running(ValueState(Movie))
    running.at("ann").value = {"name": "x"}
    running.at("ann").value["stars"] = 5
    assert Running(ValueState(Movie), running.snapshot()).at("ann").value == {"name": "x", "stars": 5}


class Named(TypedDict):
    name: str


class Numbered(TypedDict):
    name: int
    year: NotRequired[int]


def test_files_for_which_types_were_declared_in_turn_count_with_all_of_them() -> None:
    files = [
        {"state": StateContent((), None, shape)}
        for shape in (DeclaredKeys(Named).shape, DeclaredKeys(Movie).shape, DeclaredKeys(Named).shape)
    ]
    both = together(files)["state"]
    assert content_misfits(both, DeclaredKeys(Movie)) == []
    assert fit_unseen(both, DeclaredKeys(Movie))
    assert content_misfits(both, DeclaredKeys(Numbered)) == [
        "Numbered has changed since: 'name' was str and is int now"
    ]
    assert content_misfits(both, DeclaredKeys(Named)) == [
        "Named has changed since: 'year' was written and is no key now"
    ]
    program(Order=V1, Status=Status)
    classes_in_turn = together([{"state": StateContent((), None, f"shop:{name}")} for name in ("Order", "Status")])
    assert content_misfits(classes_in_turn["state"], DeclaredType(V1)) == [
        "values are of type Status, and the state is declared for values of V1 now"
    ]
    nothing_said = together([*files, {"state": StateContent()}])["state"]
    assert not fit_unseen(nothing_said, DeclaredKeys(Movie))


# -- errors, and what is put --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("migrate", "problem"),
    [
        (lambda old: old["nothing"], "migrate raised KeyError: 'nothing'"),
        (lambda old: None, "migrate returned None, and would lose it"),
        (lambda old: {**old}, "migrate returned what can't be put there: .* is a dict"),
        (lambda old: V2(1, object()), "migrate returned what can't be kept: can't encode object at value.total"),  # type: ignore[arg-type]
    ],
)
def test_a_migrate_that_fails_names_state_key_and_old_value(
    file_of_v1: bytes, migrate: Callable[[Any], Any], problem: str
) -> None:
    program(Order=V2)
    with pytest.raises(StateRestoreError, match=problem) as error:
        Running(ValueState(V2, migrate=migrate), file_of_v1)
    for part in ("state 'state' of Op", "the value of key 'ann'", "<shop:Order {'id': 1, 'amount': 2.5}>"):
        assert part in str(error.value)


def test_a_long_old_value_is_cut() -> None:
    program(Order=V2)
    file = stored(ValueState(), {"id": "x" * 100_000})
    with pytest.raises(StateRestoreError) as error:
        Running(ValueState(V2, migrate=to_v2), file)
    assert len(str(error.value)) < 1000


def test_keys_share_nothing_that_migrate_gives_twice(file_of_v1: bytes) -> None:
    running = Running(ValueState(V1))
    running.at("ann").value = V1(1, 2.5)
    running.at("bob").value = V1(2, 2.5)
    file = running.snapshot()
    program(Order=V2)
    one = V2(0, Decimal(0))
    back = Running(ValueState(V2, migrate=lambda old: one), file)
    back.at("ann").value.id = 7
    assert back.at("bob").value == V2(0, Decimal(0))
    assert one == V2(0, Decimal(0))


def test_what_was_stored_can_not_be_put_back(file_of_v1: bytes) -> None:
    program()
    with pytest.raises(
        StateRestoreError, match=r"returned what can't be kept: .*StoredRecord.*make a value of a class"
    ):
        Running(ValueState(migrate=lambda old: [old]), file_of_v1)
    assert Running(ValueState(migrate=dict), file_of_v1).at("ann").value == {"id": 1, "amount": 2.5}
    record = StoredRecord({"a": 1}, "shop:Order")
    assert {record: 1}[record] == 1


def test_a_declared_class_is_no_default_and_takes_its_values_only() -> None:
    program(Order=V1)
    running = Running(ValueState(V1))
    state = running.at("ann")
    assert state.value is None
    for wrong in ({"id": 1}, 5, "x", (1, 2.5)):
        with pytest.raises(EncodingError, match=r"key 'ann': .* the state is declared for values of V1"):
            state.value = wrong
    state.value = None
    assert Running(ValueState(V1, migrate=to_v2), running.snapshot()).at("ann").value is None
    assert Running(ValueState(V1, default=lambda: V1(0, 0.0))).at("ann").value == V1(0, 0.0)
    assert Running(ValueState(default=lambda: V1(0, 0.0))).at("ann").value == V1(0, 0.0)
    items, entries = Running(ListState(V1)).at("ann"), Running(MapState(V1)).at("ann")
    for put in (items.append, lambda wrong: items.extend([V1(1, 1.0), wrong]), lambda wrong: items.update([wrong])):
        with pytest.raises(EncodingError, match="declared for values of V1"):
            put(5)
    with pytest.raises(EncodingError, match="the entry 'x' of key 'ann'"):
        entries["x"] = 5
    assert items.get() == []


T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    content: T | None = None


def test_a_generic_class_is_declared_with_its_parameters_or_without() -> None:
    program(Box=Box)
    for declared in (Box[int], Box):
        state = Running(ValueState(declared)).at("ann")
        assert state.value is None
        state.value = Box(5)
        with pytest.raises(EncodingError, match="declared for values of Box"):
            state.value = 5
        with pytest.raises(EncodingError, match="declared for values of Box"):
            Running(ListState(declared)).at("ann").append(5)
    assert Running(ValueState(dict[str, int])).at("ann").value == {}


def test_factories_stay_defaults() -> None:
    assert Running(ValueState(dict)).at("ann").value == {}
    assert Running(ValueState(list)).at("ann").value == []
    assert Running(ValueState(5)).at("ann").value == 5


def test_what_is_no_class_of_values_is_refused() -> None:
    for wrong in (lambda: ListState(int), lambda: MapState("Order"), lambda: ValueState(5, default=6)):
        with pytest.raises(StateAccessError, match="takes the class of its values"):
            wrong()  # type: ignore[no-untyped-call]
    with pytest.raises(StateAccessError, match="migrate must be a function"):
        ValueState(migrate=5)  # type: ignore[call-overload]


def test_a_file_says_what_its_values_are() -> None:
    program(Order=V1, Status=Status)
    running = Running(ValueState(V1))
    running.at("ann").value = V1(1, 2.5)
    running.at("bob").value = V1(1, [Status.OPEN])  # type: ignore[arg-type]
    contents = read_footer(running.snapshot()).contents["state"]
    assert [(one.name, one.fields, one.members) for one in contents.classes] == [
        ("shop:Order", {"id": "int", "amount": "float"}, frozenset()),
        ("shop:Status", None, {"OPEN"}),
    ]
    # RocksDB's rows are not decoded for that.
    assert contents.types == ({"shop:Order"} if _backends[-1] == "heap" else None)
    assert contents.declared == "shop:Order"


@pytest.mark.parametrize("others", [0, 20])
def test_what_stays_as_an_earlier_version_wrote_it_is_not_taken_for_a_newer_one(others: int) -> None:
    """RocksDB takes rows over as they are."""
    more = [(f"f{i}", int, 0) for i in range(others)]
    first = dataclasses.make_dataclass("Order", [("id", int), *more])
    second = dataclasses.make_dataclass("Order", [("id", int), *more, ("n", int, 0)])
    program(Order=first)
    running = Running(ListState(first))
    keys = ("ann", "bob", "eve")
    for number, key in enumerate(keys):
        running.at(key).append(first(number))
    file = running.snapshot()
    program(Order=second)
    running = Running(ListState(second), file)
    running.at("eve").append(second(5, n=5))
    assert [one.n for one in running.at("bob")] == [0]
    file = running.snapshot()

    def migrated(cls: Any, migrate: Callable[[Any], Any]) -> list[list[tuple[Any, Any]]]:
        program(Order=cls)
        back = Running(ListState(cls, migrate=migrate), file)
        return [[(one.id, one.n) for one in back.at(key)] for key in keys]

    required = dataclasses.make_dataclass("Order", [("id", int), ("n", int)])
    found = migrated(required, lambda old: required(old["id"], old.get("n", 0)))
    assert found == [[(0, 0)], [(1, 0)], [(2, 0), (5, 5)]]
    named = dataclasses.make_dataclass("Order", [("id", str), *more, ("n", int, 0)])
    found = migrated(named, lambda old: named(str(old["id"]), n=old.get("n", 0)))
    assert found == [[("0", 0)], [("1", 0)], [("2", 0), ("5", 5)]]
    with pytest.raises(StateRestoreError, match="its field 'id' was int and is str now"):
        Running(ListState(named), file)


class Unresolved(TypedDict, total=False):
    name: Required[str]
    what: NoSuchName  # type: ignore[name-defined]  # noqa: F821  # as one that only type checkers know
    year: int


class Longer(Unresolved):
    stars: int
    note: NotRequired[str]


def test_keys_of_typed_dicts_are_required_as_their_annotations_say_also_where_these_are_strings() -> None:
    assert DeclaredKeys(Movie).shape == ["keys", {"name": ["str", True], "year": ["int", False]}]
    assert DeclaredKeys(Longer).shape == [
        "keys",
        {
            "name": ["str", True],
            "what": ["any", False],
            "year": ["int", False],
            "stars": ["int", True],
            "note": ["str", False],
        },
    ]
    file = stored(ValueState(Named), {"name": "x"})
    assert Running(ValueState(Movie), file).at("ann").value == {"name": "x"}
    plain = stored(ValueState(), {"name": "x", "what": 5})
    assert Running(ValueState(Unresolved), plain).at("ann").value == {"name": "x", "what": 5}
