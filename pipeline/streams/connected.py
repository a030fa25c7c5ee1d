"""Two streams that one operator reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from checkpoint.state_backends import StateBackend
from pipeline.graph import Step, Width
from pipeline.on_error import OnError
from pipeline.operators import Operator
from pipeline.options import pipeline_options
from pipeline.streams.operator_steps import add_operator
from pipeline.streams.stream import Stream, T, U

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    V = TypeVarWithDefault("V", default=Any, covariant=True)
else:
    V = TypeVar("V", covariant=True)


@pipeline_options
class ConnectedStreams(Generic[T, V]):
    """Two streams that one operator reads."""

    def __init__(self, first: Stream[T], second: Stream[V]):
        self._first = first
        self._second = second
        self.used = False
        self.made_by = "connect"
        first._pipeline._graph.derived.append(self)

    def process(
        self,
        id: str,
        operator: Operator[T, U, V],
        parallelism: int | None = None,
        state_backend: StateBackend | None = None,
        on_error: OnError = "fail",
    ) -> Stream[U]:
        """Run an operator whose `process` gets the first stream's records, and `process_connected` the second's.

        A `KeyedOperator` needs both streams keyed, where records with equal keys share state, or one keyed and the
        other broadcast: for that one's records there is no current key.

        Args:
            state_backend: where its keyed state is; `None` = as `CheckpointConfig` says.
            on_error: as of `Stream.process`. A record of a broadcast stream fails in every subtask by itself.
        """
        return Stream(self._first._pipeline, self._add(id, operator, parallelism, state_backend, on_error))

    def _add(
        self,
        id: Any,
        operator: Operator[Any, Any, Any],
        parallelism: int | None,
        state_backend: StateBackend | None,
        on_error: OnError,
        method: str | None = None,
    ) -> Step:
        """`method`: the one that adds the step, if it isn't `process`; a step without an id is named after it."""
        first, second, pipeline = self._first, self._second, self._first._pipeline
        self.used = True
        inputs = [stream._input(number) for number, stream in enumerate((first, second))]
        width: Width = (pipeline.parallelism, ())
        if parallelism is not None:
            width = parallelism, None
        else:
            # Forward streams can only come to as many subtasks as they have; a broadcast one fits everywhere.
            others = [
                s for s, one in zip((first, second), inputs, strict=True) if not pipeline._graph.is_broadcast(one)
            ]
            if others and not any(stream._spreads for stream in others):
                width = max(stream._step.parallelism for stream in others), tuple(s.step_index for s in others)
        return add_operator(pipeline, id, operator, inputs, width, state_backend, on_error, method)

    @property
    def step_index(self) -> int:
        return self._first.step_index
