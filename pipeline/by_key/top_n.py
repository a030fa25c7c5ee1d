"""`top_n`: the greatest records of each key, whenever they change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from checkpoint.options import Seconds
from checkpoint.state import TTL, ValueState
from pipeline.aggregates import Top
from pipeline.errors import PipelineError
from pipeline.operators import KeyedOperator, OperatorContext

_NOTHING: Final = ()


class TopN(KeyedOperator):
    """Which records those are is what the aggregate `Top` says."""

    best: ValueState[Any] = ValueState()

    def __init__(self, top: Top) -> None:
        self._top = top

    def open(self, ctx: OperatorContext) -> None:
        self._add = self._top.step(f"top_n({self._top.n})")

    def process(self, value: Any, ctx: OperatorContext) -> Iterable[Any]:
        top, before = self._top, self.best.value
        kept = top.create() if before is None else before[: top.n]  # n may have been more
        after = self._add(kept, value, ctx.timestamp)
        if after is kept:
            return _NOTHING
        self.best.value = after
        return ({"key": ctx.key, "top": top.result(after)},)

    def snapshot(self, checkpoint_id: int) -> Any:
        return {"n": self._top.n, "smallest": self._top.smallest}

    def restore(self, state: Mapping[str, Any]) -> None:
        top = self._top
        if state["n"] < top.n or state["smallest"] != top.smallest:
            before, now = _shown(state["n"], state["smallest"]), _shown(top.n, top.smallest)
            raise PipelineError(
                f"top_n: the checkpoint has records by {before}, and the step has {now} now: what was not among them "
                "is gone. Give the step another id, so that it begins anew, and leave the old state behind"
            )


def _shown(n: int, smallest: bool) -> str:
    return f"n={n}, smallest={smallest}"


def top_n(top: Top, ttl: TTL | Seconds | None) -> KeyedOperator:
    """`ttl`: how long a key's records are kept after they last changed; `None` = for ever."""

    class TopNKept(TopN):
        best = ValueState(ttl=ttl)

    return TopNKept(top)
