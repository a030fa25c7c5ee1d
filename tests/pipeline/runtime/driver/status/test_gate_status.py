"""What a status says of source gates."""

from __future__ import annotations

from typing import Any

from pipeline.runtime.driver.status.gate_status import gates_of, sentence


def source(reason: str | None = None, window: int | None = None, change: str | None = None) -> dict[str, Any]:
    return {"sourceGateReason": reason, "gateWindowRecords": window, "gateWindowChange": change}


def test_open_gates_with_windows() -> None:
    subtasks = {"a → b[0]": source(window=8000, change="grew"), "a → b[1]": source(window=500, change="shrank …")}
    (row,) = gates_of({**subtasks, "sink[0]": {}})
    assert (row["vertex"], row["subtasks"], row["closed"]) == ("a → b", 2, 0)
    assert sentence(row) == "open, window of 500–8,000 records; the smallest shrank …"


def test_closed_gates_say_why_each_reason_once() -> None:
    (row,) = gates_of({f"a[{i}]": source("span used up" if i else None) for i in range(3)})
    assert row["reasons"] == ["span used up"]
    assert sentence(row) == "2 of 3 closed (span used up)"
    (row,) = gates_of({"a[0]": source("window used up", 1000, "began with 1,000 records")})
    assert sentence(row) == "closed (window used up), window of 1,000 records; it began with 1,000 records"


def test_a_window_of_one_record() -> None:
    (row,) = gates_of({"a[0]": source(window=1, change="shrank from 2 to 1 record …")})
    assert sentence(row) == "open, window of 1 record; it shrank from 2 to 1 record …"
