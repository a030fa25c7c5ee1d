"""Which operator runs a kind of windows. A new kind is added here."""

from __future__ import annotations

from pipeline.aggregates import Aggregation
from pipeline.errors import PipelineError
from pipeline.operators import KeyedOperator
from pipeline.windows.counting import CountWindows, GlobalWindows
from pipeline.windows.kinds import CountWindow, Global, Session, Sliding, Tumbling, Window
from pipeline.windows.operator import Options
from pipeline.windows.sessions import SessionWindows
from pipeline.windows.sliding import SlidingWindows
from pipeline.windows.tumbling import TumblingWindows


def operator_of(window: Window, aggregation: Aggregation, options: Options) -> KeyedOperator:
    """
    Raises:
        PipelineError: the windows can't have one of the options, or are of no kind that there is.
    """
    if isinstance(window, CountWindow | Global) and options != Options():
        raise PipelineError(
            f"window: {type(window).__name__} takes no lateness and no early results, which go by event time"
        )
    match window:
        case Tumbling():
            return TumblingWindows(window, aggregation, options)
        case Sliding():
            return SlidingWindows(window, aggregation, options)
        case Session():
            return SessionWindows(window, aggregation, options)
        case CountWindow():
            return CountWindows(window, aggregation)
        case Global():
            return GlobalWindows(window, aggregation)
    raise PipelineError(f"window: there is no operator for {type(window).__name__}; use one of Weir's kinds of windows")
