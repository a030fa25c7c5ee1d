"""Several aggregates as one."""

import pytest

from pipeline import Aggregate, ApproxCountDistinct, Count, PipelineError, Quantiles, Sum, Top, Variance
from pipeline.aggregates import Aggregation, Unfit, checked_aggregates
from pipeline.aggregates.selectors import FieldMissing
from pipeline.lazy_results import YetToRun


def results(aggregation, records):
    accumulators = aggregation.create()
    for record in records:
        accumulators = aggregation.add(accumulators, record, None)
    return aggregation.result(accumulators)


def test_results_come_in_the_order_in_which_they_are_given():
    aggregation = Aggregation({"total": Sum("amount"), "n": Count()})
    assert list(results(aggregation, [{"amount": 2}, {"amount": 3}]).items()) == [("total", 5), ("n", 2)]


def test_accumulators_do_not_depend_on_that_order():
    one, other = (
        Aggregation({"total": Sum("amount"), "n": Count()}),
        Aggregation({"n": Count(), "total": Sum("amount")}),
    )
    accumulators = one.add(one.create(), {"amount": 7}, None)
    assert other.result(accumulators) == {"n": 1, "total": 7}
    assert one.layout == other.layout


def test_other_aggregates_refuse_accumulators_that_are_not_theirs():
    before = Aggregation({"n": Count()})
    with pytest.raises(PipelineError, match=r"has the aggregates n=Count, and the step has n=Count, total=Sum now"):
        Aggregation({"n": Count(), "total": Sum("amount")}).check_layout("step", before.layout)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (Top(3, by="amount"), Top(5, by="amount")),
        (Top(3, by="amount"), Top(3, by="amount", smallest=True)),
        (Quantiles("amount", 0.5), Quantiles("amount", 0.5, accuracy=0.02)),
        (ApproxCountDistinct("amount"), ApproxCountDistinct("amount", precision=8)),
    ],
)
def test_options_that_accumulators_depend_on_do_not_change(before, now):
    """The fourth of a top five is gone, and the same bucket stands for another value."""
    stored = Aggregation({"n": before}).layout
    Aggregation({"n": before}).check_layout("step", stored)
    with pytest.raises(PipelineError, match="another id"):
        Aggregation({"n": now}).check_layout("step", stored)


def test_what_does_not_touch_accumulators_may_change():
    stored = Aggregation({"n": Quantiles("amount", 0.5), "m": Variance("amount")}).layout
    Aggregation({"n": Quantiles("size", [0.9]), "m": Variance("size", sample=False)}).check_layout("step", stored)


@pytest.mark.parametrize(
    ("of", "records"),
    [
        ("amount", [{"amount": 1}, {"amount": 2}]),
        (1, [["a", 1], ["b", 2]]),
        (lambda record: record * 1, [1, 2]),
    ],
)
def test_what_is_added_is_a_field_an_index_or_what_a_function_returns(of, records):
    assert results(Aggregation({"total": Sum(of)}), records) == {"total": 3}


@pytest.mark.parametrize("record", [{}, {"amount": None}])
def test_a_field_that_is_missing_or_none_is_told_by_name_or_skipped(record):
    with pytest.raises(FieldMissing, match=r"^total=Sum\('amount'\): .*'amount'"):
        results(Aggregation({"total": Sum("amount")}), [record])
    skipping = Aggregation({"total": Sum("amount", missing="skip")})
    assert results(skipping, [{"amount": 1}, record]) == {"total": 1}


def test_a_record_without_fields_is_not_skipped_as_if_it_lacked_one():
    with pytest.raises(FieldMissing):
        results(Aggregation({"total": Sum("amount", missing="skip")}), [7])


def test_what_a_function_returns_none_for_is_missing():
    with pytest.raises(FieldMissing, match=r"returned None for the record \{'a': 1\}"):
        results(Aggregation({"total": Sum(lambda record: None)}), [{"a": 1}])
    assert results(Aggregation({"total": Sum(lambda record: None, missing="skip")}), [{"a": 1}]) == {"total": 0}


def test_a_value_that_does_not_fit_is_told_with_the_result_that_it_is_for():
    with pytest.raises(Unfit, match=r"^total=Sum\('amount'\): expected an int, float or Decimal, not str: '5'"):
        results(Aggregation({"n": Count(), "total": Sum("amount")}), [{"amount": "5"}])


def test_what_has_yet_to_run_leaves_no_record_in():
    aggregation = Aggregation({"open": Count(where=lambda order: (paid for paid in [order["paid"]]))})
    with pytest.raises(YetToRun, match=r"open=.*: where returned a generator, which has yet to run"):
        aggregation.add(aggregation.create(), {"paid": False}, None)
    aggregation = Aggregation({"open": Count(where=lambda order: order["paid"].isdigit)})
    with pytest.raises(YetToRun, match=r"open=.*: where returned the function isdigit, .* call it, isdigit\(…\)"):
        aggregation.add(aggregation.create(), {"paid": "no"}, None)


def test_where_leaves_records_out_before_their_fields_are_looked_at():
    aggregation = Aggregation(
        {"paid": Sum("amount", where=lambda order: order["paid"]), "open": Count(where=lambda order: not order["paid"])}
    )
    assert results(aggregation, [{"paid": True, "amount": 2}, {"paid": False}]) == {"paid": 2, "open": 1}


def test_merged_is_as_if_all_were_added_to_one():
    aggregation = Aggregation({"total": Sum("amount"), "n": Count()})
    a = aggregation.add(aggregation.create(), {"amount": 1}, None)
    b = aggregation.add(aggregation.add(aggregation.create(), {"amount": 2}, None), {"amount": 4}, None)
    assert aggregation.result(aggregation.merge(a, b)) == {"total": 7, "n": 3}


@pytest.mark.parametrize(
    ("aggregates", "why"),
    [
        ({}, "needs an aggregate at least"),
        ({"key": Count()}, "can't be called 'key'"),
        ({"final": Count()}, "can't be called 'final'"),
        ({"n": Count}, r"n is a class; give an instance, Count\(…\)"),
        ({"n": 5}, "n=5 is no aggregate"),
        ({"parallelsm": 5}, "did you mean 'parallelism'"),
        ({"allowed": 5}, r"allowed=5 is no aggregate .*\. Its options: id \(the first argument\), parallelism"),
        ({"id": "minutes"}, r"the id of the step comes first, without a name: aggregate\('minutes', …\)"),
        ({"n": Aggregate()}, "n: Aggregate must implement create, add, merge, result"),
    ],
)
def test_what_is_no_aggregate_is_refused(aggregates, why):
    with pytest.raises(PipelineError, match=why):
        checked_aggregates("aggregate", aggregates, ("parallelism",))


async def later(record):
    return record


@pytest.mark.parametrize(
    "make",
    [
        lambda: Sum(2.5),
        lambda: Sum(later),
        lambda: Sum(lambda record: (yield)),
        lambda: Sum("a", missing="zero"),
        lambda: Sum("a", where="b"),
        lambda: Count(where=later),
    ],
)
def test_arguments_that_can_not_work_are_refused(make):
    with pytest.raises(PipelineError):
        make()


def test_an_aggregate_of_ones_own_needs_no_constructor():
    class Longest(Aggregate):
        def __init__(self):
            pass

        def create(self):
            return ""

        def add(self, acc, value):
            return max(acc, value, key=len)

        def merge(self, a, b):
            return max(a, b, key=len)

        def result(self, acc):
            return acc

    assert results(Aggregation({"longest": Longest()}), ["a", "abc", "ab"]) == {"longest": "abc"}
