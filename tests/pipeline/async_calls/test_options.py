"""What `map_async` and lookup joins refuse."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline import Pipeline, PipelineError
from sources import SequenceSource


async def ask(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"backoff": 1}, "backoff=1 would have no effect without retries; give retries=, too"),
        ({"retry_on": KeyError}, "would have no effect without retries; give retries=, too"),
        ({"batch_wait": 1}, "batch_wait=1 would have no effect without batch_size; give batch_size=, too"),
        ({"retries": 1, "retry_on": ()}, "retry_on must be a class of exceptions, or a tuple of them"),
        ({"retries": 1, "retry_on": BaseException}, "retry_on must be a class of exceptions"),
        ({"retries": -1}, "retries"),
        ({"retries": 1, "backoff": -1}, "backoff"),
        ({"timeout": 0}, "timeout must be more than 0 s"),
        ({"capacity": 0}, "capacity"),
        ({"ordered": 1}, "ordered must be True, False or"),
        ({"batch_size": 5, "capacity": 4}, "batch_size must be at most capacity"),
        ({"batch_size": 5, "batch_wait": -1}, "batch_wait"),
    ],
)
def test_an_option_that_can_not_be_or_has_no_effect_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        Pipeline("job").source("in", SequenceSource(1)).map_async(ask, **options)


def test_options_that_have_what_they_belong_to_are_taken() -> None:
    stream = Pipeline("job").source("in", SequenceSource(1))
    step = stream.map_async(ask, retries=2, backoff=3, retry_on=(KeyError, OSError), batch_size=4, batch_wait=5)._step
    assert (step.payload.backoff, step.payload.retry_on, step.payload.batch_wait) == (3, (KeyError, OSError), 5)
    step = stream.map_async(ask, retries=2, batch_size=4)._step
    assert (step.payload.backoff, step.payload.retry_on, step.payload.batch_wait) == (0.1, (Exception,), 0.05)
