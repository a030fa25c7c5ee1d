"""What each kind of aggregate says of edges."""

import math
import sys
from decimal import Decimal

import pytest

from checkpoint.codec import EncodingError
from pipeline import (
    Aggregate,
    ApproxCountDistinct,
    Collect,
    CountDistinct,
    First,
    Fold,
    Last,
    Max,
    Mean,
    Min,
    PipelineError,
    Quantiles,
    Top,
    Variance,
)
from pipeline.aggregates import Aggregation, Unfit


def result(aggregate, values, times=None):
    """Of the values as fields `x`."""
    aggregation = Aggregation({"r": aggregate})
    accumulators = aggregation.create()
    for i, value in enumerate(values):
        accumulators = aggregation.add(accumulators, {"x": value, "i": i}, None if times is None else times[i])
    return aggregation.result(accumulators)["r"]


def test_a_late_record_is_first_and_never_last():
    assert result(First("x"), ["b", "a"], [5, 3]) == "a"
    assert result(Last("x"), ["b", "a"], [5, 3]) == "b"


def test_of_equal_times_the_order_of_arrival_counts():
    assert result(First("x"), ["a", "b"], [5, 5]) == "a"
    assert result(Last("x"), ["a", "b"], [5, 5]) == "b"


def test_without_timestamps_the_order_of_arrival_counts():
    assert (result(First("x"), ["a", "b"]), result(Last("x"), ["a", "b"])) == ("a", "b")


@pytest.mark.parametrize("times", [[5, None], [None, 5]])
def test_some_timestamps_are_no_order(times):
    with pytest.raises(Unfit, match="some of its records have a timestamp and some have none"):
        result(Last("x"), ["a", "b"], times)


def test_what_is_equal_in_by_goes_by_timestamp():
    assert result(First("i", by="x"), [2, 1, 1], [1, 9, 8]) == 2
    assert result(Last("i", by="x"), [1, 2, 2], [1, 8, 9]) == 2
    assert result(Top(2, "i", by="x"), [1, 2, 2, 2], [1, 9, 8, 9]) == [2, 1]
    assert result(Top(2, "i", by="x", smallest=True), [2, 1, 1, 1], [1, 9, 8, 9]) == [2, 1]


def test_by_names_the_field_that_is_missing():
    with pytest.raises(LookupError, match=r"^r=First\('i'\) by 'price': the record has no 'price'"):
        result(First("i", by="price"), [1])
    assert result(First("i", by="price", missing="skip"), [1]) is None


@pytest.mark.parametrize("aggregate", [First("i", by="x"), Top(2, by="x")])
def test_nan_has_no_rank(aggregate):
    with pytest.raises(Unfit, match="nan has no place in an order"):
        result(aggregate, [1.0, math.nan], [1, 2])


@pytest.mark.parametrize("kind", [Min, Max])
def test_nan_makes_an_extreme_nan_wherever_it_comes(kind):
    for values in ([math.nan, 1.0, 2.0], [1.0, math.nan, 2.0], [2.0, 1, math.nan]):
        assert math.isnan(result(kind("x"), values))
    assert result(kind("x"), [Decimal(1), Decimal("NaN")]).is_nan()


def test_extremes_keep_the_type_of_the_value():
    assert repr(result(Min("x"), [2, 1.0, 1])) == "1.0"
    assert repr(result(Max("x"), [2**70, 1.5])) == str(2**70)


@pytest.mark.parametrize("values", [[1, "a"], [{1}], [{1}, {1, 2}], [{"a": 1}, {"a": 2}], [1j, 2j]])
def test_what_has_no_order_is_refused(values):
    with pytest.raises(Unfit, match="there is no order between"):
        result(Min("x"), values)


def test_means_are_exact_where_floats_cancel_out():
    assert result(Mean("x"), [1e16, 1.0, -1e16]) == 1 / 3
    assert result(Mean("x"), [2**53, 1]) == (2**53 + 1) / 2
    assert math.isnan(result(Mean("x"), [math.inf, -math.inf]))


def test_variance_does_not_cancel_out():
    assert result(Variance("x"), [1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16]) == 30
    assert result(Variance("x", sample=False), [1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16]) == 22.5
    assert result(Variance("x"), [0.1] * 7) == 0
    assert result(Variance("x"), [5]) is None
    assert result(Variance("x", sample=False), [5]) == 0
    assert math.isnan(result(Variance("x"), [1.0, math.inf]))


def test_values_are_different_as_keys_are():
    assert result(CountDistinct("x"), [1, 1.0, True, "1", b"1"]) == 5
    assert result(CountDistinct("x"), [math.nan, float("nan"), 0.0, -0.0]) == 2
    assert result(ApproxCountDistinct("x"), [1, 1.0, True, "1", b"1", 1]) == 5
    for aggregate in (CountDistinct("x"), ApproxCountDistinct("x")):
        with pytest.raises(Unfit, match="only of types that keys may have"):
            result(aggregate, [[1]])


def test_many_different_values_are_estimated_within_what_is_said():
    found = result(ApproxCountDistinct("x"), range(50_000))
    assert abs(found - 50_000) < 3 * 0.0163 * 50_000


def test_quantiles_are_within_the_accuracy_of_a_value():
    values = [((i * 7919) % 10_007 - 3000) / 7 for i in range(10_007)]
    for at, found in zip([0, 0.1, 0.5, 0.99, 1], result(Quantiles("x", [0, 0.1, 0.5, 0.99, 1]), values), strict=True):
        exact = sorted(values)[int(at * (len(values) - 1))]
        assert abs(found - exact) <= 0.0101 * abs(exact), at
    assert result(Quantiles("x", 0.5), [0, 0.0, 5]) == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, 10**400, Decimal("sNaN")])
def test_what_has_no_place_among_quantiles_is_refused(value):
    with pytest.raises(Unfit, match="has no place among quantiles"):
        result(Quantiles("x", 0.5), [value])


def test_collected_values_are_those_that_state_can_hold():
    assert result(Collect("x"), [3, {"a": 1}, 1]) == [3, {"a": 1}, 1]
    with pytest.raises(EncodingError):
        result(Collect("x"), [object()])


def test_a_long_list_is_collected_without_copying_it_for_each_value():
    aggregation = Aggregation({"r": Collect()})
    accumulators = aggregation.create()
    for i in range(1000):
        accumulators = aggregation.add(accumulators, i, None)
    (runs,) = accumulators
    assert len(runs) <= 10
    assert aggregation.result(accumulators) == {"r": list(range(1000))}


@pytest.mark.parametrize(
    ("name", "make"),
    [("datasketches", lambda: ApproxCountDistinct("x")), ("ddsketch", lambda: Quantiles("x", 0.5))],
)
def test_a_library_that_is_missing_is_named_with_what_installs_it(name, make, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, f"{name}.mapping", None)
    with pytest.raises(PipelineError, match=rf"needs {name}, which can't be imported .*weir-streams\[sketches\]"):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Top(0, by="x"),
        lambda: Top(2, by=None),
        lambda: Top(2, by="x", smallest=1),
        lambda: Quantiles("x", []),
        lambda: Quantiles("x", 50),
        lambda: Quantiles("x", [0.5, True]),
        lambda: Quantiles("x", 0.5, accuracy=0),
        lambda: ApproxCountDistinct("x", precision=30),
        lambda: Variance("x", sample="yes"),
        lambda: Fold(0, add=None, merge=max),
        lambda: Fold(0, add=lambda acc, x: acc, merge=max, result=5),
        lambda: Fold(object(), add=lambda acc, x: acc, merge=max),
        lambda: Fold([], add=lambda acc, x: acc, merge=max),
        lambda: First("x", by=2.5),
    ],
)
def test_arguments_that_can_not_work_are_refused(make):
    with pytest.raises(PipelineError):
        make()


def test_misspelt_options_are_named():
    with pytest.raises(TypeError, match=r"Min has no option 'mising'; did you mean 'missing'"):
        Min("x", mising="skip")


class Forgetful(Aggregate):
    def create(self):
        return 0

    def add(self, acc, value):
        acc + value

    def merge(self, a, b):
        return a + b

    def result(self, acc):
        return acc


def test_an_add_that_returns_nothing_is_told():
    with pytest.raises(Unfit, match="add returned no accumulator"):
        result(Forgetful("x"), [1])


class Unkept(Forgetful):
    def add(self, acc, value):
        return object()


def test_an_accumulator_of_ones_own_that_no_checkpoint_can_hold_is_told_with_the_result():
    with pytest.raises(EncodingError, match=r"^r=Unkept\('x'\): the accumulator can't be kept in a checkpoint"):
        result(Unkept("x"), [1])


def test_an_aggregate_that_implements_nothing_says_what_it_must():
    for call in (Aggregate().create, lambda: Aggregate().add(0, 1), lambda: Aggregate().merge(0, 1)):
        with pytest.raises(NotImplementedError, match="Aggregate must implement"):
            call()


class Appends(Aggregate):
    """As an aggregate of another framework may do, whose accumulators are its own."""

    def create(self):
        return []

    def add(self, acc, value):
        acc.append(value)
        return acc

    def merge(self, a, b):
        a.extend(b)
        return a

    def result(self, acc):
        return acc


class Extends(Appends):
    def add(self, acc, value):
        return [*acc, value]


class ExtendsTheSecond(Extends):
    def merge(self, a, b):
        b[:0] = a
        return b


def test_an_accumulator_that_is_changed_in_place_is_told_since_others_may_share_it():
    with pytest.raises(Unfit, match=r"^r=Appends\('x'\): add has changed an accumulator .* \[\*acc, value\]"):
        result(Appends("x"), [1])
    assert result(Extends("x"), [1, float("nan")])[0] == 1
    for one in (Extends("x"), ExtendsTheSecond("x")):
        with pytest.raises(Unfit, match="merge has changed an accumulator"):
            one.merger("r")([1], [2])


def test_what_cannot_be_changed_may_be_returned_again():
    class Longest(Aggregate):
        def create(self):
            return ("", 0)

        def add(self, acc, value):
            return acc if len(value) < acc[1] else (value, len(value))

        def merge(self, a, b):
            return max(a, b, key=lambda acc: acc[1])

        def result(self, acc):
            return acc[0]

    assert result(Longest("x"), ["a", "abc", "ab"]) == "abc"
