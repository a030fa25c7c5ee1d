"""What a snapshot notes of its values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoint.codec import encode
from checkpoint.state.contents import ContentNotes, Declared, type_names, types_of_encoded

PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text()
    | st.binary()
    | st.lists(st.booleans(), max_size=40)
    | st.dictionaries(st.text(), st.booleans(), max_size=40)
)


@given(st.lists(PLAIN))
def test_the_types_of_plain_values_are_told_by_their_encoding(values: list[Any]) -> None:
    found = types_of_encoded([*map(encode, values), None])
    assert found is not None
    assert type_names(found) == type_names(map(type, values))


@pytest.mark.parametrize("value", [(1,), {1, 2}, Decimal(1), 2**70, bytearray(b"x"), {frozenset(): 2}])
def test_what_is_an_extension_may_be_anything(value: Any) -> None:
    assert types_of_encoded([encode(1), encode(value)]) is None


@pytest.mark.parametrize(("content", "types"), [(object, frozenset({"dict", "int"})), (list, None), (dict, None)])
def test_of_encoded_values_the_types_are_noted_where_these_are_no_members(content: type, types: Any) -> None:
    notes = ContentNotes({"state": Declared(content, None)})
    notes.note("state", [encode({}), None], None)
    notes.note("state", [encode(5), encode(None)], None)
    notes.note("other", [encode(5)], None)
    assert notes.contents()["state"].types == types
    assert notes.contents()["other"].types is None
    notes.note("state", [encode((1,))], None)
    notes.note("state", [encode(1)], None)
    assert notes.contents()["state"].types is None
