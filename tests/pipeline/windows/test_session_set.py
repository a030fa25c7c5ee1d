"""The sessions of a key against a list that is gone through."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from pipeline.windows.session_set import SessionSet

GAP = 5


@given(st.lists(st.one_of(st.integers(-60, 60), st.tuples(st.integers(0, 5))), max_size=60))
def test_it_has_the_sessions_of_a_plain_list(steps):
    state, plain = SessionSet.new(), []
    for step in steps:
        sessions = SessionSet(copy.deepcopy(state), GAP)
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
        state = sessions._state
        assert [(one.begin, one.last) for one in sessions.all()] == plain
        assert len(sessions) == len(plain)
        for at in range(-70, 80, 7):
            holding = [one for one in plain if one[0] <= at < one[1] + GAP]
            found = sessions.holding(at)
            assert ([] if found is None else [(found.begin, found.last)]) == holding
