"""What `filter_not` and `peek` do with a record."""

from __future__ import annotations

from typing import Any

import pytest
from chains import run, run_chain
from hypothesis import given
from hypothesis import strategies as st

from pipeline.lazy_results import YetToRun


@given(st.lists(st.integers()))
def test_filter_and_filter_not_share_out_all_records(values: list[int]) -> None:
    passed = run(lambda s: s.filter(lambda v: v % 3, id="x"), values, "x")
    others = run(lambda s: s.filter_not(lambda v: v % 3, id="x"), values, "x")
    assert (passed, others) == ([v for v in values if v % 3], [v for v in values if not v % 3])


def test_peek_sees_every_record_in_order_and_hands_it_on() -> None:
    seen: list[Any] = []
    assert run(lambda s: s.peek(seen.append, id="x"), [{"a": 1}, (1, 2), None, 0], "x") == [{"a": 1}, (1, 2), None, 0]
    assert seen == [{"a": 1}, (1, 2), None, 0]


def test_what_peek_does_to_a_record_changes_it_for_nobody() -> None:
    def spoil(value: Any) -> None:
        value["deep"].append("spoilt")
        value["more"] = 1

    def build(s: Any) -> None:
        s.peek(spoil, id="first").peek(spoil).map(lambda v: {**v, "n": 1}, id="mapped")

    emitted = run_chain(build, [{"deep": [1]}], "in", "first", "mapped")
    assert emitted["in"] == [{"deep": [1]}]
    assert emitted["first"] == [{"deep": [1]}]
    assert emitted["mapped"] == [{"deep": [1], "n": 1}]


def test_what_peek_keeps_does_not_change_later() -> None:
    kept: list[Any] = []

    def change(value: Any) -> Any:
        value["deep"].append("changed")
        return value

    assert run(lambda s: s.peek(kept.append).map(change, id="x"), [{"deep": []}], "x") == [{"deep": ["changed"]}]
    assert kept == [{"deep": []}]


async def answers_later(value: Any) -> bool:
    return bool(value)


@pytest.mark.parametrize(
    "build",
    [
        lambda s, f: s.filter(f, id="x"),
        lambda s, f: s.filter_not(f, id="x"),
        lambda s, f: s.peek(f, id="x"),
        lambda s, f: s.split(a=f).a.map(str, id="x"),
    ],
)
def test_what_has_yet_to_run_is_no_answer(build: Any) -> None:
    with pytest.raises(YetToRun, match=r"returned a generator, which has yet to run: use any\(…\)"):
        run(lambda s: build(s, lambda value: (one for one in [value])), [1], "x")
    with pytest.raises(YetToRun, match="returned a coroutine, and nothing would await it"):
        run(lambda s: build(s, lambda value: answers_later(value)), [1], "x")

    with pytest.raises(YetToRun, match=r"returned a map, which has yet to run: use any\(…\)"):
        run(lambda s: build(s, lambda value: map(str, [value])), [1], "x")


@pytest.mark.parametrize(
    "build",
    [
        lambda s, f: s.filter(f, id="x"),
        lambda s, f: s.filter_not(f, id="x"),
        lambda s, f: s.split(a=f).a.map(str, id="x"),
    ],
)
def test_a_function_that_was_not_called_is_no_answer(build: Any) -> None:
    for function, name in ((lambda value: value.isdigit, "isdigit"), (lambda value: len, "len")):
        with pytest.raises(YetToRun, match=rf"returned the function {name}, .* call it, {name}\(…\)"):
            run(lambda s, f=function: build(s, f), ["1"], "x")
    assert run(lambda s: s.peek(lambda value: value.isdigit, id="x"), ["1"], "x") == ["1"], "what it returns is dropped"


def test_any_value_is_an_answer() -> None:
    for truth in (1, "a", [0], object()):
        assert run(lambda s, answer=truth: s.filter(lambda v: answer, id="x"), [1], "x") == [1]
        assert run(lambda s, answer=truth: s.filter_not(lambda v: answer, id="x"), [1], "x") == []


def test_with_on_error_no_answer_costs_the_record() -> None:
    for method in ("filter", "filter_not"):
        assert run(lambda s, m=method: getattr(s, m)(lambda v: (v for _ in [v]), "x", on_error="skip"), [1], "x") == []
