from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from checkpoint.codec import decode, encode
from formats import NotInFormat, value_type


class Level(enum.Enum):
    HIGH = "high"


@dataclass
class Item:
    sku: str
    price: Decimal


@dataclass(frozen=True)
class Order:
    id: UUID
    items: list[Item]
    day: date
    at: datetime | None = None
    level: Level = Level.HIGH
    weight: float = 0.0
    tags: tuple[str, ...] = field(default=())


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel", tag="strict"):
    my_name: str


class Row(TypedDict):
    a: int


class Model(pydantic.BaseModel):
    a: int
    day: date = date.min


class Checked(msgspec.Struct):
    a: int

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("a is below zero")


ID = UUID(int=1)
TEXT = b'{"id": "%s", "items": [{"sku": "x", "price": 0.12345678901234567890}], "day": "2020-02-29", "tags": ["a"]}'


def test_a_record_becomes_an_instance_of_the_class_all_the_way_down() -> None:
    order = value_type.from_json(Order)(TEXT % str(ID).encode())
    assert order == Order(ID, [Item("x", Decimal("0.12345678901234567890"))], date(2020, 2, 29), tags=("a",))
    assert value_type.from_json(Strict)(b'{"type": "strict", "myName": "x"}') == Strict("x")
    assert value_type.from_json(Row)(b'{"a": 1}') == {"a": 1}
    assert value_type.from_json(Model)(b'{"a": 1, "day": "2020-02-29"}') == Model(a=1, day=date(2020, 2, 29))
    assert value_type.from_value(Model)({"a": 1}) == Model(a=1)
    assert value_type.from_value(Item)({"sku": "x", "price": Decimal(1)}) == Item("x", Decimal(1))


class Priced(pydantic.BaseModel):
    price: Decimal
    weight: float = 0.0
    others: dict[str, list[Decimal]] = {}


class Timed(pydantic.BaseModel):
    at: datetime


@pytest.mark.parametrize("at", ["2020-02-29T01:02:03.000004Z", "2020-02-29T01:02:03+05:30", "2020-02-29T01:02:03"])
def test_times_that_a_model_has_read_travel(at: str) -> None:
    """Pydantic's zones are of a type of their own."""
    value = value_type.from_json(Timed)(f'{{"at": "{at}"}}'.encode())
    back = decode(encode(value))
    assert back == value
    assert repr(back) == repr(value)


def test_a_model_loses_no_digit_of_a_decimal() -> None:
    """Pydantic makes a Decimal of a JSON number by way of a float."""
    make = value_type.from_json(Priced)
    assert make(b'{"price": "0.12345678901234567890"}').price == Decimal("0.12345678901234567890")
    for text in (b'{"price": 12.5, "weight": 0.30000000000000004}', b'{"price": 0.0000000000000000125}'):
        assert make(text).price == Decimal(text.split(b" ")[1].strip(b",}").decode())
    for text, path in (
        (b'{"price": 0.12345678901234567890}', "$.price"),
        (b'{"price": 1, "others": {"a": [1, 1234567890123456.789]}}', "$.others.a[1]"),
    ):
        told = rf"^\d+\.\d+ has more digits than pydantic takes .* - at `{re.escape(path)}`$"
        with pytest.raises(NotInFormat, match=told):
            make(text)


@pytest.mark.parametrize(
    ("cls", "text", "reason"),
    [
        (Item, b'{"sku": 1, "price": 1}', r"Expected `str`, got `int` - at `\$\.sku`"),
        (Item, b'{"sku": "a"}', "missing required field `price`"),
        (Order, TEXT.replace(b'"x"', b"null") % b"1" * 1, "UUID"),
        (Order, TEXT.replace(b'"x"', b"null") % str(ID).encode(), r"at `\$\.items\[0\]\.sku`"),
        (Row, b'{"a": "1"}', r"Expected `int`, got `str` - at `\$\.a`"),
        (Row, b'{"a": true}', r"at `\$\.a`"),
        (Row, b'{"a": 1.5}', r"at `\$\.a`"),
        (Row, b"[1]", "Expected `object`, got `array`"),
        (Strict, b'{"type": "strict", "myName": "x", "more": 1}', "unknown field `more`"),
        (Model, b'{"a": "1"}', r"at `\$\.a`"),
        (Model, b'{"a": 1, "day": 5}', r"at `\$\.day`"),
        (Checked, b'{"a": -1}', "a is below zero"),
    ],
)
def test_what_does_not_fit_is_told_with_its_path(cls: Any, text: bytes, reason: str) -> None:
    with pytest.raises(NotInFormat, match=reason):
        value_type.from_json(cls)(text)


def test_what_another_format_has_read_is_converted_as_strictly() -> None:
    with pytest.raises(NotInFormat, match=r"Expected `str`, got `int` - at `\$\.sku`"):
        value_type.from_value(Item)({"sku": 1, "price": Decimal(1)})
    with pytest.raises(NotInFormat, match=r"at `\$\.a`"):
        value_type.from_value(Model)({"a": "1"})


@pytest.mark.parametrize("given", [lambda: 0, 5, "Order", Row | Item])
def test_what_is_no_type_of_values_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="value_type must be a dataclass"):
        value_type.check(given)
