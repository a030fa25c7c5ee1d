"""Rescaling a job: which parallelism each attempt has, and who is told what."""

from __future__ import annotations

from typing import Any

import pytest
from attempt_parts import job_options
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pipeline import Pipeline, PipelineError
from pipeline.runtime.driver.job_options import JobOptions
from pipeline.runtime.driver.scaling import rescaling as module
from pipeline.runtime.driver.scaling.rescaling import Rescaling, changes, in_words, rescaled
from pipeline.testing import TestingSink, TestingSource


def pipeline(parallelism: int = 2, max_parallelism: int = 16) -> Pipeline:
    p = Pipeline("job", parallelism=parallelism, max_parallelism=max_parallelism)
    stream = p.source("in", TestingSource(), parallelism=1).map(str, id="text").rebalance().map(len, id="length")
    stream.key_by(lambda n: n).reduce(max, id="largest").sink("out", TestingSink())
    return p


def options(parallelism: int = 2, **more: Any) -> JobOptions:
    p = pipeline(parallelism, **more)
    return job_options(p.plan(), graph=p._graph, max_parallelism=p.max_parallelism)


def widths(options: JobOptions) -> dict[str, int]:
    return {step.id: vertex.parallelism for vertex in options.plan.vertices for step in vertex.steps}


def test_steps_that_set_no_parallelism_get_the_new_one() -> None:
    before = options()
    after = rescaled(before, 5, None)
    assert widths(after) == {"in": 1, "text": 1, "length": 5, "largest": 5, "out": 5}
    assert in_words(before.plan, after.plan) == "length, largest, out 2 → 5"
    assert widths(before)["length"] == 2, "what runs stays as it is"


def test_a_step_is_rescaled_with_those_that_follow_it_and_keeps_that() -> None:
    alone = rescaled(options(), 3, "largest")
    assert widths(alone) == {"in": 1, "text": 1, "length": 2, "largest": 3, "out": 3}
    assert widths(rescaled(alone, 4, None)) == {"in": 1, "text": 1, "length": 4, "largest": 3, "out": 3}


def test_what_was_started_is_rescaled_and_not_what_the_pipeline_has_become() -> None:
    p = pipeline()
    started = p.options("latest", spark=None, claim=None, rewind=False, allow_unclaimed=False, ignore_in_flight=None)
    p.source("more", TestingSource()).sink("more-out", TestingSink())
    assert "more" not in widths(rescaled(started, 3, None))


@pytest.mark.parametrize(
    ("parallelism", "step", "says"),
    [
        (2, None, "nothing would change: every step that goes by the pipeline's parallelism has parallelism 2 already"),
        (17, None, "parallelism 17 is above the pipeline's max_parallelism 16"),
        (3, "totals", "there is no step 'totals'; there are in, text, length, largest, out"),
        (0, None, "parallelism must be"),
        (10**9, None, "parallelism must be .*32767"),
    ],
)
def test_what_can_not_be_is_refused(parallelism: int, step: str | None, says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        rescaled(options(), parallelism, step)


def test_a_pipeline_whose_steps_all_set_their_own_needs_a_step() -> None:
    p = Pipeline("job")
    p.source("in", TestingSource(), parallelism=2).sink("out", TestingSink())
    with pytest.raises(PipelineError, match="every step sets a parallelism of its own"):
        rescaled(job_options(p.plan(), graph=p._graph), 3, None)


def test_the_newest_rescales_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT", 3)
    rescaling = Rescaling(options(2))
    for parallelism in (3, 4, 5, 6, 7):
        rescaling.ask(rescaled(rescaling.options, parallelism, None), lambda _: None, 10.0, 1.7e9)
        rescaling.checkpointed(None)
        rescaling.attempt_ended(None)
        rescaling.running(14.0)
    assert [one.what.rpartition(" ")[2] for one in rescaling.done] == ["5", "6", "7"]
    assert [one.seconds for one in rescaling.done] == [4.0] * 3


class Rescales(RuleBasedStateMachine):
    """A job that is rescaled, fails, and ends, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.rescaling = Rescaling(options(2))
        self.width = 2
        """Of the newest attempt that has run, or that is on trial."""
        self.answers: list[list[Exception | None]] = []
        self.asked: int | None = None
        """What a rescale is to bring whose checkpoint is under way."""
        self.trial: int | None = None
        """What the attempt before had, if the next one has another parallelism and does not run yet."""
        self.ending = self.over = False

    @precondition(lambda self: not self.over)
    @rule(parallelism=st.integers(1, 6))
    def ask(self, parallelism: int) -> None:
        given: list[Exception | None] = []
        busy = self.asked is not None or self.trial is not None
        if parallelism == self.width:
            return  # it is refused as no change
        wanted = rescaled(self.rescaling.options, parallelism, None)
        if busy:
            with pytest.raises(PipelineError, match="a rescale is under way already"):
                self.rescaling.ask(wanted, given.append, 0.0, 0.0)
            return
        self.rescaling.ask(wanted, given.append, 0.0, 0.0)
        self.asked = parallelism
        self.answers.append(given)

    @precondition(lambda self: self.asked is not None)
    @rule(fails=st.booleans())
    def checkpointed(self, fails: bool) -> None:
        assert self.asked is not None
        self.rescaling.checkpointed(RuntimeError("no") if fails else None)
        if fails:
            assert "keeps its parallelism: no" in str(self.answers[-1][0])
        else:
            self.trial, self.width, self.ending = self.width, self.asked, True
        self.asked = None

    @precondition(lambda self: not self.over and self.asked is None)
    @rule(fails=st.booleans())
    def attempt_ends(self, fails: bool) -> None:
        planned = self.rescaling.attempt_ended("boom" if fails else None)
        assert planned == (self.ending and not fails)
        if self.ending:
            self.ending = False
        elif fails and self.trial is not None:
            self.width, self.trial = self.trial, None
            assert "goes back to the old one: boom" in str(self.answers[-1][0])
        elif not fails:
            self._end()

    @precondition(lambda self: not self.over and not self.ending and self.asked is None)
    @rule()
    def runs(self) -> None:
        before = len(self.rescaling.done)
        self.rescaling.running(1.0)
        assert len(self.rescaling.done) - before == (self.trial is not None)
        if self.trial is not None:
            assert self.answers[-1] == [None]
            self.trial = None

    @precondition(lambda self: not self.over)
    @rule()
    def job_ends(self) -> None:
        self._end()

    def _end(self) -> None:
        self.rescaling.job_ended("cancelled")
        self.over = True
        self.asked = self.trial = None
        self.ending = False
        assert all(len(given) == 1 for given in self.answers), "whoever has asked is told"

    @precondition(lambda self: self.over)
    @rule()
    def nothing_is_under_way(self) -> None:
        assert (self.rescaling.under_way, self.rescaling.on_trial) == (None, False)

    @invariant()
    def it_has_one_parallelism_or_the_other(self) -> None:
        assert self.over or widths(self.rescaling.options)["largest"] == self.width
        assert all(len(given) <= 1 for given in self.answers)
        assert self.rescaling.on_trial == (self.trial is not None and not self.ending)
        assert (self.rescaling.under_way is None) == (self.asked is None and self.trial is None)
        assert self.rescaling.holds_back_requests == (self.asked is not None or self.ending)


TestRescales = Rescales.TestCase
TestRescales.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)


def test_changes_are_those_of_steps_and_not_of_their_chains() -> None:
    before = options()
    after = rescaled(before, 3, "out")
    assert len(before.plan.vertices) + 1 == len(after.plan.vertices)
    assert changes(before.plan, after.plan) == {"out": (2, 3)}
