"""Values that a source turns into a class; the rest of decoding is in `test_formats.py`."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from sources.kafka.bad_records import BadRecords, Letter
from sources.kafka.decode import RecordDecoder


@dataclass
class Order:
    id: int
    price: Decimal


class Kept(BadRecords):
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def handle(self, message: Any, content: bytes | None, error: Exception) -> None:
        self.reasons.append(str(error))

    def take_over(self, letters: Any) -> None:
        raise AssertionError(f"{len(letters)} of {Letter}")


class Message:
    def topic(self) -> str:
        return "orders"


def decoded(*raw: bytes | None) -> tuple[list[Any], list[str]]:
    kept = Kept()
    messages: Any = [Message() for _ in raw]
    good, values = RecordDecoder("json", kept, value_type=Order).decode(messages, list(raw))  # type: ignore[arg-type]
    assert len(good) == len(values)
    return list(values), kept.reasons


def test_all_values_of_a_batch_become_instances() -> None:
    values, bad = decoded(b'{"id": 1, "price": 1.10}', b'{"price": "2", "id": 2}')
    assert values == [Order(1, Decimal("1.10")), Order(2, Decimal(2))]
    assert bad == []


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"id": "1", "price": 1}', "Expected `int`, got `str` - at `$.id`"),
        (b'{"id": 1, "id": 2, "price": 1}', "an object has the key 'id' more than once"),
        (b'{"id": 1}', "Object missing required field `price`"),
        (b"{", "unexpected end of data"),
    ],
)
def test_one_that_does_not_fit_is_a_bad_record_with_its_path(raw: bytes, reason: str) -> None:
    values, (told,) = decoded(b'{"id": 1, "price": 1}', raw, None)
    assert values == [Order(1, Decimal(1)), None]
    assert reason in told
