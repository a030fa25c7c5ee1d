"""Avro values of any schema: what fits is written, comes back equal, and what has come can be written again."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from edge_values import same
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st

from formats import NotInFormat
from formats.avro_strict import checker
from formats.avro_values import namer, plain

LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=3),
    "string": st.text(st.characters(codec="utf-8"), max_size=3),
    '{"type": "int", "logicalType": "date"}': st.dates(),
    '{"type": "long", "logicalType": "time-micros"}': st.times(),
    '{"type": "long", "logicalType": "timestamp-micros"}': st.datetimes(timezones=st.just(UTC)),
    '{"type": "string", "logicalType": "uuid"}': st.uuids(),
    '{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}': st.decimals(-999999, 999999, places=2),
}


@st.composite
def schemas(draw: st.DrawFn, depth: int, names: list[str]) -> tuple[Any, st.SearchStrategy[Any]]:
    """A schema, and values that fit it. `names` counts."""
    kind = draw(st.sampled_from(["leaf", "enum", "fixed", "record", "array", "map", "union"][: 7 if depth else 3]))
    if kind == "leaf":
        leaf = draw(st.sampled_from(list(LEAVES)))
        return json.loads(leaf) if leaf[0] == "{" else leaf, LEAVES[leaf]
    if kind == "array":
        items, values = draw(schemas(depth - 1, names))
        return {"type": "array", "items": items}, st.lists(values, max_size=2)
    if kind == "map":
        items, values = draw(schemas(depth - 1, names))
        return {"type": "map", "values": items}, st.dictionaries(st.text("a-", max_size=2), values, max_size=2)
    if kind == "union":
        branches: dict[str, Any] = {}
        for _ in range(draw(st.integers(1, 4))):
            schema, values = draw(schemas(depth - 1, names))
            if not isinstance(schema, list):
                name = schema if isinstance(schema, str) else schema.get("name", schema["type"])
                branches.setdefault(name, (schema, values))
        return [schema for schema, _ in branches.values()] or ["null"], st.one_of(
            [values for _, values in branches.values()] or [st.none()]
        )
    names.append(f"N{len(names)}")
    named: dict[str, Any] = {"type": kind, "name": names[-1], **draw(st.sampled_from([{}, {"namespace": "a.b"}]))}
    if kind == "enum":
        return {**named, "symbols": ["A", "B"]}, st.sampled_from(["A", "B"])
    if kind == "fixed":
        return {**named, "size": 2}, st.just(b"ab")
    fields = {name: draw(schemas(depth - 1, names)) for name in draw(st.sets(st.sampled_from("xyz"), max_size=3))}
    named["fields"] = [{"name": name, "type": schema} for name, (schema, _) in fields.items()]
    return named, st.fixed_dictionaries({name: values for name, (_, values) in fields.items()})


def written(schema: Any, value: Any) -> bytes:
    file = io.BytesIO()
    schemaless_writer(file, parse_schema(json.loads(json.dumps(schema))), checker(schema, False)(value, "value"))
    return file.getvalue()


def read(schema: Any, data: bytes) -> Any:
    name = namer(schema)
    found = schemaless_reader(
        io.BytesIO(data), parse_schema(json.loads(json.dumps(schema))), None, return_record_name=True
    )
    return plain(found if name is None else name(found))


def unnamed(value: Any) -> Any:
    """Without what says the branch of a union, in one order."""
    if type(value) is dict:
        if set(value) == {"-type", "-value"}:
            return unnamed(value["-value"])
        return {name: unnamed(item) for name, item in sorted(value.items()) if name != "-type"}
    return [unnamed(item) for item in value] if type(value) is list else value


@settings(deadline=None)
@given(st.data())
def test_what_fits_a_schema_comes_back_and_can_be_written_again(data: st.DataObject) -> None:
    schema, values = data.draw(schemas(3, []))
    value = data.draw(values)
    try:
        there = written(schema, value)
    except NotInFormat as error:  # several branches fit, or a double takes no such int
        assert "fits several branches" in str(error)  # noqa: PT017
        return
    back = read(schema, there)
    assert same(unnamed(back), unnamed(value))
    assert written(schema, back) == there


POINT = {"type": "record", "name": "P", "fields": []}
WORDS = {"type": "array", "items": "string"}
INNER = {"type": "map", "values": ["null", POINT, {"type": "map", "values": "int"}]}
IN_NAMESPACE = {
    "type": "record",
    "name": "R",
    "namespace": "shop",
    "fields": [
        {"name": "u", "type": ["null", WORDS, INNER]},
        {"name": "m", "type": ["null", {"type": "array", "items": [WORDS, {"type": "map", "values": ["null", "P"]}]}]},
    ],
}


@pytest.mark.parametrize(
    "value",
    [
        {"u": None, "m": None},
        {"u": ["a"], "m": [["b"], {"x": None}]},
        {"u": {"a": {"-type": "shop.P"}, "b": {"c": 1}}, "m": [{"a": {}}]},
    ],
)
def test_arrays_and_maps_have_no_namespace(value: Any) -> None:
    assert read(IN_NAMESPACE, written(IN_NAMESPACE, value)) == value


def test_milliseconds_are_whole_in_utc() -> None:
    schema = {"type": "long", "logicalType": "timestamp-millis"}
    odd = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(microseconds=1)))
    with pytest.raises(NotInFormat, match="in milliseconds"):
        written(schema, odd)
    whole = odd.replace(microsecond=1)
    assert read(schema, written(schema, whole)) == whole
