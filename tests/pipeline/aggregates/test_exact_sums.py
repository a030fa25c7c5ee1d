"""Sums that no order and no merging changes."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.aggregates.base import Unfit
from pipeline.aggregates.exact_sums import added, merged, rounded

FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=64).filter(lambda x: abs(x) < 1e300)
INTS = st.integers(-(2**70), 2**70)


def total(values):
    acc = 0
    for value in values:
        acc = added(acc, value)
    return acc


def same(a, b):
    return type(a) is type(b) and (a == b or (a != a and b != b))


@given(st.lists(st.one_of(FLOATS, INTS)))
def test_a_sum_of_floats_and_ints_is_the_float_nearest_to_the_exact_sum(values):
    exact = sum(map(Fraction, values), Fraction(0))
    found = rounded(total(values))
    assert same(found, float(exact) if any(isinstance(one, float) for one in values) else int(exact))


@given(st.lists(INTS))
def test_ints_stay_ints(values):
    assert same(rounded(total(values)), sum(values))


@given(
    st.lists(st.one_of(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30), INTS))
)
def test_decimals_are_not_rounded(values):
    found = rounded(total(values))
    assert Fraction(found) == sum(map(Fraction, values), Fraction(0))
    assert type(found) is (Decimal if any(isinstance(one, Decimal) for one in values) else int)


@given(
    st.lists(st.one_of(st.floats(width=64).filter(lambda x: not abs(x) < math.inf or abs(x) < 1e300), INTS)),
    st.data(),
)
def test_no_order_and_no_merging_changes_a_sum(values, data):
    shuffled = data.draw(st.permutations(values))
    at = data.draw(st.integers(0, len(values)))
    parts = total(shuffled[:at]), total(shuffled[at:])
    expected = rounded(total(values))
    assert same(rounded(merged(*parts)), expected)
    assert same(rounded(merged(*reversed(parts))), expected)


def test_a_nan_makes_the_sum_nan_and_infinities_stay():
    assert math.isnan(rounded(total([1.0, math.nan, 2.0, math.inf])))
    assert rounded(total([1.0, math.inf, -5])) == math.inf
    assert math.isnan(rounded(total([math.inf, 2, -math.inf])))


def test_decimals_and_floats_do_not_mix():
    for values in ([Decimal(1), 1.5], [1.5, Decimal(1)], [1, 2.5, Decimal(1)]):
        with pytest.raises(Unfit, match="have no common sum"):
            total(values)
    with pytest.raises(Unfit, match="have no common sum"):
        merged(total([Decimal(1)]), total([0.5]))


def test_what_is_no_number_is_refused():
    for value in ("5", None, True, [1], 1j):
        with pytest.raises(Unfit, match=r"expected an int, float or Decimal|is no number"):
            added(0, value)


def test_a_sum_too_large_for_a_float_is_refused_when_it_is_read():
    with pytest.raises(Unfit, match="too large for a float"):
        rounded(total([1.7e308, 1.7e308]))
    assert rounded(total([1.7e308, 1.7e308, -1.7e308])) == 1.7e308
    with pytest.raises(Unfit, match="too large for a float"):
        rounded(total([10**400, 0.5]))


def test_decimals_that_would_need_too_many_digits_are_refused():
    with pytest.raises(Unfit, match="more than 1000 digits"):
        total([Decimal("1e2000"), Decimal("0.1")])
