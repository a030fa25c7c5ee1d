"""Declarative aggregates: what many records of a key come to, `Sum("amount")` or `Count()`.

`base.py` has the contract. Running results and windows use aggregates together, as one `Aggregation`.
"""

from pipeline.aggregates.aggregation import Aggregation, checked_aggregates
from pipeline.aggregates.base import Aggregate, Unfit
from pipeline.aggregates.count import Count
from pipeline.aggregates.selectors import Selector
from pipeline.aggregates.sums import Sum

__all__ = ["Aggregate", "Aggregation", "Count", "Selector", "Sum", "Unfit", "checked_aggregates"]
