"""How costs grow: exponents that are known are found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.bench.fit import Fit, fit
from pipeline.bench.growth_axes import AXES, Axis, Shape

_SIZES = (1, 2, 4, 8, 64)


@given(st.floats(-3, 3), st.floats(1e-6, 1e6))
def test_a_power_is_found_whatever_its_factor(exponent: float, factor: float) -> None:
    found = fit(_SIZES, [factor * size**exponent for size in _SIZES])
    assert found is not None
    assert found.exponent == pytest.approx(exponent, abs=1e-6)
    assert found.tail == pytest.approx(exponent, abs=1e-6)


def test_growth_above_a_constant_part_shows_at_the_end() -> None:
    found = fit(_SIZES, [100 + size**2 for size in _SIZES])
    assert found is not None
    assert found.exponent < 1.15 < found.tail < 2
    assert found.superlinear
    assert str(Fit(0.04, -0.04)) == "n^0.0, at the end n^0.0"


def test_noise_around_proportional_is_not_called_superlinear() -> None:
    found = fit((1, 10), (1.0, 12.0))
    assert found is not None
    assert not found.superlinear


def test_points_without_a_cost_are_left_out() -> None:
    assert fit((1, 2, 4), (None, 2.0, 4.0)) == fit((2, 4), (2.0, 4.0))
    assert fit((1, 2), (None, 2.0)) is None
    assert fit((2, 2), (1.0, 2.0)) is None
    assert fit((1, 2), (0.0, 2.0)) is None


@pytest.mark.parametrize("axis", AXES)
def test_an_axis_changes_what_it_is_named_after(axis: Axis) -> None:
    for size in AXES[axis].points:
        shape = AXES[axis].shape(Shape(), size)
        assert getattr(shape, axis.replace("-", "_")) == size
        assert shape.partitions >= shape.parallelism or axis == "partitions"
        assert shape.records * shape.record_bytes <= 2_200_000_000
        assert shape.records >= 1000
