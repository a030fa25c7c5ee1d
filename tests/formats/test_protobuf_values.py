"""Protobuf's values: what a sink accepts its source reads back equal, which member of a oneof it is included."""

from __future__ import annotations

from typing import Any

import pytest
from edge_values import EVERYTHING, anything, same
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from formats import NotInFormat
from formats.protobuf_values import from_plain, to_plain
from pipeline.testing import SchemaRegistry
from sources import JsonSchema, Protobuf

F = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    name: getattr(F, f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
        "sfixed64", "bool", "string", "bytes",
    )
}  # fmt: skip


def _message() -> Any:
    """A field of each scalar, with and without presence; lists, maps, enums, messages and a oneof."""
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", package="t", syntax="proto3")
    color = file.enum_type.add(name="Color")
    color.options.allow_alias = True
    for name, value in (("RED", 0), ("BLUE", 1), ("AZURE", 1)):
        color.value.add(name=name, number=value)
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="n", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    every = file.message_type.add(name="All")
    every.oneof_decl.add(name="choice")
    kinds = [*SCALARS.items(), ("enum", F.TYPE_ENUM), ("message", F.TYPE_MESSAGE)]
    number = 1
    for name, kind in kinds:
        type_name = {F.TYPE_ENUM: ".t.Color", F.TYPE_MESSAGE: ".t.Inner"}.get(kind)
        more = {} if type_name is None else {"type_name": type_name}
        every.field.add(name=name, number=number, type=kind, label=F.LABEL_OPTIONAL, **more)
        every.field.add(name=f"{name}s", number=number + 1, type=kind, label=F.LABEL_REPEATED, **more)
        every.field.add(name=f"one_{name}", number=number + 2, type=kind, label=F.LABEL_OPTIONAL, oneof_index=0, **more)
        entry = every.nested_type.add(name=f"Of{name.title()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
        entry.field.add(name="value", number=2, type=kind, label=F.LABEL_OPTIONAL, **more)
        every.field.add(
            name=f"of_{name}", number=number + 3, type=F.TYPE_MESSAGE, type_name=f".t.All.{entry.name}",
            label=F.LABEL_REPEATED,
        )  # fmt: skip
        number += 4
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.All"))


ALL = _message()
FIELDS = [field.name for field in ALL.DESCRIPTOR.fields]
MORE = [
    "RED", "BLUE", "AZURE", "GREEN", 5, {"n": 1}, {"n": 2**31}, {"n": None}, {"m": 1}, ["a"], [b"a"], [1, True],
    [{"n": 0}],
    {"k": 1.5}, {"k": "RED"}, {"k": b"x"}, {"k": {"n": 3}}, [1.5, 0.1], (1,), [None], {"k": None},
]  # fmt: skip


def there_and_back(value: Any) -> Any:
    return to_plain(ALL.FromString(from_plain(ALL(), value).SerializeToString()))


def equal(field: str, given: Any, found: Any) -> bool:
    """A column of floats has no ints, and a message has all of its fields."""
    if type(given) is list:
        return len(given) == len(found) and all(
            equal(field, one, other) for one, other in zip(given, found, strict=True)
        )
    if field.startswith("of_") and type(given) is dict:
        return given.keys() == found.keys() and all(equal(field[3:], given[one], found[one]) for one in given)
    if type(given) is dict:
        return same(found, {"n": given.get("n") or 0})
    if ("float" in field or "double" in field) and type(given) is int:
        return type(found) is float and found == given
    return same(found, given)


@pytest.mark.parametrize("field", FIELDS)
def test_every_value_is_read_back_equal_or_refused_with_its_path(field: str) -> None:
    accepted = 0
    for value in [*EVERYTHING, *MORE]:
        try:
            found = there_and_back({field: value})
        except NotInFormat as error:
            assert f"value[{field!r}]" in str(error)  # noqa: PT017  # most are refused
            continue
        accepted += value is not None
        assert equal(field, value, found[field]), (value, found[field])
    assert accepted


@settings(max_examples=100)
@given(field=st.sampled_from(FIELDS), value=anything | st.sampled_from(MORE))
def test_any_value_is_read_back_equal_or_refused(field: str, value: Any) -> None:
    try:
        found = there_and_back({field: value})
    except NotInFormat:
        return
    assert equal(field, value, found[field]), (value, found[field])


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"int32": 2**31}, r"value\['int32'\] is 2147483648, of type int, where the schema has int32"),
        ({"int32": True}, "of type bool"),
        ({"int32": 1.0}, "of type float"),
        ({"bool": 1}, "of type int"),
        ({"string": b"a"}, "of type bytes"),
        ({"bytes": "a"}, "of type str"),
        ({"float": 0.1}, "doesn't hold it exactly.*round_floats=True"),
        ({"float": 1e300}, "too large"),
        ({"enum": 1}, "the enum t.Color"),
        ({"enum": "AZURE"}, "another name of the same number"),
        ({"int64": None}, r"value\['int64'\] is None, (which|but) t.All can't tell"),
        ({"one_int32": 0, "one_string": ""}, r"'one_int32' and 'one_string', .*oneof.* choice"),
        ({"messages": [{"n": 1}, {"m": 1}]}, r"value\['messages'\]\[1\]: t.Inner has no field 'm'"),
        ({"of_int32": {1: 1}}, r"a key of value\['of_int32'\] is 1"),
        ({"int32s": (1,)}, "of type tuple"),
    ],
)
def test_what_would_be_bent_is_refused_with_the_reason(value: Any, why: str) -> None:
    with pytest.raises(NotInFormat, match=why):
        there_and_back(value)


@pytest.mark.parametrize(
    ("member", "value"),
    [("one_int32", 0), ("one_string", ""), ("one_bool", False), ("one_enum", "RED"), ("one_message", {"n": 0})],
)
def test_the_member_of_a_oneof_is_told_also_if_it_has_its_default(member: str, value: Any) -> None:
    found = there_and_back({member: value})
    assert {name for name, item in found.items() if name.startswith("one_") and item is not None} == {member}
    assert same(found[member], value)
    assert same(there_and_back(found), found)
    assert there_and_back({})[member] is None


def test_floats_are_rounded_only_if_asked_for() -> None:
    with SchemaRegistry() as registry:
        one = Protobuf(registry.url, ALL, round_floats=True)
        data = one.encoder("value")({"float": 0.1}, "t")
        assert one.decoder("value")(data, "t")["float"] == 0.10000000149011612
        with pytest.raises(ValueError, match="round_floats must be"):
            Protobuf(registry.url, ALL, round_floats="yes")  # type: ignore[arg-type]


def test_alternatives_of_a_json_schema_arrive_and_are_written_as_they_are() -> None:
    order = {"type": "object", "properties": {"kind": {"const": "order"}, "id": {"type": "integer"}}}
    payment = {"type": "object", "properties": {"kind": {"const": "payment"}, "id": {"type": ["integer", "number"]}}}
    with SchemaRegistry() as registry:
        one = JsonSchema(registry.url, {"oneOf": [order, payment]})
        for value in ({"kind": "payment", "id": 1}, {"kind": "order", "id": 2**70}, {"kind": "payment", "id": 1.0}):
            assert same(one.decoder("value")(one.encoder("value")(value, "t"), "t"), value)
        for bad in ({"id": 1}, {"kind": "payment", "id": float("nan")}, {"kind": "order", "id": True}):
            with pytest.raises(NotInFormat):
                one.encoder("value")(bad, "t")
