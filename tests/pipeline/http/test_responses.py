"""Whatever a job says can be answered."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipeline.http.responses import as_json

TEXTS = st.text(st.characters())  # half surrogate pairs, too
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS | st.integers(0, 99), inner),
)


@given(JSON)
def test_all_text_can_be_answered(content: Any) -> None:
    json.loads(bytes(as_json(content).body).decode())


def test_what_is_no_utf_8_is_written_as_its_escape_and_numbers_that_json_lacks_as_null() -> None:
    content = {"failure": ["no file 'caf\udce9', é"], "rate": float("nan"), 7: (1, "\udcff")}
    assert json.loads(bytes(as_json(content).body)) == {
        "failure": ["no file 'caf\\udce9', é"],
        "rate": None,
        "7": [1, "\\udcff"],
    }
