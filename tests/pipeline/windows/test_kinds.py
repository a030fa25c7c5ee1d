"""What users write of windows, and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pipeline import PipelineError, Session, Sliding, Tumbling


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tumbling(0), "at least 0.001 s"),
        (lambda: Tumbling("60"), "seconds or a timedelta"),
        (lambda: Tumbling(float("inf")), "seconds or a timedelta"),
        (lambda: Tumbling(0.0005), "fraction of a millisecond"),
        (lambda: Tumbling(timedelta(microseconds=1500)), "fraction of a millisecond"),
        (lambda: Tumbling(10**13), "longer than"),
        (lambda: Tumbling(3600, time_zone="Europe/Paris"), "whole days"),
        (lambda: Tumbling(86_400, time_zone="Europe/Pariss"), "IANA"),
        (lambda: Tumbling(86_400 * 20_000, time_zone="Europe/Paris"), "10,000 days"),
        (lambda: Sliding(60, 61), "in no window"),
        (lambda: Sliding(60, 0), "slide must be at least"),
        (lambda: Sliding(86_400, 0.001), "is made of 86,400,000 panes of 0.001 s, and 1,000,000 are the most"),
        (lambda: Session(-1), "gap must be at least"),
    ],
)
def test_a_window_that_can_not_be_is_refused(make, message):
    with pytest.raises(PipelineError, match=message):
        make()


def test_equal_windows_are_shown_equally():
    assert Tumbling(60).shown == Tumbling(timedelta(minutes=1), offset=-60).shown == "Tumbling(60.0, offset=0.0)"
    assert Sliding(60, 20, offset=25).shown == "Sliding(60.0, 20.0, offset=5.0)"
    assert Session(0.07).shown == "Session(0.07)"
