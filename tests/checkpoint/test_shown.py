"""Errors about values come out whatever their repr does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest

from checkpoint.codec import EncodingError, encode
from checkpoint.shown import no_field, shown
from checkpoint.state import OperatorListHandle, OperatorListState
from formats.avro_strict import checker
from formats.inferred_columns import infer
from formats.json_values import dumps
from formats.python_columns import PythonColumns
from pipeline.partitioners import KeyMissing, KeySelector
from sinks.kafka.errors import shorten


class Odd:
    def __repr__(self) -> str:
        raise LookupError


LONG = 10**5000


def column(value: Any) -> Any:
    return PythonColumns().builder(pa.field("a", pa.struct([("b", pa.string())])), "a")([value])


def avro(value: Any) -> Any:
    return checker({"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}, False)(value, "value")


@pytest.mark.parametrize(
    "value",
    [Odd(), [Odd()], {"a": Odd()}, {Odd(): 1}, {LONG: Odd()}, {"a": {(LONG,): Odd()}}],
    ids=["itself", "item", "content", "key", "beside a long key", "beside a tuple with a long number"],
)
@pytest.mark.parametrize(
    "take", [encode, OperatorListHandle("held", OperatorListState[Any]()).append, dumps, avro, column]
)
def test_a_value_without_a_repr_is_refused_like_any_other(take: Callable[[Any], object], value: Any) -> None:
    with pytest.raises((EncodingError, ValueError), match=r"Odd|whose repr raises|no field 'a'"):
        take(value)


def test_columns_that_mix_such_values_are_refused() -> None:
    with pytest.raises(ValueError, match="the int <int, whose repr raises ValueError> in row 1 and the str 'a' in row"):
        infer([None, LONG, "a"], "a")


def test_records_without_a_repr_are_shown_in_errors() -> None:
    assert shorten({"a": Odd()}) == "<dict, whose repr raises LookupError>"
    with pytest.raises(KeyMissing, match="the record has no 'b': <dict, whose repr raises LookupError>"):
        KeySelector("b").compile()({"a": Odd()})


def test_long_values_are_cut() -> None:
    assert shown("x" * 200, 10) == "'xxxxxxxxx…"
    assert shown("x") == "'x'"


class Ride(NamedTuple):
    at: int


class Payment(msgspec.Struct):
    at: int


@dataclass(slots=True)
class Base:
    at: int


class Refund(Base):
    pass


@pytest.mark.parametrize("record", [Ride(1), Payment(1), Refund(1)], ids=lambda record: type(record).__name__)
def test_of_an_instance_with_such_a_field_a_function_is_advised(record: Any) -> None:
    """A name of a field is taken for an item of a dict: "has no 'at'" would be wrong."""
    advised = no_field(record, "at", "advice")
    assert advised.startswith(
        f"'at' names an item of a dict, and the record is an instance of {type(record).__name__}: "
    )
    assert advised.endswith("; give a function, such as lambda record: record.at")
    with pytest.raises(KeyMissing, match=r"lambda record: record\.at"):
        KeySelector("at").compile()(record)
    assert no_field(record, "on", "advice") == f"the record has no 'on': {record!r}; advice"


@pytest.mark.parametrize(
    ("record", "field"), [({"b": 1}, "items"), ([1], "count"), ((1,), 3), ("text", "a"), (None, "a")]
)
def test_of_other_records_it_is_said_that_they_lack_the_field(record: Any, field: str | int) -> None:
    assert no_field(record, field, "advice") == f"the record has no {field!r}: {record!r}; advice"
