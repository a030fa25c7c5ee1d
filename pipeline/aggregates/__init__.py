"""Declarative aggregates: what many records of a key come to, `Sum("amount")` or `Count()`.

`base.py` has the contract. Running results and windows use aggregates together, as one `Aggregation`.
"""

from pipeline.aggregates.aggregation import Accumulators, Aggregation, checked_aggregates
from pipeline.aggregates.base import Aggregate, Unfit
from pipeline.aggregates.collected import Collect, CountDistinct
from pipeline.aggregates.count import Count
from pipeline.aggregates.extremes import Max, Min
from pipeline.aggregates.fold import Fold
from pipeline.aggregates.ranked import First, Last, Top
from pipeline.aggregates.selectors import Selector
from pipeline.aggregates.sketches import ApproxCountDistinct, Quantiles
from pipeline.aggregates.sums import Mean, StandardDeviation, Sum, Variance

__all__ = [
    "Accumulators",
    "Aggregate",
    "Aggregation",
    "ApproxCountDistinct",
    "Collect",
    "Count",
    "CountDistinct",
    "First",
    "Fold",
    "Last",
    "Max",
    "Mean",
    "Min",
    "Quantiles",
    "Selector",
    "StandardDeviation",
    "Sum",
    "Top",
    "Unfit",
    "Variance",
    "checked_aggregates",
]
