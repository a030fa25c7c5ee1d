"""The sessions of a key against a list that is gone through."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paged_state import OneState

from checkpoint.state.heap.backend import HeapBackend
from pipeline.paged import directory
from pipeline.windows.session_set import SessionSet

GAP = 5


@pytest.mark.parametrize("most", [2, directory.MOST])
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(st.one_of(st.integers(-60, 60), st.tuples(st.integers(0, 5))), max_size=60))
def test_it_has_the_sessions_of_a_plain_list(monkeypatch, most, steps):
    monkeypatch.setattr(directory, "MOST", most)
    state, plain = OneState(HeapBackend, undo=False), []
    for step in steps:
        sessions = SessionSet(state.handle(), GAP)
        if isinstance(step, tuple):
            if step[0] < len(plain):
                sessions.remove(plain.pop(step[0])[0])
        else:
            around = [one for one in plain if one[0] <= step + GAP and step <= one[1] + GAP]
            found = sessions.around(step)
            assert [(one.begin, one.last) for one in found] == around
            joined = (min([step, *(one[0] for one in around)]), max([step, *(one[1] for one in around)]))
            plain = sorted([*(one for one in plain if one not in around), joined])
            sessions.put(*joined, None, found)
        assert [(one.begin, one.last) for one in sessions.all()] == plain
        assert len(sessions) == len(plain)
        for at in range(-70, 80, 7):
            holding = [one for one in plain if one[0] <= at < one[1] + GAP]
            found = sessions.holding(at)
            assert ([] if found is None else [(found.begin, found.last)]) == holding
