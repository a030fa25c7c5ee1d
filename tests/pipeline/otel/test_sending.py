from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.otel.sending import Sending


@given(st.lists(st.sampled_from([None, "it answers 503", "TimeoutError"])))
def test_it_counts_what_has_got_there_and_knows_since_when_nothing_does(problems: list[str | None]) -> None:
    sending = Sending("http://localhost:4318", 60.0)
    for now, problem in enumerate(problems, 1):
        sending = sending.after(problem, now)
    good = [now for now, problem in enumerate(problems, 1) if problem is None]
    assert (sending.sent, sending.last) == (len(good), good[-1] if good else None)
    failing = problems[good[-1] if good else 0 :]
    assert sending.failing_since == (len(problems) - len(failing) + 1 if failing else None)
    assert sending.why == (failing[-1] if failing else None)
