"""Values as JSON and back."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given

from checkpoint.codec import encode
from checkpoint.tables.json_form import from_json, to_json
from tests.support.values import EDGES, VALUES, same


@given(VALUES)
def test_a_value_comes_back_with_its_type(value: Any) -> None:
    text = to_json(value)
    assert same(from_json(text), value)
    assert encode(from_json(text)) == encode(value)
    json.loads(text, parse_constant=pytest.fail)


@pytest.mark.parametrize("value", EDGES, ids=range(len(EDGES)))
def test_values_at_the_edges_come_back(value: Any) -> None:
    assert encode(from_json(to_json(value))) == encode(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, 2.0, None, True, "é"]}, '{"a":[1,2.0,null,true,"é"]}'),
        (2**70, str(2**70)),
        ((1, ("x",)), '{"$tuple":[1,{"$tuple":["x"]}]}'),
        ({1: "a"}, '{"$dict":[[1,"a"]]}'),
        ({"$x": 1}, '{"$dict":[["$x",1]]}'),
        ({2, 1}, '{"$set":[1,2]}'),
        (b"\0\1", '{"$bytes":"AAE="}'),
        (float("nan"), '{"$float":"nan"}'),
        (float("-inf"), '{"$float":"-inf"}'),
        (Decimal("1.00"), '{"$decimal":"1.00"}'),
        (UUID(int=5), '{"$uuid":"00000000-0000-0000-0000-000000000005"}'),
        (date(2024, 2, 29), '{"$date":"2024-02-29"}'),
        (datetime(2024, 2, 29, 1), '{"$datetime":"2024-02-29T01:00:00"}'),
        (datetime(2024, 2, 29, 1, tzinfo=UTC), '{"$datetime":"2024-02-29T01:00:00+00:00"}'),
        (timedelta(seconds=1), '{"$timedelta":[0,1,0]}'),
    ],
)
def test_the_text_of_each_type(value: Any, text: str) -> None:
    assert to_json(value) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nope", "Expecting value"),
        ("NaN", "is no JSON"),
        ('{"a":1,"a":2}', "a key twice"),
        ('{"$dict":[[1,2],[1,3]]}', "a key twice"),
        ('{"$tupel":[]}', "'\\$tupel' is no type"),
        ('{"$tuple":[],"x":1}', "other members"),
        ('{"$date":"tomorrow"}', "\\$date can't be 'tomorrow'"),
        ('{"$date":5}', "\\$date can't be 5"),
        ('{"$float":"one"}', "\\$float can't be"),
        ('{"$decimal":"one"}', "\\$decimal can't be"),
        ('{"$set":[[]]}', "\\$set can't be"),
        ('{"$msgpack":"????"}', "\\$msgpack can't be"),
        ('{"$msgpack":"wQ=="}', "\\$msgpack can't be"),
        ("1e400", "1e400 is too large for a float"),
        ('{"a":[-1e999]}', "-1e999 is too large for a float"),
        ('{"$decimal":0.1}', "\\$decimal can't be 0.1: it is a text"),
        ('{"$decimal":1}', "it is a text"),
        ('{"$tuple":"ab"}', "\\$tuple can't be 'ab': it is an array"),
        ('{"$tuple":{"a":1}}', "it is an array"),
        ('{"$set":"ab"}', "it is an array"),
        ('{"$frozenset":{"$set":[1]}}', "it is an array"),
        ('{"$set":[1,1]}', "a member comes twice"),
        ('{"$frozenset":[0,false]}', "a member comes twice"),
        ('{"$dict":["ab"]}', "it is an array of pairs"),
        ('{"$dict":[[1]]}', "it is an array of pairs"),
        ('{"$dict":[[1,2],[true,3]]}', "a key twice"),
        ('{"$timedelta":[0.5]}', "three integers"),
        ('{"$timedelta":[0,0,true]}', "three integers"),
        ('{"$datetime":"2024-02-29T01:00:00.1234567"}', "finer than microseconds"),
        ('{"$datetime":"2024-02-29T01:00:00,123456789+00:00"}', "finer than microseconds"),
        ('{"$time":"01:00:00.0000001"}', "finer than microseconds"),
    ],
)
def test_a_text_that_stands_for_no_value_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        from_json(text)
