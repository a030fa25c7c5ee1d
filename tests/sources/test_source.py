"""What a source's definition tells of what it has settled at a start, unless it says so itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest

from sources import Source, SourceContext, SourceReader

T = TypeVar("T")


class Uncomparable:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("can't be compared")

    __hash__ = None  # type: ignore[assignment]


class Plain(Source[int]):
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        raise NotImplementedError


class Other(Plain):
    pass


@dataclass(frozen=True, slots=True)
class Slotted(Source[int]):
    topic: str
    end: int | None = None

    def create_reader(self, ctx: SourceContext) -> SourceReader:
        raise NotImplementedError


class Typed(Source[T], Generic[T]):
    def create_reader(self, ctx: SourceContext) -> SourceReader:
        raise NotImplementedError


def test_a_source_that_settles_nothing_is_itself_and_says_so() -> None:
    source = Plain(topic="t")
    assert source.resolve() is source
    assert source.resolution(source) == {}
    assert source.start_settings() == {"topic": "t"}


def test_what_was_settled_is_what_has_changed_and_makes_the_same_again() -> None:
    source, resolved = Plain(topic="t", end=None), Plain(topic="t", end=5, begin=1)
    settled = source.resolution(resolved)
    assert settled == {"end": 5, "begin": 1}
    again = source.with_resolution(settled)
    assert again is not source
    assert vars(again) == vars(resolved)
    assert vars(source) == {"topic": "t", "end": None}


def test_a_value_of_another_type_has_changed_though_it_is_equal() -> None:
    assert Plain(n=1, flag=True).resolution(Plain(n=1.0, flag=True)) == {"n": 1.0}


def test_of_what_cannot_be_compared_only_the_same_object_is_the_same() -> None:
    one, other = Uncomparable(), Uncomparable()
    assert Plain(a=one).resolution(Plain(a=one)) == {}
    assert Plain(a=one).resolution(Plain(a=other))["a"] is other


def test_attributes_in_slots_of_a_frozen_class_are_settled_too() -> None:
    source = Slotted("t")
    assert source.resolution(Slotted("t", 7)) == {"end": 7}
    again = source.with_resolution({"end": 7})
    assert again == Slotted("t", 7)
    assert source == Slotted("t")
    assert source.start_settings() == {"topic": "t", "end": None}


def test_the_type_that_a_source_is_made_with_is_no_setting() -> None:
    assert Typed[int]().start_settings() == {}


def test_what_cannot_be_told_is_refused() -> None:
    with pytest.raises(TypeError, match=r"resolve\(\) has made a Other of a Plain"):
        Plain().resolution(Other())
    with pytest.raises(TypeError, match=r"resolve\(\) has removed the attribute 'a'"):
        Plain(b=1, a=1, c=1).resolution(Plain(c=1))


def test_a_source_that_says_nothing_else_is_gated_unbounded_and_may_share_its_records() -> None:
    source = Plain()
    assert (source.active_backpressure, source.span_window) == (True, True)
    assert (source.bounded, source.skips_ahead, source.fresh_records) == (False, False, False)
    assert (source.max_span_records, source.max_span_bytes) == (None, None)
