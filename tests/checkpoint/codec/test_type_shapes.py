"""Types of fields as data: what each annotation becomes, how it reads in a message, and which values fit where.

Whether states fit in whole is in `tests/checkpoint/state/test_evolution.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NotRequired, TypedDict

import pytest

from checkpoint.codec.type_shapes import TypeShape, fits, hints_of, keys_differ, shape_of_type, text


@dataclass
class Box:
    width: int


class Order(TypedDict):
    id: int
    note: NotRequired[str]


ANNOTATIONS: Final[list[tuple[Any, TypeShape, str]]] = [
    (int, "int", "int"),
    (None, "NoneType", "None"),
    (Any, "any", "of any type"),
    (datetime, "datetime", "datetime"),
    (Box, f"{__name__}:Box", "Box"),
    (list, "list", "list"),
    (list[int], ["list", "int"], "list[int]"),
    (int | None, ["union", "int", "NoneType"], "int | None"),
    (
        dict[str, list[int | None]],
        ["dict", "str", ["list", ["union", "int", "NoneType"]]],
        "dict[str, list[int | None]]",
    ),
    (tuple[int, str], ["tuple", "int", "str"], "tuple[int, str]"),
    (tuple[int, ...], ["tuple…", "int"], "tuple[int, ...]"),
    (tuple[()], ["tuple"], "tuple[()]"),
    (Literal["a", 1], ["literal", "a", 1], "Literal['a', 1]"),
    (Order, ["keys", {"id": ["int", True], "note": ["str", False]}], "dict[id, note]"),
    ("what nobody can resolve", "any", "of any type"),
]


@pytest.mark.parametrize(("annotation", "shape", "read"), ANNOTATIONS, ids=[read for _, _, read in ANNOTATIONS])
def test_an_annotation_becomes_a_shape_that_reads_like_it(annotation: Any, shape: TypeShape, read: str) -> None:
    assert shape_of_type(annotation) == shape
    assert text(shape) == read
    assert fits(shape, shape)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (int, int | None),
        (int, float),
        (bool, int),
        (list[int], list[int | str]),
        (tuple[int, int], tuple[int, ...]),
        (Literal["a"], Literal["a", "b"]),
        (Literal["a"], str),
        (int | None, int | str | None),
    ],
    ids=str,
)
def test_values_fit_a_type_that_allows_more_and_not_the_other_way_round(old: Any, new: Any) -> None:
    assert fits(shape_of_type(old), shape_of_type(new))
    assert not fits(shape_of_type(new), shape_of_type(old))


@pytest.mark.parametrize(
    ("old", "new"),
    [(int, str), (list[int], list[str]), (list[int], set[int]), (tuple[int], tuple[int, int]), (None, int)],
    ids=str,
)
def test_values_of_another_type_do_not_fit(old: Any, new: Any) -> None:
    assert not fits(shape_of_type(old), shape_of_type(new))
    assert not fits(shape_of_type(new), shape_of_type(old))
    assert fits(shape_of_type(old), "any")
    assert fits("any", shape_of_type(new))


@pytest.mark.parametrize(
    ("old", "new", "problems"),
    [
        ({"id": ["int", True]}, {"id": ["int", True], "note": ["str", False]}, []),
        ({"id": ["int", True]}, {"id": ["int", False]}, []),
        ({"id": ["int", True]}, {"id": ["float", True]}, []),
        ({"id": ["int", True]}, {}, ["'id' was written and is no key now"]),
        ({"id": ["int", True]}, {"id": ["str", True]}, ["'id' was int and is str now"]),
        ({"id": ["int", False]}, {"id": ["int", True]}, ["'id' could be left out and is required now"]),
        ({}, {"id": ["int", True]}, ["'id' was not there and is required"]),
    ],
    ids=str,
)
def test_of_dicts_with_known_keys_every_key_that_does_not_fit_is_told(
    old: dict[str, Any], new: dict[str, Any], problems: list[str]
) -> None:
    assert keys_differ(old, new) == problems
    assert fits(["keys", old], ["keys", new]) == (not problems)


class Resolved:
    kept: int
    other: int


class Overridden(Resolved):
    other: "OnlyForTypeCheckers"  # type: ignore[name-defined] # noqa: F821, UP037


def test_an_annotation_that_only_type_checkers_know_is_left_out_with_that_of_the_base_class() -> None:
    assert hints_of(Overridden) == {"kept": int}
