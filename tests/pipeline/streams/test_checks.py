"""Functions that can't be called with what a step calls them with are refused where the step is added."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial, wraps
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pytest

from pipeline import Count, Fold, Pipeline, PipelineError, Sum, Top, WatermarkStrategy
from pipeline.streams import KeyedStream
from pipeline.streams.checks import CALLED_HERE
from pipeline.testing import TestingSource

SCHEMA = pa.schema([("a", pa.int64())])


def keyed() -> KeyedStream:
    return Pipeline("p").source("in", TestingSource()).key_by("user")


async def nothing() -> None:
    pass


async def nothing_of(value: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda s: s.map(lambda: 1), r"map: .*<lambda> can't be called with \(record\)"),
        (lambda s: s.map(partial(lambda a, b: 1)), r"map: partial can't be called with \(record\)"),
        (lambda s: s.filter(lambda a, b: True), r"filter: .* can't be called with \(record\)"),
        (lambda s: s.filter_not(lambda: True), "filter_not: "),
        (lambda s: s.flat_map(lambda a, b: a), "flat_map: "),
        (lambda s: s.peek(lambda: None), "peek: "),
        (lambda s: s.split(large=lambda: True), "split, branch 'large': "),
        (lambda s: s.map_batches(lambda: None), r"map_batches: .* \(batch\)"),
        (lambda s: s.map_batches(lambda: None, schema=SCHEMA), r"map_batches: .* \(batch\)"),
        (lambda s: s.key_by(lambda: 1), "key_by: "),
        (lambda s: s.partition_custom(lambda record: 0), r"partition_custom: .* \(record, n\)"),
        (lambda s: s.assign_timestamps(WatermarkStrategy.bounded(lambda: 0, lateness=0)), "assign_timestamps: "),
        (lambda s: s.map_async(nothing), r"map_async: nothing can't be called with \(record\)"),
        (lambda s: s.map_async(nothing, batch_size=2), r"map_async: nothing can't be called with \(records\)"),
        (lambda s: s.join_lookup(nothing), r"join_lookup: nothing can't be called with \(key\)"),
        (lambda s: s.join_lookup(nothing_of, key=lambda: 1), r"join_lookup: .* \(record\)"),
        (lambda s: s.join_lookup(nothing_of, select=lambda left: 1), r"join_lookup: .* \(record, found\)"),
        (lambda s: s.latest_by_key(order=lambda: 1), "latest_by_key: order can't be"),
        (lambda s: s.latest_by_key(deleted=lambda: True), "latest_by_key: deleted can't be"),
        (lambda s: s.top_n(3, by=lambda a, b: 1), "Top: by: .* can't be"),
        (lambda s: Sum(lambda: 1), r"Sum: of: <lambda> can't be called with \(record\)"),
        (lambda s: Count(where=lambda: True), "Count: where must be a function of the record"),
        (lambda s: Top(3, by=lambda: 1), "Top: by: "),
        (lambda s: Fold(0, add=lambda acc: 0, merge=max), r"Fold: add can't be called with \(acc, value\)"),
        (lambda s: Fold(0, add=max, merge=lambda a: 0), "Fold: merge can't"),
        (lambda s: Fold(0, add=max, merge=max, result=lambda: 0), "Fold: result can't"),
    ],
)
def test_one_that_takes_something_else_is_refused(use: Callable[[KeyedStream], Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        use(keyed())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("deduplicate", r"a KeyedStream has no 'deduplicate'; that is key_by\(…\).distinct\(within=…\) here"),
        ("count", r"; that is key_by\(…\).aggregate\(n=Count\(\)\) here"),
        ("rate_limit", "limit_rate"),
        ("fliter", "a KeyedStream has no 'fliter'; did you mean 'filter'"),
        ("late", r"^late\(\) follows directly"),
    ],
)
def test_a_name_that_others_have_is_told_by_what_it_is_called_here(name: str, message: str) -> None:
    with pytest.raises(AttributeError, match=message):
        getattr(keyed(), name)


def test_no_name_of_a_stream_is_told_to_be_called_otherwise() -> None:
    assert not [name for name in CALLED_HERE if hasattr(KeyedStream, name)]


def with_client(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def called(*arguments: Any) -> Any:
        return function("client", *arguments)

    return called


@with_client
def asked(client: str, record: Any) -> Any:
    return client, record


@pytest.mark.parametrize("function", [dict, str, print, itemgetter("a"), lru_cache(len), asked, [].append, max])
def test_one_that_can_be_called_so_or_of_which_nothing_can_be_seen_is_taken(function: Callable[..., Any]) -> None:
    assert keyed().map(function)._step.payload is function


def test_one_that_a_decorator_gives_an_argument_reduces() -> None:
    @with_client
    def reduced(client: str, a: Any, b: Any) -> Any:
        return a + b

    keyed().reduce(reduced)
