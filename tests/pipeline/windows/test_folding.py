"""What panes come to, by folding and by merging all of them."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from pipeline import Collect, First
from pipeline.aggregates import Aggregation
from pipeline.windows.folding import Folding
from pipeline.windows.grid import Panes


def joined(a, b):
    return (f"{a[0]}{b[0]}",)


changes = st.lists(st.tuples(st.integers(-30, 60), st.sampled_from("abc"), st.integers(-30, 60)), max_size=40)


@given(size=st.integers(1, 12), slide=st.integers(1, 12), changes=changes)
def test_each_window_has_its_panes_in_order_whatever_has_changed_since(size, slide, changes):
    shape = Panes(max(size, slide), slide)
    folding, panes = Folding(shape, joined), {}
    for at, letter, time in changes:
        pane = shape.pane(at)
        panes[pane] = joined(panes.get(pane, ("",)), (letter,))
        if pane < folding.until:
            folding.forget(b"ann")
        for end in range(shape.end_from(time), time + 3 * slide, slide):
            found = "".join(panes[one][0] for one in shape.panes_of(end) if one in panes)
            expected = (found,) if found else None
            assert folding.merged(end, panes, None) == expected
            assert folding.merged(end, panes, b"ann") == expected


def test_a_window_costs_few_merges():
    merges = 0

    def counting(a, b):
        nonlocal merges
        merges += 1
        return (a[0] + b[0],)

    shape = Panes(60, 1)
    folding, panes = Folding(shape, counting), {}
    for pane in range(6000):
        panes[pane] = (1,)
        assert folding.merged(pane + 1, panes, b"ann") == (min(pane + 1, 60),)
        panes.pop(pane - 59, None)
    assert merges < 6000 * 3.1


def test_what_is_merged_first_does_not_depend_on_what_is_remembered():
    """Were it otherwise, sums that round would change by a restart."""

    def shown(a, b):
        return (f"({a[0]}{b[0]})",)

    shape = Panes(10, 1)
    warm, panes = Folding(shape, shown), {}
    for pane in range(100):
        panes[pane] = (str(pane % 10),)
        result = warm.merged(pane + 1, panes, b"ann")
        assert Folding(shape, shown).merged(pane + 1, panes, b"ann") == result
        few = {one: panes[one] for one in list(panes)[-3:]}
        many = {**few, **{1000 + i: ("x",) for i in range(9)}}
        assert warm.merged(pane + 1, few, None) == warm.merged(pane + 1, many, None)


def test_nothing_large_is_remembered():
    for accumulator, remembered in (
        (1, 1),
        ((1, (2, 3)), 1),
        (("x",) * 33, 0),
        ((("x",) * 20,) * 2, 0),
        ((b"sketch", 1), 0),
        (b"sketch", 0),
        ([1], 0),
        (Decimal(1), 1),
    ):
        folding = Folding(Panes(10, 1), lambda a, b: a)
        folding.merged(10, dict.fromkeys(range(10), (accumulator,)), b"ann")
        assert len(folding._keys) == remembered
        folding.forget(b"ann")
        assert not folding._keys


def test_what_grows_large_is_not_remembered_any_more():
    """Else a list of all records would be kept for each pane."""
    aggregation = Aggregation({"all": Collect(), "first": First()})
    folding, panes = Folding(Panes(20, 1), aggregation.merge), {}
    for pane in range(40):
        panes[pane] = aggregation.create()
        for i in range(1 if pane < 10 else 100):
            panes[pane] = aggregation.add(panes[pane], f"{pane}-{i}", pane)
        folding.merged(pane + 1, {at: one for at, one in panes.items() if at > pane - 20}, b"ann")
        if pane == 9:
            assert folding._keys
    assert not folding._keys
