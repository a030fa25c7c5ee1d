"""Windows: the records of a key, taken together by time or by number.

`kinds.py` has what users write, `days.py` and `grid.py` are the pure cores, and the operators that run them are told by
`operators.py`.
"""

from pipeline.windows.kinds import CountWindow, Global, Session, Sliding, Tumbling, Window

__all__ = ["CountWindow", "Global", "Session", "Sliding", "Tumbling", "Window"]
