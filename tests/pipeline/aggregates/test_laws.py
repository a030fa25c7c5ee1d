"""What holds for every aggregate."""

import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoint.codec import decode, encode
from pipeline import (
    ApproxCountDistinct,
    Collect,
    Count,
    CountDistinct,
    First,
    Fold,
    Last,
    Max,
    Mean,
    Min,
    Quantiles,
    StandardDeviation,
    Sum,
    Top,
    Variance,
)
from pipeline.aggregates import Aggregation, Unfit

INTS = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-9, 9)
FLOATS = st.floats(width=64).filter(lambda x: math.isnan(x) or math.isinf(x) or abs(x) < 1e150)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
DECIMALS = st.decimals(-(10**9), 10**9, places=3, allow_nan=False)
VALUES = {
    "ints": (INTS, pa.int64()),
    "small": (SMALL, pa.int8()),
    "unsigned": (st.integers(0, 2**64 - 1), pa.uint64()),
    "floats": (FLOATS, pa.float64()),
    "halves": (SMALL.map(lambda n: n / 2), pa.float32()),
    "float16": (SMALL.map(lambda n: n / 2), pa.float16()),
    "texts": (TEXTS, pa.string()),
    "decimals": (DECIMALS, pa.decimal128(20, 3)),
    "times": (st.datetimes(), pa.timestamp("us")),
    "dicts": (st.fixed_dictionaries({"a": SMALL}), pa.struct([("a", pa.int64())])),
}
NUMBERS = ["ints", "small", "unsigned", "floats", "halves", "decimals"]
ORDERED = [*NUMBERS, "texts", "times"]

ANY = {
    "count": Count(),
    "first": First("x"),
    "last": Last("x"),
    "all": Collect("x"),
}
KEYS = {**ANY, "distinct": CountDistinct("x"), "about": ApproxCountDistinct("x", precision=7)}
HAVE_ORDER = {
    **KEYS,
    "min": Min("x"),
    "max": Max("x"),
}
RANKED = {
    "low": First("t", by="x"),
    "high": Last("t", by="x"),
    "top": Top(3, "t", by="x"),
    "least": Top(2, by="x", smallest=True),
}
ARE_NUMBERS = {
    **HAVE_ORDER,
    "sum": Sum("x"),
    "mean": Mean("x"),
    "variance": Variance("x"),
    "of all": Variance("x", sample=False),
    "deviation": StandardDeviation("x"),
    "positive": Sum("x", where=lambda record: record["x"] > 0),
    "how many": Count(where=lambda record: record["x"] > 0),
}
QUANTILES = {"quantiles": Quantiles("x", [0, 0.5, 1]), "median": Quantiles("x", 0.5)}
TABLE = {
    "ints": {**ARE_NUMBERS, **RANKED, **QUANTILES},
    "small": {**ARE_NUMBERS, **RANKED, **QUANTILES, "fold": Fold(-9, max, max, of="x")},
    "unsigned": {**ARE_NUMBERS, **RANKED},
    "floats": ARE_NUMBERS,
    "halves": {**ARE_NUMBERS, **RANKED, **QUANTILES},
    "float16": {**HAVE_ORDER, "sum": Sum("x")},
    "decimals": {**ARE_NUMBERS, **RANKED, **QUANTILES},
    "texts": {**HAVE_ORDER, **RANKED},
    "times": {**HAVE_ORDER, **RANKED},
    "dicts": ANY,
}
EVERY = pytest.mark.parametrize("values", TABLE)


@st.composite
def records(draw, values, most=20, distinct_times=False):
    times = st.integers(-5, 5) if not distinct_times else st.integers(-(10**6), 10**6)
    found = draw(
        st.lists(
            st.tuples(VALUES[values][0], times),
            max_size=most,
            unique_by=(lambda one: one[1]) if distinct_times else None,
        )
    )
    return [({"x": value, "t": time}, time) for value, time in found]


def aggregated(aggregation, pairs):
    accumulators = aggregation.create()
    for record, timestamp in pairs:
        before = encode(accumulators)
        after = aggregation.add(accumulators, record, timestamp)
        assert encode(accumulators) == before, "an accumulator was changed"
        accumulators = after
    return accumulators


def comparable(result):
    """NaN is equal to itself, an int is no float, and the zeros are one."""
    if isinstance(result, list):
        return [comparable(one) for one in result]
    if isinstance(result, dict):
        return {name: comparable(one) for name, one in result.items()}
    return type(result), "nan" if result != result else result


def results(aggregation, accumulators):
    return comparable(aggregation.result(accumulators))


@EVERY
@given(data=st.data())
@settings(max_examples=30)
def test_splitting_anywhere_and_merging_changes_nothing(values, data):
    pairs = data.draw(records(values))
    aggregation = Aggregation(TABLE[values])
    i, j = sorted(data.draw(st.tuples(*[st.integers(0, len(pairs))] * 2)))
    a, b, c = (aggregated(aggregation, part) for part in (pairs[:i], pairs[i:j], pairs[j:]))
    expected = results(aggregation, aggregated(aggregation, pairs))
    merge = aggregation.merge
    before = encode([a, b, c])
    assert results(aggregation, merge(merge(a, b), c)) == expected
    assert results(aggregation, merge(a, merge(b, c))) == expected
    assert encode([a, b, c]) == before, "an accumulator was changed"
    # What was merged can be added to.
    onwards = merge(a, b)
    for record, timestamp in pairs[j:]:
        onwards = aggregation.add(onwards, record, timestamp)
    assert results(aggregation, onwards) == expected


@EVERY
@given(data=st.data())
@settings(max_examples=25)
def test_no_order_changes_what_does_not_go_by_arrival(values, data):
    pairs = data.draw(records(values, distinct_times=True))
    shuffled = data.draw(st.permutations(pairs))
    at = data.draw(st.integers(0, len(pairs)))
    aggregation = Aggregation({name: one for name, one in TABLE[values].items() if not isinstance(one, Collect)})
    parts = [aggregated(aggregation, part) for part in (shuffled[:at], shuffled[at:])]
    expected = results(aggregation, aggregated(aggregation, pairs))
    assert results(aggregation, aggregation.merge(*parts)) == expected
    assert results(aggregation, aggregation.merge(*reversed(parts))) == expected


@EVERY
@given(data=st.data())
@settings(max_examples=25)
def test_a_checkpoint_in_between_changes_nothing(values, data):
    pairs = data.draw(records(values))
    at = data.draw(st.integers(0, len(pairs)))
    aggregation = Aggregation(TABLE[values])
    accumulators = decode(encode(aggregated(aggregation, pairs[:at])))
    for record, timestamp in pairs[at:]:
        accumulators = aggregation.add(accumulators, record, timestamp)
    restored = decode(encode(accumulators))
    assert results(aggregation, restored) == results(aggregation, aggregated(aggregation, pairs))


@EVERY
@given(data=st.data())
@settings(max_examples=25)
def test_columns_agree_with_rows(values, data):
    pairs = data.draw(records(values))
    timed = data.draw(st.booleans())
    if not timed:
        pairs = [(record, None) for record, _ in pairs]
    at = data.draw(st.integers(0, len(pairs)))
    kind = VALUES[values][1]
    aggregation = Aggregation(TABLE[values])
    accumulators = aggregation.create()
    for part in (pairs[:at], pairs[at:]):
        batch = pa.record_batch(
            [pa.array([record["x"] for record, _ in part], kind), pa.array([r["t"] for r, _ in part], pa.int64())],
            names=["x", "t"],
        )
        accumulators = aggregation.add_batch(accumulators, batch, pa.array([t for _, t in part], pa.int64()))
    assert results(aggregation, accumulators) == results(aggregation, aggregated(aggregation, pairs))


@pytest.mark.parametrize(
    "aggregate",
    [Sum("x"), Mean("x"), Variance("x"), Quantiles("x", 0.5)],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("value", ["5", True, [1], {"a": 1}])
def test_what_is_no_number_is_refused_by_those_that_take_numbers(aggregate, value):
    aggregation = Aggregation({"r": aggregate})
    with pytest.raises(Unfit, match=r"^r=\w+\('x'\): "):
        aggregation.add(aggregation.create(), {"x": value}, 1)


def test_columns_say_which_row_lacks_a_field_and_skip_where_they_are_to():
    batch = pa.record_batch([pa.array([1, None, 3]), pa.array(["a", "b", "c"])], names=["x", "name"])
    times = pa.array([1, 2, 3], pa.int64())
    for kind in (Sum, Mean, Min, Max, First, Last, Collect, CountDistinct):
        failing = Aggregation({"r": kind("x")})
        with pytest.raises(LookupError, match=r"^r=\w+\('x'\): .*'x' is None in the record .*'b'"):
            failing.add_batch(failing.create(), batch, times)
        skipping = Aggregation({"r": kind("x", missing="skip")})
        rows = [({"x": 1}, 1), ({"x": 3}, 3)]
        found = skipping.add_batch(skipping.create(), batch, times)
        assert skipping.result(found) == skipping.result(aggregated(skipping, rows))


def test_nothing_is_what_was_said_of_it():
    aggregation = Aggregation(
        {
            "count": Count(),
            "sum": Sum("x"),
            "mean": Mean("x"),
            "variance": Variance("x"),
            "min": Min("x"),
            "first": First("x"),
            "collect": Collect("x"),
            "distinct": CountDistinct("x"),
            "about": ApproxCountDistinct("x"),
            "top": Top(2, by="x"),
            "quantiles": Quantiles("x", [0.5]),
        }
    )
    assert aggregation.result(aggregation.create()) == {
        "count": 0,
        "sum": 0,
        "mean": None,
        "variance": None,
        "min": None,
        "first": None,
        "collect": [],
        "distinct": 0,
        "about": 0,
        "top": [],
        "quantiles": [None],
    }


def test_decimals_stay_decimals():
    aggregation = Aggregation({"mean": Mean("x"), "variance": Variance("x"), "low": Min("x")})
    rows = [({"x": Decimal("1.10")}, 1), ({"x": Decimal("2.20")}, 2), ({"x": 3}, 3)]
    assert aggregation.result(aggregated(aggregation, rows)) == {
        "mean": Decimal("2.1"),
        "variance": Decimal("0.91"),
        "low": Decimal("1.10"),
    }
