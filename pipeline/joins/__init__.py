"""Joins of two keyed streams by event time: each pair is found once, whatever the order in which records come.

`kept.py` is what a join knows of one input of a key. Each kind of join is an operator: `interval.py`, `as_of.py`,
`windowed.py` (by what `window_assigners.py` says of windows).
"""

from pipeline.joins.as_of import AsOfJoin
from pipeline.joins.interval import IntervalJoin
from pipeline.joins.options import How
from pipeline.joins.windowed import WindowJoin

__all__ = ["AsOfJoin", "How", "IntervalJoin", "WindowJoin"]
